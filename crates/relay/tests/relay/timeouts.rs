//! Delivery timeouts.

use std::time::Duration;

use weir_link::{Bitrate, Queue, Rate};
use weir_moqt::{
    error::ResetCode, parameter::Parameters, property, property::Properties, session::StreamEnd,
};

use crate::stage::{Setting, Stage, millis, payload, secs, story};

pub(crate) fn setting() -> Setting {
    let mut setting = Setting::default();
    // Data that the connection has accepted cannot expire.
    setting.quic.send_bytes_max = 10_000;
    setting
}

/// 100 kbit/s from the relay to every client.
pub(crate) fn slow(stage: &mut Stage, node: weir_sim::NodeId) {
    let link = weir_link::Config {
        rate: Rate::Fixed(Bitrate::from_kilobits_per_second(100)),
        queue: Queue {
            bytes_max: 60_000,
            packets_max: 100,
        },
        ..Setting::default().link
    };
    let relay = stage.relay;
    stage.sim.set_link(relay, node, link);
}

/// Which side sets the delivery timeout of objects.
#[derive(Clone, Copy, Debug)]
enum Says {
    Nobody,
    Subscriber(Duration),
    Track(Duration),
    Both(Duration, Duration),
}

impl Says {
    fn parameters(self) -> Parameters {
        let timeout = match self {
            Self::Subscriber(timeout) | Self::Both(timeout, _) => Some(timeout),
            Self::Nobody | Self::Track(_) => None,
        };
        Parameters {
            object_delivery_timeout: timeout,
            ..Parameters::default()
        }
    }

    fn properties(self) -> Properties {
        match self {
            Self::Track(timeout) | Self::Both(_, timeout) => {
                let timeout = u64::try_from(timeout.as_millis()).expect("short");
                let builder = Properties::builder();
                builder
                    .int(property::OBJECT_DELIVERY_TIMEOUT, timeout)
                    .build()
            }
            Self::Nobody | Self::Subscriber(_) => Properties::EMPTY,
        }
    }

    fn is_short(self) -> bool {
        match self {
            Self::Nobody => false,
            Self::Subscriber(timeout) | Self::Track(timeout) => timeout < secs(5),
            Self::Both(one, other) => one.min(other) < secs(5),
        }
    }
}

const CASES: [Says; 6] = [
    Says::Nobody,
    Says::Subscriber(millis(500)),
    Says::Track(millis(500)),
    Says::Both(millis(500), secs(60)),
    Says::Both(secs(60), millis(500)),
    Says::Subscriber(secs(60)),
];

#[test]
fn streams_are_reset_when_their_objects_are_too_old() {
    for says in CASES {
        story(&setting(), |stage| {
            let publisher = stage.client();
            let (none, properties) = (Parameters::default(), says.properties());
            let publication = stage.publish_with(publisher, "a--x", none, properties);
            let subscriber = stage.client();
            let subscription = stage.subscribe_with(subscriber, "a--x", says.parameters());
            stage.step(&format!("{says:?}"), millis(100));
            slow(stage, subscriber);
            stage.group(publication, 1, 40, 1000);
            stage.step("four seconds' worth", secs(6));
            let arrival = &stage.outcome(subscription).streams[0];
            if says.is_short() {
                let end = StreamEnd::Reset(ResetCode::DELIVERY_TIMEOUT);
                assert_eq!(arrival.end, Some(end));
                assert!(arrival.objects.len() < 30, "{}", arrival.objects.len());
                assert_eq!(stage.counters().streams_reset_timeout, 1);
            } else {
                stage.expect_objects(subscription, &[1], 40, 1000);
                assert_eq!(stage.counters().streams_reset_timeout, 0);
            }
            assert_eq!(stage.gauges().subgroups, 0);
            stage.group(publication, 2, 3, 100);
            stage.step("the next group", secs(1));
            let arrival = &stage.outcome(subscription).streams[1];
            assert_eq!(arrival.end, Some(StreamEnd::Fin), "it starts afresh");
        });
    }
}

#[test]
fn datagrams_that_are_too_old_are_not_sent() {
    for says in CASES {
        story(&setting(), |stage| {
            let publisher = stage.client();
            let (none, properties) = (Parameters::default(), says.properties());
            let publication = stage.publish_with(publisher, "a--x", none, properties);
            let subscriber = stage.client();
            let subscription = stage.subscribe_with(subscriber, "a--x", says.parameters());
            stage.step(&format!("{says:?}"), millis(100));
            slow(stage, subscriber);
            for group in 0..60 {
                stage.datagram(publication, group, 0, &payload(group, 0, 1000));
            }
            stage.step("six seconds' worth", secs(10));
            let count = stage.outcome(subscription).datagrams.len();
            if says.is_short() {
                // The objects that the connection accepted at once, and those of half a second.
                assert!((10..45).contains(&count), "{count}");
            } else {
                assert!(count >= 55, "{count}");
            }
        });
    }
}

#[test]
fn the_time_of_an_object_counts_from_its_first_byte() {
    story(&setting(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let says = Says::Subscriber(millis(500));
        let subscription = stage.subscribe_with(subscriber, "a--x", says.parameters());
        stage.wait(millis(100));
        let mut stream = stage.open(publication, 1);
        let header = crate::stage::object(0, 10_000);
        stage.object_with(publication, &mut stream, &header, &[1; 1000]);
        for _ in 0..9 {
            stage.wait(millis(100));
            stage.write(publication, stream.stream, vec![1; 1000].into(), false);
        }
        stage.step("an object that takes long to come", secs(1));
        let end = StreamEnd::Reset(ResetCode::DELIVERY_TIMEOUT);
        assert_eq!(stage.outcome(subscription).streams[0].end, Some(end));
    });
}

#[test]
fn streams_that_could_not_be_opened_in_time_are_not_opened() {
    let mut setting = setting();
    // The control stream, and one more.
    setting.client.uni_streams_max = 2;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let says = Says::Subscriber(millis(500));
        let subscription = stage.subscribe_with(subscriber, "a--x", says.parameters());
        stage.wait(millis(100));
        let mut stream = stage.open(publication, 1);
        stage.object(publication, &mut stream, 0, b"x");
        for group in 2..5 {
            stage.group(publication, group, 1, 100);
        }
        stage.step("one stream is open, three wait", secs(1));
        stage.finish(publication, &stream);
        stage.step("it ends", secs(1));
        stage.group(publication, 5, 1, 100);
        stage.step("one more", secs(1));
        let streams = &stage.outcome(subscription).streams;
        let groups: Vec<_> = streams.iter().map(|arrival| arrival.header.group).collect();
        assert_eq!(groups, [1, 5]);
        assert_eq!(stage.counters().streams_sent, 2);
        assert_eq!(stage.counters().streams_reset_timeout, 3);
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

/// Returns the parameters with a subgroup delivery timeout.
fn of_subgroups(timeout: Duration) -> Parameters {
    Parameters {
        subgroup_delivery_timeout: Some(timeout),
        ..Parameters::default()
    }
}

#[test]
fn time_does_not_stop_with_the_last_write() {
    let cases = [
        (Says::Nobody.parameters(), false),
        (of_subgroups(secs(60)), false),
        (of_subgroups(millis(500)), true),
        (Says::Subscriber(millis(500)).parameters(), true),
    ];
    for (says, is_late) in cases {
        // The connection accepts all data at once.
        story(&Setting::default(), |stage| {
            let publisher = stage.client();
            let publication = stage.publish(publisher, "a--x");
            let subscriber = stage.client();
            let subscription = stage.subscribe_with(subscriber, "a--x", says.clone());
            stage.step(&format!("{says:?}"), millis(100));
            stage.group(publication, 0, 3, 100);
            stage.step("little", secs(2));
            slow(stage, subscriber);
            stage.group(publication, 1, 40, 1000);
            stage.step("four seconds' worth", millis(400));
            assert_eq!(stage.gauges().log_bytes, 0, "it is written");
            stage.step("on its way", secs(7));
            let ends = stage.outcome(subscription).streams.iter();
            let ends: Vec<_> = ends.map(|arrival| arrival.end).collect();
            let late = StreamEnd::Reset(ResetCode::DELIVERY_TIMEOUT);
            let end = if is_late { late } else { StreamEnd::Fin };
            assert_eq!(ends, [Some(StreamEnd::Fin), Some(end)]);
            let count = u64::from(is_late);
            assert_eq!(stage.counters().streams_reset_timeout, count);
            stage.publish_done(publication, 2);
            stage.step("the end", secs(1));
            assert!(stage.outcome(subscription).done.is_some());
        });
    }
}

#[test]
fn a_subgroup_that_ended_is_given_up_though_the_connection_takes_nothing() {
    for of_track in [false, true] {
        story(&setting(), |stage| {
            let publisher = stage.client();
            let timeout = (property::SUBGROUP_DELIVERY_TIMEOUT, 500);
            let (properties, says) = if of_track {
                let builder = Properties::builder().int(timeout.0, timeout.1);
                (builder.build(), Parameters::default())
            } else {
                (Properties::EMPTY, of_subgroups(millis(500)))
            };
            let none = Parameters::default();
            let publication = stage.publish_with(publisher, "a--x", none, properties);
            let subscriber = stage.client();
            let subscription = stage.subscribe_with(subscriber, "a--x", says);
            stage.wait(millis(100));
            let (now, relay) = (stage.sim.elapsed(), stage.relay);
            stage.sim.blackhole(relay, subscriber, now, now + secs(3));
            let mut stream = stage.open(publication, 1);
            for id in 0..40 {
                stage.object(publication, &mut stream, id, &payload(1, id, 1000));
            }
            stage.step("a group that does not get through", secs(2));
            assert_eq!(stage.counters().streams_reset_timeout, 0, "it goes on");
            stage.finish(publication, &stream);
            stage.step("it ends", millis(400));
            assert_eq!(stage.gauges().subgroups, 1);
            stage.step("its time is over", millis(200));
            assert_eq!(stage.gauges().subgroups, 0, "nothing is held for it");
            assert_eq!(stage.counters().streams_reset_timeout, 1);
            stage.step("the way is free again", secs(3));
            assert!(stage.outcome(subscription).objects().is_empty());
            stage.group(publication, 2, 3, 100);
            stage.step("one more group", millis(200));
            stage.expect_objects(subscription, &[2], 3, 100);
        });
    }
}

#[test]
fn streams_whose_time_is_watched_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.streams_timed_per_session_max = 3;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe_with(subscriber, "a--x", of_subgroups(secs(60)));
        stage.wait(millis(100));
        for group in 1..20 {
            stage.group(publication, group, 1, 100);
            stage.wait(millis(100));
        }
        assert_eq!(stage.counters().streams_reset_timeout, 0, "these arrive");
        let (now, relay) = (stage.sim.elapsed(), stage.relay);
        stage.sim.blackhole(relay, subscriber, now, now + secs(2));
        for group in 20..23 {
            stage.group(publication, group, 1, 100);
        }
        stage.step("as many as there may be", millis(100));
        assert_eq!(stage.counters().streams_reset_timeout, 0);
        stage.group(publication, 23, 1, 100);
        stage.step("one more", millis(100));
        assert_eq!(stage.counters().streams_reset_timeout, 1);
        stage.step("the way is free again", secs(5));
        let streams = stage.outcome(subscription).streams.iter();
        let whole = streams.filter(|arrival| arrival.end == Some(StreamEnd::Fin));
        let whole: Vec<_> = whole.map(|arrival| arrival.header.group).collect();
        assert_eq!(whole.len(), 22);
        assert!(!whole.contains(&20), "the first had to go");
    });
}
