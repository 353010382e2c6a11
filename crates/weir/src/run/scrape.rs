//! The relay's own Prometheus metrics: counters and gauges, fetched every second.

use std::{
    collections::BTreeMap,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use weir_net::{Stop, clock};
use weir_report::relay::{MetricSecond, RelayMetric};

use crate::urls::Redacted;

/// Counters by their name, labels included.
pub(crate) type Counters = BTreeMap<String, u64>;

/// One value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    is_counter: bool,
    value: f64,
}

type Samples = BTreeMap<String, Sample>;

/// Fetches a relay's metrics once a second, on its own thread, so that a slow response does not delay the run.
pub(crate) struct Scraper {
    url: String,
    before: Samples,
    stop: Stop,
    thread: JoinHandle<Series>,
}

/// The fetched values.
#[derive(Debug, Default)]
struct Series {
    metrics: BTreeMap<String, RelayMetric>,
    /// One of so many fetches is kept.
    stride: u64,
    fetched: u64,
}

impl Scraper {
    /// Starts to fetch `url`; times count from `origin`.
    ///
    /// # Errors
    /// There is no response from the URL.
    pub(crate) fn start(url: &str, origin: Instant) -> anyhow::Result<Self> {
        let before = samples(url)?;
        let stop = Stop::new().context("cannot make an event descriptor")?;
        let (requested, from) = (stop.clone(), url.to_owned());
        let work = move || {
            let mut series = Series::default();
            while !requested.wait(PERIOD) {
                // A fetch that fails leaves a gap.
                if let Ok(samples) = samples(&from) {
                    series.add((clock::now() - origin).as_secs_f64() * 1e3, &samples);
                }
            }
            series
        };
        let thread = std::thread::Builder::new().name("weir-metrics".to_owned());
        Ok(Self {
            url: url.to_owned(),
            before,
            stop,
            thread: thread.spawn(work).context("cannot start a thread")?,
        })
    }

    /// Returns the growth of each counter, and the metrics that changed, per second.
    pub(crate) fn finish(self) -> (Counters, Vec<RelayMetric>) {
        self.stop.request();
        let series = self.thread.join().unwrap_or_default();
        // A relay that has ended does not answer; the earlier values stay.
        let grown = samples(&self.url).map_or_else(
            |_| Counters::new(),
            |after| growth(&counters(&self.before), &counters(&after)),
        );
        (grown, series.finish())
    }
}

impl Series {
    fn add(&mut self, at_ms: f64, samples: &Samples) {
        self.stride = self.stride.max(1);
        self.fetched += 1;
        if !self.fetched.is_multiple_of(self.stride) {
            return;
        }
        for (name, sample) in samples {
            let known = self.metrics.len();
            if known >= METRICS_MAX && !self.metrics.contains_key(name) {
                continue;
            }
            let metric = self
                .metrics
                .entry(name.clone())
                .or_insert_with(|| RelayMetric {
                    metric: name.clone(),
                    is_counter: sample.is_counter,
                    per_second: Vec::new(),
                });
            metric.per_second.push(MetricSecond {
                at_ms,
                value: sample.value,
            });
        }
        if self
            .metrics
            .values()
            .any(|metric| metric.per_second.len() > SAMPLES_MAX)
        {
            self.stride *= 2;
            for metric in self.metrics.values_mut() {
                let mut keep = false;
                metric.per_second.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        }
    }

    /// Returns the metrics that changed.
    fn finish(self) -> Vec<RelayMetric> {
        let changes = |metric: &RelayMetric| {
            let values = || metric.per_second.iter().map(|one| one.value.to_bits());
            values().min() != values().max()
        };
        self.metrics.into_values().filter(changes).collect()
    }
}

/// Fetches the metrics at `url`.
///
/// # Errors
/// There is no response in time, or it is larger than 4 MiB.
fn samples(url: &str) -> anyhow::Result<Samples> {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT));
    let agent: ureq::Agent = config.build().into();
    let place = || format!("{}: cannot be read", Redacted(url));
    let mut answer = agent.get(url).call().with_context(place)?;
    let body = answer.body_mut().with_config().limit(BODY_BYTES_MAX);
    let text = body.read_to_string().with_context(place)?;
    Ok(parse(&text))
}

fn counters(samples: &Samples) -> Counters {
    let counters = samples.iter().filter(|(_, sample)| sample.is_counter);
    counters
        .filter_map(|(name, sample)| Some((name.clone(), whole(sample.value)?)))
        .collect()
}

/// Returns the growth of each counter. A counter that was reset counts from 0.
fn growth(before: &Counters, after: &Counters) -> Counters {
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

/// Parses the counters and gauges of the Prometheus text format 0.0.4.
fn parse(text: &str) -> Samples {
    let mut samples = Samples::new();
    let mut family = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest
                .split_once(' ')
                .and_then(|(name, kind)| match kind.trim() {
                    "counter" => Some((name, true)),
                    "gauge" => Some((name, false)),
                    _ => None,
                });
            continue;
        }
        let Some((family, is_counter)) = family.filter(|(family, _)| line.starts_with(family))
        else {
            continue;
        };
        // The value follows the labels, and sometimes a time follows the value.
        let end = line.rfind('}').map_or(family.len(), |brace| brace + 1);
        let end = line[end..]
            .find(' ')
            .map_or(line.len(), |blank| end + blank);
        let (name, rest) = line.split_at(end);
        let value: Option<f64> = rest
            .split_whitespace()
            .next()
            .and_then(|text| text.parse().ok());
        if let Some(value) = value.filter(|value| value.is_finite())
            && samples.len() < METRICS_MAX
        {
            samples.insert(name.to_owned(), Sample { is_counter, value });
        }
    }
    samples
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked"
)]
fn whole(value: f64) -> Option<u64> {
    (0.0..9e15).contains(&value).then_some(value as u64)
}

/// Time between two fetches.
const PERIOD: Duration = Duration::from_secs(1);
/// Timeout of a fetch.
const TIMEOUT: Duration = Duration::from_secs(1);
const BODY_BYTES_MAX: u64 = 4 << 20;
/// More metrics than a report can show.
const METRICS_MAX: usize = 200;
/// Values kept of each metric; at more, every other one is dropped.
const SAMPLES_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total What.\n# TYPE a_total counter\na_total 7\n\
        # TYPE g gauge\ng 5\n\
        # TYPE d_total counter\nd_total{reason=\"too slow\",x=\"}\"} 1.5e3 1700000000\nd_total{reason=\"late\"} NaN\n\
        other_total 3\n";

    #[test]
    fn counters_and_gauges_and_nothing_else() {
        let samples = parse(TEXT);
        let seen: Vec<(&str, bool, f64)> = samples
            .iter()
            .map(|(name, sample)| (name.as_str(), sample.is_counter, sample.value))
            .collect();
        assert_eq!(
            seen,
            [
                ("a_total", true, 7.0),
                ("d_total{reason=\"too slow\",x=\"}\"}", true, 1500.0),
                ("g", false, 5.0),
            ]
        );
        assert_eq!(counters(&samples)["a_total"], 7);
        assert_eq!(counters(&samples).len(), 2);
        assert!(parse("nonsense\n# TYPE\n# TYPE x counter").is_empty());
    }

    #[test]
    fn what_changes_is_kept_within_bounds() {
        let mut series = Series::default();
        let mut at_ms = 0.0;
        for _ in 0..=SAMPLES_MAX {
            at_ms += 1000.0;
            let text = format!("# TYPE a counter\na {at_ms}\n# TYPE g gauge\ng 5\n");
            series.add(at_ms, &parse(&text));
        }
        let kept = series.finish();
        assert_eq!(kept.len(), 1, "the gauge did not change");
        assert_eq!((kept[0].metric.as_str(), kept[0].is_counter), ("a", true));
        assert_eq!(kept[0].per_second.len(), SAMPLES_MAX / 2 + 1);
        let times = kept[0].per_second.iter().map(|one| one.at_ms);
        assert!(times.eq(kept[0].per_second.iter().map(|one| one.value)));
    }

    #[test]
    fn a_metric_above_the_limit_is_left_out() {
        let lines = |count: usize| {
            let lines = (0..count).map(|number| format!("m{{n=\"{number}\"}} 1\n"));
            format!("# TYPE m gauge\n{}", lines.collect::<String>())
        };
        assert_eq!(parse(&lines(METRICS_MAX)).len(), METRICS_MAX);
        assert_eq!(parse(&lines(METRICS_MAX + 1)).len(), METRICS_MAX);
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
        let error = format!("{:#}", samples("http://127.0.0.1:1/metrics").unwrap_err());
        assert!(error.contains("http://127.0.0.1:1/metrics"), "{error}");
    }
}
