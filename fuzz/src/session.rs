//! Fuzzing of one session against a peer that does anything: arbitrary bytes, valid messages at the wrong time, streams
//! ended at any point. The role answers at random within the rules.

#[path = "session/checks.rs"]
mod checks;
#[path = "session/peer.rs"]
mod peer;
#[path = "session/script.rs"]
mod script;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_moqt::data::{
    FetchHeader, ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId,
};
use weir_moqt::draft::Draft;
use weir_moqt::error::{PublishDoneCode, RequestErrorCode, ResetCode};
use weir_moqt::limits::Limits;
use weir_moqt::location::Location;
use weir_moqt::message::{
    Fetch, FetchKind, FetchOk, GoAway, Message, Publish, PublishDone, PublishNamespace,
    RequestError, RequestKind, RequestOk, RequestUpdate, Setup, Subscribe, SubscribeNamespace,
    SubscribeOk, SubscribeTracks, TrackStatus,
};
use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_moqt::parameter::Parameters;
use weir_moqt::property::Properties;
use weir_moqt::session::{Config, RequestId, Session, Side};
use weir_moqt::token::Token;
use weir_transport::{Direction, Read, StreamId};

use self::peer::Peer;
use self::script::*;

/// Runs the operations in `input`. Checks after each that the session keeps its limits, uses its transport correctly,
/// and sends the role only permitted events.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    for draft in Draft::ALL {
        run_in(draft, Input(input));
    }
}

fn run_in(draft: Draft, mut input: Input<'_>) {
    let side = if input.byte() & 1 == 0 {
        Side::Client
    } else {
        Side::Server
    };
    let mut world = World::new(draft, side);
    if input.byte() & 1 == 0 {
        world.say_setup();
    }
    while !input.0.is_empty() {
        world.operate(&mut input);
        world.hear();
        world.read_on();
    }
}

/// The first moment; nothing reads the clock after it.
#[expect(
    clippy::disallowed_methods,
    reason = "an Instant has no other beginning"
)]
fn epoch() -> Instant {
    Instant::now()
}

/// Limits small enough to be reached often.
fn limits() -> Limits {
    Limits {
        message_bytes_max: 512,
        object_header_bytes_max: 64,
        requests_max: 4,
        requests_local_max: 6,
        requests_queued_max: 2,
        requests_draining_max: 2,
        request_id_gaps_max: 2,
        updates_max: 2,
        namespaces_max: 2,
        streams_max: 12,
        outgoing_bytes_max: 256,
        aliases_retired_max: 2,
        tracks_lingering_max: 2,
        datagrams_unknown_max: 4,
        datagrams_unknown_bytes_max: 64,
        streams_unknown_max: 2,
        ..Limits::default()
    }
}

/// What the role knows of a request.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Known {
    Pending,
    Established,
    Ending,
}

/// The session, its peer and its role.
struct World {
    draft: Draft,
    session: Session,
    peer: Peer,
    now: Instant,
    requests: BTreeMap<RequestId, (bool, RequestKind, Known)>,
    updates_due: BTreeMap<RequestId, u64>,
    closed: BTreeSet<RequestId>,
    data: BTreeSet<StreamId>,
    is_going_away: bool,
    is_over: bool,
}

impl World {
    fn new(draft: Draft, side: Side) -> Self {
        let setup = Setup {
            max_auth_token_cache_size: Some(64),
            ..Setup::default()
        };
        let config = Config {
            draft,
            side,
            limits: limits(),
            setup,
        };
        let mut world = Self {
            draft,
            session: Session::new(config),
            peer: Peer {
                draft,
                side,
                channels: BTreeMap::new(),
                later: VecDeque::new(),
                opened: 0,
                credit: 4,
                window: 200,
                is_closed: false,
                asked: BTreeMap::new(),
                requested: Vec::new(),
                requests: 0,
            },
            now: epoch(),
            requests: BTreeMap::new(),
            updates_due: BTreeMap::new(),
            closed: BTreeSet::new(),
            data: BTreeSet::new(),
            is_going_away: false,
            is_over: false,
        };
        world.session.start(world.now, &mut world.peer);
        world
    }

    fn say_setup(&mut self) {
        let stream = self.open(Direction::Uni);
        let mut out = BytesMut::new();
        Message::Setup(Setup::default())
            .encode(self.draft, &mut out)
            .expect("it is short");
        self.receive(stream, Read::Data(out.freeze()));
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.byte() % 24 {
            0 => {
                self.open(Direction::Uni);
            }
            1 => {
                self.open(Direction::Bi);
            }
            2 => {
                let (stream, data) = (self.stream(input), input.bytes());
                if !data.is_empty() {
                    self.receive(stream, Read::Data(data.into()));
                }
            }
            3 => {
                let (stream, message) = (self.stream(input), message(input));
                self.say(input, stream, &message);
            }
            4 | 5 => self.request(input),
            20 | 21 => self.reply(input),
            22 => self.follow_up(input),
            6 => {
                let stream = self.stream(input);
                self.receive(stream, Read::Fin);
            }
            7 => {
                let stream = self.stream(input);
                self.receive(stream, Read::Reset(input.number(4)));
            }
            8 => self.stop(input),
            9 => {
                let data = input.bytes();
                self.receive_datagram(data.into());
            }
            10 => {
                let data = datagram(input);
                self.receive_datagram(data);
            }
            11 => self.say_objects(input),
            12 => {
                self.now += Duration::from_millis(input.number(255) * 10);
                self.session.handle_timeout(self.now, &mut self.peer);
            }
            13 => self.unblock(input),
            14 => self.ask(input),
            15 | 16 => self.answer(input),
            17 => self.tell(input),
            18 => self.update(input),
            _ => self.end(input),
        }
    }

    fn open(&mut self, direction: Direction) -> StreamId {
        let opener = self.session.side().peer();
        let stream = self.peer.add(opener, direction);
        self.session
            .handle_opened(self.now, &mut self.peer, stream, direction);
        stream
    }

    fn stream(&self, input: &mut Input<'_>) -> StreamId {
        let which = usize::from(input.byte());
        let streams = &self.peer.channels;
        streams
            .keys()
            .copied()
            .nth(which % streams.len().max(1))
            .unwrap_or(StreamId(0))
    }

    fn receive(&mut self, stream: StreamId, read: Read) {
        let Some(channel) = self.peer.channels.get_mut(&stream) else {
            return;
        };
        if channel.is_received {
            return;
        }
        channel.is_received = matches!(read, Read::Fin | Read::Reset(_));
        channel.incoming.push_back(read);
        self.session
            .handle_readable(self.now, &mut self.peer, stream);
    }

    fn stop(&mut self, input: &mut Input<'_>) {
        let stream = self.stream(input);
        let Some(channel) = self.peer.channels.get_mut(&stream) else {
            return;
        };
        if !channel.is_sent && !std::mem::replace(&mut channel.is_stopped_there, true) {
            let code = input.number(4);
            self.session
                .handle_stopped(self.now, &mut self.peer, stream, code);
        }
    }

    fn receive_datagram(&mut self, data: Bytes) {
        let received = self.session.handle_datagram(self.now, &mut self.peer, data);
        if let Some((request, _)) = received {
            assert!(
                self.requests.contains_key(&request),
                "objects of a known subscription"
            );
        }
    }

    /// Sends a valid request of the peer.
    fn request(&mut self, input: &mut Input<'_>) {
        let request_id = self.fresh_id();
        let kind = RequestKind::ALL[usize::from(input.byte()) % RequestKind::ALL.len()];
        let message = opening(input, kind, request_id);
        let stream = self.open(Direction::Bi);
        self.peer.requested.push((stream, kind));
        self.say(input, stream, &message);
    }

    /// Sends a message of the peer on the request stream of the session, usually a permitted one.
    fn reply(&mut self, input: &mut Input<'_>) {
        let which = usize::from(input.byte());
        let asked: Vec<StreamId> = self.peer.asked.keys().copied().collect();
        let Some(&stream) = asked.get(which % asked.len().max(1)) else {
            return;
        };
        let answered = self.peer.asked[&stream].answered;
        let message = if answered {
            self.later(input, stream)
        } else {
            self.answer_to(input, stream)
        };
        self.say(input, stream, &message);
        if input.number(4) == 0 {
            self.receive(stream, Read::Fin);
        }
    }

    fn answer_to(&mut self, input: &mut Input<'_>, stream: StreamId) -> Message {
        let asked = self.peer.asked.get_mut(&stream).expect("it was picked");
        asked.answered = true;
        let properties = properties(input);
        if input.number(4) == 0 {
            return Message::RequestError(error());
        }
        if let Message::Subscribe(subscribe) = &asked.message {
            let track_alias = alias(&subscribe.track);
            return Message::SubscribeOk(SubscribeOk {
                properties,
                ..subscribe_ok(track_alias)
            });
        }
        if let Message::Fetch(_) = &asked.message {
            return Message::FetchOk(FetchOk {
                properties,
                ..fetch_ok()
            });
        }
        Message::RequestOk(RequestOk::default())
    }

    fn later(&mut self, input: &mut Input<'_>, stream: StreamId) -> Message {
        match (&self.peer.asked[&stream].message, input.byte() % 4) {
            (Message::Subscribe(_), 0) => Message::PublishDone(done()),
            (Message::Publish(_), 0) => self.fresh_update(),
            (Message::SubscribeNamespace(_), 0 | 1) => Message::Namespace(namespace(input)),
            (Message::SubscribeNamespace(_), 2) => Message::NamespaceDone(namespace(input)),
            (Message::SubscribeTracks(_), 0) => Message::PublishBlocked(FullTrackName {
                namespace: namespace(input),
                name: track(input).name,
            }),
            (_, 1) => Message::RequestError(error()),
            (_, 2) => Message::GoAway(GoAway::default()),
            (_, _) => Message::RequestOk(RequestOk::default()),
        }
    }

    /// Sends a message of the peer on the stream of its own request, usually a permitted one.
    fn follow_up(&mut self, input: &mut Input<'_>) {
        let which = usize::from(input.byte());
        let requested = &self.peer.requested;
        let Some(&(stream, kind)) = requested.get(which % requested.len().max(1)) else {
            return;
        };
        let message = match (kind, input.byte() % 4) {
            (RequestKind::Publish, 0) => Message::PublishDone(done()),
            (RequestKind::Publish, 1) => Message::RequestOk(RequestOk::default()),
            (_, 2) => Message::GoAway(GoAway::default()),
            (_, 3) => return self.receive(stream, Read::Fin),
            (_, _) => self.fresh_update(),
        };
        self.say(input, stream, &message);
    }

    fn fresh_id(&mut self) -> u64 {
        self.peer.requests += 1;
        let parity = u64::from(self.session.side() == Side::Client);
        (self.peer.requests - 1) * 2 + parity
    }

    fn fresh_update(&mut self) -> Message {
        let (request_id, parameters) = (self.fresh_id(), Parameters::default());
        Message::RequestUpdate(RequestUpdate {
            request_id,
            parameters,
        })
    }

    fn say(&mut self, input: &mut Input<'_>, stream: StreamId, message: &Message) {
        let mut out = BytesMut::new();
        message.encode(self.draft, &mut out).expect("it is short");
        let mut out = out.freeze();
        let split = out.split_to(usize::from(input.byte()) % (out.len() + 1));
        for piece in [split, out] {
            if !piece.is_empty() {
                self.receive(stream, Read::Data(piece));
            }
        }
    }

    fn say_objects(&mut self, input: &mut Input<'_>) {
        let stream = self.open(Direction::Uni);
        let mut out = BytesMut::new();
        if input.byte() & 1 == 0 {
            let header = SubgroupHeader {
                track_alias: alias(&track(input)),
                group: input.number(4),
                subgroup: SubgroupId::Zero,
                priority: None,
                has_properties: false,
                end_of_group: false,
                first_object: true,
            };
            header.encode(self.draft, &mut out);
            let (properties, status) = (Properties::EMPTY, ObjectStatus::Normal);
            let object = ObjectHeader {
                id: 0,
                properties,
                status,
                payload_len: 2,
            };
            object.encode_in_subgroup(None, false, self.draft, &mut out);
            out.extend_from_slice(b"hi");
        } else {
            FetchHeader {
                request_id: input.number(16),
            }
            .encode(self.draft, &mut out);
        }
        self.receive(stream, Read::Data(out.freeze()));
    }

    fn unblock(&mut self, input: &mut Input<'_>) {
        self.peer.window += usize::from(input.byte());
        self.peer.credit += input.number(3);
        let streams: Vec<StreamId> = self.peer.channels.keys().copied().collect();
        for stream in streams {
            self.session
                .handle_writable(self.now, &mut self.peer, stream);
        }
        for direction in [Direction::Uni, Direction::Bi] {
            self.session
                .handle_streams_available(self.now, &mut self.peer, direction);
        }
    }

    fn ask(&mut self, input: &mut Input<'_>) {
        let (session, peer) = (&mut self.session, &mut self.peer);
        let (track, none, name) = (track(input), Parameters::default(), namespace(input));
        let kind = RequestKind::ALL[usize::from(input.byte()) % RequestKind::ALL.len()];
        let id = match kind {
            RequestKind::Subscribe => session.subscribe(peer, track, none),
            RequestKind::Publish => {
                session.publish(peer, track.clone(), alias(&track), none, Properties::EMPTY)
            }
            RequestKind::Fetch => session.fetch(peer, fetch_kind(track), none),
            RequestKind::TrackStatus => session.track_status(peer, track, none),
            RequestKind::PublishNamespace => session.publish_namespace(peer, name, none),
            RequestKind::SubscribeNamespace => session.subscribe_namespace(peer, name, none),
            RequestKind::SubscribeTracks => session.subscribe_tracks(peer, name, none),
        };
        if let Ok(id) = id {
            let previous = self.requests.insert(id, (true, kind, Known::Pending));
            assert_eq!(previous, None, "a Request ID is used once");
        }
    }

    /// Returns a request in a state, if there is one.
    fn pick(
        &self,
        input: &mut Input<'_>,
        may: impl Fn(bool, RequestKind, Known) -> bool,
    ) -> Option<(RequestId, RequestKind)> {
        let able = self
            .requests
            .iter()
            .filter(|(_, (own, kind, known))| may(*own, *kind, *known));
        let able: Vec<_> = able.map(|(id, (_, kind, _))| (*id, *kind)).collect();
        able.get(usize::from(input.byte()) % able.len().max(1))
            .copied()
    }

    fn answer(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let accept = choice & 1 == 0;
        if choice & 2 != 0 && !self.updates_due.is_empty() {
            return self.answer_update(accept);
        }
        let (session, peer) = (&mut self.session, &mut self.peer);
        let able = self
            .requests
            .iter()
            .find(|(_, (own, _, known))| !own && *known == Known::Pending);
        let Some((&id, &(_, kind, _))) = able else {
            return self.answer_update(accept);
        };
        match kind {
            _ if !accept => session.request_error(peer, id, error()),
            RequestKind::Subscribe => session.subscribe_ok(peer, id, subscribe_ok(1)),
            RequestKind::Fetch => session.fetch_ok(peer, id, fetch_ok()),
            RequestKind::Publish
            | RequestKind::TrackStatus
            | RequestKind::PublishNamespace
            | RequestKind::SubscribeNamespace
            | RequestKind::SubscribeTracks => session.request_ok(peer, id, RequestOk::default()),
        }
        if accept && kind != RequestKind::TrackStatus {
            self.requests.insert(id, (false, kind, Known::Established));
        } else {
            self.forget(id);
        }
    }

    fn answer_update(&mut self, accept: bool) {
        let Some((&id, due)) = self.updates_due.iter_mut().next() else {
            return;
        };
        *due -= 1;
        if *due == 0 {
            self.updates_due.remove(&id);
        }
        if accept {
            self.session
                .update_ok(&mut self.peer, id, RequestOk::default());
            return;
        }
        self.session.update_error(&mut self.peer, id, error());
        let lasts = self.requests.get(&id).is_some_and(|&(own, kind, known)| {
            let is_answered = own || known == Known::Established;
            is_answered && matches!(kind, RequestKind::Subscribe | RequestKind::Publish)
        });
        if !lasts {
            self.forget(id);
        }
    }

    fn tell(&mut self, input: &mut Input<'_>) {
        let suffix = namespace(input);
        let pick = self.pick(input, |own, kind, known| {
            !own && kind == RequestKind::SubscribeNamespace && known == Known::Established
        });
        if let Some((id, _)) = pick {
            self.session.namespace(&mut self.peer, id, suffix);
        }
    }

    fn update(&mut self, input: &mut Input<'_>) {
        let pick = self.pick(input, |own, kind, known| {
            let takes = if own {
                kind != RequestKind::TrackStatus
            } else {
                kind == RequestKind::Publish && known == Known::Established
            };
            takes && known != Known::Ending
        });
        if let Some((id, _)) = pick {
            // The update may be refused.
            self.session
                .update(&mut self.peer, id, Parameters::default())
                .ok();
        }
    }

    fn end(&mut self, input: &mut Input<'_>) {
        let (session, peer) = (&mut self.session, &mut self.peer);
        match input.byte() % 5 {
            0 => {
                let pick = self.pick(input, |own, kind, known| {
                    let publishes = if own {
                        RequestKind::Publish
                    } else {
                        RequestKind::Subscribe
                    };
                    kind == publishes && (own || known == Known::Established)
                });
                let Some((id, _)) = pick else { return };
                self.session.publish_done(&mut self.peer, id, done());
                self.forget(id);
            }
            1 => {
                let Some((id, _)) = self.pick(input, |_, _, _| true) else {
                    return;
                };
                self.session.forget(&mut self.peer, id);
                self.forget(id);
            }
            2 => {
                let Some(stream) = self.data.pop_first() else {
                    return;
                };
                session.stop_data(peer, stream, ResetCode::CANCELLED);
            }
            3 if !self.is_going_away => {
                self.is_going_away = true;
                session.goaway(peer, GoAway::default());
            }
            _ => {
                let Some((id, _)) = self.pick(input, |_, _, _| true) else {
                    return;
                };
                self.session
                    .cancel(&mut self.peer, id, ResetCode::CANCELLED);
                self.forget(id);
            }
        }
    }

    /// Forgets a request that the role has ended.
    fn forget(&mut self, id: RequestId) {
        self.requests.remove(&id);
        self.updates_due.remove(&id);
    }
}
