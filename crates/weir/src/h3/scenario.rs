//! The scenarios of `weir h3 compare`: file, connections and link of a load.

use anyhow::bail;

use super::plan::Handshake;

/// A kind of load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) name: String,
    /// Name of the file that requests ask for.
    pub(crate) file: &'static str,
    pub(crate) bytes: u64,
    /// The handshake of short connections; `None` for long ones.
    pub(crate) short: Option<Handshake>,
    /// The emulated link between client and server; `None` without one.
    pub(crate) link: Option<LinkConditions>,
}

impl Load {
    /// Returns the load of this name: the name of a file, for long connections. With `-short`, `-resumed` or `-0rtt` behind
    /// it, each connection has one request.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (file, kind) = name.split_once('-').unwrap_or((name, ""));
        let (file, bytes) = FILES.into_iter().find(|(one, _)| *one == file)?;
        let short = match kind {
            "" => None,
            "short" => Some(Handshake::Full),
            "resumed" => Some(Handshake::Resumed),
            "0rtt" => Some(Handshake::Early),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            file,
            bytes,
            short,
            link: None,
        })
    }

    /// Returns the same load over a link.
    #[must_use]
    pub(super) fn over(mut self, link: Option<LinkConditions>) -> Self {
        if let Some(link) = link {
            self.name = format!("{}, {}", self.name, link.words());
        }
        Self { link, ..self }
    }

    /// Returns the smallest number of open connections.
    pub(crate) fn connections(&self) -> usize {
        if self.short.is_some() { 100 } else { 10 }
    }

    /// Returns the load in words, apart from the number of connections.
    pub(crate) fn words(&self) -> String {
        let per_connection = match self.short {
            None => "10 requests at once on each connection",
            Some(Handshake::Full) => "one request on each connection, full handshakes",
            Some(Handshake::Resumed) => "one request on each connection, resumed handshakes",
            Some(Handshake::Early) => {
                "one request on each connection, requests in the first packet (0-RTT)"
            }
        };
        let link = self.link.map_or_else(String::new, |link| {
            format!(", over weir link ({})", link.words())
        });
        format!("answers of {} bytes, {per_connection}{link}", self.bytes)
    }
}

/// Conditions of an emulated link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkConditions {
    /// Share of packets that are lost in each direction, 0 to 1.
    loss: f64,
    round_trip_ms: u64,
}

impl LinkConditions {
    /// Returns each loss with each round-trip time. `None` is the path without a link: no loss, no delay.
    pub(super) fn grid(loss: &[f64], round_trip_ms: &[u64]) -> Vec<Option<Self>> {
        let loss = if loss.is_empty() { &[0.0] } else { loss };
        let times = if round_trip_ms.is_empty() {
            &[0]
        } else {
            round_trip_ms
        };
        let both = loss.iter().flat_map(|loss| {
            times.iter().map(move |round_trip_ms| Self {
                loss: *loss,
                round_trip_ms: *round_trip_ms,
            })
        });
        both.map(|link| (link.loss > 0.0 || link.round_trip_ms > 0).then_some(link))
            .collect()
    }

    /// Refuses values out of range, values given twice, and too many of them.
    pub(super) fn check(loss: &[f64], round_trip_ms: &[u64]) -> anyhow::Result<()> {
        if let Some(wrong) = loss.iter().find(|loss| !(0.0..1.0).contains(*loss)) {
            bail!("loss: expected shares of packets from 0 to below 1, such as 0.01, not {wrong}");
        }
        if let Some(wrong) = round_trip_ms.iter().find(|time| **time > ROUND_TRIP_MS_MAX) {
            bail!("round_trip_ms: expected at most {ROUND_TRIP_MS_MAX} ms, not {wrong}");
        }
        if loss.len() > LINKS_MAX || round_trip_ms.len() > LINKS_MAX {
            bail!("loss, round_trip_ms: expected at most {LINKS_MAX} values each");
        }
        let grid = Self::grid(loss, round_trip_ms);
        let is_twice = |(number, link)| grid[..number].contains(link);
        if grid.iter().enumerate().any(is_twice) {
            bail!("loss, round_trip_ms: a value is listed twice; expected each one once");
        }
        Ok(())
    }

    /// Returns the flags of `weir link`. Half of the round-trip time is the delay of each direction.
    pub(super) fn flags(self) -> Vec<String> {
        let delay_us = self.round_trip_ms * 500;
        let mut flags = vec![format!("--delay={delay_us}us"), QUEUE.to_owned()];
        if self.loss > 0.0 {
            flags.push(format!("--loss={}", self.loss));
        }
        flags
    }

    /// Returns the conditions in words.
    fn words(self) -> String {
        let loss = (self.loss > 0.0).then(|| {
            // Without the digits that binary fractions add.
            let percent = (self.loss * 1e8).round() / 1e6;
            format!("loss {percent} %")
        });
        let time =
            (self.round_trip_ms > 0).then(|| format!("round trip {} ms", self.round_trip_ms));
        let words: Vec<String> = loss.into_iter().chain(time).collect();
        words.join(", ")
    }
}

/// Names and sizes of the files, in bytes.
pub(crate) const FILES: [(&str, u64); 5] = [
    ("1k", 1 << 10),
    ("5k", 5 << 10),
    ("15k", 15 << 10),
    ("50k", 50 << 10),
    ("2m", 2 << 20),
];
/// Most values of loss, and of round-trip times.
const LINKS_MAX: usize = 16;
/// Longest round-trip time: ten seconds.
const ROUND_TRIP_MS_MAX: u64 = 10_000;
/// A queue that holds what all connections send at once: the link has no rate.
const QUEUE: &str = "--queue=1000000000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_by_their_names() {
        let long = Load::named("2m").unwrap();
        assert_eq!(
            (long.bytes, long.connections(), long.short),
            (2 << 20, 10, None)
        );
        let short = Load::named("1k-0rtt").unwrap();
        assert_eq!((short.file, short.connections()), ("1k", 100));
        assert_eq!(short.short, Some(Handshake::Early));
        assert!(short.words().contains("0-RTT"));
    }

    #[test]
    fn a_link_has_half_of_the_round_trip_in_each_direction() {
        let links = LinkConditions::grid(&[0.001], &[25]);
        let link = links[0].unwrap();
        assert_eq!(
            link.flags(),
            ["--delay=12500us", QUEUE, "--loss=0.001"].map(str::to_owned)
        );
        assert_eq!(link.words(), "loss 0.1 %, round trip 25 ms");
        assert_eq!(LinkConditions::grid(&[], &[]), [None]);
    }
}
