//! Observation of a run: the relay's process, the generator's threads, progress.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use weir_bench::{
    limits::DRAIN_MIN,
    profile::{Profile, TrackProfile},
};
use weir_net::{TelemetrySnapshot, clock};
use weir_report::{
    process::Usage,
    relay::{
        Generator, Relay, RelayCost, RelaySamples, RelaySource,
        generator_health::ThreadSeen,
        live_view::{Moment, Stage, outstanding},
        per_second::{Second, Seconds, generator_between, relay_between},
    },
};

use super::{
    Plan, RelayChoice,
    threads::{Seen, View},
};
use crate::harness::{own_relay::ChildRelay, process};

/// The part of a run over which costs are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// Watches a run.
pub(crate) struct Watch {
    started: Instant,
    pid: Option<u32>,
    child: Option<ChildRelay>,
    views: Vec<View>,
    window: Option<Window>,
    /// The relay's usage before the first client.
    idle: Option<Usage>,
    /// The relay's usage when all clients were connected, before the first object.
    connected: Option<Usage>,
    /// Sample at the start of the run: the first sample of a run that ends before its window.
    start: Sample,
    begin: Option<Sample>,
    end: Option<Sample>,
    last: Option<Usage>,
    second: Option<Second>,
    seconds: Seconds,
    last_packet: LastPacket,
    /// The times of the schedules, once they have begun.
    released: Option<Released>,
}

/// The times of a run whose schedules have begun.
#[derive(Clone, Copy, Debug)]
struct Released {
    at: Instant,
    first_object: Instant,
    last_object: Instant,
    end: Instant,
}

/// The last packet that came from the relay.
#[derive(Clone, Copy, Debug)]
struct LastPacket {
    /// Packets received so far.
    packets: u64,
    /// When the last one was noticed.
    at: Instant,
    next_look: Instant,
}

/// Usage and counters at one moment.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    relay: Option<Usage>,
    objects: u64,
    /// One for each thread of the generator.
    threads: Vec<TelemetrySnapshot>,
}

impl Sample {
    fn of(relay: Option<Usage>, views: &[View]) -> Self {
        Self {
            at: clock::now(),
            relay,
            objects: views
                .iter()
                .map(|view| view.seen().subscribers.objects)
                .sum(),
            threads: views.iter().map(|view| view.telemetry.snapshot()).collect(),
        }
    }
}

impl Watch {
    pub(crate) fn new(
        started: Instant,
        pid: Option<u32>,
        child: Option<ChildRelay>,
        views: Vec<View>,
    ) -> Self {
        let idle = pid.and_then(|pid| process::usage(pid).ok());
        Self {
            started,
            pid,
            child,
            start: Sample::of(idle, &views),
            views,
            window: None,
            idle,
            connected: None,
            begin: None,
            end: None,
            last: None,
            second: None,
            seconds: Seconds::new(),
            last_packet: LastPacket {
                packets: 0,
                at: started,
                next_look: started,
            },
            released: None,
        }
    }

    /// Records that the schedules begin: all subscribers are connected, and nothing was sent yet.
    pub(crate) fn on_released(&mut self, now: Instant, profile: &Profile) {
        self.connected = self.usage();
        let tracks = profile.tracks.iter();
        let (mut first, mut last, mut end) = (Duration::MAX, Duration::ZERO, Duration::ZERO);
        for track in tracks {
            let total = track.total_transmit_time();
            first = first.min(track.start_delay);
            last = last.max(total);
            end = end.max(total + track.ttl.max(DRAIN_MIN));
        }
        self.released = Some(Released {
            at: now,
            first_object: now + first.min(last),
            last_object: now + last,
            end: now + end,
        });
        self.window = Some(steady_window(profile, now));
    }

    /// Returns when the schedules began, if they did.
    pub(crate) fn released(&self) -> Option<Instant> {
        self.released.map(|released| released.at)
    }

    /// Returns how the relay's process ended, if it did.
    pub(crate) fn relay_death(&mut self) -> Option<String> {
        match (&mut self.child, self.pid) {
            (Some(child), _) => child.has_died(),
            (None, Some(pid)) if process::usage(pid).is_err() => {
                Some(format!("the relay's process {pid} is gone"))
            }
            (None, _) => None,
        }
    }

    /// Returns when the last packet came from the relay, at most [`LISTEN_PERIOD`] late.
    pub(crate) fn last_packet_at(&mut self, now: Instant) -> Instant {
        if self.last_packet.next_look <= now {
            self.last_packet.next_look = now + LISTEN_PERIOD;
            let received = |view: &View| view.telemetry.snapshot().packets_received;
            let packets: u64 = self.views.iter().map(received).sum();
            if std::mem::replace(&mut self.last_packet.packets, packets) != packets {
                self.last_packet.at = now;
            }
        }
        self.last_packet.at
    }

    /// Returns a moment of the run in words, as the time since its start.
    pub(crate) fn time_in_words(&self, at: Instant) -> String {
        let seconds = at.saturating_duration_since(self.started).as_secs_f64();
        format!("{seconds:.1} s into the run")
    }

    /// Takes the samples that are due. Once a second, returns the progress to show.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Moment> {
        if let Some(window) = self.window {
            if self.begin.is_none() && now >= window.from {
                self.begin = Some(self.sample());
            }
            if self.end.is_none() && now >= window.to {
                self.end = Some(self.sample());
            }
        }
        let second = (now - self.started).as_secs();
        if self.second.is_some_and(|last| last.number == second) {
            return None;
        }
        let begins = Second {
            number: second,
            at: now - self.started,
            relay: self.usage(),
            generator: process::usage(std::process::id()).ok(),
            objects: self.seen().map(|seen| seen.subscribers.objects).sum(),
        };
        self.seconds.note(begins);
        let before = self.second.replace(begins);
        Some(self.moment(&begins, before.as_ref()))
    }

    /// Returns the measurements of relay and generator, after the run.
    pub(crate) fn finish(
        mut self,
        plan: &Plan,
        implementation: Option<String>,
    ) -> (Relay, Generator) {
        if self.end.is_none() {
            self.end = Some(self.sample());
        }
        // In a meeting, one session publishes and subscribes.
        let sessions = self.seen().map(|seen| {
            let publishers = seen.publishers.ready;
            publishers.max(seen.subscribers.ready)
        });
        let sessions = sessions.sum();
        let generator = self.generator(plan);
        let cost = self.cost(sessions);
        let counters = self.child.take().map(ChildRelay::stop).unwrap_or_default();
        let counters: BTreeMap<String, u64> = counters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_u64()?)))
            .collect();
        let source = match (&plan.relay, self.pid) {
            (RelayChoice::Own(_), Some(pid)) => RelaySource::ChildProcess { pid },
            (RelayChoice::At { by_name: true, .. }, Some(pid)) => RelaySource::ProcessNamed { pid },
            (RelayChoice::At { .. }, Some(pid)) => RelaySource::PidGiven { pid },
            (RelayChoice::Own(_) | RelayChoice::At { .. }, None) => RelaySource::NotObserved,
        };
        let relay = Relay {
            source,
            implementation,
            cost,
            per_second: self.seconds.relay,
            counters,
            metrics: Vec::new(),
        };
        (relay, generator)
    }

    fn usage(&mut self) -> Option<Usage> {
        let usage = process::usage(self.pid?).ok()?;
        self.last = Some(usage);
        Some(usage)
    }

    fn sample(&mut self) -> Sample {
        let relay = self.usage();
        Sample::of(relay, &self.views)
    }

    /// Returns the progress of each thread of the generator.
    fn seen(&self) -> impl Iterator<Item = Seen> {
        self.views.iter().map(View::seen)
    }

    fn moment(&self, begins: &Second, before: Option<&Second>) -> Moment {
        let now = self.started + begins.at;
        let sum = |pick: fn(&Seen) -> u64| self.seen().map(|seen| pick(&seen)).sum::<u64>();
        let sent = sum(|seen| seen.publishers.objects_sent);
        let tracks = sum(|seen| seen.publishers.tracks);
        let accepted = sum(|seen| seen.subscribers.accepted);
        let delivered = sum(|seen| seen.subscribers.objects);
        let stage = match &self.released {
            None => Stage::Joining,
            Some(released) if now < released.first_object => Stage::Starting,
            Some(released) if now < released.last_object => Stage::Sending,
            Some(_) => Stage::Draining,
        };
        Moment {
            label: String::new(),
            stage,
            second: (now - self.started).as_secs(),
            progress: self.released.map(|released| {
                let seconds = |to: Instant| (to - released.at).as_secs();
                (seconds(now), seconds(released.end))
            }),
            accepted,
            subscriptions: sum(|seen| seen.subscribers.subscriptions),
            failed: sum(|seen| seen.subscribers.failed),
            sent,
            delivered,
            delivered_per_second: delivered.saturating_sub(before.map_or(0, |one| one.objects)),
            outstanding: outstanding(sent, accepted, tracks, delivered),
            // Of the thread with the largest latency, if there are several.
            latency_ms: self
                .seen()
                .filter_map(|seen| seen.latency_ms)
                .max_by(|one, other| one.1.total_cmp(&other.1)),
            relay_cpu_percent: before
                .and_then(|before| relay_between(before, begins))
                .map(|one| one.cpu_percent),
            generator_cpu_percent: before
                .and_then(|before| generator_between(before, begins))
                .map(|one| one.cpu_percent),
        }
    }

    fn cost(&self, sessions: u64) -> Option<RelayCost> {
        let (begin, end) = (self.begin.as_ref()?, self.end.as_ref()?);
        let (before, after) = (begin.relay?, end.relay?);
        Some(RelayCost::of(&RelaySamples {
            idle: self.idle.unwrap_or_default(),
            connected: self.connected.unwrap_or(before),
            begin: (begin.at - self.started, before),
            end: (end.at - self.started, after),
            resident_peak_bytes: self.last.unwrap_or(after).resident_peak_bytes,
            objects_delivered: end.objects - begin.objects,
            sessions,
        }))
    }

    /// Returns the generator's health in the window, or over the whole run if the window did not begin.
    fn generator(&self, plan: &Plan) -> Generator {
        let mut cores: Vec<u32> = [plan.cores.publishers, plan.cores.subscribers]
            .into_iter()
            .flatten()
            .filter_map(|core| u32::try_from(core).ok())
            .collect();
        cores.dedup();
        let mut seen: Vec<ThreadSeen> = Vec::new();
        let mut drops = 0;
        if let (begin, Some(end)) = (self.begin.as_ref().unwrap_or(&self.start), &self.end) {
            let elapsed = end.at - begin.at;
            let pairs = begin.threads.iter().zip(&end.threads);
            for (view, (before, after)) in self.views.iter().zip(pairs) {
                let lag = after.lag.since(&before.lag);
                let cpu = after.cpu.saturating_sub(before.cpu);
                drops += after.receive_dropped.saturating_sub(before.receive_dropped);
                let lag = [lag.quantile(0.99), lag.max];
                let thread = ThreadSeen::new(view.name, view.core, (cpu, elapsed), lag);
                let mut alike = seen.iter_mut();
                let apart = alike.try_fold(thread, |thread, one| one.absorb(thread));
                seen.extend(apart);
            }
        }
        Generator {
            cores,
            per_second: self.seconds.generator.clone(),
            ..Generator::of(seen, drops)
        }
    }
}

/// Time between two looks at the count of packets.
const LISTEN_PERIOD: Duration = Duration::from_millis(100);

/// Returns the steady part of the data phase, in which all tracks send. It begins one second, or a tenth of the phase if that
/// is shorter, after the last track's start, and ends with the first track's end.
fn steady_window(profile: &Profile, released: Instant) -> Window {
    let tracks = profile.tracks.iter();
    let begin = tracks.clone().map(|track| track.start_delay).max();
    let begin = begin.unwrap_or_default();
    let end = tracks.map(TrackProfile::total_transmit_time).min();
    let end = end.unwrap_or_default();
    let settle = (end.saturating_sub(begin) / 10).min(Duration::from_secs(1));
    Window {
        from: released + begin + settle,
        to: released + end.max(begin + settle),
    }
}
