//! The value of a `key = value` line, and its kinds.

use std::time::Duration;

use weir_quic::tls::Acknowledgements;

use super::error::{Problem, ProfileError};
use super::{Interval, Mode, ObjectSize, ObjectsPerGroup, StreamMapping, TrackMode};
use crate::interpolate::{Template, TemplateError};
use crate::limits::{
    DELAY_MAX, DURATION_MAX, EXTENSION_HEADER_BYTES_MAX, EXTENSION_HEADERS_MAX, INTERVAL_MIN,
    JOINING_GROUPS_MAX, OBJECT_BYTES_MAX, OBJECT_BYTES_MIN, OBJECTS_PER_GROUP_MAX, PER_SECOND_MAX,
    RECEIVE_PAUSE_MAX, REPLY_SPREAD_MAX, SUBSCRIBER_THREADS_MAX,
};

/// A value with its line and key.
#[derive(Debug)]
pub(super) struct Value<'a> {
    pub(super) line: usize,
    /// The key as written.
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

/// The values of `pattern`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternName {
    Interval,
    Random,
    Bursts,
    Pauses,
    HeavyTail,
    Fetch,
}

impl PatternName {
    /// Every pattern.
    const ALL: [Self; 6] = [
        Self::Interval,
        Self::Random,
        Self::Bursts,
        Self::Pauses,
        Self::HeavyTail,
        Self::Fetch,
    ];

    /// Returns the name in a profile.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Interval => "interval",
            Self::Random => "random",
            Self::Bursts => "bursts",
            Self::Pauses => "pauses",
            Self::HeavyTail => "heavy_tail",
            Self::Fetch => "fetch",
        }
    }
}

impl Value<'_> {
    pub(super) fn fault(&self, problem: Problem) -> ProfileError {
        ProfileError::of_key(self.line, self.name, problem)
    }

    pub(super) fn template_fault(&self, error: TemplateError) -> ProfileError {
        self.fault(Problem::Template(error))
    }

    /// Returns an error: this value contradicts `other`.
    pub(super) fn conflict(&self, other: &Value<'_>, reason: String) -> ProfileError {
        self.fault(Problem::Conflict {
            other_name: other.name.to_owned(),
            other_line: other.line,
            reason,
        })
    }

    pub(super) fn template(&self) -> Result<Template, ProfileError> {
        if self.text.is_empty() {
            return Err(self.expected("a text"));
        }
        Template::parse(self.text).map_err(|error| self.template_fault(error))
    }

    pub(super) fn boolean(&self) -> Result<bool, ProfileError> {
        match self.text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.expected("true or false")),
        }
    }

    pub(super) fn track_mode(&self) -> Result<TrackMode, ProfileError> {
        match self.text.to_ascii_lowercase().as_str() {
            "datagram" => Ok(TrackMode::Datagram),
            "stream" => Ok(TrackMode::Stream),
            _ => Err(self.expected("datagram or stream")),
        }
    }

    pub(super) fn mode(&self) -> Result<Mode, ProfileError> {
        match self.text {
            "1" => Ok(Mode::Publisher),
            "2" => Ok(Mode::Subscriber),
            "3" => Ok(Mode::Both),
            _ => Err(self.expected("1 (publisher), 2 (subscriber) or 3 (both)")),
        }
    }

    pub(super) fn priority(&self) -> Result<u8, ProfileError> {
        let number = self.number().and_then(|number| u8::try_from(number).ok());
        number.ok_or_else(|| self.expected("a number from 0 to 255"))
    }

    pub(super) fn objects_per_group(&self) -> Result<ObjectsPerGroup, ProfileError> {
        let objects = self.number().and_then(ObjectsPerGroup::new);
        objects.ok_or_else(|| {
            self.expected(&format!(
                "a number of objects from 1 to {OBJECTS_PER_GROUP_MAX}"
            ))
        })
    }

    pub(super) fn object_size(&self) -> Result<ObjectSize, ProfileError> {
        self.number().and_then(ObjectSize::new).ok_or_else(|| {
            self.expected(&format!(
                "a size from {OBJECT_BYTES_MIN} (the DATA header alone) to {OBJECT_BYTES_MAX} bytes"
            ))
        })
    }

    pub(super) fn stream_mapping(&self) -> Result<StreamMapping, ProfileError> {
        let named = |mapping: &StreamMapping| mapping.name() == self.text.to_ascii_lowercase();
        StreamMapping::ALL.into_iter().find(named).ok_or_else(|| {
            self.expected("subgroup_per_group, subgroup_per_object or two_subgroups")
        })
    }

    pub(super) fn extension_headers(&self) -> Result<u8, ProfileError> {
        let number = self.number().and_then(|number| u8::try_from(number).ok());
        number
            .filter(|number| *number <= EXTENSION_HEADERS_MAX)
            .ok_or_else(|| self.expected(&format!("a number from 0 to {EXTENSION_HEADERS_MAX}")))
    }

    pub(super) fn extension_header_size(&self) -> Result<u16, ProfileError> {
        let size = self.number().and_then(|number| u16::try_from(number).ok());
        size.filter(|size| (1..=EXTENSION_HEADER_BYTES_MAX).contains(size))
            .ok_or_else(|| self.expected(&format!("1 to {EXTENSION_HEADER_BYTES_MAX} bytes")))
    }

    /// Parses the name of a pattern. Some patterns need other keys too.
    pub(super) fn pattern(&self) -> Result<PatternName, ProfileError> {
        let named = |pattern: &PatternName| pattern.name() == self.text.to_ascii_lowercase();
        let found = PatternName::ALL.into_iter().find(named);
        found.ok_or_else(|| self.expected("interval, random, bursts, pauses, heavy_tail or fetch"))
    }

    /// Parses the groups that one FETCH asks for.
    pub(super) fn fetch_groups(&self) -> Result<ObjectsPerGroup, ProfileError> {
        let groups = self.number().and_then(ObjectsPerGroup::new);
        groups.ok_or_else(|| {
            self.expected(&format!(
                "a number of groups from 1 to {OBJECTS_PER_GROUP_MAX}"
            ))
        })
    }

    /// Parses the groups before the current one that a joining subscriber fetches.
    pub(super) fn joining_fetch(&self) -> Result<u32, ProfileError> {
        let groups = self.number().filter(|groups| *groups <= JOINING_GROUPS_MAX);
        groups.ok_or_else(|| {
            self.expected(&format!(
                "a number of groups from 0 to {JOINING_GROUPS_MAX}"
            ))
        })
    }

    pub(super) fn burst_objects(&self) -> Result<ObjectsPerGroup, ProfileError> {
        let objects = self.number().filter(|number| *number >= 2);
        objects.and_then(ObjectsPerGroup::new).ok_or_else(|| {
            self.expected(&format!(
                "a number of objects from 2 to {OBJECTS_PER_GROUP_MAX}"
            ))
        })
    }

    /// Parses a share in per cent, below 100 so that some subscribers are left.
    pub(super) fn share(&self) -> Result<u8, ProfileError> {
        let share = self.number().and_then(|number| u8::try_from(number).ok());
        share
            .filter(|share| *share < 100)
            .ok_or_else(|| self.expected("a share from 0 to 99 per cent"))
    }

    pub(super) fn per_second(&self) -> Result<u32, ProfileError> {
        let rate = self.number().filter(|rate| *rate <= PER_SECOND_MAX);
        rate.ok_or_else(|| self.expected(&format!("0 to {PER_SECOND_MAX} per second")))
    }

    /// Parses whether each subscriber has a socket of its own.
    pub(super) fn own_sockets(&self) -> Result<bool, ProfileError> {
        match self.text.to_ascii_lowercase().as_str() {
            "shared" => Ok(false),
            "own" => Ok(true),
            _ => Err(self.expected("shared or own")),
        }
    }

    pub(super) fn threads(&self) -> Result<u16, ProfileError> {
        let threads = self.number().and_then(|number| u16::try_from(number).ok());
        threads
            .filter(|threads| (1..=SUBSCRIBER_THREADS_MAX).contains(threads))
            .ok_or_else(|| self.expected(&format!("1 to {SUBSCRIBER_THREADS_MAX} threads")))
    }

    pub(super) fn acknowledgements(&self) -> Result<Acknowledgements, ProfileError> {
        match self.text.to_ascii_lowercase().as_str() {
            "delayed" => Ok(Acknowledgements::Delayed),
            "immediate" => Ok(Acknowledgements::Immediate),
            _ => Err(self.expected("delayed or immediate")),
        }
    }

    pub(super) fn receive_pause(&self) -> Result<Duration, ProfileError> {
        self.duration_between(Duration::ZERO, RECEIVE_PAUSE_MAX)
    }

    pub(super) fn reply_spread(&self) -> Result<Duration, ProfileError> {
        self.duration_between(Duration::ZERO, REPLY_SPREAD_MAX)
    }

    pub(super) fn interval(&self) -> Result<Interval, ProfileError> {
        let interval = self.duration_between(INTERVAL_MIN, DELAY_MAX)?;
        Ok(Interval::new(interval).expect("the range was just checked"))
    }

    /// Parses a time to live. Zero would drop every object that cannot leave at once.
    pub(super) fn ttl(&self) -> Result<Duration, ProfileError> {
        self.pause().map_err(|error| {
            if self.number() == Some(0) {
                return self.expected(
                    "a ttl of at least 1 ms, since with 0 every object that waits for the next packet is dropped",
                );
            }
            error
        })
    }

    pub(super) fn pause(&self) -> Result<Duration, ProfileError> {
        self.duration_between(Duration::from_millis(1), DELAY_MAX)
    }

    pub(super) fn start_delay(&self) -> Result<Duration, ProfileError> {
        self.duration_between(Duration::ZERO, DELAY_MAX)
    }

    pub(super) fn data_phase(&self) -> Result<Duration, ProfileError> {
        self.duration_between(Duration::from_millis(1), DURATION_MAX)
    }

    pub(super) fn total_transmit_time(&self) -> Result<Duration, ProfileError> {
        self.duration_between(Duration::from_millis(1), DURATION_MAX + DELAY_MAX)
    }

    fn duration_between(&self, min: Duration, max: Duration) -> Result<Duration, ProfileError> {
        let duration = parse_milliseconds(self.text).filter(|found| (min..=max).contains(found));
        duration.ok_or_else(|| {
            let (min, max) = (print_milliseconds(min), print_milliseconds(max));
            self.expected(&format!(
                "milliseconds from {min} to {max}, at most 6 decimals"
            ))
        })
    }

    /// Parses a plain decimal number without a sign.
    fn number(&self) -> Option<u32> {
        let digits = self.text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { self.text.parse().ok() } else { None }
    }

    fn expected(&self, expected: &str) -> ProfileError {
        let expected = expected.to_owned();
        self.fault(Problem::Value {
            expected,
            found: self.text.to_owned(),
        })
    }
}

/// Parses milliseconds exactly, without floating point: `33.33` is 33,330,000 ns.
fn parse_milliseconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > DECIMALS {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<DECIMALS$}").parse().ok()?;
    Some(Duration::from_nanos(
        whole.checked_mul(NS_PER_MS)?.checked_add(fraction)?,
    ))
}

/// Returns the shortest text that [`parse_milliseconds`] parses to `duration`.
pub(super) fn print_milliseconds(duration: Duration) -> String {
    let ns = duration.as_nanos();
    let (whole, fraction) = (ns / u128::from(NS_PER_MS), ns % u128::from(NS_PER_MS));
    let text = format!("{whole}.{fraction:0DECIMALS$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const NS_PER_MS: u64 = 1_000_000;
/// Decimals of a millisecond down to a nanosecond.
const DECIMALS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_exact() {
        for (text, ns) in [
            ("0", 0),
            ("20", 20_000_000),
            ("33.33", 33_330_000),
            ("0.000001", 1),
            ("0020.50", 20_500_000),
        ] {
            assert_eq!(
                parse_milliseconds(text),
                Some(Duration::from_nanos(ns)),
                "{text}"
            );
        }
        for text in [
            "",
            ".",
            ".5",
            "5.",
            "1.0000001",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "99999999999999999",
        ] {
            assert_eq!(parse_milliseconds(text), None, "{text}");
        }
    }

    #[test]
    fn milliseconds_print_as_they_are_read() {
        for text in ["0", "20", "33.33", "0.000001", "100", "5000.125"] {
            let duration = parse_milliseconds(text).unwrap();
            assert_eq!(print_milliseconds(duration), text);
        }
    }
}
