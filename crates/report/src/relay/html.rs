//! A report as one HTML file that needs no network.
//!
//! The size of the file is bounded: curves are thinned, and long tables are cut with a note.

mod charts;
mod tables;

use maud::{Markup, html};

use self::charts::{heat, progress, relay as relay_charts, subscribers};
use super::cost::{NO_SESSION_MEMORY, NOT_OBSERVED};
use super::proof::NOT_CALIBRATED;
use super::verdict::{GENERATOR_LIMIT, Judgement, judged_part};
use super::{Calibration, Outcome, Relay, RelaySource, Report, TrackReport};
use crate::form::page::{
    Card, ENTRIES_MAX, Page, Tone, cards, command_line, cut, facts, plots, section, table_title,
    verdict,
};
use crate::form::table::{Cell, Table};
use crate::form::{
    latency,
    number::{self, or_none},
};
use crate::service_level::JudgedClause;
use crate::statistics::float;

/// Most track definitions shown. The JSON has them all.
const TRACKS_MAX: usize = 32;

/// Renders `report` as a complete document.
pub fn render(report: &Report) -> String {
    let run = &report.run;
    let word = report.verdict.outcome.word();
    let draft = run.draft.as_deref().unwrap_or("no session");
    let facts = [&run.start_time, draft, &run.transport, &run.relay_url].map(cut);
    let page = Page {
        title: format!("{word}: {} – weir bench", cut(&run.profile.name)),
        program: "weir bench",
        heading: run.profile.name.clone(),
        facts: vec![facts.join(" · ")],
        main: body(report),
        footer: vec![
            "Latency counts from the planned send time of an object, so it includes the lateness of the publisher. \
             Metrics have the names of draft-evens-moq-bench-00, section 5.5."
                .to_owned(),
            format!("weir {} · report schema {}", run.weir_version, report.schema),
        ],
    };
    page.render()
}

fn body(report: &Report) -> Markup {
    let hidden = report.tracks.len().saturating_sub(TRACKS_MAX);
    html! {
        (conclusion(report))
        (key_figures(report))
        (service_level(report))
        @for (number, track) in report.tracks.iter().take(TRACKS_MAX).enumerate() {
            (track_section(track, number))
        }
        @if hidden > 0 {
            p.reading { (hidden) " more track definitions are not shown. The JSON has them all." }
        }
        (relay_section(report))
        (generator_section(report))
        (set_up_section(report))
        (run_section(report))
    }
}

fn conclusion(report: &Report) -> Markup {
    let (tone, title) = match report.verdict.outcome {
        Outcome::Held => (Tone::Good, "The service level held"),
        Outcome::Broken => (Tone::Bad, "The service level broke"),
        Outcome::GeneratorLimit => (Tone::Warn, "Invalid: the generator was the limit"),
        Outcome::Partial => (Tone::Warn, "A partial run: it ended early"),
        Outcome::Empty => (Tone::Warn, "Nothing was measured"),
    };
    let body = html! {
        p { (cut(&report.verdict.sentence)) }
        @if !report.slo.text.is_empty() {
            p.level-text { "Service level: " code { (cut(&report.slo.text)) } }
        }
    };
    verdict(tone, title, &body)
}

fn key_figures(report: &Report) -> Markup {
    let tracks = &report.tracks;
    let mut list = if !tracks.is_empty() && tracks.iter().all(TrackReport::is_only_published) {
        let published: u64 = tracks.iter().map(|track| track.published.objects).sum();
        vec![Card {
            name: "Objects published",
            value: number::count(published),
            beside: "no subscriber in this process".to_owned(),
            ..Card::default()
        }]
    } else {
        delivery_cards(report)
    };
    list.extend(latency_card(tracks));
    if report.verdict.outcome != Outcome::GeneratorLimit {
        list.extend(relay_cards(&report.relay));
    }
    cards(&list)
}

fn delivery_cards(report: &Report) -> Vec<Card> {
    let (delivered, lost) = (report.objects_delivered(), report.objects_lost());
    let due = delivered.saturating_add(lost);
    let (good, all) = report.tracks.iter().fold((0, 0), |(good, all), track| {
        let status = track.status;
        let of_track = status.good + status.incomplete + status.failed;
        (good + status.good, all + of_track)
    });
    vec![
        Card {
            name: "Subscribers",
            value: number::count(report.run.subscribers_requested),
            beside: format!(
                "{} of {} subscriptions good",
                number::count(good),
                number::count(all)
            ),
            is_alarm: good < all,
            ..Card::default()
        },
        Card {
            name: "Objects delivered",
            value: number::count(delivered),
            beside: format!("of {} due", number::count(due)),
            ..Card::default()
        },
        Card {
            name: "Objects lost",
            value: number::count(lost),
            beside: format!("{} of those due", number::share(lost, due)),
            is_alarm: lost > 0,
            ..Card::default()
        },
    ]
}

/// The 99th percentile of the slowest track, and the slowest object of all tracks.
fn latency_card(tracks: &[TrackReport]) -> Option<Card> {
    let all = || tracks.iter().filter_map(|one| one.latency.overall);
    let worst = all().reduce(|a, b| if b.p99_ms > a.p99_ms { b } else { a })?;
    if all().count() == 1 {
        return Some(latency::card(&worst));
    }
    let slowest = all().map(|one| one.max_ms).fold(0.0, f64::max);
    Some(Card {
        beside: format!(
            "slowest track; slowest object {}",
            number::milliseconds(slowest)
        ),
        ..latency::card(&worst)
    })
}

fn relay_cards(relay: &Relay) -> Vec<Card> {
    let Some(cost) = &relay.cost else {
        return Vec::new();
    };
    let seconds = (cost.window.to_ms - cost.window.from_ms) / 1e3;
    let per_object = cost.cpu_us_per_delivered_object.map(|cpu| Card {
        name: "Relay CPU per object",
        value: number::decimal(cpu),
        unit: "µs".to_owned(),
        beside: format!(
            "{} s of CPU in {} s",
            number::decimal(cost.cpu_seconds),
            number::decimal(seconds)
        ),
        ..Card::default()
    });
    let load = Card {
        name: "Relay CPU",
        value: number::decimal(cost.cpu_percent),
        unit: "%".to_owned(),
        beside: "of a core, in the steady window".to_owned(),
        ..Card::default()
    };
    let text = or_none(cost.bytes_per_session, number::bytes);
    let (value, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let peak = number::bytes(float(cost.rss_peak_bytes));
    let memory = Card {
        name: "Memory per session",
        value: value.to_owned(),
        unit: unit.to_owned(),
        beside: cost.bytes_per_session.map_or_else(
            || format!("not measured: {NO_SESSION_MEMORY}"),
            |_| format!("whole relay: at most {peak}"),
        ),
        ..Card::default()
    };
    per_object.into_iter().chain([load, memory]).collect()
}

fn service_level(report: &Report) -> Markup {
    let clauses = &report.slo.clauses;
    if clauses.is_empty() {
        return html! {};
    }
    let rows = clauses.iter().take(ENTRIES_MAX);
    let rows = rows.map(|clause| clause_row(clause, report.verdict.outcome));
    let table = Table::of_figures(["Clause", "Limit", "Measured", "Verdict"]).with_rows(rows);
    let judged = judged_part(report).map(|sentence| format!("Judged: {sentence}."));
    section(
        "Service level",
        "",
        &html! { div.narrow.codes { (table.with_notes(judged)) } },
    )
}

fn clause_row(clause: &JudgedClause, outcome: Outcome) -> [Cell; 4] {
    let judgement = Judgement::of(clause, outcome);
    let tone = match judgement {
        Judgement::Held => Some(Tone::Good),
        Judgement::Broke => Some(Tone::Bad),
        Judgement::NotDecidable => Some(Tone::Warn),
        Judgement::HeldSoFar | Judgement::None => None,
    };
    let words = format!("{} {}", judgement.sign(), judgement.words());
    [
        cut(&clause.text).into(),
        clause.limit_in_words().into(),
        clause.measured_in_words().into(),
        Cell::toned(words, tone),
    ]
}

fn track_section(track: &TrackReport, number: usize) -> Markup {
    let definition = &track.definition;
    let title = format!("Track: {}", cut(&definition.section));
    let lead = cut(&definition.in_words());
    if track.is_only_published() {
        return section(&title, &lead, &tables::published(track));
    }
    let [timing, bit_rate] = progress::over_time(track);
    let plots = plots([
        latency::over_time(&track.latency, "object"),
        heat::latency(track),
        heat::loss(track),
        latency::histogram(&track.latency, "object"),
        subscribers::spread(track),
        timing,
        charts::objects_over_time(track),
        bit_rate,
        subscribers::loss_by_place(track),
        subscribers::loss(track),
    ]);
    let body = html! {
        (plots)
        (tables::completion(track))
        (tables::distributions(track))
        (tables::delivery(track))
        (tables::set_apart(track))
        (tables::progress(track))
        (tables::subscribers(track, number))
    };
    section(&title, &lead, &body)
}

fn relay_section(report: &Report) -> Markup {
    let relay = &report.relay;
    let name = relay
        .implementation
        .as_deref()
        .map_or_else(String::new, |name| format!(" · {}", cut(name)));
    let source = match relay.source {
        RelaySource::ChildProcess { pid } => format!("Process {pid}, started by weir"),
        RelaySource::PidGiven { pid } | RelaySource::ProcessNamed { pid } => {
            format!("Process {pid}")
        }
        RelaySource::Simulated => {
            "Simulated in virtual time: CPU and memory have no meaning".to_owned()
        }
        RelaySource::NotObserved => format!("CPU and memory were {NOT_OBSERVED}"),
    };
    let is_invalid = report.verdict.outcome == Outcome::GeneratorLimit && relay.cost.is_some();
    let counters = relay.counters.iter().take(ENTRIES_MAX);
    let counters = counters.map(|(name, value)| (name, number::count(*value)));
    let body = html! {
        @if is_invalid {
            p.lead {
                "The generator was the limit, so these figures say nothing about the relay."
            }
        }
        @if let Some(cost) = &relay.cost {
            @if !relay.per_second.is_empty() { (plots(relay_charts::relay(relay, cost))) }
            (facts(tables::relay_cost(cost)))
        }
        @if !relay.metrics.is_empty() {
            (table_title("Metrics that the relay exports"))
            (plots(relay_charts::metrics(relay)))
        }
        @if !relay.counters.is_empty() {
            (table_title("Counters of the relay"))
            (facts(counters))
        }
    };
    section("Relay", &format!("{source}{name}"), &body)
}

fn generator_section(report: &Report) -> Markup {
    let generator = &report.generator;
    let lead = if generator.healthy {
        "Healthy: it kept up with its schedule."
    } else {
        GENERATOR_LIMIT
    };
    let proof = generator.calibration.as_ref().map_or_else(
        || format!("This run was {NOT_CALIBRATED}."),
        Calibration::sentence,
    );
    let body = html! {
        @if !generator.reasons.is_empty() {
            ul.reasons {
                @for reason in generator.reasons.iter().take(ENTRIES_MAX) { li { (cut(reason)) } }
            }
        }
        @if let Some(problem) = report.run.cores.problem() { p.lead { "Warning: " (problem) "." } }
        p.lead { (cut(&proof)) }
        @if generator.per_second.len() > 1 { (plots(relay_charts::generator(generator))) }
        (tables::threads(generator))
        (tables::agents(generator))
        @if generator.agents.iter().any(|one| one.per_second.len() > 1) {
            (plots(relay_charts::agents(generator)))
        }
        (facts(tables::generator_facts(report)))
    };
    section("Load generator", lead, &body)
}

fn set_up_section(report: &Report) -> Markup {
    let set_up = &report.set_up;
    let rows = [
        ("Handshake", set_up.handshake),
        ("SETUP", set_up.setup),
        ("First object", set_up.first_object),
        ("Joining FETCH", set_up.joining_fetch),
    ];
    if rows.iter().all(|(_, distribution)| distribution.is_none()) {
        return html! {};
    }
    let lead = "QUIC handshake and MOQT SETUP of each connection; time from SUBSCRIBE to the first object of each \
                subscription.";
    section("Set-up", lead, &latency::quantiles(&rows))
}

fn run_section(report: &Report) -> Markup {
    let run = &report.run;
    let body = html! {
        (facts(tables::run_facts(run)))
        (command_line(&run.command_line))
        @if !run.profile.text.is_empty() {
            details { summary { "The profile" } pre { (cut(&run.profile.text)) } }
        }
    };
    section("Run", "", &body)
}
