//! Requests that cost much are served in pieces: no turn of the relay does more than a fixed amount of work for them.

use std::time::Duration;

use weir_moqt::{name::Namespace, parameter::Parameters};

use crate::{
    actor::{Heard, Manner},
    stage::{Setting, millis, name, rendezvous, secs, space, story},
};

/// Just after the first packets that answer a request have arrived.
const FIRST: Duration = Duration::from_micros(20_500);

fn wide() -> Setting {
    let mut setting = Setting::default();
    setting.quic.bidi_streams_max = 1000;
    setting.client.bidi_streams_max = 1000;
    setting.session.requests_max = 1000;
    setting
}

#[test]
fn a_prefix_with_many_namespaces_is_answered_in_pieces() {
    story(&wide(), |stage| {
        let announcer = stage.client();
        for number in 0..300 {
            stage.announce(announcer, &format!("a-{number}"));
        }
        let [one, other, fickle] = [stage.client(), stage.client(), stage.client()];
        stage.step("three hundred namespaces", millis(200));
        assert_eq!(stage.gauges().namespaces, 300);
        let watches = [one, other].map(|node| stage.watch(node, space("a")));
        // Who cancels at once gets nothing more.
        let cancelled = stage.watch(fickle, Namespace::EMPTY);
        stage.cancel(cancelled);
        stage.step("the first piece", FIRST);
        for watch in watches {
            assert!(stage.is_accepted(watch));
            assert!(stage.heard(watch).len() <= 64);
        }
        assert!(!stage.heard(watches[0]).is_empty());
        // What comes meanwhile is reported once.
        stage.announce(announcer, "a-0-new");
        stage.announce(announcer, "a-99-new");
        stage.step("the others", millis(100));
        for watch in watches {
            let mut came = stage.heard(watch);
            assert_eq!(came.len(), 302);
            came.sort_by_key(|heard| format!("{heard:?}"));
            came.dedup();
            assert_eq!(came.len(), 302, "each once");
            assert!(came.iter().all(|heard| matches!(heard, Heard::Came(_))));
        }
        assert!(stage.heard(cancelled).len() <= 64);
    });
}

#[test]
fn tracks_under_a_prefix_are_offered_in_pieces() {
    let mut setting = wide();
    setting.client.keep_alive = Some(secs(5));
    story(&setting, |stage| {
        let publisher = stage.client();
        for number in 0..200 {
            stage.publish(publisher, &format!("a--{number}"));
        }
        let collector = stage.client();
        stage.step("two hundred tracks", millis(200));
        let asked = stage.collect(collector, space("a"), Parameters::default());
        stage.step("the first piece", FIRST);
        assert!(stage.is_accepted(asked));
        assert!((1..=64).contains(&stage.actor(collector).offered.len()));
        stage.step("the others", millis(200));
        let offered = &stage.actor(collector).offered;
        let mut names: Vec<_> = offered.iter().map(|(_, it)| it.track.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 200);
    });
}

#[test]
fn who_announces_what_many_wait_for_is_asked_in_pieces() {
    story(&wide(), |stage| {
        let (viewer, announcer) = (stage.client(), stage.client());
        for number in 0..400 {
            stage.subscribe_with(viewer, &format!("a--{number}"), rendezvous(secs(20)));
        }
        stage.step("four hundred requests wait", millis(200));
        assert_eq!(stage.gauges().waiting, 400);
        stage.direct(announcer, |actor| actor.manner = Manner::Accept(42));
        stage.announce(announcer, "a");
        stage.step("the first piece", FIRST);
        assert!((1..=256).contains(&stage.actor(announcer).asked.len()));
        stage.step("the others", millis(500));
        let asked = &stage.actor(announcer).asked;
        assert_eq!(asked.len(), 400);
        let last = name("a--399");
        assert!(asked.iter().any(|(_, subscribe)| subscribe.track == last));
    });
}

#[test]
fn a_fetch_of_many_small_objects_is_served_in_pieces() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        stage.group(publication, 1, 1000, 2);
        stage.step("a thousand objects", millis(200));
        let viewer = stage.client();
        let fetch = stage.fetch(viewer, "a--x", (1, 0), (1, 999));
        stage.step("the first piece", Duration::from_micros(20_100));
        assert!((1..=256).contains(&stage.fetched(fetch).objects().len()));
        stage.step("the others", millis(200));
        assert_eq!(stage.fetched(fetch).objects().len(), 1000);
        stage.expect_complete(fetch);
    });
}
