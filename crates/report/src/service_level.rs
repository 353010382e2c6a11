//! Service levels: what a relay has to achieve for a run to pass (decision 35).
//!
//! A service level is a list of clauses such as `loss=0,p99<100ms,failed=0,cpu<95%`. The result names the first
//! clause that broke. A clause whose figure was not measured breaks: a run that could not see the relay's CPU must not
//! claim that it stayed low.

mod early_stop;
#[cfg(test)]
mod tests;

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::early_stop::MeasuredSoFar;
use crate::form::number;
use crate::latency::quantile_ms;
use crate::limits::CLAUSES_MAX;
use weir_histogram::Histogram;

/// A service level: one or more clauses, all of which have to hold.
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

/// The subject of a clause. It decides which process can measure the clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Lost objects. Measured by subscribers.
    Loss,
    /// Objects that arrived after their time to live. Measured by subscribers of objects with a planned send time.
    Late,
    /// Failed subscriptions; in a process that only publishes, tracks that were not published to their end.
    Failures,
    /// Latency of objects. Measured by subscribers of objects that carry their planned send time.
    Latency,
    /// CPU time of the relay's process.
    Cpu,
}

/// The figures of a run that a service level judges.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// Lost objects among those that are judged, summed over all subscriptions.
    pub lost_objects: u64,
    /// Objects that are judged: all that should have arrived in the judged part of the run, summed over all subscriptions.
    pub judged_objects: u64,
    /// Objects that arrived after their time to live, in the whole run.
    pub late_objects: u64,
    /// Objects that should have arrived in the whole run, summed over all subscriptions.
    pub expected_objects: u64,
    /// Objects that the relay altered, summed over all subscriptions; `None` without subscriptions.
    pub altered_objects: Option<u64>,
    /// Failed and incomplete subscriptions; in a process that only publishes, tracks that were not published to their end.
    pub failed: u64,
    /// All subscriptions; in a process that only publishes, all tracks.
    pub subscriptions: u64,
    /// Latency of the judged objects; empty if none carried its planned send time.
    pub latency: &'a Histogram,
    /// Mean CPU load of the relay in per cent of one core; `None` if its process was not observed.
    pub cpu_percent: Option<f64>,
    /// The largest error of latency because publishers and subscribers have different clocks: zero for one clock, `None` if
    /// it is unknown. A clause about latency is decided only if this error cannot change the answer.
    pub clock_error: Option<Duration>,
}

/// The requested service level, and whether it held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ServiceLevel")]
pub struct JudgedLevel {
    /// The service level as requested, such as `loss=0,p99<100ms,cpu<95%`.
    pub text: String,
    /// The clauses in the requested order. In runs with subscribers, the clause `altered=0` follows them.
    pub clauses: Vec<JudgedClause>,
    /// The text of the first broken clause; null if all held.
    pub first_broken: Option<String>,
    /// True if no clause broke.
    pub held: bool,
    /// Start of the judged part, since the start of the data phase. Clauses about loss and latency count only objects
    /// planned at this time or later. 0: all objects count.
    pub judged_from_ms: f64,
    /// Lost objects of the judged part, summed over all tracks. (The figures of `tracks` count the whole run.)
    pub lost_objects: u64,
    /// 99th percentile of latency in the judged part, over all tracks; null if no latency was measured.
    pub latency_p99_ms: Option<f64>,
}

/// One clause of a service level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Clause")]
pub struct JudgedClause {
    /// The clause as requested, such as `p99<100ms`.
    pub text: String,
    /// The metric of the clause: `loss`, `late`, `failed`, `p50`, `p90`, `p99`, `p99.9`, `max`, `cpu` or `altered`.
    pub metric: String,
    /// The bound, in `unit`.
    pub limit: f64,
    /// The measured value, in `unit`; null if it was not measured, which breaks the clause.
    pub measured: Option<f64>,
    /// Unit of `limit` and `measured`: `ms`, `%`, or empty for a count.
    pub unit: String,
    /// True if the clause held; null if that is not decidable, since publishers and subscribers have different clocks and
    /// `clock_error_ms` of the run is unknown, or as large as the distance from the limit.
    pub held: Option<bool>,
}

impl JudgedClause {
    /// Returns true if the clause broke. A clause that is not decidable has neither held nor broken.
    pub fn is_broken(&self) -> bool {
        self.held == Some(false)
    }
}

/// An error in the text of a service level.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ServiceLevelError {
    /// The text has no clause.
    #[error("expected clauses such as `{DEFAULT}`")]
    Empty,
    /// The text has more than [`CLAUSES_MAX`] clauses.
    #[error("expected at most {CLAUSES_MAX} clauses")]
    TooMany,
    /// A clause without an operator.
    #[error("`{0}`: expected METRIC, one of = < <= > >=, and a VALUE")]
    NoComparison(String),
    /// An unknown metric.
    #[error("`{clause}`: unknown metric; expected one of {}", Metric::names())]
    UnknownMetric {
        /// The clause.
        clause: String,
    },
    /// A value whose unit does not fit the metric.
    #[error("`{clause}`: expected {expected}")]
    Value {
        /// The clause.
        clause: String,
        /// The form of value that the metric takes.
        expected: &'static str,
    },
}

/// The default: every object delivered, no failed subscription, and latency that permits conversation.
const DEFAULT: &str = "loss=0,failed=0,p99<100ms";

impl ServiceLevel {
    /// Returns the clauses in the requested order.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// Returns the service level reduced to the clauses whose subject is measurable; none if no clause is left.
    pub fn about(mut self, is_measurable: impl Fn(Subject) -> bool) -> Option<Self> {
        self.clauses
            .retain(|clause| is_measurable(clause.subject()));
        (!self.clauses.is_empty()).then_some(self)
    }

    /// Judges every clause, and then `altered=0`: an object that the relay altered counts as not delivered, whatever
    /// the service level says.
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

impl JudgedClause {
    /// Returns the measured value with its unit, or why it was not measured.
    pub(crate) fn measured_in_words(&self) -> String {
        if let Some(measured) = self.measured {
            let unit = match (&*self.unit, &*self.metric) {
                ("", "loss" | "late" | ALTERED) if (measured - 1.0).abs() < f64::EPSILON => {
                    "object"
                }
                ("", "loss" | "late" | ALTERED) => "objects",
                (unit, _) => unit,
            };
            return number::quantity(measured, unit);
        }
        let reason = match &*self.metric {
            "cpu" => "the relay's process was not observed",
            "loss" | "late" => "no object was due",
            "failed" => "there was no subscription",
            _ => "no object with a send time arrived",
        };
        format!("not measured: {reason}")
    }

    /// Returns the bound with its unit.
    pub(crate) fn limit_in_words(&self) -> String {
        number::quantity(self.limit, &self.unit)
    }
}

impl Clause {
    /// Returns the subject of the clause.
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
        let holds = value.is_some_and(|value| self.operator.holds(value, self.limit));
        let error = measured.clock_error;
        let is_decidable = self.subject() != Subject::Latency
            || error.is_some_and(|error| self.decides(value, error));
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

impl Clause {
    /// Whether a latency of `value` milliseconds is on the same side of the limit with any clock error up to `error`.
    fn decides(&self, value: Option<f64>, error: Duration) -> bool {
        let error_ms = error.as_secs_f64() * 1e3;
        let distance = value.map(|value| (value - self.limit).abs());
        error.is_zero() || distance.is_none_or(|distance| distance > error_ms)
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

    /// Reads a value whose unit fits the metric. Times are returned in milliseconds.
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

/// Returns the clause `altered=0`.
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

/// Returns a count, or its share of `whole` in per cent; none if `whole` is 0.
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
    /// All operators. `<=` and `>=` come first, because `<` and `>` are prefixes of them.
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

/// The metric of the clause that every service level implies.
const ALTERED: &str = "altered";
/// Upper bound of limits: larger than any count or time of a run, and exact as a floating point number.
const LIMIT_MAX: f64 = 1e15;
const EXCERPT_CHARS_MAX: usize = 48;
