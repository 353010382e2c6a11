//! The tables of a report.

use super::{ENTRIES_MAX, cut};
use crate::form::markup::Markup;
use crate::form::number;
use crate::relay::{
    Generator, Headroom, ObjectPosition, RelayCost, Report, Run, Status, SubscriberReport,
    TrackReport,
};
use crate::statistics::{Count, Distribution, Spread, float};

/// Subscriptions listed at most, the worst of them; the JSON has them all.
pub(super) const ROWS_MAX: usize = 250;

/// A table's head.
pub(crate) fn head(markup: &mut Markup, names: &[&str]) {
    markup.element("thead", &[], |markup| {
        markup.element("tr", &[], |markup| {
            for name in names {
                markup.leaf("th", &[("scope", &"col")], name);
            }
        });
    });
}

/// A table whose first column names the rows.
pub(crate) fn table(markup: &mut Markup, title: &str, names: &[&str], rows: &[Vec<String>]) {
    if !title.is_empty() {
        markup.leaf("h4", &[("class", &"table-title")], &title);
    }
    markup.element("div", &[("class", &"scroll")], |markup| {
        markup.element("table", &[], |markup| {
            head(markup, names);
            markup.element("tbody", &[], |markup| {
                for row in rows {
                    markup.element("tr", &[], |markup| {
                        for (column, cell) in row.iter().enumerate() {
                            if column == 0 {
                                markup.leaf("th", &[("scope", &"row")], cell);
                            } else {
                                markup.leaf("td", &[], cell);
                            }
                        }
                    });
                }
            });
        });
    });
}

/// Names with their values, side by side as far as there is room.
pub(crate) fn facts(markup: &mut Markup, facts: &[(&str, String)]) {
    markup.element("dl", &[("class", &"fact-grid")], |markup| {
        for (name, value) in facts {
            markup.element("div", &[], |markup| {
                markup.leaf("dt", &[], name);
                markup.leaf("dd", &[], value);
            });
        }
    });
}

/// Table 3 of the draft over the subscribers.
pub(super) fn completion(markup: &mut Markup, track: &TrackReport) {
    let metrics = &track.completion;
    let milliseconds = |name, spread| spread_row(name, spread, number::milliseconds);
    let bits = |name, spread| spread_row(name, spread, number::bits_per_second);
    let rows = [
        count_row("Objects sent", &metrics.objects_sent),
        count_row("Objects received", &metrics.objects_received),
        count_row("Lost objects", &metrics.lost_objects),
        count_row("Groups sent", &metrics.groups_sent),
        count_row("Groups received", &metrics.groups_received),
        milliseconds("Total duration", metrics.total_duration_ms),
        milliseconds("Actual duration", metrics.actual_duration_ms),
        milliseconds(
            "Average receive variance",
            metrics.average_receive_variance_ms,
        ),
        milliseconds(
            "Average publisher variance",
            metrics.average_publisher_variance_ms,
        ),
        bits("Average bits per second", metrics.average_bits_per_second),
        bits("Expected bits per second", metrics.expected_bits_per_second),
    ];
    table(
        markup,
        "Metrics on completion, over subscribers (Table 3)",
        &OVER_SUBSCRIBERS,
        &rows,
    );
}

/// Table 2 of the draft over the subscribers, folded away.
pub(super) fn progress(markup: &mut Markup, track: &TrackReport) {
    let metrics = &track.progress;
    let milliseconds = |name, spread| spread_row(name, spread, number::milliseconds);
    let rows = [
        count_row("Received objects", &metrics.received_objects),
        count_row("Received groups", &metrics.received_groups),
        milliseconds("Receive delta (last)", metrics.receive_delta_ms),
        milliseconds("Average delta", metrics.average_delta_ms),
        milliseconds("Max delta", metrics.max_delta_ms),
        milliseconds("Publisher variance (last)", metrics.publisher_variance_ms),
        milliseconds("Receive variance (last)", metrics.receive_variance_ms),
        spread_row(
            "Average bits per second",
            metrics.average_bits_per_second,
            number::bits_per_second,
        ),
    ];
    markup.element("details", &[], |markup| {
        markup.leaf(
            "summary",
            &[],
            &"Metrics in progress, as they stood at the end (Table 2)",
        );
        table(markup, "", &OVER_SUBSCRIBERS, &rows);
    });
}

const OVER_SUBSCRIBERS: [&str; 5] = ["Per subscriber", "Mean", "Min", "Max", "Sum"];

fn count_row(name: &str, count: &Count) -> Vec<String> {
    let mean = if count.mean.fract() == 0.0 {
        number::plain(count.mean)
    } else {
        number::decimal(count.mean)
    };
    let [min, max, sum] = [count.min, count.max, count.sum].map(number::count);
    vec![name.to_owned(), mean, min, max, sum]
}

fn spread_row(name: &str, spread: Option<Spread>, format: fn(f64) -> String) -> Vec<String> {
    let cell = |value: Option<f64>| value.map_or_else(|| number::NONE.to_owned(), format);
    vec![
        name.to_owned(),
        cell(spread.map(|one| one.mean)),
        cell(spread.map(|one| one.min)),
        cell(spread.map(|one| one.max)),
        String::new(),
    ]
}

/// Everything that has percentiles.
pub(super) fn distributions(markup: &mut Markup, track: &TrackReport) {
    markup.leaf(
        "h4",
        &[("class", &"table-title")],
        &"Distributions, over all objects",
    );
    quantiles(
        markup,
        &[
            ("Latency from the planned send time", track.latency.overall),
            ("Receive variance, absolute", track.variance.receive),
            ("Publisher lateness", track.published.lateness),
        ],
    );
}

/// A table of percentiles.
pub(crate) fn quantiles(markup: &mut Markup, rows: &[(&str, Option<Distribution>)]) {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|(name, distribution)| {
            let cell = |pick: fn(&Distribution) -> f64| {
                distribution.as_ref().map_or_else(
                    || number::NONE.to_owned(),
                    |one| number::milliseconds(pick(one)),
                )
            };
            vec![
                (*name).to_owned(),
                cell(|one| one.p50_ms),
                cell(|one| one.p90_ms),
                cell(|one| one.p99_ms),
                cell(|one| one.max_ms),
                cell(|one| one.mean_ms),
            ]
        })
        .collect();
    table(markup, "", &["", "p50", "p90", "p99", "Max", "Mean"], &rows);
}

/// Irregularities, and how the subscriptions ended.
pub(super) fn delivery(markup: &mut Markup, track: &TrackReport) {
    let delivery = &track.delivery;
    let spread = |spread: Option<Spread>| {
        spread.map_or_else(
            || number::NONE.to_owned(),
            |one| number::milliseconds(one.mean),
        )
    };
    let status = &track.status;
    markup.leaf(
        "h4",
        &[("class", &"table-title")],
        &"Delivery, summed over subscribers",
    );
    facts(
        markup,
        &[
            ("Subscriptions good", number::count(status.good)),
            ("Incomplete", number::count(status.incomplete)),
            ("Failed", number::count(status.failed)),
            ("Groups complete", number::count(delivery.groups_complete)),
            ("Late", number::count(delivery.late)),
            ("Reordered", number::count(delivery.reordered)),
            ("Duplicates", number::count(delivery.duplicates)),
            ("Lost to resets", number::count(delivery.cut_by_reset)),
            ("Lost without a word", number::count(delivery.dropped)),
            ("First lost", place(delivery.first_lost)),
            ("First late", place(delivery.first_late)),
            ("Malformed messages", number::count(delivery.malformed)),
            ("With other content", number::count(delivery.corrupt)),
            ("Under another number", number::count(delivery.misplaced)),
            ("Of other runs", number::count(delivery.foreign)),
            (
                "Arrived before they were sent",
                number::count(delivery.negative_latencies),
            ),
            (
                "Expired at the publisher",
                number::count(track.published.expired_objects),
            ),
            (
                "Crowded out at the publisher",
                number::count(track.published.crowded_out_objects),
            ),
            ("Signed drift, mean", spread(track.variance.signed_drift_ms)),
            (
                "Jitter (RFC 3550), mean",
                spread(track.variance.jitter_rfc3550_ms),
            ),
        ],
    );
}

/// Where an object stands.
fn place(position: Option<ObjectPosition>) -> String {
    position.map_or_else(
        || number::NONE.to_owned(),
        |at| {
            format!(
                "object {} of group {}",
                number::count(at.object),
                number::count(at.group)
            )
        },
    )
}

/// Those that figures over subscribers leave out.
pub(super) fn set_apart(markup: &mut Markup, track: &TrackReport) {
    let apart = &track.set_apart;
    if !apart.is_anybody() {
        return;
    }
    let title = "Set apart: subscribers that made it hard on purpose";
    markup.leaf("h4", &[("class", &"table-title")], &title);
    facts(
        markup,
        &[
            ("Slow readers", number::count(apart.slow_readers)),
            ("Coming and going", number::count(apart.churning)),
            ("Their sessions", number::count(apart.sessions)),
            ("Objects received", number::count(apart.objects_received)),
            ("Objects missed", number::count(apart.lost_objects)),
            ("Of these lost to resets", number::count(apart.cut_by_reset)),
        ],
    );
}

/// Each subscription, folded away: the worst first, and only so many.
pub(super) fn subscribers(markup: &mut Markup, track: &TrackReport, number: usize) {
    if track.subscribers.is_empty() {
        return;
    }
    let mut worst_first: Vec<&SubscriberReport> = track.subscribers.iter().collect();
    worst_first.sort_by(|a, b| {
        badness(b)
            .partial_cmp(&badness(a))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let shown = worst_first.len().min(ROWS_MAX);
    let title = if shown < worst_first.len() {
        format!(
            "Each subscription, the worst first ({} of {}; the JSON has them all)",
            number::count(shown as u64),
            number::count(worst_first.len() as u64)
        )
    } else {
        format!(
            "Each subscription, the worst first ({})",
            number::count(shown as u64)
        )
    };
    let names = [
        "Subscriber",
        "Status",
        "Received",
        "Lost",
        "Groups",
        "p50",
        "p99",
        "Slowest",
        "Jitter",
        "Late",
        "Handshake",
        "First object",
        "Reason",
    ];
    let rows: Vec<Vec<String>> = worst_first
        .iter()
        .take(shown)
        .map(|one| subscriber_row(one))
        .collect();
    let id = format!("subscribers-{number}");
    markup.element("details", &[("id", &id), ("class", &"dense")], |markup| {
        markup.leaf("summary", &[], &title);
        table(markup, "", &names, &rows);
    });
}

/// Failed before incomplete before good, then by loss, then by p99.
fn badness(subscriber: &SubscriberReport) -> (u8, u64, f64) {
    let status = match subscriber.status {
        Status::Good => 0,
        Status::Incomplete => 1,
        Status::Failed => 2,
    };
    let p99_ms = subscriber.latency.map_or(0.0, |latency| latency.p99_ms);
    (status, subscriber.completion.lost_objects, p99_ms)
}

fn subscriber_row(subscriber: &SubscriberReport) -> Vec<String> {
    let status = match subscriber.status {
        Status::Good => "good",
        Status::Incomplete => "incomplete",
        Status::Failed => "failed",
    };
    let time =
        |value: Option<f64>| value.map_or_else(|| number::NONE.to_owned(), number::milliseconds);
    let latency = |pick: fn(&Distribution) -> f64| time(subscriber.latency.as_ref().map(pick));
    let arrived = subscriber.latency.is_some();
    vec![
        format!(
            "{} {}",
            number::count(subscriber.index),
            short(&subscriber.track_name)
        ),
        status.to_owned(),
        number::count(subscriber.completion.objects_received),
        number::count(subscriber.completion.lost_objects),
        number::count(subscriber.delivery.groups_complete),
        latency(|one| one.p50_ms),
        latency(|one| one.p99_ms),
        latency(|one| one.max_ms),
        time(arrived.then_some(subscriber.variance.jitter_rfc3550_ms)),
        number::count(subscriber.delivery.late),
        time(subscriber.handshake_ms),
        time(subscriber.first_object_ms),
        short(subscriber.reason.as_deref().unwrap_or_default()),
    ]
}

/// `text` cut to what a cell of a long table may hold.
fn short(text: &str) -> String {
    const CELL_MAX: usize = 160;
    if text.len() <= CELL_MAX {
        text.to_owned()
    } else {
        format!("{}…", &text[..text.floor_char_boundary(CELL_MAX)])
    }
}

/// The threads of the generator.
pub(super) fn threads(markup: &mut Markup, generator: &Generator) {
    if generator.threads.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = generator
        .threads
        .iter()
        .take(ENTRIES_MAX)
        .map(|thread| {
            vec![
                cut(&thread.name),
                format!("{} %", number::decimal(thread.cpu_percent)),
                number::milliseconds(thread.event_loop_lag_p99_ms),
                number::milliseconds(thread.event_loop_lag_max_ms),
            ]
        })
        .collect();
    table(
        markup,
        "",
        &["Thread", "CPU", "Event-loop lag p99", "Event-loop lag max"],
        &rows,
    );
}

/// The rest of what is known of the generator.
pub(super) fn generator_facts(report: &Report) -> Vec<(&'static str, String)> {
    let generator = &report.generator;
    let headroom = |pick: fn(&Headroom) -> String| {
        let headroom = report.headroom.as_ref();
        headroom.map_or_else(|| number::NONE.to_owned(), pick)
    };
    let lateness = |pick: fn(&Distribution) -> f64| {
        let lateness = generator.publisher_lateness.as_ref();
        lateness.map_or_else(
            || number::NONE.to_owned(),
            |one| number::milliseconds(pick(one)),
        )
    };
    vec![
        (
            "Socket receive drops",
            number::count(generator.socket_receive_buffer_drops),
        ),
        ("Publisher lateness p99", lateness(|one| one.p99_ms)),
        ("Publisher lateness max", lateness(|one| one.max_ms)),
        ("Cores", number::cores(&generator.cores)),
        (
            "Objects per second",
            headroom(|one| number::decimal(one.objects_per_second)),
        ),
        (
            "At most, by this run’s cost",
            headroom(|one| {
                format!(
                    "{} ({} times)",
                    number::decimal(one.objects_per_second_max),
                    number::brief(one.times())
                )
            }),
        ),
    ]
}

/// What the relay spent, in full.
pub(super) fn relay_cost(cost: &RelayCost) -> Vec<(&'static str, String)> {
    let memory = |bytes: u64| number::bytes(float(bytes));
    vec![
        (
            "CPU in the steady window",
            format!("{} s", number::decimal(cost.cpu_seconds)),
        ),
        (
            "Steady window",
            format!(
                "{} to {} s",
                number::decimal(cost.window.from_ms / 1e3),
                number::decimal(cost.window.to_ms / 1e3)
            ),
        ),
        (
            "Objects delivered in it",
            number::count(cost.objects_delivered),
        ),
        ("Memory at the start", memory(cost.rss_start_bytes)),
        ("Memory connected, idle", memory(cost.rss_connected_bytes)),
        ("Memory at most", memory(cost.rss_peak_bytes)),
        (
            "Context switches, voluntary",
            number::count(cost.context_switches_voluntary),
        ),
        (
            "Context switches, involuntary",
            number::count(cost.context_switches_involuntary),
        ),
        ("Threads", number::count(cost.threads)),
    ]
}

/// What was run, with what, on what.
pub(super) fn run_facts(run: &Run) -> Vec<(&'static str, String)> {
    vec![
        (
            "Draft",
            run.draft
                .clone()
                .unwrap_or_else(|| "no session came up".to_owned()),
        ),
        ("Transport", run.transport.clone()),
        ("Publish flow", run.publish_flow.clone()),
        ("Relay", run.relay_url.clone()),
        (
            "Subscribers, publishers",
            format!(
                "{}, {}",
                number::count(run.subscribers_requested),
                number::count(run.publishers_requested)
            ),
        ),
        (
            "Duration",
            format!("{} s", number::decimal(run.duration_ms / 1e3)),
        ),
        ("Latency clock", run.latency_clock.clone()),
        ("Cores: relay", number::cores(&run.cores.relay)),
        ("Cores: publishers", number::cores(&run.cores.publishers)),
        ("Cores: subscribers", number::cores(&run.cores.subscribers)),
        ("CPU", run.cpu_model.clone()),
        ("Kernel", run.kernel.clone()),
        ("Seed", run.seed.to_string()),
        ("Run", run.run_id.clone()),
        ("Started", run.start_time.clone()),
        ("weir", run.weir_version.clone()),
    ]
}
