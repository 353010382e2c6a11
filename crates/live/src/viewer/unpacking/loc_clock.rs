//! Derives decode times of frames, of which LOC gives only presentation times. The browser player does the same, and
//! both pass `vectors/live/loc-times.json`.

use std::collections::VecDeque;

use super::last_groups::LastGroups;
use crate::mp4::Times;

/// Derives decode times and durations from presentation times.
///
/// Within a group, frames arrive in decoding order. A frame with a later presentation time than all before it may be
/// followed by frames that precede it on the screen. So its decode time is the latest presentation time before it, and
/// the decode time of those frames is their own presentation time.
#[derive(Debug)]
pub(super) struct LocClock {
    groups: LastGroups<Group>,
    /// The last presentation times, in order of arrival.
    times: VecDeque<i64>,
}

/// The times of a group.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Its latest presentation time.
    highest_us: i64,
    /// The decode time of its last frame.
    decode_us: i64,
}

impl LocClock {
    /// Returns a clock without frames.
    pub(super) fn new() -> Self {
        Self {
            groups: LastGroups::new(),
            times: VecDeque::new(),
        }
    }

    /// Returns the times of the next frame. Its presentation time is at most 2^60 microseconds.
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
                // Earlier frames of the group have earlier decode times, even if they are shown later (a pyramid of
                // B-frames).
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

    /// Returns the shortest time between two recent frames.
    fn shortest_us(&self) -> Option<i64> {
        let mut times: Vec<i64> = self.times.iter().copied().collect();
        times.sort_unstable();
        let apart = times.windows(2).map(|pair| pair[1] - pair[0]);
        let shortest_us = apart.filter(|apart| *apart > 0).min()?;
        Some(shortest_us.min(DURATION_US_MAX))
    }
}

/// The number of recent presentation times whose distances give a frame's duration.
const TIMES_MAX: usize = 8;
/// The duration of a first frame, in microseconds.
pub(super) const USUAL_DURATION_US: i64 = 33_333;
/// The longest duration, in microseconds.
const DURATION_US_MAX: i64 = 200_000;
/// The largest distance between decode and presentation time, in microseconds.
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
