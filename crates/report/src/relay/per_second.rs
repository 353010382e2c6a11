//! What the relay and the load generator cost second by second, in bounded memory for a run of any length.

use std::time::Duration;

use super::{GeneratorSecond, RelaySecond};
use crate::process::{Usage, percent};

/// Both processes at the beginning of a second.
#[derive(Clone, Copy, Debug)]
pub struct Second {
    /// Its number, counted from the start of the run.
    pub number: u64,
    /// Since the start of the run.
    pub at: Duration,
    /// What the relay had used, if it is watched.
    pub relay: Option<Usage>,
    /// What the load generator had used.
    pub generator: Option<Usage>,
    /// Objects received by then.
    pub objects: u64,
}

/// One entry for each second. When `ENTRIES_MAX` are there, neighbours are joined and each covers twice the time.
#[derive(Debug)]
pub struct Seconds {
    /// Seconds that an entry covers.
    each: u64,
    /// The beginning of the entry that is being made.
    begun: Option<Second>,
    /// What the relay cost.
    pub relay: Vec<RelaySecond>,
    /// What the load generator cost.
    pub generator: Vec<GeneratorSecond>,
}

impl Default for Seconds {
    fn default() -> Self {
        Self::new()
    }
}

impl Seconds {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            each: 1,
            begun: None,
            relay: Vec::new(),
            generator: Vec::new(),
        }
    }

    /// A second begins.
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

/// What the relay did between two moments, if it was seen at both.
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

/// What the load generator did between two moments.
pub fn generator_between(before: &Second, after: &Second) -> Option<GeneratorSecond> {
    let used = after.generator?.since(&before.generator?);
    Some(GeneratorSecond {
        second: before.number,
        cpu_percent: percent(used.cpu, after.at.saturating_sub(before.at)),
        rss_bytes: used.resident_bytes,
        objects: after.objects,
    })
}

/// Makes one entry of each two; one that is left over stays.
fn join<T: Copy>(entries: &mut Vec<T>, joined: impl Fn(&T, &T) -> T) {
    let pairs = entries.chunks(2);
    let halved = pairs.map(|pair| match pair {
        [one, next] => joined(one, next),
        pair => pair[0],
    });
    *entries = halved.collect();
}

/// Entries of each of the two lists: half an hour of seconds, and then some.
const ENTRIES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_keeps_as_much_as_half_an_hour() {
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
    fn neighbours_are_joined_one_past_the_limit() {
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
