//! How far the same runs in virtual time, in real time and in a browser are apart, and how far they may be.

use weir_live::figures::Figures;

use super::table::{Column, Row, Spread, aligned, delays};

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
pub(crate) fn agreement(before: &[Vec<Row>], last: &[Row]) -> (String, bool) {
    let head = COMPARED.iter().map(|compared| compared.column.0);
    let head = ["link", "strategy"].into_iter().chain(head);
    let head = head.chain(["in real time"]).map(str::to_owned);
    let mut lines: Vec<Vec<String>> = vec![head.collect()];
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
        lines.push(line);
    }
    (aligned(&lines), agrees)
}

/// What [`agreement`] holds real time to, in words.
pub(crate) fn bound() -> String {
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

/// What the machine had spent at a moment, in ticks of all its cores, and what of that its hypervisor gave to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineTime {
    all: u64,
    stolen: u64,
}

impl MachineTime {
    /// None where the kernel does not say it.
    pub(crate) fn now() -> Option<Self> {
        Self::read(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// From the first line of `/proc/stat`: user, nice, system, idle, I/O, interrupts, soft interrupts, stolen.
    fn read(text: &str) -> Option<Self> {
        let ticks = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = ticks
            .split_whitespace()
            .take(8)
            .map_while(|tick| tick.parse().ok())
            .collect();
        Some(Self {
            all: ticks.iter().sum(),
            stolen: *ticks.get(7)?,
        })
    }

    /// A sentence on what others have taken of the machine since then.
    pub(crate) fn quiet(self) -> String {
        Self::now().map_or_else(String::new, |now| self.quiet_until(now))
    }

    fn quiet_until(self, now: Self) -> String {
        let stolen = now.stolen.saturating_sub(self.stolen).saturating_mul(1000);
        let per_mille = stolen / now.all.saturating_sub(self.all).max(1);
        let verdict = if per_mille > STOLEN_PER_MILLE_MAX {
            ", so a row beyond the bound may be their doing, and would have to be run again"
        } else {
            ""
        };
        format!(
            " While it ran in real time others took {}.{} % of the machine's time{verdict}.",
            per_mille / 10,
            per_mille % 10
        )
    }
}

/// What others may take of the machine, in thousandths, before real time is theirs to answer for.
const STOLEN_PER_MILLE_MAX: u64 = 20;

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
    use weir_live::figures::Delays;

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
    fn what_others_took_is_said_and_from_two_per_cent_on_held_against_them() {
        let read = |stolen| {
            MachineTime::read(&format!(
                "cpu  100 0 50 800 {stolen} 0 0 {stolen} 7 7\ncpu0 1\n"
            ))
        };
        let [before, at, past] = [0, 10, 11].map(|stolen| read(stolen).expect("eight numbers"));
        assert_eq!((before.all, at.all, at.stolen), (950, 970, 10));
        let sentence = before.quiet_until(MachineTime { all: 1450, ..at });
        assert!(
            sentence.ends_with("2.0 % of the machine's time."),
            "{sentence}"
        );
        let sentence = before.quiet_until(MachineTime { all: 1450, ..past });
        assert!(
            sentence.contains("2.2 %") && sentence.contains("run again"),
            "{sentence}"
        );
        assert_eq!(MachineTime::read("cpu  1 2 3\n"), None);
    }

    #[test]
    fn the_bound_is_said() {
        let expected = "shown % 3.0, latency 0.100, age 0.100, longest 0.20 or 10 % of it, queueing 0.050 or 20 % of it";
        assert!(bound().contains(expected), "{}", bound());
    }
}
