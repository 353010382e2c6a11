//! The plan of a track, which publisher and subscribers know in advance.

use std::time::Duration;

use weir_moqt::property::Properties;

use super::SentTotals;
use crate::clock::RunClock;
use crate::limits::DRAIN_MIN;
use crate::payload::{Content, extension_headers};
use crate::profile::{Pattern, StreamMapping, TrackMode, TrackProfile};
use crate::qperf::Wire;
use crate::schedule::Schedule;

/// The plan of one track, shared by its publisher and its subscribers.
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
    fetch_groups: Option<u64>,
    joining_fetch: Option<u64>,
    properties: Properties,
    wire: Wire,
}

impl TrackPlan {
    /// Returns the plan of track `number` of its profile in run `run_id`, with times by `clock`.
    pub fn new(track: &TrackProfile, number: u64, run_id: u64, clock: RunClock) -> Self {
        let seed = run_id.wrapping_add(number);
        let schedule = Schedule::new(track, 0).seeded(track, seed);
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
            fetch_groups: track.fetch_groups.map(|groups| groups.count().into()),
            joining_fetch: track.joining_fetch.map(u64::from),
            properties: extension_headers(headers.count, headers.size, seed),
            wire: Wire::Draft,
        }
    }

    /// Returns the plan with messages in the form `wire`.
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

    /// Returns the form of the messages.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// Returns the schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns how objects travel.
    pub fn track_mode(&self) -> TrackMode {
        self.track_mode
    }

    /// Returns how objects map to streams.
    pub fn stream_mapping(&self) -> StreamMapping {
        self.stream_mapping
    }

    /// Returns when objects are due.
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// Returns the groups that one FETCH asks for; `None` if it asks for all.
    pub fn fetch_groups(&self) -> Option<u64> {
        self.fetch_groups
    }

    /// Returns the groups before the current one that a joining subscriber fetches; `None` if it fetches nothing.
    pub fn joining_fetch(&self) -> Option<u64> {
        self.joining_fetch
    }

    /// Returns the extension headers of every object, which a relay must not change.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns how long an object may wait to be sent. An object with a larger latency counts as late.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether a subscriber that saw no START is measured nevertheless (decision 15).
    pub fn late_join(&self) -> bool {
        self.late_join
    }

    /// Returns MOQT's publisher priority: a lower number is sent first.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// Returns the content of every object, the same for all publishers and subscribers of the run.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the number that tells this run's objects from those of another run.
    pub fn run_id(&self) -> u64 {
        self.run_id
    }

    /// Returns the clock of the times that objects carry.
    pub fn clock(&self) -> &RunClock {
        &self.clock
    }

    /// Limits the publisher's count to what one subscriber is due. For a fetched track the publisher counts the objects
    /// of all fetches, and one subscriber is due the track once.
    pub fn sent_to_one(&self, sent: SentTotals) -> SentTotals {
        match self.pattern {
            Pattern::Fetch => SentTotals {
                objects: sent.objects.min(self.schedule.objects()),
                groups: sent.groups.min(self.schedule.groups()),
            },
            Pattern::Interval
            | Pattern::Random
            | Pattern::Bursts { .. }
            | Pattern::Pauses { .. }
            | Pattern::HeavyTail => sent,
        }
    }

    /// Returns how long a subscriber waits for late objects after COMPLETION (decision 13).
    pub fn drain(&self) -> Duration {
        self.ttl.max(DRAIN_MIN)
    }

    /// Returns how long a started track may be silent before it is given up (decision 14).
    pub fn idle_timeout(&self) -> Duration {
        let interval = self.schedule.longest_gap();
        IDLE_MIN.max(self.ttl) + self.schedule.object_at(0).max(interval * 2)
    }
}

/// Longer than the pauses of a busy relay.
const IDLE_MIN: Duration = Duration::from_secs(5);
