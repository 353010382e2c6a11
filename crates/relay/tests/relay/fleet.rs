//! Relays of a fleet: they find each other's publishers through a registry.

use std::sync::Arc;

use weir_client::target::Target;
use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode},
    location::Location,
    message::Setup,
};
use weir_quic::Limits as QuicLimits;
use weir_relay::{
    Config, FleetState, Relay,
    registry::{Member, Registry as _, RelayId, simulated::SimulatedFleet},
};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME};

use crate::{
    actor::{Actor, Heard, Manner},
    archive::Serving,
    stage::{Asked, Setting, Stage, draft, millis, rendezvous, secs, space, story},
};

/// The relays of a story, and their registry.
pub(crate) struct Fleet {
    pub(crate) registry: SimulatedFleet,
    /// The first thread of each relay.
    pub(crate) relays: Vec<NodeId>,
}

impl Fleet {
    /// Creates relays with so many threads each, and waits until they know each other.
    fn with_threads(stage: &mut Stage, count: usize, threads: u16) -> Self {
        Self::with_limits(stage, count, threads, &QuicLimits::default())
    }

    pub(crate) fn with_limits(
        stage: &mut Stage,
        count: usize,
        threads: u16,
        limits: &QuicLimits,
    ) -> Self {
        let mut fleet = Self {
            registry: SimulatedFleet::new(crate::stage::seed(), millis(20)),
            relays: Vec::new(),
        };
        for number in 0..count {
            let node = NodeConfig {
                server: Some(crate::stage::server_tls(&stage.sim)),
                limits: limits.clone(),
                ..NodeConfig::default()
            };
            let nodes = stage.sim.add_group(node, threads, true);
            fleet.relays.push(nodes[0]);
            for (thread, &node) in nodes.iter().enumerate() {
                fleet.start(stage, node, number as u64, thread == 0);
            }
        }
        stage.wait(millis(300));
        for relay in 0..count {
            assert_eq!(fleet.state(stage, relay).stale_for, None);
        }
        fleet
    }

    pub(crate) fn new(stage: &mut Stage, count: usize) -> Self {
        Self::with_threads(stage, count, 1)
    }

    /// Starts a thread of a relay. Only the first thread joins the fleet.
    pub(crate) fn start(&self, stage: &mut Stage, node: NodeId, number: u64, is_first: bool) {
        let mut relay = Relay::new(Config {
            identity: 1000 + number,
            limits: stage.edge.clone(),
            drain_max: secs(5),
            ..Config::default()
        });
        if let Some(credentials) = &stage.credentials {
            relay = relay.with_link_credentials(Arc::clone(credentials));
        }
        if is_first {
            let client = stage.sim.client_config(&[draft().alpn()]);
            let target = Target::new(stage.sim.address(node), SERVER_NAME, client);
            let member = Member {
                id: RelayId(number),
                name: format!("relay {number}"),
                target: Arc::new(target),
            };
            let registry = Box::new(self.registry.join(member));
            relay.join_fleet(stage.sim.now(), RelayId(number), registry);
        }
        stage.sim.start(node, relay);
    }

    pub(crate) fn state(&self, stage: &mut Stage, relay: usize) -> FleetState {
        let state = stage
            .sim
            .with_app(self.relays[relay], |now, relay: &mut Relay, _| {
                relay.fleet(now)
            });
        state.expect("it is in a fleet")
    }

    /// Returns the names of the relays that a relay has established links to.
    pub(crate) fn links(&self, stage: &mut Stage, relay: usize) -> Vec<String> {
        let links = stage.links_at(self.relays[relay]).into_iter();
        links.filter(|it| it.is_ready).map(|it| it.name).collect()
    }

    pub(crate) fn client(&self, stage: &mut Stage, relay: usize) -> NodeId {
        stage.client_at(self.relays[relay])
    }

    /// Returns the established subscriptions at a relay.
    pub(crate) fn subscriptions(&self, stage: &Stage, relay: usize) -> u64 {
        stage.gauges_at(self.relays[relay]).subscriptions
    }
}

/// Waits until a condition holds, for ten seconds at most.
pub(crate) fn wait_until(stage: &mut Stage, step: &str, is_so: impl Fn(&mut Stage) -> bool) {
    let deadline = stage.sim.elapsed() + secs(10);
    while !is_so(stage) {
        assert!(stage.sim.elapsed() < deadline, "{step}");
        stage.wait(millis(20));
    }
    stage.step(step, millis(0));
}

/// Returns a setting in which clients stay connected although nothing happens.
pub(crate) fn lasting() -> Setting {
    let mut setting = Setting::default();
    setting.client.keep_alive = Some(secs(5));
    setting
}

#[test]
fn a_track_is_found_and_each_relay_takes_one_copy() {
    story(&Setting::default(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let publisher = fleet.client(stage, 0);
        let publication = stage.publish(publisher, "a--x");
        stage.step("published at the first relay", millis(200));
        let viewers: Vec<_> = (0..3).map(|_| fleet.client(stage, 2)).collect();
        let subscriptions: Vec<_> = viewers
            .iter()
            .map(|&viewer| stage.subscribe(viewer, "a--x"))
            .collect();
        stage.wait_for_answers(&subscriptions);
        let missing = stage.subscribe(viewers[0], "b--y");
        stage.group(publication, 1, 3, 5000);
        stage.datagram(publication, 2, 0, b"datagram");
        stage.step("objects", millis(300));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &[1], 3, 5000);
            assert_eq!(stage.outcome(subscription).datagram_places(), [(2, 0)]);
        }
        let refusal = stage.refusal(missing);
        assert_eq!(refusal, Some(RequestErrorCode::DOES_NOT_EXIST));
        assert_eq!(fleet.subscriptions(stage, 0), 1, "one copy for a relay");
        assert_eq!(stage.counters_at(fleet.relays[2]).streams_received, 1);
        assert_eq!(fleet.links(stage, 2), ["relay 0"]);
        assert_eq!(fleet.links(stage, 1), [""; 0], "no link without a need");
        for &subscription in &subscriptions {
            stage.cancel(subscription);
        }
        wait_until(stage, "the link is closed", |stage| {
            stage.links_at(fleet.relays[2]).is_empty()
        });
        assert_eq!(stage.gauges_at(fleet.relays[0]).sessions, 1);
        let again = stage.subscribe(viewers[1], "a--x");
        stage.wait_for_answers(&[again]);
        stage.group(publication, 3, 3, 500);
        stage.step("and established again", millis(300));
        stage.expect_objects(again, &[3], 3, 500);
    });
}

#[test]
fn namespaces_fetches_and_track_status_cross_the_fleet() {
    story(&Setting::default(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let publisher = fleet.client(stage, 0);
        stage.direct(publisher, |actor| {
            actor.archive.fill(0, 3, 3, 500);
            actor.archive.serving = Serving::Serve;
            actor.manner = Manner::Accept(42);
        });
        let announced = stage.announce(publisher, "a");
        stage.step("announced", millis(200));
        let [fetcher, asker, viewer] = [2, 2, 1].map(|relay| fleet.client(stage, relay));
        let watch = stage.watch(viewer, weir_moqt::name::Namespace::EMPTY);
        let fetch = stage.fetch(fetcher, "a--x", (1, 0), (2, 2));
        stage.step("a fetch without a link", secs(1));
        stage.expect_complete(fetch);
        let publication = stage.publish(publisher, "b--y");
        stage.group(publication, 4, 3, 500);
        stage.step("a track", millis(200));
        let status = stage.track_status(asker, "b--y");
        let cancelled = stage.track_status(viewer, "b--y");
        stage.cancel(cancelled);
        stage.step("its status", secs(1));
        let Some(Ok(answer)) = &stage.outcome(status).answer else {
            panic!("{:?}", stage.outcome(status));
        };
        assert_eq!(answer.largest_object, Some(Location::new(4, 2)));
        stage.cancel(announced);
        stage.step("withdrawn", millis(300));
        let [came, went] = [Heard::Came, Heard::Went];
        let [a, b] = ["a", "b"].map(space);
        assert_eq!(stage.heard(watch), [came(a.clone()), came(b), went(a)]);
        let state = fleet.state(stage, 2);
        let shown: Vec<_> = state.relays.iter().map(|it| &it.namespaces).collect();
        assert_eq!(shown, [&[space("b")]]);
    });
}

#[test]
fn threads_of_a_relay_share_its_links_and_all_are_found() {
    story(&Setting::default(), |stage| {
        let fleet = Fleet::with_threads(stage, 2, 3);
        // Chance decides which thread serves a client.
        let publishers: Vec<_> = (0..6).map(|_| fleet.client(stage, 0)).collect();
        let tracks: Vec<String> = (0..6).map(|number| format!("a-{number}--x")).collect();
        let publications: Vec<_> = publishers
            .iter()
            .zip(&tracks)
            .map(|(&publisher, track)| stage.publish(publisher, track))
            .collect();
        stage.step("published", millis(300));
        let viewers: Vec<_> = (0..6).map(|_| fleet.client(stage, 1)).collect();
        let watch = stage.watch(viewers[5], space("a"));
        let subscriptions: Vec<Asked> = viewers
            .iter()
            .flat_map(|&viewer| tracks.iter().map(move |track| (viewer, track)))
            .map(|(viewer, track)| stage.subscribe(viewer, track))
            .collect();
        stage.wait_for_answers(&subscriptions);
        for &publication in &publications {
            stage.group(publication, 1, 3, 500);
        }
        stage.step("objects", millis(300));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &[1], 3, 500);
        }
        assert_eq!(stage.heard(watch).len(), 6);
        assert_eq!(fleet.links(stage, 1), ["relay 0"]);
        let gauges = stage.gauges_at(fleet.relays[1]);
        assert_eq!((gauges.links, gauges.link_subscriptions), (1, 6));
    });
}

#[test]
fn a_publisher_moves_to_another_relay() {
    for before in [true, false] {
        story(&Setting::default(), |stage| {
            let fleet = Fleet::new(stage, 3);
            let first = fleet.client(stage, 0);
            let publication = stage.publish(first, "a--x");
            stage.step("published at the first relay", millis(200));
            let viewer = fleet.client(stage, 2);
            let subscription = stage.subscribe(viewer, "a--x");
            stage.wait_for_answers(&[subscription]);
            stage.group(publication, 1, 3, 500);
            stage.step("a group", millis(300));
            let second = fleet.client(stage, 1);
            let moved = if before {
                let moved = stage.publish(second, "a--x");
                stage.step("it is at both", millis(500));
                stage.sim.kill(first);
                moved
            } else {
                stage.sim.kill(first);
                stage.step("it is at neither", millis(500));
                stage.publish(second, "a--x")
            };
            // The first relay notices that the publisher is silent.
            wait_until(
                stage,
                "the viewer's relay takes it from the second",
                |stage| fleet.subscriptions(stage, 1) == 1,
            );
            stage.group(moved, 2, 3, 500);
            stage.step("another group", millis(300));
            stage.expect_objects(subscription, &[1, 2], 3, 500);
            assert_eq!(stage.outcome(subscription).done, None);
            assert_eq!(fleet.subscriptions(stage, 0), 0);
        });
    }
}

#[test]
fn a_track_with_publishers_at_two_relays_comes_once_and_goes_on_when_one_dies() {
    story(&Setting::default(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let publishers = [0, 1].map(|relay| fleet.client(stage, relay));
        let both = publishers.map(|publisher| stage.publish(publisher, "a--x"));
        stage.step("published at two relays", millis(200));
        let viewer = fleet.client(stage, 2);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        for publication in both {
            stage.group(publication, 1, 3, 500);
        }
        stage.step("a group", millis(300));
        stage.expect_objects(subscription, &[1], 3, 500);
        assert_eq!(fleet.links(stage, 2), ["relay 0"]);
        assert_eq!(stage.counters_at(fleet.relays[2]).duplicates, 0);
        stage.sim.kill(fleet.relays[0]);
        wait_until(stage, "the first relay dies", |stage| {
            fleet.subscriptions(stage, 1) == 1
        });
        stage.group(both[1], 2, 3, 500);
        stage.step("the second one continues", millis(300));
        stage.expect_objects(subscription, &[1, 2], 3, 500);
        assert_eq!(stage.outcome(subscription).done, None);
        // Viewers at a relay with a publisher get that one's.
        let near = fleet.client(stage, 1);
        let near = stage.subscribe(near, "a--x");
        stage.wait_for_answers(&[near]);
        assert_eq!(fleet.links(stage, 1), [""; 0]);
    });
}

#[test]
fn tracks_of_one_namespace_at_several_relays_are_all_found() {
    story(&Setting::default(), |stage| {
        let fleet = Fleet::new(stage, 4);
        let publications: Vec<_> = (0..3)
            .map(|relay| {
                let publisher = fleet.client(stage, relay);
                stage.publish(publisher, &format!("room--{relay}"))
            })
            .collect();
        stage.step("three talk in one room", millis(200));
        let viewer = fleet.client(stage, 3);
        let asked: Vec<_> = (0..4)
            .map(|number| stage.subscribe(viewer, &format!("room--{number}")))
            .collect();
        stage.wait_for_answers(&asked[..3]);
        let refusal = stage.refusal(asked[3]);
        assert_eq!(refusal, Some(RequestErrorCode::DOES_NOT_EXIST));
        for &publication in &publications {
            stage.group(publication, 1, 3, 500);
        }
        stage.step("all are heard", millis(300));
        for &subscription in &asked[..3] {
            stage.expect_objects(subscription, &[1], 3, 500);
        }
        // One who talks hears the others.
        let near = fleet.client(stage, 0);
        let far = stage.subscribe(near, "room--2");
        stage.wait_for_answers(&[far]);
        stage.group(publications[2], 2, 3, 500);
        stage.step("another group", millis(300));
        stage.expect_objects(far, &[2], 3, 500);
    });
}

#[test]
fn a_relay_dies_and_its_lease_ends() {
    story(&lasting(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let publisher = fleet.client(stage, 0);
        stage.publish(publisher, "a--x");
        stage.step("published", millis(200));
        let viewer = fleet.client(stage, 2);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        stage.sim.kill(fleet.relays[0]);
        stage.step("the publisher's relay dies", secs(3));
        let patient = stage.subscribe_with(viewer, "a--z", rendezvous(secs(30)));
        assert_eq!(fleet.state(stage, 2).relays.len(), 1, "the lease holds on");
        stage.step("nobody comes", secs(6));
        let done = stage.outcome(subscription).done.as_ref().unwrap();
        assert_eq!(done.code, PublishDoneCode::TRACK_ENDED);
        stage.step("the lease ends", secs(5));
        assert_eq!(fleet.state(stage, 2).relays.len(), 0);
        stage.step("and the link with it", secs(11));
        assert!(stage.links_at(fleet.relays[2]).is_empty());
        let publisher = fleet.client(stage, 1);
        let publication = stage.publish(publisher, "a--z");
        stage.wait_for_answers(&[patient]);
        stage.group(publication, 1, 3, 500);
        stage.step("a publisher at another relay", millis(300));
        stage.expect_objects(patient, &[1], 3, 500);
    });
}

#[test]
fn a_stale_registry_is_served_and_media_does_not_notice() {
    story(&lasting(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let publisher = fleet.client(stage, 0);
        let running = stage.publish(publisher, "a--x");
        let known = stage.publish(publisher, "b--y");
        stage.step("published", millis(200));
        let viewers = [1, 2].map(|relay| fleet.client(stage, relay));
        let subscription = stage.subscribe(viewers[1], "a--x");
        stage.wait_for_answers(&[subscription]);
        fleet.registry.lose_quorum();
        stage.step("the quorum is lost", secs(60));
        let stale = fleet.state(stage, 2).stale_for;
        assert!(stale > Some(secs(50)), "{stale:?}");
        assert_eq!(stage.gauges_at(fleet.relays[2]).fleet_stale, 1);
        let late = stage.subscribe(viewers[0], "b--y");
        stage.wait_for_answers(&[late]);
        let unknown = stage.publish(publisher, "c--z");
        stage.step("a new namespace", millis(200));
        let unheard = stage.subscribe(viewers[0], "c--z");
        stage.group(running, 1, 3, 500);
        stage.group(known, 1, 3, 500);
        stage.step("objects", millis(300));
        stage.expect_objects(subscription, &[1], 3, 500);
        stage.expect_objects(late, &[1], 3, 500);
        let refusal = stage.refusal(unheard);
        assert_eq!(refusal, Some(RequestErrorCode::DOES_NOT_EXIST));
        let now = stage.sim.now();
        fleet.registry.restore_quorum(now);
        stage.step("the quorum is back", millis(300));
        assert_eq!(fleet.state(stage, 2).stale_for, None);
        let heard = stage.subscribe(viewers[0], "c--z");
        stage.wait_for_answers(&[heard]);
        stage.group(unknown, 1, 3, 500);
        stage.step("everything is whole", secs(15));
        stage.expect_objects(heard, &[1], 3, 500);
        assert_eq!(stage.outcome(subscription).done, None);
        assert_eq!(fleet.state(stage, 1).relays[0].registered, 3);
    });
}

#[test]
fn relays_that_take_each_other_for_the_publishers_relay_do_not_wait_for_each_other() {
    story(&Setting::default(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let publishers = [0, 1, 2].map(|relay| fleet.client(stage, relay));
        for publisher in publishers {
            stage.publish(publisher, "a--x");
        }
        stage.step("published everywhere", millis(200));
        fleet.registry.lose_quorum();
        for publisher in publishers {
            stage.sim.kill(publisher);
        }
        // The maps still say that everybody has it.
        stage.step("all publishers are gone", secs(10));
        let viewers = [0, 1, 2].map(|relay| fleet.client(stage, relay));
        let asked = viewers.map(|viewer| stage.subscribe(viewer, "a--x"));
        stage.step("nobody has it", secs(3));
        for asked in asked {
            let refusal = stage.refusal(asked);
            assert_eq!(refusal, Some(RequestErrorCode::DOES_NOT_EXIST));
        }
    });
}

#[test]
fn a_relay_that_drains_is_left_without_a_gap() {
    story(&Setting::default(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let publishers = [0, 1].map(|relay| fleet.client(stage, relay));
        let both = publishers.map(|publisher| stage.publish(publisher, "a--x"));
        stage.step("published at two relays", millis(200));
        let viewer = fleet.client(stage, 2);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        assert_eq!(fleet.links(stage, 2), ["relay 0"]);
        let mut sent = Vec::new();
        for group in 0..12 {
            if group == 3 {
                stage.sim.shutdown(fleet.relays[0]);
            }
            for publication in both {
                if stage.actor(publication.node).lost.is_none() {
                    stage.group(publication, group, 3, 500);
                }
            }
            sent.push(group);
            stage.step("a group", millis(900));
        }
        stage.expect_objects(subscription, &sent, 3, 500);
        assert_eq!(stage.outcome(subscription).done, None);
        assert_eq!(fleet.links(stage, 2), ["relay 1"]);
    });
}

#[test]
fn a_client_that_says_it_is_a_relay_gets_no_more_rights_than_a_client() {
    let mut setting = Setting::default();
    setting.relay.subscriptions_per_session_max = 1;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.publish(publisher, "b--y");
        let node = stage.absent_client();
        let setup = Setup {
            fleet_relay: Some(99),
            ..Setup::default()
        };
        let actor = Actor::new(
            &stage.sim,
            stage.sim.address(stage.relay),
            setup,
            stage.draft,
        );
        stage.sim.start(node, actor);
        stage.wait(millis(200));
        let subscription = stage.subscribe(node, "a--x");
        stage.wait_for_answers(&[subscription]);
        let beyond = stage.subscribe(node, "b--y");
        stage.group(publication, 1, 3, 500);
        stage.step("a group", millis(300));
        stage.expect_objects(subscription, &[1], 3, 500);
        let refusal = stage.refusal(beyond);
        assert_eq!(refusal, Some(RequestErrorCode::EXCESSIVE_LOAD));
    });
}

#[test]
fn registrations_of_other_relays() {
    story(&lasting(), |stage| {
        stage.edge.registrations_max = 2;
        let fleet = Fleet::new(stage, 2);
        let publisher = fleet.client(stage, 0);
        let announced = ["a", "b"].map(|namespace| stage.announce(publisher, namespace));
        stage.step("as many as there is room for", millis(200));
        let relay = fleet.relays[1];
        assert_eq!(stage.counters_at(relay).registrations_dropped, 0);
        stage.announce(publisher, "c");
        stage.step("one more", millis(200));
        assert_eq!(stage.counters_at(relay).registrations_dropped, 1);
        assert_eq!(stage.gauges_at(relay).fleet_namespaces, 2);
        stage.cancel(announced[0]);
        stage.step("one goes", millis(200));
        stage.announce(publisher, "d");
        stage.step("and there is room again", millis(200));
        assert_eq!(stage.counters_at(relay).registrations_dropped, 1);
        assert_eq!(stage.gauges_at(relay).fleet_namespaces, 2);
    });
}

#[test]
fn ten_thousand_namespaces_of_others_change_while_media_flows() {
    story(&lasting(), |stage| {
        let fleet = Fleet::new(stage, 2);
        let publisher = fleet.client(stage, 0);
        let publication = stage.publish(publisher, "a--x");
        stage.step("published", millis(200));
        let viewer = fleet.client(stage, 1);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        let absent = stage.absent_client();
        let client = stage.sim.client_config(&[draft().alpn()]);
        let mut busy = fleet.registry.join(Member {
            id: RelayId(77),
            name: "busy".to_owned(),
            target: Arc::new(Target::new(stage.sim.address(absent), SERVER_NAME, client)),
        });
        let name = |number: usize| space(&format!("n{number}"));
        for number in 0..10_000 {
            busy.register(stage.sim.now(), &name(number));
        }
        let mut gone = 0;
        let groups: Vec<u64> = (1..=50).collect();
        for &group in &groups {
            let now = stage.sim.now();
            while busy.poll(now).is_some() {}
            // Twenty changes in forty milliseconds.
            for _ in 0..10 {
                busy.withdraw(now, &name(gone));
                busy.register(now, &name(10_000 + gone));
                gone += 1;
            }
            stage.group(publication, group, 1, 500);
            stage.wait(millis(40));
        }
        stage.step("the last changes arrive", millis(300));
        stage.expect_objects(subscription, &groups, 1, 500);
        for relay in [0, 1] {
            let others = 10_000 + relay as u64;
            assert_eq!(
                stage.gauges_at(fleet.relays[relay]).fleet_namespaces,
                others
            );
            let counters = stage.counters_at(fleet.relays[relay]);
            assert_eq!(counters.registrations_dropped, 0);
        }
        let last = stage.subscribe(viewer, &format!("n{}--x", 10_000 + gone));
        stage.step("nobody has registered this", millis(300));
        assert_eq!(stage.refusal(last), Some(RequestErrorCode::DOES_NOT_EXIST));
    });
}
