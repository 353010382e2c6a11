//! Fleets under failures: a large one whose relays die, and one whose relays are restarted one after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use weir_link::{Bitrate, Rate};
use weir_moqt::error::PublishDoneCode;
use weir_quic::Limits as QuicLimits;
use weir_relay::Relay;
use weir_sim::NodeId;

use crate::{
    fleet::{Fleet, lasting},
    stage::{Asked, Setting, Stage, millis, name, secs, story},
};

/// A viewer: its relay, the number of its track, and its subscription.
struct Viewer {
    relay: usize,
    track: usize,
    asked: Asked,
}

/// A fleet in which each of a few tracks is published at a relay of its own, and is wanted at all.
struct Large {
    fleet: Fleet,
    publications: Vec<Asked>,
    viewers: Vec<Viewer>,
    dead: BTreeSet<usize>,
    /// The last group of each track.
    group: u64,
}

impl Large {
    fn new(stage: &mut Stage, relays: usize, viewers_each: usize) -> Self {
        let fleet = Fleet::new(stage, relays);
        let publications: Vec<_> = (0..TRACKS)
            .map(|number| {
                let publisher = fleet.client(stage, number);
                stage.publish(publisher, &track(number))
            })
            .collect();
        stage.step("published", millis(500));
        let mut large = Self {
            fleet,
            publications,
            viewers: Vec::new(),
            dead: BTreeSet::new(),
            group: 0,
        };
        let homes = (0..relays).flat_map(|relay| {
            let tracks = (0..viewers_each).map(move |viewer| (relay + viewer) % TRACKS);
            tracks.map(move |track| (relay, track))
        });
        large.view(stage, &homes.collect::<Vec<_>>());
        let asked: Vec<_> = large.viewers.iter().map(|viewer| viewer.asked).collect();
        stage.wait_for_answers(&asked);
        large
    }

    /// Has viewers come to these relays for these tracks, all at once.
    fn view(&mut self, stage: &mut Stage, homes: &[(usize, usize)]) {
        let relays = homes.iter().map(|&(relay, _)| self.fleet.relays[relay]);
        let nodes: Vec<_> = relays.map(|relay| stage.begin_at(relay)).collect();
        stage.wait(CONNECT);
        for (node, &(relay, track)) in nodes.into_iter().zip(homes) {
            let asked = stage.subscribe(node, &self::track(track));
            self.viewers.push(Viewer {
                relay,
                track,
                asked,
            });
        }
    }

    /// Publishes a group of each track whose publisher is connected.
    fn publish(&mut self, stage: &mut Stage) {
        self.group += 1;
        for publication in &self.publications {
            if stage.actor(publication.node).lost.is_none() {
                stage.group(*publication, self.group, 1, 100);
            }
        }
        stage.wait(PERIOD);
    }

    /// Publishes until all viewers have received a group of now. Returns how long that took since `began`.
    fn until_all_are_served(&mut self, stage: &mut Stage, began: Instant) -> Duration {
        let from = self.group + 1;
        loop {
            self.publish(stage);
            let is_served = |viewer: &&Viewer| {
                let mut streams = stage.outcome(viewer.asked).streams.iter();
                streams.any(|stream| stream.header.group >= from)
            };
            let (all, took) = (&self.viewers, stage.sim.now() - began);
            let served = all.iter().filter(is_served).count();
            if served == all.len() {
                return took;
            }
            assert!(took < SERVED_MAX, "{served} of {} are served", all.len());
        }
    }

    /// Kills relays. Two seconds later their viewers, and the publisher of a track, come to other relays. Returns how long it
    /// takes until all are served.
    fn kill(&mut self, stage: &mut Stage, relays: &[usize]) -> Duration {
        let began = stage.sim.now();
        for &relay in relays {
            stage.sim.kill(self.fleet.relays[relay]);
            self.dead.insert(relay);
        }
        for _ in 0..4 {
            self.publish(stage);
        }
        let is_lost = |viewer: &Viewer| relays.contains(&viewer.relay);
        let lost: Vec<Viewer> = self
            .viewers
            .extract_if(.., |viewer| is_lost(viewer))
            .collect();
        let next = |relay: usize| {
            let all = self.fleet.relays.len();
            let mut others = (1..all).map(|step| (relay + step) % all);
            others
                .find(|other| !self.dead.contains(other))
                .expect("one is left")
        };
        let homes: Vec<_> = lost
            .iter()
            .map(|viewer| (next(viewer.relay), viewer.track))
            .collect();
        for &relay in relays.iter().filter(|relay| **relay < TRACKS) {
            let publisher = self.fleet.client(stage, next(relay));
            self.publications[relay] = stage.publish(publisher, &track(relay));
        }
        self.view(stage, &homes);
        self.until_all_are_served(stage, began)
    }

    /// Asserts that each relay takes each track that its viewers want from another relay once.
    fn assert_one_copy(&mut self, stage: &mut Stage) {
        let counts = |stage: &Stage, fleet: &Fleet| -> Vec<u64> {
            let relays = fleet.relays.iter();
            relays
                .map(|&relay| stage.counters_at(relay).streams_received)
                .collect()
        };
        let before = counts(stage, &self.fleet);
        for _ in 0..GROUPS {
            self.publish(stage);
        }
        stage.wait(secs(1));
        let after = counts(stage, &self.fleet);
        for relay in (0..self.fleet.relays.len()).filter(|relay| !self.dead.contains(relay)) {
            let wanted: BTreeSet<usize> = self
                .viewers
                .iter()
                .filter(|viewer| viewer.relay == relay)
                .map(|viewer| viewer.track)
                .collect();
            // The publisher of this relay's own track sends it in any case.
            let own = usize::from(relay < TRACKS && !wanted.contains(&relay));
            let copies = (wanted.len() + own) as u64;
            assert_eq!(
                after[relay] - before[relay],
                copies * GROUPS,
                "relay {relay}"
            );
        }
    }

    /// Asserts that no relay serves more others with a track than it may, and that trees are not deep.
    fn assert_tree(&self, stage: &Stage, children_max: usize) -> Shape {
        let mut shape = Shape {
            children: 0,
            by_depth: BTreeMap::new(),
        };
        for relay in (0..self.fleet.relays.len()).filter(|relay| !self.dead.contains(relay)) {
            for state in stage.sim.app::<Relay>(self.fleet.relays[relay]).tracks() {
                let is_here = |viewer: &&Viewer| {
                    viewer.relay == relay && name(&track(viewer.track)) == *state.name
                };
                let viewers = self.viewers.iter().filter(is_here).count();
                shape.children = shape.children.max(state.subscribers - viewers);
                if state.depth > 0 {
                    *shape.by_depth.entry(state.depth).or_default() += 1;
                }
            }
        }
        assert!(shape.children <= children_max, "{}", shape.children);
        let depth = shape.by_depth.last_key_value().map(|(&depth, _)| depth);
        assert!(depth <= Some(4), "{depth:?}");
        shape
    }
}

fn track(number: usize) -> String {
    format!("t{number}--x")
}

/// Tells the story of a large fleet, in which each relay serves at most `children_max` others with a track. Prints what it costs
/// and how long failures last, as rows of a table.
fn tell(stage: &mut Stage, relays: usize, viewers_each: usize, children_max: usize) {
    stage.edge.fleet_children_max = children_max;
    let mut large = Large::new(stage, relays, viewers_each);
    large.assert_one_copy(stage);
    let tree = large.assert_tree(stage, children_max);
    let writes = large.fleet.registry.writes();
    stage.step("nothing changes", secs(9));
    let writes = large.fleet.registry.writes() - writes;
    assert!(writes <= 4 * relays as u64, "{writes} in nine seconds");

    let tenth: Vec<usize> = (TRACKS..TRACKS + relays / 10).chain([0]).collect();
    let deaths = large.kill(stage, &tenth);
    stage.step("a tenth of the relays has died", secs(1));

    large.fleet.registry.lose_quorum();
    stage.step("the quorum is lost", secs(8));
    let others: Vec<usize> = (0..relays).filter(|relay| !tenth.contains(relay)).collect();
    let twentieth: Vec<usize> = others.into_iter().rev().take(relays / 20).collect();
    let without = large.kill(stage, &twentieth);
    let now = stage.sim.now();
    large.fleet.registry.restore_quorum(now);
    stage.step("the quorum is back", secs(15));
    let last = large.fleet.relays.len() / 2;
    assert_eq!(large.fleet.state(stage, last).stale_for, None);
    large.assert_one_copy(stage);
    let after = large.assert_tree(stage, children_max);
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let rows = [
        (
            "relays, viewers",
            format!("{relays}, {}", relays * viewers_each),
        ),
        ("copies of a track that each relay takes", "1".to_owned()),
        (
            "most relays served with one track",
            tree.children.to_string(),
        ),
        ("tracks at relays, by links passed", tree.depths()),
        ("the same after all failures", after.depths()),
        (
            "messages to the registry in a second, nothing changing",
            format!(
                "{:.1}",
                f64::from(u32::try_from(writes).expect("few")) / 9.0
            ),
        ),
        ("relays killed at once", tenth.len().to_string()),
        ("all viewers served again after", seconds(deaths)),
        (
            "relays killed without a quorum of the registry",
            twentieth.len().to_string(),
        ),
        ("all viewers served again after", seconds(without)),
    ];
    for (what, found) in rows {
        println!("| {what} | {found} |");
    }
}

/// The shape of the trees of all tracks.
struct Shape {
    /// Most relays that one serves with one track.
    children: usize,
    /// How many tracks pass so many links to a relay.
    by_depth: BTreeMap<usize, usize>,
}

impl Shape {
    fn depths(&self) -> String {
        let depths = self.by_depth.iter();
        let depths: Vec<_> = depths
            .map(|(depth, count)| format!("{depth}: {count}"))
            .collect();
        depths.join(", ")
    }
}

#[test]
fn fifty_relays_serve_all_again_after_failures() {
    story(&lasting(), |stage| tell(stage, 50, 3, 4));
}

#[test]
#[ignore = "takes minutes and 7 GB of memory: make fleet-sim"]
fn a_thousand_relays_serve_twenty_thousand_viewers() {
    let mut stage = Stage::new(crate::stage::seed(), lasting());
    tell(&mut stage, 1000, 20, 32);
}

/// Publishers and viewers notice a dead relay after 1.2 s at the earliest. The relay of a viewer has to notice by then, too, or
/// the first group after the publisher's return is lost.
#[test]
fn a_publisher_whose_relay_dies_is_followed_to_the_next_one_at_once() {
    story(&lasting(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let first = fleet.client(stage, 0);
        let publication = stage.publish(first, "a--x");
        stage.step("published", millis(200));
        let viewer = fleet.client(stage, 2);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.wait_for_answers(&[subscription]);
        for group in 1..=3 {
            stage.group(publication, group, 3, 500);
            stage.wait(millis(200));
        }
        let killed_at = stage.sim.now();
        stage.sim.kill(fleet.relays[0]);
        stage.step("the publisher's relay dies", millis(1200));
        let second = fleet.client(stage, 1);
        let moved = stage.publish(second, "a--x");
        stage.step("the publisher is back", millis(550));
        let away = stage.sim.now() - killed_at;
        assert!(away < secs(2), "{away:?}");
        for group in 4..=5 {
            stage.group(moved, group, 3, 500);
            stage.wait(millis(200));
        }
        stage.expect_objects(subscription, &[1, 2, 3, 4, 5], 3, 500);
        assert_eq!(fleet.subscriptions(stage, 1), 1);
    });
}

/// QUIC notices after three seconds that a relay does not answer the first packet.
#[test]
fn a_link_that_is_not_established_in_time_is_not_waited_for() {
    story(&lasting(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let publisher = fleet.client(stage, 0);
        stage.publish(publisher, "a--x");
        stage.step("published", millis(200));
        stage.sim.kill(fleet.relays[0]);
        stage.step("the publisher's relay dies", millis(100));
        let viewer = fleet.client(stage, 2);
        let asked = stage.subscribe(viewer, "a--x");
        stage.step("a viewer comes, whose relay has no link yet", millis(600));
        let second = fleet.client(stage, 1);
        let moved = stage.publish(second, "a--x");
        stage.step("the publisher is at another relay", millis(300));
        assert!(stage.is_accepted(asked), "within 1.2 s");
        stage.group(moved, 1, 3, 500);
        stage.step("a group", millis(200));
        stage.expect_objects(asked, &[1], 3, 500);
    });
}

#[test]
fn a_link_that_is_too_slow_is_seen_at_the_relay_that_serves_it() {
    story(&lasting(), |stage| {
        // What a connection has accepted is no longer the relay's.
        let limits = QuicLimits {
            send_bytes_max: 30_000,
            ..QuicLimits::default()
        };
        let fleet = Fleet::with_limits(stage, 3, 1, &limits);
        let publisher = fleet.client(stage, 0);
        let publication = stage.publish(publisher, "a--x");
        stage.step("published", millis(200));
        let viewers = [1, 2].map(|relay| fleet.client(stage, relay));
        let asked = viewers.map(|viewer| stage.subscribe(viewer, "a--x"));
        stage.wait_for_answers(&asked);
        let seen = |stage: &Stage, relay: usize| {
            let gauges = stage.gauges_at(fleet.relays[relay]);
            (gauges.fleet_served, gauges.fleet_lag_bytes)
        };
        assert_eq!(
            [0, 1, 2].map(|relay| seen(stage, relay)),
            [(2, 0), (0, 0), (0, 0)]
        );
        let slow = weir_link::Config {
            rate: Rate::Fixed(Bitrate::from_kilobits_per_second(1000)),
            ..Setting::default().link
        };
        stage.sim.set_link(fleet.relays[0], fleet.relays[2], slow);
        for group in 1..=10 {
            stage.group(publication, group, 10, 5000);
        }
        stage.step("half a megabyte over a slow link", secs(1));
        stage.expect_objects(asked[0], &(1..=10).collect::<Vec<_>>(), 10, 5000);
        let (served, lag_bytes) = seen(stage, 0);
        assert_eq!(served, 2);
        assert!((100_000..600_000).contains(&lag_bytes), "{lag_bytes}");
        stage.step("it arrives", secs(10));
        assert_eq!(seen(stage, 0), (2, 0));
        stage.expect_objects(asked[1], &(1..=10).collect::<Vec<_>>(), 10, 5000);
    });
}

/// A client that follows GOAWAY: it has a session with the next relay before it leaves the first.
struct Follower {
    relay: usize,
    sessions: Vec<Asked>,
}

impl Follower {
    fn present(&self) -> Asked {
        *self.sessions.last().expect("it has one")
    }

    /// Whether its relay has sent GOAWAY.
    fn is_sent_away(&self, stage: &Stage) -> bool {
        stage.actor(self.present().node).goaway.is_some()
    }

    /// Begins a session with the next relay.
    fn go_on(
        &mut self,
        stage: &mut Stage,
        fleet: &Fleet,
        ask: impl Fn(&mut Stage, NodeId) -> Asked,
    ) {
        self.relay = (self.relay + 1) % fleet.relays.len();
        let node = fleet.client(stage, self.relay);
        self.sessions.push(ask(stage, node));
    }

    fn received(&self, stage: &Stage) -> BTreeSet<(u64, u64)> {
        let sessions = self.sessions.iter();
        let objects = sessions.flat_map(|&asked| stage.outcome(asked).objects());
        objects.map(|(group, object, _)| (group, object)).collect()
    }
}

#[test]
fn three_relays_restarted_one_after_the_other_lose_nothing() {
    story(&lasting(), |stage| {
        let fleet = Fleet::new(stage, 3);
        let node = fleet.client(stage, 0);
        let mut publisher = Follower {
            relay: 0,
            sessions: vec![stage.publish(node, "a--x")],
        };
        stage.step("published", millis(200));
        let mut viewers: Vec<Follower> = (0..9)
            .map(|number| {
                let relay = number % 3;
                let node = fleet.client(stage, relay);
                let sessions = vec![stage.subscribe(node, "a--x")];
                Follower { relay, sessions }
            })
            .collect();
        let asked: Vec<_> = viewers.iter().map(Follower::present).collect();
        stage.wait_for_answers(&asked);
        let (mut group, mut left) = (0, Vec::new());
        for restarted in 0..3 {
            stage.step("a relay is to stop", millis(0));
            stage.sim.shutdown(fleet.relays[restarted]);
            // Each client gets a session elsewhere at once, and leaves two seconds later.
            let mut leaving: Vec<(u64, Asked)> = Vec::new();
            for _ in 0..80 {
                group += 1;
                // Both sessions of a publisher that moves get the group.
                let sources = publisher.sessions.clone();
                for source in sources.into_iter().filter(|it| !left.contains(it)) {
                    stage.group(source, group, 3, 300);
                }
                stage.wait(millis(100));
                if publisher.is_sent_away(stage) {
                    leaving.push((group + 20, publisher.present()));
                    publisher.go_on(stage, &fleet, |stage, node| stage.publish(node, "a--x"));
                }
                for viewer in &mut viewers {
                    if viewer.is_sent_away(stage) {
                        leaving.push((group + 20, viewer.present()));
                        viewer.go_on(stage, &fleet, |stage, node| stage.subscribe(node, "a--x"));
                    }
                }
                for (_, gone) in leaving.extract_if(.., |(at, _)| *at <= group) {
                    stage.sim.shutdown(gone.node);
                    left.push(gone);
                }
            }
            assert!(
                !stage.sim.is_busy(fleet.relays[restarted]),
                "it has stopped"
            );
            fleet.start(stage, fleet.relays[restarted], restarted as u64, true);
            stage.step("it is back", secs(2));
        }
        let all: BTreeSet<(u64, u64)> = (1..=group)
            .flat_map(|group| (0..3).map(move |object| (group, object)))
            .collect();
        for (number, viewer) in viewers.iter().enumerate() {
            let received = viewer.received(stage);
            let lost: Vec<_> = all.difference(&received).collect();
            assert!(lost.is_empty(), "viewer {number} lost {lost:?}");
            for &session in &viewer.sessions {
                let done = stage.outcome(session).done.as_ref().map(|done| done.code);
                assert_ne!(done, Some(PublishDoneCode::TRACK_ENDED));
            }
        }
        assert_eq!(publisher.sessions.len(), 4);
    });
}

/// Tracks of a large fleet. Track N is published at relay N.
const TRACKS: usize = 5;
/// Time between two groups.
const PERIOD: Duration = Duration::from_millis(500);
/// Time in which viewers connect.
const CONNECT: Duration = Duration::from_millis(500);
/// By when all are served again.
const SERVED_MAX: Duration = Duration::from_secs(20);
/// Groups that are counted.
const GROUPS: u64 = 6;
