//! Scales a profile for one probe of a search: its windows, its bit rate and its number of tracks.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::limits::{CYCLE_OBJECTS_MAX, TRACKS_MAX};
use crate::profile::{Interval, ObjectSize, Pattern, Profile, TrackMode, TrackProfile};
use crate::schedule::Schedule;

/// Returns `profile` with every track sending for `steady`, after a start delay.
pub fn with_windows(profile: &Profile, start_delay: Duration, steady: Duration) -> Profile {
    let mut profile = profile.clone();
    for track in &mut profile.tracks {
        track.start_delay = start_delay;
        track.duration = steady;
        track.has_total_transmit_time = false;
    }
    profile
}

/// Returns `profile` with `copies` of each track, as if its section stood there so many times. The first copy keeps its
/// section and name; the others have their number behind both, such as `1-2`. `None` if that makes more than
/// [`TRACKS_MAX`] tracks, or a name that is too long.
pub fn with_copies(profile: &Profile, copies: u64) -> Option<Profile> {
    let mut tracks = profile.tracks.clone();
    for copy in 2..=copies.min(TRACKS_MAX as u64 + 1) {
        for track in &profile.tracks {
            let mut track = track.clone();
            let suffix = format!("-{copy}");
            track.section.push_str(&suffix);
            track.template = track.template.with_name_suffix(&suffix).ok()?;
            tracks.push(track);
        }
    }
    let audience = profile.audience;
    (tracks.len() <= TRACKS_MAX).then_some(Profile { tracks, audience })
}

/// Returns the most copies that [`with_copies`] can make of each track.
pub fn copies_max(profile: &Profile) -> u64 {
    (TRACKS_MAX / profile.tracks.len().max(1)) as u64
}

/// Returns the bits per second that a subscriber of all tracks receives.
pub fn bits_per_second(profile: &Profile) -> f64 {
    profile.tracks.iter().map(track_bits_per_second).sum()
}

/// Returns `profile` scaled to about `bits_per_second` over all tracks. Objects on streams change their size;
/// datagrams, which must fit into packets, change their interval. `None` if a size or an interval would leave its
/// range.
pub fn with_bits_per_second(profile: &Profile, bits_per_second: f64) -> Option<Profile> {
    let factor = bits_per_second / self::bits_per_second(profile);
    let mut profile = profile.clone();
    for track in &mut profile.tracks {
        match track.track_mode {
            TrackMode::Datagram => {
                let interval = track.interval.duration().as_secs_f64() / factor;
                let interval = Duration::try_from_secs_f64(interval).ok()?;
                track.interval = Interval::new(interval)?;
                if let Pattern::Pauses { active, .. } = track.pattern {
                    let objects = active.as_nanos().div_ceil(track.interval.ns().into());
                    (objects <= CYCLE_OBJECTS_MAX.into()).then_some(())?;
                }
            }
            TrackMode::Stream => {
                track.first_object_size = scaled(track.first_object_size, factor)?;
                track.object_size = scaled(track.object_size, factor)?;
                if let Some(most) = track.object_size_max {
                    track.object_size_max = Some(scaled(most, factor)?);
                }
            }
        }
    }
    Some(profile)
}

/// Returns the range of kilobits per second that [`with_bits_per_second`] can give `profile`, up to [`KILOBITS_MAX`].
pub fn kilobits_per_second(profile: &Profile) -> RangeInclusive<u64> {
    let bits = |kilobits: u64| Duration::from_millis(kilobits).as_secs_f64() * 1e6;
    let is_possible = |kilobits| with_bits_per_second(profile, bits(kilobits)).is_some();
    // The possible rates are one contiguous range around the profile's own rate.
    let own = first_of(1, KILOBITS_MAX, |one| bits(one) >= bits_per_second(profile));
    let least = first_of(1, own, is_possible);
    let beyond = first_of(own, KILOBITS_MAX, |one| !is_possible(one));
    least..=(beyond - 1).max(own)
}

/// Returns the first number from `least` on for which the monotonic `is_so` holds; `most` if none before it.
fn first_of(mut least: u64, mut most: u64, is_so: impl Fn(u64) -> bool) -> u64 {
    while least < most {
        let middle = least.midpoint(most);
        if is_so(middle) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    least
}

fn track_bits_per_second(track: &TrackProfile) -> f64 {
    let has_pauses = matches!(track.pattern, Pattern::Pauses { .. });
    if has_pauses || track.object_size_max.is_some() {
        let schedule = Schedule::new(track, 0);
        return schedule.expected_bits_per_second(schedule.objects());
    }
    let (first, others) = (
        f64::from(track.first_object_size.bytes()),
        f64::from(track.object_size.bytes()) * f64::from(track.objects_per_group.count() - 1),
    );
    let mean = (first + others) / f64::from(track.objects_per_group.count());
    mean * 8.0 / track.interval.duration().as_secs_f64()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, and the range is checked"
)]
fn scaled(size: ObjectSize, factor: f64) -> Option<ObjectSize> {
    ObjectSize::new((f64::from(size.bytes()) * factor).round() as u32)
}

/// 100 Gbit/s.
pub const KILOBITS_MAX: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let section = |name: &str, mode: &str, size: u32, first: u32, group: u32, interval: u32| {
            format!(
                "[{name}]\nnamespace = a\nname = {name}\ntrack_mode = {mode}\npriority = 1\nttl = 1000\n\
                 time_interval = {interval}\nobjects_per_group = {group}\nfirst_object_size = {first}\n\
                 object_size = {size}\nstart_delay = 5000\ntotal_transmit_time = 35000\n"
            )
        };
        let text = section("audio", "datagram", 120, 120, 1, 20)
            + &section("video", "stream", 1000, 11_000, 10, 40);
        Profile::parse("test.ini", text.as_bytes()).unwrap()
    }

    #[test]
    fn windows_replace_those_of_the_profile() {
        let windows = with_windows(&profile(), Duration::from_secs(1), Duration::from_secs(10));
        for track in &windows.tracks {
            assert_eq!(track.total_transmit_time(), Duration::from_secs(11));
        }
    }

    #[test]
    fn copies_of_tracks_have_names_of_their_own() {
        let profile = profile();
        let tripled = with_copies(&profile, 3).unwrap();
        let names: Vec<_> = tripled
            .tracks
            .iter()
            .map(|track| (track.section.as_str(), track.template.name().to_string()))
            .collect();
        let expected = [
            ("audio", "audio"),
            ("video", "video"),
            ("audio-2", "audio-2"),
            ("video-2", "video-2"),
            ("audio-3", "audio-3"),
            ("video-3", "video-3"),
        ];
        assert_eq!(names, expected.map(|(one, name)| (one, name.to_owned())));
        assert_eq!(with_copies(&profile, 1), Some(profile.clone()));
        let most = copies_max(&profile);
        assert_eq!(
            with_copies(&profile, most).unwrap().tracks.len(),
            TRACKS_MAX
        );
        assert_eq!(with_copies(&profile, most + 1), None);
        assert_eq!(with_copies(&profile, u64::MAX), None);
        // What is printed is read as the same profile.
        let again = Profile::parse("x", tripled.to_ini().as_bytes());
        assert_eq!(again, Ok(tripled));
    }

    #[test]
    fn bit_rates_scale_in_both_modes() {
        let profile = profile();
        // 120 bytes every 20 ms, and a mean of 2,000 bytes every 40 ms.
        let rate = bits_per_second(&profile);
        assert!((rate - 448_000.0).abs() < 1e-6, "{rate}");
        let double = with_bits_per_second(&profile, 896_000.0).unwrap();
        assert!((bits_per_second(&double) - 896_000.0).abs() < 1.0);
        assert_eq!(double.tracks[0].object_size.bytes(), 120);
        assert_eq!(
            double.tracks[0].interval.duration(),
            Duration::from_millis(10)
        );
        assert_eq!(double.tracks[1].first_object_size.bytes(), 22_000);
        assert_eq!(with_bits_per_second(&profile, 10.0), None);
        let range = kilobits_per_second(&profile);
        assert!(range.contains(&448), "{range:?}");
        for (kilobits, is_possible) in [
            (range.start() - 1, false),
            (*range.start(), true),
            (*range.end(), true),
            (range.end() + 1, false),
        ] {
            let bits = Duration::from_millis(kilobits).as_secs_f64() * 1e6;
            let scaled = with_bits_per_second(&profile, bits);
            assert_eq!(scaled.is_some(), is_possible, "{kilobits} of {range:?}");
        }
        assert_eq!(with_bits_per_second(&profile, 1e12), None);
    }
}
