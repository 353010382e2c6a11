//! The command line.

use std::{str::FromStr, time::Duration};

/// What to send, to how many, and how long.
pub(crate) struct Options {
    pub(crate) connections: usize,
    /// Payload of a datagram.
    pub(crate) bytes: usize,
    /// How long it is measured.
    pub(crate) seconds: Duration,
    /// Where the server runs.
    pub(crate) core: usize,
    pub(crate) json: bool,
}

impl Options {
    pub(crate) fn from_arguments(
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self, String> {
        let mut options = Self {
            connections: 500,
            bytes: 127,
            seconds: Duration::from_secs(10),
            core: 0,
            json: false,
        };
        while let Some(name) = arguments.next() {
            let value = &mut arguments;
            match name.as_str() {
                "--connections" => options.connections = number(&name, value)?,
                "--bytes" => options.bytes = number(&name, value)?,
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
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(format!("--connections: expected 1 to {CONNECTIONS_MAX}"));
        }
        if !(1..=BYTES_MAX).contains(&self.bytes) {
            return Err(format!("--bytes: expected 1 to {BYTES_MAX}"));
        }
        if self.seconds.is_zero() {
            return Err("--seconds: expected more than zero".into());
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

const CONNECTIONS_MAX: usize = 10_000;
/// What fits into the first packets of any path (RFC 9000 §14.1), less header and tag.
const BYTES_MAX: usize = 1150;
