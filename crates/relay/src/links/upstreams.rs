//! Links to other machines: the relays that this relay was told to ask, and those of its fleet that it needs, with the
//! connections to them.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use weir_client::{backoff::Backoff, target::Target};
use weir_moqt::{
    draft::Draft,
    error::SessionError,
    message::Setup,
    parameter::Parameters,
    session::{self, Session, Side},
};
use weir_quic::{Handle, LinkOptions};
use weir_transport::Transport as _;

use super::{link_limits, renewal::Renewal, rings::Probe};
use crate::{
    effect::Effect,
    registry::{Member as FleetMember, RelayId},
    sessions::peer::{Peer, PeerKind, Purpose},
    timers::{Timer, Timers},
    turn::Turn,
};

/// A relay that is asked for tracks that no client of this relay publishes.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name in logs and metrics, without secrets.
    pub name: String,
    /// How to connect to it. [`LinkCredentials`] add the credentials.
    pub target: Arc<Target>,
    /// Seed of the pauses between attempts to connect.
    pub seed: u64,
    /// Where the relay is now; `None` if it is always at the address of `target`.
    pub whereabouts: Option<Arc<dyn Whereabouts>>,
}

/// Where a relay is whose address may change, such as that of a host name.
pub trait Whereabouts: fmt::Debug + Send + Sync {
    /// Returns the last known address. Each call is an attempt to connect, so an implementation looks for the address again
    /// meanwhile, for the next attempt. It does not wait.
    fn address(&self) -> SocketAddr;
}

/// The credentials of this relay for other relays. They may change while the relay runs: every attempt to connect presents
/// those of its time, and links that presented earlier ones are replaced.
pub trait LinkCredentials: fmt::Debug + Send + Sync {
    /// Returns a number that changes with the credentials.
    fn revision(&self) -> u64;

    /// Sets the TLS parameters and the tokens of a target.
    fn apply(&self, target: &mut Target);
}

/// The state of a link to another machine, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The name of the other relay.
    pub name: String,
    /// The number of the other relay, if it is one of the fleet.
    pub relay: Option<RelayId>,
    /// Whether the link is established.
    pub is_ready: bool,
    /// How often the link was established.
    pub connects: u64,
    /// How often the link was lost, or could not be established.
    pub failures: u64,
    /// Objects of subscriptions received over all its connections.
    pub objects: u64,
    /// Bytes of UDP payload received over the present connection.
    pub bytes_received: u64,
    /// Subscriptions of this relay over the link, requests without an answer included.
    pub subscriptions: u64,
    /// The round-trip time of the present connection.
    pub round_trip: Option<Duration>,
    /// Why the link is not established; or why it keeps its old credentials; or which request the other relay refused last for
    /// lack of rights, until it accepts one.
    pub problem: Option<String>,
}

/// The configured upstream relays in order of preference, and relays of the fleet.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    pub(super) members: BTreeMap<usize, Member>,
    next: usize,
    pub(super) credentials: Option<Arc<dyn LinkCredentials>>,
    /// The revision of the credentials at the last look.
    pub(super) revision: u64,
}

/// One other relay and the link to it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) upstream: Upstream,
    /// How the newest attempt connects, with its credentials.
    target: Arc<Target>,
    /// The number of the relay, if it is one of the fleet.
    relay: Option<RelayId>,
    backoff: Backoff,
    /// The pauses between questions whether requests return to this relay.
    probes: Backoff,
    /// When the next question is due.
    probe_at: Option<Instant>,
    /// Whether the link was closed because requests returned.
    is_in_ring: bool,
    pub(super) state: State,
    pub(super) renewal: Renewal,
    /// When the present link was established.
    ready_since: Option<Instant>,
    connects: u64,
    failures: u64,
    /// Objects received over earlier connections.
    pub(super) objects: u64,
    problem: Option<String>,
    /// The last refusal for lack of rights.
    pub(super) refusal: Option<String>,
    /// When such a refusal was logged last.
    pub(super) refusal_logged: Option<Instant>,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The next attempt is due at the member's timer.
    Waiting,
    /// The handshake is in progress, or the upstream relay's SETUP has not come.
    Connecting(Handle),
    /// Both sides have sent SETUP.
    Ready(Handle),
}

impl State {
    pub(super) fn handle(self) -> Option<Handle> {
        match self {
            Self::Waiting => None,
            Self::Connecting(handle) | Self::Ready(handle) => Some(handle),
        }
    }
}

impl Upstreams {
    /// Adds an upstream relay, and connects to it at the next timeout.
    pub(super) fn add(&mut self, timers: &mut Timers, now: Instant, upstream: Upstream) {
        self.insert(timers, now, upstream, None);
    }

    /// Adds a relay of the fleet, and connects to it at the next timeout. Returns the number of the link.
    /// `own` is the number of this relay.
    pub(super) fn add_of_fleet(
        &mut self,
        turn: &mut Turn<'_>,
        own: RelayId,
        member: &FleetMember,
    ) -> usize {
        let mut target = Target::clone(&member.target);
        target.setup.fleet_relay = Some(own.0);
        let upstream = Upstream {
            name: member.name.clone(),
            target: Arc::new(target),
            seed: own.0 ^ member.id.0,
            // A relay of the fleet that restarts is another one.
            whereabouts: None,
        };
        self.insert(turn.timers, turn.now, upstream, Some(member.id))
    }

    fn insert(
        &mut self,
        timers: &mut Timers,
        now: Instant,
        upstream: Upstream,
        relay: Option<RelayId>,
    ) -> usize {
        let number = self.next;
        self.next += 1;
        let member = Member {
            backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX, upstream.seed),
            probes: Backoff::new(PROBE_PAUSE_FIRST, PROBE_PAUSE_MAX, upstream.seed),
            probe_at: None,
            is_in_ring: false,
            target: Arc::clone(&upstream.target),
            upstream,
            relay,
            state: State::Waiting,
            renewal: Renewal::default(),
            ready_since: None,
            connects: 0,
            failures: 0,
            objects: 0,
            problem: None,
            refusal: None,
            refusal_logged: None,
        };
        self.members.insert(number, member);
        timers.set(now, Timer::Upstream(number));
        number
    }

    /// Removes the link to a relay of the fleet, which is not established again. Returns its connections.
    pub(super) fn remove(&mut self, number: usize) -> Vec<Handle> {
        let member = self.members.remove(&number);
        member.map_or_else(Vec::new, |member| member.handles().collect())
    }

    /// Returns whether there are no upstream relays. Those of the fleet do not count.
    pub(super) fn is_empty(&self) -> bool {
        self.members.values().all(|member| member.relay.is_some())
    }

    /// Returns the number of established links to upstream relays before that of `handle`, which is its rank among them.
    pub(super) fn rank(&self, handle: Handle) -> usize {
        let before = self
            .members
            .values()
            .take_while(|member| member.state.handle() != Some(handle));
        let before = before.filter(|member| member.relay.is_none());
        before
            .filter(|member| matches!(member.state, State::Ready(_)))
            .count()
    }

    /// Returns the name of the relay behind a link.
    pub(super) fn name(&self, handle: Handle) -> Option<&str> {
        let mut members = self.members.values();
        let member = members.find(|member| member.has(handle))?;
        Some(&member.upstream.name)
    }

    /// Returns the number of the relay behind a link, if it is one of the fleet.
    pub(super) fn relay(&self, handle: Handle) -> Option<RelayId> {
        let mut members = self.members.values();
        let member = members.find(|member| member.has(handle))?;
        member.relay
    }

    /// Returns whether a link is established.
    pub(super) fn is_ready(&self, number: usize) -> bool {
        let member = self.members.get(&number);
        member.is_some_and(|member| matches!(member.state, State::Ready(_)))
    }

    /// Returns whether the last attempt to establish a link has failed, or the link was lost since.
    pub(super) fn is_failing(&self, number: usize) -> bool {
        let member = self.members.get(&number);
        member.is_some_and(|member| member.problem.is_some())
    }

    /// Starts to connect to a relay whose timer is due: because there is no link, or because it has old credentials.
    pub(super) fn connect(&mut self, turn: &mut Turn<'_>, number: usize) {
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        let is_renewal = match member.state {
            State::Waiting => false,
            State::Connecting(_) => return,
            State::Ready(_) => true,
        };
        if turn.sessions.is_draining() || is_renewal && !member.renewal.is_due(self.revision) {
            return;
        }
        if let Some(credentials) = &self.credentials {
            let mut target = Target::clone(&member.upstream.target);
            credentials.apply(&mut target);
            member.target = Arc::new(target);
        }
        member.renewal.begin(self.revision);
        let target = &member.target;
        let whereabouts = member.upstream.whereabouts.as_ref();
        let remote = whereabouts.map_or(target.remote, |whereabouts| whereabouts.address());
        let client = &target.client;
        let name = &target.server_name;
        let options = LinkOptions {
            // Of a relay with several threads, the first one serves the fleet.
            to_first_shard: member.relay.is_some(),
            ..OPTIONS
        };
        let attempt = turn
            .endpoint
            .connect_with(turn.now, client, remote, name, 0, Some(options));
        match attempt {
            Ok(handle) if is_renewal => member.renewal.successor = Some(handle),
            Ok(handle) => member.state = State::Connecting(handle),
            Err(error) if is_renewal => member.put_off_renewal(turn, number, &error.to_string()),
            Err(error) => member.fail(turn, number, error.to_string()),
        }
    }

    /// Begins the session of a link whose handshake is complete. Returns false if the connection is no link.
    pub(super) fn on_connected(&mut self, turn: &mut Turn<'_>, handle: Handle) -> bool {
        let mut members = self.members.iter_mut();
        let Some((&number, member)) = members.find(|(_, member)| member.is_connecting(handle))
        else {
            return false;
        };
        let target = Arc::clone(&member.target);
        let Some(mut connection) = turn.endpoint.connection(turn.now, handle) else {
            return true;
        };
        let protocol = connection.protocol().unwrap_or_default();
        let Some(draft) = Draft::from_alpn(protocol.as_bytes()) else {
            let code = SessionError::VERSION_NEGOTIATION_FAILED;
            connection.close(code.0, b"no draft of MOQT was negotiated");
            let problem = format!("it chose the unknown protocol {protocol:?}");
            member.on_lost(turn, number, handle, problem);
            return true;
        };
        let kind = match member.relay {
            Some(_) => PeerKind::Fleet,
            None => PeerKind::Upstream,
        };
        let mut session = Session::new(session::Config {
            draft,
            side: Side::Client,
            limits: link_limits(turn.config),
            setup: Setup {
                implementation: turn.config.implementation.clone(),
                ..target.setup.clone()
            },
        });
        session.start(turn.now, &mut connection);
        turn.sessions.insert(Peer::link(handle, kind, session));
        true
    }

    /// Handles the other relay's SETUP.
    pub(super) fn on_ready(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let revision = self.revision;
        let mut members = self.members.iter_mut();
        if let Some((&number, member)) = members.find(|(_, member)| member.is_connecting(handle)) {
            let replaced = member.replace(turn, number, revision);
            member.state = State::Ready(handle);
            member.ready_since = Some(turn.now);
            member.probes.reset();
            member.is_in_ring = false;
            if let Some(relay) = member.relay {
                turn.push(Effect::FleetLinkChanged(relay, Some(handle)));
            } else {
                turn.push(Effect::FallbackFound(handle));
                member.probe_later(turn, number, Duration::ZERO);
            }
            if let Some(replaced) = replaced {
                turn.push(Effect::LinkReplaced(replaced, handle));
            }
            member.connects += 1;
            member.problem = None;
            member.refusal = None;
            turn.counters.links_established += 1;
            let session = turn.sessions.get(handle).map(|peer| peer.session());
            let draft = session.map(|session| session.draft().alpn());
            tracing::info!(upstream = member.upstream.name, draft, "link established");
        }
    }

    /// Asks an upstream relay whether requests return to this relay, and again after a pause.
    pub(super) fn probe(&mut self, turn: &mut Turn<'_>, number: usize) {
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        member.probe_at = None;
        let State::Ready(handle) = member.state else {
            return;
        };
        let track = Probe::new(turn.config.identity).track().clone();
        let sent = turn.with_session(handle, |session, connection| {
            session.track_status(connection, track, Parameters::default())
        });
        match sent {
            Some(Ok(request)) => turn.insert_request((handle, request), Purpose::RingProbe),
            Some(Err(_)) | None => turn.counters.link_requests_unsent += 1,
        }
        let pause = member.probes.pause();
        member.probe_later(turn, number, pause);
    }

    /// Closes a link over which the relay's own requests returned to it.
    pub(super) fn on_ring(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let ready = State::Ready(handle);
        let mut members = self.members.values_mut();
        if let Some(member) = members.find(|member| member.state == ready) {
            member.is_in_ring = true;
            turn.counters.links_in_ring += 1;
            let upstream = &member.upstream.name;
            let reason = format!(
                "what this relay asks {upstream} comes back to it: the upstream relays form a ring"
            );
            turn.push(Effect::CloseSession(handle, SessionError::NO_ERROR, reason));
        }
    }

    /// Handles the loss of a connection. If it was a link, it is established again after a pause.
    pub(super) fn on_lost(&mut self, turn: &mut Turn<'_>, handle: Handle, reason: &str) {
        let mut members = self.members.iter_mut();
        if let Some((&number, member)) = members.find(|(_, member)| member.has(handle)) {
            member.on_lost(turn, number, handle, reason.to_owned());
        }
    }

    /// Returns the state of every link.
    pub(super) fn states(&self) -> impl Iterator<Item = (Option<Handle>, LinkState)> {
        self.members.values().map(|member| {
            let state = LinkState {
                name: member.upstream.name.clone(),
                relay: member.relay,
                is_ready: matches!(member.state, State::Ready(_)),
                connects: member.connects,
                failures: member.failures,
                objects: member.objects,
                bytes_received: 0,
                subscriptions: 0,
                round_trip: None,
                problem: member.trouble().cloned(),
            };
            (member.state.handle(), state)
        })
    }
}

impl Member {
    fn probe_later(&mut self, turn: &mut Turn<'_>, number: usize, pause: Duration) {
        let at = turn.now + pause;
        if let Some(earlier) = self.probe_at.replace(at) {
            turn.timers.cancel(earlier, Timer::Ring(number));
        }
        turn.timers.set(at, Timer::Ring(number));
    }

    /// Handles the loss of one of the connections.
    fn on_lost(&mut self, turn: &mut Turn<'_>, number: usize, handle: Handle, reason: String) {
        let objects = turn.sessions.get(handle).map_or(0, |peer| peer.objects);
        if self
            .renewal
            .forget_former(handle, objects, &mut self.objects)
        {
            return;
        }
        if self.renewal.successor.take_if(|it| *it == handle).is_some() {
            return self.put_off_renewal(turn, number, &reason);
        }
        self.objects += objects;
        self.fail(turn, number, reason);
        if let Some(successor) = self.renewal.successor.take() {
            // It goes on as the next attempt. The timer finds it connecting.
            self.state = State::Connecting(successor);
        }
    }

    /// Plans the next attempt to replace the link.
    fn put_off_renewal(&mut self, turn: &mut Turn<'_>, number: usize, problem: &str) {
        let upstream = &self.upstream.name;
        tracing::warn!(
            upstream,
            "the link keeps its old credentials, the new ones are not accepted: {problem}; trying again"
        );
        turn.counters.links_failed += 1;
        self.failures += 1;
        let at = turn.now + self.backoff.pause();
        turn.timers.set(at, Timer::Upstream(number));
        self.renewal.problem = Some(format!("the new credentials are not accepted: {problem}"));
    }

    /// Returns what an operator has to know of the link: why there is none, or what is wrong with it.
    fn trouble(&self) -> Option<&String> {
        let problem = self.problem.as_ref().or(self.renewal.problem.as_ref());
        problem.or(self.refusal.as_ref())
    }

    /// Notes that the link is lost or cannot be established, and plans the next attempt.
    fn fail(&mut self, turn: &mut Turn<'_>, number: usize, problem: String) {
        self.state = State::Waiting;
        let lasted = self.ready_since.take();
        if lasted.is_some_and(|since| turn.now.saturating_duration_since(since) >= PAUSE_MAX) {
            // A link that breaks as soon as it is established is tried less and less often.
            self.backoff.reset();
        }
        self.failures += 1;
        turn.counters.links_failed += 1;
        let pause = if self.is_in_ring {
            self.probes.pause().max(RING_PAUSE_MIN)
        } else {
            self.backoff.pause()
        };
        if self.problem.as_ref() != Some(&problem) && !turn.sessions.is_draining() {
            let upstream = &self.upstream.name;
            tracing::warn!(upstream, "no link: {problem}; trying again");
        }
        self.problem = Some(problem);
        turn.timers.set(turn.now + pause, Timer::Upstream(number));
        if let Some(relay) = self.relay {
            turn.push(Effect::FleetLinkChanged(relay, None));
        }
    }
}

/// A relay that is gone is noticed after 1.2 to 1.5 s, about when its publishers and viewers notice it too, so that its tracks
/// can be asked for elsewhere when they arrive there. Four pings in a row have to be lost before, and QUIC waits for three
/// probe timeouts at least, so a slow path is not mistaken for a dead relay.
const OPTIONS: LinkOptions = LinkOptions {
    idle_timeout: Duration::from_millis(1200),
    keep_alive: Duration::from_millis(300),
    to_first_shard: false,
};
/// The longest first pause before a link is established again.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest first pause before the next question whether requests return. Links of a ring that come up together are
/// noticed then.
const PROBE_PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest pause between these questions.
const PROBE_PAUSE_MAX: Duration = Duration::from_mins(1);
/// The shortest pause before a link of a ring is established again. The settings have to be mended first.
const RING_PAUSE_MIN: Duration = Duration::from_secs(15);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
