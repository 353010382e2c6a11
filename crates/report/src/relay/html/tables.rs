//! The tables of the HTML report.

use maud::{Markup, html};

use crate::form::page::{ENTRIES_MAX, cut, facts, table_title};
use crate::form::table::{Table, left, right};
use crate::form::{
    latency,
    number::{self, or_none},
};
use crate::relay::rows::{self, Row};
use crate::relay::{
    Generator, Headroom, ObjectPosition, RelayCost, Report, Run, Status, SubscriberReport,
    TrackReport,
};
use crate::statistics::{Distribution, Spread, float};

/// Most subscriptions listed, worst first. The JSON has them all.
pub(super) const ROWS_MAX: usize = 250;

/// Table 3 of draft-evens-moq-bench-00 over the subscribers.
pub(super) fn completion(track: &TrackReport) -> Markup {
    html! {
        (table_title("Metrics on completion (Table 3 of the draft)"))
        (over_subscribers(rows::completion(track)))
    }
}

/// Table 2 of draft-evens-moq-bench-00 over the subscribers, folded.
pub(super) fn progress(track: &TrackReport) -> Markup {
    html! {
        details {
            summary { "Metrics in progress, at the end of the run (Table 2 of the draft)" }
            (over_subscribers(rows::progress(track)))
        }
    }
}

fn over_subscribers<const N: usize>(rows: [Row; N]) -> Table {
    let rows = rows.map(|(name, cells)| {
        let (first, rest) = name.split_at(1);
        let name = first.to_uppercase() + rest;
        [name].into_iter().chain(cells)
    });
    Table::of_figures(["Per subscriber", "Mean", "Min", "Max", "Sum"]).with_rows(rows)
}

/// Percentiles of latency, receive variance and publisher lateness.
pub(super) fn distributions(track: &TrackReport) -> Markup {
    let received = [
        ("Latency from the planned send time", track.latency.overall),
        ("Receive variance, absolute", track.variance.receive),
    ];
    let published = [("Publisher lateness", track.published.lateness)];
    // The report of the other process has its measurements.
    let received = received
        .into_iter()
        .filter(|_| !track.subscribers.is_empty());
    let published = published
        .into_iter()
        .filter(|_| track.published.publishers > 0);
    let rows: Vec<_> = received.chain(published).collect();
    html! {
        (table_title("Times over all objects"))
        (latency::quantiles(&rows))
    }
}

/// The figures of a process that only publishes the track.
pub(super) fn published(track: &TrackReport) -> Markup {
    let published = &track.published;
    let rows = [
        ("Objects published", published.objects),
        ("Groups published", published.groups),
        (
            "Dropped by publisher: ttl passed",
            published.expired_objects,
        ),
        (
            "Dropped by publisher: queue full",
            published.crowded_out_objects,
        ),
    ];
    html! {
        (facts(rows.map(|(name, count)| (name, number::count(count)))))
        (latency::quantiles(&[("Publisher lateness", published.lateness)]))
    }
}

/// The end of the subscriptions, and irregularities of the delivery.
pub(super) fn delivery(track: &TrackReport) -> Markup {
    let delivery = &track.delivery;
    let mean = |spread: Option<Spread>| or_none(spread, |one| number::milliseconds(one.mean));
    let status = &track.status;
    let rows = [
        ("Good subscriptions", number::count(status.good)),
        ("Incomplete subscriptions", number::count(status.incomplete)),
        ("Failed subscriptions", number::count(status.failed)),
        ("Complete groups", number::count(delivery.groups_complete)),
        ("Objects later than their ttl", number::count(delivery.late)),
        ("Reordered objects", number::count(delivery.reordered)),
        ("Duplicate objects", number::count(delivery.duplicates)),
        (
            "Objects lost by a stream reset",
            number::count(delivery.cut_by_reset),
        ),
        (
            "Objects lost without a reset",
            number::count(delivery.dropped),
        ),
        ("First lost object", place(delivery.first_lost)),
        ("First late object", place(delivery.first_late)),
        ("Malformed messages", number::count(delivery.malformed)),
        (
            "Objects with altered content",
            number::count(delivery.corrupt),
        ),
        (
            "Objects with altered number",
            number::count(delivery.misplaced),
        ),
        ("Objects of other runs", number::count(delivery.foreign)),
        (
            "Arrived before sent (clocks)",
            number::count(delivery.negative_latencies),
        ),
        (
            "Dropped by publisher: ttl passed",
            number::count(track.published.expired_objects),
        ),
        (
            "Dropped by publisher: queue full",
            number::count(track.published.crowded_out_objects),
        ),
        (
            "Mean receive variance, signed",
            mean(track.variance.signed_drift_ms),
        ),
        (
            "Mean jitter (RFC 3550)",
            mean(track.variance.jitter_rfc3550_ms),
        ),
    ];
    html! {
        (table_title("Delivery, all subscribers together"))
        (facts(rows))
    }
}

fn place(position: Option<ObjectPosition>) -> String {
    or_none(position, |at| {
        let (object, group) = (number::count(at.object), number::count(at.group));
        format!("object {object} of group {group}")
    })
}

/// Slow and churning subscribers, which the other figures leave out.
pub(super) fn set_apart(track: &TrackReport) -> Markup {
    let apart = &track.set_apart;
    if !apart.has_subscribers() {
        return html! {};
    }
    let rows = [
        ("Slow readers", apart.slow_readers),
        ("Churning subscribers", apart.churning),
        ("Sessions of both", apart.sessions),
        ("Objects received", apart.objects_received),
        ("Objects lost", apart.lost_objects),
        ("Of these by a stream reset", apart.cut_by_reset),
    ];
    html! {
        (table_title("Slow and churning subscribers, left out of the tables above"))
        (facts(rows.map(|(name, count)| (name, number::count(count)))))
    }
}

/// Each subscription, folded: worst first, at most [`ROWS_MAX`].
pub(super) fn subscribers(track: &TrackReport, number: usize) -> Markup {
    if track.subscribers.is_empty() {
        return html! {};
    }
    let mut worst_first: Vec<&SubscriberReport> = track.subscribers.iter().collect();
    worst_first.sort_by(|a, b| {
        let order = badness(b).partial_cmp(&badness(a));
        order.unwrap_or(std::cmp::Ordering::Equal)
    });
    let all = number::count(worst_first.len() as u64);
    let how_many = if worst_first.len() > ROWS_MAX {
        let shown = number::count(ROWS_MAX as u64);
        format!("{shown} of {all}; the JSON has them all")
    } else {
        all
    };
    let names = SUBSCRIBER.into_iter().map(right);
    let columns = [left("Subscriber")]
        .into_iter()
        .chain(names)
        .chain([left("Reason")]);
    let rows = worst_first.into_iter().take(ROWS_MAX).map(subscriber_row);
    html! {
        details.dense id={ "subscribers-" (number) } {
            summary { "Each subscription, worst first (" (how_many) ")" }
            (Table::new(columns).with_rows(rows))
        }
    }
}

/// The columns between the subscriber's name and the reason.
const SUBSCRIBER: [&str; 11] = [
    "Status",
    "Objects",
    "Lost",
    "Complete groups",
    "Latency p50",
    "p99",
    "max",
    "Jitter",
    "Late",
    "Handshake",
    "First object",
];

/// The order of subscriptions: failed, incomplete, good; within each by lost objects, then by p99.
fn badness(subscriber: &SubscriberReport) -> (Status, u64, f64) {
    let p99_ms = subscriber.latency.map_or(0.0, |latency| latency.p99_ms);
    let lost = subscriber.completion.lost_objects;
    (subscriber.status, lost, p99_ms)
}

fn subscriber_row(subscriber: &SubscriberReport) -> [String; 13] {
    let time = |value: Option<f64>| or_none(value, number::milliseconds);
    let latency = |pick: fn(&Distribution) -> f64| time(subscriber.latency.as_ref().map(pick));
    let arrived = subscriber.latency.is_some();
    [
        format!(
            "{} {}",
            number::count(subscriber.index),
            short(&subscriber.track_name)
        ),
        subscriber.status.word().to_owned(),
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

/// Returns `text`, cut to what a cell of a long table may hold.
fn short(text: &str) -> String {
    const CELL_MAX: usize = 160;
    if text.len() <= CELL_MAX {
        text.to_owned()
    } else {
        format!("{}…", &text[..text.floor_char_boundary(CELL_MAX)])
    }
}

/// The threads of the load generator.
pub(super) fn threads(generator: &Generator) -> Markup {
    if generator.threads.is_empty() {
        return html! {};
    }
    let threads = generator.threads.iter().take(ENTRIES_MAX);
    let rows = threads.map(|thread| {
        [
            cut(&thread.name),
            format!("{} % of a core", number::decimal(thread.cpu_percent)),
            number::milliseconds(thread.event_loop_lag_p99_ms),
            number::milliseconds(thread.event_loop_lag_max_ms),
        ]
    });
    let names = ["Thread", "CPU", "Event-loop lag p99", "Event-loop lag max"];
    html! { (Table::of_figures(names).with_rows(rows)) }
}

/// The agents of a run over several hosts.
pub(super) fn agents(generator: &Generator) -> Markup {
    if generator.agents.is_empty() {
        return html! {};
    }
    let rows = generator.agents.iter().take(ENTRIES_MAX).map(|agent| {
        [
            cut(&agent.name),
            agent.part().to_owned(),
            format!("{} % of a core", number::decimal(agent.cpu_percent)),
            number::cores(&agent.cores),
            number::milliseconds(agent.event_loop_lag_p99_ms),
            number::count(agent.socket_receive_buffer_drops),
            agent.clock(),
            or_none(agent.round_trip_ms, number::milliseconds),
        ]
    });
    let names = [
        "Agent",
        "Load",
        "CPU",
        "Cores",
        "Event-loop lag p99",
        "Packets dropped",
        "Clock, against the controller's",
        "Round trip",
    ];
    html! {
        (table_title("Agents"))
        (Table::of_figures(names).with_rows(rows))
    }
}

/// Other facts of the load generator.
pub(super) fn generator_facts(report: &Report) -> Vec<(&'static str, String)> {
    let generator = &report.generator;
    let headroom = |pick: fn(&Headroom) -> String| or_none(report.headroom.as_ref(), pick);
    let lateness = |pick: fn(&Distribution) -> f64| {
        let lateness = generator.publisher_lateness.as_ref();
        or_none(lateness.map(pick), number::milliseconds)
    };
    vec![
        (
            "Packets dropped, full buffers",
            number::count(generator.socket_receive_buffer_drops),
        ),
        ("Publisher lateness p99", lateness(|one| one.p99_ms)),
        ("Publisher lateness max", lateness(|one| one.max_ms)),
        (
            "Taken by the hypervisor",
            or_none(generator.stolen_percent, |percent| {
                format!("{} % of a core", number::decimal(percent))
            }),
        ),
        ("Cores", number::cores(&generator.cores)),
        (
            "Objects received per second",
            headroom(|one| number::decimal(one.objects_per_second)),
        ),
        (
            "Headroom, objects per second",
            headroom(|one| {
                format!(
                    "{} ({} times this load)",
                    number::decimal(one.objects_per_second_max),
                    number::brief(one.times())
                )
            }),
        ),
    ]
}

/// Facts of the relay's cost.
pub(super) fn relay_cost(cost: &RelayCost) -> Vec<(&'static str, String)> {
    let memory = |bytes: u64| number::bytes(float(bytes));
    vec![
        (
            "CPU time in the steady window",
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
            "Objects delivered in the window",
            number::count(cost.objects_delivered),
        ),
        ("Memory before connections", memory(cost.rss_start_bytes)),
        ("Memory before objects", memory(cost.rss_connected_bytes)),
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

/// Facts of the run: load, relay, machine.
pub(super) fn run_facts(run: &Run) -> Vec<(&'static str, String)> {
    vec![
        (
            "Draft",
            run.draft
                .clone()
                .unwrap_or_else(|| "no session was established".to_owned()),
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
            "Duration, set-up included",
            format!("{} s", number::decimal(run.duration_ms / 1e3)),
        ),
        ("Latency clock", run.latency_clock.clone()),
        ("Audience", run.audience.in_words()),
        ("Cores of the relay", number::cores(&run.cores.relay)),
        ("Cores of publishers", number::cores(&run.cores.publishers)),
        (
            "Cores of subscribers",
            number::cores(&run.cores.subscribers),
        ),
        ("CPU", run.cpu_model.clone()),
        ("Kernel", run.kernel.clone()),
        ("Seed", run.seed.to_string()),
        ("Run ID", run.run_id.clone()),
        ("Started", run.start_time.clone()),
        ("weir version", run.weir_version.clone()),
    ]
}
