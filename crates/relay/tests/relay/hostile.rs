//! Peers that mean harm.

use weir_relay::Gauges;

use crate::{
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
        // Not one of the tracks that vandals publish too.
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
        // Silence ends their sessions after 10 s, and only then is the rest of what they began known not to come.
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
