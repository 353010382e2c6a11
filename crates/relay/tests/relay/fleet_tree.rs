//! Trees of relays: a relay that serves enough others with a track redirects further ones to these.

use weir_moqt::{error::RequestErrorCode, message::Setup};
use weir_sim::NodeId;

use crate::{
    actor::{Actor, Manner},
    archive::Serving,
    fleet::{Fleet, lasting, wait_until},
    stage::{Asked, Stage, millis, secs, story},
};

/// A fleet with a track that is published at the first relay, and a viewer at each other one.
struct Tree {
    fleet: Fleet,
    publisher: NodeId,
    publication: Asked,
    viewers: Vec<Asked>,
    group: u64,
}

impl Tree {
    /// Plants a tree in which a relay serves so many others. The viewers come one after the other.
    fn new(stage: &mut Stage, relays: usize, children_max: usize) -> Self {
        stage.edge.fleet_children_max = children_max;
        let fleet = Fleet::new(stage, relays);
        let publisher = fleet.client(stage, 0);
        let publication = stage.publish(publisher, "a--x");
        stage.step("published", millis(200));
        let mut tree = Self {
            fleet,
            publisher,
            publication,
            viewers: Vec::new(),
            group: 0,
        };
        for relay in 1..relays {
            tree.view(stage, relay);
            stage.wait(millis(200));
        }
        let viewers = tree.viewers.clone();
        stage.wait_for_answers(&viewers);
        tree
    }

    fn view(&mut self, stage: &mut Stage, relay: usize) {
        let viewer = self.fleet.client(stage, relay);
        self.viewers.push(stage.subscribe(viewer, "a--x"));
    }

    /// Publishes a group.
    fn publish(&mut self, stage: &mut Stage) -> u64 {
        self.group += 1;
        stage.group(self.publication, self.group, 2, 300);
        stage.wait(millis(200));
        self.group
    }

    /// Returns how many links the track passes to each relay.
    fn depths(&self, stage: &Stage) -> Vec<u64> {
        let relays = self.fleet.relays.iter();
        relays
            .map(|&relay| stage.gauges_at(relay).fleet_depth)
            .collect()
    }

    /// Returns how many relays and viewers each relay serves.
    fn served(&self, stage: &Stage) -> Vec<u64> {
        (0..self.fleet.relays.len())
            .map(|relay| self.fleet.subscriptions(stage, relay))
            .collect()
    }

    fn has(&self, stage: &Stage, viewer: usize, group: u64) -> bool {
        let mut streams = stage.outcome(self.viewers[viewer]).streams.iter();
        streams.any(|stream| stream.header.group == group)
    }

    /// Publishes until these viewers have received a group of now.
    fn until_served(&mut self, stage: &mut Stage, viewers: &[usize]) {
        let deadline = stage.sim.elapsed() + secs(8);
        loop {
            let group = self.publish(stage);
            if viewers.iter().all(|&viewer| self.has(stage, viewer, group)) {
                return;
            }
            assert!(stage.sim.elapsed() < deadline, "not all are served again");
        }
    }
}

#[test]
fn relays_past_the_most_are_redirected_into_a_tree() {
    story(&lasting(), |stage| {
        let mut tree = Tree::new(stage, 8, 2);
        for _ in 0..3 {
            tree.publish(stage);
        }
        stage.step("three groups", millis(300));
        for &viewer in &tree.viewers {
            stage.expect_objects(viewer, &[1, 2, 3], 2, 300);
        }
        // Two relays at the first, two at each of these, and the last one below.
        assert_eq!(tree.depths(stage), [0, 1, 1, 2, 2, 2, 2, 3]);
        let served = tree.served(stage);
        assert_eq!(served[0], 2);
        assert!(
            served.iter().all(|&served| served <= 3),
            "with a viewer: {served:?}"
        );
        for &relay in &tree.fleet.relays[1..] {
            assert_eq!(stage.counters_at(relay).streams_received, 3, "one copy");
        }
        let counters = stage.counters_at(tree.fleet.relays[0]);
        assert_eq!(counters.fleet_redirected, 5);
        assert_eq!(counters.fleet_children_beyond, 0);
        let last = stage.counters_at(tree.fleet.relays[7]);
        assert_eq!(last.fleet_redirects_followed, 2);
    });
}

#[test]
fn as_many_relays_as_may_be_are_served_directly() {
    story(&lasting(), |stage| {
        let mut tree = Tree::new(stage, 4, 3);
        assert_eq!(tree.depths(stage), [0, 1, 1, 1]);
        let first = tree.fleet.relays[0];
        assert_eq!(stage.counters_at(first).fleet_redirected, 0);
        // Further viewers at these relays cost the first one nothing.
        tree.view(stage, 3);
        let group = tree.publish(stage);
        assert!(tree.has(stage, 3, group));
        assert_eq!(tree.served(stage), [3, 1, 1, 2]);
    });
}

#[test]
fn a_tree_has_a_greatest_depth() {
    story(&lasting(), |stage| {
        stage.edge.fleet_depth_max = 2;
        let mut tree = Tree::new(stage, 5, 1);
        let group = tree.publish(stage);
        assert!((0..4).all(|viewer| tree.has(stage, viewer, group)));
        assert_eq!(tree.depths(stage), [0, 1, 2, 2, 2]);
        let counters = stage.counters_at(tree.fleet.relays[1]);
        assert_eq!(counters.fleet_children_beyond, 2);
    });
}

#[test]
fn relays_that_come_at_once_form_a_tree() {
    story(&lasting(), |stage| {
        stage.edge.fleet_children_max = 3;
        let fleet = Fleet::new(stage, 13);
        let publisher = fleet.client(stage, 0);
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(42));
        stage.announce(publisher, "a");
        stage.step("announced", millis(200));
        let clients: Vec<_> = (1..13).map(|relay| fleet.client(stage, relay)).collect();
        let asked = clients.iter().map(|&it| stage.subscribe(it, "a--x"));
        let asked: Vec<_> = asked.collect();
        stage.wait_for_answers(&asked);
        let source = stage.source(publisher, 0, 42);
        stage.group(source, 1, 2, 300);
        stage.step("a group", millis(400));
        for &asked in &asked {
            stage.expect_objects(asked, &[1], 2, 300);
        }
        assert_eq!(fleet.subscriptions(stage, 0), 3);
        let depths = fleet.relays.iter();
        let depths = depths.map(|&relay| stage.gauges_at(relay).fleet_depth);
        assert_eq!(depths.max(), Some(2));
    });
}

#[test]
fn what_a_relay_served_is_served_by_others_when_it_dies() {
    story(&lasting(), |stage| {
        let mut tree = Tree::new(stage, 8, 2);
        tree.publish(stage);
        stage.sim.kill(tree.fleet.relays[1]);
        stage.step("a relay dies that serves two others", millis(0));
        let others: Vec<usize> = (1..7).collect();
        tree.until_served(stage, &others);
        let served = tree.served(stage);
        assert_eq!(served[0], 2, "{served:?}");
        let group = tree.publish(stage);
        stage.step("another group", millis(300));
        for &viewer in &others {
            let streams = &stage.outcome(tree.viewers[viewer]).streams;
            let copies = streams.iter().filter(|it| it.header.group == group);
            assert_eq!(copies.count(), 1);
            assert_eq!(stage.outcome(tree.viewers[viewer]).done, None);
        }
    });
}

#[test]
fn redirects_to_a_relay_that_just_died_are_asked_for_again() {
    story(&lasting(), |stage| {
        let mut tree = Tree::new(stage, 4, 1);
        assert_eq!(tree.depths(stage), [0, 1, 2, 3]);
        // A redirect to a relay whose end is known already is not followed.
        let redirected = |stage: &Stage, tree: &Tree| {
            let relays = tree.fleet.relays[2..].iter();
            let counters = relays.map(|&relay| stage.counters_at(relay));
            counters
                .map(|of| of.fleet_redirects_refused + of.fleet_redirects_followed)
                .sum::<u64>()
        };
        let before = redirected(stage, &tree);
        stage.sim.kill(tree.fleet.relays[1]);
        stage.step("the only relay that the first one serves dies", millis(100));
        let late = tree.fleet.client(stage, 3);
        stage.cancel(tree.viewers[2]);
        stage.wait(millis(100));
        tree.viewers[2] = stage.subscribe(late, "a--x");
        tree.until_served(stage, &[1, 2]);
        assert_eq!(tree.served(stage)[0], 1);
        assert!(redirected(stage, &tree) > before);
    });
}

#[test]
fn a_relay_that_cannot_reach_where_it_is_redirected_to_asks_another_publishers_relay() {
    story(&lasting(), |stage| {
        stage.edge.fleet_children_max = 1;
        let fleet = Fleet::new(stage, 4);
        let publishers = [0, 1].map(|relay| fleet.client(stage, relay));
        let both = publishers.map(|publisher| stage.publish(publisher, "a--x"));
        stage.step("published at two relays", millis(200));
        let near = fleet.client(stage, 2);
        let near = stage.subscribe(near, "a--x");
        stage.wait_for_answers(&[near]);
        let (now, [third, fourth]) = (stage.sim.elapsed(), [2, 3].map(|it| fleet.relays[it]));
        stage.sim.blackhole(fourth, third, now, now + secs(60));
        let far = fleet.client(stage, 3);
        let far = stage.subscribe(far, "a--x");
        stage.wait_for_answers(&[far]);
        for publication in both {
            stage.group(publication, 1, 3, 500);
        }
        stage.step("a group", millis(300));
        stage.expect_objects(far, &[1], 3, 500);
        assert_eq!(
            [0, 1].map(|relay| fleet.subscriptions(stage, relay)),
            [1, 1]
        );
        assert!(stage.counters_at(fourth).fleet_redirects_followed > 0);
    });
}

#[test]
fn a_relay_of_the_tree_drains_without_a_gap_below() {
    story(&lasting(), |stage| {
        let mut tree = Tree::new(stage, 6, 2);
        assert_eq!(tree.depths(stage), [0, 1, 1, 2, 2, 2]);
        stage.sim.shutdown(tree.fleet.relays[1]);
        stage.step("a relay drains that serves others", millis(0));
        for _ in 0..40 {
            tree.publish(stage);
        }
        stage.step("the last group arrives", millis(300));
        let all: Vec<u64> = (1..=tree.group).collect();
        for viewer in 1..5 {
            stage.expect_objects(tree.viewers[viewer], &all, 2, 300);
        }
    });
}

#[test]
fn the_publisher_moves_to_a_leaf_of_the_tree() {
    story(&lasting(), |stage| {
        let mut tree = Tree::new(stage, 8, 2);
        tree.publish(stage);
        stage.sim.kill(tree.publisher);
        stage.step("the publisher leaves", millis(500));
        let moved = tree.fleet.client(stage, 7);
        tree.publication = stage.publish(moved, "a--x");
        let all: Vec<usize> = (0..7).collect();
        tree.until_served(stage, &all);
        stage.step("the tree has settled", secs(3));
        let group = tree.publish(stage);
        stage.step("another group", millis(300));
        for &viewer in &tree.viewers {
            let streams = &stage.outcome(viewer).streams;
            let copies = streams.iter().filter(|it| it.header.group == group);
            assert_eq!(copies.count(), 1);
        }
        let served = tree.served(stage);
        assert!(served.iter().all(|&served| served <= 3), "{served:?}");
    });
}

#[test]
fn a_relay_does_not_serve_a_relay_of_its_own_hop_list() {
    story(&lasting(), |stage| {
        let tree = Tree::new(stage, 4, 1);
        let last = tree.fleet.relays[3];
        for (number, claims) in [0, 1, 2].into_iter().enumerate() {
            let node = stage.absent_client();
            let setup = Setup {
                fleet_relay: Some(claims),
                ..Setup::default()
            };
            let actor = Actor::new(&stage.sim, stage.sim.address(last), setup, stage.draft);
            stage.sim.start(node, actor);
            stage.wait(millis(200));
            let asked = stage.subscribe(node, "a--x");
            stage.step("it would close a circle", millis(200));
            let refusal = stage.refusal(asked);
            assert_eq!(refusal, Some(RequestErrorCode::DOES_NOT_EXIST));
            let refused = stage.counters_at(last).fleet_circles_refused;
            assert_eq!(refused, number as u64 + 1);
        }
    });
}

#[test]
fn fetches_pass_through_the_tree() {
    story(&lasting(), |stage| {
        let mut tree = Tree::new(stage, 4, 1);
        stage.direct(tree.publisher, |actor| {
            actor.archive.fill(0, 9, 3, 500);
            actor.archive.serving = Serving::Serve;
        });
        tree.group = 20;
        tree.publish(stage);
        let fetcher = tree.fleet.client(stage, 3);
        let fetch = stage.fetch(fetcher, "a--x", (1, 0), (2, 2));
        stage.step("past groups, three links away", secs(1));
        stage.expect_complete(fetch);
        let found = stage.fetched(fetch).places(500);
        assert_eq!(found, [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
    });
}

#[test]
fn the_last_viewer_leaves_and_the_branch_with_it() {
    story(&lasting(), |stage| {
        let tree = Tree::new(stage, 4, 1);
        stage.cancel(tree.viewers[0]);
        stage.step("a relay without viewers serves on", secs(1));
        assert_eq!(tree.served(stage), [1, 1, 2, 1]);
        stage.cancel(tree.viewers[1]);
        stage.cancel(tree.viewers[2]);
        wait_until(stage, "nobody wants the track", |stage| {
            tree.served(stage) == [0, 0, 0, 0]
        });
    });
}
