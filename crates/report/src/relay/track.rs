//! The figures of all tracks of one definition: over all subscribers, and for each subscriber.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conduct::{Conduct, SetApart};
use super::heat_map::HeatMap;
use super::over_time::ProgressSecond;
use super::proof::Fairness;
use crate::form::number;
use crate::latency::Latency;
use crate::statistics::{Count, Distribution, Spread};

/// The figures of all tracks of one definition (a section of the profile).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrackReport {
    /// The definition in the profile.
    pub definition: TrackDefinition,
    /// Objects that the publishers sent.
    pub published: Published,
    /// Number of subscriptions by how they ended.
    pub status: StatusCounts,
    /// Slow and churning subscribers, which all other figures over subscribers leave out.
    pub set_apart: SetApart,
    /// Metrics on completion, over the subscribers (draft-evens-moq-bench-00 §5.5.2, Table 3).
    pub completion: CompletionSummary,
    /// Metrics in progress at the end of the run, over the subscribers (draft-evens-moq-bench-00 §5.5.1, Table 2).
    pub progress: ProgressSummary,
    /// Metrics in progress second by second of arrival, ascending; seconds without an arrival are left out.
    pub progress_per_second: Vec<ProgressSecond>,
    /// Late, lost, reordered, duplicate and altered objects, summed over the subscribers.
    pub delivery: Delivery,
    /// How evenly the relay served the subscribers.
    pub fairness: Fairness,
    /// Deviation of arrivals from the plan, and jitter.
    pub variance: VarianceSummary,
    /// One-way latency, from the planned send time to the arrival of the complete object.
    pub latency: Latency,
    /// Loss and latency by subscriber and time; null without subscribers.
    pub heat: Option<HeatMap>,
    /// Each subscription, ordered by subscriber and then by track name.
    pub subscribers: Vec<SubscriberReport>,
}

impl TrackReport {
    /// Returns true if this process only published the tracks, so figures of subscribers are missing.
    pub(super) fn is_only_published(&self) -> bool {
        self.subscribers.is_empty() && self.published.publishers > 0
    }

    /// Creates the figures of one definition. Those that follow from `subscribers` are computed. `receive_variance` and `latency`
    /// come from merged histograms, which cannot be computed from `subscribers`.
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

/// The settings of a track (draft-evens-moq-bench-00, Table 1 and Appendix A).
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
    /// Mapping of groups to streams, such as `subgroup_per_group`; null for a datagram track.
    pub stream_mapping: Option<String>,
    /// Publisher priority, 0 to 255; lower is sent first.
    pub priority: u8,
    /// Time to live of an object: how long it may wait to be sent.
    pub ttl_ms: u64,
    /// Planned time between objects.
    pub time_interval_ms: f64,
    /// Objects in a group.
    pub objects_per_group: u64,
    /// Payload size of the first object of a group, benchmark header included.
    pub first_object_size_bytes: u64,
    /// Payload size of all other objects, benchmark header included.
    pub object_size_bytes: u64,
    /// Time in which the publisher sends START messages, before the first object.
    pub start_delay_ms: u64,
    /// Duration of start delay and data phase together.
    pub total_transmit_time_ms: u64,
    /// Duration of the data phase.
    pub duration_ms: u64,
}

impl TrackDefinition {
    /// Returns the settings in one line.
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
            "{} {} · {}{mapping} · {size} every {} ms · {group} per group · priority {} · ttl {} ms · {} s, {} s with the \
             start delay",
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

/// Objects that the publishers of one definition sent, by their own count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Publishers of the definition.
    pub publishers: u64,
    /// DATA objects sent, summed over the publishers.
    pub objects: u64,
    /// Groups begun, summed over the publishers.
    pub groups: u64,
    /// Objects that the publisher's connection dropped because their time to live had passed.
    pub expired_objects: u64,
    /// Objects that the publisher's connection dropped because its send queue was full.
    pub crowded_out_objects: u64,
    /// Time from the planned send time of an object until the publisher gave it to the transport; null if none was sent.
    pub lateness: Option<Distribution>,
}

/// How a subscription ended.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The subscriber received START and COMPLETION.
    Good,
    /// The subscriber received START, but the track ended without COMPLETION.
    Incomplete,
    /// The subscription was refused, its session was lost before COMPLETION, or no START arrived before the first object.
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

/// Number of subscriptions by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusCounts {
    /// Good subscriptions: START and COMPLETION arrived.
    pub good: u64,
    /// Incomplete subscriptions: START arrived, but the track ended without COMPLETION.
    pub incomplete: u64,
    /// Failed subscriptions: refused, session lost before COMPLETION, or no START before the first object.
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
    /// Number of the subscriber (connection), from 0; the same on all its tracks.
    pub index: u64,
    /// Full track name in the text form of MOQT.
    pub track_name: String,
    /// Behaviour of the subscriber. Figures over subscribers count only `steady` ones.
    pub conduct: Conduct,
    /// Sessions of the subscriber, one after the other.
    pub sessions: u64,
    /// How the subscription ended.
    pub status: Status,
    /// Why the subscription is not good; null if it is good.
    pub reason: Option<String>,
    /// Metrics on completion (Table 3 of the draft).
    pub completion: Completion,
    /// Metrics in progress at the end of the run (Table 2 of the draft).
    pub progress: Progress,
    /// Late, lost, reordered, duplicate and altered objects.
    pub delivery: Delivery,
    /// Deviation of arrivals from the plan, and jitter.
    pub variance: Variance,
    /// One-way latency from the planned send time; null if no object with a send time arrived.
    pub latency: Option<Distribution>,
    /// Time from the first packet to the end of the QUIC handshake.
    pub handshake_ms: Option<f64>,
    /// Time from the end of the handshake to the relay's SETUP.
    pub setup_ms: Option<f64>,
    /// Time from SUBSCRIBE to the first object, START included.
    pub first_object_ms: Option<f64>,
    /// Time from a joining FETCH to the end of its stream, in the first session that made one.
    pub joining_fetch_ms: Option<f64>,
}

/// The metrics on completion of a track (draft-evens-moq-bench-00 §5.5.2, Table 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// Objects sent, as COMPLETION reported; null if COMPLETION did not arrive.
    pub objects_sent: Option<u64>,
    /// Groups sent, as COMPLETION reported; null if COMPLETION did not arrive.
    pub groups_sent: Option<u64>,
    /// DATA objects received, without duplicates.
    pub objects_received: u64,
    /// Groups of which at least one object was received.
    pub groups_received: u64,
    /// Objects sent minus objects received. Objects sent: the larger of COMPLETION's count and the publisher's own; if
    /// neither is known, the highest received object counts as the last one.
    pub lost_objects: u64,
    /// Duration of the track, as COMPLETION reported; null if COMPLETION did not arrive.
    pub total_duration_ms: Option<f64>,
    /// Time from the first received object to the last.
    pub actual_duration_ms: f64,
    /// Receive variance (time of arrival minus planned time), mean of absolute values.
    pub average_receive_variance_ms: f64,
    /// Publisher variance (time of sending minus planned time), mean of absolute values.
    pub average_publisher_variance_ms: f64,
    /// Payload received, divided by the actual duration and one interval (of a fetch: by the actual duration).
    pub average_bits_per_second: f64,
    /// Payload planned, divided by the planned duration; equal to the average if nothing was lost or delayed.
    pub expected_bits_per_second: f64,
}

/// The metrics on completion over the subscribers. Null: no subscriber measured the quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletionSummary {
    /// Objects sent, over the subscribers that received COMPLETION.
    pub objects_sent: Count,
    /// Groups sent, over the subscribers that received COMPLETION.
    pub groups_sent: Count,
    /// DATA objects received, over all subscribers.
    pub objects_received: Count,
    /// Groups of which at least one object was received, over all subscribers.
    pub groups_received: Count,
    /// Lost objects, over all subscribers.
    pub lost_objects: Count,
    /// Duration of the track, over the subscribers that received COMPLETION and an object.
    pub total_duration_ms: Option<Spread>,
    /// Time from the first received object to the last, over the subscribers that received an object.
    pub actual_duration_ms: Option<Spread>,
    /// Mean absolute receive variance, over the subscribers that received an object.
    pub average_receive_variance_ms: Option<Spread>,
    /// Mean absolute publisher variance, over the subscribers that received an object.
    pub average_publisher_variance_ms: Option<Spread>,
    /// Payload received, divided by the actual duration and one interval, over the subscribers that received an object.
    pub average_bits_per_second: Option<Spread>,
    /// Payload planned, divided by the planned duration, over the subscribers that received an object.
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

/// The metrics in progress of a track, at the end of the run (draft-evens-moq-bench-00 §5.5.1, Table 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Objects received, without duplicates.
    pub received_objects: u64,
    /// Groups of which at least one object was received.
    pub received_groups: u64,
    /// Time between the last two messages; null with fewer than two.
    pub receive_delta_ms: Option<f64>,
    /// Mean time between messages, in the order of arrival; null with fewer than two.
    pub average_delta_ms: Option<f64>,
    /// Longest time between messages, in the order of arrival; null with fewer than two.
    pub max_delta_ms: Option<f64>,
    /// Publisher variance of the last object: time of sending minus planned time.
    pub publisher_variance_ms: f64,
    /// Receive variance of the last object: time of arrival minus planned time.
    pub receive_variance_ms: f64,
    /// Payload received per second.
    pub average_bits_per_second: f64,
}

/// The metrics in progress over the subscribers that received an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgressSummary {
    /// Objects received, without duplicates.
    pub received_objects: Count,
    /// Groups of which at least one object was received.
    pub received_groups: Count,
    /// Time between the last two messages.
    pub receive_delta_ms: Option<Spread>,
    /// Mean time between messages, in the order of arrival.
    pub average_delta_ms: Option<Spread>,
    /// Longest time between messages, in the order of arrival.
    pub max_delta_ms: Option<Spread>,
    /// Publisher variance of the last object: time of sending minus planned time.
    pub publisher_variance_ms: Option<Spread>,
    /// Receive variance of the last object: time of arrival minus planned time.
    pub receive_variance_ms: Option<Spread>,
    /// Payload received per second.
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

/// Counts of complete groups, and of late, lost, reordered, duplicate and altered objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// Groups of which every object arrived.
    pub groups_complete: u64,
    /// Further copies of objects that had arrived.
    pub duplicates: u64,
    /// Objects that arrived after an object with a higher position.
    pub reordered: u64,
    /// Objects that arrived later than their time to live.
    pub late: u64,
    /// Objects lost because their stream was reset: the object at the reset, and those after it.
    pub cut_by_reset: u64,
    /// Objects lost without a stream reset: datagrams that did not arrive, and objects missing in streams.
    pub dropped: u64,
    /// Messages that do not have the form of the benchmark.
    pub malformed: u64,
    /// Objects whose content or extension headers differ from what was sent; duplicates count too.
    pub corrupt: u64,
    /// Objects with another group or object number than they were sent with; duplicates count too.
    pub misplaced: u64,
    /// Objects of another run, by the run number in their payload. No other figure counts them.
    pub foreign: u64,
    /// Objects that arrived before they were sent, because two clocks disagree. Their latency counts as 0.
    pub negative_latencies: u64,
    /// Objects lost before the first received object.
    pub lost_join: u64,
    /// Objects lost between the first and the last received object.
    pub lost_middle: u64,
    /// Objects lost after the last received object; all objects if none was received.
    pub lost_tail: u64,
    /// Position of the first lost object; over several subscribers, the lowest. Null if none was lost.
    pub first_lost: Option<ObjectPosition>,
    /// Position of the first late object; over several subscribers, the lowest. Null if none was late.
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

/// The position of an object in its track, by the benchmark's own numbers, which start at 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct ObjectPosition {
    /// Number of the group.
    pub group: u64,
    /// Number of the object within the group.
    pub object: u64,
}

/// Receive variance of one subscriber (time of arrival minus planned time), and jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variance {
    /// Mean receive variance with its sign: above 0 if arrivals fell behind the plan.
    pub signed_drift_ms: f64,
    /// Median of absolute receive variance.
    pub p50_ms: f64,
    /// 99th percentile of absolute receive variance.
    pub p99_ms: f64,
    /// Maximum of absolute receive variance.
    pub max_ms: f64,
    /// Interarrival jitter at the end of the track (RFC 3550 §6.4.1).
    pub jitter_rfc3550_ms: f64,
}

/// Receive variance and jitter over the subscribers that received an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VarianceSummary {
    /// Mean receive variance of each subscriber, with its sign.
    pub signed_drift_ms: Option<Spread>,
    /// Interarrival jitter of each subscriber at the end of the track (RFC 3550 §6.4.1).
    pub jitter_rfc3550_ms: Option<Spread>,
    /// Absolute receive variance of all objects of all subscribers; null if none was received.
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

/// Returns the subscribers that received an object.
fn receivers(subscribers: &[SubscriberReport]) -> impl Iterator<Item = &SubscriberReport> {
    subscribers
        .iter()
        .filter(|subscriber| subscriber.completion.objects_received > 0)
}
