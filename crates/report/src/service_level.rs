//! What a relay has to achieve for a run to count as passed (decision 35).
//!
//! A service level is a list of clauses such as `loss=0,p99<100ms,failed=0,cpu<95%`. Its answer names
//! the first clause that broke. What was not measured does not hold: a run that could not see the
//! relay's CPU must not claim that it stayed low.

mod hopeless;
#[cfg(test)]
mod tests;

use std::fmt::{self, Display};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::hopeless::Midway;
use crate::latency::quantile_ms;
use crate::limits::CLAUSES_MAX;
use weir_histogram::Histogram;

/// Clauses that all have to hold, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceLevel {
    clauses: Vec<Clause>,
}

/// One condition, such as `p99<100ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clause {
    name: &'static str,
    metric: Metric,
    operator: Operator,
    limit: f64,
    unit: Unit,
}

/// What a clause is about, as far as it makes a difference to who can see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Objects that arrived, or not: their receivers see it.
    Loss,
    /// Objects that arrived after their time to live: it takes receivers, and objects that are sent at a time.
    Late,
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
    /// Objects that the relay changed or moved, over all subscriptions; `None` where nobody subscribes.
    pub altered_objects: Option<u64>,
    /// Subscriptions that failed or stayed incomplete; where nobody subscribes, tracks that were not published to their end.
    pub failed: u64,
    /// Subscriptions, or tracks, in all.
    pub subscriptions: u64,
    /// Latency of all objects; empty if none carried a tag.
    pub latency: &'a Histogram,
    /// The relay's CPU in per cent of one core; `None` if it could not be seen.
    pub cpu_percent: Option<f64>,
    /// Whether publishers and subscribers have one clock, or synchronised ones. Otherwise latency decides no clause.
    pub has_common_clock: bool,
}

/// The service level asked for, and whether it held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ServiceLevel")]
pub struct JudgedLevel {
    /// The service level as it was asked for, such as `loss=0,p99<100ms,cpu<95%`.
    pub text: String,
    /// Its clauses in that order, and behind them `altered=0`, which is always asked for where anybody subscribes.
    pub clauses: Vec<JudgedClause>,
    /// The text of the first clause in that order that broke; none if all held.
    pub first_broken: Option<String>,
    /// Whether no clause broke.
    pub held: bool,
    /// Loss and latency are judged of objects planned from this time of the data phase on.
    pub judged_from_ms: f64,
    /// Objects lost of those that are judged, over all tracks; the tracks themselves count the whole run.
    pub lost_objects: u64,
    /// 99th percentile of the latency that is judged, over all tracks; none if there is none.
    pub latency_p99_ms: Option<f64>,
}

/// One clause of a service level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Clause")]
pub struct JudgedClause {
    /// As it was asked for, such as `p99<100ms`.
    pub text: String,
    /// What it is about, such as `p99`.
    pub metric: String,
    /// The bound, in `unit`.
    pub limit: f64,
    /// What was measured, in `unit`; none if it could not be, which breaks the clause.
    pub measured: Option<f64>,
    /// Unit of both, such as `ms`; empty for a plain number.
    pub unit: String,
    /// Whether it held; none if that is not decidable: a clause about latency between two clocks that may differ.
    pub held: Option<bool>,
}

impl JudgedClause {
    /// Whether it broke. A clause that is not decidable has neither held nor broken.
    pub fn is_broken(&self) -> bool {
        self.held == Some(false)
    }
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
    /// A clause without an operator.
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

    /// Holds every clause against what was measured, and behind them the one that nobody has to ask for: a relay that
    /// alters objects has not delivered them.
    pub fn evaluate(&self, measured: &Measured<'_>) -> JudgedLevel {
        let clauses: Vec<_> = self
            .clauses
            .iter()
            .map(|clause| clause.evaluate(measured))
            .chain(measured.altered_objects.map(unaltered))
            .collect();
        let first_broken = clauses
            .iter()
            .find(|clause| clause.is_broken())
            .map(|clause| clause.text.clone());
        JudgedLevel {
            text: self.to_string(),
            held: first_broken.is_none(),
            clauses,
            first_broken,
            judged_from_ms: 0.0,
            lost_objects: measured.lost_objects,
            latency_p99_ms: Metric::Quantile(0.99).measure(Unit::Milliseconds, measured),
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
            Metric::Loss => Subject::Loss,
            Metric::Late => Subject::Late,
            Metric::Failed => Subject::Failures,
            Metric::Quantile(_) => Subject::Latency,
            Metric::Cpu => Subject::Cpu,
        }
    }

    fn parse(text: &str) -> Result<Self, ServiceLevelError> {
        let clause = text.trim();
        let named = || clause.chars().take(EXCERPT_CHARS_MAX).collect::<String>();
        let position = clause.find(['<', '=', '>']);
        let position = position.ok_or_else(|| ServiceLevelError::NoComparison(named()))?;
        let (name, rest) = clause.split_at(position);
        let operator = Operator::ALL
            .into_iter()
            .find(|one| rest.starts_with(one.sign()));
        let operator = operator.ok_or_else(|| ServiceLevelError::NoComparison(named()))?;
        let found = Metric::ALL.into_iter().find(|(one, _)| *one == name.trim());
        let (name, metric) =
            found.ok_or_else(|| ServiceLevelError::UnknownMetric { clause: named() })?;
        let value = rest[operator.sign().len()..].trim();
        let (limit, unit) = metric
            .parse_value(value)
            .ok_or_else(|| ServiceLevelError::Value {
                clause: named(),
                expected: metric.expected(),
            })?;
        Ok(Self {
            name,
            metric,
            operator,
            limit,
            unit,
        })
    }

    fn evaluate(&self, measured: &Measured<'_>) -> JudgedClause {
        let value = self.metric.measure(self.unit, measured);
        let is_decidable = self.subject() != Subject::Latency || measured.has_common_clock;
        let holds = value.is_some_and(|value| self.operator.holds(value, self.limit));
        JudgedClause {
            text: self.to_string(),
            metric: self.name.to_owned(),
            limit: self.limit,
            measured: value,
            unit: self.unit.symbol().to_owned(),
            held: is_decidable.then_some(holds),
        }
    }
}

impl Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, unit) = (self.operator.sign(), self.unit.symbol());
        write!(f, "{}{sign}{}{unit}", self.name, self.limit)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Loss,
    Late,
    Failed,
    /// A quantile of latency.
    Quantile(f64),
    Cpu,
}

impl Metric {
    const ALL: [(&'static str, Self); 9] = [
        ("loss", Self::Loss),
        ("late", Self::Late),
        ("failed", Self::Failed),
        ("p50", Self::Quantile(0.5)),
        ("p90", Self::Quantile(0.9)),
        ("p99", Self::Quantile(0.99)),
        ("p99.9", Self::Quantile(0.999)),
        ("max", Self::Quantile(1.0)),
        ("cpu", Self::Cpu),
    ];

    fn names() -> String {
        Self::ALL.map(|(name, _)| name).join(", ")
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Loss | Self::Late | Self::Failed => "a number such as 0, or a share such as 0.1%",
            Self::Quantile(_) => "a time such as 100ms, 500us or 1s",
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
        let is_time = matches!(self, Self::Quantile(_));
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
        match self {
            Self::Loss => amount(measured.lost_objects, measured.judged_objects, unit),
            Self::Late => amount(measured.late_objects, measured.expected_objects, unit),
            Self::Failed => amount(measured.failed, measured.subscriptions, unit),
            Self::Quantile(quantile) => {
                (!measured.latency.is_empty()).then(|| quantile_ms(measured.latency, quantile))
            }
            Self::Cpu => measured.cpu_percent,
        }
    }
}

/// The clause that no object was altered.
fn unaltered(altered: u64) -> JudgedClause {
    JudgedClause {
        text: format!("{ALTERED}=0"),
        metric: ALTERED.to_owned(),
        limit: 0.0,
        measured: amount(altered, altered.max(1), Unit::Count),
        unit: Unit::Count.symbol().to_owned(),
        held: Some(altered == 0),
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
enum Operator {
    AtMost,
    AtLeast,
    Below,
    Above,
    Equal,
}

impl Operator {
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

/// What the clause that is always asked for is about.
const ALTERED: &str = "altered";
/// Larger than any count or time of a run, and exact as a floating point number.
const LIMIT_MAX: f64 = 1e15;
const EXCERPT_CHARS_MAX: usize = 48;
