//! Network profiles: the rate of a link over time, built in or from a recorded trace.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use weir_link::{Bitrate, Rate, Trace};

use crate::{
    file_kind::{Kind, explained},
    numbers::rate as rate_of,
    time::time,
};

/// A link's rate over time.
#[derive(Clone, Debug)]
pub(crate) struct NetworkProfile {
    pub(crate) name: String,
    /// Rates, each with the time from which it holds.
    pub(crate) steps: Vec<(Duration, Rate)>,
    /// Duration of a run over this profile.
    pub(crate) duration: Duration,
}

/// Rates in kilobits per second, each with its duration in milliseconds.
type Pattern = &'static [(u32, u64)];

/// The constant rate of the thesis, and the profiles of a grand challenge of the ACM in 2020 that it uses
/// (`normal-network-patterns.js`; those that are shorter than half a minute are repeated).
const PATTERNS: [(&str, Pattern, usize); 6] = [
    ("500k", &[(500, 90_000)], 1),
    (
        "CASCADE",
        &[
            (1200, 30_000),
            (800, 30_000),
            (400, 30_000),
            (800, 30_000),
            (1200, 30_000),
        ],
        1,
    ),
    (
        "INTRA_CASCADE",
        &[
            (1000, 15_000),
            (800, 15_000),
            (600, 15_000),
            (400, 15_000),
            (200, 15_000),
            (400, 15_000),
            (600, 15_000),
            (800, 15_000),
            (1000, 15_000),
        ],
        1,
    ),
    ("SPIKE", &[(1200, 10_000), (300, 10_000), (800, 10_000)], 1),
    ("SLOW_JITTERS", &[(500, 5_000), (1200, 5_000)], 3),
    (
        "FAST_JITTERS",
        &[
            (500, 250),
            (1200, 5_000),
            (500, 100),
            (1200, 1_000),
            (500, 250),
            (1200, 5_000),
        ],
        3,
    ),
];

impl NetworkProfile {
    /// Returns the names of the built-in profiles.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        PATTERNS.iter().map(|(name, ..)| *name)
    }

    /// Returns the built-in profile with this name.
    fn named(name: &str) -> Option<Self> {
        let (name, pattern, rounds) = PATTERNS.iter().find(|(known, ..)| *known == name)?;
        let mut duration = Duration::ZERO;
        let mut steps = Vec::new();
        for (kilobits, milliseconds) in pattern.repeat(*rounds) {
            let rate = Bitrate::from_kilobits_per_second(kilobits);
            steps.push((duration, Rate::Fixed(rate)));
            duration += Duration::from_millis(milliseconds);
        }
        Some(Self {
            name: (*name).to_owned(),
            steps,
            duration,
        })
    }

    /// Returns the built-in profile with this name, or that of a file with a step in each line: a rate and a time, such as
    /// `1200k 30s`. The error lists all names, or names the line.
    pub(crate) fn find(name: &str) -> anyhow::Result<Self> {
        if let Some(built_in) = Self::named(name) {
            return Ok(built_in);
        }
        let path = Path::new(name);
        let read = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let names = Self::names().collect::<Vec<_>>().join(", ");
                bail!("there is no profile {name:?}; expected a file, or one of: {names}");
            }
            read => read.with_context(|| format!("{name}: cannot be read")),
        };
        read.and_then(|text| Self::parse(name, &text))
            .map_err(|error| explained(path, Kind::Rates, error))
    }

    /// Parses the content of a file. The error names the line.
    fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let (mut steps, mut duration) = (Vec::new(), Duration::ZERO);
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let place = || {
                format!(
                    "{name}: line {number}: expected a rate and a time, such as 1200k 30s, found {line:?}"
                )
            };
            let (rate, lasts) = line.split_once(char::is_whitespace).with_context(place)?;
            let rate = rate_of(rate)
                .map_err(anyhow::Error::msg)
                .with_context(place)?;
            let bits = rate.bits_per_second();
            ensure!(
                bits >= RATE_BITS_MIN,
                "{name}: line {number}: {bits} is {bits} bit/s, slower than any link for media; for kbit/s, write {bits}k"
            );
            let lasts = time(lasts.trim())
                .map_err(anyhow::Error::msg)
                .with_context(place)?;
            steps.push((duration, Rate::Fixed(rate)));
            ensure!(
                steps.len() <= STEPS_MAX,
                "{name}: expected at most {STEPS_MAX} lines"
            );
            duration += lasts;
        }
        ensure!(
            !steps.is_empty(),
            "{name}: expected a line with a rate and a time, such as 1200k 30s"
        );
        let file = Path::new(name).file_name().and_then(|name| name.to_str());
        Ok(Self {
            name: file.unwrap_or(name).to_owned(),
            steps,
            duration,
        })
    }

    /// Returns a constant rate.
    pub(crate) fn constant(rate: Bitrate, duration: Duration) -> Self {
        let bits = rate.bits_per_second();
        let name = match bits {
            bits if bits.is_multiple_of(1_000_000) => format!("{}M", bits / 1_000_000),
            bits if bits.is_multiple_of(1_000) => format!("{}k", bits / 1_000),
            bits => bits.to_string(),
        };
        Self {
            name,
            steps: vec![(Duration::ZERO, Rate::Fixed(rate))],
            duration,
        }
    }

    /// Loads a trace in Mahimahi's format. The trace repeats if it is shorter than `duration`. The error names the file.
    pub(crate) fn load(path: &Path, duration: Duration) -> anyhow::Result<Self> {
        let place = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(place);
        let trace = text.and_then(|text| Trace::parse(&text).with_context(place));
        let trace = trace.map_err(|error| explained(path, Kind::LinkTrace, error))?;
        Ok(Self {
            name: place(),
            steps: vec![(Duration::ZERO, Rate::Trace(trace))],
            duration,
        })
    }
}

/// Slowest rate of a step, in bits per second: less is a rate without its unit.
const RATE_BITS_MIN: u64 = 10_000;
/// Most steps of a profile in a file.
const STEPS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_step_in_each_line() {
        let path = std::env::temp_dir().join(format!("weir-{}.profile", std::process::id()));
        let name = path.to_str().unwrap();
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            NetworkProfile::find(name).map_err(|error| format!("{error:#}"))
        };
        let profile = read("# a tunnel\n1200k 10s\n\n  200k\t1500ms # dark\n").unwrap();
        let rates: Vec<u64> = profile
            .steps
            .iter()
            .map(|(_, rate)| match rate {
                Rate::Fixed(rate) => rate.bits_per_second(),
                Rate::Trace(_) | Rate::Unlimited => 0,
            })
            .collect();
        assert_eq!(rates, [1_200_000, 200_000]);
        assert_eq!(profile.steps[1].0, Duration::from_secs(10));
        assert_eq!(profile.duration, Duration::from_millis(11_500));
        let error = read("1M 10s\n1M\n").unwrap_err();
        assert!(
            error.contains("line 2: expected a rate and a time"),
            "{error}"
        );
        assert!(read("1M ten\n").unwrap_err().contains("line 1"));
        let error = read("500k 1s\n1200 10s\n").unwrap_err();
        assert!(
            error.contains("line 2: 1200 is 1200 bit/s") && error.contains("write 1200k"),
            "{error}"
        );
        assert!(read("# nothing\n").unwrap_err().contains("expected a line"));
        std::fs::remove_file(&path).unwrap();
        let error = NetworkProfile::find(name).unwrap_err().to_string();
        assert!(error.contains("one of: 500k, CASCADE"), "{error}");
    }

    #[test]
    fn the_hole_of_the_thesis_is_where_it_was() {
        let profile = NetworkProfile::named("INTRA_CASCADE").unwrap();
        assert_eq!(profile.duration, Duration::from_secs(135));
        let hole = Rate::Fixed(Bitrate::from_kilobits_per_second(200));
        let place = profile
            .steps
            .iter()
            .position(|(_, rate)| *rate == hole)
            .unwrap();
        assert_eq!(profile.steps[place].0, Duration::from_mins(1));
        assert_eq!(profile.steps[place + 1].0, Duration::from_secs(75));
    }

    #[test]
    fn profiles_have_the_rates_and_times_of_the_challenge() {
        // Kilobits per second, and for how many seconds.
        let jitters = [(500.0, 0.25), (1200.0, 5.0), (500.0, 0.1), (1200.0, 1.0)];
        let jitters = [&jitters[..], &[(500.0, 0.25), (1200.0, 5.0)]].concat();
        let hole = [
            1000.0, 800.0, 600.0, 400.0, 200.0, 400.0, 600.0, 800.0, 1000.0,
        ];
        let cascade = [1200.0, 800.0, 400.0, 800.0, 1200.0];
        for (name, steps, seconds) in [
            ("500k", vec![(500.0, 90.0)], 90.0),
            ("CASCADE", cascade.map(|rate| (rate, 30.0)).into(), 150.0),
            ("INTRA_CASCADE", hole.map(|rate| (rate, 15.0)).into(), 135.0),
            (
                "SPIKE",
                vec![(1200.0, 10.0), (300.0, 10.0), (800.0, 10.0)],
                30.0,
            ),
            (
                "SLOW_JITTERS",
                [(500.0, 5.0), (1200.0, 5.0)].repeat(3),
                30.0,
            ),
            ("FAST_JITTERS", jitters.repeat(3), 34.8),
        ] {
            let profile = NetworkProfile::named(name).unwrap();
            let mut at = 0.0;
            let mut expected = Vec::new();
            for (kilobits, lasts) in steps {
                expected.push((at, kilobits * 1000.0));
                at += lasts;
            }
            let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
            assert!(near(profile.duration.as_secs_f64(), seconds), "{name}");
            assert!(near(at, seconds), "{name}");
            assert_eq!(profile.steps.len(), expected.len(), "{name}");
            for ((from, rate), (at, bits)) in profile.steps.iter().zip(expected) {
                let Rate::Fixed(rate) = rate else {
                    panic!("{name} is not recorded");
                };
                let rate = u32::try_from(rate.bits_per_second()).unwrap();
                assert!(near(from.as_secs_f64(), at), "{name}");
                assert!(near(f64::from(rate), bits), "{name}");
            }
        }
        assert_eq!(NetworkProfile::names().count(), 6);
    }

    #[test]
    fn every_name_is_one() {
        for name in NetworkProfile::names() {
            assert_eq!(NetworkProfile::named(name).unwrap().name, name);
        }
        assert!(NetworkProfile::named("cascade").is_none());
    }
}
