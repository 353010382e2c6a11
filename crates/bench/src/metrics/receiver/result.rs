//! The metrics of a track, computed from a receiver's counters.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{End, Failure, Phase, TrackReceiver};
use crate::clock::{milliseconds, signed_nanoseconds};
use crate::metrics::TrackPlan;
use crate::profile::Pattern;
use crate::qperf::Wire;
use weir_report::latency::{distribution, quantile_ms};
use weir_report::relay::{Completion, Delivery, ObjectPosition, Progress, Status, Variance};
use weir_report::statistics::Distribution;

/// A subscriber's measurements of one track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrackResult {
    /// Whether the track is good, incomplete or failed.
    pub status: Status,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// How it ended; `None` while it has not.
    pub end: Option<End>,
    /// The draft's Table 3. [evens-00 §5.5.2]
    pub completion: Completion,
    /// The draft's Table 2. [evens-00 §5.5.1]
    pub progress: Progress,
    /// Errors during delivery.
    pub delivery: Delivery,
    /// Receive variance: drift, quantiles, jitter.
    pub variance: Variance,
    /// Publisher variance, as computed from the times in the publisher's messages.
    pub publisher_variance: PublisherVariance,
    /// Latency from the planned time to the arrival; `None` if no object carried a tag.
    pub latency: Option<Distribution>,
}

/// How punctual the publisher was, by the times in its messages (decision 19).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublisherVariance {
    /// Mean of the signed values in milliseconds: above zero, objects were sent after their planned time.
    pub signed_drift_ms: f64,
    /// The largest absolute value, in milliseconds.
    pub max_ms: f64,
}

/// Objects that the publisher sent, by its own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentTotals {
    /// DATA objects.
    pub objects: u64,
    /// Groups of those objects.
    pub groups: u64,
}

impl TrackReceiver {
    /// Returns all metrics so far. `sent` is the publisher's own count if it is known: it replaces a COMPLETION that
    /// did not arrive, and reveals one that was altered.
    pub fn result(&self, plan: &TrackPlan, sent: Option<SentTotals>) -> TrackResult {
        TrackResult {
            status: self.status(),
            failure: self.failure,
            end: self.end_reached(),
            completion: self.completion_figures(plan, sent),
            progress: self.progress(plan),
            delivery: self.delivery(plan, sent),
            variance: self.variance(),
            publisher_variance: PublisherVariance {
                signed_drift_ms: self.punctuality.drift_ms(),
                max_ms: self.punctuality.max_ms(),
            },
            latency: distribution(&self.latency),
        }
    }

    /// Returns the figures of the draft's Table 2 so far. [evens-00 §5.5.1]
    pub fn progress(&self, plan: &TrackPlan) -> Progress {
        Progress {
            received_objects: self.sequence.unique(),
            received_groups: self.groups.any(),
            receive_delta_ms: self.arrivals.receive_delta_ms(),
            average_delta_ms: self.arrivals.average_delta_ms(),
            max_delta_ms: self.arrivals.max_delta_ms(),
            publisher_variance_ms: self.punctuality.last_ms(),
            receive_variance_ms: self.arrivals.variance.last_ms(),
            average_bits_per_second: self.average_bits_per_second(plan),
        }
    }

    /// Returns the track's status. A track with START and COMPLETION and without failure is good. A track that ended
    /// before COMPLETION is incomplete. It is failed if its session was lost or nothing arrived.
    fn status(&self) -> Status {
        if self.failure.is_some() {
            return Status::Failed;
        }
        if self.completion.is_some() {
            return Status::Good;
        }
        match self.end_reached() {
            Some(End::Disconnected) => Status::Failed,
            Some(End::PublishDone | End::Idle) if !self.started => Status::Failed,
            Some(End::Completion | End::PublishDone | End::Idle | End::Interrupted) | None => {
                Status::Incomplete
            }
        }
    }

    fn end_reached(&self) -> Option<End> {
        match self.phase {
            Phase::Open => None,
            Phase::Draining { end, .. } | Phase::Ended(end) => Some(end),
        }
    }

    /// Returns how much was sent: the larger of COMPLETION's count and the publisher's own, so that a relay cannot hide
    /// loss behind an altered COMPLETION. If neither is known, as much as was seen.
    fn totals(&self, plan: &TrackPlan, sent: Option<SentTotals>) -> SentTotals {
        if let Some(completion) = self.completion {
            let published = published(plan, sent).unwrap_or_default();
            return SentTotals {
                objects: completion.objects_sent.max(published.objects),
                groups: completion.groups_sent.max(published.groups),
            };
        }
        sent.unwrap_or_else(|| {
            let objects = self.sequence.range().map_or(0, |(_, highest)| highest + 1);
            SentTotals {
                objects,
                groups: objects.div_ceil(plan.schedule().objects_per_group()),
            }
        })
    }

    /// Whether COMPLETION differs from the publisher's own count. A COMPLETION of qperf does not count groups.
    fn is_completion_altered(&self, plan: &TrackPlan, sent: Option<SentTotals>) -> bool {
        let both = self.completion.zip(published(plan, sent));
        both.is_some_and(|(completion, published)| {
            completion.objects_sent != published.objects
                || plan.wire() == Wire::Draft && completion.groups_sent != published.groups
        })
    }

    fn completion_figures(&self, plan: &TrackPlan, sent: Option<SentTotals>) -> Completion {
        let schedule = plan.schedule();
        let objects = self.totals(plan, sent).objects;
        let received = self.sequence.unique();
        Completion {
            objects_sent: self.completion.map(|completion| completion.objects_sent),
            groups_sent: self.completion.map(|completion| completion.groups_sent),
            objects_received: received,
            groups_received: self.groups.any(),
            lost_objects: objects.saturating_sub(received),
            total_duration_ms: self
                .completion
                .map(|completion| f64::from(completion.total_duration_ms)),
            actual_duration_ms: milliseconds(signed_nanoseconds(self.arrivals.duration())),
            average_receive_variance_ms: self.arrivals.variance.average_ms(),
            average_publisher_variance_ms: self.punctuality.average_ms(),
            average_bits_per_second: self.average_bits_per_second(plan),
            expected_bits_per_second: schedule.expected_bits_per_second(objects),
        }
    }

    /// Returns the payload received over the time that it took: from the first arrival to the last, and the planned time
    /// that the last object stands for (decision 27). A fetched track has no planned times.
    #[expect(clippy::cast_precision_loss, reason = "a printed figure")]
    fn average_bits_per_second(&self, plan: &TrackPlan) -> f64 {
        let Some((lowest, highest)) = self.sequence.range() else {
            return 0.0;
        };
        let schedule = plan.schedule();
        let after_last = match plan.pattern() {
            Pattern::Fetch => Duration::ZERO,
            Pattern::Interval
            | Pattern::Random
            | Pattern::Bursts { .. }
            | Pattern::Pauses { .. }
            | Pattern::HeavyTail => schedule.time_beyond_planned(lowest, highest),
        };
        let elapsed = self.arrivals.duration() + after_last;
        if elapsed.is_zero() {
            return schedule.bits_per_second(self.bytes, highest - lowest + 1);
        }
        self.bytes as f64 * 8.0 / elapsed.as_secs_f64()
    }

    fn delivery(&self, plan: &TrackPlan, sent: Option<SentTotals>) -> Delivery {
        let objects = self.totals(plan, sent).objects;
        let lost = objects.saturating_sub(self.sequence.unique());
        let place = self.place_of_loss(objects, lost);
        let position = |number| {
            let (group, object) = plan.schedule().position_of(number);
            ObjectPosition { group, object }
        };
        Delivery {
            groups_complete: self.groups.complete() + self.shorter_group_complete(plan, objects),
            duplicates: self.counters.duplicates,
            reordered: self.counters.reordered,
            late: self.counters.late,
            cut_by_reset: self.counters.cut_by_reset.min(lost),
            dropped: lost.saturating_sub(self.counters.cut_by_reset),
            malformed: self.counters.malformed,
            corrupt: self.counters.corrupt + u64::from(self.is_completion_altered(plan, sent)),
            misplaced: self.counters.misplaced,
            foreign: self.counters.foreign,
            negative_latencies: self.counters.negative_latencies,
            lost_join: place.join,
            lost_middle: place.middle,
            lost_tail: place.tail,
            first_lost: place.first.map(position),
            first_late: self.counters.first_late.map(position),
        }
    }

    /// Splits `lost` of `objects` into the parts before the first received object, after the last, and between them
    /// (decision 17). If the publisher left objects out, the part between them is smaller than the gaps.
    fn place_of_loss(&self, objects: u64, lost: u64) -> PlaceOfLoss {
        if lost == 0 {
            return PlaceOfLoss::default();
        }
        let Some((lowest, highest)) = self.sequence.range() else {
            return PlaceOfLoss {
                tail: lost,
                first: Some(0),
                ..PlaceOfLoss::default()
            };
        };
        let join = lowest.min(lost);
        let tail = objects.saturating_sub(highest + 1).min(lost - join);
        let first = if lowest > 0 {
            0
        } else {
            self.sequence.first_gap().unwrap_or(highest + 1)
        };
        PlaceOfLoss {
            join,
            middle: lost - join - tail,
            tail,
            first: Some(first),
        }
    }

    /// Returns one if the publisher stopped within a group and all of that group was received, otherwise zero.
    fn shorter_group_complete(&self, plan: &TrackPlan, objects: u64) -> u64 {
        let Some(last) = objects.checked_sub(1) else {
            return 0;
        };
        let (group, object) = plan.schedule().position_of(last);
        let shorter = object + 1 < plan.schedule().objects_in_group(group);
        u64::from(shorter && self.groups.objects_in(group) == object + 1)
    }

    fn variance(&self) -> Variance {
        let absolute = self.arrivals.variance.absolute();
        Variance {
            signed_drift_ms: self.arrivals.variance.drift_ms(),
            p50_ms: quantile_ms(absolute, 0.5),
            p99_ms: quantile_ms(absolute, 0.99),
            max_ms: quantile_ms(absolute, 1.0),
            jitter_rfc3550_ms: self.arrivals.jitter_ms(),
        }
    }
}

/// Returns what the publisher's COMPLETION says, if its own count is known. A fetched track is complete from the start,
/// and the publisher's count includes each fetch.
fn published(plan: &TrackPlan, sent: Option<SentTotals>) -> Option<SentTotals> {
    if plan.pattern() == Pattern::Fetch {
        return sent.map(|_| SentTotals {
            objects: plan.schedule().objects(),
            groups: plan.schedule().groups(),
        });
    }
    sent
}

/// Where objects were lost.
#[derive(Default)]
struct PlaceOfLoss {
    join: u64,
    middle: u64,
    tail: u64,
    /// The number of the first object lost.
    first: Option<u64>,
}
