//! Random actions of publishers and subscribers, compared with a simple model, on links without loss.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};
use weir_moqt::error::RequestErrorCode;
use weir_sim::NodeId;

use crate::stage::{Asked, Setting, Stage, duplicate, forward, millis, secs};

const PUBLISHERS: usize = 2;
const SUBSCRIBERS: usize = 3;

/// An action. Numbers identify publishers and subscribers.
#[derive(Clone, Copy, Debug)]
enum Op {
    Publish(usize),
    /// The publisher sends PUBLISH_DONE.
    End(usize),
    /// The publisher ends the request without PUBLISH_DONE.
    Withdraw(usize),
    /// The publisher's session ends, and another begins.
    Restart(usize),
    Subscribe(usize),
    Unsubscribe(usize),
    Pause(usize),
    Wake(usize),
    /// The subscriber's session ends, and another begins.
    Return(usize),
    /// A group on a stream.
    Group(usize),
    Datagram(usize),
    /// All publishers send the same objects.
    Chorus,
}

fn op() -> impl Strategy<Value = Op> {
    let publisher = || 0..PUBLISHERS;
    let subscriber = || 0..SUBSCRIBERS;
    prop_oneof![
        4 => publisher().prop_map(Op::Publish),
        2 => publisher().prop_map(Op::End),
        1 => publisher().prop_map(Op::Withdraw),
        1 => publisher().prop_map(Op::Restart),
        5 => subscriber().prop_map(Op::Subscribe),
        2 => subscriber().prop_map(Op::Unsubscribe),
        1 => subscriber().prop_map(Op::Pause),
        2 => subscriber().prop_map(Op::Wake),
        1 => subscriber().prop_map(Op::Return),
        6 => publisher().prop_map(Op::Group),
        6 => publisher().prop_map(Op::Datagram),
        3 => Just(Op::Chorus),
    ]
}

/// The expected results, and the stage.
struct Play {
    stage: Stage,
    publishers: Vec<(NodeId, Option<Asked>)>,
    subscribers: Vec<(NodeId, Option<Subscription>)>,
    /// What each subscription has to receive, in groups and datagrams.
    expected: BTreeMap<(NodeId, u64), Expected>,
    next_group: u64,
}

#[derive(Clone, Copy)]
struct Subscription {
    asked: Asked,
    is_paused: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    groups: Vec<u64>,
    datagrams: Vec<(u64, u64)>,
}

impl Play {
    fn new(threads: u16) -> Self {
        let mut setting = Setting {
            threads,
            ..Setting::default()
        };
        setting.link.delay = weir_link::Delay::fixed(millis(1)).expect("short");
        setting.relay.publisher_linger = secs(100_000);
        setting.relay.cache_age_max = secs(1);
        setting.quic.idle_timeout = secs(1000);
        setting.client.idle_timeout = secs(1000);
        let mut stage = Stage::new(crate::stage::seed(), setting);
        let publishers = stage.clients(PUBLISHERS);
        let subscribers = stage.clients(SUBSCRIBERS);
        Self {
            stage,
            publishers: publishers.into_iter().map(|node| (node, None)).collect(),
            subscribers: subscribers.into_iter().map(|node| (node, None)).collect(),
            expected: BTreeMap::new(),
            next_group: 0,
        }
    }

    fn is_published(&self) -> bool {
        self.publishers.iter().any(|(_, asked)| asked.is_some())
    }

    fn perform(&mut self, op: Op) {
        match op {
            Op::Publish(place) => self.publish(place),
            Op::End(place) => {
                if let Some(asked) = self.publishers[place].1.take() {
                    self.stage.publish_done(asked, 0);
                    if !self.is_published() {
                        self.end_subscriptions();
                    }
                }
            }
            Op::Withdraw(place) => {
                if let Some(asked) = self.publishers[place].1.take() {
                    self.stage.cancel(asked);
                }
            }
            Op::Restart(place) => {
                let (node, asked) = &mut self.publishers[place];
                *asked = None;
                restart(&mut self.stage, *node);
            }
            Op::Subscribe(place) => self.subscribe(place),
            Op::Unsubscribe(place) => {
                if let Some(subscription) = self.subscribers[place].1.take() {
                    self.stage.cancel(subscription.asked);
                    self.stage.wait(millis(10));
                    self.check(&subscription);
                }
            }
            Op::Pause(place) => self.forward(place, false),
            Op::Wake(place) => self.forward(place, true),
            Op::Return(place) => {
                if let Some(subscription) = self.subscribers[place].1.take() {
                    self.check(&subscription);
                }
                let node = self.subscribers[place].0;
                restart(&mut self.stage, node);
                self.expected.retain(|(other, _), _| *other != node);
            }
            Op::Group(place) => self.send(&[place], true),
            Op::Datagram(place) => self.send(&[place], false),
            Op::Chorus => {
                let all: Vec<usize> = (0..PUBLISHERS).collect();
                self.send(&all, true);
                self.send(&all, false);
            }
        }
        // PUBLISH_DONE of a track with datagrams takes a moment.
        self.stage.wait(millis(300));
        let gauges = self.stage.gauges();
        let subscribed = self.subscribers.iter().filter(|(_, other)| other.is_some());
        assert_eq!(gauges.subscriptions, subscribed.count() as u64);
        assert_eq!((gauges.subgroups, gauges.log_bytes), (0, 0));
        assert_eq!(gauges.waiting, 0);
    }

    fn publish(&mut self, place: usize) {
        let (node, current) = self.publishers[place];
        let asked = self.stage.publish(node, "a--x");
        self.stage.wait(millis(10));
        if current.is_some() {
            let code = duplicate(self.stage.draft);
            assert_eq!(self.stage.refusal(asked), Some(code));
        } else {
            assert!(self.stage.is_accepted(asked));
            self.publishers[place].1 = Some(asked);
        }
    }

    fn subscribe(&mut self, place: usize) {
        let (node, current) = self.subscribers[place];
        let asked = self.stage.subscribe(node, "a--x");
        self.stage.wait(millis(10));
        if current.is_some() {
            let code = duplicate(self.stage.draft);
            assert_eq!(self.stage.refusal(asked), Some(code));
        } else if self.is_published() {
            assert!(self.stage.is_accepted(asked));
            let is_paused = false;
            self.subscribers[place].1 = Some(Subscription { asked, is_paused });
        } else {
            let code = RequestErrorCode::DOES_NOT_EXIST;
            assert_eq!(self.stage.refusal(asked), Some(code));
        }
    }

    fn forward(&mut self, place: usize, wanted: bool) {
        if let Some(subscription) = &mut self.subscribers[place].1 {
            subscription.is_paused = !wanted;
            self.stage.update(subscription.asked, forward(wanted));
        }
    }

    /// Sends the next objects from some publishers, if they publish.
    fn send(&mut self, places: &[usize], on_stream: bool) {
        let group = self.next_group;
        self.next_group += 1;
        let mut is_sent = false;
        for &place in places {
            let Some(asked) = self.publishers[place].1 else {
                continue;
            };
            is_sent = true;
            if on_stream {
                self.stage.group(asked, group, 2, 50);
            } else {
                self.stage.datagram(asked, group, 0, b"datagram");
            }
            self.stage.wait(millis(3));
        }
        for (node, subscription) in &self.subscribers {
            if let Some(subscription) = subscription
                && is_sent
                && !subscription.is_paused
            {
                let key = (*node, subscription.asked.id.0);
                let expected = self.expected.entry(key).or_default();
                if on_stream {
                    expected.groups.push(group);
                } else {
                    expected.datagrams.push((group, 0));
                }
            }
        }
    }

    fn end_subscriptions(&mut self) {
        self.stage.wait(millis(300));
        for place in 0..SUBSCRIBERS {
            if let Some(subscription) = self.subscribers[place].1.take() {
                self.check(&subscription);
                let done = self.stage.outcome(subscription.asked).done.as_ref();
                let streams = self.stage.outcome(subscription.asked).streams.len();
                let count = done.and_then(|done| done.stream_count);
                assert_eq!(count, Some(streams as u64));
            }
        }
    }

    fn check(&self, subscription: &Subscription) {
        let asked = subscription.asked;
        let expected = self.expected.get(&(asked.node, asked.id.0)).cloned();
        let expected = expected.unwrap_or_default();
        self.stage.expect_objects(asked, &expected.groups, 2, 50);
        let datagrams = self.stage.outcome(asked).datagram_places();
        assert_eq!(datagrams, expected.datagrams);
    }
}

fn restart(stage: &mut Stage, node: NodeId) {
    stage.sim.shutdown(node);
    stage.wait(millis(10));
    stage.connect(node);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        ..ProptestConfig::default()
    })]

    #[test]
    fn everybody_gets_what_is_due(ops in vec(op(), 1..40)) {
        perform(1, ops);
    }

    #[test]
    fn everybody_gets_what_is_due_across_threads(threads in 2..4_u16, ops in vec(op(), 1..40)) {
        perform(threads, ops);
    }
}

fn perform(threads: u16, ops: Vec<Op>) {
    let mut play = Play::new(threads);
    for op in ops {
        play.perform(op);
    }
    for (_, subscription) in play.subscribers.clone() {
        if let Some(subscription) = subscription {
            play.check(&subscription);
        }
    }
    let nodes = play.publishers.iter().map(|(node, _)| *node);
    for node in nodes.chain(play.subscribers.iter().map(|(node, _)| *node)) {
        play.stage.sim.shutdown(node);
    }
    play.stage.wait(secs(4));
    assert_eq!(play.stage.gauges(), weir_relay::Gauges::default());
}
