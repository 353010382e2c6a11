//! When frames are decoded of which LOC says only when they are shown. The browser player does the same, and both pass
//! `vectors/live/loc-times.json`.

use std::collections::VecDeque;

use super::last_groups::LastGroups;
use crate::mp4::Times;

/// Tells decode times and durations by presentation times alone.
///
/// Within a group frames come in the order of decoding. One that is shown later than all before it may be followed by others
/// that belong before it; so it is decoded when the latest one before it is shown, and those when they are shown themselves.
#[derive(Debug)]
pub(super) struct LocClock {
    groups: LastGroups<Group>,
    /// The last presentation times, in order.
    times: VecDeque<i64>,
}

/// What is known of a group.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Its latest presentation time.
    highest_us: i64,
    /// The decode time of its last frame.
    decode_us: i64,
}

impl LocClock {
    /// A clock that knows of no frame.
    pub(super) fn new() -> Self {
        Self {
            groups: LastGroups::new(),
            times: VecDeque::new(),
        }
    }

    /// The times of the next frame; its presentation time is at most 2^60 microseconds.
    pub(super) fn next(&mut self, group: u64, presentation_us: i64) -> Times {
        self.times.push_back(presentation_us);
        if self.times.len() > TIMES_MAX {
            self.times.pop_front();
        }
        let shortest_us = self.shortest_us();
        let known = self.groups.get(group);
        let decode_us = match known {
            None => presentation_us - shortest_us.unwrap_or(0),
            Some(known) => {
                let own = if presentation_us > known.highest_us {
                    known.highest_us.max(presentation_us - REORDER_US_MAX)
                } else {
                    presentation_us
                };
                // What came before it in its group is decoded before it, even where it is shown later (a pyramid of B-frames).
                own.max(known.decode_us.min(presentation_us + REORDER_US_MAX))
            }
        };
        let highest_us = known.map_or(presentation_us, |known| {
            known.highest_us.max(presentation_us)
        });
        let now_known = Group {
            highest_us,
            decode_us,
        };
        self.groups.insert(group, now_known);
        Times {
            decode_us,
            presentation_us,
            duration_us: shortest_us.unwrap_or(USUAL_DURATION_US),
        }
    }

    /// The shortest time between two of the frames that came lately.
    fn shortest_us(&self) -> Option<i64> {
        let mut times: Vec<i64> = self.times.iter().copied().collect();
        times.sort_unstable();
        let apart = times.windows(2).map(|pair| pair[1] - pair[0]);
        let shortest_us = apart.filter(|apart| *apart > 0).min()?;
        Some(shortest_us.min(DURATION_US_MAX))
    }
}

/// Presentation times by whose distances it is told how long a frame lasts.
const TIMES_MAX: usize = 8;
/// Of a frame before which none came, in microseconds.
pub(super) const USUAL_DURATION_US: i64 = 33_333;
/// No frame is taken to last longer, in microseconds.
const DURATION_US_MAX: i64 = 200_000;
/// No frame is taken to be decoded earlier or later than this before or after it is shown, in microseconds.
const REORDER_US_MAX: i64 = 500_000;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_order_of_arrival_tells_when_frames_are_decoded() {
        let file = include_str!("../../../../../vectors/live/loc-times.json");
        let file: Value = serde_json::from_str(file).expect("JSON");
        for vector in file["vectors"].as_array().expect("a list") {
            let mut clock = LocClock::new();
            for frame in vector["frames"].as_array().expect("a list") {
                let numbers: Option<Vec<i64>> = frame
                    .as_array()
                    .and_then(|frame| frame.iter().map(Value::as_i64).collect());
                let [group, presentation_us, decode_us, duration_us] =
                    numbers.as_deref().expect("numbers")
                else {
                    panic!("{frame} has not four numbers");
                };
                let times = clock.next(u64::try_from(*group).expect("a group"), *presentation_us);
                let found = (times.decode_us, times.duration_us);
                assert_eq!(
                    found,
                    (*decode_us, *duration_us),
                    "{}: {frame}",
                    vector["name"]
                );
            }
        }
    }
}
