//! What a relay says of itself: the counters of its Prometheus text, before a run and after it.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;

/// Counters by their name, labels included.
pub(crate) type Counters = BTreeMap<String, u64>;

/// Fetches the counters at `url`.
///
/// # Errors
/// Nobody answers in time, or with more than 4 MiB.
pub(crate) fn counters(url: &str) -> anyhow::Result<Counters> {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT));
    let agent: ureq::Agent = config.build().into();
    let mut answer = agent.get(url).call().with_context(|| url.to_owned())?;
    let body = answer.body_mut().with_config().limit(BODY_BYTES_MAX);
    let text = body.read_to_string().with_context(|| url.to_owned())?;
    Ok(parse(&text))
}

/// How much each counter grew; one that began again counts from its new beginning.
pub(crate) fn growth(before: &Counters, after: &Counters) -> Counters {
    let grown = |(name, now): (&String, &u64)| {
        let was = before.get(name).copied().unwrap_or(0);
        (name.clone(), now.checked_sub(was).unwrap_or(*now))
    };
    after
        .iter()
        .map(grown)
        .filter(|(_, value)| *value > 0)
        .collect()
}

/// The families of type `counter`, by the text format's version 0.0.4.
fn parse(text: &str) -> Counters {
    let mut counters = Counters::new();
    let mut family = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest
                .split_once(' ')
                .filter(|(_, kind)| kind.trim() == "counter")
                .map(|(name, _)| name);
            continue;
        }
        let Some(family) = family.filter(|family| line.starts_with(family)) else {
            continue;
        };
        // Behind the labels stand the value and, with some, a time.
        let end = line.rfind('}').map_or(family.len(), |brace| brace + 1);
        let end = line[end..]
            .find(' ')
            .map_or(line.len(), |blank| end + blank);
        let (name, rest) = line.split_at(end);
        let value = rest.split_whitespace().next().and_then(whole);
        if let Some(value) = value
            && counters.len() < COUNTERS_MAX
        {
            counters.insert(name.to_owned(), value);
        }
    }
    counters
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
fn whole(text: &str) -> Option<u64> {
    let value: f64 = text.parse().ok()?;
    (0.0..9e15).contains(&value).then_some(value as u64)
}

/// A relay that has more to do than to answer must not hold a run up.
const TIMEOUT: Duration = Duration::from_secs(1);
const BODY_BYTES_MAX: u64 = 4 << 20;
/// More than a report can show.
const COUNTERS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total What.\n# TYPE a_total counter\na_total 7\n\
        # TYPE g gauge\ng 5\n\
        # TYPE d_total counter\nd_total{reason=\"too slow\",x=\"}\"} 1.5e3 1700000000\nd_total{reason=\"late\"} NaN\n\
        other_total 3\n";

    #[test]
    fn counters_and_nothing_else() {
        let counters = parse(TEXT);
        let seen: Vec<(&str, u64)> = counters
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        assert_eq!(
            seen,
            [
                ("a_total", 7),
                ("d_total{reason=\"too slow\",x=\"}\"}", 1500)
            ]
        );
        assert!(parse("nonsense\n# TYPE\n# TYPE x counter").is_empty());
    }

    #[test]
    fn growth_over_a_run() {
        let counters = |pairs: &[(&str, u64)]| -> Counters {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect()
        };
        let before = counters(&[("a", 5), ("b", 9), ("same", 1)]);
        let after = counters(&[("a", 12), ("b", 2), ("new", 3), ("same", 1)]);
        assert_eq!(
            growth(&before, &after),
            counters(&[("a", 7), ("b", 2), ("new", 3)])
        );
    }

    #[test]
    fn nobody_there_is_an_error_that_names_the_url() {
        let error = format!("{:#}", counters("http://127.0.0.1:1/metrics").unwrap_err());
        assert!(error.contains("http://127.0.0.1:1/metrics"), "{error}");
    }
}
