//! The role that runs the cases, one after the other.

use std::time::{Duration, Instant};

use weir_client::target::Target;
use weir_quic::{App, Endpoint, Event};

use crate::{
    attempt::{Attempt, Times},
    case::{Case, Outcome, Verdict},
    edition::Edition,
    script::Space,
    wire::{Value, option},
};

/// The configuration of a probe.
#[derive(Clone, Debug)]
pub struct Config {
    /// The relay. Its only protocol has to be that of the edition.
    pub target: Target,
    /// The edition of the cases.
    pub edition: Edition,
    /// How long a case waits for what the relay has to do.
    pub patience: Duration,
    /// How long a case waits for what the relay must not do.
    pub quiet: Duration,
    /// When the first case begins.
    pub begin: Instant,
    /// The first field of all namespaces, which no other run on the relay may use.
    pub namespace: String,
    /// The seed of what is random.
    pub seed: u64,
}

/// Called with each case that has run.
type OnOutcome = Box<dyn FnMut(&Case, &Outcome) + Send>;

/// A role that runs cases against a relay, one after the other.
pub struct Probe {
    config: Config,
    space: Space,
    cases: Vec<Case>,
    outcomes: Vec<Outcome>,
    /// The case that runs, and when it began.
    attempt: Option<(Attempt, Instant)>,
    wakes_at: Option<Instant>,
    on_outcome: OnOutcome,
    implementation: Option<String>,
    has_connected: bool,
    /// Whether all cases have run, or the probe was stopped.
    is_over: bool,
}

impl Probe {
    /// Returns a probe that runs `cases`. `on_outcome` is called after each.
    pub fn new(
        config: Config,
        cases: Vec<Case>,
        on_outcome: impl FnMut(&Case, &Outcome) + Send + 'static,
    ) -> Self {
        let text = |option: u64, text: &Option<String>| {
            let text = text.as_ref()?;
            Some((option, Value::Bytes(text.as_bytes().to_vec())))
        };
        let setup = &config.target.setup;
        let options = [
            text(option::PATH, &setup.path),
            text(option::AUTHORITY, &setup.authority),
        ];
        let space = Space {
            edition: config.edition,
            fields: vec![config.namespace.as_bytes().to_vec()],
            options: options.into_iter().flatten().collect(),
        };
        Self {
            wakes_at: Some(config.begin),
            config,
            space,
            cases,
            outcomes: Vec::new(),
            attempt: None,
            on_outcome: Box::new(on_outcome),
            implementation: None,
            has_connected: false,
            is_over: false,
        }
    }

    /// Returns the edition of the cases.
    pub fn edition(&self) -> Edition {
        self.config.edition
    }

    /// Returns the cases, in the order in which they run.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Returns the results of the cases that have run, in order.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Returns what the relay calls itself in SETUP.
    pub fn implementation(&self) -> Option<&str> {
        self.implementation.as_deref()
    }

    /// Whether the first case completed a handshake. If not, the probe ends after it.
    pub fn has_connected(&self) -> bool {
        self.has_connected
    }

    /// Goes on with the case that runs, and with the next ones.
    fn go_on(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while !self.is_over {
            if self.attempt.is_none() && !self.begin(now) {
                return;
            }
            let Some((attempt, began)) = &mut self.attempt else {
                continue;
            };
            match attempt.go_on(now, endpoint, &self.config.target) {
                Ok(wakes_at) => {
                    self.wakes_at = Some(wakes_at);
                    return;
                }
                Err(verdict) => {
                    attempt.close(now, endpoint);
                    self.has_connected |= attempt.has_connected();
                    if self.implementation.is_none() {
                        self.implementation = attempt.implementation().map(str::to_owned);
                    }
                    let outcome = Outcome {
                        verdict,
                        began: began.saturating_duration_since(self.config.begin),
                        took: now.saturating_duration_since(*began),
                        messages: attempt.messages(),
                    };
                    self.note(outcome);
                    self.is_over = !self.has_connected;
                    // The closes of this case leave before the next one begins.
                    self.wakes_at = Some(now + PAUSE);
                    return;
                }
            }
        }
    }

    /// Begins the next case, or skips it. Returns false if the probe has to wait first.
    fn begin(&mut self, now: Instant) -> bool {
        if self.wakes_at.is_some_and(|at| now < at) {
            return false;
        }
        let Some(case) = self.cases.get(self.outcomes.len()) else {
            self.is_over = true;
            return false;
        };
        if !case
            .on
            .includes(self.config.target.client.web_transport.is_some())
        {
            let reason = "does not concern this transport".to_owned();
            self.note(Outcome {
                verdict: Verdict::Skipped(reason),
                began: now.saturating_duration_since(self.config.begin),
                took: Duration::ZERO,
                messages: 0,
            });
            return true;
        }
        let times = Times {
            patience: self.config.patience,
            quiet: self.config.quiet,
        };
        let seed = self.config.seed.wrapping_add(self.outcomes.len() as u64);
        let attempt = Attempt::new(case.script(&self.space), times, seed);
        self.attempt = Some((attempt, now));
        true
    }

    fn note(&mut self, outcome: Outcome) {
        self.attempt = None;
        (self.on_outcome)(&self.cases[self.outcomes.len()], &outcome);
        self.outcomes.push(outcome);
    }
}

impl App for Probe {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if let Some((attempt, _)) = &mut self.attempt {
            attempt.handle_event(now, endpoint, event);
            self.go_on(now, endpoint);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wakes_at.filter(|_| !self.is_over)
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.wakes_at.is_some_and(|at| at <= now) {
            self.go_on(now, endpoint);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if let Some((mut attempt, _)) = self.attempt.take() {
            attempt.close(now, endpoint);
        }
        self.is_over = true;
    }

    fn is_finished(&self) -> bool {
        self.is_over
    }
}

/// The pause between two cases.
const PAUSE: Duration = Duration::from_millis(2);
