use proptest::prelude::*;

use super::*;
use crate::profile::{Interval, ObjectsPerGroup, Pattern, Profile};

fn audio() -> TrackProfile {
    let text = include_bytes!("../../../../profiles/audio.ini");
    Profile::parse("audio.ini", text).unwrap().tracks.remove(0)
}

/// The draft's video: 150 objects of 33.33 ms per group.
fn video() -> TrackProfile {
    TrackProfile {
        track_mode: TrackMode::Stream,
        interval: Interval::new(Duration::from_micros(33_330)).unwrap(),
        objects_per_group: ObjectsPerGroup::new(150).unwrap(),
        first_object_size: ObjectSize::new(21_333).unwrap(),
        object_size: ObjectSize::new(2_666).unwrap(),
        ..audio()
    }
}

fn items(schedule: &Schedule) -> Vec<Item> {
    (0..).map_while(|index| schedule.item(index)).collect()
}

fn start_times_ms(start_delay_ms: u64) -> Vec<u128> {
    let start_delay = Duration::from_millis(start_delay_ms);
    let schedule = Schedule::new(
        &TrackProfile {
            start_delay,
            ..audio()
        },
        0,
    );
    let starts = items(&schedule)
        .into_iter()
        .filter(|item| item.kind == ItemKind::Start);
    starts.map(|item| item.at.as_millis()).collect()
}

#[test]
fn start_is_sent_by_the_drafts_cadence() {
    assert_eq!(
        start_times_ms(5_000),
        (0..10).map(|k| k * 500).collect::<Vec<_>>()
    );
    assert_eq!(
        start_times_ms(1_000),
        (0..10).map(|k| k * 100).collect::<Vec<_>>()
    );
    assert_eq!(start_times_ms(250), [0, 100, 200]);
    assert_eq!(start_times_ms(200), [0, 100]);
    assert_eq!(start_times_ms(1), [0]);
    assert_eq!(start_times_ms(0), [0]);
}

#[test]
fn audio_is_planned_as_the_draft_has_it() {
    let schedule = Schedule::new(&audio(), 0);
    assert_eq!(
        (schedule.starts(), schedule.objects(), schedule.groups()),
        (10, 1_500, 1_500)
    );
    assert_eq!(schedule.items(), 1_515);
    let at = |index| schedule.item(index).map(|item| item.at.as_millis());
    assert_eq!(
        (at(10), at(11), at(1_509)),
        (Some(5_000), Some(5_020), Some(34_980))
    );
    assert_eq!(
        (at(1_510), at(1_514), at(1_515)),
        (Some(35_000), Some(35_080), None)
    );
    assert_eq!(schedule.end(), Duration::from_millis(35_080));
    let completion = schedule.item(1_514).unwrap();
    assert_eq!((completion.group, completion.object), (1_510, 4));
    assert_eq!(completion.kind, ItemKind::Completion { last: true });
    // 120 bytes every 20 ms.
    assert!((schedule.expected_bits_per_second(1_500) - 48_000.0).abs() < 1e-6);
    assert_eq!(schedule.start_message().interval_ms, 20);
}

#[test]
fn video_has_a_large_object_in_every_group() {
    let schedule = Schedule::new(&video(), 0);
    assert_eq!((schedule.objects(), schedule.groups()), (901, 7));
    let data: Vec<_> = items(&schedule)
        .into_iter()
        .filter_map(|item| match item.kind {
            ItemKind::Data(data) => Some((item, data)),
            ItemKind::Start | ItemKind::Completion { .. } => None,
        })
        .collect();
    let large: Vec<u64> = data
        .iter()
        .filter(|(_, d)| d.size.bytes() == 21_333)
        .map(|(_, d)| d.number)
        .collect();
    assert_eq!(large, [0, 150, 300, 450, 600, 750, 900]);
    let last: Vec<u64> = data
        .iter()
        .filter(|(_, d)| d.last_in_group)
        .map(|(_, d)| d.number)
        .collect();
    assert_eq!(last, [149, 299, 449, 599, 749, 899, 900]);
    let bytes: u64 = data.iter().map(|(_, d)| u64::from(d.size.bytes())).sum();
    assert_eq!(bytes, schedule.bytes_of(901));
    assert_eq!(schedule.objects_in_group(6), 1);
    assert_eq!(schedule.objects_in_group(7), 0);
    assert_eq!(schedule.start_message().interval_ms, 33);
    assert_eq!(schedule.completions(), 1);
    // Exact, while a sum of floating-point intervals would drift.
    assert_eq!(
        schedule.object_at(900),
        Duration::from_secs(5) + Duration::from_micros(33_330) * 900
    );
}

#[test]
fn a_whole_group_of_the_drafts_video_has_its_rate() {
    let schedule = Schedule::new(&video(), 0);
    let rate = schedule.expected_bits_per_second(150);
    assert!((rate - 669_760.0).abs() < 100.0, "{rate}");
}

#[test]
fn groups_follow_each_other_on_the_wire() {
    for base in [0, 7_000] {
        let schedule = Schedule::new(&video(), base);
        let mut expected = (base, 0);
        for item in items(&schedule) {
            assert_eq!((item.group, item.object), expected);
            let same_group = match item.kind {
                ItemKind::Start => false,
                ItemKind::Data(data) => !data.last_in_group,
                ItemKind::Completion { .. } => true,
            };
            expected = if same_group {
                (item.group, item.object + 1)
            } else {
                (item.group + 1, 0)
            };
        }
        assert_eq!(schedule.completion_group(), base + 10 + 7);
    }
}

#[test]
fn a_late_publisher_catches_up_without_moving_the_plan() {
    let schedule = Schedule::new(&audio(), 0);
    let mut cursor = Cursor::default();
    let mut take_until = |ms: u64| {
        let elapsed = Duration::from_millis(ms);
        let mut taken = Vec::new();
        while let Some(item) = cursor.take_due(&schedule, elapsed) {
            taken.push(item.at.as_millis());
        }
        (taken, cursor.next_at(&schedule).map(|at| at.as_millis()))
    };
    assert_eq!(take_until(4_999).0.len(), 10);
    assert_eq!(take_until(5_019), (vec![5_000], Some(5_020)));
    // The publisher sleeps for 55 ms ...
    assert_eq!(take_until(5_075), (vec![5_020, 5_040, 5_060], Some(5_080)));
    // ... and is on time again.
    assert_eq!(take_until(5_080), (vec![5_080], Some(5_100)));
    assert_eq!(take_until(60_000).1, None);
}

prop_compose! {
    fn any_track()(
        delay_ms in 0u64..20_000, duration_ns in 1u64..60_000_000_000,
        interval_us in 500u64..200_000, group in 1u32..400, stream: bool,
    ) -> TrackProfile {
        TrackProfile {
            track_mode: if stream { TrackMode::Stream } else { TrackMode::Datagram },
            start_delay: Duration::from_millis(delay_ms),
            duration: Duration::from_nanos(duration_ns),
            interval: Interval::new(Duration::from_micros(interval_us)).unwrap(),
            objects_per_group: ObjectsPerGroup::new(group).unwrap(),
            ..video()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn plans_keep_their_promises(track in any_track()) {
        let schedule = Schedule::new(&track, 3);
        let items = items(&schedule);
        prop_assert_eq!(items.len() as u64, schedule.items());
        prop_assert!(items.is_sorted_by_key(|item| item.at));
        let mut data = 0;
        for item in &items {
            match item.kind {
                ItemKind::Start => prop_assert!(item.at < track.start_delay || item.at.is_zero()),
                ItemKind::Data(planned) => {
                    prop_assert_eq!(planned.number, data);
                    let since_first = track.interval.duration() * u32::try_from(data).unwrap();
                    prop_assert_eq!(item.at, track.start_delay + since_first);
                    prop_assert!(item.at < track.start_delay + track.duration);
                    let position = (planned.group_number, planned.object_number);
                    prop_assert_eq!(schedule.position_of(data), position);
                    prop_assert_eq!(schedule.number_of(position.0, position.1), Some(data));
                    data += 1;
                }
                ItemKind::Completion { .. } => prop_assert!(item.at >= track.total_transmit_time()),
            }
        }
        prop_assert_eq!(data, schedule.objects());
        prop_assert_eq!(schedule.number_of(schedule.groups(), 0), None);
        prop_assert_eq!(schedule.number_of(0, schedule.objects_per_group()), None);
        prop_assert_eq!(schedule.number_of(u64::MAX, 0), None);
    }

    #[test]
    fn a_place_is_found_as_by_going_through_all_items(
        track in any_track(), qperf: bool, chance: u64, groups in 0u64..3, objects in 0u64..3,
    ) {
        let wire = if qperf { Wire::Qperf } else { Wire::Draft };
        let schedule = Schedule::new(&track, 3).on(wire);
        // At an item, near one, or after all.
        let near = schedule.item(chance % schedule.items()).unwrap();
        let place = (near.group - 1 + groups, near.object + objects);
        let items = items(&schedule).into_iter();
        let before = items.take_while(|item| (item.group, item.object) < place).count();
        prop_assert_eq!(schedule.items_before(place.0, place.1), before as u64);
        prop_assert_eq!(schedule.items_before(0, 0), 0);
        prop_assert_eq!(schedule.items_before(u64::MAX, u64::MAX), schedule.items());
    }
}

/// The planned times of all DATA messages, in nanoseconds from the beginning of the data phase.
fn planned(schedule: &Schedule) -> Vec<u64> {
    (0..schedule.objects())
        .map(|number| schedule.planned_ns(number))
        .collect()
}

#[test]
fn bursts_come_together_and_as_rarely_as_the_interval_asks() {
    let objects = ObjectsPerGroup::new(50).unwrap();
    let track = TrackProfile {
        pattern: Pattern::Bursts { objects },
        ..audio()
    };
    let schedule = Schedule::new(&track, 0);
    let planned = planned(&schedule);
    assert_eq!(planned.len(), 1_500);
    assert!(planned[..50].iter().all(|at| *at == 0));
    assert!(planned[50..100].iter().all(|at| *at == 1_000_000_000));
    assert_eq!(schedule.longest_gap(), Duration::from_secs(1));
    let steady = Schedule::new(&audio(), 0).expected_bits_per_second(1_500);
    assert!((schedule.expected_bits_per_second(1_500) - steady).abs() < 1e-6);
}

#[test]
fn random_events_follow_their_seed_and_stay_in_their_intervals() {
    let track = TrackProfile {
        pattern: Pattern::Random,
        ..audio()
    };
    let of_seed = |seed| planned(&Schedule::new(&track, 0).seeded(&track, seed));
    assert_eq!(of_seed(1), of_seed(1));
    assert_ne!(of_seed(1), of_seed(2));
    let interval = track.interval.ns();
    let events = of_seed(3);
    for (number, at) in (0..).zip(&events) {
        assert_eq!(at / interval, number);
    }
    // Spread over the interval, not concentrated at one end.
    let late = events.iter().filter(|at| *at % interval > interval / 2);
    assert!((600..900).contains(&late.count()));
}

#[test]
fn a_publisher_that_pauses_sends_in_turns() {
    // Three objects in 50 ms of activity, then 150 ms of silence.
    let (active, pause) = (Duration::from_millis(50), Duration::from_millis(150));
    let track = TrackProfile {
        pattern: Pattern::Pauses { active, pause },
        duration: Duration::from_millis(1_030),
        ..audio()
    };
    let schedule = Schedule::new(&track, 0);
    let planned: Vec<u64> = planned(&schedule).iter().map(|ns| ns / 1_000_000).collect();
    let expected = [0, 200, 400, 600, 800].map(|turn| [turn, turn + 20, turn + 40]);
    let expected: Vec<u64> = expected
        .into_iter()
        .flatten()
        .chain([1_000, 1_020])
        .collect();
    assert_eq!(planned, expected);
    assert_eq!(schedule.longest_gap(), Duration::from_millis(160));
    // Three objects of 120 bytes in 200 ms.
    let rate = schedule.expected_bits_per_second(15);
    assert!((rate - 14_400.0).abs() < 1e-6, "{rate}");
    let beyond = schedule.time_beyond_planned(0, 14);
    assert_eq!(beyond, Duration::from_millis(160));
    assert_eq!(schedule.object_at(17), schedule.data_phase_end());
}

#[test]
fn heavy_tails_keep_the_mean_and_stretch_far() {
    for seconds in [1, 20, 30] {
        let track = TrackProfile {
            pattern: Pattern::HeavyTail,
            duration: Duration::from_secs(seconds),
            ..audio()
        };
        let of_seed = |seed| Schedule::new(&track, 0).seeded(&track, seed);
        assert_eq!(of_seed(1), of_seed(1));
        assert_ne!(planned(&of_seed(1)), planned(&of_seed(2)));
        let (schedule, interval) = (of_seed(3), track.interval.ns());
        let times = planned(&schedule);
        assert!(times.is_sorted() && times[0] == 0);
        assert!(times.iter().all(|at| *at < schedule.data_phase_ns()));
        // About as many as at a steady rate: after the first 1024 intervals, the rest of the next cycle may be dense or sparse.
        let steady = seconds * 50;
        assert!(
            (steady / 2..=steady * 2).contains(&schedule.objects()),
            "{}",
            times.len()
        );
        let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let short = gaps.iter().filter(|gap| **gap < interval).count();
        assert!(short * 10 > gaps.len() * 6, "{short} of {}", gaps.len());
        let longest = schedule.longest_gap();
        assert!(longest > track.interval.duration() * 4, "{longest:?}");
        assert!(longest < track.interval.duration() * 110, "{longest:?}");
        assert!(gaps.iter().all(|gap| Duration::from_nanos(*gap) <= longest));
    }
}

#[test]
fn sizes_vary_from_the_smallest_to_the_largest_and_add_up() {
    let most = ObjectSize::new(20_000).unwrap();
    for group in [2, 7, 150, 1024, 5000] {
        let track = TrackProfile {
            object_size_max: Some(most),
            objects_per_group: ObjectsPerGroup::new(group).unwrap(),
            duration: Duration::from_mins(5),
            ..video()
        };
        let schedule = Schedule::new(&track, 0).seeded(&track, 9);
        let all: Vec<u32> = (0..schedule.objects())
            .map(|number| schedule.size_of(number).bytes())
            .collect();
        let mut sum = 0;
        for (count, size) in (1..).zip(&all) {
            sum += u64::from(*size);
            assert_eq!(schedule.bytes_of(count), sum, "{group}: {count}");
        }
        let first = track.first_object_size.bytes();
        let mut others: Vec<u32> = all.into_iter().filter(|size| *size != first).collect();
        others.sort_unstable();
        assert!(others[0] >= track.object_size.bytes() && *others.last().unwrap() <= 20_000);
        // Half are below 1.7 times the smallest, and a few reach the limit.
        let median = others[others.len() / 2];
        assert!(median < track.object_size.bytes() * 2, "{median}");
        assert!(others.last().unwrap() > &15_000, "{others:?}");
        assert!(schedule.largest_object().bytes() <= first.max(20_000));
    }
}
