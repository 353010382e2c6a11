//! The receiver against a model that keeps every arrival and computes all metrics at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Bench, MS, Sent, profile};
use crate::metrics::TrackResult;
use crate::payload::split_mix;

/// All arrivals in order: number, time, size.
#[derive(Default)]
struct Model {
    arrivals: Vec<(u64, Duration, u64)>,
}

impl Model {
    fn check(&self, bench: &Bench, result: &TrackResult) {
        let schedule = bench.plan.schedule();
        let mut seen = BTreeSet::new();
        let (mut duplicates, mut reordered) = (0, 0);
        let mut unique = Vec::new();
        for arrival in &self.arrivals {
            let newest = seen.last().copied();
            if !seen.insert(arrival.0) {
                duplicates += 1;
                continue;
            }
            reordered += u64::from(newest.is_some_and(|newest| arrival.0 < newest));
            unique.push(*arrival);
        }
        let delivery = result.delivery;
        assert_eq!(
            (delivery.duplicates, delivery.reordered),
            (duplicates, reordered)
        );
        assert_eq!(result.completion.objects_received, seen.len() as u64);
        check_loss(bench, result, &seen);

        let mut groups: BTreeMap<u64, u64> = BTreeMap::new();
        for number in &seen {
            *groups.entry(schedule.position_of(*number).0).or_default() += 1;
        }
        let complete = groups
            .iter()
            .filter(|(g, n)| schedule.objects_in_group(**g) == **n);
        assert_eq!(result.completion.groups_received, groups.len() as u64);
        assert_eq!(delivery.groups_complete, complete.count() as u64);
        check_timing(result, &unique);
    }
}

fn check_loss(bench: &Bench, result: &TrackResult, seen: &BTreeSet<u64>) {
    let sent = bench.plan.schedule().objects();
    let lost: Vec<u64> = (0..sent).filter(|number| !seen.contains(number)).collect();
    let (first, last) = (seen.first().copied(), seen.last().copied());
    let join = lost
        .iter()
        .filter(|lost| first.is_some_and(|first| **lost < first))
        .count();
    let tail = lost
        .iter()
        .filter(|lost| last.is_none_or(|last| **lost > last))
        .count();
    let delivery = result.delivery;
    assert_eq!(result.completion.lost_objects, lost.len() as u64);
    assert_eq!(
        (delivery.lost_join, delivery.lost_tail),
        (join as u64, tail as u64)
    );
    assert_eq!(delivery.lost_middle, (lost.len() - join - tail) as u64);
    let position = delivery.first_lost.map(|p| (p.group, p.object));
    let first_lost = lost
        .first()
        .map(|lost| bench.plan.schedule().position_of(*lost));
    assert_eq!(position, first_lost);
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn check_timing(result: &TrackResult, unique: &[(u64, Duration, u64)]) {
    let Some((first, at_first, _)) = unique.first().copied() else {
        assert!(result.completion.actual_duration_ms.abs() < f64::EPSILON);
        return;
    };
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let interval_ms = 20.0;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let close = |left: f64, right: f64| assert!((left - right).abs() < 1e-3, "{left} {right}");

    let planned_ms = |number: u64| number as f64 * interval_ms;
    let variances: Vec<f64> = unique
        .iter()
        .map(|(number, at, _)| ms(*at) - ms(at_first) - (planned_ms(*number) - planned_ms(first)))
        .collect();
    let absolute: Vec<f64> = variances.iter().map(|variance| variance.abs()).collect();
    close(
        result.completion.average_receive_variance_ms,
        mean(&absolute),
    );
    close(result.variance.signed_drift_ms, mean(&variances));
    close(
        result.variance.max_ms,
        absolute.iter().copied().fold(0.0, f64::max),
    );

    let pairs: Vec<_> = unique.windows(2).collect();
    let deltas: Vec<f64> = pairs
        .iter()
        .map(|pair| ms(pair[1].1) - ms(pair[0].1))
        .collect();
    let jitter = pairs
        .iter()
        .zip(&deltas)
        .fold(0.0, |jitter, (pair, delta)| {
            let change: f64 = delta - (planned_ms(pair[1].0) - planned_ms(pair[0].0));
            jitter + (change.abs() - jitter) / 16.0
        });
    close(result.variance.jitter_rfc3550_ms, jitter);
    if !deltas.is_empty() {
        close(result.progress.average_delta_ms.unwrap(), mean(&deltas));
        close(
            result.progress.max_delta_ms.unwrap(),
            deltas.iter().copied().fold(0.0, f64::max),
        );
    }
    let bytes: u64 = unique.iter().map(|(_, _, bytes)| *bytes).sum();
    // From the first arrival to the last, and the interval of the last object.
    let arrived_ms = ms(unique.last().unwrap().1) - ms(unique.first().unwrap().1);
    let seconds = (arrived_ms + interval_ms) / 1e3;
    close(
        result.completion.average_bits_per_second,
        bytes as f64 * 8.0 / seconds,
    );
    assert_eq!(result.latency.unwrap().count, unique.len() as u64);
}

/// A network that loses, delays and repeats objects at random.
fn impaired(sent: &[Sent], seed: u64) -> Vec<(Duration, &Sent)> {
    let mut state = seed;
    let mut roll = |sides: u64| split_mix(&mut state) % sides;
    let (loss, repeat, delay_ms) = (1 + roll(30), 1 + roll(30), 1 + roll(90));
    let mut arrivals = Vec::new();
    for sent in sent {
        let data = sent.number().is_some();
        let copies = if data && roll(loss) == 0 {
            0
        } else {
            1 + u32::from(data && roll(repeat) == 0)
        };
        for _ in 0..copies {
            let late = Duration::from_micros(if data { roll(delay_ms * 1_000) } else { 0 });
            arrivals.push((sent.item.at + late, sent));
        }
    }
    arrivals.sort_by_key(|(at, _)| *at);
    arrivals
}

#[test]
fn agrees_with_the_model_over_an_impaired_network() {
    for seed in 0..200 {
        println!("seed {seed}");
        let mut bench = Bench::new(&profile(1 + (seed % 40) as u32, 1 + (seed % 7) as u32));
        let sent = bench.send_all();
        let mut model = Model::default();
        for (at, sent) in impaired(&sent, seed) {
            if bench.receiver.has_ended() {
                break;
            }
            bench.receive(sent, at);
            if let Some(number) = sent.number() {
                model.arrivals.push((number, at, sent.bytes.len() as u64));
            }
        }
        bench.wait_until(bench.plan.schedule().end() + bench.plan.drain() + 1_000 * MS);
        assert!(bench.receiver.has_ended());
        model.check(&bench, &bench.result());
    }
}
