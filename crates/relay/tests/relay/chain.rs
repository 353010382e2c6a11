//! Relays in a chain: publishers and subscribers are at different relays, and one asks the other for what it lacks.

use std::sync::Arc;

use weir_client::target::Target;
use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode},
    location::Location,
    message::{FetchKind, Setup},
    parameter::Parameters,
};
use weir_quic::Limits as QuicLimits;
use weir_relay::{
    Authority, Config, Counters, Credentials, Denial, Gauges, Grant, LinkState, Load, Relay,
    TokenMemo, Upstream,
};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME};

use crate::{
    actor::{Actor, Heard, Manner},
    archive::Serving,
    stage::{Asked, Setting, Stage, millis, rendezvous, secs, space, story},
};

impl Stage {
    /// Creates a relay of several threads that asks `upstreams` for what it does not have.
    pub(crate) fn edge_of(&mut self, upstreams: &[NodeId], threads: u16) -> Vec<NodeId> {
        let node = NodeConfig {
            server: Some(crate::stage::server_tls(&self.sim)),
            limits: QuicLimits::default(),
            ..NodeConfig::default()
        };
        let nodes = self.sim.add_group(node, threads, true);
        for (number, &node) in nodes.iter().enumerate() {
            let upstreams = if number == 0 { upstreams } else { &[] };
            self.serve(node, upstreams);
        }
        nodes
    }

    /// Creates a relay that asks `upstreams`.
    pub(crate) fn edge(&mut self, upstreams: &[NodeId]) -> NodeId {
        self.edge_of(upstreams, 1)[0]
    }

    /// Starts or restarts a relay.
    pub(crate) fn serve(&mut self, node: NodeId, upstreams: &[NodeId]) {
        let identity = self.sim.address(node).ip().to_string();
        let mut relay = Relay::new(Config {
            // Distinct for each relay, the same for all its threads.
            identity: identity.bytes().fold(7, |sum: u64, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            }),
            limits: self.edge.clone(),
            ..Config::default()
        });
        if let Some(credentials) = &self.credentials {
            relay = relay.with_link_credentials(Arc::clone(credentials));
        }
        for (seed, &upstream) in upstreams.iter().enumerate() {
            let client = self.sim.client_config(&[self.draft.alpn()]);
            let target = Target::new(self.sim.address(upstream), SERVER_NAME, client);
            let upstream = Upstream {
                name: format!("{upstream:?}"),
                target: Arc::new(target),
                seed: seed as u64,
                whereabouts: self.whereabouts.clone(),
            };
            relay.add_upstream(self.sim.now(), upstream);
        }
        self.sim.start(node, relay);
    }

    /// Creates a client that has connected to a relay.
    pub(crate) fn client_at(&mut self, relay: NodeId) -> NodeId {
        let node = self.begin_at(relay);
        let deadline = self.sim.elapsed() + secs(20);
        self.sim
            .run_until(deadline, |sim| sim.app::<Actor>(node).is_ready());
        assert!(self.actor(node).is_ready(), "{node:?} does not connect");
        node
    }

    /// Creates a client that begins to connect to a relay.
    pub(crate) fn begin_at(&mut self, relay: NodeId) -> NodeId {
        let node = self.absent_client();
        let actor = Actor::new(
            &self.sim,
            self.sim.address(relay),
            Setup::default(),
            self.draft,
        );
        self.sim.start(node, actor);
        node
    }

    pub(crate) fn counters_at(&self, relay: NodeId) -> Counters {
        self.sim.app::<Relay>(relay).counters()
    }

    pub(crate) fn gauges_at(&self, relay: NodeId) -> Gauges {
        self.sim.app::<Relay>(relay).gauges()
    }

    /// Passes an observation of the host's load to the relay.
    pub(crate) fn load(&mut self, load: Load) {
        self.load_at(self.relay, load);
    }

    /// Passes an observation of its host's load to one of the relays.
    pub(crate) fn load_at(&mut self, relay: NodeId, load: Load) {
        self.sim
            .with_app(relay, |now, relay: &mut Relay, endpoint| {
                relay.observe_load(now, endpoint, load);
            });
    }

    pub(crate) fn links_at(&mut self, relay: NodeId) -> Vec<LinkState> {
        self.sim
            .with_app(relay, |now, relay: &mut Relay, endpoint| {
                relay.links(now, endpoint)
            })
    }

    /// Waits until all links of a relay are established.
    pub(crate) fn await_links(&mut self, relay: NodeId) {
        let deadline = self.sim.elapsed() + secs(20);
        while !self.links_at(relay).iter().all(|link| link.is_ready) {
            assert!(self.sim.elapsed() < deadline, "{:?}", self.links_at(relay));
            self.wait(millis(20));
        }
    }
}

/// Returns the locations of the datagrams that a subscription received.
fn datagrams(stage: &Stage, subscription: Asked) -> Vec<(u64, u64)> {
    stage.outcome(subscription).datagram_places()
}

#[test]
fn a_track_crosses_a_link_once_and_reaches_all() {
    story(&Setting::default(), |stage| {
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let viewers: Vec<_> = (0..3).map(|_| stage.client_at(edge)).collect();
        let subscriptions: Vec<_> = viewers
            .iter()
            .map(|&viewer| stage.subscribe(viewer, "a--x"))
            .collect();
        stage.wait_for_answers(&subscriptions);
        stage.group(publication, 1, 3, 5000);
        stage.datagram(publication, 2, 0, b"datagram");
        stage.step("objects", millis(200));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &[1], 3, 5000);
            assert_eq!(datagrams(stage, subscription), [(2, 0)]);
        }
        assert_eq!(stage.gauges().subscriptions, 1, "one copy for the edge");
        let counters = stage.counters_at(edge);
        assert_eq!(
            (counters.streams_received, counters.datagrams_received),
            (1, 1)
        );
        let gauges = stage.gauges_at(edge);
        assert_eq!((gauges.links, gauges.link_subscriptions), (1, 1));
        let link = &stage.links_at(edge)[0];
        assert_eq!(
            (link.connects, link.failures, link.subscriptions),
            (1, 0, 1)
        );
        assert!(link.bytes_received > 15_000 && link.round_trip >= Some(millis(20)));
        for &subscription in &subscriptions {
            stage.cancel(subscription);
        }
        stage.step("all leave", millis(200));
        assert_eq!(stage.gauges().subscriptions, 0, "the edge has left too");
        assert_eq!(stage.gauges_at(edge).link_subscriptions, 0);
    });
}

#[test]
fn the_end_of_a_track_reaches_the_other_relay() {
    story(&Setting::default(), |stage| {
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let viewer = stage.client_at(edge);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        stage.group(publication, 1, 3, 5000);
        stage.publish_done(publication, 1);
        stage.step("the end", secs(3));
        stage.expect_objects(subscription, &[1], 3, 5000);
        let done = stage.outcome(subscription).done.as_ref().unwrap();
        assert_eq!(
            (done.code, done.stream_count),
            (PublishDoneCode::TRACK_ENDED, Some(1))
        );
    });
}

#[test]
fn fetches_and_joining_fetches_reach_the_publishers_relay() {
    story(&Setting::default(), |stage| {
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let publisher = stage.client();
        stage.direct(publisher, |actor| {
            // It knows where its groups end, which the relays do not.
            actor.archive.fill(0, 3, 3, 500);
            actor.archive.serving = Serving::Serve;
        });
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        for group in 0..4 {
            stage.group(publication, group, 3, 500);
        }
        stage.step("cached at the publisher's relay only", millis(100));
        let viewer = stage.client_at(edge);
        let fetch = stage.fetch(viewer, "a--x", (1, 0), (2, 2));
        stage.step("a fetch", millis(300));
        stage.expect_complete(fetch);
        let objects = |stage: &Stage, asked| stage.fetched(asked).places(500);
        let group = |group| (0..3).map(move |id| (group, id));
        let expected: Vec<_> = (1..3).flat_map(group).collect();
        assert_eq!(objects(stage, fetch), expected);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        let kind = FetchKind::RelativeJoining {
            request_id: subscription.id.0,
            groups: 1,
        };
        let joining = stage.fetch_with(viewer, kind, Parameters::default());
        stage.step("a joining fetch", millis(300));
        stage.expect_complete(joining);
        let expected: Vec<_> = (2..4).flat_map(group).collect();
        assert_eq!(objects(stage, joining), expected);
        let missing = stage.fetch(viewer, "b--x", (0, 0), (1, 0));
        stage.step("a fetch of nothing", secs(11));
        assert!(stage.refusal(missing).is_some() || stage.fetched(missing).end.is_some());
    });
}

#[test]
fn track_status_is_answered_by_the_publishers_relay() {
    story(&Setting::default(), |stage| {
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        stage.group(publication, 4, 3, 500);
        let viewer = stage.client_at(edge);
        let status = stage.track_status(viewer, "a--x");
        let missing = stage.track_status(viewer, "b--x");
        stage.step("two questions", millis(300));
        let Some(Ok(answer)) = &stage.outcome(status).answer else {
            panic!("{:?}", stage.outcome(status));
        };
        assert_eq!(answer.largest_object, Some(Location::new(4, 2)));
        assert_eq!(
            stage.refusal(missing),
            Some(RequestErrorCode::DOES_NOT_EXIST)
        );
    });
}

#[test]
fn namespaces_and_offers_cross_both_relays() {
    story(&Setting::default(), |stage| {
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let (origin, viewer) = (stage.client(), stage.client_at(edge));
        let early = stage.announce(origin, "a-1");
        stage.wait(millis(50));
        let watch = stage.watch(viewer, space("a"));
        let collected = stage.collect(viewer, space("a"), Parameters::default());
        stage.step("a viewer watches", millis(200));
        let came = |name: &str| Heard::Came(space(name));
        let went = |name: &str| Heard::Went(space(name));
        assert_eq!(stage.heard(watch), [came("1")]);
        let late = stage.announce(origin, "a-2");
        let elsewhere = stage.announce(origin, "b-3");
        let publication = stage.publish(origin, "a-1--x");
        stage.step("more comes", millis(200));
        assert_eq!(stage.heard(watch), [came("1"), came("2")]);
        let offered = stage.offered(viewer, 0);
        stage.group(publication, 1, 3, 500);
        stage.step("a group", millis(200));
        stage.expect_objects(offered, &[1], 3, 500);
        // A shorter prefix replaces the longer one, and nothing is withdrawn meanwhile.
        let other = stage.client_at(edge);
        let all = stage.watch(other, weir_moqt::name::Namespace::EMPTY);
        stage.step("another watches everything", secs(3));
        let mut heard = stage.heard(all);
        heard.sort_by_key(|heard| format!("{heard:?}"));
        assert_eq!(heard, [came("a-1"), came("a-2"), came("b-3")]);
        assert_eq!(stage.heard(watch), [came("1"), came("2")]);
        stage.cancel(all);
        stage.step("and leaves", secs(3));
        assert_eq!(stage.heard(watch), [came("1"), came("2")]);
        stage.cancel(early);
        stage.cancel(late);
        stage.cancel(elsewhere);
        stage.step("the namespaces go", millis(300));
        let mut heard = stage.heard(watch);
        heard[2..].sort_by_key(|heard| format!("{heard:?}"));
        assert_eq!(heard, [came("1"), came("2"), went("1"), went("2")]);
        stage.cancel(watch);
        stage.cancel(collected);
        stage.step("the viewer leaves", millis(200));
        assert_eq!(stage.gauges().prefixes, 0);
    });
}

#[test]
fn publishers_at_the_edge_are_found_at_the_upstream_relay() {
    story(&Setting::default(), |stage| {
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let publisher = stage.client_at(edge);
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(42));
        let announced = stage.announce(publisher, "a");
        let publication = stage.publish(publisher, "b--y");
        stage.step("published at the edge", millis(200));
        let (near, far) = (stage.client_at(edge), stage.client());
        let watch = stage.watch(far, weir_moqt::name::Namespace::EMPTY);
        let watch_near = stage.watch(near, weir_moqt::name::Namespace::EMPTY);
        let asked: Vec<_> = [near, far]
            .into_iter()
            .flat_map(|node| ["a--x", "b--y"].map(|track| (node, track)))
            .map(|(node, track)| stage.subscribe(node, track))
            .collect();
        stage.wait_for_answers(&asked);
        let source = stage.source(publisher, 0, 42);
        stage.group(source, 1, 3, 500);
        stage.group(publication, 1, 3, 500);
        stage.step("objects", millis(300));
        for &subscription in &asked {
            stage.expect_objects(subscription, &[1], 3, 500);
        }
        assert_eq!(stage.actor(publisher).asked.len(), 1, "it is asked once");
        let counters = stage.counters_at(edge);
        assert_eq!(counters.duplicates, 0, "nothing comes back");
        assert_eq!(counters.streams_received, 2, "nothing comes back");
        assert_eq!(stage.heard(watch_near), [Heard::Came(space("a"))]);
        stage.cancel(announced);
        stage.publish_done(publication, 1);
        stage.step("both go", secs(7));
        let mut heard = stage.heard(watch);
        heard.sort_by_key(|heard| format!("{heard:?}"));
        let [a, b] = ["a", "b"].map(space);
        let expected = [
            Heard::Came(a.clone()),
            Heard::Came(b.clone()),
            Heard::Went(a.clone()),
            Heard::Went(b),
        ];
        assert_eq!(heard, expected);
        let near = stage.heard(watch_near);
        assert_eq!(near, [Heard::Came(a.clone()), Heard::Went(a)]);
    });
}

#[test]
fn threads_share_one_link_and_one_copy() {
    story(&Setting::default(), |stage| {
        let threads = stage.edge_of(&[stage.relay], 2);
        stage.await_links(threads[0]);
        let publisher = stage.client();
        stage.announce(publisher, "n");
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        // Chance decides which thread serves a client.
        let viewers: Vec<_> = (0..12).map(|_| stage.client_at(threads[0])).collect();
        let served = [0, 1].map(|thread| stage.gauges_at(threads[thread]).sessions);
        assert!(served.iter().all(|&count| count > 0), "{served:?}");
        let subscriptions: Vec<_> = viewers
            .iter()
            .map(|&viewer| stage.subscribe(viewer, "a--x"))
            .collect();
        let watches: Vec<_> = viewers
            .iter()
            .map(|&viewer| stage.watch(viewer, space("n")))
            .collect();
        stage.wait_for_answers(&subscriptions);
        stage.group(publication, 1, 3, 500);
        stage.datagram(publication, 2, 0, b"datagram");
        stage.step("objects", millis(300));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &[1], 3, 500);
            assert_eq!(datagrams(stage, subscription), [(2, 0)]);
        }
        for watch in watches {
            assert_eq!(stage.heard(watch).len(), 1, "{watch:?}");
        }
        assert_eq!(stage.gauges().subscriptions, 1, "one copy for the process");
        let status = stage.track_status(viewers[11], "a--x");
        let missing = stage.subscribe(viewers[11], "b--y");
        let fetches: Vec<_> = viewers
            .iter()
            .map(|&viewer| stage.fetch(viewer, "a--x", (1, 0), (1, 2)))
            .collect();
        stage.step("more requests", millis(300));
        assert!(stage.is_accepted(status));
        assert_eq!(
            stage.refusal(missing),
            Some(RequestErrorCode::DOES_NOT_EXIST)
        );
        for fetch in fetches {
            stage.expect_complete(fetch);
            assert_eq!(stage.fetched(fetch).places(500).len(), 3);
        }
        stage.sim.kill(stage.relay);
        stage.step("the upstream relay dies", millis(1600));
        let patient: Vec<_> = viewers
            .iter()
            .map(|&viewer| stage.subscribe_with(viewer, "c--z", rendezvous(secs(20))))
            .collect();
        stage.serve(stage.relay, &[]);
        let again = stage.client();
        stage.publish(again, "c--z");
        stage.step("and comes back", secs(3));
        stage.wait_for_answers(&patient);
    });
}

#[test]
fn publishers_on_every_thread_of_an_edge_are_found_upstream() {
    story(&Setting::default(), |stage| {
        let threads = stage.edge_of(&[stage.relay], 2);
        stage.await_links(threads[0]);
        let publishers: Vec<_> = (0..8).map(|_| stage.client_at(threads[0])).collect();
        let served = [0, 1].map(|thread| stage.gauges_at(threads[thread]).sessions);
        assert!(served.iter().all(|&count| count > 0), "{served:?}");
        let mut publications = Vec::new();
        for (number, &publisher) in publishers.iter().enumerate() {
            let announced = format!("n{number}");
            stage.announce(publisher, &announced);
            publications.push(stage.publish(publisher, &format!("n{number}--x")));
        }
        stage.step("published at the edge", millis(300));
        let viewer = stage.client();
        let asked: Vec<_> = (0..8)
            .map(|number| stage.subscribe(viewer, &format!("n{number}--x")))
            .collect();
        stage.wait_for_answers(&asked);
        for &publication in &publications {
            stage.group(publication, 1, 2, 500);
        }
        stage.step("objects", millis(300));
        for &subscription in &asked {
            stage.expect_objects(subscription, &[1], 2, 500);
        }
    });
}

/// Refuses everything under the namespace `secret`, and everything of sessions that send no token.
#[derive(Debug)]
struct Doorkeeper;

impl Authority for Doorkeeper {
    fn grant(
        &self,
        _now: std::time::Instant,
        _credentials: &Credentials,
        _memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial> {
        Ok(vec![Grant {
            subscribe: vec![space("open")],
            ..Grant::default()
        }])
    }
}

#[test]
fn what_the_upstream_relay_refuses_is_refused_and_counted() {
    let setting = Setting {
        authority: Arc::new(Doorkeeper),
        ..Setting::default()
    };
    story(&setting, |stage| {
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let viewer = stage.client_at(edge);
        stage.announce(viewer, "mine");
        let subscription = stage.subscribe(viewer, "secret--x");
        stage.watch(viewer, space("secret"));
        stage.step("what is not permitted", millis(300));
        assert_eq!(
            stage.refusal(subscription),
            Some(RequestErrorCode::UNAUTHORIZED)
        );
        assert_eq!(stage.counters_at(edge).link_requests_refused, 3);
        assert_eq!(stage.gauges_at(edge).links, 1, "the link stays");
    });
}

#[test]
fn subscribers_that_come_first_wait_for_a_publisher_at_any_upstream_relay() {
    for threads in [1, 2] {
        story(&Setting::default(), |stage| {
            let other = stage.edge(&[]);
            let edge = stage.edge_of(&[stage.relay, other], threads);
            stage.await_links(edge[0]);
            let viewers: Vec<_> = (0..6).map(|_| stage.client_at(edge[0])).collect();
            let patience = rendezvous(secs(25));
            let waiting: Vec<_> = viewers
                .iter()
                .map(|&viewer| stage.subscribe_with(viewer, "a--x", patience.clone()))
                .collect();
            let hurried = stage.subscribe(viewers[0], "b--y");
            stage.step("subscribers wait", secs(5));
            assert_eq!(
                stage.refusal(hurried),
                Some(RequestErrorCode::DOES_NOT_EXIST)
            );
            let publisher = stage.client_at(other);
            let publication = stage.publish(publisher, "a--x");
            stage.step("a publisher comes", millis(200));
            for &subscription in &waiting {
                assert!(stage.is_accepted(subscription));
            }
            stage.group(publication, 1, 3, 500);
            stage.step("a group", millis(200));
            for &subscription in &waiting {
                stage.expect_objects(subscription, &[1], 3, 500);
            }
            assert_eq!(stage.gauges().waiting, 0, "the first is not asked any more");
            assert_eq!(stage.gauges_at(edge[0]).link_subscriptions, 1);
            let late = stage.subscribe_with(viewers[0], "c--z", rendezvous(secs(2)));
            stage.step("nobody comes", secs(3));
            assert_eq!(stage.refusal(late), Some(RequestErrorCode::TIMEOUT));
        });
    }
}

#[test]
fn namespaces_that_an_upstream_relay_sends_are_bounded() {
    story(&Setting::default(), |stage| {
        stage.edge.matches_per_prefix_max = 3;
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let (origin, viewer) = (stage.client(), stage.client_at(edge));
        let watch = stage.watch(viewer, space("a"));
        stage.wait(millis(100));
        for name in ["a-1", "a-2", "a-3"] {
            stage.announce(origin, name);
        }
        stage.step("as many as permitted", millis(200));
        assert_eq!(stage.heard(watch).len(), 3);
        assert_eq!(stage.counters_at(edge).interests_dropped, 0);
        stage.announce(origin, "a-4");
        stage.step("and one more", secs(5));
        let heard = stage.heard(watch);
        let gone = heard.iter().filter(|it| matches!(it, Heard::Went(_)));
        assert_eq!(gone.count(), 3, "nothing is known of them any more");
        assert_eq!(stage.counters_at(edge).interests_dropped, 1);
        assert_eq!(stage.gauges().prefixes, 0);
    });
}
