//! Relay and load generator of a synthetic run.

use super::*;

pub(super) fn relay(shape: Shape, tracks: &[TrackReport], random: &mut Random) -> Relay {
    if matches!(shape.story, Story::NotObserved) {
        return Relay {
            source: RelaySource::NotObserved,
            implementation: Some("moq-relay-ietf 0.8.0".to_owned()),
            cost: None,
            per_second: Vec::new(),
            counters: BTreeMap::new(),
            metrics: Vec::new(),
        };
    }
    let delivered: u64 = tracks
        .iter()
        .map(|track| track.completion.objects_received.sum)
        .sum();
    let cost = cost(shape, delivered);
    Relay {
        source: RelaySource::ChildProcess { pid: 48_211 },
        implementation: Some("weir 0.1.0".to_owned()),
        per_second: per_second(shape, &cost, random),
        cost: Some(cost),
        counters: BTreeMap::from([
            (
                "dropped: datagram queue full".to_owned(),
                tracks[0].delivery.lost_middle,
            ),
            ("dropped: delivery time-out".to_owned(), 0),
            ("sessions accepted".to_owned(), shape.subscribers + 1),
        ]),
        metrics: metrics(shape, delivered),
    }
}

/// Returns the cost of `delivered` objects.
fn cost(shape: Shape, delivered: u64) -> RelayCost {
    let per_object_us = if shape.story == Story::Overloaded {
        6.8
    } else {
        4.1
    };
    let cpu_seconds = statistics::float(delivered) * per_object_us / 1e6;
    let seconds = statistics::float(shape.seconds);
    let session = 61_440;
    let start = 9_000_000;
    let connected = start + shape.subscribers * session;
    RelayCost {
        window: Window {
            from_ms: 6_000.0,
            to_ms: 6_000.0 + seconds * 1000.0,
        },
        cpu_seconds,
        objects_delivered: delivered,
        cpu_us_per_delivered_object: (delivered > 0).then_some(per_object_us),
        cpu_percent: (cpu_seconds / seconds * 100.0).min(99.4),
        rss_start_bytes: start,
        rss_connected_bytes: connected,
        rss_peak_bytes: connected + 400_000,
        bytes_per_session: (shape.subscribers > 0).then_some(statistics::float(session)),
        context_switches_voluntary: 30_118,
        context_switches_involuntary: 214,
        threads: 1,
    }
}

/// Returns the entry of each second until the relay's process ends.
fn per_second(shape: Shape, cost: &RelayCost, random: &mut Random) -> Vec<RelaySecond> {
    let of_sessions = cost.rss_connected_bytes - cost.rss_start_bytes;
    (0..=(shape.seconds + SET_UP_SECONDS))
        .take(if shape.story == Story::RelayDied {
            23
        } else {
            usize::MAX
        })
        .map(|second| {
            let busy = (SET_UP_SECONDS..SET_UP_SECONDS + shape.seconds).contains(&second);
            let share = if busy {
                0.94 + random.unit() * 0.12
            } else {
                0.12
            };
            let grown = (second + 1).min(SET_UP_SECONDS) * of_sessions / SET_UP_SECONDS;
            RelaySecond {
                second,
                cpu_percent: cost.cpu_percent * share,
                rss_bytes: cost.rss_start_bytes + grown + second * 9_000,
                context_switches_voluntary: if busy { 1_004 } else { 12 },
                context_switches_involuntary: random.next() % 12,
            }
        })
        .collect()
}

/// Returns metrics that the relay exports.
fn metrics(shape: Shape, delivered: u64) -> Vec<RelayMetric> {
    let each = |last: u64, is_counter: bool, name: &str| RelayMetric {
        metric: name.to_owned(),
        is_counter,
        per_second: (0..shape.seconds + SET_UP_SECONDS)
            .map(|second| {
                let done = second.saturating_sub(SET_UP_SECONDS);
                let share = statistics::ratio(done, shape.seconds.max(1)).unwrap_or(0.0);
                let joined = statistics::ratio(second.min(SET_UP_SECONDS), SET_UP_SECONDS);
                let share = if is_counter {
                    share
                } else {
                    joined.unwrap_or(0.0)
                };
                MetricSecond {
                    at_ms: statistics::float(second) * 1e3 + 120.0,
                    value: statistics::float(last) * share,
                }
            })
            .collect(),
    };
    vec![
        each(delivered, true, "weir_datagrams_sent_total"),
        each(shape.subscribers + 1, false, "weir_sessions"),
    ]
}

/// Returns a heat map in which loss grows towards the end.
pub(super) fn heat_map(
    shape: Shape,
    subscribers: &[SubscriberReport],
    objects: u64,
    random: &mut Random,
) -> Option<HeatMap> {
    let columns = shape.seconds.clamp(1, 60);
    let per_row = subscribers.len().div_ceil(40).max(1);
    let rows: Vec<HeatMapRow> = (0_u64..)
        .zip(subscribers.chunks(per_row))
        .map(|(number, row)| {
            let steady = row.iter().filter(|one| one.conduct == Conduct::Steady);
            let lost: u64 = steady.clone().map(|one| one.completion.lost_objects).sum();
            let base = steady
                .clone()
                .filter_map(|one| Some(one.latency?.p99_ms))
                .fold(0.0, f64::max);
            let weights: u64 = (0..columns).map(|column| column * column).sum();
            HeatMapRow {
                first_subscriber: number * per_row as u64,
                subscriptions: steady.count() as u64,
                lost: (0..columns)
                    .map(|at| lost * at * at / weights.max(1))
                    .collect(),
                latency_max_ms: (0..columns).map(|_| random.skewed(base)).collect(),
            }
        })
        .collect();
    let column_ms = statistics::ratio(shape.seconds * 1000, columns)?;
    (!rows.is_empty()).then(|| HeatMap {
        column_ms,
        planned: vec![objects / columns; usize::try_from(columns).unwrap_or(0)],
        rows,
    })
}

pub(super) fn generator(shape: Shape) -> Generator {
    let slow = shape.story == Story::SlowGenerator;
    let thread = |name: &str, cpu_percent: f64| GeneratorThread {
        name: name.to_owned(),
        cpu_percent,
        event_loop_lag_p99_ms: if slow { 71.2 } else { 0.34 },
        event_loop_lag_max_ms: if slow { 164.0 } else { 2.9 },
    };
    Generator {
        healthy: !slow,
        reasons: if slow {
            vec![
                "the thread of the subscribers used 100 % of core 1".to_owned(),
                "the event loop of the subscribers lagged 71 ms at p99 (at most 50 ms allowed)".to_owned(),
                "the kernel dropped 18,204 packets because the generator's receive buffers were full"
                    .to_owned(),
            ]
        } else {
            Vec::new()
        },
        cores: vec![1],
        threads: vec![
            thread("publishers", 2.1),
            thread("subscribers", if slow { 99.7 } else { 41.3 }),
        ],
        socket_receive_buffer_drops: if slow { 18_204 } else { 0 },
        stolen_percent: Some(0.4),
        publisher_lateness: Some(Distribution {
            count: 1500,
            mean_ms: 0.04,
            p50_ms: 0.031,
            p90_ms: 0.082,
            p99_ms: if slow { 63.4 } else { 0.21 },
            max_ms: if slow { 148.9 } else { 1.72 },
        }),
        per_second: (0..shape.seconds)
            .map(|second| GeneratorSecond {
                second,
                cpu_percent: if slow { 99.7 } else { 43.0 },
                rss_bytes: 31_000_000 + shape.subscribers * 22_000,
                objects: second * 50 * shape.subscribers,
            })
            .collect(),
        agents: Vec::new(),
        calibration: (shape.story == Story::Overloaded).then(|| Calibration {
            held: true,
            reasons: Vec::new(),
            objects_per_second: 10_000.0,
            latency_p99_ms: Some(2.1),
            generator_cpu_percent: Some(39.0),
            null_relay_cpu_us_per_object: Some(2.9),
        }),
    }
}
