//! What a relay has to achieve for a run to count as passed (decision 35).
//!
//! A service level is a list of clauses such as `loss=0,p99<100ms,failed=0,cpu<95%`. Its answer names
//! the first clause that broke. What was not measured does not hold: a run that could not see the
//! relay's CPU must not claim that it stayed low.

mod hopeless;

use std::fmt::{self, Display};
use std::str::FromStr;

use thiserror::Error;

pub use self::hopeless::Midway;
use crate::limits::CLAUSES_MAX;
use crate::metrics::figures::quantile_ms;
use crate::report;
use weir_histogram::Histogram;

/// Clauses that all have to hold, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceLevel {
    clauses: Vec<Clause>,
}

/// One condition, such as `p99<100ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clause {
    metric: Metric,
    comparison: Comparison,
    limit: f64,
    unit: Unit,
}

/// What a clause is about, as far as it makes a difference to who can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Objects that arrived, or not, or late: their receivers see it.
    Loss,
    /// Subscriptions; where nobody subscribes, tracks that are published.
    Failures,
    /// How long objects were on their way: it takes receivers, and objects that say when they were due.
    Latency,
    /// The relay's process.
    Cpu,
}

/// What a run measured, as far as a service level asks for it.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// Objects lost, over all subscriptions, of those that are judged.
    pub lost_objects: u64,
    /// Objects that are judged: those that should have been received in that time, over all subscriptions.
    pub judged_objects: u64,
    /// Objects that arrived after their time to live, in all the time.
    pub late_objects: u64,
    /// Objects that should have been received in all the time, over all subscriptions.
    pub expected_objects: u64,
    /// Subscriptions that failed or stayed incomplete; where nobody subscribes, tracks that were not published to their end.
    pub failed: u64,
    /// Subscriptions, or tracks, in all.
    pub subscriptions: u64,
    /// Latency of all objects; empty if none carried a tag.
    pub latency: &'a Histogram,
    /// The relay's CPU in per cent of one core; `None` if it could not be seen.
    pub cpu_percent: Option<f64>,
}

/// Why a text is no service level.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ServiceLevelError {
    /// No clause at all.
    #[error("expected clauses such as `{DEFAULT}`")]
    Empty,
    /// More clauses than anyone means.
    #[error("more than {CLAUSES_MAX} clauses")]
    TooMany,
    /// A clause without a comparison.
    #[error("`{0}`: expected METRIC, one of = < <= > >=, and a VALUE")]
    NoComparison(String),
    /// A metric that nobody knows.
    #[error("`{clause}`: unknown metric; expected one of {}", Metric::names())]
    UnknownMetric {
        /// The clause.
        clause: String,
    },
    /// A value of another kind than the metric's.
    #[error("`{clause}`: expected {expected}")]
    Value {
        /// The clause.
        clause: String,
        /// What would have been right.
        expected: &'static str,
    },
}

/// Every object delivered, no failed subscription, and interactive use possible.
const DEFAULT: &str = "loss=0,failed=0,p99<100ms";

impl ServiceLevel {
    /// The clauses in the order in which they were asked for.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// The clauses about a subject of which `is_seen` holds; none if that leaves no clause.
    pub fn about(mut self, is_seen: impl Fn(Subject) -> bool) -> Option<Self> {
        self.clauses.retain(|clause| is_seen(clause.subject()));
        (!self.clauses.is_empty()).then_some(self)
    }

    /// Holds every clause against what was measured.
    pub fn evaluate(&self, measured: &Measured<'_>) -> report::ServiceLevel {
        let clauses: Vec<_> = self
            .clauses
            .iter()
            .map(|clause| clause.evaluate(measured))
            .collect();
        let first_broken = clauses
            .iter()
            .find(|clause| !clause.held)
            .map(|clause| clause.text.clone());
        report::ServiceLevel {
            text: self.to_string(),
            held: first_broken.is_none(),
            clauses,
            first_broken,
            judged_from_ms: 0.0,
            lost_objects: measured.lost_objects,
            latency_p99_ms: Metric::P99.measure(Unit::Milliseconds, measured),
        }
    }
}

impl Default for ServiceLevel {
    fn default() -> Self {
        DEFAULT
            .parse()
            .expect("the default is a service level, as a test shows")
    }
}

impl FromStr for ServiceLevel {
    type Err = ServiceLevelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Err(ServiceLevelError::Empty);
        }
        if text.split(',').count() > CLAUSES_MAX {
            return Err(ServiceLevelError::TooMany);
        }
        let clauses = text
            .split(',')
            .map(Clause::parse)
            .collect::<Result<_, _>>()?;
        Ok(Self { clauses })
    }
}

impl Display for ServiceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, clause) in self.clauses.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{clause}")?;
        }
        Ok(())
    }
}

impl Clause {
    /// What it is about.
    pub fn subject(&self) -> Subject {
        match self.metric {
            Metric::Loss | Metric::Late => Subject::Loss,
            Metric::Failed => Subject::Failures,
            Metric::P50 | Metric::P90 | Metric::P99 | Metric::P999 | Metric::Max => {
                Subject::Latency
            }
            Metric::Cpu => Subject::Cpu,
        }
    }

    fn parse(text: &str) -> Result<Self, ServiceLevelError> {
        let clause = text.trim();
        let named = || clause.chars().take(EXCERPT_CHARS_MAX).collect::<String>();
        let position = clause.find(['<', '=', '>']);
        let position = position.ok_or_else(|| ServiceLevelError::NoComparison(named()))?;
        let (name, rest) = clause.split_at(position);
        let comparison = Comparison::ALL
            .into_iter()
            .find(|one| rest.starts_with(one.sign()));
        let comparison = comparison.ok_or_else(|| ServiceLevelError::NoComparison(named()))?;
        let metric = Metric::ALL
            .into_iter()
            .find(|metric| metric.name() == name.trim());
        let metric = metric.ok_or_else(|| ServiceLevelError::UnknownMetric { clause: named() })?;
        let value = rest[comparison.sign().len()..].trim();
        let (limit, unit) = metric
            .parse_value(value)
            .ok_or_else(|| ServiceLevelError::Value {
                clause: named(),
                expected: metric.expected(),
            })?;
        Ok(Self {
            metric,
            comparison,
            limit,
            unit,
        })
    }

    fn evaluate(&self, measured: &Measured<'_>) -> report::Clause {
        let value = self.metric.measure(self.unit, measured);
        report::Clause {
            text: self.to_string(),
            metric: self.metric.name().to_owned(),
            limit: self.limit,
            measured: value,
            unit: self.unit.symbol().to_owned(),
            held: value.is_some_and(|value| self.comparison.holds(value, self.limit)),
        }
    }
}

impl Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, sign) = (self.metric.name(), self.comparison.sign());
        write!(f, "{name}{sign}{}{}", self.limit, self.unit.symbol())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Loss,
    Late,
    Failed,
    P50,
    P90,
    P99,
    P999,
    Max,
    Cpu,
}

impl Metric {
    const ALL: [Self; 9] = [
        Self::Loss,
        Self::Late,
        Self::Failed,
        Self::P50,
        Self::P90,
        Self::P99,
        Self::P999,
        Self::Max,
        Self::Cpu,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
            Self::Cpu => "cpu",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Loss | Self::Late | Self::Failed => "a number such as 0, or a share such as 0.1%",
            Self::P50 | Self::P90 | Self::P99 | Self::P999 | Self::Max => {
                "a time such as 100ms, 500us or 1s"
            }
            Self::Cpu => "a share of one core such as 95%",
        }
    }

    /// Reads a value in a unit that suits the metric; times come out in milliseconds.
    fn parse_value(self, value: &str) -> Option<(f64, Unit)> {
        let split = value
            .find(|c: char| c != '.' && !c.is_ascii_digit())
            .unwrap_or(value.len());
        let (number, unit) = value.split_at(split);
        let number: f64 = number
            .parse()
            .ok()
            .filter(|number: &f64| *number < LIMIT_MAX)?;
        let is_time = match self {
            Self::P50 | Self::P90 | Self::P99 | Self::P999 | Self::Max => true,
            Self::Loss | Self::Late | Self::Failed | Self::Cpu => false,
        };
        match unit.trim() {
            "us" | "µs" if is_time => Some((number / 1e3, Unit::Milliseconds)),
            "ms" if is_time => Some((number, Unit::Milliseconds)),
            "s" if is_time => Some((number * 1e3, Unit::Milliseconds)),
            "%" if !is_time => Some((number, Unit::Percent)),
            "" if !is_time && self != Self::Cpu => Some((number, Unit::Count)),
            _ => None,
        }
    }

    fn measure(self, unit: Unit, measured: &Measured<'_>) -> Option<f64> {
        let quantile = |quantile| {
            (!measured.latency.is_empty()).then(|| quantile_ms(measured.latency, quantile))
        };
        match self {
            Self::Loss => amount(measured.lost_objects, measured.judged_objects, unit),
            Self::Late => amount(measured.late_objects, measured.expected_objects, unit),
            Self::Failed => amount(measured.failed, measured.subscriptions, unit),
            Self::P50 => quantile(0.5),
            Self::P90 => quantile(0.9),
            Self::P99 => quantile(0.99),
            Self::P999 => quantile(0.999),
            Self::Max => quantile(1.0),
            Self::Cpu => measured.cpu_percent,
        }
    }
}

/// A count as it is, or in per cent of a whole; nothing can be said of nothing.
#[expect(
    clippy::cast_precision_loss,
    reason = "a figure to compare with a limit"
)]
fn amount(count: u64, whole: u64, unit: Unit) -> Option<f64> {
    if whole == 0 {
        return None;
    }
    match unit {
        Unit::Count | Unit::Milliseconds => Some(count as f64),
        Unit::Percent => Some(count as f64 * 100.0 / whole as f64),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    AtMost,
    AtLeast,
    Below,
    Above,
    Equal,
}

impl Comparison {
    /// The longer signs first, since the shorter ones begin them.
    const ALL: [Self; 5] = [
        Self::AtMost,
        Self::AtLeast,
        Self::Below,
        Self::Above,
        Self::Equal,
    ];

    fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Below => "<",
            Self::Above => ">",
            Self::Equal => "=",
        }
    }

    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtMost => value <= limit,
            Self::AtLeast => value >= limit,
            Self::Below => value < limit,
            Self::Above => value > limit,
            Self::Equal => (value - limit).abs() < f64::EPSILON,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    Percent,
    Milliseconds,
}

impl Unit {
    fn symbol(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Percent => "%",
            Self::Milliseconds => "ms",
        }
    }
}

/// Larger than any count or time of a run, and exact as a floating point number.
const LIMIT_MAX: f64 = 1e15;
const EXCERPT_CHARS_MAX: usize = 48;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn latency(ms: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for ms in ms {
            histogram.record(Duration::from_millis(*ms));
        }
        histogram
    }

    fn measured(latency: &Histogram) -> Measured<'_> {
        Measured {
            lost_objects: 0,
            judged_objects: 1_000,
            expected_objects: 1_000,
            late_objects: 0,
            failed: 0,
            subscriptions: 10,
            latency,
            cpu_percent: Some(50.0),
        }
    }

    fn evaluate(text: &str, measured: &Measured<'_>) -> report::ServiceLevel {
        text.parse::<ServiceLevel>().unwrap().evaluate(measured)
    }

    #[test]
    fn the_default_asks_for_delivery_in_time() {
        let level = ServiceLevel::default();
        assert_eq!(level.to_string(), "loss=0,failed=0,p99<100ms");
        let quick = latency(&[5; 100]);
        assert!(level.evaluate(&measured(&quick)).held);
    }

    #[test]
    fn a_level_keeps_the_clauses_that_somebody_can_see() {
        let level: ServiceLevel = "late=0,p99<1s,max<2s,cpu<95%,failed=0".parse().unwrap();
        let kept = |seen: &[Subject]| {
            let kept = level.clone().about(|subject| seen.contains(&subject));
            kept.map(|level| level.to_string())
        };
        assert_eq!(
            kept(&[Subject::Loss, Subject::Failures]).as_deref(),
            Some("late=0,failed=0")
        );
        assert_eq!(
            kept(&[Subject::Latency, Subject::Cpu]).as_deref(),
            Some("p99<1000ms,max<2000ms,cpu<95%")
        );
        assert_eq!(kept(&[]), None);
    }

    #[test]
    fn names_the_first_clause_that_broke() {
        let slow = latency(&[5, 250]);
        let lossy = Measured {
            lost_objects: 1,
            cpu_percent: Some(99.0),
            ..measured(&slow)
        };
        let verdict = evaluate("failed=0,p99<100ms,loss=0,cpu<95%", &lossy);
        assert_eq!(verdict.first_broken.as_deref(), Some("p99<100ms"));
        let held: Vec<bool> = verdict.clauses.iter().map(|clause| clause.held).collect();
        assert_eq!(held, [true, false, false, false]);
        assert_eq!(verdict.clauses[2].measured, Some(1.0));
        assert_eq!(verdict.clauses[3].unit, "%");
    }

    #[test]
    fn shares_and_counts_are_told_apart() {
        let quick = latency(&[5]);
        let lossy = Measured {
            lost_objects: 1,
            late_objects: 2,
            failed: 1,
            ..measured(&quick)
        };
        for (text, held) in [
            ("loss<=0.1%", true),
            ("loss<0.1%", false),
            ("loss<=1", true),
            ("late<2", false),
            ("failed<=10%", true),
            ("p50>=4900us", true),
            ("max=5ms", true),
            ("max>0.005s", false),
            ("p99.9<6ms", true),
            ("p90 <= 6 ms", true),
        ] {
            assert_eq!(evaluate(text, &lossy).held, held, "{text}");
        }
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let nothing = latency(&[]);
        let blind = Measured {
            cpu_percent: None,
            judged_objects: 0,
            expected_objects: 0,
            subscriptions: 0,
            ..measured(&nothing)
        };
        for text in ["cpu<95%", "p99<100ms", "max<1s", "loss=0", "failed=0"] {
            let verdict = evaluate(text, &blind);
            assert!(
                !verdict.held && verdict.clauses[0].measured.is_none(),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_say_what_was_expected() {
        let texts = [
            "",
            "loss",
            "loss=0,",
            "speed=1",
            "=5",
            "loss=none",
            "loss=1ms",
            "p99<100",
            "p99<100%",
            "cpu<95",
            "loss==0",
            "p99<-1ms",
            "loss<1e400",
            "max<1..5s",
        ];
        let errors = texts.map(|text| text.parse::<ServiceLevel>().unwrap_err().to_string());
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn clauses_are_accepted_to_their_limit_and_no_further() {
        let clauses = |count| vec!["loss=0"; count].join(",").parse::<ServiceLevel>();
        assert_eq!(clauses(CLAUSES_MAX).unwrap().clauses().len(), CLAUSES_MAX);
        assert_eq!(clauses(CLAUSES_MAX + 1), Err(ServiceLevelError::TooMany));
    }

    proptest! {
        #[test]
        fn prints_what_it_read(text in r"((loss|late|failed|cpu|p50|p99\.9|max)(<|<=|=|>|>=)[0-9]{1,3}(\.[0-9])?(ms|s|us|%|)?,?){1,4}") {
            if let Ok(level) = text.parse::<ServiceLevel>() {
                prop_assert_eq!(level.to_string().parse::<ServiceLevel>(), Ok(level));
            }
        }
    }
}
