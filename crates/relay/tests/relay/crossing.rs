//! FETCH and TRACK_STATUS from one thread of the relay for what is published on another.

use weir_moqt::{
    data::{ObjectHeader, SubgroupHeader},
    error::RequestErrorCode,
    location::Location,
    message::FetchKind,
    name::Namespace,
    parameter::{GroupOrder, Parameters},
    property::Properties,
};

use crate::{
    actor::Manner,
    archive::{Serving, standalone},
    fetching::{all_of, whole_group},
    stage::{Setting, Stage, millis, object, payload, plain, story},
    threads::two,
};

fn in_order(order: GroupOrder) -> Parameters {
    Parameters {
        group_order: Some(order),
        ..Parameters::default()
    }
}

#[test]
fn a_fetch_crosses_to_the_thread_that_remembers_the_objects() {
    story(&two(), |stage| {
        let publisher = stage.client_on(0);
        let clients = [0, 1, 1].map(|thread| stage.client_on(thread));
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        for group in 0..3 {
            whole_group(stage, publication, group);
            stage.wait(millis(10));
        }
        stage.step("objects that nobody asked for", millis(100));
        let [ascending, descending] = [GroupOrder::Ascending, GroupOrder::Descending];
        for (order, expected) in [(ascending, all_of(0..3)), (descending, all_of([2, 1, 0]))] {
            let fetches = clients.map(|client| {
                let kind = standalone("a--x", (0, 0), (2, 2));
                stage.fetch_with(client, kind, in_order(order))
            });
            stage.step("all fetch them", millis(300));
            for fetch in fetches {
                assert_eq!(stage.expect_complete(fetch), Location::new(2, 2));
                assert_eq!(stage.fetched(fetch).places(500), expected);
            }
            assert_eq!(stage.counters().fetches_upstream, 1, "they crossed once");
        }
        assert!(stage.actor(publisher).archive.asked.is_empty());
    });
}

#[test]
fn what_a_session_may_send_fits_the_crossing() {
    let mut setting = two();
    setting.session.object_header_bytes_max = 100;
    story(&setting, |stage| {
        let publisher = stage.client_on(0);
        let [here, there] = [0, 1].map(|thread| stage.client_on(thread));
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let header = SubgroupHeader {
            has_properties: true,
            ..plain(0)
        };
        let mut stream = stage.open_with(publication, header);
        // With its header fields, the object is as long as a session may send; in a fetch it is longer.
        let big = ObjectHeader {
            properties: Properties::builder().bytes(0x3d, vec![7; 94]).build(),
            ..object(0, 10)
        };
        stage.object_with(publication, &mut stream, &big, &payload(0, 0, 10));
        stage.finish(publication, &stream);
        stage.step("an object that nobody asked for", millis(100));
        for client in [here, there] {
            let fetch = stage.fetch(client, "a--x", (0, 0), (0, 0));
            stage.step("is fetched", millis(300));
            stage.expect_complete(fetch);
            assert_eq!(stage.fetched(fetch).places(10), [(0, 0)]);
        }
        assert_eq!(stage.counters().sessions_violated, 0);
    });
}

#[test]
fn a_fetch_joins_a_subscription_on_another_thread() {
    story(&two(), |stage| {
        let publisher = stage.client_on(0);
        let client = stage.client_on(1);
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        for group in 0..4 {
            whole_group(stage, publication, group);
            stage.wait(millis(10));
        }
        stage.wait(millis(50));
        let subscription = stage.subscribe(client, "a--x");
        let kind = FetchKind::RelativeJoining {
            request_id: subscription.id.0,
            groups: 1,
        };
        let fetch = stage.fetch_with(client, kind, Parameters::default());
        stage.step("subscribe and join", millis(300));
        stage.group(publication, 4, 3, 500);
        stage.step("one more group", millis(100));
        assert_eq!(stage.fetched(fetch).places(500), all_of(2..4));
        stage.expect_objects(subscription, &[4], 3, 500);
    });
}

#[test]
fn what_no_thread_remembers_is_asked_of_the_publisher() {
    story(&two(), |stage| {
        let publisher = stage.client_on(0);
        stage.direct(publisher, |actor| {
            actor.archive.fill(3, 5, 3, 500);
            actor.archive.serving = Serving::Serve;
            actor.archive.standing = Some(Ok(Location::new(5, 2)));
        });
        stage.announce(publisher, "a");
        let client = stage.client_on(1);
        let fetch = stage.fetch(client, "a--x", (3, 0), (5, 2));
        stage.step("a fetch on the other thread", millis(300));
        assert_eq!(stage.fetched(fetch).places(500), all_of(3..6));
        assert_eq!(stage.fetched_from(publisher).len(), 1);
        expect_standing(stage, client, "a--y", Ok(Some(Location::new(5, 2))));
        assert_eq!(stage.actor(publisher).archive.track_statuses.len(), 1);
    });
}

fn expect_standing(
    stage: &mut Stage,
    client: weir_sim::NodeId,
    track: &str,
    expected: Result<Option<Location>, RequestErrorCode>,
) {
    let question = stage.track_status(client, track);
    stage.step(&format!("how stands {track}"), millis(100));
    let answer = stage.outcome(question).answer.clone();
    let answer = answer.expect("it is answered").map(|ok| ok.largest_object);
    assert_eq!(answer, expected);
}

#[test]
fn how_a_track_stands_is_known_on_all_threads() {
    for threads in [2, 3] {
        let setting = Setting { threads, ..two() };
        story(&setting, |stage| {
            let publisher = stage.client_on(0);
            let clients = [stage.client_on(0), stage.client_on(1)];
            let publication = stage.publish(publisher, "a--x");
            stage.step("a track", millis(50));
            for client in clients {
                expect_standing(stage, client, "a--x", Ok(None));
            }
            stage.datagram(publication, 3, 4, b"object");
            stage.step("an object", millis(50));
            for client in clients {
                expect_standing(stage, client, "a--x", Ok(Some(Location::new(3, 4))));
                let missing = Err(RequestErrorCode::DOES_NOT_EXIST);
                expect_standing(stage, client, "a--y", missing);
            }
        });
    }
}

/// Requests between two threads are bounded, and announcements are such requests.
#[test]
fn announcements_leave_room_for_subscriptions_between_threads() {
    let mut setting = two();
    setting.relay.tracks_max = 6;
    setting.relay.namespaces_max = 20;
    setting.session.requests_max = 10;
    setting.session.requests_local_max = 10;
    story(&setting, |stage| {
        let hostile = [(); 5].map(|()| stage.client_on(0));
        let [publisher, asked] = [(); 2].map(|()| stage.client_on(0));
        let subscribers = [1, 1, 0].map(|thread| stage.client_on(thread));
        stage.direct(asked, |actor| actor.manner = Manner::Accept(42));
        stage.announce(asked, "asked");
        let watching = stage.watch(subscribers[0], Namespace::EMPTY);
        stage.step("an honest namespace", millis(50));
        for (number, node) in hostile.into_iter().enumerate() {
            for namespace in 0..4 {
                stage.announce(node, &format!("h{number}-{namespace}"));
            }
        }
        stage.step("as many as may be, and one more", millis(100));
        assert_eq!(stage.counters().refused_limit_announcements, 1);
        let there = stage.heard(watching).len();
        assert_eq!(there, 20, "each is a request to the other thread");

        let published = ["p--1", "p--2", "p--3", "p--4", "p--5"];
        let tracks = [&published[..], &["asked--1"]].concat();
        let publications = published.map(|track| stage.publish(publisher, track));
        stage.step("tracks are published", millis(50));
        let subscriptions: Vec<_> = subscribers
            .iter()
            .flat_map(|&node| tracks.iter().map(move |track| (node, *track)))
            .collect();
        let subscriptions: Vec<_> = subscriptions
            .into_iter()
            .map(|(node, track)| stage.subscribe(node, track))
            .collect();
        stage.step("tracks up to their limit are subscribed to", millis(200));
        for subscription in &subscriptions {
            assert!(stage.is_accepted(*subscription));
        }
        for publication in publications {
            stage.group(publication, 0, 2, 100);
        }
        stage.step("objects", millis(100));
        for subscriber in subscriptions.chunks(tracks.len()) {
            for &subscription in &subscriber[..published.len()] {
                stage.expect_objects(subscription, &[0], 2, 100);
            }
        }
        assert_eq!(stage.counters().link_requests_unsent, 0);
    });
}
