//! A report for the terminal: the verdict, a table for each track, the cost of relay and generator, the service level.

#[cfg(test)]
mod tests;

use super::cost::{NO_SESSION_MEMORY, NOT_OBSERVED};
use super::proof::NOT_CALIBRATED;
use super::verdict::{Judgement, judged_part};
use super::{Altered, Conduct, Delivery, Outcome, RelayCost, Report, TrackReport, rows};
use crate::form::latency::percentiles;
use crate::form::number;
use crate::form::screen::{COLUMN, Paint, Screen};
use crate::statistics::{Spread, float};

/// Renders `report` for a terminal of `width` columns, with escape sequences for colour if `colour`.
///
/// Every line ends with a line feed. Control characters of foreign text are replaced, so that they cannot control the
/// terminal.
pub fn render(report: &Report, width: usize, colour: bool) -> String {
    let mut screen = Screen::new(width, colour);
    verdict(&mut screen, report);
    facts(&mut screen, report);
    for track in &report.tracks {
        screen.blank();
        track_table(&mut screen, track);
    }
    screen.blank();
    relay(&mut screen, report);
    generator(&mut screen, report);
    audience(&mut screen, report);
    set_up(&mut screen, report);
    service_level(&mut screen, report);
    screen.finish()
}

fn verdict(screen: &mut Screen, report: &Report) {
    let paint = match report.verdict.outcome {
        Outcome::Held => Paint::Good,
        Outcome::Broken => Paint::Bad,
        Outcome::GeneratorLimit | Outcome::Partial | Outcome::Empty => Paint::Warn,
    };
    let word = format!("{}:", report.verdict.outcome.word());
    screen.entry(&word, paint, 0, word.len() + 1, &report.verdict.sentence);
}

fn facts(screen: &mut Screen, report: &Report) {
    let run = &report.run;
    let draft = run.draft.as_deref().unwrap_or("no session");
    let facts = format!(
        "{} · {draft} over {} · {} · {} · seed {} · {} s",
        run.profile.name,
        run.transport,
        run.publish_flow,
        run.relay_url,
        run.seed,
        number::decimal(run.duration_ms / 1e3)
    );
    screen.paragraph(Paint::Faint, 0, &facts);
    let has_latency = report
        .tracks
        .iter()
        .any(|one| one.latency.overall.is_some());
    if has_latency && !run.latency_clock.starts_with("one clock") {
        let clock = format!("latency by {}", run.latency_clock);
        screen.paragraph(Paint::Faint, 0, &clock);
    }
}

fn track_table(screen: &mut Screen, track: &TrackReport) {
    screen.paragraph(Paint::Strong, 0, &track.definition.section);
    screen.paragraph(Paint::Faint, 2, &track.definition.in_words());
    if track.is_only_published() {
        let text = format!(
            "{} objects in {} groups; no subscriber in this process",
            number::count(track.published.objects),
            number::count(track.published.groups)
        );
        screen.entry("published", Paint::Strong, 2, LABEL, &text);
        screen.row(Paint::Faint, "per object", &["p50", "p90", "p99", "max"]);
        let lateness = percentiles(track.published.lateness.as_ref());
        screen.row(Paint::Plain, "publisher lateness", &lateness);
        return;
    }
    let heading = ["mean", "min", "max", "sum"];
    screen.row(Paint::Faint, "per subscriber", &heading);
    let is_lossy = track.completion.lost_objects.sum > 0;
    for (name, cells) in rows::completion(track) {
        let is_alarm = name == rows::LOST_OBJECTS && is_lossy;
        let paint = if is_alarm { Paint::Bad } else { Paint::Plain };
        screen.row(paint, name, &cells);
    }
    screen.row(Paint::Faint, "per object", &["p50", "p90", "p99", "max"]);
    for (name, distribution) in [
        ("latency", &track.latency.overall),
        ("receive variance", &track.variance.receive),
        ("publisher lateness", &track.published.lateness),
    ] {
        // The report of the other process has its measurements.
        if name == "publisher lateness" && track.published.publishers == 0 {
            continue;
        }
        screen.row(Paint::Plain, name, &percentiles(distribution.as_ref()));
    }
    delivery(screen, track);
}

fn delivery(screen: &mut Screen, track: &TrackReport) {
    losses(screen, track);
    fairness(screen, track);
    irregularities(screen, &track.delivery);
    altered(screen, &track.delivery);
    set_apart(screen, track);
    subscriptions(screen, track);
    reasons(screen, track);
}

/// Writes where in the track objects were lost, and how.
fn losses(screen: &mut Screen, track: &TrackReport) {
    let delivery = &track.delivery;
    if delivery.lost_join + delivery.lost_middle + delivery.lost_tail == 0 {
        return screen.entry("lost", Paint::Strong, 2, LABEL, "nothing");
    }
    let mut lost = format!(
        "{} before the first arrival (join), {} between arrivals, {} after the last arrival (tail)",
        number::count(delivery.lost_join),
        number::count(delivery.lost_middle),
        number::count(delivery.lost_tail)
    );
    if let Some(first) = delivery.first_lost {
        lost = format!(
            "{lost}; first: object {} of group {}",
            first.object, first.group
        );
    }
    screen.entry("lost", Paint::Strong, 2, LABEL, &lost);
    if track.completion.lost_objects.sum > 0 {
        let how = format!(
            "{} by a stream reset, {} without a reset",
            number::count(delivery.cut_by_reset),
            number::count(delivery.dropped)
        );
        screen.paragraph(Paint::Faint, LABEL, &how);
    }
}

/// Writes how evenly the subscribers were served, if any received an object.
fn fairness(screen: &mut Screen, track: &TrackReport) {
    if let Some(jain) = track.fairness.jain_objects {
        let worst = track
            .fairness
            .p99_worst_over_median
            .map_or_else(String::new, |worst| {
                let worst = number::brief(worst);
                format!("; p99 of the worst subscriber {worst} times the median subscriber's")
            });
        let jain = number::decimal(jain);
        let fair = format!("Jain index of objects received {jain} (1 is equal){worst}");
        screen.entry("fairness", Paint::Strong, 2, LABEL, &fair);
    }
}

/// Writes how many objects arrived late, out of order, twice or malformed.
fn irregularities(screen: &mut Screen, delivery: &Delivery) {
    let irregular = format!(
        "{} objects later than their ttl{}, {} reordered, {}, {} malformed messages",
        number::count(delivery.late),
        delivery
            .first_late
            .map_or_else(String::new, |first| format!(
                " (first: object {} of group {})",
                first.object, first.group
            )),
        number::count(delivery.reordered),
        number::counted(delivery.duplicates, "duplicate"),
        number::count(delivery.malformed)
    );
    screen.entry("irregular", Paint::Strong, 2, LABEL, &irregular);
}

/// Writes the figures of slow and churning subscribers, if there are any.
fn set_apart(screen: &mut Screen, track: &TrackReport) {
    if track.set_apart.has_subscribers() {
        let apart = &track.set_apart;
        let text = format!(
            "{} slow and {} churning subscribers, with {}: {} objects received, {} lost, {} of them by a stream reset",
            number::count(apart.slow_readers),
            number::count(apart.churning),
            number::counted(apart.sessions, "session"),
            number::count(apart.objects_received),
            number::count(apart.lost_objects),
            number::count(apart.cut_by_reset)
        );
        screen.entry("set apart", Paint::Strong, 2, LABEL, &text);
    }
}

/// Writes how the subscriptions ended.
fn subscriptions(screen: &mut Screen, track: &TrackReport) {
    let status = &track.status;
    let ends = format!(
        "{} good, {} incomplete, {} failed",
        number::count(status.good),
        number::count(status.incomplete),
        number::count(status.failed)
    );
    let alarm = if status.incomplete + status.failed > 0 {
        Paint::Bad
    } else {
        Paint::Strong
    };
    screen.entry("subscriptions", alarm, 2, LABEL, &ends);
}

/// Writes the most frequent reasons why subscriptions were not good.
fn reasons(screen: &mut Screen, track: &TrackReport) {
    let mut reasons: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    // Slow and churning subscribers lose objects on purpose.
    for reason in track
        .subscribers
        .iter()
        .filter(|one| one.conduct == Conduct::Steady)
        .filter_map(|one| one.reason.as_deref())
    {
        *reasons.entry(reason).or_default() += 1;
    }
    let mut reasons: Vec<(&str, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in reasons.iter().take(REASONS_MAX) {
        screen.paragraph(
            Paint::Faint,
            LABEL,
            &format!("{} × {reason}", number::count(*count)),
        );
    }
    if reasons.len() > REASONS_MAX {
        let more = format!("and {} other reasons", reasons.len() - REASONS_MAX);
        screen.paragraph(Paint::Faint, LABEL, &more);
    }
}

/// Writes what the relay altered, if anything, and whether clocks disagree.
fn altered(screen: &mut Screen, delivery: &Delivery) {
    let altered = Altered::of(delivery);
    if let Some(words) = altered.words() {
        let paint = if altered.objects() > 0 {
            Paint::Bad
        } else {
            Paint::Warn
        };
        screen.entry("not as sent", paint, 2, LABEL, &words);
    }
    if delivery.negative_latencies > 0 {
        let text = format!(
            "{} arrived before they were sent: the clocks disagree, and latency is too low",
            number::counted(delivery.negative_latencies, "object")
        );
        screen.entry("clocks", Paint::Warn, 2, LABEL, &text);
    }
}

/// Column of text after a label.
const LABEL: usize = 17;

/// Most reasons shown for a track.
const REASONS_MAX: usize = 5;

fn relay(screen: &mut Screen, report: &Report) {
    let relay = &report.relay;
    let text = match &relay.cost {
        Some(_) if report.verdict.outcome == Outcome::GeneratorLimit => {
            "no statement: the generator was the limit".to_owned()
        }
        Some(cost) => relay_cost(cost),
        None => NOT_OBSERVED.to_owned(),
    };
    screen.entry("relay", Paint::Strong, 0, LABEL, &text);
    let counters: Vec<String> = relay
        .counters
        .iter()
        .filter(|(_, value)| **value > 0)
        .map(|(name, value)| format!("{name} {}", number::count(*value)))
        .collect();
    if !counters.is_empty() {
        screen.entry("counters", Paint::Strong, 0, LABEL, &counters.join(", "));
    }
}

fn relay_cost(cost: &RelayCost) -> String {
    let mut parts = vec![format!(
        "{} s of CPU, {} % of a core",
        number::decimal(cost.cpu_seconds),
        number::decimal(cost.cpu_percent)
    )];
    if let Some(cpu) = cost.cpu_us_per_delivered_object {
        let cpu = number::decimal(cpu);
        parts.push(format!("{cpu} µs of CPU per delivered object"));
    }
    let each = cost.bytes_per_session.map_or_else(
        || format!("per session not measured ({NO_SESSION_MEMORY})"),
        |each| format!("{} per session", number::bytes(each)),
    );
    let most = number::bytes(float(cost.rss_peak_bytes));
    parts.push(format!("memory at most {most}, {each}"));
    parts.push(format!(
        "context switches {} voluntary, {} involuntary",
        number::count(cost.context_switches_voluntary),
        number::count(cost.context_switches_involuntary)
    ));
    parts.join("; ")
}

/// Writes sockets, threads and acknowledgements of the subscribers, if this process had any.
fn audience(screen: &mut Screen, report: &Report) {
    let audience = &report.run.audience;
    if audience.sockets > 0 {
        let words = audience.in_words();
        screen.entry("audience", Paint::Strong, 0, LABEL, &words);
    }
}

fn generator(screen: &mut Screen, report: &Report) {
    let generator = &report.generator;
    let worst = |pick: fn(&super::GeneratorThread) -> f64| {
        Spread::over(generator.threads.iter().map(pick)).map(|spread| spread.max)
    };
    let mut parts = Vec::new();
    if let Some(busiest) = worst(|thread| thread.cpu_percent) {
        let busiest = number::decimal(busiest);
        parts.push(format!("busiest thread {busiest} % of a core"));
    }
    let lag = worst(|thread| thread.event_loop_lag_p99_ms);
    if let (Some(lag), Some(most)) = (lag, worst(|thread| thread.event_loop_lag_max_ms)) {
        let (lag, most) = (number::milliseconds(lag), number::milliseconds(most));
        parts.push(format!("event-loop lag p99 {lag}, max {most}"));
    }
    if let Some(late) = &generator.publisher_lateness {
        parts.push(format!(
            "publisher lateness p99 {}",
            number::milliseconds(late.p99_ms)
        ));
    }
    let drops = number::counted(generator.socket_receive_buffer_drops, "received packet");
    parts.push(format!("{drops} dropped by full buffers"));
    if let Some(stolen) = generator.stolen_percent {
        parts.push(format!(
            "the hypervisor took {} % of a core",
            number::decimal(stolen)
        ));
    }
    if let Some(headroom) = report.headroom.as_ref().filter(|_| generator.healthy) {
        parts.push(format!(
            "headroom {} times this load (busiest thread: {})",
            number::brief(headroom.times()),
            headroom.busiest_thread
        ));
    }
    let (state, paint) = if generator.healthy {
        ("healthy", Paint::Good)
    } else {
        ("unhealthy", Paint::Warn)
    };
    screen.entry(
        "generator",
        Paint::Strong,
        0,
        LABEL,
        &format!("{state}; {}", parts.join("; ")),
    );
    for reason in &generator.reasons {
        screen.paragraph(paint, LABEL, reason);
    }
    for agent in &generator.agents {
        screen.paragraph(Paint::Faint, LABEL, &agent.in_words());
    }
    if let Some(problem) = report.run.cores.problem() {
        screen.paragraph(Paint::Warn, LABEL, &problem);
    }
    match &generator.calibration {
        Some(calibration) if calibration.held => {
            screen.paragraph(Paint::Faint, LABEL, &calibration.sentence());
        }
        Some(calibration) => screen.paragraph(Paint::Warn, LABEL, &calibration.sentence()),
        None => screen.paragraph(Paint::Faint, LABEL, NOT_CALIBRATED),
    }
}

fn set_up(screen: &mut Screen, report: &Report) {
    let set_up = &report.set_up;
    let parts: Vec<String> = [
        ("handshake", set_up.handshake),
        ("SETUP", set_up.setup),
        ("first object", set_up.first_object),
        ("joining FETCH", set_up.joining_fetch),
    ]
    .iter()
    .filter_map(|(name, distribution)| {
        let one = distribution.as_ref()?;
        let (p50, p99) = (number::brief(one.p50_ms), number::brief(one.p99_ms));
        Some(format!(
            "{name} {p50} / {p99} / {} ms",
            number::brief(one.max_ms)
        ))
    })
    .collect();
    if !parts.is_empty() {
        let text = format!("{} (p50 / p99 / max)", parts.join(", "));
        screen.entry("set-up", Paint::Strong, 0, LABEL, &text);
    }
}

fn service_level(screen: &mut Screen, report: &Report) {
    let longest = report
        .slo
        .clauses
        .iter()
        .map(|clause| clause.text.chars().count())
        .max();
    let longest = longest.unwrap_or(0).min(COLUMN * 2);
    for clause in &report.slo.clauses {
        let measured = clause.measured_in_words();
        let judgement = Judgement::of(clause, report.verdict.outcome);
        let paint = match judgement {
            Judgement::Held => Paint::Good,
            Judgement::Broke => Paint::Bad,
            Judgement::NotDecidable => Paint::Warn,
            Judgement::HeldSoFar | Judgement::None => Paint::Strong,
        };
        let name = format!("{} {}", judgement.sign(), number::printable(&clause.text));
        screen.entry(
            &name,
            paint,
            0,
            LABEL.max(longest + 4),
            &format!("{measured}, {}", judgement.words()),
        );
    }
    if let Some(sentence) = judged_part(report) {
        screen.entry(
            "judged",
            Paint::Strong,
            0,
            LABEL.max(longest + 4),
            &sentence,
        );
    }
}
