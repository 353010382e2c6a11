//! What was measured on the tracks of one definition: all subscribers together, and each alone.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::heat_map::HeatMap;
use super::over_time::ProgressSecond;
use super::proof::Fairness;
use crate::form::number;
use crate::latency::Latency;
use crate::statistics::{Count, Distribution, Spread};

/// All that was measured on the tracks of one definition (one section of the profile).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrackReport {
    /// What the profile asked for.
    pub definition: TrackDefinition,
    /// What the publishers did.
    pub published: Published,
    /// How the subscribers ended.
    pub status: StatusCounts,
    /// The subscribers that figures over subscribers leave out.
    pub set_apart: SetApart,
    /// Table 3 of draft-evens-moq-bench-00 §5.5.2 over the subscribers.
    pub completion: CompletionSummary,
    /// Table 2 of draft-evens-moq-bench-00 §5.5.1 over the subscribers, as it stood at the end.
    pub progress: ProgressSummary,
    /// Table 2 second by second of arrival, ascending; seconds without an arrival are left out.
    pub progress_per_second: Vec<ProgressSecond>,
    /// Irregularities of the delivery, summed over the subscribers.
    pub delivery: Delivery,
    /// Whether the subscribers were served alike.
    pub fairness: Fairness,
    /// Steadiness of the arrival.
    pub variance: VarianceSummary,
    /// One-way latency from the *planned* send time to the arrival of the whole object.
    pub latency: Latency,
    /// Loss and latency by subscriber and time; none without a subscriber.
    pub heat: Option<HeatMap>,
    /// Each subscription by itself, by index and then by track name.
    pub subscribers: Vec<SubscriberReport>,
}

impl TrackReport {
    /// Makes the report of one definition; everything that follows from `subscribers` is computed.
    ///
    /// `receive_variance` and `latency` come from merged histograms, which rows of figures cannot give.
    pub fn new(
        definition: TrackDefinition,
        published: Published,
        receive_variance: Option<Distribution>,
        latency: Latency,
        progress_per_second: Vec<ProgressSecond>,
        heat: Option<HeatMap>,
        subscribers: Vec<SubscriberReport>,
    ) -> Self {
        let is_steady = |one: &&SubscriberReport| one.conduct == Conduct::Steady;
        let steady: Cow<'_, [SubscriberReport]> = if subscribers.iter().all(|one| is_steady(&one)) {
            Cow::Borrowed(&subscribers)
        } else {
            subscribers.iter().filter(is_steady).cloned().collect()
        };
        Self {
            status: StatusCounts::over(&steady),
            set_apart: SetApart::over(&subscribers),
            completion: CompletionSummary::over(&steady),
            progress: ProgressSummary::over(&steady),
            delivery: Delivery::over(&steady),
            fairness: Fairness::over(&steady),
            variance: VarianceSummary::over(receive_variance, &steady),
            progress_per_second,
            heat,
            definition,
            published,
            latency,
            subscribers,
        }
    }
}

/// How one subscriber behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Conduct {
    /// It stays, and reads what comes.
    #[default]
    Steady,
    /// It reads now and then only.
    SlowReader,
    /// It leaves and comes back with a new session.
    Churning,
}

impl Conduct {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::SlowReader => "slow_reader",
            Self::Churning => "churning",
        }
    }
}

/// The subscribers that read slowly or came and went on purpose. What they lost is their own doing; what matters is
/// whether the others noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetApart {
    /// Subscribers that read now and then only.
    pub slow_readers: u64,
    /// Subscribers that left and came back.
    pub churning: u64,
    /// Sessions of all these.
    pub sessions: u64,
    /// Objects that they received.
    pub objects_received: u64,
    /// Objects that they missed.
    pub lost_objects: u64,
    /// Of those, the ones that were lost to the reset of a stream.
    pub cut_by_reset: u64,
}

impl SetApart {
    fn over(subscribers: &[SubscriberReport]) -> Self {
        let mut apart = Self::default();
        for one in subscribers {
            match one.conduct {
                Conduct::Steady => continue,
                Conduct::SlowReader => apart.slow_readers += 1,
                Conduct::Churning => apart.churning += 1,
            }
            apart.sessions += one.sessions;
            apart.objects_received += one.completion.objects_received;
            apart.lost_objects += one.completion.lost_objects;
            apart.cut_by_reset += one.delivery.cut_by_reset;
        }
        apart
    }

    /// Whether there are any.
    pub fn is_anybody(&self) -> bool {
        self.slow_readers + self.churning > 0
    }
}

/// A track's settings, as in Table 1 and Appendix A of draft-evens-moq-bench-00.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrackDefinition {
    /// Name of the profile's section.
    pub section: String,
    /// Namespace as written in the profile, placeholders included.
    pub namespace: String,
    /// Track name as written in the profile, placeholders included.
    pub name: String,
    /// `datagram` or `stream`.
    pub track_mode: String,
    /// How groups map to streams, such as `subgroup_per_group`; none on a datagram track.
    pub stream_mapping: Option<String>,
    /// Publisher priority; lower is sent first.
    pub priority: u8,
    /// How long an object may wait to be sent.
    pub ttl_ms: u64,
    /// Planned time between objects.
    pub time_interval_ms: f64,
    /// Objects in a group.
    pub objects_per_group: u64,
    /// Size of a group's first object, benchmark header included.
    pub first_object_size_bytes: u64,
    /// Size of the other objects, benchmark header included.
    pub object_size_bytes: u64,
    /// Time of START messages before the first object.
    pub start_delay_ms: u64,
    /// Start delay and data phase together.
    pub total_transmit_time_ms: u64,
    /// The data phase alone.
    pub duration_ms: u64,
}

impl TrackDefinition {
    /// A track's settings in one line.
    pub(super) fn in_words(&self) -> String {
        let (first, other) = (self.first_object_size_bytes, self.object_size_bytes);
        let group = number::counted(self.objects_per_group, "object");
        let size = if first == other || self.objects_per_group < 2 {
            format!("{} bytes", number::count(first))
        } else {
            format!(
                "{} bytes, first of a group {}",
                number::count(other),
                number::count(first)
            )
        };
        let mapping = self
            .stream_mapping
            .as_ref()
            .map_or_else(String::new, |name| format!(", {}", name.replace('_', " ")));
        let seconds = |ms| number::plain(std::time::Duration::from_millis(ms).as_secs_f64());
        format!(
            "{} {} · {}{mapping} · {size} every {} ms · {group} per group · priority {} · ttl {} ms · {} s, with the start delay {} s",
            self.namespace,
            self.name,
            self.track_mode,
            number::plain(self.time_interval_ms),
            self.priority,
            number::count(self.ttl_ms),
            seconds(self.duration_ms),
            seconds(self.total_transmit_time_ms),
        )
    }
}

/// What the publishers of one definition did, by their own count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Publishers of the definition.
    pub publishers: u64,
    /// DATA objects sent, over the publishers.
    pub objects: u64,
    /// Groups begun, over the publishers.
    pub groups: u64,
    /// Objects that the publishers themselves dropped, because their time to live had passed.
    pub expired_objects: u64,
    /// Objects that the publishers themselves dropped, because too much waited to be sent.
    pub crowded_out_objects: u64,
    /// How long after its planned time each object was handed to the transport.
    pub lateness: Option<Distribution>,
}

/// How a subscription ended.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// START and COMPLETION were seen.
    Good,
    /// Data came, but COMPLETION never did.
    Incomplete,
    /// No START was seen, the subscription was refused, or the session was lost.
    Failed,
}

impl Status {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

/// How many subscriptions ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusCounts {
    /// Those that ended [`Status::Good`].
    pub good: u64,
    /// Those that ended [`Status::Incomplete`].
    pub incomplete: u64,
    /// Those that ended [`Status::Failed`].
    pub failed: u64,
}

impl StatusCounts {
    fn over(subscribers: &[SubscriberReport]) -> Self {
        let mut counts = Self::default();
        for subscriber in subscribers {
            match subscriber.status {
                Status::Good => counts.good += 1,
                Status::Incomplete => counts.incomplete += 1,
                Status::Failed => counts.failed += 1,
            }
        }
        counts
    }
}

/// One subscription: one subscriber on one track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriberReport {
    /// Which subscriber (connection), from 0; the same on every track that it receives.
    pub index: u64,
    /// The full track name in MOQT's text form.
    pub track_name: String,
    /// How it behaved: figures over subscribers leave all but the steady ones out.
    pub conduct: Conduct,
    /// Sessions that it had open, one after the other.
    pub sessions: u64,
    /// How it ended.
    pub status: Status,
    /// Why it did not end well; none if it did.
    pub reason: Option<String>,
    /// Table 3 of the draft.
    pub completion: Completion,
    /// Table 2 of the draft, as it stood at the end.
    pub progress: Progress,
    /// Irregularities of the delivery.
    pub delivery: Delivery,
    /// Steadiness of the arrival.
    pub variance: Variance,
    /// One-way latency from the planned send time; none if nothing arrived.
    pub latency: Option<Distribution>,
    /// From the first packet to a connected transport.
    pub handshake_ms: Option<f64>,
    /// From the connected transport to the peer's SETUP.
    pub setup_ms: Option<f64>,
    /// From SUBSCRIBE to the first object of any kind.
    pub first_object_ms: Option<f64>,
}

/// The metrics at the end of a track, draft-evens-moq-bench-00 Table 3 (§5.5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// Objects that the publisher's COMPLETION reported; none if it was not seen.
    pub objects_sent: Option<u64>,
    /// Groups that the publisher's COMPLETION reported; none if it was not seen.
    pub groups_sent: Option<u64>,
    /// Different DATA objects received.
    pub objects_received: u64,
    /// Groups of which any object was received.
    pub groups_received: u64,
    /// Objects sent less objects received; without COMPLETION the publisher's own count stands in.
    pub lost_objects: u64,
    /// Duration that the publisher's COMPLETION reported; none if it was not seen.
    pub total_duration_ms: Option<f64>,
    /// From the first object received to the last.
    pub actual_duration_ms: f64,
    /// Mean absolute receive variance.
    pub average_receive_variance_ms: f64,
    /// Mean absolute publisher variance.
    pub average_publisher_variance_ms: f64,
    /// Payload received over the actual duration and one interval.
    pub average_bits_per_second: f64,
    /// Payload planned over the planned time of the objects; equal to the average if nothing is lost or delayed.
    pub expected_bits_per_second: f64,
}

/// [`Completion`] over the subscribers; a quantity that no subscriber has is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletionSummary {
    /// Over the subscribers that saw COMPLETION.
    pub objects_sent: Count,
    /// Over the subscribers that saw COMPLETION.
    pub groups_sent: Count,
    /// Over all subscribers.
    pub objects_received: Count,
    /// Over all subscribers.
    pub groups_received: Count,
    /// Over all subscribers.
    pub lost_objects: Count,
    /// Over the subscribers that saw COMPLETION.
    pub total_duration_ms: Option<Spread>,
    /// Over the subscribers that received an object, as for all below.
    pub actual_duration_ms: Option<Spread>,
    /// Mean absolute receive variance.
    pub average_receive_variance_ms: Option<Spread>,
    /// Mean absolute publisher variance.
    pub average_publisher_variance_ms: Option<Spread>,
    /// Payload received over the actual duration and one interval.
    pub average_bits_per_second: Option<Spread>,
    /// Payload planned over the planned time of the objects.
    pub expected_bits_per_second: Option<Spread>,
}

impl CompletionSummary {
    fn over(subscribers: &[SubscriberReport]) -> Self {
        let count = |pick: fn(&Completion) -> Option<u64>| {
            Count::over(
                subscribers
                    .iter()
                    .filter_map(|subscriber| pick(&subscriber.completion)),
            )
        };
        let spread = |pick: fn(&Completion) -> Option<f64>| {
            Spread::over(receivers(subscribers).filter_map(|one| pick(&one.completion)))
        };
        Self {
            objects_sent: count(|one| one.objects_sent),
            groups_sent: count(|one| one.groups_sent),
            objects_received: count(|one| Some(one.objects_received)),
            groups_received: count(|one| Some(one.groups_received)),
            lost_objects: count(|one| Some(one.lost_objects)),
            total_duration_ms: spread(|one| one.total_duration_ms),
            actual_duration_ms: spread(|one| Some(one.actual_duration_ms)),
            average_receive_variance_ms: spread(|one| Some(one.average_receive_variance_ms)),
            average_publisher_variance_ms: spread(|one| Some(one.average_publisher_variance_ms)),
            average_bits_per_second: spread(|one| Some(one.average_bits_per_second)),
            expected_bits_per_second: spread(|one| Some(one.expected_bits_per_second)),
        }
    }
}

/// The metrics while a track is in progress, draft-evens-moq-bench-00 Table 2 (§5.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Objects received so far, duplicates left out.
    pub received_objects: u64,
    /// Groups received so far, in any part.
    pub received_groups: u64,
    /// Between the last two messages; none before the second.
    pub receive_delta_ms: Option<f64>,
    /// Mean time between messages in the order of their arrival; none before the second.
    pub average_delta_ms: Option<f64>,
    /// Longest time between messages in the order of their arrival; none before the second.
    pub max_delta_ms: Option<f64>,
    /// The last object's time of sending against its plan, with its sign.
    pub publisher_variance_ms: f64,
    /// The last object's time of arrival against its plan, with its sign.
    pub receive_variance_ms: f64,
    /// Bits per second received so far.
    pub average_bits_per_second: f64,
}

/// [`Progress`] over the subscribers that received an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgressSummary {
    /// Objects received, duplicates left out.
    pub received_objects: Count,
    /// Groups received, in any part.
    pub received_groups: Count,
    /// Between the last two messages.
    pub receive_delta_ms: Option<Spread>,
    /// Mean time between messages in the order of their arrival.
    pub average_delta_ms: Option<Spread>,
    /// Longest time between messages in the order of their arrival.
    pub max_delta_ms: Option<Spread>,
    /// The last object's time of sending against its plan, with its sign.
    pub publisher_variance_ms: Option<Spread>,
    /// The last object's time of arrival against its plan, with its sign.
    pub receive_variance_ms: Option<Spread>,
    /// Bits per second received.
    pub average_bits_per_second: Option<Spread>,
}

impl ProgressSummary {
    fn over(subscribers: &[SubscriberReport]) -> Self {
        let spread = |pick: fn(&Progress) -> Option<f64>| {
            Spread::over(receivers(subscribers).filter_map(|one| pick(&one.progress)))
        };
        Self {
            received_objects: Count::over(
                receivers(subscribers).map(|one| one.progress.received_objects),
            ),
            received_groups: Count::over(
                receivers(subscribers).map(|one| one.progress.received_groups),
            ),
            receive_delta_ms: spread(|one| one.receive_delta_ms),
            average_delta_ms: spread(|one| one.average_delta_ms),
            max_delta_ms: spread(|one| one.max_delta_ms),
            publisher_variance_ms: spread(|one| Some(one.publisher_variance_ms)),
            receive_variance_ms: spread(|one| Some(one.receive_variance_ms)),
            average_bits_per_second: spread(|one| Some(one.average_bits_per_second)),
        }
    }
}

/// Irregularities of a delivery, each counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// Groups of which every object arrived.
    pub groups_complete: u64,
    /// Objects that arrived again.
    pub duplicates: u64,
    /// Objects that arrived after one with a higher position.
    pub reordered: u64,
    /// Objects that arrived later than their time to live.
    pub late: u64,
    /// Objects lost because a stream was reset: they were cut short, or stood behind such a one.
    pub cut_by_reset: u64,
    /// Objects lost without any word of it: datagrams that did not arrive, and objects left out.
    pub dropped: u64,
    /// Messages that are none of the benchmark's.
    pub malformed: u64,
    /// Objects with other content, or other extension headers, than were sent; copies count too.
    pub corrupt: u64,
    /// Objects under another group or object number than they were sent with; copies count too.
    pub misplaced: u64,
    /// Objects of other runs; they measure nothing.
    pub foreign: u64,
    /// Objects that arrived before they were sent, by two clocks that disagree; their latency counts as zero.
    pub negative_latencies: u64,
    /// Lost before the first object received.
    pub lost_join: u64,
    /// Lost between the first and the last object received.
    pub lost_middle: u64,
    /// Lost after the last object received; everything, where nothing was received.
    pub lost_tail: u64,
    /// The first object lost; over subscribers, the lowest position of any.
    pub first_lost: Option<ObjectPosition>,
    /// The first object that came later than its time to live; over subscribers, the lowest position of any.
    pub first_late: Option<ObjectPosition>,
}

impl Delivery {
    fn over(subscribers: &[SubscriberReport]) -> Self {
        let sum = |pick: fn(&Self) -> u64| subscribers.iter().map(|one| pick(&one.delivery)).sum();
        let first = |pick: fn(&Self) -> Option<ObjectPosition>| {
            subscribers
                .iter()
                .filter_map(|one| pick(&one.delivery))
                .min()
        };
        Self {
            groups_complete: sum(|one| one.groups_complete),
            duplicates: sum(|one| one.duplicates),
            reordered: sum(|one| one.reordered),
            late: sum(|one| one.late),
            cut_by_reset: sum(|one| one.cut_by_reset),
            dropped: sum(|one| one.dropped),
            malformed: sum(|one| one.malformed),
            corrupt: sum(|one| one.corrupt),
            misplaced: sum(|one| one.misplaced),
            foreign: sum(|one| one.foreign),
            negative_latencies: sum(|one| one.negative_latencies),
            lost_join: sum(|one| one.lost_join),
            lost_middle: sum(|one| one.lost_middle),
            lost_tail: sum(|one| one.lost_tail),
            first_lost: first(|one| one.first_lost),
            first_late: first(|one| one.first_late),
        }
    }
}

/// Where an object stands in a track, by the benchmark's own numbers, which start at 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct ObjectPosition {
    /// Number of the group.
    pub group: u64,
    /// Number of the object in its group.
    pub object: u64,
}

/// Steadiness of one subscriber's arrivals; its absolute values unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variance {
    /// Mean receive variance with its sign: above zero, the arrivals fell behind the plan.
    pub signed_drift_ms: f64,
    /// Half of the objects vary by at most this.
    pub p50_ms: f64,
    /// Ninety-nine in a hundred objects vary by at most this.
    pub p99_ms: f64,
    /// The largest.
    pub max_ms: f64,
    /// Interarrival jitter as RFC 3550 §6.4.1 smooths it, at the end.
    pub jitter_rfc3550_ms: f64,
}

/// [`Variance`] over the subscribers that received an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VarianceSummary {
    /// Mean receive variance with its sign.
    pub signed_drift_ms: Option<Spread>,
    /// Interarrival jitter of RFC 3550.
    pub jitter_rfc3550_ms: Option<Spread>,
    /// Absolute receive variance over all objects of all subscribers.
    pub receive: Option<Distribution>,
}

impl VarianceSummary {
    fn over(receive: Option<Distribution>, subscribers: &[SubscriberReport]) -> Self {
        let spread = |pick: fn(&Variance) -> f64| {
            Spread::over(receivers(subscribers).map(|one| pick(&one.variance)))
        };
        Self {
            signed_drift_ms: spread(|one| one.signed_drift_ms),
            jitter_rfc3550_ms: spread(|one| one.jitter_rfc3550_ms),
            receive,
        }
    }
}

/// The subscribers whose figures mean something: those that received an object.
fn receivers(subscribers: &[SubscriberReport]) -> impl Iterator<Item = &SubscriberReport> {
    subscribers
        .iter()
        .filter(|subscriber| subscriber.completion.objects_received > 0)
}
