//! SUBSCRIBE_NAMESPACE: which sessions are notified of which namespaces.

use weir_moqt::{
    error::RequestErrorCode, name::Namespace, parameter::Parameters, session::CloseReason,
};

use crate::{
    actor::{
        Heard::{Came, Went},
        Manner,
    },
    stage::{Asked, Setting, Stage, millis, secs, space, story},
};

fn prefix(namespace: &str) -> Parameters {
    Parameters {
        track_namespace_prefix: Some(space(namespace)),
        ..Parameters::default()
    }
}

#[test]
fn who_watches_a_prefix_hears_of_what_is_there_what_comes_and_what_goes() {
    story(&Setting::default(), |stage| {
        let [one, other] = [stage.client(), stage.client()];
        let early = stage.announce(one, "a-b");
        stage.announce(one, "ab");
        stage.step("announce", millis(50));
        let watcher = stage.client();
        let watch = stage.watch(watcher, space("a"));
        let all = stage.watch(other, Namespace::EMPTY);
        stage.step("watch", millis(50));
        assert!(stage.is_accepted(watch) && stage.is_accepted(all));
        assert_eq!(stage.heard(watch), [Came(space("b"))]);
        assert_eq!(stage.heard(all), [Came(space("a-b")), Came(space("ab"))]);
        let second = stage.announce(other, "a-b");
        let exact = stage.announce(other, "a");
        stage.wait(millis(50));
        stage.announce(watcher, "a-c");
        stage.step("announce more", millis(50));
        let came = [Came(space("b")), Came(Namespace::EMPTY), Came(space("c"))];
        assert_eq!(stage.heard(watch), came, "each once, and its own too");
        stage.cancel(early);
        stage.cancel(exact);
        stage.step("one of two withdraws it", millis(50));
        assert_eq!(stage.heard(watch)[3..], [Went(Namespace::EMPTY)]);
        stage.cancel(second);
        stage.step("the other, too", millis(50));
        assert_eq!(stage.heard(watch)[4..], [Went(space("b"))]);
        stage.sim.shutdown(one);
        stage.step("one leaves without a word", secs(1));
        assert_eq!(stage.heard(all).last(), Some(&Went(space("ab"))));
        stage.cancel(watch);
        stage.step("nobody watches a", millis(50));
        assert_eq!(stage.gauges().prefixes, 1);
        stage.announce(other, "a-d");
        stage.step("announce once more", millis(50));
        assert_eq!(stage.heard(watch).len(), 5);
    });
}

#[test]
fn prefixes_of_one_session_do_not_overlap() {
    story(&Setting::default(), |stage| {
        let [one, other] = [stage.client(), stage.client()];
        let first = stage.watch(one, space("a-b"));
        stage.wait(millis(50));
        let overlapping = [space("a"), space("a-b"), space("a-b-c"), Namespace::EMPTY]
            .map(|prefix| stage.watch(one, prefix));
        let beside = stage.watch(one, space("a-c"));
        let tracks = stage.collect(one, space("a"), Parameters::default());
        let others = stage.watch(other, space("a"));
        stage.step("watch all sorts of prefixes", millis(100));
        let overlap = Some(RequestErrorCode::PREFIX_OVERLAP);
        for asked in overlapping {
            assert_eq!(stage.refusal(asked), overlap);
        }
        for asked in [first, beside, tracks, others] {
            assert!(stage.is_accepted(asked));
        }
        assert_eq!(stage.counters().refused_overlap, 4);
        stage.update(beside, prefix("a-b-c"));
        stage.step("move one prefix below another", millis(50));
        let errors = &stage.outcome(beside).update_errors;
        assert_eq!(errors.first().map(|error| error.code), overlap);
        assert_eq!(stage.gauges().prefixes, 3, "the update ended the request");
        stage.cancel(first);
        stage.step("make room", millis(50));
        let again = stage.watch(one, space("a-b-c"));
        stage.step("try again", millis(50));
        assert!(stage.is_accepted(again));
    });
}

#[test]
fn a_prefix_can_be_changed() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let inside = stage.announce(publisher, "a-b-x");
        stage.announce(publisher, "a-c");
        stage.announce(publisher, "d");
        stage.wait(millis(50));
        let watcher = stage.client();
        let watch = stage.watch(watcher, space("a-b"));
        stage.step("watch", millis(50));
        assert_eq!(stage.heard(watch), [Came(space("x"))]);
        stage.update(watch, prefix("a"));
        stage.step("watch more", millis(50));
        assert_eq!(stage.outcome(watch).updates_answered, 1);
        assert_eq!(stage.heard(watch)[1..], [Came(space("c"))]);
        stage.cancel(inside);
        stage.step("what was told before goes", millis(50));
        assert_eq!(stage.heard(watch)[2..], [Went(space("b-x"))]);
        stage.update(watch, prefix("d"));
        stage.step("watch something else", millis(50));
        assert_eq!(stage.heard(watch)[3..], [Came(Namespace::EMPTY)]);
        stage.announce(publisher, "a-d");
        stage.step("nobody hears of the rest", millis(50));
        assert_eq!(stage.heard(watch).len(), 4);
    });
}

fn one_past(stage: &Stage, asked: &[Asked], code: RequestErrorCode) {
    let (past, within) = asked.split_last().expect("there are some");
    assert!(within.iter().all(|&asked| stage.is_accepted(asked)));
    assert_eq!(stage.refusal(*past), Some(code));
}

#[test]
fn prefixes_of_a_session_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.prefixes_per_session_max = 3;
    story(&setting, |stage| {
        let node = stage.client();
        let mut asked = vec![stage.collect(node, space("a"), Parameters::default())];
        asked.extend(["b", "c", "d"].map(|text| stage.watch(node, space(text))));
        stage.step("one past the limit", millis(50));
        one_past(stage, &asked, RequestErrorCode::EXCESSIVE_LOAD);
        assert_eq!(stage.counters().refused_limit_prefixes, 1);
        assert_eq!(stage.gauges().prefixes, 3);
        stage.cancel(asked[0]);
        stage.step("make room", millis(50));
        let again = stage.watch(node, space("d"));
        stage.step("try again", millis(50));
        assert!(stage.is_accepted(again));
    });
}

#[test]
fn what_lies_under_a_prefix_is_bounded() {
    let mut setting = Setting::default();
    setting.relay.matches_per_prefix_max = 3;
    story(&setting, |stage| {
        let [publisher, watcher] = [stage.client(), stage.client()];
        for text in ["a-1", "a-2", "a-3"] {
            stage.announce(publisher, text);
        }
        stage.wait(millis(50));
        let watch = stage.watch(watcher, space("a"));
        stage.step("at the limit", millis(50));
        assert_eq!(stage.heard(watch).len(), 3);
        stage.announce(publisher, "a-4");
        stage.step("one past the limit", millis(50));
        assert_eq!(stage.heard(watch).len(), 3);
        let closed = stage.outcome(watch).closed;
        assert!(matches!(closed, Some(CloseReason::Reset(_))), "{closed:?}");
        assert_eq!(stage.counters().interests_dropped, 1);
        let again = stage.watch(watcher, space("a"));
        stage.step("try again", millis(50));
        assert_eq!(
            stage.refusal(again),
            Some(RequestErrorCode::NAMESPACE_TOO_LARGE)
        );
        assert_eq!(
            (stage.counters().refused_too_large, stage.gauges().prefixes),
            (1, 0)
        );
    });
}

#[test]
fn a_ring_of_announcements_comes_to_rest() {
    story(&Setting::default(), |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        let ring = stage.clients(3);
        let watches: Vec<_> = ring
            .iter()
            .map(|&node| stage.watch(node, Namespace::EMPTY))
            .collect();
        stage.direct(publisher, |actor| actor.manner = Manner::Accept(40));
        stage.wait(millis(50));
        stage.announce(publisher, "a");
        stage.step("announce", millis(50));
        // They act like relays without loop prevention: each announces to all others what it is notified of.
        let mut announced = Vec::new();
        for round in 0..5 {
            let mut news = 0;
            for (&node, &watch) in ring.iter().zip(&watches) {
                let heard = stage.heard(watch);
                for heard in &heard[announced.iter().filter(|(of, _)| *of == node).count()..] {
                    if *heard == Came(space("a")) {
                        news += 1;
                        stage.direct(node, |actor| actor.manner = Manner::Accept(50));
                        announced.push((node, stage.announce(node, "a")));
                    }
                }
            }
            stage.step("the ring repeats what it heard", millis(50));
            assert_eq!(
                news,
                if round == 0 { 3 } else { 0 },
                "nothing is told twice"
            );
        }
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe: all of the ring are asked", millis(100));
        let echoes: Vec<Asked> = ring.iter().map(|&node| stage.source(node, 0, 50)).collect();
        let at_ring: Vec<Asked> = ring
            .iter()
            .map(|&node| stage.subscribe(node, "a--x"))
            .collect();
        stage.step("each of the ring asks in turn", millis(100));
        let source = stage.source(publisher, 0, 40);
        stage.group(source, 1, 3, 100);
        stage.step("objects", millis(100));
        for &echo in &echoes {
            stage.group(echo, 1, 3, 100);
        }
        stage.step("the ring sends them back", secs(1));
        for asked in at_ring.iter().copied().chain([subscription]) {
            stage.expect_objects(asked, &[1], 3, 100);
        }
        assert_eq!(stage.counters().streams_sent, 4, "each subscriber got one");
        for asked in at_ring.into_iter().chain([subscription]) {
            stage.cancel(asked);
        }
        for (_, announcement) in announced {
            stage.cancel(announcement);
        }
        stage.step("all leave", secs(10));
        let gauges = stage.gauges();
        let left = (gauges.tracks, gauges.subscriptions, gauges.subgroups);
        assert_eq!((left, gauges.namespaces), ((0, 0, 0), 1));
        for &watch in &watches {
            assert_eq!(stage.heard(watch), [Came(space("a"))], "it was never gone");
        }
    });
}
