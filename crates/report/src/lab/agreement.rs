//! The differences between the same runs in virtual time, in real time and in a browser, and the bounds of these differences.

use super::figures::Figures;
use super::table::{Column, Row, Spread, delays};
use crate::form::table::{Table, left};

/// A figure that is compared. Its median in real time may differ from its median in virtual time by `absolute`, by `share` of
/// the latter, or by the range of the seeds in virtual time, whichever is largest.
struct Compared {
    column: Column,
    unit: &'static str,
    absolute: f64,
    share: f64,
}

const COMPARED: [Compared; 5] = [
    Compared {
        column: ("shown %", |run| run.shown * 100.0, 1),
        unit: "points",
        absolute: 3.0,
        share: 0.0,
    },
    Compared {
        column: ("latency", |run| delays(run).latency_mean, 3),
        unit: "s",
        absolute: 0.1,
        share: 0.0,
    },
    Compared {
        column: ("age", |run| delays(run).age_mean, 3),
        unit: "s",
        absolute: 0.1,
        share: 0.0,
    },
    Compared {
        column: ("longest", |run| run.freeze_longest, 2),
        unit: "s",
        absolute: 0.2,
        share: 0.1,
    },
    Compared {
        column: ("queueing", |run| delays(run).queueing_mean, 3),
        unit: "s",
        absolute: 0.05,
        share: 0.2,
    },
];

impl Compared {
    fn spread(&self, runs: &[Figures]) -> Spread {
        Spread::of(runs, self.column.1)
    }

    /// Returns the largest difference that real time may have from these runs in virtual time.
    fn bound(&self, virtually: &[Figures]) -> f64 {
        let spread = self.spread(virtually);
        let share = self.share * spread.median;
        self.absolute.max(share).max(spread.most - spread.least)
    }
}

/// Returns a table of the same runs made in several ways, and whether real time is within its bounds in every row.
///
/// `before` has the rows in virtual time, then, if a browser is compared, those in real time; `last` has the rows of the last way.
/// Each cell has the medians of all ways, with their difference from virtual time.
pub fn agreement(before: &[Vec<Row>], last: &[Row]) -> (String, bool) {
    let head = COMPARED.iter().map(|compared| compared.column.0);
    let head = ["link", "controller", "strategy"].into_iter().chain(head);
    let mut table = Table::new(head.chain(["in real time"]).map(left));
    let mut agrees = true;
    for (place, row) in last.iter().enumerate() {
        let before = before.iter().filter_map(|way| way.get(place));
        let ways: Vec<&[Figures]> = before.chain([row]).map(|row| &row.runs[..]).collect();
        let names = [&row.link, &row.controller, &row.strategy];
        let mut line = Vec::from(names.map(String::clone));
        line.extend(COMPARED.iter().map(|compared| medians(compared, &ways)));
        let beyond = COMPARED
            .iter()
            .filter_map(|compared| beyond(compared, &ways));
        let beyond: Vec<String> = beyond.collect();
        agrees &= beyond.is_empty();
        line.push(if beyond.is_empty() {
            "within the bound".to_owned()
        } else {
            format!("beyond the bound: {}", beyond.join(", "))
        });
        table.add_row(line);
    }
    (table.markdown(true), agrees)
}

/// Returns the bounds that [`agreement`] applies to real time, in words.
pub fn bound() -> String {
    let parts = COMPARED.iter().map(|compared| {
        let (name, _, digits) = compared.column;
        let share = if compared.share > 0.0 {
            format!(" or {:.0} %", compared.share * 100.0)
        } else {
            String::new()
        };
        let (name, unit) = (name.trim_end_matches(" %"), compared.unit);
        format!("{name} {:.digits$} {unit}{share}", compared.absolute)
    });
    format!(
        "Medians in real time may differ from virtual time by: {}; or by the range of the seeds in virtual time, if that is more.",
        parts.collect::<Vec<_>>().join(", ")
    )
}

/// Counts of runs in real time during which the hypervisor gave much of a core to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disturbed {
    /// Runs that were repeated for this reason.
    pub again: usize,
    /// Runs that count although every repetition was disturbed too.
    pub kept: usize,
}

impl Disturbed {
    /// Returns sentences about these runs, with a blank before them.
    pub fn sentence(self) -> String {
        let Self { again, kept } = self;
        if again == 0 {
            return format!(
                " The hypervisor gave less than {STOLEN_PERCENT_MAX} % of each core to others during all runs in real time."
            );
        }
        let left = match kept {
            0 => String::new(),
            kept => format!(
                " Of the runs that count, {kept} were disturbed: if a row is beyond its bound, repeat it on a quieter machine."
            ),
        };
        format!(
            " {again} runs in real time were repeated, up to {RUNS_MAX} runs in all, since the hypervisor gave \
             {STOLEN_PERCENT_MAX} % of a core or more to others; the least disturbed run counts.{left}"
        )
    }
}

/// Makes a run, and repeats it while the hypervisor disturbs it, a few times at most; returns the least disturbed one.
///
/// `make` returns a run and the per cent of a core that the hypervisor gave to others meanwhile, if known. Its errors are returned.
pub fn undisturbed<T, E>(
    mut make: impl FnMut() -> Result<(T, Option<f64>), E>,
) -> Result<(T, Disturbed), E> {
    let (mut best, mut stolen) = make()?;
    let is_much = |stolen: Option<f64>| stolen.is_some_and(|one| one >= STOLEN_PERCENT_MAX);
    let mut again = 0;
    while is_much(stolen) && again + 1 < RUNS_MAX {
        again += 1;
        let (next, taken) = make()?;
        if taken < stolen {
            (best, stolen) = (next, taken);
        }
    }
    let kept = usize::from(is_much(stolen));
    Ok((best, Disturbed { again, kept }))
}

/// Per cent of a core given to others from which on a run is repeated.
const STOLEN_PERCENT_MAX: f64 = 2.0;
/// Runs made for one result, at most.
const RUNS_MAX: usize = 4;

/// Returns the medians of all ways, with their difference from the first one.
fn medians(compared: &Compared, ways: &[&[Figures]]) -> String {
    let digits = compared.column.2;
    let medians = ways.iter().map(|runs| compared.spread(runs).median);
    let medians: Vec<f64> = medians.collect();
    let first = medians.first().copied().unwrap_or_default();
    let texts = medians.iter().enumerate().map(|(place, median)| {
        let difference = median - first;
        match place {
            0 => format!("{median:.digits$}"),
            _ => format!("{median:.digits$} ({difference:+.digits$})"),
        }
    });
    texts.collect::<Vec<_>>().join(" / ")
}

/// Returns the difference between virtual and real time with its bound, if the difference is beyond the bound.
fn beyond(compared: &Compared, ways: &[&[Figures]]) -> Option<String> {
    let [virtually, really, ..] = ways else {
        return None;
    };
    let difference = compared.spread(really).median - compared.spread(virtually).median;
    let bound = compared.bound(virtually);
    let (name, _, digits) = compared.column;
    let (name, unit) = (name.trim_end_matches(" %"), compared.unit);
    let beyond = || format!("{name} {difference:+.digits$} {unit} (bound {bound:.digits$} {unit})");
    (difference.abs() > bound).then(beyond)
}

#[cfg(test)]
mod tests {
    use crate::lab::Delays;

    use super::*;

    /// A row by the ages and longest freezes of its runs.
    fn row(runs: &[(f64, f64)]) -> Row {
        let runs = runs.iter().map(|&(age_mean, freeze_longest)| Figures {
            delays: Some(Delays {
                age_mean,
                ..Delays::default()
            }),
            freeze_longest,
            ..Figures::default()
        });
        Row {
            link: "SPIKE".to_owned(),
            controller: "delay".to_owned(),
            strategy: "weir".to_owned(),
            runs: runs.collect(),
        }
    }

    #[test]
    fn ways_are_compared_by_their_medians() {
        let (sim, net) = (row(&[(0.3, 1.0)]), row(&[(0.35, 1.0)]));
        let (text, _) = agreement(&[vec![sim.clone()]], std::slice::from_ref(&net));
        assert!(text.contains("0.300 / 0.350 (+0.050)"), "{text}");
        let browser = row(&[(0.2, 1.0)]);
        let (text, _) = agreement(&[vec![sim], vec![net]], &[browser]);
        assert!(
            text.contains("0.300 / 0.350 (+0.050) / 0.200 (-0.100)"),
            "{text}"
        );
    }

    #[test]
    fn real_time_may_be_as_far_from_virtual_time_as_the_bound_says() {
        for (virtually, really, agrees) in [
            // An absolute bound: 0.1 s of age, 0.2 s of freeze.
            ([(0.3, 1.0); 3], (0.39, 1.19), true),
            ([(0.3, 1.0); 3], (0.41, 1.0), false),
            ([(0.3, 1.0); 3], (0.19, 1.0), false),
            ([(0.3, 1.0); 3], (0.3, 1.21), false),
            // A tenth of a long freeze.
            ([(0.3, 8.0); 3], (0.3, 8.7), true),
            ([(0.3, 8.0); 3], (0.3, 8.9), false),
            // As far as the seeds are apart.
            ([(0.3, 4.0), (0.3, 5.0), (0.3, 8.0)], (0.3, 8.9), true),
            ([(0.3, 4.0), (0.3, 5.0), (0.3, 8.0)], (0.3, 9.1), false),
        ] {
            let (text, found) = agreement(&[vec![row(&virtually)]], &[row(&[really; 3])]);
            assert_eq!(found, agrees, "{text}");
            assert_eq!(text.contains("beyond the bound: "), !agrees, "{text}");
            // The browser's frames are others: it is not held to anything.
            let browser = row(&[(9.0, 9.0); 3]);
            let ways = [vec![row(&virtually)], vec![row(&[really; 3])]];
            assert_eq!(agreement(&ways, &[browser]).1, agrees);
        }
    }

    #[test]
    fn a_run_that_others_disturbed_is_made_again_and_the_quietest_counts() {
        for (stolen, expected, again, kept) in [
            (&[Some(1.9)][..], 0, 0, 0),
            (&[None], 0, 0, 0),
            (&[Some(2.0), Some(0.0)], 1, 1, 0),
            (&[Some(9.0), Some(3.0), Some(1.0)], 2, 2, 0),
            (&[Some(9.0), Some(3.0), Some(4.0), Some(30.0)], 1, 3, 1),
        ] {
            let mut runs = (0..).zip(stolen.iter().copied());
            let made = undisturbed(|| Ok::<_, &str>(runs.next().expect("no more than are needed")));
            assert_eq!(made, Ok((expected, Disturbed { again, kept })));
            assert_eq!(runs.next(), None, "{stolen:?}");
        }
        assert_eq!(undisturbed::<(), _>(|| Err("no link")), Err("no link"));
        let said = |again, kept| Disturbed { again, kept }.sentence();
        assert!(said(0, 0).contains("during all runs"), "{}", said(0, 0));
        assert!(
            said(2, 0).contains("2 runs in real time were repeated")
                && !said(2, 0).contains("quieter")
        );
        assert!(
            said(5, 1).contains("Of the runs that count, 1"),
            "{}",
            said(5, 1)
        );
    }

    #[test]
    fn the_bound_is_said() {
        let expected = "shown 3.0 points, latency 0.100 s, age 0.100 s, longest 0.20 s or 10 %, queueing 0.050 s or 20 %";
        assert!(bound().contains(expected), "{}", bound());
    }
}
