//! Interleaved rounds, so that changes of the machine affect all contenders alike.

/// The end of a contender's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The turn was made, with success or not.
    Made,
    /// The contender cannot be started at all, and gets no further turn.
    Absent,
    /// The user interrupted the comparison.
    Interrupted,
}

/// Gives every contender a turn in each round, as `turn(round, contender)`. Returns why turns are missing, if any are.
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

/// Returns the order of turns, as round and contender. The first contender of a round is the last of the next.
fn order(contenders: usize, rounds: u32) -> impl Iterator<Item = (u32, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..contenders).map(move |turn| (round, (turn + round as usize) % contenders))
    })
}

/// Why an interrupted comparison lacks turns.
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
