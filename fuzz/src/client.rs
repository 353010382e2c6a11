//! Fuzzing of a client of MOQT whose servers do anything, from the first packet to the end of its last session.

#[path = "hostile.rs"]
#[expect(dead_code, reason = "only relays are in a fleet")]
mod hostile;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_client::client::Client;
use weir_client::roaming::Resolver;
use weir_client::target::Target;
use weir_client::turn::Turn;
use weir_moqt::draft::Draft;
use weir_moqt::error::ResetCode;
use weir_moqt::location::Location;
use weir_moqt::message::{FetchKind, RequestKind};
use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_moqt::parameter::Parameters;
use weir_moqt::property::Properties;
use weir_moqt::session::{Event as SessionEvent, Refused, RequestId};
use weir_quic::{App, Endpoint, Event};
use weir_sim::{NodeConfig, SERVER_NAME, Sim};

use self::hostile::{Hostile, Input};

/// Plays `input` as what a client asks for, and as the scripts of its two servers, with a byte of 255 between them. The
/// first byte selects the draft, the second one whether the client has a second server, and whether it follows a GOAWAY.
/// Checks that each request has one outcome and no event after its end, and that the client can always be stopped.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let draft = Draft::ALL[usize::from(input.byte()) % Draft::ALL.len()];
    let roams = input.byte();
    let mut scripts = input.0.split(|byte| *byte == 255);
    let wishes = scripts.next().unwrap_or_default().to_vec();
    let mut sim = Sim::new(1);
    let servers = [(); 2].map(|()| {
        sim.add_node(NodeConfig {
            server: Some(sim.server_tls(&[draft.alpn()])),
            ..NodeConfig::default()
        })
    });
    let [mut target, other] = servers.map(|server| {
        let client = sim.client_config(&[draft.alpn()]);
        Target::new(sim.address(server), SERVER_NAME, client)
    });
    if roams & 1 == 1 {
        target.alternatives.push(Arc::new(other.clone()));
    }
    if roams & 2 == 2 {
        target.resolver = Some(Resolver::new(move |_| Some(other.clone())));
    }
    for server in servers {
        let script = scripts.next().unwrap_or_default();
        sim.start(server, Hostile::new(script, Vec::new(), None));
    }
    let node = sim.add_node(NodeConfig::default());
    let asker = Asker {
        begins_at: sim.now(),
        client: Client::new(Arc::new(target)),
        wishes,
        requests: BTreeMap::new(),
        offers: BTreeSet::new(),
    };
    sim.start(node, asker);
    sim.run(Duration::from_secs(20));
    sim.shutdown(node);
    sim.run(Duration::from_secs(25));
    let client = &sim.app::<Asker>(node).client;
    assert!(client.is_closed(), "a client can be stopped");
    assert_ne!(client.failure(), Some(""), "a failure has a reason");
}

/// A client that asks for what its script says.
struct Asker {
    begins_at: Instant,
    client: Client,
    /// What it asks for in each session.
    wishes: Vec<u8>,
    /// Its requests, and how far they are.
    requests: BTreeMap<RequestId, Known>,
    /// The relay's requests, which it refuses. Objects that came with them may follow.
    offers: BTreeSet<RequestId>,
}

/// What is known of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Asked,
    Accepted,
    /// Objects may still come.
    Done,
    /// Nothing may come.
    Over,
}

impl Asker {
    fn hear(&mut self, turn: &mut Turn<'_>) {
        if self.client.take_move().is_some() {
            self.requests.clear();
            self.offers.clear();
        }
        while let Some(event) = self.client.poll_event() {
            self.check(&event);
            match event {
                SessionEvent::Ready { .. } => self.ask(turn),
                SessionEvent::Update { id, .. } => self.client.accept_update(turn, id),
                SessionEvent::Request { id, .. } => {
                    let refusal = weir_moqt::message::RequestError::new(
                        weir_moqt::error::RequestErrorCode::NOT_SUPPORTED,
                        "it only asks",
                    );
                    self.client.refuse(turn, id, refusal);
                }
                SessionEvent::GoAway(goaway) if self.client.may_follow(&goaway) => {
                    // It stays if there is no other relay.
                    if self.client.follow(turn, &goaway) {
                        return;
                    }
                }
                SessionEvent::Violated(violation) => {
                    let reason = violation.text().into_owned();
                    self.client.fail(turn, violation.code, reason);
                }
                SessionEvent::GoAway(_)
                | SessionEvent::Accepted { .. }
                | SessionEvent::Updated { .. }
                | SessionEvent::Rejected { .. }
                | SessionEvent::Done { .. }
                | SessionEvent::StateChanged { .. }
                | SessionEvent::Namespace { .. }
                | SessionEvent::NamespaceDone { .. }
                | SessionEvent::PublishBlocked { .. }
                | SessionEvent::Closed { .. }
                | SessionEvent::RequestGoAway { .. }
                | SessionEvent::Subgroup { .. }
                | SessionEvent::Object { .. }
                | SessionEvent::Fetched { .. }
                | SessionEvent::FetchObject { .. }
                | SessionEvent::Payload { .. }
                | SessionEvent::StreamEnd { .. }
                | SessionEvent::Datagram { .. } => {}
            }
        }
    }

    /// Asks for everything. A request that may end at once is cancelled.
    fn ask(&mut self, turn: &mut Turn<'_>) {
        let wishes = self.wishes.clone();
        let mut input = Input(&wishes);
        while !input.0.is_empty() {
            let Some((session, mut connection)) = self.client.open(turn) else {
                return;
            };
            let wish = input.byte();
            let asked = ask_one(session, &mut connection, wish);
            let Ok(id) = asked else { continue };
            if wish & 0xe0 == 0xe0 {
                session.cancel(&mut connection, id, ResetCode::CANCELLED);
                self.requests.insert(id, Known::Over);
                continue;
            }
            assert_eq!(
                self.requests.insert(id, Known::Asked),
                None,
                "{id:?} is used twice"
            );
        }
    }

    /// Checks that an event may come, and notes it.
    fn check(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Accepted { id, .. } => self.step(*id, &[Known::Asked], Known::Accepted),
            SessionEvent::Rejected { id, .. } => self.step(*id, &[Known::Asked], Known::Over),
            SessionEvent::Done { id, .. } => self.step(*id, &[Known::Accepted], Known::Done),
            SessionEvent::Closed { id, .. } => {
                let before = [Known::Asked, Known::Accepted, Known::Done];
                if self.requests.contains_key(id) {
                    self.step(*id, &before, Known::Done);
                }
            }
            SessionEvent::Subgroup { request, .. }
            | SessionEvent::Fetched { request, .. }
            | SessionEvent::Datagram { request, .. } => {
                let known = self.requests.get(request);
                let is_live = known.is_some_and(|known| *known != Known::Over);
                assert!(is_live || self.offers.contains(request), "{event:?}");
            }
            SessionEvent::Namespace { id, .. }
            | SessionEvent::NamespaceDone { id, .. }
            | SessionEvent::PublishBlocked { id, .. } => {
                assert_eq!(self.requests.get(id), Some(&Known::Accepted), "{event:?}");
            }
            SessionEvent::Request { id, .. } => {
                self.offers.insert(*id);
            }
            SessionEvent::GoAway(_)
            | SessionEvent::Violated(_)
            | SessionEvent::Ready { .. }
            | SessionEvent::Update { .. }
            | SessionEvent::Updated { .. }
            | SessionEvent::StateChanged { .. }
            | SessionEvent::RequestGoAway { .. }
            | SessionEvent::Object { .. }
            | SessionEvent::FetchObject { .. }
            | SessionEvent::Payload { .. }
            | SessionEvent::StreamEnd { .. } => {}
        }
    }

    fn step(&mut self, id: RequestId, before: &[Known], after: Known) {
        let known = self.requests.get_mut(&id);
        let known = known.unwrap_or_else(|| panic!("{id:?} was not asked"));
        assert!(
            before.contains(known),
            "{id:?} is {known:?} and becomes {after:?}"
        );
        *known = after;
    }
}

/// Sends the request that a byte stands for.
fn ask_one(
    session: &mut weir_moqt::session::Session,
    connection: &mut weir_quic::Connection<'_>,
    wish: u8,
) -> Result<RequestId, Refused> {
    let (name, track) = name_one(wish);
    let none = Parameters::default();
    match RequestKind::ALL[usize::from(wish) % RequestKind::ALL.len()] {
        RequestKind::Subscribe => session.subscribe(connection, track, none),
        RequestKind::Publish => {
            session.publish(connection, track, u64::from(wish), none, Properties::EMPTY)
        }
        RequestKind::Fetch => {
            let kind = FetchKind::Standalone {
                track,
                start: Location::new(0, 0),
                end: Location::new(9, 9),
            };
            session.fetch(connection, kind, none)
        }
        RequestKind::TrackStatus => session.track_status(connection, track, none),
        RequestKind::PublishNamespace => session.publish_namespace(connection, name, none),
        RequestKind::SubscribeNamespace => session.subscribe_namespace(connection, name, none),
        RequestKind::SubscribeTracks => session.subscribe_tracks(connection, name, none),
    }
}

/// The namespace, and one of four tracks in it.
fn name_one(wish: u8) -> (Namespace, FullTrackName) {
    let name = Namespace::new(["a"]).expect("it is short");
    let track = TrackName::new([b't' + wish / 8 % 4]).expect("it is short");
    let track = FullTrackName::new(name.clone(), track).expect("it is short");
    (name, track)
}

impl App for Asker {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        // It opens no data streams.
        let _datagram = self.client.handle_event(turn, event);
        self.hear(turn);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.client.has_started() {
            self.client.poll_timeout()
        } else {
            Some(self.begins_at)
        }
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        if !self.client.has_started() {
            return self.client.connect(turn, 0);
        }
        self.client.handle_timeout(turn);
        self.hear(turn);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        self.client.close(turn, "it was stopped");
    }

    fn is_finished(&self) -> bool {
        self.client.is_closed()
    }
}
