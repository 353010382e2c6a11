//! Tables of runs: medians over the seeds with their range, and the requirements that `weir` has to meet against `skip`.

use super::figures::{Delays, Figures};
use crate::form::number::NONE;
use crate::form::page::Tone;
use crate::form::table::{Cell, Table, left, right};

/// One strategy over one link.
#[derive(Clone, Debug)]
pub struct Row {
    /// The profile's name, with the conditions that differ from the defaults.
    pub link: String,
    /// The congestion controller of relay and origin.
    pub controller: String,
    /// The strategy's name, and its target of the latency if that is not the default: `weir`, `weir 1s`.
    pub strategy: String,
    /// The figures of each seed.
    pub runs: Vec<Figures>,
}

/// A column: its name, its value in a run, and its number of decimals.
pub(super) type Column = (&'static str, fn(&Figures) -> f64, usize);

/// The columns of [`figures`]: shares in per cent, times in seconds.
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

/// The delays of a run. Each is NaN if they are not known: every origin of the lab publishes the capture time of its frames, but
/// relays of others may drop it.
pub(super) fn delays(run: &Figures) -> Delays {
    run.delays.unwrap_or(Delays {
        on_time: f64::NAN,
        latency_mean: f64::NAN,
        latency_p95: f64::NAN,
        latency_max: f64::NAN,
        age_mean: f64::NAN,
        age_max: f64::NAN,
        queueing_mean: f64::NAN,
    })
}

/// The median of a figure over several runs, with its smallest and largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// The 95 % confidence interval of the median; smallest and largest value of fewer than [`INTERVAL_RUNS_MIN`] runs.
    interval: (f64, f64),
}

impl Spread {
    /// Returns the spread of `value` over `runs`. Of an even number, the median is the upper middle one.
    pub(super) fn of(runs: &[Figures], value: fn(&Figures) -> f64) -> Self {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
        let beyond = beyond_interval(values.len());
        Self {
            median: at(values.len() / 2),
            least: at(0),
            most: at(values.len().saturating_sub(1)),
            interval: (at(beyond), at(values.len().saturating_sub(beyond + 1))),
        }
    }

    fn text(self, digits: usize) -> String {
        let Self {
            median,
            interval: (low, high),
            ..
        } = self;
        if median.is_nan() {
            return NONE.to_owned();
        }
        let (low, high) = (format!("{low:.digits$}"), format!("{high:.digits$}"));
        if low == high {
            format!("{median:.digits$}")
        } else {
            format!("{median:.digits$} ({low}–{high})")
        }
    }
}

/// Returns how many of `runs` sorted values lie outside the 95 % confidence interval of their median on each side. Each
/// value lies below the true median with probability one half, whatever its distribution, so the number that does is
/// binomial.
fn beyond_interval(runs: usize) -> usize {
    let (mut ways, mut below, mut beyond) = (1.0, 0.0, 0);
    let all = (0..runs).fold(1.0, |all: f64, _| all * 2.0);
    for (number, left) in (1..=runs / 2).zip((1..=runs).rev()) {
        below += ways / all;
        if below > ONE_SIDE {
            break;
        }
        beyond = number - 1;
        ways *= count(left as u64) / count(number as u64);
    }
    beyond
}

/// Returns how to read the spreads of rows with `runs` runs each.
pub fn legend(runs: usize) -> String {
    let spread = if runs >= INTERVAL_RUNS_MIN {
        "95 % confidence interval of the median"
    } else {
        "smallest–largest"
    };
    format!("Times in seconds; median of the seeds ({spread}).")
}

/// Returns the figures of all rows as Markdown with aligned columns, for terminals and documents.
pub fn table(rows: &[Row]) -> String {
    figures(rows).markdown(true)
}

pub(super) fn figures(rows: &[Row]) -> Table {
    let names = COLUMNS.iter().map(|(name, ..)| right(*name));
    let columns = ["link", "controller", "strategy"].map(left);
    let columns = columns.into_iter().chain(names);
    Table::new(columns).with_rows(rows.iter().map(|row| {
        let values = COLUMNS.iter();
        let values = values.map(|(_, value, digits)| Spread::of(&row.runs, *value).text(*digits));
        let names = [&row.link, &row.controller, &row.strategy].map(String::clone);
        names.into_iter().chain(values).collect::<Vec<_>>()
    }))
}

/// Returns a table of `weir` against `skip` in Markdown, and whether `weir` meets every requirement; none if no link has both.
///
/// On each link and with each congestion controller, `weir` needs a target with which it has a lower mean age, no longer
/// freeze (or no freeze on both sides), and no fewer frames shown than `skip` with the same controller. Over INTRA_CASCADE,
/// each seed of `weir` with its default target and controller has to keep limits of its own: mean latency, longest freeze,
/// first frame.
pub fn verdicts(rows: &[Row]) -> Option<(String, bool)> {
    let (table, holds) = requirements(rows)?;
    Some((table.markdown(true), holds))
}

/// Returns [`verdicts`] as a table.
pub(super) fn requirements(rows: &[Row]) -> Option<(Table, bool)> {
    let head = [
        "link",
        "controller",
        "strategy",
        "age",
        "longest freeze",
        "frames shown",
        "own limits",
    ];
    let mut table = Table::new(head.map(left));
    let mut holds_all = true;
    for skip in rows.iter().filter(|row| row.strategy == "skip") {
        let is_same = |row: &&Row| row.link == skip.link && row.controller == skip.controller;
        let ours = rows
            .iter()
            .filter(is_same)
            .filter(|row| is_ours(&row.strategy));
        let mut dominates = None;
        for row in ours {
            let (cells, holds) = against_skip(row, skip);
            let (own, own_cell) = if is_limited(row) {
                limits(row)
            } else {
                (true, NONE.into())
            };
            holds_all &= own;
            dominates = Some(dominates.unwrap_or(false) | holds);
            let names = [&row.link, &row.controller, &row.strategy];
            let names = names.map(|name| Cell::from(name.clone()));
            table.add_row(
                names
                    .into_iter()
                    .chain(cells)
                    .chain([own_cell])
                    .collect::<Vec<_>>(),
            );
        }
        holds_all &= dominates.unwrap_or(true);
    }
    (!table.is_empty()).then_some((table, holds_all))
}

/// Whether a row has limits of its own.
fn is_limited(row: &Row) -> bool {
    let is_default = row.strategy == OURS && row.controller == LIMITED_CONTROLLER;
    is_default && row.link == LIMITED_LINK
}

/// Whether a row's strategy is `weir`, with any target.
pub(super) fn is_ours(strategy: &str) -> bool {
    strategy.split(' ').next() == Some(OURS)
}

/// Returns the cells that compare a row with `skip`, and whether the row is better in all of them.
fn against_skip(row: &Row, skip: &Row) -> ([Cell; 3], bool) {
    let medians = |value: fn(&Figures) -> f64| {
        let of = |runs| Spread::of(runs, value).median;
        (of(&row.runs), of(&skip.runs))
    };
    let age = medians(|run| delays(run).age_mean);
    let freeze = medians(|run| run.freeze_longest);
    let shown = medians(|run| run.shown * 100.0);
    let shortest = skip.runs.first().map(|run| run.thresholds.freeze);
    let is_none = |seconds: f64| shortest.is_some_and(|shortest| seconds < shortest);
    let has_none = is_none(freeze.0) && is_none(freeze.1);
    let (is_younger, age) = against(age.0 < age.1, age);
    let (is_steadier, freeze) = against(freeze.0 <= freeze.1 || has_none, freeze);
    let (shows_more, shown) = share_against(shown);
    (
        [age, freeze, shown],
        is_younger && is_steadier && shows_more,
    )
}

/// Compares two times in seconds.
fn against(holds: bool, (ours, theirs): (f64, f64)) -> (bool, Cell) {
    // Two decimals must not show a tie where there is none.
    let digits = if format!("{ours:.2}") == format!("{theirs:.2}") {
        3
    } else {
        2
    };
    let cell = if holds {
        format!("{ours:.digits$} s (skip {theirs:.digits$} s)")
    } else {
        format!("fails: {ours:.digits$} s, not below {theirs:.digits$} s of skip")
    };
    (holds, judged(holds, cell))
}

/// Compares two shares of frames shown, in per cent.
fn share_against((ours, theirs): (f64, f64)) -> (bool, Cell) {
    let least = theirs * SHOWN_MIN;
    let holds = ours >= least;
    let cell = if holds {
        format!("{ours:.1} % (skip {theirs:.1} %)")
    } else {
        format!("fails: {ours:.1} %, needs {least:.1} % (skip {theirs:.1} %)")
    };
    (holds, judged(holds, cell))
}

/// Compares the worst seed of a row with the limits of [`LIMITED_LINK`].
fn limits(row: &Row) -> (bool, Cell) {
    let most = |value: fn(&Figures) -> f64| Spread::of(&row.runs, value).most;
    let first = |run: &Figures| run.time_to_first_frame.unwrap_or(f64::INFINITY);
    let clauses = [
        (
            "latency",
            most(|run| delays(run).latency_mean),
            LATENCY_MAX_S,
        ),
        ("freeze", most(|run| run.freeze_longest), FREEZE_MAX_S),
        // A run that shows nothing has neither latency nor freezes.
        (
            "first frame",
            row.runs.iter().map(first).fold(0.0, f64::max),
            FIRST_FRAME_MAX_S,
        ),
    ];
    let failed = clauses.iter().filter(|(_, value, limit)| value > limit);
    let failed: Vec<String> = failed.map(clause).collect();
    let holds = failed.is_empty();
    let cell = if holds {
        let shown = clauses.iter().take(2).map(clause);
        shown.collect::<Vec<_>>().join(", ")
    } else {
        format!("fails: {}", failed.join(", "))
    };
    (holds, judged(holds, cell))
}

/// A figure in seconds with its limit.
fn clause((name, value, limit): &(&str, f64, f64)) -> String {
    if value.is_finite() {
        format!("{name} {value:.2} s (limit {limit} s)")
    } else {
        format!("no {name} (limit {limit} s)")
    }
}

fn judged(holds: bool, words: String) -> Cell {
    Cell::toned(words, Some(if holds { Tone::Good } else { Tone::Bad }))
}

/// Runs from which a confidence interval of 95 % exists: of five, extremes hold the median with 94 %.
const INTERVAL_RUNS_MIN: usize = 6;
/// The chance that the true median lies beyond one end of the interval.
const ONE_SIDE: f64 = 0.025;
/// The strategy that has to meet the requirements.
pub(super) const OURS: &str = "weir";
/// The link over which the strategy has limits of its own.
const LIMITED_LINK: &str = "INTRA_CASCADE";
/// The controller with which it has them: the relay's default.
const LIMITED_CONTROLLER: &str = "delay";
/// The highest mean latency over it, in seconds.
const LATENCY_MAX_S: f64 = 0.45;
/// The longest freeze over it, in seconds.
const FREEZE_MAX_S: f64 = 1.0;
/// The least share of the frames that `skip` shows: seeds differ by more than the rest.
const SHOWN_MIN: f64 = 0.99;
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
            controller: LIMITED_CONTROLLER.to_owned(),
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
    fn delays_that_are_not_known_are_not_zero() {
        let mut rows = [row("weir", &[(0.3, 1.0, 0.5)])];
        for run in &mut rows[0].runs {
            run.delays = None;
        }
        let text = table(&rows);
        let cells: Vec<&str> = text.lines().last().unwrap().split('|').collect();
        let known: Vec<bool> = cells[4..12]
            .iter()
            .map(|cell| cell.trim() != NONE)
            .collect();
        let expected = [true, false, false, false, false, true, true, false];
        assert_eq!(known, expected, "{text}");
        let skip = row("skip", &[(1.0, 2.0, 0.5)]);
        let [ours] = rows;
        let (text, holds) = verdicts(&[skip, ours]).unwrap();
        assert!(!holds, "nothing is better that is not known: {text}");
    }

    #[test]
    fn many_runs_have_a_confidence_interval() {
        // Tables of the sign test: the ranks that hold the median with at least 95 %.
        let expected = [
            (5, 0),
            (6, 0),
            (8, 0),
            (9, 1),
            (10, 1),
            (20, 5),
            (30, 9),
            (100, 39),
        ];
        for (runs, beyond) in expected {
            assert_eq!(beyond_interval(runs), beyond, "{runs}");
        }
        let runs: Vec<_> = (1..=10).map(|age| (f64::from(age), 1.0, 0.5)).collect();
        let text = table(&[row("weir", &runs)]);
        assert!(text.contains("6.00 (2.00–9.00)"), "{text}");
        assert!(legend(10).contains("95 % confidence interval"));
        assert!(legend(5).contains("smallest–largest"));
    }

    #[test]
    fn each_requirement_can_fail() {
        let skip = row("skip", &[(1.0, 2.0, 0.5)]);
        for (ours, holds) in [
            ((0.5, 1.0, 0.5), true),
            ((1.1, 1.0, 0.5), false),
            ((0.5, 2.1, 0.5), false),
            ((0.5, 1.0, 0.496), true),
            ((0.5, 1.0, 0.494), false),
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
            ((1.0, 2.0, 0.5), (0.5, 2.0, 0.5), true),
            ((1.0, 0.5, 0.5), (0.5, 0.51, 0.5), false),
            ((1.0, 0.49, 0.5), (0.5, 0.49, 0.5), true),
            ((1.0, 0.17, 0.5), (0.5, 0.19, 0.5), true),
        ] {
            let rows = [row("skip", &[skip]), row("weir", &[ours])];
            let (text, all) = verdicts(&rows).unwrap();
            assert_eq!(all, holds, "{text}");
        }
    }

    #[test]
    fn cells_have_units_and_name_what_fails() {
        for (skip, ours, cells) in [
            (
                (1.0, 2.0, 0.5),
                (0.5, 1.0, 0.51),
                [
                    "0.50 s (skip 1.00 s)",
                    "1.00 s (skip 2.00 s)",
                    "51.0 % (skip 50.0 %)",
                ],
            ),
            (
                (0.451, 1.0, 0.5),
                (0.453, 1.5, 0.44),
                [
                    "fails: 0.453 s, not below 0.451 s of skip",
                    "fails: 1.50 s, not below 1.00 s of skip",
                    "fails: 44.0 %, needs 49.5 % (skip 50.0 %)",
                ],
            ),
        ] {
            let (text, _) = verdicts(&[row("skip", &[skip]), row("weir", &[ours])]).unwrap();
            assert!(cells.iter().all(|cell| text.contains(cell)), "{text}");
        }
        let mut ours = row("weir", &[(0.5, 1.5, 0.5)]);
        assert!(format!("{:?}", limits(&ours).1).contains("fails: freeze 1.50 s (limit 1 s)"));
        ours.runs[0].time_to_first_frame = None;
        assert!(format!("{:?}", limits(&ours).1).contains("no first frame (limit 3 s)"));
    }

    #[test]
    fn one_target_is_enough_and_controllers_are_equal() {
        let cubic = |row: Row| Row {
            controller: "cubic".to_owned(),
            ..row
        };
        let skip = row("skip", &[(1.0, 2.0, 0.5)]);
        let early = row("weir", &[(0.5, 1.0, 0.3)]);
        let late = row("weir 1s", &[(0.9, 1.0, 0.6)]);
        let holds = |rows: &[Row]| verdicts(rows).unwrap().1;
        assert!(!holds(&[skip.clone(), early.clone()]));
        assert!(holds(&[skip.clone(), early.clone(), late.clone()]));
        let rows = [skip.clone(), early, cubic(late)];
        assert!(!holds(&rows), "its controller is another");
        assert_eq!(verdicts(&[cubic(skip), rows[1].clone()]), None);
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
