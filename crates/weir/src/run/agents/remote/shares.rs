//! Which agents publish, and which subscribe.

use anyhow::bail;

use super::super::{Share, Slice};

/// Returns the shares of agents with these names. Those in `publishers_at` publish, or the first one; the others subscribe. If
/// there are no others, all subscribe.
pub(super) fn shares(names: &[&str], publishers_at: &[String]) -> anyhow::Result<Vec<Share>> {
    if let Some(unknown) = publishers_at
        .iter()
        .find(|one| !names.contains(&one.as_str()))
    {
        bail!(
            "--publishers-at: no agent {unknown:?} was chosen; there are {}",
            names.join(", ")
        );
    }
    let publishes = |number: usize| match publishers_at {
        [] => number == 0,
        named => named.iter().any(|one| one == names[number]),
    };
    let publishing = (0..names.len()).filter(|number| publishes(*number)).count();
    let others = names.len() - publishing;
    let mut turns = (0, 0);
    let share = |number: usize| {
        let is_publishing = publishes(number);
        let subscribes = !is_publishing || others == 0;
        let slice = |turn: &mut usize, of: usize| {
            *turn += 1;
            Slice {
                number: *turn - 1,
                of,
            }
        };
        Share {
            publishers: is_publishing.then(|| slice(&mut turns.0, publishing)),
            subscribers: subscribes
                .then(|| slice(&mut turns.1, if others == 0 { names.len() } else { others })),
        }
    };
    Ok((0..names.len()).map(share).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_publishes_and_who_subscribes() {
        let of = |names: &[&str], at: &[&str]| {
            let at: Vec<String> = at.iter().map(|one| (*one).to_owned()).collect();
            let shares = shares(names, &at)?;
            let shown = |slice: Option<Slice>| {
                slice.map_or_else(String::new, |one| format!("{}/{}", one.number, one.of))
            };
            Ok::<_, anyhow::Error>(
                shares
                    .iter()
                    .map(|one| format!("{}-{}", shown(one.publishers), shown(one.subscribers)))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&["a"], &[]).unwrap(), ["0/1-0/1"]);
        assert_eq!(of(&["a", "b", "c"], &[]).unwrap(), ["0/1-", "-0/2", "-1/2"]);
        assert_eq!(
            of(&["a", "b", "c"], &["b"]).unwrap(),
            ["-0/2", "0/1-", "-1/2"]
        );
        assert_eq!(
            of(&["a", "b"], &["a", "b"]).unwrap(),
            ["0/2-0/2", "1/2-1/2"]
        );
        let error = of(&["a", "b"], &["c"]).unwrap_err().to_string();
        assert!(
            error.contains("no agent \"c\" was chosen; there are a, b"),
            "{error}"
        );
    }
}
