//! One case while it runs.

use std::{
    array,
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use weir_client::target::Target;
use weir_link::Random;
use weir_moqt::message::Message;
use weir_quic::{Endpoint, Event, Handle};

use crate::{
    case::Verdict,
    line::{Action, Line},
    script::{CLIENTS_MAX, Check, Progress, Script, Step, Storm},
    seen::Slot,
};

/// How long an attempt waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// For what has to happen.
    pub(crate) patience: Duration,
    /// For what must not happen.
    pub(crate) quiet: Duration,
}

/// One case while it runs.
pub(crate) struct Attempt {
    steps: VecDeque<Step>,
    lines: [Line; CLIENTS_MAX],
    times: Times,
    random: Random,
    /// Whether the requirement itself is being tested.
    is_reached: bool,
    /// Since when the first step waits.
    since: Option<Instant>,
    /// How often the storm at the front was repeated.
    repeated: u64,
}

/// What a step did.
enum Turn {
    Done,
    /// The step waits, until this time or an event.
    Waits(Instant),
    Over(Verdict),
}

impl Attempt {
    /// Returns an attempt that has not begun.
    pub(crate) fn new(script: Script, times: Times, seed: u64) -> Self {
        let Script { steps, edition, .. } = script;
        let has_then = steps.iter().any(|step| matches!(step, Step::Then));
        Self {
            steps: steps.into(),
            lines: array::from_fn(|_| Line::new(edition)),
            times,
            random: Random::new(seed),
            is_reached: !has_then,
            since: None,
            repeated: 0,
        }
    }

    /// Returns a client, to go on without a script.
    pub(crate) fn client(&mut self, client: usize) -> &mut Line {
        &mut self.lines[client]
    }

    /// Returns the client of a connection.
    fn line(&mut self, handle: Handle) -> Option<&mut Line> {
        let mut lines = self.lines.iter_mut();
        lines.find(|line| line.handle() == Some(handle))
    }

    pub(crate) fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if let Some(line) = self.line(event.handle()) {
            line.handle_event(now, endpoint, event);
        }
    }

    /// Goes on as far as possible. Returns the verdict at the end, or when to go on.
    pub(crate) fn go_on(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        target: &Target,
    ) -> Result<Instant, Verdict> {
        loop {
            let Some(step) = self.steps.pop_front() else {
                return Err(Verdict::Passed);
            };
            let since = *self.since.get_or_insert(now);
            match self.take(now, since, endpoint, target, &step) {
                Turn::Done => {
                    self.since = None;
                    self.repeated = 0;
                }
                Turn::Waits(until) => {
                    self.steps.push_front(step);
                    return Ok(until);
                }
                Turn::Over(verdict) => return Err(verdict),
            }
        }
    }

    /// Closes all connections.
    pub(crate) fn close(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for line in &mut self.lines {
            line.close(now, endpoint, 0);
        }
    }

    /// Whether the handshake of a client was completed.
    pub(crate) fn has_connected(&self) -> bool {
        self.lines.iter().any(|line| line.seen.is_connected)
    }

    /// Returns what the relay calls itself in SETUP.
    pub(crate) fn implementation(&self) -> Option<&str> {
        self.lines
            .iter()
            .find_map(|line| line.seen.implementation())
    }

    /// Returns the number of messages and datagrams sent.
    pub(crate) fn messages(&self) -> u64 {
        self.lines.iter().map(|line| line.sent).sum()
    }

    fn take(
        &mut self,
        now: Instant,
        since: Instant,
        endpoint: &mut Endpoint,
        target: &Target,
        step: &Step,
    ) -> Turn {
        match step {
            Step::Storm(storm) => return self.storm(now, since, endpoint, target, storm),
            Step::Wait(time) => return wait(now, since + *time),
            Step::Expect(client, check) => return self.expect(now, since, *client, check),
            Step::Never(client, check) => {
                return self.never(now, since, *client, check);
            }
            Step::Then => self.is_reached = true,
            Step::SetUp(client) => {
                if let Some(turn) = self.set_up(now, since, endpoint, target, *client) {
                    return turn;
                }
            }
            Step::Reply(client, slot, reply) => match reply(&self.lines[*client].seen) {
                Ok(bytes) => {
                    let action = Action::Write(bytes.into());
                    self.lines[*client].act(now, endpoint, *slot, action);
                }
                Err(reason) => return Turn::Over(Verdict::Skipped(reason)),
            },
            Step::Connect(_)
            | Step::Rejoin(_)
            | Step::Act(..)
            | Step::Ask(..)
            | Step::Answer(..)
            | Step::Datagram(..)
            | Step::Close(..)
            | Step::Fault(..)
            | Step::Behave(..) => self.act(now, endpoint, target, step),
        }
        Turn::Done
    }

    /// Takes a step that never waits.
    fn act(&mut self, now: Instant, endpoint: &mut Endpoint, target: &Target, step: &Step) {
        match step {
            Step::Connect(client) => self.lines[*client].connect(now, endpoint, target),
            Step::Rejoin(client) if self.lines[*client].handle().is_none() => {
                let line = &mut self.lines[*client];
                line.connect(now, endpoint, target);
                let setup = Action::Write(encoded_setup(line, target));
                line.act(now, endpoint, Slot::Control, setup);
            }
            Step::Act(client, slot, action) => {
                self.lines[*client].act(now, endpoint, *slot, action.clone());
            }
            Step::Ask(client, slot, encode) => {
                let line = &mut self.lines[*client];
                let action = Action::Write(encode(line.request_id()).into());
                line.act(now, endpoint, *slot, action);
            }
            Step::Answer(client, slot, answer) => {
                let asked = self.lines[*client].seen.take_asked(*slot);
                for step in asked
                    .map(|(slot, message)| answer(slot, &message))
                    .unwrap_or_default()
                {
                    self.act(now, endpoint, target, &step);
                }
            }
            Step::Datagram(client, data) => {
                self.lines[*client].send_datagram(now, endpoint, data.clone());
            }
            Step::Close(client, code) => self.lines[*client].close(now, endpoint, *code),
            Step::Behave(client, change) => {
                let line = &mut self.lines[*client];
                change(line);
                line.hear(now, endpoint);
            }
            Step::Fault(client, fault) => self.lines[*client].do_fault(now, endpoint, *fault),
            Step::Rejoin(_)
            | Step::SetUp(_)
            | Step::Reply(..)
            | Step::Wait(_)
            | Step::Expect(..)
            | Step::Never(..)
            | Step::Then
            | Step::Storm(_) => {}
        }
    }

    /// Sends SETUP once the connection is established. Returns how the step waits, if it does.
    fn set_up(
        &mut self,
        now: Instant,
        since: Instant,
        endpoint: &mut Endpoint,
        target: &Target,
        client: usize,
    ) -> Option<Turn> {
        let line = &mut self.lines[client];
        if line.is_open() {
            let setup = Action::Write(encoded_setup(line, target));
            line.act(now, endpoint, Slot::Control, setup);
            return None;
        }
        let ended = line.seen.ended.as_ref().map(ToString::to_string);
        match ended {
            Some(ended) => Some(self.failed("a connection", format!("the session was {ended}"))),
            None if now >= since + self.times.patience => {
                Some(self.failed("a connection", "nothing".to_owned()))
            }
            None => Some(Turn::Waits(since + self.times.patience)),
        }
    }

    fn expect(&mut self, now: Instant, since: Instant, client: usize, check: &Check) -> Turn {
        let deadline = since + self.times.patience;
        match check.test(&mut self.lines[client].seen) {
            Progress::Met => Turn::Done,
            Progress::Broken(found) => self.failed(&check.text, found),
            Progress::Pending if now >= deadline => {
                let waited = self.times.patience.as_secs_f64();
                self.failed(&check.text, format!("nothing of it came within {waited} s"))
            }
            Progress::Pending => Turn::Waits(deadline),
        }
    }

    fn never(&mut self, now: Instant, since: Instant, client: usize, check: &Check) -> Turn {
        let seen = &mut self.lines[client].seen;
        let progress = check.test(seen);
        let expected = format!("no {}", check.text);
        match (&progress, &seen.ended) {
            (Progress::Met, _) => {
                let found = format!("{} came", check.text);
                self.failed(&expected, found)
            }
            (Progress::Pending | Progress::Broken(_), Some(ended)) => {
                let found = format!("the session was {ended}");
                self.failed(&expected, found)
            }
            (Progress::Pending | Progress::Broken(_), None) => wait(now, since + self.times.quiet),
        }
    }

    /// Repeats the steps of a storm as often as is due.
    fn storm(
        &mut self,
        now: Instant,
        since: Instant,
        endpoint: &mut Endpoint,
        target: &Target,
        storm: &Storm,
    ) -> Turn {
        let elapsed = now.saturating_duration_since(since);
        let per_second = storm.per_second.max(1);
        let due = elapsed.as_micros() * u128::from(per_second) / 1_000_000 + 1;
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let due = if storm.counts_messages {
            due
        } else {
            due.min(storm.times)
        };
        let stop = due.min(self.repeated + TURN_MAX);
        while self.repeated < stop {
            for step in (storm.act)(self.repeated, &mut self.random) {
                self.act(now, endpoint, target, &step);
            }
            self.repeated += 1;
        }
        let done = if storm.counts_messages {
            self.messages()
        } else {
            self.repeated
        };
        // A relay that permits no streams must not hold up the probe for ever.
        if done >= storm.times || self.repeated >= storm.times.saturating_mul(REPEATED_MAX) {
            return Turn::Done;
        }
        let next = Duration::from_micros(self.repeated * 1_000_000 / per_second);
        Turn::Waits((since + next).max(now + TURN_TIME))
    }

    fn failed(&self, expected: &str, found: String) -> Turn {
        Turn::Over(Verdict::Failed {
            is_unreached: !self.is_reached,
            expected: expected.to_owned(),
            found,
        })
    }
}

fn wait(now: Instant, until: Instant) -> Turn {
    if now >= until {
        Turn::Done
    } else {
        Turn::Waits(until)
    }
}

/// Returns the usual SETUP of a client.
fn encoded_setup(line: &Line, target: &Target) -> Bytes {
    let mut out = BytesMut::new();
    let setup = Message::Setup(target.setup.clone());
    setup
        .encode(line.seen.edition.codec(), &mut out)
        .expect("the options come from a URL");
    out.freeze()
}

/// Most repetitions of a storm in one turn.
const TURN_MAX: u64 = 256;
/// How often a storm is repeated for each message that it has to send.
const REPEATED_MAX: u64 = 10;
/// Least time between two turns of a storm.
const TURN_TIME: Duration = Duration::from_millis(1);
