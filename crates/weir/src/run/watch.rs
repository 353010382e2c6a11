//! Observation of a run: the relay's process, the agents, progress.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use weir_bench::{
    limits::DRAIN_MIN,
    profile::{Profile, TrackProfile},
};
use weir_net::clock;
use weir_report::{
    process::{Usage, percent},
    relay::{
        Agent, AgentSecond, Generator, Relay, RelayCost, RelaySamples, RelaySource,
        agents::add_second,
        generator_health::ThreadSeen,
        live_view::{Moment, Stage, outstanding},
        per_second::{Second, Seconds, generator_between, relay_between},
    },
};

use super::{
    Plan, RelayChoice,
    agents::{Agents, Sample, Seen, ThreadSample},
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
    /// Samples that agents have not answered yet, oldest first.
    ordered: VecDeque<Ordered>,
    window: Option<Window>,
    /// The relay's usage before the first client.
    idle: Option<Usage>,
    /// The relay's usage when all clients were connected, before the first object.
    connected: Option<Usage>,
    /// Sample at the start of the run: the first sample of a run that ends before its window.
    start: Option<Samples>,
    begin: Option<Samples>,
    end: Option<Samples>,
    last: Option<Usage>,
    last_look: Option<Instant>,
    last_second: Option<u64>,
    second: Option<Second>,
    seconds: Seconds,
    /// The samples of the last second, and the load of each agent in the seconds before.
    last_samples: Option<Samples>,
    agent_seconds: Vec<Vec<AgentSecond>>,
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

/// A sample that was ordered of the agents.
#[derive(Clone, Copy, Debug)]
struct Ordered {
    number: u32,
    purpose: Purpose,
    at: Instant,
    /// The relay's usage at that time, if its process is on this machine.
    relay: Option<Usage>,
}

/// What a sample is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Start,
    Begin,
    End,
    /// The start of this second.
    Second(u64),
}

/// Usage and counters at one moment.
#[derive(Clone, Debug)]
struct Samples {
    at: Instant,
    relay: Option<Usage>,
    /// One for each agent.
    agents: Vec<Sample>,
}

impl Samples {
    /// Returns the threads of all agents, each with the number of its agent.
    fn threads(&self) -> impl Iterator<Item = (usize, &ThreadSample)> {
        let agents = self.agents.iter().enumerate();
        agents.flat_map(|(number, one)| one.threads.iter().map(move |thread| (number, thread)))
    }

    fn objects(&self) -> u64 {
        self.agents.iter().map(|one| one.objects).sum()
    }
}

/// What the threads of one agent used between two samples.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    cpu_percent: f64,
    /// 99th percentile and largest lag, in milliseconds, of the thread that was worst.
    lag: [f64; 2],
    dropped: u64,
}

impl Used {
    fn between(earlier: &Sample, later: &Sample, elapsed: Duration) -> Self {
        let mut used = Self::default();
        for (before, after) in earlier.threads.iter().zip(&later.threads) {
            let cpu = after.cpu.saturating_sub(before.cpu);
            used.cpu_percent += percent(cpu, elapsed);
            let lag = after.lag.since(&before.lag);
            for (worst, one) in used.lag.iter_mut().zip([lag.quantile(0.99), lag.max]) {
                *worst = worst.max(one.as_secs_f64() * 1e3);
            }
            used.dropped += after.receive_dropped.saturating_sub(before.receive_dropped);
        }
        used
    }
}

impl Watch {
    pub(crate) fn new(
        started: Instant,
        pid: Option<u32>,
        child: Option<ChildRelay>,
        agents: &mut Agents,
    ) -> Self {
        let idle = pid.and_then(|pid| process::usage(pid).ok());
        let mut watch = Self {
            started,
            pid,
            child,
            ordered: VecDeque::new(),
            start: None,
            window: None,
            idle,
            connected: None,
            begin: None,
            end: None,
            last: None,
            last_look: None,
            last_second: None,
            second: None,
            seconds: Seconds::new(),
            last_samples: None,
            agent_seconds: Vec::new(),
            last_packet: LastPacket {
                packets: 0,
                at: started,
                next_look: started,
            },
            released: None,
        };
        watch.order(Purpose::Start, agents);
        watch
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
    pub(crate) fn last_packet_at(&mut self, now: Instant, agents: &Agents) -> Instant {
        if self.last_packet.next_look <= now {
            self.last_packet.next_look = now + LISTEN_PERIOD;
            let packets = agents.packets_received();
            if std::mem::replace(&mut self.last_packet.packets, packets) != packets {
                self.last_packet.at = now;
            }
        }
        self.last_packet.at
    }

    /// Returns when the last packet came from the relay, as far as was looked.
    pub(crate) fn last_packet(&self) -> Instant {
        self.last_packet.at
    }

    /// Returns a moment of the run in words, as the time since its start.
    pub(crate) fn time_in_words(&self, at: Instant) -> String {
        let seconds = at.saturating_duration_since(self.started).as_secs_f64();
        format!("{seconds:.1} s into the run")
    }

    /// Orders the samples that are due. Once a second, returns the progress to show.
    pub(crate) fn look(&mut self, now: Instant, agents: &mut Agents) -> Option<Moment> {
        if let Some(window) = self.window {
            let is_due =
                |at: Instant, last: Option<Instant>| now >= at && last.is_none_or(|last| last < at);
            let last = self.last_look.replace(now);
            if is_due(window.from, last) {
                self.order(Purpose::Begin, agents);
            }
            if is_due(window.to, last) {
                self.order(Purpose::End, agents);
            }
        }
        let second = (now - self.started).as_secs();
        if self.last_second != Some(second) {
            self.last_second = Some(second);
            self.order(Purpose::Second(second), agents);
        }
        self.take_samples(agents)
    }

    /// Takes the last sample of a run that ends.
    pub(crate) fn close(&mut self, agents: &mut Agents) {
        if !self.is_ordered(Purpose::End) && self.end.is_none() {
            self.order(Purpose::End, agents);
        }
        let until = clock::now() + CLOSE_TIMEOUT;
        while self.end.is_none() && clock::now() < until {
            // Who is lost does not answer, and is not waited for.
            let _losses = agents.poll(clock::now()).is_err();
            let _shown_already = self.take_samples(agents);
            if self.end.is_none() {
                std::thread::park_timeout(CLOSE_STEP);
            }
        }
    }

    fn is_ordered(&self, purpose: Purpose) -> bool {
        self.ordered.iter().any(|one| one.purpose == purpose)
    }

    fn order(&mut self, purpose: Purpose, agents: &mut Agents) {
        if self.ordered.len() >= ORDERED_MAX {
            self.ordered.pop_front();
        }
        let relay = self.usage();
        self.ordered.push_back(Ordered {
            number: agents.order_sample(),
            purpose,
            at: clock::now(),
            relay,
        });
    }

    /// Takes the samples that all agents have answered. Returns the progress to show, once a second.
    fn take_samples(&mut self, agents: &mut Agents) -> Option<Moment> {
        let mut moment = None;
        while let Some(ordered) = self.ordered.front().copied() {
            let Some(samples) = agents.take_sample(ordered.number) else {
                break;
            };
            self.ordered.pop_front();
            let samples = Samples {
                at: ordered.at,
                relay: ordered
                    .relay
                    .or_else(|| samples.iter().find_map(|one| one.relay)),
                agents: samples,
            };
            self.last = samples.relay.or(self.last);
            match ordered.purpose {
                Purpose::Start => self.start = Some(samples),
                Purpose::Begin => self.begin = Some(samples),
                Purpose::End => self.end = Some(samples),
                Purpose::Second(number) => {
                    moment = Some(self.note_second(number, &samples, agents));
                }
            }
        }
        moment
    }

    fn note_second(&mut self, number: u64, samples: &Samples, agents: &Agents) -> Moment {
        let processes = samples.agents.iter().filter_map(|one| one.process);
        let begins = Second {
            number,
            at: samples.at - self.started,
            relay: samples.relay,
            generator: processes.reduce(|sum, one| sum.plus(&one)),
            objects: samples.objects(),
        };
        self.seconds.note(begins);
        self.note_agents(number, samples);
        let before = self.second.replace(begins);
        self.moment(&begins, before.as_ref(), agents)
    }

    /// Notes what each agent used in the second before `number`.
    fn note_agents(&mut self, number: u64, samples: &Samples) {
        let Some(before) = self.last_samples.replace(samples.clone()) else {
            return;
        };
        self.agent_seconds
            .resize_with(samples.agents.len(), Vec::new);
        let agents = before.agents.iter().zip(&samples.agents);
        for ((earlier, later), seconds) in agents.zip(&mut self.agent_seconds) {
            let used = Used::between(earlier, later, samples.at - before.at);
            let next = AgentSecond {
                second: number.saturating_sub(1),
                cpu_percent: used.cpu_percent,
                event_loop_lag_p99_ms: used.lag[0],
            };
            add_second(seconds, next);
        }
    }

    /// Returns what each remote agent used in the window, or over the whole run if the window did not begin.
    fn agents(&self, agents: &Agents) -> Vec<Agent> {
        let (Some(begin), Some(end)) = (self.begin.as_ref().or(self.start.as_ref()), &self.end)
        else {
            return Vec::new();
        };
        let elapsed = end.at - begin.at;
        let pairs = begin.agents.iter().zip(&end.agents).enumerate();
        let agent = |(number, (earlier, later)): (usize, (&Sample, &Sample))| {
            let used = Used::between(earlier, later, elapsed);
            Some(Agent {
                name: agents.name(number)?.to_owned(),
                cpu_percent: used.cpu_percent,
                event_loop_lag_p99_ms: used.lag[0],
                event_loop_lag_max_ms: used.lag[1],
                socket_receive_buffer_drops: used.dropped,
                per_second: self.agent_seconds.get(number).cloned().unwrap_or_default(),
                ..Agent::default()
            })
        };
        pairs.filter_map(agent).collect()
    }

    /// Returns the measurements of relay and generator, after the run.
    pub(crate) fn finish(
        mut self,
        plan: &Plan,
        agents: &Agents,
        implementation: Option<String>,
    ) -> (Relay, Generator) {
        // In a meeting, one session publishes and subscribes.
        let sessions = agents.seen().into_iter().map(|seen| {
            let publishers = seen.publishers.ready;
            publishers.max(seen.subscribers.ready)
        });
        let sessions = sessions.sum();
        let generator = self.generator(plan, agents);
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

    fn moment(&self, begins: &Second, before: Option<&Second>, agents: &Agents) -> Moment {
        let now = self.started + begins.at;
        let seen = agents.seen();
        let sum = |pick: fn(&Seen) -> u64| seen.iter().map(pick).sum::<u64>();
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
            awaited: seen
                .iter()
                .map(|seen| (seen.publishers.present, seen.publishers.awaited))
                .max_by_key(|(_, awaited)| *awaited)
                .filter(|(_, awaited)| *awaited > 0),
            accepted,
            subscriptions: sum(|seen| seen.subscribers.subscriptions),
            failed: sum(|seen| seen.subscribers.failed),
            sent,
            delivered,
            delivered_per_second: delivered.saturating_sub(before.map_or(0, |one| one.objects)),
            outstanding: outstanding(sent, accepted, tracks, delivered),
            latency_ms: agents.latency_ms(),
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
            objects_delivered: end.objects().saturating_sub(begin.objects()),
            sessions,
        }))
    }

    /// Returns the generator's health in the window, or over the whole run if the window did not begin.
    fn generator(&self, plan: &Plan, agents: &Agents) -> Generator {
        let cores = plan.cores.publishers.iter().chain(&plan.cores.subscribers);
        let mut cores: Vec<u32> = cores.filter_map(|core| u32::try_from(*core).ok()).collect();
        cores.sort_unstable();
        cores.dedup();
        let mut seen: Vec<ThreadSeen> = Vec::new();
        let mut drops = 0;
        if let (Some(begin), Some(end)) = (self.begin.as_ref().or(self.start.as_ref()), &self.end) {
            let elapsed = end.at - begin.at;
            for ((number, before), (_, after)) in begin.threads().zip(end.threads()) {
                let lag = after.lag.since(&before.lag);
                let cpu = after.cpu.saturating_sub(before.cpu);
                drops += after.receive_dropped.saturating_sub(before.receive_dropped);
                let lag = [lag.quantile(0.99), lag.max];
                let name = match agents.name(number) {
                    Some(agent) => format!("{} of {agent}", after.name),
                    None => after.name.clone(),
                };
                let thread = ThreadSeen {
                    agent: number,
                    ..ThreadSeen::new(&name, after.core, (cpu, elapsed), lag)
                };
                let mut alike = seen.iter_mut();
                let apart = alike.try_fold(thread, |thread, one| one.absorb(thread));
                seen.extend(apart);
            }
        }
        Generator {
            cores,
            per_second: self.seconds.generator.clone(),
            agents: self.agents(agents),
            ..Generator::of(seen, drops)
        }
    }
}

/// How long the last sample of a run may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two looks for the last sample.
const CLOSE_STEP: Duration = Duration::from_millis(5);
/// Samples that agents have not answered.
const ORDERED_MAX: usize = 8;
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
