//! Hostile peers.

use weir_moqt::error::RequestErrorCode;
use weir_relay::Gauges;

use crate::{
    actor::Manner,
    archive::{ALL, Serving},
    fetching::all_of,
    stage::{Setting, millis, secs, story},
    vandal::Vandal,
};

#[test]
fn vandals_harm_nobody_but_themselves() {
    let mut setting = Setting::default();
    setting.link.delay = weir_link::Delay::fixed(millis(2)).unwrap();
    setting.relay.publishers_per_track_max = 1000;
    setting.quic.idle_timeout = secs(10);
    setting.client.keep_alive = Some(secs(3));
    story(&setting, |stage| {
        let publisher = stage.client();
        // This is not one of the tracks that the vandals publish.
        let publication = stage.publish(publisher, "d--honest");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "d--honest");
        stage.step("honest people", millis(100));
        let seed = crate::stage::seed();
        let vandals: Vec<_> = (0..4).map(|_| stage.absent_client()).collect();
        let mut objects = 0;
        for round in 0..200 {
            let node = vandals[usize::try_from(round % 4).unwrap()];
            let relay = stage.sim.address(stage.relay);
            let vandal = Vandal::new(&stage.sim, relay, seed.wrapping_mul(1000) + round);
            stage.sim.start(node, vandal);
            for _ in 0..2 {
                stage.group(publication, objects, 2, 300);
                stage.datagram(publication, objects, 9, b"datagram");
                objects += 1;
                stage.wait(millis(25));
            }
        }
        stage.step("two hundred vandals", secs(1));
        stage.expect_objects(subscription, &(0..objects).collect::<Vec<_>>(), 2, 300);
        let datagrams = stage.outcome(subscription).datagram_places();
        assert!(
            datagrams
                .into_iter()
                .eq((0..objects).map(|group| (group, 9)))
        );
        let counters = stage.counters();
        println!("{counters:?}");
        assert!(counters.sessions_violated > 20, "{counters:?}");
        assert!(counters.sessions > 150, "{counters:?}");
        assert!(counters.streams_received > objects + 100, "{counters:?}");
        assert!(counters.streams_sent > objects + 100, "{counters:?}");
        for node in vandals {
            stage.sim.kill(node);
        }
        // The idle timeout ends their sessions after 10 s. Only then is it known that the rest of their objects will
        // not come.
        stage.step("they are forgotten", secs(75));
        let gauges = stage.gauges();
        let honest = Gauges {
            sessions: 2,
            tracks: 1,
            subscriptions: 1,
            ..Gauges::default()
        };
        assert_eq!(gauges, honest);
    });
}

/// The largest number of namespaces that one session may announce, with as many streams.
const ANNOUNCEMENTS: u64 = 1024;

#[test]
fn who_announces_a_thousand_times_is_one_publisher() {
    let mut setting = Setting::default();
    setting.quic.bidi_streams_max = 2000;
    story(&setting, |stage| {
        let hostile = stage.clients(5);
        let code = RequestErrorCode::DOES_NOT_EXIST;
        for &node in &hostile {
            stage.direct(node, |actor| {
                actor.manner = Manner::Decline(code);
                actor.archive.serving = Serving::Decline(code);
            });
            for _ in 0..ANNOUNCEMENTS {
                stage.announce(node, "a-b");
            }
        }
        stage.step("thousands of announcements", secs(1));
        assert_eq!(stage.gauges().namespaces, 5 * ANNOUNCEMENTS);
        let honest = stage.client();
        stage.direct(honest, |actor| {
            actor.manner = Manner::Accept(7);
            actor.archive.fill(1, 3, 3, 500);
            actor.archive.serving = Serving::Serve;
        });
        stage.announce(honest, "a-b");
        stage.step("one more", millis(100));
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a-b--x");
        let fetch = stage.fetch(subscriber, "a-b--y", (1, 0), (3, ALL));
        stage.step("subscribe and fetch", secs(1));
        assert!(stage.is_accepted(subscription));
        let source = stage.source(honest, 0, 7);
        stage.group(source, 4, 3, 500);
        stage.step("objects", millis(100));
        stage.expect_objects(subscription, &[4], 3, 500);
        stage.expect_complete(fetch);
        assert_eq!(stage.fetched(fetch).places(500), all_of(1..4));
        assert_eq!(stage.counters().announcers_cut, 0);
    });
}
