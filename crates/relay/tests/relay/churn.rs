//! No state remains, however often requests and streams come and go.

use weir_relay::Gauges;

use crate::{
    actor::Manner,
    stage::{Setting, millis, rendezvous, secs, story},
};

#[test]
fn ten_thousand_subscriptions_leave_nothing_behind() {
    let mut setting = Setting::default();
    setting.link.delay = weir_link::Delay::fixed(millis(1)).unwrap();
    setting.relay.cache_age_max = secs(1);
    // A client that does nothing else resets far more streams than others may.
    setting.relay.resets_per_second_max = 5000;
    story(&setting, |stage| {
        let publisher = stage.client();
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(42));
        stage.announce(publisher, "asked");
        let publication = stage.publish(publisher, "offered--x");
        let subscribers = [stage.client(), stage.client()];
        stage.step("a publisher", millis(10));
        let before = stage.gauges();
        for round in 0..1250_u64 {
            let subscriptions = subscribers.map(|subscriber| {
                [
                    stage.subscribe(subscriber, "offered--x"),
                    stage.subscribe(subscriber, "asked--x"),
                    stage.subscribe(subscriber, "missing--x"),
                    stage.subscribe_with(subscriber, "missing--y", rendezvous(secs(9))),
                ]
            });
            // Some are cancelled before they are answered, some after, some with a stream open.
            stage.wait(millis(round % 4));
            let mut stream = stage.open(publication, round);
            stage.object(publication, &mut stream, 0, b"object");
            stage.wait(millis(round % 3));
            for subscription in subscriptions.into_iter().flatten() {
                stage.cancel(subscription);
            }
            stage.finish(publication, &stream);
            stage.wait(millis(4));
        }
        stage.step("ten thousand subscriptions later", secs(4));
        assert_eq!(stage.gauges(), before);
        stage.sim.shutdown(publisher);
        for subscriber in subscribers {
            stage.sim.shutdown(subscriber);
        }
        stage.step("everybody leaves", secs(4));
        assert_eq!(stage.gauges(), Gauges::default());
        assert_eq!(stage.wake_up(), None, "no timer is left");
    });
}

#[test]
fn two_hundred_publishers_leave_nothing_behind() {
    let mut setting = Setting::default();
    setting.link.delay = weir_link::Delay::fixed(millis(1)).unwrap();
    setting.relay.cache_age_max = secs(1);
    story(&setting, |stage| {
        let publisher = stage.client();
        let subscriber = stage.client();
        stage.wait(millis(10));
        let subscription = stage.subscribe_with(subscriber, "a--x", rendezvous(secs(9)));
        let mut groups = Vec::new();
        for round in 0..200 {
            let publication = stage.publish(publisher, "a--x");
            stage.wait(millis(3));
            stage.group(publication, round, 2, 10);
            groups.push(round);
            stage.wait(millis(3));
            match round % 3 {
                0 => stage.cancel(publication),
                1 => {
                    let mut cut = stage.open(publication, 1000 + round);
                    stage.object(publication, &mut cut, 0, b"cut");
                    stage.cancel(publication);
                }
                _ => {
                    stage.sim.shutdown(publisher);
                    stage.wait(millis(1));
                    stage.connect(publisher);
                }
            }
            stage.wait(millis(3));
        }
        stage.step("two hundred publishers later", millis(100));
        let received = stage.outcome(subscription).objects();
        let received: Vec<_> = received
            .iter()
            .filter(|(group, ..)| *group < 1000)
            .collect();
        assert_eq!(received.len(), 400);
        stage.step("and no other", secs(6));
        assert!(stage.outcome(subscription).done.is_some());
        let gauges = stage.gauges();
        assert_eq!(
            (gauges.tracks, gauges.subgroups, gauges.log_bytes),
            (0, 0, 0)
        );
        stage.sim.shutdown(publisher);
        stage.sim.shutdown(subscriber);
        stage.step("everybody leaves", secs(4));
        assert_eq!(stage.gauges(), Gauges::default());
        assert_eq!(stage.wake_up(), None, "no timer is left");
    });
}
