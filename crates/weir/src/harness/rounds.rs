//! Interleaved rounds, so that what changes on the machine meanwhile meets all contenders alike.

/// How a contender's turn has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It was made, whatever came of it.
    Made,
    /// The contender cannot be started at all, and gets no further turn.
    Absent,
    /// Somebody asked to stop.
    Interrupted,
}

/// Gives every contender its turn in each round; returns why not all turns were made, if so. `turn` is told the round
/// and the contender by their numbers.
pub(crate) fn take_turns(
    contenders: usize,
    rounds: u32,
    mut turn: impl FnMut(u32, usize) -> anyhow::Result<Turn>,
) -> anyhow::Result<Option<String>> {
    let mut is_absent = vec![false; contenders];
    for (round, number) in order(contenders, rounds) {
        if is_absent[number] {
            continue;
        }
        match turn(round, number)? {
            Turn::Made => {}
            Turn::Absent => is_absent[number] = true,
            Turn::Interrupted => return Ok(Some(INTERRUPTED.to_owned())),
        }
    }
    Ok(None)
}

/// Who has its turn when, as round and contender: who was first in a round is last in the next one.
fn order(contenders: usize, rounds: u32) -> impl Iterator<Item = (u32, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..contenders).map(move |turn| (round, (turn + round as usize) % contenders))
    })
}

/// Why a comparison was broken off by whoever made it.
pub(crate) const INTERRUPTED: &str = "it was interrupted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_interleaved_and_nobody_is_always_first() {
        let order: Vec<_> = order(3, 4).collect();
        let expected: [[usize; 3]; 4] = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]];
        let expected: Vec<_> = (0..)
            .zip(expected)
            .flat_map(|(round, turns)| turns.map(|contender| (round, contender)))
            .collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn who_is_absent_has_no_further_turn_and_an_interruption_ends_all() {
        let mut turns = Vec::new();
        let ended = take_turns(2, 3, |round, contender| {
            turns.push((round, contender));
            Ok(match (round, contender) {
                (_, 0) => Turn::Absent,
                (2, _) => Turn::Interrupted,
                _ => Turn::Made,
            })
        });
        assert_eq!(turns, [(0, 0), (0, 1), (1, 1), (2, 1)]);
        assert_eq!(ended.unwrap().as_deref(), Some(INTERRUPTED));
    }
}
