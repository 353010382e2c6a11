//! Several reports side by side, as a section of a Markdown page.

use std::fmt::Write as _;

use super::{Case, Kind, Level, Outcome, Report, html};
use crate::form::table::{Table, left};

/// Renders what the runs have in common and where they differ: counts, the bystander, and for each draft the cases that one of
/// the relays did not pass. All runs of a draft have to be of the same table of cases; one that lacks a case has no entry for
/// it.
pub fn render(reports: &[Report]) -> String {
    let mut text = summary(reports).markdown(false);
    for report in reports {
        let _infallible = write!(
            text,
            "\nThe bystander of {}, {}, {}:\n\n{}",
            report.relay,
            report.draft,
            report.transport,
            html::bystander(&report.bystander).markdown(false)
        );
    }
    let mut rest: Vec<&Report> = reports.iter().collect();
    while let Some(first) = rest.first().copied() {
        let of_draft = |report: &&Report| report.draft == first.draft;
        let (of_draft, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(of_draft);
        differences_of_draft(&of_draft, &mut text);
        rest = others;
    }
    text
}

/// Appends the tables of a draft.
fn differences_of_draft(reports: &[&Report], text: &mut String) {
    for level in [Level::Must, Level::Should, Level::Implied] {
        let table = differences(reports, level);
        let Some(first) = reports.first().filter(|_| !table.is_empty()) else {
            continue;
        };
        let title = match level {
            Level::Must => "Required by the draft, and failed",
            Level::Should => "Recommended by the draft (SHOULD), and failed",
            Level::Implied => "Not stated for the receiver by the draft, and different",
        };
        let (document, table) = (first.document(), table.markdown(false));
        let _infallible = write!(text, "\n### {document}: {title}\n\n{table}");
    }
}

fn summary(reports: &[Report]) -> Table {
    let names = [
        "Relay",
        "Draft",
        "Transport",
        "Conformance",
        "Robustness",
        "Volume",
        "Bystander lost",
    ];
    let rows = reports.iter().map(|report| {
        let passed = |kind: Kind| {
            let of_kind = |case: &&Case| {
                case.kind == kind && case.level == Level::Must && case.result != Outcome::Skipped
            };
            let all = report.cases.iter().filter(of_kind);
            let passed = all
                .clone()
                .filter(|case| case.result == Outcome::Passed)
                .count();
            match all.count() {
                0 => "–".to_owned(),
                all => format!("{passed} of {all}"),
            }
        };
        [
            report.relay.clone(),
            report.draft.clone(),
            report.transport.clone(),
            passed(Kind::Conformance),
            passed(Kind::Robustness),
            passed(Kind::Volume),
            report.bystander_lost().to_string(),
        ]
    });
    Table::new(names.map(left)).with_rows(rows)
}

/// Returns a row for each case of a level that a relay did not pass.
fn differences(reports: &[&Report], level: Level) -> Table {
    let heads = ["Case", "Section", "Requirement"].map(str::to_owned);
    let relays = reports
        .iter()
        .map(|report| format!("{}, {}", report.relay, report.transport));
    let mut table = Table::new(heads.into_iter().chain(relays).map(left));
    let Some(first) = reports.first() else {
        return table;
    };
    for case in first.cases.iter().filter(|case| case.level == level) {
        let found: Vec<Option<&Case>> = reports
            .iter()
            .map(|report| report.cases.iter().find(|one| one.name == case.name))
            .collect();
        let differs = |case: &Case| matches!(case.result, Outcome::Failed | Outcome::Unreached);
        if !found.iter().flatten().any(|case| differs(case)) {
            continue;
        }
        let results = found
            .into_iter()
            .map(|case| match case.map(|case| (case.result, case)) {
                None | Some((Outcome::Skipped, _)) => "–".to_owned(),
                Some((Outcome::Passed, _)) => "passed".to_owned(),
                Some((Outcome::Failed, case)) => case.details.clone(),
                Some((Outcome::Unreached, case)) => format!("not reached: {}", case.details),
            });
        let heads = [
            case.name.clone(),
            case.section.clone(),
            case.requirement.clone(),
        ];
        table.add_row(heads.into_iter().chain(results));
    }
    table
}
