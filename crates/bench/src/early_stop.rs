//! Ends a run early when a clause of its service level cannot hold any more.
//!
//! For searches, in which a load far above the limit would otherwise cost as much time as one close to it. A run that was
//! ended early is partial, and never counts as passed.

use std::time::{Duration, Instant};

use crate::clock::nanoseconds;
use crate::metrics::TrackPlan;
use crate::profile::Pattern;
use crate::subscriber::SubscriberRole;
use weir_report::service_level::{JudgedClause, Midway, ServiceLevel};

/// Watches the subscribers of a run for clauses that cannot hold any more.
#[derive(Clone, Debug)]
pub struct EarlyStop {
    level: ServiceLevel,
    /// The beginning of the data phase that is not judged.
    unjudged: Duration,
    begun: Option<Begun>,
}

/// What is known once the schedules have begun.
#[derive(Clone, Debug)]
struct Begun {
    tracks: Vec<Due>,
    /// Latency counts from here on, by whole windows.
    judged_from: Instant,
    /// Nothing but failures is judged before.
    evidence_from: Instant,
}

/// What the subscribers of one plan are due.
#[derive(Clone, Debug)]
struct Due {
    plan: usize,
    data_from: Instant,
    /// After which an object that has not arrived is not waited for.
    drain: Duration,
    column: Duration,
    /// The first column that is judged.
    first: usize,
    /// Objects by columns of planned time, at all subscriptions.
    objects: Vec<u64>,
}

impl EarlyStop {
    /// Judges by `level`; the first `unjudged` of the data phase does not count.
    pub fn new(level: ServiceLevel, unjudged: Duration) -> Self {
        Self {
            level,
            unjudged,
            begun: None,
        }
    }

    /// The schedules begin now.
    pub fn on_released(&mut self, now: Instant, subscribers: &SubscriberRole) {
        let plans = subscribers.plans().iter().enumerate();
        // What is fetched is due when it comes.
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

    /// The clauses that cannot hold any more. If there is one, the run is not worth going on with.
    pub fn look(&self, now: Instant, subscribers: &SubscriberRole) -> Vec<JudgedClause> {
        let Some(begun) = &self.begun else {
            return Vec::new();
        };
        let (failed, subscriptions) = subscribers.failed_subscriptions();
        let mut midway = Midway {
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
            midway.overdue_objects = overdue.sum();
            midway.latency = subscribers.latency_from(begun.judged_from);
        }
        self.level.hopeless(&midway)
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

    /// Objects of whole columns that are not waited for any more, and have not arrived.
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

/// How long a run is judged before it is given up for loss or latency: long enough to see whether the generator keeps up.
const EVIDENCE_MIN: Duration = Duration::from_secs(2);
