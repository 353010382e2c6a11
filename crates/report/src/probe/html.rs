//! A report as one HTML file that needs no network.

use maud::{Markup, html};

use super::{Bystander, Case, Kind, Outcome, Report};
use crate::form::number;
use crate::form::page::{Card, Page, Tone, cards, command_line, cut, facts, section, verdict};
use crate::form::table::{Cell, Table, left, right};

/// Renders `report` as a complete document.
pub fn render(report: &Report) -> String {
    let relay = cut(&report.relay);
    let page = Page {
        title: format!("{relay} – weir probe"),
        program: "weir probe",
        heading: format!("{relay} over {}", report.transport),
        facts: vec![format!("{} · {}", report.start_time, report.url)],
        main: html! {
            (conclusion(report))
            (cards(&key_figures(report)))
            (failures(report))
            (bystander_section(report))
            @for kind in Kind::ALL { (all_cases(report, kind)) }
            (run_section(report))
        },
        footer: vec![
            format!(
                "Each case names a section of {}. Cases that the draft does not require with MUST do not decide the result.",
                cut(&report.document())
            ),
            format!(
                "weir {} · report schema {}",
                report.weir_version, report.schema
            ),
        ],
    };
    page.render()
}

fn conclusion(report: &Report) -> Markup {
    let failed = report.cases.iter().filter(|case| case.is_fatal()).count();
    let (tone, title) = match (report.holds(), failed) {
        (true, _) => (Tone::Good, "All required cases passed".to_owned()),
        (false, 0) => (Tone::Bad, "The bystander lost objects".to_owned()),
        (false, failed) => {
            let cases = number::counted(failed as u64, "required case");
            (Tone::Bad, format!("{cases} failed"))
        }
    };
    let lost = number::counted(report.bystander_lost(), "object");
    verdict(
        tone,
        &title,
        &html! { p { "The bystander lost " (lost) "." } },
    )
}

fn key_figures(report: &Report) -> Vec<Card> {
    let count = |result| report.count(result) as u64;
    let failed = count(Outcome::Failed) + count(Outcome::Unreached);
    let messages: u64 = report.cases.iter().map(|case| case.messages).sum();
    let mut cards = vec![
        Card {
            name: "Passed",
            value: number::count(count(Outcome::Passed)),
            beside: format!("required cases; {} skipped", count(Outcome::Skipped)),
            ..Card::default()
        },
        Card {
            name: "Failed",
            value: number::count(failed),
            beside: format!(
                "{} of them before their requirement",
                count(Outcome::Unreached)
            ),
            is_alarm: failed > 0,
            ..Card::default()
        },
        Card {
            name: "Bystander lost",
            value: number::count(report.bystander_lost()),
            beside: "objects".to_owned(),
            is_alarm: report.bystander_lost() > 0,
            ..Card::default()
        },
        Card {
            name: "Messages sent",
            value: number::count(messages),
            beside: "and datagrams".to_owned(),
            ..Card::default()
        },
    ];
    cards.extend(report.memory.map(|memory| Card {
        name: "Memory",
        value: number::bytes(bytes(memory.after_bytes)),
        beside: format!(
            "before {}, peak {}",
            number::bytes(bytes(memory.before_bytes)),
            number::bytes(bytes(memory.peak_bytes))
        ),
        ..Card::default()
    }));
    cards
}

fn bytes(bytes: u64) -> f64 {
    crate::statistics::float(bytes)
}

fn failures(report: &Report) -> Markup {
    let failed = |case: &&Case| matches!(case.result, Outcome::Failed | Outcome::Unreached);
    let rows = report.cases.iter().filter(failed).map(|case| {
        [
            case.name.clone(),
            case.section.clone(),
            case.level.words().to_owned(),
            case.requirement.clone(),
            cut(&case.details),
        ]
    });
    let columns = ["Case", "Section", "Draft", "Requirement", "What happened"];
    let table = Table::new(columns.map(left)).with_rows(rows);
    if table.is_empty() {
        return html! {};
    }
    section("Failed cases", "", &html! { div.dense { (table) } })
}

/// Returns the table of the bystander.
pub(super) fn bystander(parts: &[Bystander]) -> Table {
    let rows = parts.iter().map(|part| {
        [
            part.during.clone(),
            number::count(part.planned),
            number::count(part.lost),
            number::milliseconds(part.p50_ms),
            number::milliseconds(part.p99_ms),
            number::milliseconds(part.max_ms),
        ]
    });
    Table::of_figures(["Part of the run", "Objects", "Lost", "p50", "p99", "Latest"])
        .with_rows(rows)
}

fn bystander_section(report: &Report) -> Markup {
    let lead = "A publisher sends an object every 20 ms to a subscriber, beside the cases. Latency is from the planned time.";
    let body = html! {
        (bystander(&report.bystander))
        @if let Some(failure) = &report.bystander_failure {
            p { "Its sessions ended: " (cut(failure)) }
        }
    };
    section("Bystander", lead, &body)
}

fn all_cases(report: &Report, kind: Kind) -> Markup {
    let columns = [
        left("Case"),
        left("Section"),
        left("Requirement"),
        left("Result"),
        right("Time"),
    ];
    let mut table = Table::new(columns);
    for case in report.cases.iter().filter(|case| case.kind == kind) {
        let (word, tone) = match case.result {
            Outcome::Passed => ("passed", Tone::Good),
            Outcome::Failed | Outcome::Unreached if case.is_fatal() => ("failed", Tone::Bad),
            Outcome::Failed | Outcome::Unreached => ("differs", Tone::Warn),
            Outcome::Skipped => ("skipped", Tone::Warn),
        };
        table.add_row([
            Cell::from(case.name.clone()),
            Cell::from(case.section.clone()),
            Cell::from(case.requirement.clone()),
            Cell::toned(word.to_owned(), Some(tone)),
            Cell::from(number::milliseconds(case.duration_ms)),
        ]);
    }
    if table.is_empty() {
        return html! {};
    }
    section(kind.name(), "", &html! { div.dense { (table) } })
}

fn run_section(report: &Report) -> Markup {
    let rows = [
        ("Relay", report.relay.clone()),
        ("Transport", report.transport.clone()),
        ("Draft", report.document()),
        ("Seed", report.seed.to_string()),
    ];
    let body = html! { (facts(rows)) (command_line(&report.command_line)) };
    section("Run", "", &body)
}
