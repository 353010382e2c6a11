//! The bystander: a well-behaved publisher and subscriber beside the cases. What it loses, and how late its objects are, is
//! what the cases do to others.

use std::time::{Duration, Instant};

use weir_client::target::Target;
use weir_histogram::Histogram;
use weir_quic::{App, Endpoint, Event};

use crate::{
    attempt::{Attempt, Times},
    case::Verdict,
    edition::Edition,
    line::Action,
    script::{A, B, Script, Space},
    seen::Slot,
    wire::{self, Subgroup},
};

/// A role that publishes an object every 20 ms through the relay, and receives it.
///
/// An object is late from the time at which it was planned. If the relay ends one of the two sessions, both begin again;
/// what was planned meanwhile is lost.
pub struct Bystander {
    target: Target,
    space: Space,
    state: State,
    /// When the first object was planned.
    start: Option<Instant>,
    /// How late each object arrived, in microseconds; [`LOST`] if it did not.
    late_us: Vec<u32>,
    /// The group whose stream is open.
    group: Option<u64>,
    sessions: u64,
    failure: Option<String>,
    /// When the role is finished, after it was stopped.
    ends_at: Option<Instant>,
    is_finished: bool,
}

/// The state of the two sessions.
enum State {
    /// Both sessions begin again at this time.
    Waits(Instant),
    /// Both sessions are being established; the attempt fails at this time.
    Begins(Box<Attempt>, Instant),
    Established(Box<Attempt>),
}

/// What happened to the objects of a bystander in a part of its time.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Objects planned.
    pub planned: u64,
    /// Objects that did not arrive.
    pub lost: u64,
    /// How late the others arrived.
    pub late: Histogram,
}

impl Bystander {
    /// Returns a bystander that begins at `begin` and speaks `edition`, which is the only protocol of `target`. `namespace` is
    /// the first field of its namespace.
    pub fn new(target: Target, edition: Edition, namespace: &str, begin: Instant) -> Self {
        Self {
            target,
            space: Space {
                edition,
                fields: vec![namespace.as_bytes().to_vec()],
                options: Vec::new(),
            },
            state: State::Waits(begin),
            start: None,
            late_us: Vec::new(),
            group: None,
            sessions: 0,
            failure: None,
            ends_at: None,
            is_finished: false,
        }
    }

    /// Whether its objects flow.
    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Established(_))
    }

    /// Returns how often its sessions were established.
    pub fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Returns why its sessions ended or could not be established, the last time.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns what happened to the objects that were planned from `from` on and before `to`.
    pub fn figures(&self, from: Instant, to: Instant) -> Figures {
        let mut figures = Figures::default();
        let Some(start) = self.start else {
            return figures;
        };
        let mut planned = start;
        for late in &self.late_us {
            if (from..to).contains(&planned) {
                figures.planned += 1;
                match *late {
                    LOST => figures.lost += 1,
                    late => figures.late.record(Duration::from_micros(late.into())),
                }
            }
            planned += INTERVAL;
        }
        figures
    }

    /// Goes on with whatever is due.
    fn go_on(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.ends_at.is_some_and(|at| at <= now) {
            self.leave(now, endpoint);
            return;
        }
        match &mut self.state {
            State::Waits(at) if *at <= now => {
                let mut script = Script::new(&self.space, "bystander");
                script.channel(A, B);
                let attempt = Attempt::new(script, TIMES, 0);
                self.state = State::Begins(Box::new(attempt), now);
                self.establish(now, endpoint);
            }
            State::Waits(_) => {}
            State::Begins(..) => self.establish(now, endpoint),
            State::Established(attempt) => {
                let ended = [A, B].into_iter().find_map(|client| {
                    let line = attempt.client(client);
                    let why = line.seen.ended.as_ref().map(ToString::to_string);
                    line.is_over().then(|| why.unwrap_or_default())
                });
                if let Some(why) = ended {
                    self.restart(now, endpoint, why);
                }
            }
        }
        self.receive(now);
        self.send(now, endpoint);
    }

    /// Goes on with the establishment of the sessions.
    fn establish(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let State::Begins(attempt, until) = &mut self.state else {
            return;
        };
        match attempt.go_on(now, endpoint, &self.target) {
            Ok(waits) => *until = waits,
            Err(Verdict::Passed) => {
                self.sessions += 1;
                self.start.get_or_insert(now);
                self.group = None;
                let State::Begins(attempt, _) =
                    std::mem::replace(&mut self.state, State::Waits(now))
                else {
                    return;
                };
                self.state = State::Established(attempt);
            }
            Err(Verdict::Failed {
                expected, found, ..
            }) => self.restart(now, endpoint, format!("expected {expected}: {found}")),
            Err(Verdict::Skipped(reason)) => self.restart(now, endpoint, reason),
        }
    }

    fn restart(&mut self, now: Instant, endpoint: &mut Endpoint, why: String) {
        self.failure = Some(why);
        let state = std::mem::replace(&mut self.state, State::Waits(now + RESTART));
        if let State::Begins(mut attempt, _) | State::Established(mut attempt) = state {
            attempt.close(now, endpoint);
        }
    }

    fn receive(&mut self, now: Instant) {
        let (State::Established(attempt), Some(start)) = (&mut self.state, self.start) else {
            return;
        };
        for object in attempt.client(B).seen.take_objects() {
            let number = object.group * GROUP_OBJECTS + object.id;
            let place = usize::try_from(number).unwrap_or(usize::MAX);
            let planned = start + INTERVAL * u32::try_from(number).unwrap_or(u32::MAX);
            let late = now.saturating_duration_since(planned).as_micros();
            if let Some(entry) = self.late_us.get_mut(place)
                && *entry == LOST
            {
                *entry = u32::try_from(late).unwrap_or(LOST - 1).min(LOST - 1);
            }
        }
    }

    /// Sends the objects that are due.
    fn send(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some(due) = self.next_due()
            && due <= now
        {
            let number = self.late_us.len() as u64;
            self.late_us.push(LOST);
            let State::Established(attempt) = &mut self.state else {
                continue;
            };
            let (group, id) = (number / GROUP_OBJECTS, number % GROUP_OBJECTS);
            let slot = Slot::Uni(u32::try_from(group).unwrap_or(0));
            let is_new = self.group != Some(group);
            let mut bytes = if is_new {
                Subgroup::of(group).encode()
            } else {
                Vec::new()
            };
            bytes.extend(wire::object(
                if is_new { id } else { 0 },
                &[b'b'; OBJECT_BYTES],
            ));
            self.group = Some(group);
            let line = attempt.client(A);
            line.act(now, endpoint, slot, Action::Write(bytes.into()));
            if id + 1 == GROUP_OBJECTS {
                line.act(now, endpoint, slot, Action::Finish);
            }
        }
    }

    /// Returns when the next object is due; `None` before the first session and after the stop.
    fn next_due(&self) -> Option<Instant> {
        let sent = self.late_us.len();
        if self.ends_at.is_some() || sent >= OBJECTS_MAX {
            return None;
        }
        Some(self.start? + INTERVAL * u32::try_from(sent).ok()?)
    }

    fn leave(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if let State::Begins(attempt, _) | State::Established(attempt) = &mut self.state {
            attempt.close(now, endpoint);
        }
        self.is_finished = true;
    }
}

impl App for Bystander {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if let State::Begins(attempt, _) | State::Established(attempt) = &mut self.state {
            attempt.handle_event(now, endpoint, event);
            self.go_on(now, endpoint);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let state = match &self.state {
            State::Waits(at) | State::Begins(_, at) => Some(*at),
            State::Established(_) => None,
        };
        let times = [state, self.next_due(), self.ends_at];
        times
            .into_iter()
            .flatten()
            .min()
            .filter(|_| !self.is_finished)
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.go_on(now, endpoint);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, _: &mut Endpoint) {
        self.ends_at.get_or_insert(now + DRAIN);
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }
}

/// The entry of an object that has not arrived.
const LOST: u32 = u32::MAX;
/// Time between two objects.
const INTERVAL: Duration = Duration::from_millis(20);
/// Objects of a group, which have one stream.
const GROUP_OBJECTS: u64 = 50;
/// Size of a payload.
const OBJECT_BYTES: usize = 100;
/// Most objects of a run: five hours.
const OBJECTS_MAX: usize = 1_000_000;
/// Pause before lost sessions begin again.
const RESTART: Duration = Duration::from_millis(500);
/// Time for the last objects to arrive.
const DRAIN: Duration = Duration::from_secs(1);
/// Patience while the sessions are established.
const TIMES: Times = Times {
    patience: Duration::from_secs(5),
    quiet: Duration::ZERO,
};
