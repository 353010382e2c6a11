//! What came of runs, as tables: medians over seeds with their spread, and whether our strategy holds what it has to.

use std::time::Duration;

use super::figures::{Delays, FREEZE_US, Figures};
use crate::form::page::Tone;
use crate::form::table::{Cell, Table, left, right};

/// One strategy over one link.
#[derive(Clone, Debug)]
pub struct Row {
    /// The profile, with what differs from the usual link.
    pub link: String,
    /// The strategy's name.
    pub strategy: String,
    /// For each seed.
    pub runs: Vec<Figures>,
}

/// One column: its name, its value in a run, how many digits it has behind the point.
pub(super) type Column = (&'static str, fn(&Figures) -> f64, usize);

/// Shares in per cent, times in seconds.
const COLUMNS: [Column; 8] = [
    ("shown %", |run| run.shown * 100.0, 0),
    ("on time %", |run| delays(run).on_time * 100.0, 0),
    ("latency", |run| delays(run).latency_mean, 2),
    ("p95", |run| delays(run).latency_p95, 2),
    ("age", |run| delays(run).age_mean, 2),
    ("freezes", |run| count(run.freezes), 0),
    ("longest", |run| run.freeze_longest, 2),
    ("queueing", |run| delays(run).queueing_mean, 2),
];

/// All origins of the testbed say when they had a frame.
pub(super) fn delays(run: &Figures) -> Delays {
    run.delays.unwrap_or_default()
}

/// The middle of several runs, with the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Of a value over runs; the upper one of two medians.
    pub(super) fn of(runs: &[Figures], value: fn(&Figures) -> f64) -> Self {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
        Self {
            median: at(values.len() / 2),
            least: at(0),
            most: at(values.len().saturating_sub(1)),
        }
    }

    fn text(self, digits: usize) -> String {
        let Self {
            median,
            least,
            most,
        } = self;
        let (low, high) = (format!("{least:.digits$}"), format!("{most:.digits$}"));
        if low == high {
            format!("{median:.digits$}")
        } else {
            format!("{median:.digits$} ({low}–{high})")
        }
    }
}

/// The figures of all rows as Markdown, for a terminal too.
pub fn table(rows: &[Row]) -> String {
    figures(rows).markdown(true)
}

pub(super) fn figures(rows: &[Row]) -> Table {
    let names = COLUMNS.iter().map(|(name, ..)| right(*name));
    let columns = [left("link"), left("strategy")].into_iter().chain(names);
    Table::new(columns).with_rows(rows.iter().map(|row| {
        let values = COLUMNS.iter();
        let values = values.map(|(_, value, digits)| Spread::of(&row.runs, *value).text(*digits));
        let names = [row.link.clone(), row.strategy.clone()];
        names.into_iter().chain(values).collect::<Vec<_>>()
    }))
}

/// What `weir` must hold against `skip` on every link: a lower age, a shorter longest freeze (where neither has one, none is
/// worse), and at most a tenth fewer frames shown; and over `INTRA_CASCADE` by itself, with every seed, a mean latency and a longest
/// freeze that are not over their limits. Also returns whether all of it holds.
pub fn verdicts(rows: &[Row]) -> Option<(String, bool)> {
    let (table, holds) = requirements(rows)?;
    Some((table.markdown(true), holds))
}

/// The same as a table.
pub(super) fn requirements(rows: &[Row]) -> Option<(Table, bool)> {
    let of = |link: &str, name: &str| {
        let mut found = rows.iter();
        let found = found.find(|row| row.link == link && row.strategy == name);
        found.map(|row| &row.runs[..])
    };
    let head = ["link", "age", "longest freeze", "frames shown", "by itself"];
    let mut table = Table::new(head.map(left));
    let mut holds_all = true;
    for row in rows.iter().filter(|row| row.strategy == OURS) {
        let Some(skip) = of(&row.link, "skip") else {
            continue;
        };
        let mut cells = vec![Cell::from(row.link.clone())];
        let medians = |value: fn(&Figures) -> f64| {
            let of = |runs| Spread::of(runs, value).median;
            (of(&row.runs), of(skip))
        };
        let (age, freeze) = (
            medians(|run| delays(run).age_mean),
            medians(|run| run.freeze_longest),
        );
        let shown = medians(|run| run.shown * 100.0);
        let shortest = Duration::from_micros(FREEZE_US.unsigned_abs()).as_secs_f64();
        let is_none = |seconds: f64| seconds < shortest;
        let has_none = is_none(freeze.0) && is_none(freeze.1);
        for (holds, (ours, theirs)) in [
            (age.0 < age.1, age),
            (freeze.0 < freeze.1 || has_none, freeze),
            (shown.0 >= shown.1 * 0.9, shown),
        ] {
            holds_all &= holds;
            cells.push(judged(holds, &format!("{ours:.2} to {theirs:.2}")));
        }
        cells.push(if row.link == LIMITED_LINK {
            let (holds, words) = limits(row);
            holds_all &= holds;
            judged(holds, &words)
        } else {
            "no limit".into()
        });
        table.add_row(cells);
    }
    (!table.is_empty()).then_some((table, holds_all))
}

/// Whether a row keeps the limits that a strategy has by itself, and by how much.
fn limits(row: &Row) -> (bool, String) {
    let most = |value: fn(&Figures) -> f64| Spread::of(&row.runs, value).most;
    let latency = most(|run| delays(run).latency_mean);
    let freeze = most(|run| run.freeze_longest);
    // A run that shows nothing has neither latency nor freezes.
    let begins = row.runs.iter().all(|run| {
        let first = run.time_to_first_frame;
        first.is_some_and(|seconds| seconds <= FIRST_FRAME_MAX_S)
    });
    let holds = latency <= LATENCY_MAX_S && freeze <= FREEZE_MAX_S && begins;
    let words =
        format!("latency {latency:.2} of {LATENCY_MAX_S}, freeze {freeze:.2} of {FREEZE_MAX_S}");
    (holds, words)
}

fn judged(holds: bool, words: &str) -> Cell {
    if holds {
        Cell::toned(format!("holds: {words}"), Some(Tone::Good))
    } else {
        Cell::toned(format!("fails: {words}"), Some(Tone::Bad))
    }
}

/// The strategy that has to hold.
pub(super) const OURS: &str = "weir";
/// The link over which `weir` has limits of its own.
const LIMITED_LINK: &str = "INTRA_CASCADE";
/// The highest mean latency over it, in seconds.
const LATENCY_MAX_S: f64 = 0.45;
/// The longest freeze over it, in seconds.
const FREEZE_MAX_S: f64 = 1.0;
/// The longest wait for the first frame over it, in seconds.
const FIRST_FRAME_MAX_S: f64 = 3.0;

fn count(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(strategy: &str, runs: &[(f64, f64, f64)]) -> Row {
        let runs = runs
            .iter()
            .map(|(age_mean, freeze_longest, shown)| Figures {
                delays: Some(Delays {
                    age_mean: *age_mean,
                    ..Delays::default()
                }),
                freeze_longest: *freeze_longest,
                shown: *shown,
                time_to_first_frame: Some(0.5),
                ..Figures::default()
            });
        Row {
            link: "SPIKE".to_owned(),
            strategy: strategy.to_owned(),
            runs: runs.collect(),
        }
    }

    #[test]
    fn medians_have_their_spread() {
        let rows = [row(
            "weir",
            &[(0.3, 1.0, 0.5), (0.1, 1.0, 0.7), (0.2, 1.0, 0.6)],
        )];
        let text = table(&rows);
        assert!(text.contains("0.20 (0.10–0.30)"), "{text}");
        assert!(text.contains("60 (50–70)"), "{text}");
        assert!(text.contains(" 1.00 |"), "one value has no spread: {text}");
    }

    #[test]
    fn each_requirement_can_fail() {
        let skip = row("skip", &[(1.0, 2.0, 0.5)]);
        for (ours, holds) in [
            ((0.5, 1.0, 0.5), true),
            ((1.1, 1.0, 0.5), false),
            ((0.5, 2.1, 0.5), false),
            ((0.5, 1.0, 0.46), true),
            ((0.5, 1.0, 0.44), false),
        ] {
            let rows = [skip.clone(), row("weir", &[ours])];
            let (text, all) = verdicts(&rows).unwrap();
            assert_eq!(all, holds, "{text}");
            assert_eq!(text.contains("fails"), !holds, "{text}");
        }
        assert_eq!(verdicts(&[skip]), None, "there is nothing to compare");
    }

    #[test]
    fn a_tie_is_no_win_but_where_nobody_freezes() {
        for (skip, ours, holds) in [
            ((1.0, 2.0, 0.5), (1.0, 1.0, 0.5), false),
            ((1.0, 2.0, 0.5), (0.5, 2.0, 0.5), false),
            ((1.0, 0.5, 0.5), (0.5, 0.5, 0.5), false),
            ((1.0, 0.49, 0.5), (0.5, 0.49, 0.5), true),
            ((1.0, 0.17, 0.5), (0.5, 0.19, 0.5), true),
        ] {
            let rows = [row("skip", &[skip]), row("weir", &[ours])];
            let (text, all) = verdicts(&rows).unwrap();
            assert_eq!(all, holds, "{text}");
        }
    }

    #[test]
    fn over_the_profile_with_the_hole_every_seed_has_to_keep_the_limits() {
        for (latency, freeze, holds) in [(0.45, 1.0, true), (0.46, 1.0, false), (0.45, 1.01, false)]
        {
            let over = |strategy: &str, runs: &[(f64, f64, f64)]| Row {
                link: LIMITED_LINK.to_owned(),
                ..row(strategy, runs)
            };
            let skip = over("skip", &[(2.0, 5.0, 0.5); 3]);
            let mut ours = over("weir", &[(0.5, 0.9, 0.5); 3]);
            ours.runs[1].freeze_longest = freeze;
            ours.runs[1].delays = ours.runs[1].delays.map(|delays| Delays {
                latency_mean: latency,
                ..delays
            });
            let (text, all) = verdicts(&[skip.clone(), ours.clone()]).unwrap();
            assert_eq!(all, holds, "{text}");
            for first in [None, Some(3.1)] {
                let mut none_shown = ours.clone();
                none_shown.runs[1].time_to_first_frame = first;
                let (text, all) = verdicts(&[skip.clone(), none_shown]).unwrap();
                assert!(!all, "{text}");
            }
            // Elsewhere there are none.
            let elsewhere = [skip, ours].map(|row| Row {
                link: "SPIKE".to_owned(),
                ..row
            });
            assert!(verdicts(&elsewhere).unwrap().1);
        }
    }
}
