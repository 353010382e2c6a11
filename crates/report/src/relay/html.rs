//! A report as one HTML file that needs no network: to be sent to a colleague, or printed.
//!
//! The file's size is bounded: curves are thinned, and tables of subscribers and tracks are cut with a note.

mod charts;
mod tables;

use maud::{Markup, html};

use self::charts::{heat, progress, relay as relay_charts, subscribers};
use super::proof::NOT_CALIBRATED;
use super::verdict::{GENERATOR_LIMIT, Judgement, judged};
use super::{Calibration, Outcome, Relay, RelaySource, Report, TrackReport};
use crate::form::page::{
    Card, ENTRIES_MAX, Page, Tone, cards, command_line, cut, facts, plots, section, table_title,
    verdict,
};
use crate::form::table::{Cell, Table};
use crate::form::{latency, number};
use crate::service_level::JudgedClause;
use crate::statistics::float;

/// Tracks shown at most; the JSON has them all.
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
            "Latency counts from the planned send time, so a late publisher cannot hide its own lateness. \
             Metrics bear the names of draft-evens-moq-bench-00, section 5.5."
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
            p.reading { (hidden) " more track definitions are left out here; the JSON has them all." }
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
        Outcome::GeneratorLimit => (Tone::Warn, "No statement about the relay"),
        Outcome::Partial => (Tone::Warn, "A partial run"),
        Outcome::Empty => (Tone::Warn, "Nothing was measured"),
    };
    let body = html! {
        p { (cut(&report.verdict.sentence)) }
        @if !report.slo.text.is_empty() {
            p.level-text { "Service level " code { (cut(&report.slo.text)) } }
        }
    };
    verdict(tone, title, &body)
}

fn key_figures(report: &Report) -> Markup {
    if report.is_of_publishers() {
        let published = report.tracks.iter().map(|track| track.published.objects);
        let mut list = vec![Card {
            name: "Published",
            value: number::count(published.sum()),
            beside: "objects; nobody subscribed here".to_owned(),
            ..Card::default()
        }];
        if report.verdict.outcome != Outcome::GeneratorLimit {
            list.extend(relay_cards(&report.relay));
        }
        return cards(&list);
    }
    let (delivered, lost) = (report.objects_delivered(), report.objects_lost());
    let due = delivered.saturating_add(lost);
    let (good, all) = report.tracks.iter().fold((0, 0), |(good, all), track| {
        let status = track.status;
        let of_track = status.good + status.incomplete + status.failed;
        (good + status.good, all + of_track)
    });
    let mut list = vec![
        Card {
            name: "Subscribers",
            value: number::count(report.run.subscribers_requested),
            beside: format!("{} of {} good", number::count(good), number::count(all)),
            is_alarm: good < all,
            ..Card::default()
        },
        Card {
            name: "Delivered",
            value: number::count(delivered),
            beside: format!("of {} due", number::count(due)),
            ..Card::default()
        },
        Card {
            name: "Lost",
            value: number::count(lost),
            beside: format!("{} of all due", number::share(lost, due)),
            is_alarm: lost > 0,
            ..Card::default()
        },
    ];
    let overall = report.tracks.iter().filter_map(|one| one.latency.overall);
    let worst = overall.reduce(|a, b| if b.p99_ms > a.p99_ms { b } else { a });
    list.extend(worst.as_ref().map(latency::card));
    if report.verdict.outcome != Outcome::GeneratorLimit {
        list.extend(relay_cards(&report.relay));
    }
    cards(&list)
}

fn relay_cards(relay: &Relay) -> Vec<Card> {
    let Some(cost) = &relay.cost else {
        return Vec::new();
    };
    let seconds = (cost.window.to_ms - cost.window.from_ms) / 1e3;
    let per_object = cost.cpu_us_per_delivered_object.map(|cpu| Card {
        name: "CPU per object",
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
        beside: "of a core, steady window".to_owned(),
        ..Card::default()
    };
    let memory = cost.bytes_per_session.map(|each| {
        let text = number::bytes(each);
        let (value, unit) = text.split_once(' ').unwrap_or((&text, ""));
        Card {
            name: "Session memory",
            value: value.to_owned(),
            unit: unit.to_owned(),
            beside: format!("peak {}", number::bytes(float(cost.rss_peak_bytes))),
            ..Card::default()
        }
    });
    per_object.into_iter().chain([load]).chain(memory).collect()
}

fn service_level(report: &Report) -> Markup {
    let clauses = &report.slo.clauses;
    if clauses.is_empty() {
        return html! {};
    }
    let rows = clauses.iter().take(ENTRIES_MAX);
    let rows = rows.map(|clause| clause_row(clause, report.verdict.outcome));
    let table = Table::of_figures(["Clause", "Limit", "Measured", "Verdict"]).with_rows(rows);
    let judged = judged(report).map(|sentence| format!("Judged: {sentence}."));
    section(
        "Service level",
        "",
        &html! { div.narrow.codes { (table.with_notes(judged)) } },
    )
}

fn clause_row(clause: &JudgedClause, outcome: Outcome) -> [Cell; 4] {
    let measured = clause
        .measured
        .map(|value| number::quantity(value, &clause.unit));
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
        number::quantity(clause.limit, &clause.unit).into(),
        measured.unwrap_or_else(|| "not measured".to_owned()).into(),
        Cell::toned(words, tone),
    ]
}

fn track_section(track: &TrackReport, number: usize) -> Markup {
    let definition = &track.definition;
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
    let has_subscribers = !track.subscribers.is_empty();
    let body = html! {
        (plots)
        @if has_subscribers { (tables::completion(track)) }
        (tables::distributions(track))
        @if has_subscribers {
            (tables::delivery(track))
            (tables::set_apart(track))
            (tables::progress(track))
            (tables::subscribers(track, number))
        }
    };
    let title = format!("Track: {}", cut(&definition.section));
    section(&title, &cut(&definition.in_words()), &body)
}

fn relay_section(report: &Report) -> Markup {
    let relay = &report.relay;
    let name = relay
        .implementation
        .as_deref()
        .map_or_else(String::new, |name| format!(" · {}", cut(name)));
    let source = match relay.source {
        RelaySource::ChildProcess { pid } => format!("Child process {pid}, sampled from outside"),
        RelaySource::PidGiven { pid } | RelaySource::ProcessNamed { pid } => {
            format!("Process {pid}, sampled from outside")
        }
        RelaySource::Simulated => "Simulated under virtual time: cost is not stated".to_owned(),
        RelaySource::NotObserved => "Not observed: cost is not stated".to_owned(),
    };
    let is_void = report.verdict.outcome == Outcome::GeneratorLimit && relay.cost.is_some();
    let counters = relay.counters.iter().take(ENTRIES_MAX);
    let counters = counters.map(|(name, value)| (name, number::count(*value)));
    let body = html! {
        @if is_void {
            p.lead {
                "What follows was sampled, but the generator was the limit: it says nothing about the relay."
            }
        }
        @if let Some(cost) = &relay.cost {
            @if !relay.per_second.is_empty() { (plots(relay_charts::relay(relay, cost))) }
            (facts(tables::relay_cost(cost)))
        }
        @if !relay.metrics.is_empty() {
            (table_title("The relay’s own metrics, on the same clock"))
            (plots(relay_charts::metrics(relay)))
        }
        @if !relay.counters.is_empty() {
            (table_title("The relay’s own counters"))
            (facts(counters))
        }
    };
    section("Relay", &format!("{source}{name}"), &body)
}

fn generator_section(report: &Report) -> Markup {
    let generator = &report.generator;
    let lead = if generator.healthy {
        "It kept up with its own schedule."
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
        @if let Some(problem) = report.run.cores.problem() { p.lead { "Mind: " (problem) "." } }
        p.lead { (cut(&proof)) }
        @if generator.per_second.len() > 1 { (plots(relay_charts::generator(generator))) }
        (tables::threads(generator))
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
    ];
    if rows.iter().all(|(_, distribution)| distribution.is_none()) {
        return html! {};
    }
    let lead = "Transport handshake and SETUP per connection; first object per subscription.";
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
