//! The command line.

use std::{str::FromStr, time::Duration};

use crate::traffic::{PACKET_BYTES_MAX, PACKET_BYTES_MIN};

/// What to measure, and how long.
pub(crate) struct Options {
    /// UDP payload of a packet: header, sealed payload and tag.
    pub(crate) bytes: usize,
    pub(crate) destinations: usize,
    /// CPU time of one measurement.
    pub(crate) seconds: Duration,
    pub(crate) rounds: usize,
    pub(crate) core: usize,
    pub(crate) json: bool,
}

impl Options {
    pub(crate) fn from_arguments(
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self, String> {
        let mut options = Self {
            bytes: 160,
            destinations: 1000,
            seconds: Duration::from_millis(400),
            rounds: 9,
            core: 0,
            json: false,
        };
        while let Some(name) = arguments.next() {
            let value = &mut arguments;
            match name.as_str() {
                "--bytes" => options.bytes = number(&name, value)?,
                "--destinations" => options.destinations = number(&name, value)?,
                "--rounds" => options.rounds = number(&name, value)?,
                "--core" => options.core = number(&name, value)?,
                "--seconds" => {
                    options.seconds = Duration::try_from_secs_f64(number(&name, value)?)
                        .map_err(|error| format!("--seconds: {error}"))?;
                }
                "--json" => options.json = true,
                // Cargo passes this to every benchmark.
                "--bench" => {}
                _ => return Err(format!("unknown argument: {name}")),
            }
        }
        options.check()
    }

    fn check(self) -> Result<Self, String> {
        if !(PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&self.bytes) {
            return Err(format!(
                "--bytes: expected {PACKET_BYTES_MIN} to {PACKET_BYTES_MAX}"
            ));
        }
        if self.destinations == 0 || self.rounds == 0 || self.seconds.is_zero() {
            return Err("--destinations, --rounds and --seconds: expected more than zero".into());
        }
        Ok(self)
    }
}

fn number<T: FromStr>(
    name: &str,
    arguments: &mut impl Iterator<Item = String>,
) -> Result<T, String> {
    let value = arguments.next().and_then(|value| value.parse().ok());
    value.ok_or_else(|| format!("{name}: expected a number"))
}
