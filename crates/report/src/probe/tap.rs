//! A run in the Test Anything Protocol, version 14: what harnesses of tests read, among them the MOQT interop runner.
//!
//! A failed case that the draft does not require has the directive `todo`, and does not make the run fail.

use std::fmt::Write as _;

use super::{Case, Level, Outcome, Report};
use crate::form::number::printable;

/// Returns the first lines, with the plan for `cases` cases of a draft and the bystander.
pub fn head(cases: usize, draft: &str) -> String {
    format!("TAP version 14\n1..{}\n# {draft}\n", cases + 1)
}

/// Returns the lines of the case of this number; the first is 1.
pub fn case(number: usize, case: &Case) -> String {
    let name = printable(&case.name);
    match (case.result, case.level) {
        (Outcome::Passed, _) => format!("ok {number} - {name}\n"),
        (Outcome::Skipped, _) => {
            format!("ok {number} - {name} # SKIP {}\n", printable(&case.details))
        }
        (Outcome::Failed | Outcome::Unreached, Level::Must) => {
            format!("not ok {number} - {name}\n{}", diagnostics(case))
        }
        (Outcome::Failed | Outcome::Unreached, Level::Should | Level::Implied) => {
            let level = match case.level {
                Level::Should => "the draft says SHOULD",
                Level::Must | Level::Implied => "the draft does not say what a receiver has to do",
            };
            format!(
                "not ok {number} - {name} # todo {level}\n{}",
                diagnostics(case)
            )
        }
    }
}

/// Returns the lines of the bystander, which is the last point.
pub fn bystander(report: &Report) -> String {
    let number = report.cases.len() + 1;
    let lost = report.bystander_lost();
    let sign = if lost == 0 { "ok" } else { "not ok" };
    let mut text = format!("{sign} {number} - bystander.loses-nothing\n  ---\n");
    for part in &report.bystander {
        let (planned, lost) = (part.planned, part.lost);
        let _infallible = writeln!(
            text,
            "  {}: {{planned: {planned}, lost: {lost}, p50_ms: {:.2}, p99_ms: {:.2}, max_ms: {:.2}}}",
            part.during.replace(' ', "_"),
            part.p50_ms,
            part.p99_ms,
            part.max_ms,
        );
    }
    text.push_str("  ...\n");
    text
}

/// Returns the block that explains a failure.
fn diagnostics(case: &Case) -> String {
    let quoted = |text: &str| format!("{:?}", printable(text));
    let section = if case.section.is_empty() {
        String::new()
    } else {
        format!("  section: {}\n", quoted(&case.section))
    };
    format!(
        "  ---\n{section}  requirement: {}\n  message: {}\n  ...\n",
        quoted(&case.requirement),
        quoted(&case.details)
    )
}
