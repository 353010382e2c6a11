//! The rank-sum test of Mann and Whitney. It counts all permutations, so it is exact for a few runs.

use serde::{Deserialize, Serialize};

/// The result of a test whether two sets of figures differ by more than chance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The p-value: probability of a difference at least as large between two equal relays (two-sided).
    pub p: f64,
    /// The smallest p-value that this number of runs can reach.
    pub p_least: f64,
}

impl Test {
    /// Returns the result in words: `differs (p 0.008)`, `no difference shown (p 0.400)`, `too few runs to tell (p 0.100)`.
    pub fn words(&self) -> String {
        let word = if self.p < LEVEL {
            "differs"
        } else if self.p_least >= LEVEL {
            "too few runs to tell"
        } else {
            "no difference shown"
        };
        format!("{word} (p {:.3})", self.p)
    }
}

/// Tests two sets of up to `RUNS_MAX` figures each; none if a set is empty or larger.
///
/// If the relays are equal, all ways to distribute the figures over the two sets are equally likely. The test counts the
/// ways in which the rank sum of the first set is at least as far from its mean as the measured one.
pub fn rank_sum(first: &[f64], second: &[f64]) -> Option<Test> {
    if first.is_empty() || second.is_empty() || first.len().max(second.len()) > RUNS_MAX {
        return None;
    }
    let mut all: Vec<f64> = first.iter().chain(second).copied().collect();
    all.sort_by(f64::total_cmp);
    // Twice the mean rank, so that ranks of equal figures are whole numbers.
    let rank = |value: f64| {
        let below = all.iter().filter(|one| **one < value).count();
        let equal = all
            .iter()
            .filter(|one| one.total_cmp(&value).is_eq())
            .count();
        2 * below + equal + 1
    };
    let ranks: Vec<usize> = all.iter().map(|value| rank(*value)).collect();
    let ways = ways(&ranks, first.len());
    let middle = first.len() * (all.len() + 1);
    let seen: usize = first.iter().map(|value| rank(*value)).sum();
    let count = |distance: usize| -> f64 {
        let far = ways.iter().enumerate();
        far.filter(|(sum, _)| sum.abs_diff(middle) >= distance)
            .map(|(_, ways)| *ways)
            .sum()
    };
    let total: f64 = ways.iter().sum();
    let farthest = ways
        .iter()
        .enumerate()
        .filter(|(_, ways)| **ways > 0.0)
        .map(|(sum, _)| sum.abs_diff(middle))
        .max()
        .unwrap_or(0);
    Some(Test {
        p: count(seen.abs_diff(middle)) / total,
        p_least: count(farthest) / total,
    })
}

/// Returns, for each sum, the number of ways to choose `chosen` of `ranks` with this sum.
fn ways(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let sums = ranks.iter().sum::<usize>() + 1;
    let mut ways = vec![vec![0.0; sums]; chosen + 1];
    ways[0][0] = 1.0;
    for (number, rank) in ranks.iter().enumerate() {
        for count in (1..=chosen.min(number + 1)).rev() {
            for sum in (*rank..sums).rev() {
                let more = ways[count - 1][sum - rank];
                ways[count][sum] += more;
            }
        }
    }
    ways.swap_remove(chosen)
}

/// Significance level: a smaller p-value counts as a difference.
const LEVEL: f64 = 0.05;
/// Most runs per relay that the test takes.
const RUNS_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn p(first: &[f64], second: &[f64]) -> f64 {
        rank_sum(first, second).unwrap().p
    }

    #[test]
    fn agrees_with_published_tables() {
        let low = [1.0, 2.0, 3.0, 4.0, 5.0];
        let high = [6.0, 7.0, 8.0, 9.0, 10.0];
        // 2 of 252 ways, and 2 of 20.
        assert!((p(&low, &high) - 2.0 / 252.0).abs() < 1e-12);
        assert!((p(&low[..3], &high[..3]) - 0.1).abs() < 1e-12);
        // U = 1 for four and four: 4 of 70 ways.
        let test = rank_sum(&[1.0, 2.0, 3.0, 5.0], &[4.0, 6.0, 7.0, 8.0]).unwrap();
        assert!((test.p - 4.0 / 70.0).abs() < 1e-12, "{test:?}");
        assert!((test.p_least - 2.0 / 70.0).abs() < 1e-12, "{test:?}");
    }

    #[test]
    fn too_few_runs_are_reported_as_such() {
        let few = rank_sum(&[1.0, 2.0, 3.0], &[40.0, 50.0, 60.0]).unwrap();
        assert_eq!(few.words(), "too few runs to tell (p 0.100)");
        let enough = rank_sum(&[1.0, 2.0, 3.0, 4.0], &[40.0, 50.0, 60.0, 70.0]).unwrap();
        assert_eq!(enough.words(), "differs (p 0.029)");
        let alike = rank_sum(&[1.0, 5.0, 3.0, 7.0], &[2.0, 6.0, 4.0, 8.0]).unwrap();
        assert!(
            alike.words().starts_with("no difference shown"),
            "{alike:?}"
        );
    }

    #[test]
    fn equal_figures_and_empty_sets() {
        assert!((p(&[1.0, 1.0], &[1.0, 1.0]) - 1.0).abs() < 1e-12);
        assert_eq!(rank_sum(&[], &[1.0]), None);
        assert_eq!(rank_sum(&[1.0; RUNS_MAX + 1], &[1.0]), None);
        assert!(rank_sum(&[1.0; RUNS_MAX], &[2.0; RUNS_MAX]).unwrap().p < 1e-12);
        assert!((p(&[1.0, 2.0], &[3.0, 4.0]) - p(&[3.0, 4.0], &[1.0, 2.0])).abs() < 1e-12);
    }
}
