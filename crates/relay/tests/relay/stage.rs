//! The stage of a story: one relay, its clients, and the steps of the story.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, SubgroupHeader},
    draft::Draft,
    error::{PublishDoneCode, RequestErrorCode, ResetCode},
    message::{PublishDone, Setup},
    name::Namespace,
    parameter::Parameters,
    property::Properties,
    session::{self, Refused, RequestId, Session},
};
use weir_quic::{
    App as _, Connection, Endpoint, Limits as QuicLimits, OriginCounts, tls::ServerTls,
    web_transport::Offer,
};
use weir_relay::{
    Authority, Config, Counters, Gauges, Limits, LinkCredentials, LoadLimits, Ownership, Relay,
    Whereabouts,
};
use weir_sim::{NodeConfig, NodeId, Sim};
use weir_transport::{Direction, StreamId, Transport as _};

use crate::actor::{Actor, Exchange, Heard};
pub(crate) use crate::setting::Setting;
pub(crate) use crate::words::{
    datagram, duplicate, encoded, forward, has_fills, millis, name, object, payload, plain,
    rendezvous, secs, space,
};

/// Runs a story twice, and checks that both runs have the same result. The seed is `WEIR_SEED`, if set.
pub(crate) fn story(setting: &Setting, tell: impl Fn(&mut Stage)) {
    let seed = seed();
    println!("WEIR_SEED={seed}");
    let [first, second] = [(); 2].map(|()| {
        let mut stage = Stage::new(seed, setting.clone());
        tell(&mut stage);
        stage.sim.trace_hash()
    });
    assert_eq!(first, second, "two runs with one seed are equal");
}

/// The seed of this run.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED").ok();
    seed.map_or(7, |seed| seed.parse().expect("WEIR_SEED is a number"))
}

/// The draft of the clients of this run: that of `WEIR_DRAFT`, if set, otherwise the newest. The stories of `drafts.rs` run
/// in all of them.
pub(crate) fn draft() -> Draft {
    let draft = std::env::var("WEIR_DRAFT").ok();
    draft.map_or(Draft::Draft22, |name| {
        Draft::by_name(&name).expect("WEIR_DRAFT is a draft")
    })
}

/// Returns the draft of this run, or the newest one with a FETCH that joins a subscription if it has none.
pub(crate) fn joining_draft() -> Draft {
    draft().min(Draft::Draft19)
}

/// TLS for raw QUIC and WebTransport, as in the program.
pub(crate) fn server_tls(sim: &Sim) -> ServerTls {
    let mut protocols = Draft::alpns().to_vec();
    protocols.push(weir_h3::ALPN);
    sim.server_tls(&protocols).with_web_transport(Offer {
        protocols: Draft::alpns().map(str::to_owned).to_vec(),
        ..Offer::default()
    })
}

/// One relay and its clients.
pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) relay: NodeId,
    /// The relay's threads; `relay` is the first.
    pub(crate) threads: Vec<NodeId>,
    config: Config,
    authority: Arc<dyn Authority>,
    /// Limits of clients that are created later.
    pub(crate) client: QuicLimits,
    /// The draft of clients and relays that connect later.
    pub(crate) draft: Draft,
    /// Limits of further relays that are created later.
    pub(crate) edge: Limits,
    /// Where the upstream relays of further relays are, if that changes.
    pub(crate) whereabouts: Option<Arc<dyn Whereabouts>>,
    /// What further relays present to other relays.
    pub(crate) credentials: Option<Arc<dyn LinkCredentials>>,
    next_alias: u64,
    /// Planned actions, the latest first.
    plans: Vec<(Duration, Plan)>,
}

type Plan = Box<dyn FnOnce(&mut Stage)>;

/// A subgroup stream that a client is writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) stream: StreamId,
    pub(crate) header: SubgroupHeader,
    pub(crate) previous: Option<u64>,
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) node: NodeId,
    pub(crate) id: RequestId,
    /// The Track Alias of a publication.
    pub(crate) alias: u64,
}

impl Stage {
    pub(crate) fn new(seed: u64, setting: Setting) -> Self {
        let mut sim = Sim::new(seed);
        sim.set_default_link(setting.link);
        let server = Some(server_tls(&sim));
        let node = NodeConfig {
            server,
            limits: setting.quic,
            ..NodeConfig::default()
        };
        let threads = sim.add_group(node, setting.threads, setting.is_steered);
        let config = Config {
            limits: setting.relay,
            session_limits: setting.session,
            pauses_publishers: setting.pauses_publishers,
            drain_max: secs(5),
            successor: setting.successor,
            load: LoadLimits {
                queue_delay_max: millis(100),
                memory_bytes_max: 1000,
            },
            ..Config::default()
        };
        let mut stage = Self {
            sim,
            relay: threads[0],
            threads,
            config,
            authority: setting.authority,
            client: setting.client,
            draft: setting.draft,
            edge: Limits::default(),
            whereabouts: None,
            credentials: None,
            next_alias: 7000,
            plans: Vec::new(),
        };
        stage.start_relay();
        stage
    }

    /// Starts the relay, or restarts it as after a crash: nobody is told, and it knows nothing of what was.
    pub(crate) fn start_relay(&mut self) {
        let (counts, ownership) = (OriginCounts::default(), Ownership::default());
        for &thread in &self.threads {
            let authority = Arc::clone(&self.authority);
            let relay = Relay::with_authority(self.config.clone(), authority);
            let relay = relay.with_session_counts(counts.clone());
            self.sim
                .start(thread, relay.with_ownership(ownership.clone()));
        }
    }

    /// Names a step of the story, which is printed to locate a failure, and advances time.
    pub(crate) fn step(&mut self, name: &str, duration: Duration) {
        println!("{:>9.3} s: {name}", self.sim.elapsed().as_secs_f64());
        self.wait(duration);
    }

    pub(crate) fn wait(&mut self, duration: Duration) {
        let until = self.sim.elapsed() + duration;
        while let Some((at, act)) = self.plans.pop_if(|(at, _)| *at <= until) {
            self.sim.run_until(at, |_| false);
            act(self);
        }
        self.sim.run_until(until, |_| false);
    }

    /// Plans an action for a later time; the steps of the story continue meanwhile.
    pub(crate) fn at(&mut self, at: Duration, act: impl FnOnce(&mut Self) + 'static) {
        self.plans.push((at, Box::new(act)));
        self.plans.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    }

    /// Creates a client that has connected.
    pub(crate) fn client(&mut self) -> NodeId {
        self.clients(1)[0]
    }

    /// Creates several clients, each on a node of its own.
    pub(crate) fn clients(&mut self, count: usize) -> Vec<NodeId> {
        let nodes: Vec<NodeId> = (0..count).map(|_| self.absent_client()).collect();
        for &node in &nodes {
            self.connect(node);
        }
        nodes
    }

    /// Creates a node for a client that connects later.
    pub(crate) fn absent_client(&mut self) -> NodeId {
        let limits = self.client.clone();
        self.sim.add_node(NodeConfig {
            limits,
            ..NodeConfig::default()
        })
    }

    /// Starts or restarts a client, and waits until it has connected.
    pub(crate) fn connect(&mut self, node: NodeId) {
        self.connect_with(node, &Setup::default());
    }

    /// Does the same with another SETUP. The relay ends a handshake that takes 10 s; then the client begins again.
    pub(crate) fn connect_with(&mut self, node: NodeId, setup: &Setup) {
        for _ in 0..3 {
            self.begin(node, setup.clone());
            let deadline = self.sim.elapsed() + secs(20);
            let has_ended = |actor: &Actor| actor.is_ready() || actor.lost.is_some();
            self.sim.run_until(deadline, |sim| has_ended(sim.app(node)));
            if self.actor(node).is_ready() {
                return;
            }
        }
        panic!("{node:?} does not connect");
    }

    /// Starts a client, whether or not it can connect.
    pub(crate) fn begin(&mut self, node: NodeId, setup: Setup) {
        let actor = Actor::new(&self.sim, self.sim.address(self.relay), setup, self.draft);
        self.sim.start(node, actor);
    }

    pub(crate) fn actor(&self, node: NodeId) -> &Actor {
        self.sim.app(node)
    }

    /// Calls a function with a client's session and connection.
    pub(crate) fn act<T>(
        &mut self,
        node: NodeId,
        act: impl FnOnce(&mut Session, &mut Connection<'_>) -> T,
    ) -> T {
        self.sim.with_app(node, |now, actor: &mut Actor, endpoint| {
            actor.with(now, endpoint, act)
        })
    }

    /// Changes the behaviour of a client.
    pub(crate) fn direct(&mut self, node: NodeId, direct: impl FnOnce(&mut Actor)) {
        self.sim
            .with_app(node, |_, actor: &mut Actor, _: &mut Endpoint| direct(actor));
    }

    pub(crate) fn counters(&self) -> Counters {
        let threads = self.threads.iter();
        let counters = threads.map(|&thread| self.sim.app::<Relay>(thread).counters());
        counters.fold(Counters::default(), Counters::plus)
    }

    pub(crate) fn session_counters(&self) -> session::Counters {
        let threads = self.threads.iter();
        let counters = threads.map(|&thread| self.sim.app::<Relay>(thread).session_counters());
        counters.fold(session::Counters::default(), session::Counters::plus)
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let threads = self.threads.iter();
        let gauges = threads.map(|&thread| self.sim.app::<Relay>(thread).gauges());
        gauges.fold(Gauges::default(), Gauges::plus)
    }

    /// Returns when the relay is to be woken next.
    pub(crate) fn wake_up(&self) -> Option<std::time::Instant> {
        self.sim.app::<Relay>(self.relay).poll_timeout()
    }

    // Requests.

    /// Publishes a track of a client.
    pub(crate) fn publish(&mut self, node: NodeId, track: &str) -> Asked {
        self.publish_with(node, track, Parameters::default(), Properties::EMPTY)
    }

    /// Returns a client's next publication before it is made, for objects that overtake it.
    pub(crate) fn coming(&self, node: NodeId) -> Asked {
        Asked {
            node,
            id: RequestId(0),
            alias: self.next_alias,
        }
    }

    pub(crate) fn publish_with(
        &mut self,
        node: NodeId,
        track: &str,
        parameters: Parameters,
        properties: Properties,
    ) -> Asked {
        let alias = self.next_alias;
        self.next_alias += 1;
        let track = name(track);
        let id = self.act(node, |session, connection| {
            session.publish(connection, track, alias, parameters, properties)
        });
        let id = self.noted(node, id);
        Asked { node, id, alias }
    }

    /// Announces a namespace of a client.
    pub(crate) fn announce(&mut self, node: NodeId, namespace: &str) -> Asked {
        self.announce_with(node, namespace, Parameters::default())
    }

    pub(crate) fn announce_with(
        &mut self,
        node: NodeId,
        namespace: &str,
        parameters: Parameters,
    ) -> Asked {
        let namespace = space(namespace);
        let id = self.act(node, |session, connection| {
            session.publish_namespace(connection, namespace, parameters)
        });
        let id = self.noted(node, id);
        Asked { node, id, alias: 0 }
    }

    /// Subscribes a client to the namespaces under a prefix.
    pub(crate) fn watch(&mut self, node: NodeId, prefix: Namespace) -> Asked {
        let id = self.act(node, |session, connection| {
            session.subscribe_namespace(connection, prefix, Parameters::default())
        });
        let id = self.noted(node, id);
        Asked { node, id, alias: 0 }
    }

    /// Subscribes a client to the tracks under a prefix.
    pub(crate) fn collect(&mut self, node: NodeId, prefix: Namespace, wanted: Parameters) -> Asked {
        let id = self.act(node, |session, connection| {
            session.subscribe_tracks(connection, prefix, wanted)
        });
        let id = self.noted(node, id);
        Asked { node, id, alias: 0 }
    }

    /// Returns what a client was told for one of its requests.
    pub(crate) fn heard(&self, asked: Asked) -> Vec<Heard> {
        let heard = self.actor(asked.node).heard.iter();
        heard
            .filter(|(id, _)| *id == asked.id)
            .map(|(_, heard)| heard.clone())
            .collect()
    }

    /// Returns the `place`-th track that was offered to a client.
    pub(crate) fn offered(&self, node: NodeId, place: usize) -> Asked {
        let (id, publish) = &self.actor(node).offered[place];
        Asked {
            node,
            id: *id,
            alias: publish.track_alias,
        }
    }

    /// Subscribes a client to a track.
    pub(crate) fn subscribe(&mut self, node: NodeId, track: &str) -> Asked {
        self.subscribe_with(node, track, Parameters::default())
    }

    pub(crate) fn subscribe_with(
        &mut self,
        node: NodeId,
        track: &str,
        parameters: Parameters,
    ) -> Asked {
        let track = name(track);
        let id = self.act(node, |session, connection| {
            session.subscribe(connection, track, parameters)
        });
        let id = self.noted(node, id);
        Asked { node, id, alias: 0 }
    }

    pub(crate) fn noted(&mut self, node: NodeId, id: Result<RequestId, Refused>) -> RequestId {
        let id = id.expect("there is room for requests");
        self.direct(node, |actor| {
            actor.exchanges.entry(id).or_default();
        });
        id
    }

    pub(crate) fn update(&mut self, asked: Asked, parameters: Parameters) {
        self.act(asked.node, |session, connection| {
            let sent = session.update(connection, asked.id, parameters);
            sent.expect("there is room for updates");
        });
    }

    pub(crate) fn cancel(&mut self, asked: Asked) {
        self.act(asked.node, |session, connection| {
            session.cancel(connection, asked.id, ResetCode::CANCELLED);
        });
    }

    /// Sends PUBLISH_DONE for a client's track.
    pub(crate) fn publish_done(&mut self, asked: Asked, stream_count: u64) {
        let done = PublishDone {
            code: PublishDoneCode::TRACK_ENDED,
            stream_count: Some(stream_count),
            reason: "that is all".to_owned(),
        };
        self.act(asked.node, |session, connection| {
            session.publish_done(connection, asked.id, done);
        });
    }

    /// Returns the result of a request.
    pub(crate) fn outcome(&self, asked: Asked) -> &Exchange {
        &self.actor(asked.node).exchanges[&asked.id]
    }

    pub(crate) fn is_accepted(&self, asked: Asked) -> bool {
        matches!(self.outcome(asked).answer, Some(Ok(_)))
    }

    /// Waits until requests are answered, even if packets are lost, and then until the publisher is notified.
    pub(crate) fn wait_for_answers(&mut self, asked: &[Asked]) {
        let deadline = self.sim.elapsed() + secs(60);
        while !asked.iter().all(|&asked| self.is_accepted(asked)) {
            assert!(self.sim.elapsed() < deadline, "a request is not answered");
            self.wait(millis(50));
        }
        self.step("all requests are granted", secs(3));
    }

    /// Returns the error code of a request.
    pub(crate) fn refusal(&self, asked: Asked) -> Option<RequestErrorCode> {
        self.outcome(asked).error.as_ref().map(|error| error.code)
    }

    /// Returns the `place`-th SUBSCRIBE that the relay sent to a client.
    pub(crate) fn asked(&self, node: NodeId, place: usize) -> RequestId {
        self.actor(node).asked[place].0
    }

    /// Returns the `place`-th SUBSCRIBE that a client accepted, under `alias`, to send objects for it.
    pub(crate) fn source(&self, node: NodeId, place: usize, alias: u64) -> Asked {
        let id = self.asked(node, place);
        Asked { node, id, alias }
    }

    // Objects.

    /// Sends an object of a client as a datagram.
    pub(crate) fn datagram(&mut self, from: Asked, group: u64, object: u64, payload: &[u8]) {
        self.datagram_with(from, datagram(group, object, payload));
    }

    pub(crate) fn datagram_with(&mut self, from: Asked, datagram: ObjectDatagram) {
        let mut encoded = BytesMut::new();
        ObjectDatagram {
            track_alias: from.alias,
            ..datagram
        }
        .encode(Draft::KEPT, &mut encoded);
        self.act(from.node, |_, connection| {
            let sent = connection.send_datagram(encoded.freeze(), None);
            sent.expect("it fits");
        });
    }

    /// Opens a subgroup stream of a client, with subgroup 0.
    pub(crate) fn open(&mut self, from: Asked, group: u64) -> Outgoing {
        self.open_with(from, plain(group))
    }

    pub(crate) fn open_with(&mut self, from: Asked, header: SubgroupHeader) -> Outgoing {
        let header = SubgroupHeader {
            track_alias: from.alias,
            ..header
        };
        let stream = self.act(from.node, |_, connection| connection.open(Direction::Uni));
        let stream = stream.expect("the relay allows enough streams");
        let mut data = BytesMut::new();
        header.encode(Draft::KEPT, &mut data);
        self.write(from, stream, data.freeze(), false);
        Outgoing {
            stream,
            header,
            previous: None,
        }
    }

    /// Writes an object of a client to a stream.
    pub(crate) fn object(&mut self, from: Asked, to: &mut Outgoing, id: u64, payload: &[u8]) {
        let object = object(id, payload.len());
        self.object_with(from, to, &object, payload);
    }

    /// Writes an object of a client to a stream, possibly incomplete.
    pub(crate) fn object_with(
        &mut self,
        from: Asked,
        to: &mut Outgoing,
        object: &ObjectHeader,
        payload: &[u8],
    ) {
        let data = encoded(&to.header, to.previous, object, payload);
        to.previous = Some(object.id);
        self.write(from, to.stream, data, false);
    }

    pub(crate) fn finish(&mut self, from: Asked, to: &Outgoing) {
        self.write(from, to.stream, Bytes::new(), true);
    }

    pub(crate) fn write(&mut self, from: Asked, stream: StreamId, data: Bytes, is_last: bool) {
        self.sim
            .with_app(from.node, |now, actor: &mut Actor, endpoint| {
                actor.write(now, endpoint, stream, data, is_last);
            });
    }

    pub(crate) fn reset(&mut self, from: Asked, to: &Outgoing, code: ResetCode) {
        self.act(from.node, |_, connection| {
            connection.reset(to.stream, code.0);
        });
    }

    /// Sends a group of objects of equal size on a stream of its own.
    pub(crate) fn group(&mut self, from: Asked, group: u64, objects: u64, bytes: usize) {
        let mut outgoing = self.open(from, group);
        for id in 0..objects {
            self.object(from, &mut outgoing, id, &payload(group, id, bytes));
        }
        self.finish(from, &outgoing);
    }

    /// Checks that a subscription received exactly these objects on streams, unaltered, in any order of groups.
    pub(crate) fn expect_objects(&self, to: Asked, groups: &[u64], objects: u64, bytes: usize) {
        let mut expected = Vec::new();
        for &group in groups {
            expected.extend((0..objects).map(|id| (group, id, payload(group, id, bytes))));
        }
        let mut received = self.outcome(to).objects();
        received.sort();
        let places = |list: &[(u64, u64, Vec<u8>)]| -> Vec<(u64, u64)> {
            list.iter().map(|(group, id, _)| (*group, *id)).collect()
        };
        assert_eq!(places(&received), places(&expected));
        assert_eq!(received, expected);
    }
}
