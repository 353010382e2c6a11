//! A relay and the clients of its scenes, packet by packet and in virtual time.

use std::{
    collections::BTreeMap,
    hint::black_box,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_client::{peer::Peer, turn::Turn};
use weir_moqt::{
    draft::Draft,
    message::{RequestOk, Setup, SubscribeOk},
    parameter::Parameters,
    property::Properties,
    session::{Event as SessionEvent, Request, Session, Side},
};
use weir_quic::{App, ClientConfig, Connection, Endpoint, EndpointConfig, Event, Handle, Limits};
use weir_relay::{Load, Relay};
use weir_sim::{
    SERVER_NAME, Sim,
    driven::{Arrived, Driven, endpoint},
};
use weir_transport::{StreamId, Transport as _, WriteError};

/// One relay, and all its clients on one endpoint.
pub(crate) struct Stage {
    now: Instant,
    config: ClientConfig,
    relay: Driven<Relay>,
    crowd: Driven<Crowd>,
}

/// What a strike made the relay do.
pub(crate) struct Struck {
    /// The turn that received the packet, and those that it left work for.
    pub(crate) turns: usize,
}

impl Stage {
    pub(crate) fn new(config: weir_relay::Config) -> Self {
        let sim = Sim::new(1);
        let many = Limits {
            uni_streams_max: 4096,
            bidi_streams_max: 4096,
            ..Limits::default()
        };
        let crowd = Crowd {
            peers: BTreeMap::new(),
            next_alias: 1 << 20,
        };
        let server = EndpointConfig {
            server: Some(sim.server_tls(&[Draft::KEPT.alpn()])),
            ..endpoint(1, PACKET_BYTES)
        };
        let client = EndpointConfig {
            limits: many,
            ..endpoint(2, PACKET_BYTES)
        };
        Self {
            now: sim.now(),
            config: sim.client_config(&[Draft::KEPT.alpn()]),
            relay: Driven::new(Relay::new(config), RELAY.into(), server).expect(WITHIN),
            crowd: Driven::new(crowd, CROWD.into(), client).expect(WITHIN),
        }
    }

    /// Connects clients, and waits until their sessions are ready.
    pub(crate) fn clients(&mut self, count: usize) -> Vec<Handle> {
        let mut handles = Vec::with_capacity(count);
        while handles.len() < count {
            for _ in 0..(count - handles.len()).min(HANDSHAKES) {
                let endpoint = &mut self.crowd.endpoint;
                let handle = endpoint.connect(self.now, &self.config, RELAY.into(), SERVER_NAME, 0);
                handles.push(handle.expect("the address is one to connect to"));
            }
            self.settle();
        }
        let peers = &self.crowd.app.peers;
        let is_ready = |handle| {
            peers
                .get(handle)
                .is_some_and(|peer| peer.session().is_ready())
        };
        assert!(handles.iter().all(is_ready), "a client does not connect");
        handles
    }

    pub(crate) fn client(&mut self) -> Handle {
        self.clients(1)[0]
    }

    /// Returns the gauges of the relay, to check that a scene is what it claims to be.
    pub(crate) fn gauges(&self) -> weir_relay::Gauges {
        self.relay.app.gauges()
    }

    /// Returns the counters of the relay.
    pub(crate) fn counters(&self) -> weir_relay::Counters {
        self.relay.app.counters()
    }

    /// Calls a function with a client's session and connection. Its packets leave with the next strike or pause.
    pub(crate) fn act<T>(
        &mut self,
        client: Handle,
        act: impl FnOnce(&mut Session, &mut Connection<'_>) -> T,
    ) -> T {
        let peer = self.crowd.app.peers.get_mut(&client);
        let mut turn = Turn {
            now: self.now,
            endpoint: &mut self.crowd.endpoint,
        };
        let (session, mut connection) = peer
            .and_then(|peer| peer.open(&mut turn))
            .expect("the client is connected");
        act(session, &mut connection)
    }

    /// Writes all of `data` to a stream, however long that takes.
    pub(crate) fn write(&mut self, client: Handle, stream: StreamId, mut data: Bytes) {
        while !data.is_empty() {
            let written = self.act(client, |_, connection| connection.write(stream, &mut data));
            match written {
                Ok(()) => return,
                Err(WriteError::Blocked) => self.pass(ROUND),
                Err(WriteError::Stopped(_) | WriteError::Closed) => panic!("the stream is over"),
            }
        }
    }

    /// Lets the packets in flight arrive, and their answers.
    pub(crate) fn settle(&mut self) {
        self.pass(Duration::from_millis(200));
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now <= end {
            let mut is_active = true;
            while is_active {
                let Self { relay, crowd, .. } = self;
                is_active = !crowd.arrived.is_empty();
                is_active |= crowd.turn_and_send(self.now, &mut relay.arrived);
                is_active |= !relay.arrived.is_empty();
                is_active |= relay.turn_and_send(self.now, &mut crowd.arrived);
                self.now += ROUND;
            }
            let due = [self.relay.due(), self.crowd.due()];
            let next = due.into_iter().flatten().min();
            match next.filter(|next| *next <= end) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
        }
        self.now = self.now.max(end);
    }

    /// Delivers the one packet that the clients have to send now, and counts the turn of the relay that receives it, and
    /// the turns that are due within 20 ms. What the relay answers arrives later.
    pub(crate) fn strike(&mut self) -> Struck {
        let Self { relay, crowd, .. } = self;
        // What the relay has sent them stays under way, so that they do not answer it now.
        let under_way = std::mem::take(&mut crowd.arrived);
        crowd.turn_and_send(self.now, &mut relay.arrived);
        crowd.arrived = under_way;
        assert_eq!(relay.arrived.len(), 1, "a strike is one packet");
        self.now += ROUND;
        self.counted(None, Duration::from_millis(20))
    }

    /// Lets the relay observe a load, and counts that turn, and those that are due within 20 ms.
    pub(crate) fn observe(&mut self, load: Load) -> Struck {
        self.counted(Some(load), Duration::from_millis(20))
    }

    /// Counts the turns of the relay that are due within this time.
    pub(crate) fn overdue(&mut self, within: Duration) -> Struck {
        self.counted(None, within)
    }

    fn counted(&mut self, load: Option<Load>, within: Duration) -> Struck {
        let end = self.now + within;
        let mut turns = 1;
        let Self { relay, crowd, .. } = self;
        counted_turn(self.now, relay, load, &mut crowd.arrived);
        while let Some(next) = self.relay.due().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            let Self { relay, crowd, .. } = self;
            counted_turn(self.now, relay, None, &mut crowd.arrived);
            turns += 1;
            assert!(turns < TURNS_MAX, "the relay never comes to rest");
        }
        Struck { turns }
    }
}

/// A turn of the relay. Callgrind counts while this function runs, so it must not be inlined, and its call must not
/// become a jump.
#[inline(never)]
fn counted_turn(
    now: Instant,
    relay: &mut Driven<Relay>,
    load: Option<Load>,
    sent: &mut Vec<Arrived>,
) {
    if let Some(load) = load {
        relay.app.observe_load(now, &mut relay.endpoint, load);
    }
    black_box(relay.turn_and_send(now, sent));
}

/// Clients that accept whatever the relay asks of them, and record nothing.
struct Crowd {
    peers: BTreeMap<Handle, Peer>,
    next_alias: u64,
}

impl Crowd {
    fn answer(&mut self, turn: &mut Turn<'_>, handle: Handle, event: SessionEvent) {
        let SessionEvent::Request { id, request } = event else {
            return;
        };
        let Some((session, mut connection)) =
            self.peers.get_mut(&handle).and_then(|peer| peer.open(turn))
        else {
            return;
        };
        if let Request::Subscribe(_) = request {
            self.next_alias += 1;
            let ok = SubscribeOk {
                track_alias: self.next_alias,
                parameters: Parameters::default(),
                properties: Properties::EMPTY,
            };
            session.subscribe_ok(&mut connection, id, ok);
        } else if let Request::Publish(_) = request {
            session.request_ok(&mut connection, id, RequestOk::default());
        }
    }
}

impl App for Crowd {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let handle = event.handle();
        let mut turn = Turn { now, endpoint };
        if let Event::Connected { .. } = event {
            let mut connection = turn.connection(handle).expect("it has connected");
            let limits = weir_moqt::limits::Limits::default();
            let setup = Setup::default();
            let peer = Peer::start(now, &mut connection, Side::Client, setup, limits);
            self.peers.extend(peer.map(|peer| (handle, peer)));
            return;
        }
        let Some(peer) = self.peers.get_mut(&handle) else {
            return;
        };
        peer.handle_event(&mut turn, event);
        while let Some(event) = self.peers.get_mut(&handle).and_then(Peer::poll_event) {
            self.answer(&mut turn, handle, event);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
}

const RELAY: ([u8; 4], u16) = ([10, 0, 0, 1], 4433);
const CROWD: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);
/// The time that packets take.
const ROUND: Duration = Duration::from_micros(100);
/// Handshakes in flight: below the number from which addresses are validated.
const HANDSHAKES: usize = 100;
/// The largest packet that the relay accepts.
const PACKET_BYTES: u16 = 1472;
/// Turns after one packet. Beyond it, something repeats for ever.
const TURNS_MAX: usize = 2000;
const WITHIN: &str = "the limits are within QUIC's";
