//! Early stop: ends a run as soon as a clause of its service level is certain to fail.
//!
//! A search uses this to give up quickly on a load far above the limit. A run that was stopped early is partial, and
//! never counts as passed.

use std::time::{Duration, Instant};

use crate::clock::nanoseconds;
use crate::metrics::TrackPlan;
use crate::profile::Pattern;
use crate::subscriber::SubscriberRole;
use weir_report::service_level::MeasuredSoFar;

/// Watches the subscribers of a run, or of a part of it, for what makes a clause certain to fail.
#[derive(Clone, Debug)]
pub struct EarlyStop {
    /// The first part of the data phase, which is not judged.
    unjudged: Duration,
    begun: Option<Begun>,
}

/// The state that is known once the schedules have begun.
#[derive(Clone, Debug)]
struct Begun {
    tracks: Vec<Due>,
    /// The instant from which latency is judged, in whole windows.
    judged_from: Instant,
    /// The instant before which only failed subscriptions can stop the run.
    evidence_from: Instant,
}

/// The objects that the subscribers of one plan are due.
#[derive(Clone, Debug)]
struct Due {
    plan: usize,
    data_from: Instant,
    /// How long after its planned time an object still counts as under way.
    drain: Duration,
    column: Duration,
    /// The first column that is judged.
    first: usize,
    /// Objects at all subscriptions, by column of planned time.
    objects: Vec<u64>,
}

impl EarlyStop {
    /// Returns an early stop. The first `unjudged` of the data phase does not count.
    pub fn new(unjudged: Duration) -> Self {
        Self {
            unjudged,
            begun: None,
        }
    }

    /// Starts watching: the schedules begin at `now`.
    pub fn on_released(&mut self, now: Instant, subscribers: &SubscriberRole) {
        let plans = subscribers.plans().iter().enumerate();
        // A fetched track has no planned times.
        let scheduled = plans.filter(|(_, plan)| plan.pattern() != Pattern::Fetch);
        let tracks: Vec<Due> = scheduled
            .map(|(number, plan)| Due::new(now, number, plan, self.unjudged, subscribers))
            .collect();
        let data_from = tracks.iter().map(|track| track.data_from).max();
        let judged_from = data_from.unwrap_or(now) + self.unjudged;
        self.begun = Some(Begun {
            tracks,
            judged_from,
            evidence_from: judged_from + EVIDENCE_MIN,
        });
    }

    /// Returns the figures so far, for [`ServiceLevel::clearly_broken`](weir_report::service_level::ServiceLevel). Those of
    /// several parts add up. `None` before the schedules begin.
    pub fn look(&self, now: Instant, subscribers: &SubscriberRole) -> Option<MeasuredSoFar> {
        let begun = self.begun.as_ref()?;
        let (failed, subscriptions) = subscribers.failed_subscriptions();
        let mut so_far = MeasuredSoFar {
            expected_objects: begun.tracks.iter().map(Due::expected).sum(),
            overdue_objects: 0,
            failed,
            subscriptions,
            latency: weir_histogram::Histogram::new(),
        };
        if now >= begun.evidence_from {
            let overdue = begun
                .tracks
                .iter()
                .map(|track| track.overdue(now, subscribers));
            so_far.overdue_objects = overdue.sum();
            so_far.latency = subscribers.latency_from(begun.judged_from);
        }
        Some(so_far)
    }
}

impl Due {
    fn new(
        now: Instant,
        number: usize,
        plan: &TrackPlan,
        unjudged: Duration,
        subscribers: &SubscriberRole,
    ) -> Self {
        let (heat, schedule) = (subscribers.heat(number), plan.schedule());
        let subscriptions = subscribers.steady_subscriptions(number);
        let planned = heat.planned(schedule, schedule.objects());
        Self {
            plan: number,
            data_from: now + schedule.object_at(0),
            drain: plan.drain(),
            column: Duration::from_nanos(heat.column_ns()),
            first: heat.column_from(nanoseconds(unjudged)),
            objects: planned
                .into_iter()
                .map(|objects| objects.saturating_mul(subscriptions))
                .collect(),
        }
    }

    fn expected(&self) -> u64 {
        self.objects.iter().skip(self.first).sum()
    }

    /// Counts the objects of whole columns that have not arrived and whose drain is over.
    fn overdue(&self, now: Instant, subscribers: &SubscriberRole) -> u64 {
        let elapsed = now.saturating_duration_since(self.data_from + self.drain);
        let columns = nanoseconds(elapsed) / nanoseconds(self.column).max(1);
        let end = usize::try_from(columns).unwrap_or(usize::MAX);
        let end = end
            .min(self.objects.len())
            .max(self.first.min(self.objects.len()));
        let first = self.first.min(end);
        let due: u64 = self.objects[first..end].iter().sum();
        due.saturating_sub(subscribers.heat(self.plan).received_in(first..end))
    }
}

/// The shortest time that a run is judged before loss or latency can stop it: long enough to see whether the generator
/// keeps up.
const EVIDENCE_MIN: Duration = Duration::from_secs(2);
