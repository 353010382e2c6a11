//! Links that lose packets.

use weir_link::{Delay, Jitter, Loss, Probability, Reordering};

use crate::stage::{Setting, millis, secs, story};

#[test]
fn every_object_of_a_stream_arrives_once_and_in_order() {
    let mut setting = Setting::default();
    setting.link.loss = Loss::Independent(Probability::new(0.1).unwrap());
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait_for_answers(&[publication]);
        let subscribers = stage.clients(3);
        let subscriptions: Vec<_> = subscribers
            .iter()
            .map(|&subscriber| stage.subscribe(subscriber, "a--x"))
            .collect();
        stage.wait_for_answers(&subscriptions);
        for group in 0..40 {
            stage.group(publication, group, 10, 500);
            stage.wait(millis(50));
        }
        stage.step("40 groups", secs(10));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &(0..40).collect::<Vec<_>>(), 10, 500);
            for arrival in &stage.outcome(subscription).streams {
                assert!(arrival.objects.is_sorted_by_key(|object| object.header.id));
            }
        }
        let lost = stage.sim.link_stats(stage.relay, subscribers[0]).lost;
        assert!(lost > 10, "{lost}");
    });
}

#[test]
fn reordered_and_repeated_packets_do_no_harm() {
    let mut setting = Setting::default();
    let some = Probability::new(0.05).unwrap();
    setting.link.delay = Delay::new(millis(20), Jitter::Uniform(millis(15))).unwrap();
    setting.link.keep_order = false;
    setting.link.duplication = some;
    setting.link.reordering = Reordering::new(some, millis(40)).unwrap();
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", secs(1));
        for group in 0..40 {
            stage.group(publication, group, 3, 100);
            stage.datagram(publication, group, 9, b"datagram");
            stage.wait(millis(7));
        }
        stage.step("40 groups", secs(3));
        stage.expect_objects(subscription, &(0..40).collect::<Vec<_>>(), 3, 100);
        let mut datagrams = stage.outcome(subscription).datagram_places();
        datagrams.sort_unstable();
        assert_eq!(
            datagrams,
            (0..40).map(|group| (group, 9)).collect::<Vec<_>>()
        );
    });
}
