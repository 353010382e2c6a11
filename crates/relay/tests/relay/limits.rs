//! Each limit of the relay, at the limit and one past it.

use std::cell::Cell;

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    location::Location,
    parameter::{Filter, Parameters},
};

use crate::stage::{Asked, Setting, Stage, millis, rendezvous, secs, story};

pub(crate) const LOAD: RequestErrorCode = RequestErrorCode::EXCESSIVE_LOAD;

/// Checks that all requests were accepted except the last, and that only the counter `refused` counts it. Also checks
/// that there is room again once the first request has ended.
pub(crate) fn expect_one_past(
    stage: &mut Stage,
    asked: &[Asked],
    refused: &str,
    again: impl FnOnce(&mut Stage) -> Asked,
) {
    stage.step("one past the limit", millis(100));
    let (past, within) = asked.split_last().expect("there are some");
    for &asked in within {
        assert!(stage.is_accepted(asked));
    }
    assert_eq!(stage.refusal(*past), Some(LOAD));
    let error = stage.outcome(*past).error.as_ref();
    assert!(error.is_some_and(|error| error.retry_after.is_some()));
    assert_eq!(refusals(stage), [(refused, 1)]);
    stage.cancel(asked[0]);
    stage.step("make room", millis(100));
    let again = again(stage);
    stage.step("try again", millis(100));
    assert!(stage.is_accepted(again));
    assert_eq!(refusals(stage), [(refused, 1)]);
}

/// Counters of refusals that are not zero.
pub(crate) fn refusals(stage: &Stage) -> Vec<(&'static str, u64)> {
    let counters = stage.counters();
    let refusals = counters
        .iter()
        .filter(|(name, count)| name.starts_with("refused_") && *count > 0);
    refusals.collect()
}

#[test]
fn subscriptions_per_session() {
    let mut setting = Setting::default();
    setting.relay.subscriptions_per_session_max = 3;
    story(&setting, |stage| {
        let publisher = stage.client();
        let tracks = ["a--1", "a--2", "a--3", "a--4"];
        for track in tracks {
            stage.publish(publisher, track);
        }
        let [one, other] = [stage.client(), stage.client()];
        let unbothered = stage.subscribe(other, "a--4");
        let asked = tracks.map(|track| stage.subscribe(one, track));
        expect_one_past(stage, &asked, "refused_limit_subscriptions", |stage| {
            stage.subscribe(one, "a--4")
        });
        assert!(stage.is_accepted(unbothered));
    });
}

#[test]
fn waiting_subscriptions_count_too() {
    let mut setting = Setting::default();
    setting.relay.subscriptions_per_session_max = 1;
    story(&setting, |stage| {
        let subscriber = stage.client();
        let waiting = stage.subscribe_with(subscriber, "a--1", rendezvous(secs(9)));
        let past = stage.subscribe_with(subscriber, "a--2", rendezvous(secs(9)));
        stage.step("one past the limit", millis(100));
        assert!(stage.outcome(waiting).answer.is_none());
        assert_eq!(stage.refusal(past), Some(LOAD));
        assert_eq!(refusals(stage), [("refused_limit_subscriptions", 1)]);
        assert_eq!(stage.gauges().tracks, 1);
    });
}

#[test]
fn publications_per_session() {
    let mut setting = Setting::default();
    setting.relay.publications_per_session_max = 3;
    story(&setting, |stage| {
        let publisher = stage.client();
        let asked = ["a--1", "a--2", "a--3", "a--4"].map(|track| stage.publish(publisher, track));
        expect_one_past(stage, &asked, "refused_limit_publications", |stage| {
            stage.publish(publisher, "a--5")
        });
    });
}

#[test]
fn namespaces_per_session() {
    let mut setting = Setting::default();
    setting.relay.namespaces_per_session_max = 3;
    story(&setting, |stage| {
        let publisher = stage.client();
        let asked = ["a", "b", "c", "d"].map(|space| stage.announce(publisher, space));
        expect_one_past(stage, &asked, "refused_limit_namespaces", |stage| {
            stage.announce(publisher, "e")
        });
        assert_eq!(stage.gauges().namespaces, 3);
    });
}

#[test]
fn namespaces_in_all() {
    let mut setting = Setting::default();
    setting.relay.namespaces_max = 3;
    story(&setting, |stage| {
        let nodes = stage.clients(2);
        let spaces = [(0, "a"), (1, "a"), (0, "b"), (1, "c")];
        let asked = spaces.map(|(place, space)| stage.announce(nodes[place], space));
        expect_one_past(stage, &asked, "refused_limit_announcements", |stage| {
            stage.announce(nodes[1], "c")
        });
        assert_eq!(stage.gauges().namespaces, 3);
    });
}

/// Requests that wait for a publisher must not use up the room of publishers.
#[test]
fn tracks_without_a_publisher() {
    let mut setting = Setting::default();
    setting.relay.tracks_max = 6;
    setting.relay.tracks_waiting_max = 3;
    story(&setting, |stage| {
        let [hostile, publisher, viewer] = [stage.client(), stage.client(), stage.client()];
        let wait = |stage: &mut Stage, track| {
            let asked = stage.subscribe_with(hostile, track, rendezvous(secs(20)));
            stage.wait(millis(100));
            asked
        };
        let waiting = ["w--1", "w--2", "w--3", "w--4"].map(|track| wait(stage, track));
        assert_eq!(stage.refusal(waiting[3]), Some(LOAD));
        assert!(stage.outcome(waiting[2]).answer.is_none(), "at the limit");
        let fetch = stage.fetch(viewer, "f--1", (0, 0), (1, 0));
        stage.step("fetch one more", millis(100));
        assert_eq!(stage.refusal(fetch), Some(LOAD));
        assert_eq!(refusals(stage), [("refused_limit_waiting", 2)]);
        // Publishers still find room, and so do subscriptions to what they publish.
        let published = ["p--1", "p--2", "p--3"].map(|track| stage.publish(publisher, track));
        stage.wait(millis(100));
        let seen = stage.subscribe(viewer, "p--1");
        stage.step("publish", millis(100));
        assert!(published.iter().all(|&it| stage.is_accepted(it)));
        assert!(stage.is_accepted(seen));
        // A track whose publisher comes makes room for another one that waits.
        stage.cancel(published[2]);
        stage.publish(publisher, "w--1");
        stage.step("somebody publishes what was awaited", millis(100));
        assert!(stage.is_accepted(waiting[0]));
        let next = wait(stage, "w--5");
        assert_eq!(stage.refusal(next), None);
        assert_eq!(refusals(stage), [("refused_limit_waiting", 2)]);
    });
}

#[test]
fn tracks() {
    let mut setting = Setting::default();
    setting.relay.tracks_max = 3;
    story(&setting, |stage| {
        let publisher = stage.client();
        let asked = ["a--1", "a--2", "a--3", "a--4"].map(|track| stage.publish(publisher, track));
        expect_one_past(stage, &asked, "refused_limit_tracks", |stage| {
            stage.publish(publisher, "a--5")
        });
        assert_eq!(stage.gauges().tracks, 3);
        let subscription = stage.subscribe_with(publisher, "a--6", rendezvous(secs(1)));
        let fetch = stage.fetch(publisher, "a--7", (0, 0), (1, 0));
        stage.step("subscribe to one more, and fetch one", millis(100));
        assert_eq!(stage.refusal(subscription), Some(LOAD));
        assert_eq!(stage.refusal(fetch), Some(LOAD));
        assert_eq!(refusals(stage), [("refused_limit_tracks", 3)]);
    });
}

#[test]
fn publishers_of_a_track() {
    let mut setting = Setting::default();
    setting.relay.publishers_per_track_max = 3;
    story(&setting, |stage| {
        let asked: Vec<_> = stage
            .clients(4)
            .into_iter()
            .map(|node| {
                let asked = stage.publish(node, "a--x");
                stage.wait(millis(1));
                asked
            })
            .collect();
        let last = asked[3].node;
        expect_one_past(stage, &asked, "refused_limit_publishers", |stage| {
            stage.publish(last, "a--x")
        });
    });
}

#[test]
fn publishers_asked_for_a_track() {
    let mut setting = Setting::default();
    setting.relay.publishers_per_track_max = 3;
    story(&setting, |stage| {
        let publishers = stage.clients(4);
        for &node in &publishers {
            stage.announce(node, "a");
            stage.wait(millis(1));
        }
        stage.step("one publisher too many", millis(100));
        let subscriber = stage.client();
        stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        let asked = publishers.iter().map(|&node| stage.actor(node).asked.len());
        assert_eq!(asked.collect::<Vec<_>>(), [1, 1, 1, 0]);
        assert_eq!(stage.counters().publishers_not_asked, 1);
    });
}

#[test]
fn announcers_of_a_track() {
    let mut setting = Setting::default();
    setting.relay.announcers_per_track_max = 3;
    for past in [false, true] {
        story(&setting, |stage| {
            let mut publishers = stage.clients(3 + usize::from(past));
            for &node in &publishers {
                stage.announce(node, "a");
                stage.announce(node, "a");
                stage.wait(millis(1));
            }
            if past {
                // The last announcement is the most specific, so its publisher is asked first.
                stage.announce(publishers[3], "a-b");
                publishers.rotate_right(1);
            }
            stage.step("announce", millis(100));
            let subscriber = stage.client();
            stage.subscribe(subscriber, "a-b--x");
            stage.step("subscribe", millis(100));
            let asked = publishers.iter().map(|&node| stage.actor(node).asked.len());
            let expected: &[usize] = if past { &[1, 1, 1, 0] } else { &[1; 3] };
            assert_eq!(asked.collect::<Vec<_>>(), expected);
            assert_eq!(stage.counters().announcers_cut, u64::from(past));
        });
    }
}

/// A publisher, and a subscriber that permits no data stream: its only stream is the control stream.
fn without_streams(stage: &mut Stage) -> Asked {
    let publisher = stage.client();
    let publication = stage.publish(publisher, "a--x");
    let subscriber = stage.client();
    let subscription = stage.subscribe(subscriber, "a--x");
    stage.step("subscribe", millis(100));
    assert!(stage.is_accepted(subscription));
    publication
}

#[test]
fn lag_of_a_subscription() {
    let mut setting = Setting::default();
    setting.client.uni_streams_max = 1;
    let group_bytes = Cell::new(0);
    story(&setting, |stage| {
        let publication = without_streams(stage);
        stage.group(publication, 1, 1, 1000);
        stage.step("measure", millis(50));
        group_bytes.set(stage.gauges().log_bytes);
    });
    assert!(group_bytes.get() > 1000);
    setting.relay.lag_bytes_max = 3 * group_bytes.get();
    story(&setting, |stage| {
        let publication = without_streams(stage);
        for group in 1..4 {
            stage.group(publication, group, 1, 1000);
        }
        stage.step("at the limit", millis(50));
        assert_eq!(stage.gauges().log_bytes, 3 * group_bytes.get());
        assert_eq!(stage.counters().subgroups_skipped, 0);
        let mut tiny = stage.open(publication, 4);
        stage.object(publication, &mut tiny, 0, b"x");
        stage.step("past it", millis(50));
        assert_eq!(stage.counters().subgroups_skipped, 1);
        assert_eq!(stage.gauges().subgroups, 3);
        assert!(stage.gauges().log_bytes < 3 * group_bytes.get());
    });
}

#[test]
fn streams_of_a_subscription_that_waits() {
    let mut setting = Setting::default();
    setting.client.uni_streams_max = 1;
    setting.relay.streams_per_subscription_max = 3;
    story(&setting, |stage| {
        let publication = without_streams(stage);
        for group in 1..4 {
            stage.group(publication, group, 1, 1000);
        }
        stage.step("at the limit", millis(50));
        assert_eq!(stage.gauges().subgroups, 3);
        stage.group(publication, 4, 1, 1000);
        stage.step("past it, the oldest makes room", millis(50));
        assert_eq!(stage.counters().subgroups_skipped, 1);
        assert_eq!(stage.gauges().subgroups, 3);
    });
}

#[test]
fn streams_of_a_subscription_that_keeps_up() {
    let mut setting = Setting::default();
    setting.relay.streams_per_subscription_max = 3;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        let mut streams: Vec<_> = (0..4)
            .map(|group| {
                let mut stream = stage.open(publication, group);
                stage.object(publication, &mut stream, 0, b"first");
                stage.wait(millis(20));
                stream
            })
            .collect();
        stage.step("one past the limit", millis(50));
        assert_eq!(stage.counters().subgroups_skipped, 1);
        for stream in &mut streams {
            stage.object(publication, stream, 1, b"second");
            stage.finish(publication, stream);
        }
        stage.step("they end", millis(50));
        stage.group(publication, 9, 2, 10);
        stage.step("there is room again", millis(50));
        let outcome = stage.outcome(subscription);
        let streams = outcome.streams.iter();
        let groups: Vec<_> = streams.map(|arrival| arrival.header.group).collect();
        assert_eq!(groups, [0, 1, 2, 9]);
        assert!(
            outcome
                .streams
                .iter()
                .all(|arrival| arrival.objects.len() == 2)
        );
        assert_eq!(stage.counters().subgroups_skipped, 1);
    });
}

#[test]
fn subgroups_of_a_track() {
    let mut setting = Setting::default();
    setting.relay.subgroups_per_track_max = 3;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let streams: Vec<_> = (0..4)
            .map(|group| {
                let stream = stage.open(publication, group);
                stage.wait(millis(20));
                stream
            })
            .collect();
        stage.step("one past the limit", millis(50));
        let stopped = &stage.actor(publisher).stopped;
        assert_eq!(
            stopped[..],
            [(streams[3].stream, ResetCode::EXCESSIVE_LOAD.0)]
        );
        assert_eq!(stage.counters().subgroups_refused, 1);
        stage.finish(publication, &streams[0]);
        stage.step("one ends", millis(50));
        stage.open(publication, 5);
        stage.step("there is room again", millis(50));
        assert_eq!(stage.counters().subgroups_refused, 1);
        assert_eq!(stage.counters().streams_received, 4);
    });
}

#[test]
fn those_who_lag_do_not_use_up_the_subgroups_of_a_track() {
    let mut setting = Setting::default();
    setting.client.uni_streams_max = 1;
    setting.relay.subgroups_per_track_max = 3;
    story(&setting, |stage| {
        let publication = without_streams(stage);
        for group in 0..20 {
            stage.group(publication, group, 1, 100);
            stage.wait(millis(20));
        }
        stage.step("twenty groups nobody takes", millis(50));
        assert_eq!(stage.counters().subgroups_refused, 0);
        assert_eq!(stage.gauges().subgroups, 20);
    });
}

#[test]
fn ended_subgroups_that_are_held_for_subscribers() {
    const HOLDERS: u64 = 9;
    let mut setting = Setting::default();
    setting.client.uni_streams_max = 1;
    setting.relay.subgroups_per_track_max = 4;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let mut subscriptions = Vec::new();
        for holder in 0..HOLDERS {
            let node = stage.client();
            let start = Location::new(128 * holder, 0);
            let end = Location::new(128 * holder + 127, u64::MAX);
            let parameters = Parameters {
                filter: Some(Filter::AbsoluteRange { start, end }),
                ..Parameters::default()
            };
            subscriptions.push(stage.subscribe_with(node, "a--x", parameters));
        }
        stage.step("each wants other groups", millis(100));
        for group in 0..1028 {
            stage.group(publication, group, 1, 1);
            stage.wait(millis(1));
        }
        stage.step("at the limit", millis(50));
        assert_eq!(stage.gauges().subgroups, 1028);
        assert_eq!(stage.counters().groups_shed, 0);
        for group in 1028..128 * HOLDERS {
            stage.group(publication, group, 1, 1);
            stage.wait(millis(1));
        }
        stage.step("past it, the oldest make room", millis(50));
        assert_eq!(stage.gauges().subgroups, 1028);
        let past = 128 * HOLDERS - 1028;
        assert_eq!(stage.counters().groups_shed, past);
        assert_eq!(stage.counters().subgroups_skipped, past);
        let done = |&it: &Asked| stage.outcome(it).done.is_some();
        assert!(
            !subscriptions.iter().any(done),
            "all keep their subscription"
        );
    });
}

#[test]
fn lingering_after_a_publisher() {
    let mut setting = Setting::default();
    setting.relay.publisher_linger = secs(3);
    for early in [true, false] {
        story(&setting, |stage| {
            let publisher = stage.client();
            let publication = stage.publish(publisher, "a--x");
            let subscriber = stage.client();
            let subscription = stage.subscribe(subscriber, "a--x");
            stage.step("subscribe", millis(100));
            stage.cancel(publication);
            // The cancellation takes 10 ms to reach the relay.
            stage.step(
                "the publisher goes",
                if early { millis(2999) } else { millis(3020) },
            );
            stage.publish(publisher, "a--x");
            stage.step("and comes back", millis(100));
            let done = stage.outcome(subscription).done.is_some();
            assert_eq!(done, !early);
            assert_eq!(stage.gauges().subscriptions, u64::from(early));
            assert_eq!(stage.counters().tracks_abandoned, u64::from(!early));
        });
    }
}

#[test]
fn lingering_after_the_last_word() {
    let mut setting = Setting::default();
    setting.relay.done_linger = secs(3);
    for early in [true, false] {
        story(&setting, |stage| {
            let publisher = stage.client();
            let publication = stage.publish(publisher, "a--x");
            let subscriber = stage.client();
            let subscription = stage.subscribe(subscriber, "a--x");
            stage.step("subscribe", millis(100));
            let stream = stage.open(publication, 1);
            stage.publish_done(publication, 1);
            stage.step(
                "the end, but for one stream",
                if early { secs(2) } else { secs(4) },
            );
            assert_eq!(stage.outcome(subscription).done.is_some(), !early);
            stage.finish(publication, &stream);
            stage.step("which ends", millis(100));
            assert!(stage.outcome(subscription).done.is_some());
            assert_eq!(stage.gauges().tracks, 0);
            let incomplete = stage.counters().publishers_incomplete;
            assert_eq!(incomplete, u64::from(!early));
        });
    }
}

#[test]
fn a_peer_that_does_not_read_is_closed_and_forgotten() {
    let mut setting = Setting::default();
    setting.session.outgoing_bytes_max = 0;
    story(&setting, |stage| {
        let publisher = stage.client();
        stage.client.stream_receive_bytes_max = 4;
        let subscriber = stage.client();
        stage.subscribe_with(subscriber, "a--x", rendezvous(secs(9)));
        stage.step("wait", secs(1));
        let publication = stage.publish(publisher, "a--x");
        stage.step("the answer does not fit the peer's window", secs(1));
        assert!(stage.is_accepted(publication));
        assert!(stage.actor(subscriber).lost.is_some());
        assert_eq!(stage.counters().sessions_violated, 1);
        assert_eq!(stage.session_counters().outgoing_over_limit, 1);
        assert_eq!(stage.gauges().sessions, 1);
        assert_eq!(stage.gauges().subscriptions, 0);
    });
}

#[test]
fn a_reset_of_what_nobody_reads_is_not_seen() {
    let mut setting = Setting::default();
    setting.client.uni_streams_max = 1;
    story(&setting, |stage| {
        let publication = without_streams(stage);
        let mut stream = stage.open(publication, 1);
        stage.object(publication, &mut stream, 0, b"object");
        stage.step("a stream that cannot be opened", millis(50));
        stage.reset(publication, &stream, ResetCode::CANCELLED);
        stage.step("is reset", millis(50));
        assert_eq!(stage.counters().streams_sent, 0);
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

#[test]
fn what_sessions_refused_is_counted_while_they_are_there_and_afterwards() {
    let mut setting = Setting::default();
    setting.session.requests_max = 2;
    story(&setting, |stage| {
        let [one, other] = [stage.client(), stage.client()];
        for (node, count) in [(one, 2), (other, 3)] {
            for number in 0..count {
                stage.announce(node, &format!("a{number}"));
            }
        }
        stage.step("one at the limit, another one past it", millis(100));
        assert_eq!(stage.session_counters().requests_over_limit, 1);
        stage.sim.shutdown(one);
        stage.sim.shutdown(other);
        stage.step("both leave", millis(200));
        assert_eq!(stage.gauges().sessions, 0);
        assert_eq!(stage.session_counters().requests_over_limit, 1);
    });
}

#[test]
fn time_that_a_fetch_waits_for_publishers() {
    let mut setting = Setting::default();
    setting.relay.fill_max = secs(3);
    for early in [true, false] {
        story(&setting, |stage| {
            let [publisher, client] = [stage.client(), stage.client()];
            stage.announce(publisher, "a");
            stage.wait(millis(50));
            let fetch = stage.fetch(client, "a--x", (0, 0), (9, 0));
            // Request and answer take 10 ms each.
            let time = if early { millis(2990) } else { millis(3030) };
            stage.step("a fetch of which the publisher says nothing", time);
            assert_eq!(stage.counters().fetches_waited_out, u64::from(!early));
            assert_eq!(stage.refusal(fetch).is_some(), !early);
        });
    }
}
