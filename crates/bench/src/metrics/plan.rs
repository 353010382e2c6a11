//! What is known of a track before anything is sent.

use std::time::Duration;

use weir_moqt::property::Properties;

use super::SentTotals;
use crate::clock::RunClock;
use crate::limits::DRAIN_MIN;
use crate::payload::{Content, extension_headers};
use crate::profile::{Pattern, StreamMapping, TrackMode, TrackProfile};
use crate::qperf::Wire;
use crate::schedule::Schedule;

/// One track as its publisher and all of its subscribers expect it; they share one.
#[derive(Clone, Debug)]
pub struct TrackPlan {
    schedule: Schedule,
    track_mode: TrackMode,
    ttl: Duration,
    late_join: bool,
    priority: u8,
    run_id: u64,
    clock: RunClock,
    content: Content,
    stream_mapping: StreamMapping,
    pattern: Pattern,
    properties: Properties,
    wire: Wire,
}

impl TrackPlan {
    /// The plan of track `number` of its profile in run `run_id`, whose times are those of `clock`.
    pub fn new(track: &TrackProfile, number: u64, run_id: u64, clock: RunClock) -> Self {
        let seed = run_id.wrapping_add(number);
        let schedule = Schedule::new(track, 0).seeded(seed);
        let content_bytes = schedule.largest_object().data_length();
        let headers = track.extension_headers;
        Self {
            schedule,
            track_mode: track.track_mode,
            ttl: track.ttl,
            late_join: track.late_join,
            priority: track.priority,
            run_id,
            clock,
            content: Content::new(seed, content_bytes),
            stream_mapping: track.stream_mapping,
            pattern: track.pattern,
            properties: extension_headers(headers.count, headers.size, seed),
            wire: Wire::Draft,
        }
    }

    /// The plan with messages of that form.
    #[must_use]
    pub fn on(self, wire: Wire) -> Self {
        let schedule = self.schedule.on(wire);
        let content = match wire {
            Wire::Draft => self.content,
            Wire::Qperf => Content::of_qperf(schedule.largest_object().data_length()),
        };
        Self {
            schedule,
            content,
            wire,
            ..self
        }
    }

    /// How messages look.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// What is sent when.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// How objects travel.
    pub fn track_mode(&self) -> TrackMode {
        self.track_mode
    }

    /// Which stream an object travels on.
    pub fn stream_mapping(&self) -> StreamMapping {
        self.stream_mapping
    }

    /// When objects are due.
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// The extension headers of every object, which a relay must not change.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// How long an object may wait to be sent; one that arrives later than that is late.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether a subscriber that saw no START is served all the same.
    pub fn late_join(&self) -> bool {
        self.late_join
    }

    /// MOQT's publisher priority: lower is sent first.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// The content of every object, the same for all publishers and subscribers of the run.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// What tells this run's objects from those of another.
    pub fn run_id(&self) -> u64 {
        self.run_id
    }

    /// The clock of the times that travel with objects.
    pub fn clock(&self) -> &RunClock {
        &self.clock
    }

    /// What one subscriber can miss of what the publisher has sent. Where the track is fetched, the publisher counts what
    /// it sent to all who fetch, and none of them is owed more than the whole of it once.
    pub fn sent_to_one(&self, sent: SentTotals) -> SentTotals {
        match self.pattern {
            Pattern::Fetch => SentTotals {
                objects: sent.objects.min(self.schedule.objects()),
                groups: sent.groups.min(self.schedule.groups()),
            },
            Pattern::Interval | Pattern::Random | Pattern::Bursts { .. } => sent,
        }
    }

    /// How long stragglers are waited for at the end (decision 13).
    pub fn drain(&self) -> Duration {
        self.ttl.max(DRAIN_MIN)
    }

    /// After how long without an object a started track is given up (decision 14).
    pub fn idle_timeout(&self) -> Duration {
        let interval = self.schedule.longest_gap();
        IDLE_MIN.max(self.ttl) + self.schedule.object_at(0).max(interval * 2)
    }
}

/// Longer than the pauses that a busy relay makes.
const IDLE_MIN: Duration = Duration::from_secs(5);
