//! The figures of a track, from what a receiver has counted.

use serde::Serialize;

use super::{End, Failure, Phase, TrackReceiver};
use crate::clock::{milliseconds, signed_nanoseconds};
use crate::metrics::TrackPlan;
use crate::profile::Pattern;
use crate::qperf::Wire;
use weir_report::latency::{distribution, quantile_ms};
use weir_report::relay::{Completion, Delivery, ObjectPosition, Progress, Status, Variance};
use weir_report::statistics::Distribution;

/// What one subscriber measured of one track.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrackResult {
    /// Whether the track counts as good.
    pub status: Status,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// How it ended; `None` while it has not.
    pub end: Option<End>,
    /// The draft's Table 3. [evens-00 §5.5.2]
    pub completion: Completion,
    /// The draft's Table 2. [evens-00 §5.5.1]
    pub progress: Progress,
    /// What went wrong on the way.
    pub delivery: Delivery,
    /// Receive variance: drift, quantiles, jitter.
    pub variance: Variance,
    /// Publisher variance as the subscriber heard of it.
    pub publisher_variance: PublisherVariance,
    /// From the planned time to the arrival; `None` if no object carried a tag.
    pub latency: Option<Distribution>,
}

/// How punctual the publisher was by its own messages; decision 19.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PublisherVariance {
    /// Mean with its sign, in milliseconds: above zero, objects were sent after their planned time.
    pub signed_drift_ms: f64,
    /// The largest absolute value, in milliseconds.
    pub max_ms: f64,
}

/// What the publisher sent, by its own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentTotals {
    /// DATA objects.
    pub objects: u64,
    /// Groups that they were in.
    pub groups: u64,
}

impl TrackReceiver {
    /// All figures as they stand. `sent` is the publisher's own count where it is known; it stands
    /// in for a COMPLETION that was not seen, and shows one that is not as it was sent.
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

    /// The figures of the draft's Table 2 as they stand. [evens-00 §5.5.1]
    pub fn progress(&self, plan: &TrackPlan) -> Progress {
        let span = self
            .sequence
            .range()
            .map_or(0, |(lowest, highest)| highest - lowest + 1);
        Progress {
            received_objects: self.sequence.unique(),
            received_groups: self.groups.any(),
            receive_delta_ms: self.arrivals.receive_delta_ms(),
            average_delta_ms: self.arrivals.average_delta_ms(),
            max_delta_ms: self.arrivals.max_delta_ms(),
            publisher_variance_ms: self.punctuality.last_ms(),
            receive_variance_ms: self.arrivals.variance.last_ms(),
            average_bits_per_second: plan.schedule().bits_per_second(self.bytes, span),
        }
    }

    /// Good is a track with START and COMPLETION and without a failure; one that was given up, or
    /// cut off, before COMPLETION is incomplete, and failed if its session was lost or nothing came.
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

    /// Objects and groups sent, by COMPLETION and by the publisher, whichever are more, so that no relay hides a loss behind
    /// a COMPLETION of its own; else as far as was seen.
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

    /// Whether COMPLETION says something else than the publisher, who sends nothing behind it. The older tool's has no
    /// groups.
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
            average_bits_per_second: self.average_bits_per_second(plan, objects),
            expected_bits_per_second: schedule.expected_bits_per_second(objects),
        }
    }

    /// Over the planned time, or over the time that a fetch took (decision 27).
    #[expect(clippy::cast_precision_loss, reason = "a printed figure")]
    fn average_bits_per_second(&self, plan: &TrackPlan, objects: u64) -> f64 {
        let elapsed = self.arrivals.duration();
        if plan.pattern() == Pattern::Fetch && !elapsed.is_zero() {
            return self.bytes as f64 * 8.0 / elapsed.as_secs_f64();
        }
        plan.schedule().bits_per_second(self.bytes, objects)
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

    /// Splits `lost` of `objects` into the parts before the first object received, after the last,
    /// and between them (decision 17). Where the publisher itself left objects out, the parts
    /// between them are fewer than the gaps.
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

    /// One if the publisher stopped within a group and all of it was received, else zero.
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

/// What a publisher says in its COMPLETION, where its own count is known. A track that is fetched is there as a whole, and
/// is sent as often as a relay asks for it.
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
