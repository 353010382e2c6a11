//! Load and memory of relay and load generator in each second, in bounded memory for a run of any length.

use std::time::Duration;

use super::{GeneratorSecond, RelaySecond};
use crate::process::{Usage, percent};

/// The usage of both processes at the start of a second.
#[derive(Clone, Copy, Debug)]
pub struct Second {
    /// Number of the second, from the start of the run.
    pub number: u64,
    /// Time since the start of the run.
    pub at: Duration,
    /// Usage of the relay's process; none if it is not observed.
    pub relay: Option<Usage>,
    /// Usage of the load generator's process.
    pub generator: Option<Usage>,
    /// Objects received since the start of the run.
    pub objects: u64,
}

/// Entries of one second each. When there are `ENTRIES_MAX`, adjacent entries are joined, and each covers twice the time.
#[derive(Debug)]
pub struct Seconds {
    /// Seconds that an entry covers.
    each: u64,
    /// The start of the current entry.
    begun: Option<Second>,
    /// Entries of the relay.
    pub relay: Vec<RelaySecond>,
    /// Entries of the load generator.
    pub generator: Vec<GeneratorSecond>,
}

impl Default for Seconds {
    fn default() -> Self {
        Self::new()
    }
}

impl Seconds {
    /// Creates an empty series.
    pub fn new() -> Self {
        Self {
            each: 1,
            begun: None,
            relay: Vec::new(),
            generator: Vec::new(),
        }
    }

    /// Records the start of a second.
    pub fn note(&mut self, now: Second) {
        let Some(begun) = self.begun else {
            self.begun = Some(now);
            return;
        };
        if now.number < begun.number + self.each {
            return;
        }
        if self.relay.len().max(self.generator.len()) >= ENTRIES_MAX {
            self.each *= 2;
            join(&mut self.relay, |one, next| RelaySecond {
                second: one.second,
                cpu_percent: one.cpu_percent.midpoint(next.cpu_percent),
                rss_bytes: next.rss_bytes,
                context_switches_voluntary: one.context_switches_voluntary
                    + next.context_switches_voluntary,
                context_switches_involuntary: one.context_switches_involuntary
                    + next.context_switches_involuntary,
            });
            join(&mut self.generator, |one, next| GeneratorSecond {
                second: one.second,
                cpu_percent: one.cpu_percent.midpoint(next.cpu_percent),
                ..*next
            });
            if now.number < begun.number + self.each {
                return;
            }
        }
        self.begun = Some(now);
        self.relay.extend(relay_between(&begun, &now));
        self.generator.extend(generator_between(&begun, &now));
    }
}

/// Returns the relay's entry between two times; none unless its process was observed at both.
pub fn relay_between(before: &Second, after: &Second) -> Option<RelaySecond> {
    let used = after.relay?.since(&before.relay?);
    Some(RelaySecond {
        second: before.number,
        cpu_percent: percent(used.cpu, after.at.saturating_sub(before.at)),
        rss_bytes: used.resident_bytes,
        context_switches_voluntary: used.switches_voluntary,
        context_switches_involuntary: used.switches_involuntary,
    })
}

/// Returns the load generator's entry between two times; none unless its process was observed at both.
pub fn generator_between(before: &Second, after: &Second) -> Option<GeneratorSecond> {
    let used = after.generator?.since(&before.generator?);
    Some(GeneratorSecond {
        second: before.number,
        cpu_percent: percent(used.cpu, after.at.saturating_sub(before.at)),
        rss_bytes: used.resident_bytes,
        objects: after.objects,
    })
}

/// Joins each two entries. A last single entry stays as it is.
fn join<T: Copy>(entries: &mut Vec<T>, joined: impl Fn(&T, &T) -> T) {
    let pairs = entries.chunks(2);
    let halved = pairs.map(|pair| match pair {
        [one, next] => joined(one, next),
        pair => pair[0],
    });
    *entries = halved.collect();
}

/// Most entries of each list: enough for half an hour of seconds.
const ENTRIES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_for_a_run_of_a_day() {
        let mut seconds = Seconds::new();
        let mut largest = 0;
        for number in 0..=86_400 {
            let usage = Usage {
                cpu: Duration::from_millis(number * 500),
                resident_bytes: number,
                switches_voluntary: number * 3,
                ..Usage::default()
            };
            seconds.note(Second {
                number,
                at: Duration::from_secs(number),
                relay: Some(usage),
                generator: Some(usage),
                objects: number * 10,
            });
            largest = largest
                .max(seconds.relay.len())
                .max(seconds.generator.len());
        }
        assert_eq!(largest, ENTRIES_MAX);
        // 86,400 seconds in entries of 64.
        assert_eq!((seconds.each, seconds.relay.len()), (64, 1350));
        let switches = seconds
            .relay
            .iter()
            .map(|one| one.context_switches_voluntary);
        assert_eq!(switches.sum::<u64>(), 86_400 * 3);
        for (place, one) in (0..).zip(&seconds.generator) {
            assert_eq!(one.second, place * 64);
            assert_eq!(
                (one.objects, one.rss_bytes),
                ((place + 1) * 640, (place + 1) * 64)
            );
            assert!((one.cpu_percent - 50.0).abs() < 1e-9);
        }
    }

    #[test]
    fn entries_are_joined_when_one_more_than_the_limit_is_needed() {
        let mut seconds = Seconds::new();
        let mut lengths = Vec::new();
        for number in 0..=ENTRIES_MAX as u64 + 2 {
            seconds.note(Second {
                number,
                at: Duration::from_secs(number),
                relay: None,
                generator: Some(Usage::default()),
                objects: number,
            });
            lengths.push(seconds.generator.len());
        }
        let last = &lengths[lengths.len() - 3..];
        assert_eq!(last, [ENTRIES_MAX, ENTRIES_MAX / 2, ENTRIES_MAX / 2 + 1]);
        let half = seconds.generator[ENTRIES_MAX / 2 - 1];
        assert_eq!(half.objects, ENTRIES_MAX as u64);
        assert!(seconds.relay.is_empty());
    }
}
