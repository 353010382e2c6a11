//! A relay and the clients of its scenes, packet by packet and in virtual time.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_client::{target::Target, turn::Turn};
use weir_moqt::{draft::Draft, session::Session};
use weir_quic::{
    ClientConfig, Connection, EndpointConfig, Handle, Limits, Shard, ThreadMessage,
    web_transport::{Offer, Request},
};
use weir_relay::{
    Load, Relay, Upstream,
    registry::{
        Member, RelayId,
        simulated::{SimulatedFleet, SimulatedRegistry},
    },
};
use weir_sim::{
    SERVER_NAME, Sim,
    driven::{Arrived, Driven, endpoint},
};
use weir_transport::{StreamId, Transport as _, WriteError};

use super::crowd::Crowd;

/// One relay, and all its clients on one endpoint.
pub(crate) struct Stage {
    now: Instant,
    quic: ClientConfig,
    web_transport: ClientConfig,
    pub(crate) relay: Driven<Relay>,
    pub(crate) crowd: Driven<Crowd>,
}

/// What a strike made the relay do.
#[derive(Clone, Copy)]
pub(crate) struct Struck {
    /// The turn that received the packet, and those that it left work for.
    pub(crate) turns: usize,
}

impl Stage {
    pub(crate) fn new(config: weir_relay::Config) -> Self {
        Self::with(Relay::new(config), Shard::ALONE, &Limits::default())
    }

    /// Returns the stage of a relay, which may be one thread of several, whose clients have `limits`.
    pub(crate) fn with(relay: Relay, shard: Shard, limits: &Limits) -> Self {
        let sim = Sim::new(1);
        let draft = Draft::KEPT.alpn();
        let offer = Offer {
            protocols: vec![draft.to_owned()],
            ..Offer::default()
        };
        let tls = sim.server_tls(&[draft, weir_h3::ALPN]);
        let server = EndpointConfig {
            server: Some(tls.with_web_transport(offer)),
            ..endpoint(1, PACKET_BYTES)
        };
        let client = EndpointConfig {
            server: Some(sim.server_tls(&[draft])),
            limits: Limits {
                bidi_streams_max: limits.bidi_streams_max.max(4096),
                ..limits.clone()
            },
            ..endpoint(2, PACKET_BYTES)
        };
        let request = Request {
            authority: "relay.example".to_owned(),
            path: "/".to_owned(),
            protocols: vec![draft.to_owned()],
            origin: None,
        };
        Self {
            now: sim.now(),
            quic: sim.client_config(&[draft]),
            web_transport: ClientConfig {
                web_transport: Some(request),
                ..sim.client_config(&[weir_h3::ALPN])
            },
            relay: Driven::with_shard(relay, RELAY.into(), server, shard).expect(WITHIN),
            crowd: Driven::new(Crowd::default(), CROWD.into(), client).expect(WITHIN),
        }
    }

    /// Has the relay connect to another relay, which is one of the crowd. Its packets leave with the next pause.
    pub(crate) fn add_upstream(&mut self) {
        let upstream = Upstream {
            name: "upstream".to_owned(),
            target: Arc::new(Target::new(CROWD.into(), SERVER_NAME, self.quic.clone())),
            seed: 1,
            whereabouts: None,
        };
        self.relay.app.add_upstream(self.now, upstream);
    }

    /// Has the relay join a fleet. Returns the registry of another relay of it, which is one of the crowd.
    pub(crate) fn join_fleet(&mut self) -> SimulatedRegistry {
        let fleet = SimulatedFleet::new(1, Duration::ZERO);
        let member = |id, address: ([u8; 4], u16)| Member {
            id: RelayId(id),
            name: format!("relay {id}"),
            target: Arc::new(Target::new(address.into(), SERVER_NAME, self.quic.clone())),
        };
        let own = Box::new(fleet.join(member(1, RELAY)));
        let other = fleet.join(member(2, CROWD));
        self.relay.app.join_fleet(self.now, RelayId(1), own);
        other
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Connects clients, and waits until their sessions are ready.
    pub(crate) fn clients(&mut self, count: usize) -> Vec<Handle> {
        let config = self.quic.clone();
        self.clients_with(&config, count)
    }

    /// Does the same over WebTransport.
    pub(crate) fn web_transport_clients(&mut self, count: usize) -> Vec<Handle> {
        let config = self.web_transport.clone();
        self.clients_with(&config, count)
    }

    fn clients_with(&mut self, config: &ClientConfig, count: usize) -> Vec<Handle> {
        let mut ready = Vec::with_capacity(count);
        for _ in 0..ATTEMPTS_MAX {
            let crowd = &mut self.crowd;
            let opened: Vec<Handle> = (0..(count - ready.len()).min(HANDSHAKES))
                .map(|_| {
                    let endpoint = &mut crowd.endpoint;
                    let opened = endpoint.connect(self.now, config, RELAY.into(), SERVER_NAME, 0);
                    opened.expect("the address is one to connect to")
                })
                .collect();
            crowd.app.opened.extend(&opened);
            self.settle();
            let crowd = &self.crowd.app;
            ready.extend(opened.into_iter().filter(|&handle| crowd.is_ready(handle)));
            if ready.len() == count {
                return ready;
            }
        }
        panic!("clients do not connect");
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
                // A first packet belongs to any thread, by chance.
                let shard = relay.endpoint.shard();
                relay.arrived.retain(|packet| packet.is_of(shard));
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
        self.send_now();
        assert_eq!(self.relay.arrived.len(), 1, "a strike is one packet");
        self.now += ROUND;
        self.counted(None, Duration::from_millis(20))
    }

    /// Delivers the one packet that the clients have to send now, without counting.
    pub(crate) fn take_packet(&mut self) {
        self.send_now();
        assert_eq!(self.relay.arrived.len(), 1, "a strike is one packet");
        self.now += ROUND;
        let Self { relay, crowd, .. } = self;
        relay.turn_and_send(self.now, &mut crowd.arrived);
    }

    /// Takes the messages of the relay for another thread.
    pub(crate) fn take_messages(&mut self, to: u16) -> Vec<ThreadMessage> {
        std::mem::take(self.relay.endpoint.messages_to(to))
    }

    /// Delivers messages of another thread. The relay handles them in its next turn.
    pub(crate) fn accept_messages(&mut self, from: u16, messages: Vec<ThreadMessage>) {
        self.relay
            .endpoint
            .handle_messages(self.now, from, messages);
    }

    /// Delivers what the clients have to send now, and strikes with the few packets with which they answer what comes back.
    pub(crate) fn strike_with_answers(&mut self) -> Struck {
        self.send_now();
        let Self { relay, crowd, .. } = self;
        self.now += ROUND;
        relay.turn_and_send(self.now, &mut crowd.arrived);
        self.now += ROUND;
        crowd.turn_and_send(self.now, &mut relay.arrived);
        let answers = relay.arrived.len();
        assert!((1..=8).contains(&answers), "{answers} packets answer");
        self.now += ROUND;
        self.counted(None, Duration::from_millis(20))
    }

    /// Lets the relay and its clients have one turn each.
    pub(crate) fn round(&mut self) {
        let Self { relay, crowd, .. } = self;
        relay.turn_and_send(self.now, &mut crowd.arrived);
        crowd.turn_and_send(self.now, &mut relay.arrived);
        self.now += ROUND;
    }

    /// Loses the one packet that the clients have to send now. What it contained is sent again in
    /// [`strike_again`](Self::strike_again).
    pub(crate) fn lose_packet(&mut self) {
        self.send_now();
        assert_eq!(self.relay.arrived.len(), 1, "one packet is lost");
        self.relay.arrived.clear();
    }

    /// Delivers what the clients have to send now, and strikes with the packets in which they send again what was lost.
    pub(crate) fn strike_again(&mut self) -> Struck {
        for _ in 0..SEND_ROUNDS {
            self.send_now();
            self.now += ROUND;
        }
        self.strike_with_answers()
    }

    /// Sends what the clients have to send now. What the relay has sent them stays under way, so that they do not answer it.
    pub(crate) fn send_now(&mut self) {
        let Self { relay, crowd, .. } = self;
        let under_way = std::mem::take(&mut crowd.arrived);
        crowd.turn_and_send(self.now, &mut relay.arrived);
        crowd.arrived = under_way;
    }

    /// Lets the relay observe a load, and counts that turn, and those that are due within 20 ms.
    pub(crate) fn observe(&mut self, load: Load) -> Struck {
        self.counted(Some(load), Duration::from_millis(20))
    }

    /// Delivers what the clients have to send now, and all that follows within this time; counts all turns of the relay.
    pub(crate) fn strike_and_pass(&mut self, within: Duration) -> Struck {
        self.send_now();
        self.counted_pass(within)
    }

    /// Lets time pass, and counts all turns of the relay.
    pub(crate) fn counted_pass(&mut self, within: Duration) -> Struck {
        let end = self.now + within;
        let mut turns = 0;
        while self.now <= end {
            self.now += ROUND;
            let Self { relay, crowd, .. } = self;
            let mut has_more = true;
            while has_more {
                has_more = counted_turn(self.now, relay, None, &mut crowd.arrived);
                turns += 1;
                assert!(turns < TURNS_MAX, "the relay never comes to rest");
            }
            self.now += ROUND;
            crowd.turn_and_send(self.now, &mut relay.arrived);
            let is_idle = relay.arrived.is_empty() && crowd.arrived.is_empty();
            let due = [self.relay.due(), self.crowd.due()];
            match due.into_iter().flatten().min() {
                Some(next) if is_idle => self.now = self.now.max(next),
                None if is_idle => break,
                _ => {}
            }
        }
        self.now = self.now.max(end);
        Struck { turns }
    }

    /// Counts the turns of the relay that are due within this time.
    pub(crate) fn overdue(&mut self, within: Duration) -> Struck {
        self.counted(None, within)
    }

    fn counted(&mut self, load: Option<Load>, within: Duration) -> Struck {
        let end = self.now + within;
        let Self { relay, crowd, .. } = self;
        let mut has_more = counted_turn(self.now, relay, load, &mut crowd.arrived);
        let mut turns = 1;
        loop {
            let next = self.relay.due().filter(|next| *next <= end);
            match next {
                _ if has_more => {}
                Some(next) => self.now = self.now.max(next),
                None => return Struck { turns },
            }
            let Self { relay, crowd, .. } = self;
            has_more = counted_turn(self.now, relay, None, &mut crowd.arrived);
            turns += 1;
            assert!(turns < TURNS_MAX, "the relay never comes to rest");
        }
    }
}

/// The shortest turn of the relay that a host runs; returns whether it left events. Callgrind counts while this function runs, so it must not be inlined, and its call must not
/// become a jump.
#[inline(never)]
fn counted_turn(
    now: Instant,
    relay: &mut Driven<Relay>,
    load: Option<Load>,
    sent: &mut Vec<Arrived>,
) -> bool {
    if let Some(load) = load {
        relay.app.observe_load(now, &mut relay.endpoint, load);
    }
    black_box(relay.short_turn_and_send(now, sent))
}

const RELAY: ([u8; 4], u16) = ([10, 0, 0, 1], 4433);
const CROWD: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);
/// The time that packets take.
const ROUND: Duration = Duration::from_micros(100);
/// Handshakes in flight: below the number from which addresses are validated.
const HANDSHAKES: usize = 100;
/// Attempts to connect so many clients to one of two threads.
const ATTEMPTS_MAX: usize = 30;
/// The largest packet that the relay accepts.
const PACKET_BYTES: u16 = 1472;
/// Rounds in which clients send all that they have.
const SEND_ROUNDS: usize = 10;
/// Turns after one packet. Beyond it, something repeats for ever.
const TURNS_MAX: usize = 5000;
const WITHIN: &str = "the limits are within QUIC's";
