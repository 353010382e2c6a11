//! How far the same runs in virtual time, in real time and in a browser are apart, and how far they may be.

use super::figures::Figures;
use super::table::{Column, Row, Spread, delays};
use crate::form::table::{Table, left};

/// A figure that is compared, and how far its median in real time may be from that in virtual time: so much, or this share of
/// it, or as far as the seeds in virtual time are apart, whichever is most.
struct Compared {
    column: Column,
    absolute: f64,
    share: f64,
}

const COMPARED: [Compared; 5] = [
    Compared {
        column: ("shown %", |run| run.shown * 100.0, 1),
        absolute: 3.0,
        share: 0.0,
    },
    Compared {
        column: ("latency", |run| delays(run).latency_mean, 3),
        absolute: 0.1,
        share: 0.0,
    },
    Compared {
        column: ("age", |run| delays(run).age_mean, 3),
        absolute: 0.1,
        share: 0.0,
    },
    Compared {
        column: ("longest", |run| run.freeze_longest, 2),
        absolute: 0.2,
        share: 0.1,
    },
    Compared {
        column: ("queueing", |run| delays(run).queueing_mean, 3),
        absolute: 0.05,
        share: 0.2,
    },
];

impl Compared {
    fn spread(&self, runs: &[Figures]) -> Spread {
        Spread::of(runs, self.column.1)
    }

    /// How far real time may be from these runs in virtual time.
    fn bound(&self, virtually: &[Figures]) -> f64 {
        let spread = self.spread(virtually);
        let share = self.share * spread.median;
        self.absolute.max(share).max(spread.most - spread.least)
    }
}

/// Ways of running side by side (virtual time, real time, perhaps a browser; for each its rows, the last one apart): how far
/// the medians of the later ones are from the first, and whether real time is within its bound. Also returns whether it is on
/// every row.
pub fn agreement(before: &[Vec<Row>], last: &[Row]) -> (String, bool) {
    let head = COMPARED.iter().map(|compared| compared.column.0);
    let head = ["link", "strategy"].into_iter().chain(head);
    let mut table = Table::new(head.chain(["in real time"]).map(left));
    let mut agrees = true;
    for (place, row) in last.iter().enumerate() {
        let before = before.iter().filter_map(|way| way.get(place));
        let ways: Vec<&[Figures]> = before.chain([row]).map(|row| &row.runs[..]).collect();
        let mut line = vec![row.link.clone(), row.strategy.clone()];
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

/// What [`agreement`] holds real time to, in words.
pub fn bound() -> String {
    let parts = COMPARED.iter().map(|compared| {
        let (name, _, digits) = compared.column;
        let share = if compared.share > 0.0 {
            format!(" or {:.0} % of it", compared.share * 100.0)
        } else {
            String::new()
        };
        format!("{name} {:.digits$}{share}", compared.absolute)
    });
    format!(
        "The bound, between medians: {}; or, where that is more, as far as the seeds in virtual time are apart.",
        parts.collect::<Vec<_>>().join(", ")
    )
}

/// Runs in real time during which the hypervisor gave much of a core to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disturbed {
    /// Runs that were made again because of that.
    pub again: usize,
    /// Runs that count, though it was so each time.
    pub kept: usize,
}

impl Disturbed {
    /// A sentence on them.
    pub fn sentence(self) -> String {
        let Self { again, kept } = self;
        if again == 0 {
            return format!(
                " During no run in real time did others take {STOLEN_PERCENT_MAX} % of a core or more (by the hypervisor)."
            );
        }
        let left = match kept {
            0 => String::new(),
            kept => format!(
                " During {kept} that count they did so too: a row beyond the bound may be their doing, and would have to \
                 be run again."
            ),
        };
        format!(
            " During {again} runs in real time others took {STOLEN_PERCENT_MAX} % of a core or more (by the hypervisor): \
             these were made again, up to {RUNS_MAX} times in all, and of each the one of which they took least counts.{left}"
        )
    }
}

/// Makes a run until others leave it the machine, a few times at most; returns the one of which they took least.
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

/// What others may take of a core before real time is theirs to answer for, in per cent.
const STOLEN_PERCENT_MAX: f64 = 2.0;
/// How often a run is made at most.
const RUNS_MAX: usize = 4;

/// The medians, and how far the later ones are from the first.
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

/// What of the second way is too far from the first, and from what on it would be.
fn beyond(compared: &Compared, ways: &[&[Figures]]) -> Option<String> {
    let [virtually, really, ..] = ways else {
        return None;
    };
    let difference = compared.spread(really).median - compared.spread(virtually).median;
    let bound = compared.bound(virtually);
    let (name, _, digits) = compared.column;
    (difference.abs() > bound).then(|| format!("{name} {difference:+.digits$} of {bound:.digits$}"))
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
        assert!(said(0, 0).contains("no run"), "{}", said(0, 0));
        assert!(said(2, 0).contains("During 2 runs") && !said(2, 0).contains("run again"));
        assert!(said(5, 1).contains("During 1 that count"), "{}", said(5, 1));
    }

    #[test]
    fn the_bound_is_said() {
        let expected = "shown % 3.0, latency 0.100, age 0.100, longest 0.20 or 10 % of it, queueing 0.050 or 20 % of it";
        assert!(bound().contains(expected), "{}", bound());
    }
}
