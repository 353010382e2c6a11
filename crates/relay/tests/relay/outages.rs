//! Links to upstream relays that break, drain, decline, or form a ring.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use weir_moqt::error::{PublishDoneCode, RequestErrorCode};
use weir_relay::Whereabouts;
use weir_sim::NodeId;

use crate::stage::{Setting, Stage, millis, rendezvous, secs, story};

/// Creates relays that each ask the next one, and the last one the first.
fn ring(stage: &mut Stage, count: usize) -> Vec<NodeId> {
    let relays: Vec<NodeId> = (0..count).map(|_| stage.edge(&[])).collect();
    for (number, &relay) in relays.iter().enumerate() {
        stage.sim.kill(relay);
        stage.serve(relay, &[relays[(number + 1) % count]]);
    }
    relays
}

#[test]
fn a_link_that_is_lost_is_established_again_and_subscribers_stay() {
    story(&Setting::default(), |stage| {
        let relay = stage.relay;
        let edge = stage.edge(&[relay]);
        stage.await_links(edge);
        let publisher = stage.client();
        stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let viewer = stage.client_at(edge);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        stage.sim.kill(relay);
        stage.step("the upstream relay dies", millis(1600));
        let gauges = stage.gauges_at(edge);
        assert_eq!(
            (gauges.links, gauges.subscriptions),
            (0, 1),
            "noticed within 1.6 s"
        );
        let refused = stage.subscribe(viewer, "b--y");
        let patient = stage.subscribe_with(viewer, "c--z", rendezvous(secs(20)));
        stage.wait(millis(100));
        assert_eq!(
            stage.refusal(refused),
            Some(RequestErrorCode::DOES_NOT_EXIST)
        );
        stage.serve(relay, &[]);
        let again = stage.client();
        let publication = stage.publish(again, "a--x");
        let other = stage.publish(again, "c--z");
        stage.step("and comes back, with its publisher", secs(2));
        assert_eq!(stage.gauges_at(edge).links, 1);
        stage.wait_for_answers(&[patient]);
        stage.group(publication, 7, 3, 500);
        stage.group(other, 1, 3, 500);
        stage.step("objects", millis(300));
        stage.expect_objects(subscription, &[7], 3, 500);
        stage.expect_objects(patient, &[1], 3, 500);
        assert_eq!(stage.outcome(subscription).done, None);
        let link = &stage.links_at(edge)[0];
        assert_eq!(link.connects, 2);
        assert!(link.failures >= 1);
    });
}

/// The address of a host name.
#[derive(Debug)]
struct Named(Mutex<SocketAddr>);

impl Whereabouts for Named {
    fn address(&self) -> SocketAddr {
        *self.0.lock().expect("nobody has panicked")
    }
}

#[test]
fn an_upstream_relay_that_comes_back_at_another_address_is_found() {
    story(&Setting::default(), |stage| {
        let other = stage.edge(&[]);
        let name = Arc::new(Named(Mutex::new(stage.sim.address(stage.relay))));
        let shared: Arc<dyn Whereabouts> = Arc::<Named>::clone(&name);
        stage.whereabouts = Some(shared);
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let viewer = stage.client_at(edge);
        let subscription = stage.subscribe_with(viewer, "a--x", rendezvous(secs(20)));
        stage.sim.kill(stage.relay);
        *name.0.lock().unwrap() = stage.sim.address(other);
        let publisher = stage.client_at(other);
        let publication = stage.publish(publisher, "a--x");
        stage.wait_for_answers(&[subscription]);
        stage.group(publication, 1, 3, 500);
        stage.step("objects", millis(300));
        stage.expect_objects(subscription, &[1], 3, 500);
        assert_eq!(stage.links_at(edge)[0].connects, 2);
    });
}

#[test]
fn subscribers_of_a_lost_upstream_relay_are_told_after_the_linger_time() {
    story(&Setting::default(), |stage| {
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let publisher = stage.client();
        stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let viewer = stage.client_at(edge);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        stage.sim.kill(stage.relay);
        stage.step("the upstream relay dies for good", secs(8));
        let done = stage.outcome(subscription).done.as_ref().unwrap();
        assert_eq!(done.code, PublishDoneCode::TRACK_ENDED);
        assert_eq!(stage.gauges_at(edge).tracks, 0);
    });
}

#[test]
fn the_next_upstream_relay_is_asked_if_the_first_declines_or_is_lost() {
    story(&Setting::default(), |stage| {
        let other = stage.edge(&[]);
        let first = stage.relay;
        let edge = stage.edge(&[first, other]);
        stage.await_links(edge);
        let publisher = stage.client_at(other);
        let publication = stage.publish(publisher, "a--x");
        let both = [stage.client(), publisher].map(|node| stage.publish(node, "b--y"));
        stage.wait(millis(50));
        let viewer = stage.client_at(edge);
        let asked = ["a--x", "b--y"].map(|track| stage.subscribe(viewer, track));
        let missing = stage.subscribe(viewer, "c--z");
        stage.wait_for_answers(&asked);
        assert_eq!(
            stage.refusal(missing),
            Some(RequestErrorCode::DOES_NOT_EXIST)
        );
        let gauges = stage.gauges_at(edge);
        assert_eq!(
            (gauges.links, gauges.link_subscriptions),
            (2, 2),
            "one copy each"
        );
        stage.group(publication, 1, 3, 500);
        stage.group(both[0], 1, 3, 500);
        stage.step("objects", millis(300));
        stage.expect_objects(asked[0], &[1], 3, 500);
        stage.expect_objects(asked[1], &[1], 3, 500);
        stage.sim.kill(first);
        stage.step("the first dies", millis(1600));
        stage.group(both[1], 2, 3, 500);
        stage.step("the second has the track", millis(300));
        stage.expect_objects(asked[1], &[1, 2], 3, 500);
    });
}

#[test]
fn a_ring_of_upstream_relays_is_opened_and_named() {
    for count in [1, 2, 3, 5] {
        story(&Setting::default(), |stage| {
            let relays = ring(stage, count);
            stage.step("all ask the next one", secs(6));
            let problems: Vec<_> = relays
                .iter()
                .flat_map(|&relay| stage.links_at(relay))
                .filter_map(|link| Some((link.name, link.problem?)))
                .collect();
            assert!(!problems.is_empty(), "{count} relays");
            for (name, problem) in &problems {
                assert!(
                    problem.contains(name) && problem.contains("ring"),
                    "{problem}"
                );
            }
            let viewers: Vec<_> = relays.iter().map(|&relay| stage.client_at(relay)).collect();
            let missing: Vec<_> = viewers
                .iter()
                .map(|&viewer| stage.subscribe(viewer, "a--x"))
                .collect();
            stage.step("nobody publishes this", millis(500));
            for missing in missing {
                let refusal = stage.refusal(missing);
                assert_eq!(refusal, Some(RequestErrorCode::DOES_NOT_EXIST));
            }
            for &relay in &relays {
                stage.sim.shutdown(relay);
            }
        });
    }
}

#[test]
fn nothing_circulates_in_a_ring_whose_links_come_and_go() {
    let mut setting = Setting::default();
    setting.client.keep_alive = Some(secs(5));
    story(&setting, |stage| {
        let relays = ring(stage, 3);
        let publisher = stage.client_at(relays[0]);
        let publication = stage.publish(publisher, "a--x");
        let viewers: Vec<_> = relays.iter().map(|&relay| stage.client_at(relay)).collect();
        let asked: Vec<_> = viewers
            .iter()
            .map(|&viewer| stage.subscribe_with(viewer, "a--x", rendezvous(secs(60))))
            .collect();
        // A link of a ring is tried again after 15 s, and stays until requests return.
        for group in 1..=45 {
            stage.group(publication, group, 2, 300);
            stage.wait(secs(1));
        }
        let closed = relays.iter().map(|&relay| stage.counters_at(relay));
        let closed: u64 = closed.map(|counters| counters.links_in_ring).sum();
        assert!(closed >= 2, "the ring was opened {closed} times");
        let first = stage.counters_at(relays[0]);
        assert_eq!(first.streams_received, 45, "nothing returns to the first");
        for (&relay, &asked) in relays.iter().zip(&asked) {
            // Until a link is closed, a group may also come the other way round.
            let counters = stage.counters_at(relay);
            assert!(counters.duplicates <= 2 * counters.links_in_ring);
            let received = stage.outcome(asked).objects();
            let mut places: Vec<_> = received.iter().map(|it| (it.0, it.1)).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), received.len(), "nothing comes twice");
        }
        let groups: Vec<u64> = (1..=45).collect();
        stage.expect_objects(asked[0], &groups, 2, 300);
    });
}

#[test]
fn a_chain_of_three_is_no_ring() {
    let mut setting = Setting::default();
    setting.client.keep_alive = Some(secs(5));
    story(&setting, |stage| {
        let middle = stage.edge(&[stage.relay]);
        let edge = stage.edge(&[middle]);
        stage.await_links(edge);
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let viewer = stage.client_at(edge);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        stage.step("it goes on for minutes", secs(200));
        stage.group(publication, 1, 3, 500);
        stage.step("a group", millis(300));
        stage.expect_objects(subscription, &[1], 3, 500);
        for relay in [middle, edge] {
            assert_eq!(stage.counters_at(relay).links_in_ring, 0);
            assert_eq!(stage.links_at(relay)[0].failures, 0);
        }
    });
}

#[test]
fn tracks_move_to_the_next_upstream_relay_when_the_first_drains() {
    story(&Setting::default(), |stage| {
        let other = stage.edge(&[]);
        let edge = stage.edge(&[stage.relay, other]);
        stage.await_links(edge);
        let publishers = [stage.client(), stage.client_at(other)];
        let both = publishers.map(|node| stage.publish(node, "a--x"));
        stage.wait(millis(50));
        let viewer = stage.client_at(edge);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        let mut sent = Vec::new();
        for group in 0..12 {
            if group == 3 {
                stage.sim.shutdown(stage.relay);
            }
            for publication in both {
                // The first leaves with its relay.
                if stage.actor(publication.node).lost.is_none() {
                    stage.group(publication, group, 3, 500);
                }
            }
            sent.push(group);
            stage.step("a group", millis(900));
        }
        stage.expect_objects(subscription, &sent, 3, 500);
        assert_eq!(stage.outcome(subscription).done, None);
        assert_eq!(stage.gauges_at(edge).links, 1);
    });
}
