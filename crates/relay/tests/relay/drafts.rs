//! Publishers and subscribers in different drafts at one relay, for each pair of drafts: what both drafts have is
//! carried, what they say differently is translated, and what a draft cannot say is refused.

mod offers;
mod past;

use std::cell::RefCell;

use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId},
    draft::Draft,
    error::{PublishDoneCode, RequestErrorCode, ResetCode},
    location::Location,
    message::{FetchKind, PublishDone, Setup},
    parameter::{Filter, Parameters},
    property::{OBJECT_DELIVERY_TIMEOUT, Properties},
    session::StreamEnd,
};
use weir_relay::Relay;
use weir_sim::NodeId;

use crate::{
    actor::{
        Actor,
        Heard::{Came, Went},
        Manner,
    },
    archive::{ALL, Serving},
    fetching::{all_of, published, whole_group},
    stage::{
        Asked, Setting, Stage, datagram, duplicate, forward, has_fills, millis, object, payload,
        plain, rendezvous, secs, seed, space, story,
    },
    timeouts,
};

/// The drafts of a publisher and of a subscriber.
#[derive(Clone, Copy, Debug)]
struct Pair {
    publisher: Draft,
    subscriber: Draft,
}

impl Pair {
    fn clients(self, stage: &mut Stage) -> [NodeId; 2] {
        [self.publisher, self.subscriber].map(|draft| client(stage, draft))
    }
}

/// Tells a story for each pair of drafts.
fn each_pair(setting: &Setting, tell: impl Fn(&mut Stage, Pair)) {
    println!("WEIR_SEED={}", seed());
    for publisher in Draft::ALL {
        for subscriber in Draft::ALL {
            let [from, to] = [publisher, subscriber].map(Draft::alpn);
            println!("a publisher in {from}, a subscriber in {to}");
            let mut stage = Stage::new(seed(), setting.clone());
            let pair = Pair {
                publisher,
                subscriber,
            };
            tell(&mut stage, pair);
            assert_eq!(stage.counters().sessions_violated, 0);
        }
    }
}

/// Creates a client that has connected in a draft.
fn client(stage: &mut Stage, draft: Draft) -> NodeId {
    stage.draft = draft;
    let node = stage.client();
    assert_eq!(stage.actor(node).draft(), draft);
    node
}

/// Checks that the stream of a fetch or of a fill is complete, with these groups.
fn expect_fetched(stage: &Stage, fetch: Asked, groups: std::ops::Range<u64>) {
    let fetched = stage.fetched(fetch);
    let refusal = stage.refusal(fetch);
    assert_eq!(fetched.end, Some(StreamEnd::Fin), "{refusal:?}");
    assert_eq!(fetched.places(500), all_of(groups));
}

fn properties(value: u64) -> Properties {
    Properties::builder().int(0x3e8, value).build()
}

/// Publishes a datagram that ends group 200, a subgroup of three objects that ends group 300, and the end of the track.
fn send_all_kinds(stage: &mut Stage, publication: Asked) {
    let last = ObjectDatagram {
        priority: Some(9),
        end_of_group: true,
        properties: properties(700),
        ..datagram(200, 130, b"datagram")
    };
    stage.datagram_with(publication, last);
    let header = SubgroupHeader {
        subgroup: SubgroupId::Explicit(150),
        priority: Some(20),
        has_properties: true,
        end_of_group: true,
        ..plain(300)
    };
    let mut stream = stage.open_with(publication, header);
    for id in [0, 128, 400] {
        let header = ObjectHeader {
            properties: properties(id),
            ..object(id, 100)
        };
        stage.object_with(publication, &mut stream, &header, &payload(300, id, 100));
    }
    stage.finish(publication, &stream);
    let mut stream = stage.open(publication, 301);
    stage.object(publication, &mut stream, 0, b"last");
    let end = ObjectHeader {
        status: ObjectStatus::EndOfTrack,
        ..object(1, 0)
    };
    stage.object_with(publication, &mut stream, &end, b"");
    stage.finish(publication, &stream);
}

/// Checks that a subscriber received all of that.
fn expect_all_kinds(stage: &Stage, subscription: Asked) {
    let outcome = stage.outcome(subscription);
    let [(_, last)] = &outcome.datagrams[..] else {
        panic!("one datagram: {:?}", outcome.datagrams);
    };
    assert_eq!((last.group, last.object), (200, 130));
    assert_eq!((last.priority, last.end_of_group), (Some(9), true));
    assert_eq!(last.properties, properties(700));
    assert_eq!(&last.payload[..], b"datagram");
    let stream = |group: u64| {
        let mut streams = outcome.streams.iter();
        let found = streams.find(|stream| stream.header.group == group);
        found.expect("a stream of the group")
    };
    let (whole, last) = (stream(300), stream(301));
    assert_eq!(whole.header.subgroup, SubgroupId::Explicit(150));
    assert_eq!(whole.header.priority, Some(20));
    assert!(whole.header.end_of_group && whole.header.first_object);
    let found: Vec<_> = whole
        .objects
        .iter()
        .map(|object| (object.header.id, object.header.properties.clone()))
        .collect();
    assert_eq!(found, [0, 128, 400].map(|id| (id, properties(id))));
    let statuses: Vec<_> = last
        .objects
        .iter()
        .map(|object| (object.header.id, object.header.status))
        .collect();
    let expected = [(0, ObjectStatus::Normal), (1, ObjectStatus::EndOfTrack)];
    assert_eq!(statuses, expected);
    let ends = [whole.end, last.end];
    assert_eq!(ends, [Some(StreamEnd::Fin); 2]);
}

#[test]
fn objects_properties_and_end_markers_are_carried() {
    let cached: RefCell<Option<Vec<_>>> = RefCell::default();
    each_pair(&Setting::default(), |stage, pair| {
        let [publisher, subscriber] = pair.clients(stage);
        let code = RequestErrorCode::NOT_SUPPORTED;
        stage.direct(publisher, |actor| {
            actor.archive.serving = Serving::Decline(code);
        });
        let publication =
            stage.publish_with(publisher, "a--x", Parameters::default(), properties(900));
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(50));
        let ok = stage
            .outcome(subscription)
            .ok
            .clone()
            .expect("it is granted");
        assert_eq!(ok.properties, properties(900));
        send_all_kinds(stage, publication);
        stage.step("objects", millis(200));
        expect_all_kinds(stage, subscription);

        let fetch = stage.fetch(subscriber, "a--x", (200, 130), (301, ALL));
        stage.step("are fetched from the cache", millis(200));
        assert_eq!(stage.expect_complete(fetch), Location::new(301, 1));
        let fetched = stage.fetched(fetch);
        let ok = fetched.ok.as_ref().expect("it is granted");
        assert!(ok.end_of_track);
        assert_eq!(ok.properties, properties(900));
        let places: Vec<_> = fetched.objects().iter().map(|(at, _)| *at).collect();
        let expected = [(200, 130), (300, 0), (300, 128), (300, 400), (301, 0)];
        let expected = expected.map(|(group, object)| Location::new(group, object));
        assert_eq!(places, expected);
        let entries = fetched.entries.clone();
        let first = cached.replace(Some(entries.clone()));
        assert!(first.is_none_or(|first| first == entries), "{entries:?}");

        stage.publish_done(publication, 2);
        stage.step("the end", millis(500));
        let done = stage.outcome(subscription).done.as_ref();
        let done = done.expect("it was told");
        assert_eq!(done.code, PublishDoneCode::TRACK_ENDED);
        assert_eq!(done.stream_count, Some(2));
    });
}

#[test]
fn errors_have_the_code_of_the_draft_that_hears_of_them() {
    each_pair(&Setting::default(), |stage, pair| {
        let [publisher, subscriber] = pair.clients(stage);
        let declined = RequestErrorCode::UNAUTHORIZED;
        stage.direct(publisher, |actor| actor.manner = Manner::Decline(declined));
        stage.announce(publisher, "a");
        let publication = stage.publish(publisher, "b--x");
        stage.wait(millis(50));
        stage.group(publication, 5, 1, 50);
        let repeated = stage.publish(publisher, "b--x");
        stage.wait(millis(50));
        let of_nothing = stage.subscribe(subscriber, "c--x");
        let of_declined = stage.subscribe(subscriber, "a--x");
        let of_nobody = stage.subscribe_with(subscriber, "c--y", rendezvous(secs(1)));
        let subscription = stage.subscribe(subscriber, "b--x");
        let again = stage.subscribe(subscriber, "b--x");
        let other = client(stage, pair.subscriber);
        let past = Filter::AbsoluteRange {
            start: Location::ZERO,
            end: Location::new(4, ALL),
        };
        let past = Parameters {
            filter: Some(past),
            ..Parameters::default()
        };
        let past = stage.subscribe_with(other, "b--x", past);
        stage.step("subscriptions", secs(2));
        assert!(stage.is_accepted(publication) && stage.is_accepted(subscription));
        let is_refused = !has_fills(pair.subscriber);
        for (asked, code) in [
            (of_nothing, Some(RequestErrorCode::DOES_NOT_EXIST)),
            (of_declined, Some(declined)),
            (of_nobody, Some(RequestErrorCode::TIMEOUT)),
            (again, Some(duplicate(pair.subscriber))),
            (repeated, Some(duplicate(pair.publisher))),
            (past, is_refused.then_some(RequestErrorCode::INVALID_RANGE)),
        ] {
            assert_eq!(stage.refusal(asked), code);
            assert_eq!(stage.is_accepted(asked), code.is_none());
        }
        stage.act(publisher, |session, connection| {
            let done = PublishDone {
                code: PublishDoneCode::SUBSCRIPTION_ENDED,
                stream_count: Some(1),
                reason: String::new(),
            };
            session.publish_done(connection, publication.id, done);
        });
        stage.step("the publisher ends the subscription", millis(500));
        let both_have = !has_fills(pair.publisher) && !has_fills(pair.subscriber);
        let code = if both_have {
            PublishDoneCode::SUBSCRIPTION_ENDED
        } else {
            PublishDoneCode::INTERNAL_ERROR
        };
        let done = stage.outcome(subscription).done.as_ref();
        assert_eq!(done.map(|done| done.code), Some(code));
    });
}

#[test]
fn delivery_timeouts_of_subscriber_and_track_are_kept() {
    for is_of_track in [false, true] {
        each_pair(&timeouts::setting(), |stage, pair| {
            let [publisher, subscriber] = pair.clients(stage);
            let timeout = millis(500);
            let (mut wanted, mut offered) = (Parameters::default(), Properties::builder());
            if is_of_track {
                offered = offered.int(OBJECT_DELIVERY_TIMEOUT, 500);
            } else {
                wanted.object_delivery_timeout = Some(timeout);
            }
            let none = Parameters::default();
            let publication = stage.publish_with(publisher, "a--x", none, offered.build());
            stage.wait(millis(50));
            let subscription = stage.subscribe_with(subscriber, "a--x", wanted);
            stage.step("subscribe", millis(100));
            timeouts::slow(stage, subscriber);
            stage.group(publication, 1, 40, 1000);
            stage.step("four seconds' worth", secs(6));
            let arrival = &stage.outcome(subscription).streams[0];
            let end = StreamEnd::Reset(ResetCode::DELIVERY_TIMEOUT);
            assert_eq!(arrival.end, Some(end));
            assert!(arrival.objects.len() < 30, "{}", arrival.objects.len());
        });
    }
}

#[test]
fn an_offer_is_taken_on_the_terms_of_the_subscriber() {
    each_pair(&Setting::default(), |stage, pair| {
        let [publisher, subscriber] = pair.clients(stage);
        stage.direct(subscriber, |actor| actor.taste = Ok(forward(false)));
        stage.collect(subscriber, space("a"), forward(false));
        let picky = client(stage, pair.subscriber);
        let range = Filter::AbsoluteRange {
            start: Location::new(200, 0),
            end: Location::new(201, ALL),
        };
        stage.direct(picky, |actor| {
            actor.taste = Ok(Parameters {
                filter: Some(range),
                ..Parameters::default()
            });
        });
        stage.collect(picky, space("a"), Parameters::default());
        stage.wait(millis(50));
        let none = Parameters::default();
        let publication = stage.publish_with(publisher, "a--x", none, properties(900));
        stage.step("publish", millis(100));
        let [paused, limited] = [subscriber, picky].map(|node| stage.offered(node, 0));
        for node in [subscriber, picky] {
            let (_, offer) = &stage.actor(node).offered[0];
            assert_eq!(offer.properties, properties(900));
        }
        for group in 199..202 {
            stage.group(publication, group, 2, 50);
        }
        stage.step("objects", millis(100));
        stage.expect_objects(paused, &[], 0, 0);
        stage.expect_objects(limited, &[200, 201], 2, 50);
        stage.update(paused, forward(true));
        stage.step("go on", millis(50));
        stage.group(publication, 202, 2, 50);
        stage.step("objects", millis(100));
        stage.expect_objects(paused, &[202], 2, 50);
        stage.expect_objects(limited, &[200, 201], 2, 50);
    });
}

#[test]
fn names_status_and_requests_for_new_groups_reach_the_other_side() {
    each_pair(&Setting::default(), |stage, pair| {
        let [publisher, subscriber] = pair.clients(stage);
        let largest = Location::new(300, 200);
        stage.direct(publisher, |actor| {
            actor.archive.standing = Some(Ok(largest));
        });
        let watch = stage.watch(subscriber, space("a"));
        stage.wait(millis(50));
        let announcement = stage.announce(publisher, "a-b");
        stage.step("announce", millis(50));
        let status = stage.track_status(subscriber, "a-b--x");
        stage.step("ask for a track", millis(100));
        let answer = stage.outcome(status).answer.clone().expect("an answer");
        assert_eq!(answer.unwrap().largest_object, Some(largest));
        stage.cancel(announcement);
        stage.step("withdraw", millis(50));
        let heard = [Came(space("b")), Went(space("b"))];
        assert_eq!(stage.heard(watch), heard);

        let dynamic = Properties::builder().int(0x30, 1).build();
        let none = Parameters::default();
        let publication = stage.publish_with(publisher, "c--x", none, dynamic);
        stage.wait(millis(50));
        stage.group(publication, 300, 1, 50);
        stage.wait(millis(50));
        let wish = Parameters {
            new_group_request: Some(301),
            ..Parameters::default()
        };
        let subscription = stage.subscribe_with(subscriber, "c--x", wish);
        stage.step("wish for a group", millis(100));
        let ok = stage
            .outcome(subscription)
            .ok
            .clone()
            .expect("it is granted");
        assert_eq!(ok.parameters.largest_object, Some(Location::new(300, 0)));
        let updates = stage.outcome(publication).updates.iter();
        let wishes: Vec<_> = updates.filter_map(|it| it.new_group_request).collect();
        assert_eq!(wishes, [301]);
    });
}

#[test]
fn a_link_between_relays_translates_too() {
    for draft in Draft::ALL {
        println!("a link in {}", draft.alpn());
        let [newest, oldest] = [Draft::Draft22, Draft::Draft18];
        for (publisher, subscriber) in [(newest, oldest), (oldest, newest)] {
            let mut stage = Stage::new(seed(), Setting::default());
            let stage = &mut stage;
            stage.draft = draft;
            let edge = stage.edge(&[stage.relay]);
            stage.await_links(edge);
            stage.draft = publisher;
            let publication = published(stage, 5);
            stage.draft = subscriber;
            let node = stage.client_at(edge);
            let subscription = stage.subscribe(node, "a--x");
            stage.step("subscribe at the edge", millis(200));
            let kind = FetchKind::RelativeJoining {
                request_id: subscription.id.0,
                groups: 1,
            };
            let join = stage.fetch_with(node, kind, Parameters::default());
            let fetch = stage.fetch(node, "a--x", (0, 0), (1, ALL));
            stage.step("and fetch", millis(300));
            whole_group(stage, publication, 5);
            stage.datagram(publication, 6, 0, b"datagram");
            stage.step("the track goes on", millis(200));
            expect_fetched(stage, join, 3..5);
            expect_fetched(stage, fetch, 0..2);
            stage.expect_objects(subscription, &[5], 3, 500);
            let places = stage.outcome(subscription).datagram_places();
            assert_eq!(places, [(6, 0)]);
        }
    }
}

#[test]
fn the_newest_draft_that_both_have_is_spoken() {
    story(&Setting::default(), |stage| {
        let cases = [
            (Draft::ALL.to_vec(), Draft::Draft22),
            (vec![Draft::Draft18, Draft::Draft20], Draft::Draft20),
            (vec![Draft::Draft18], Draft::Draft18),
        ];
        for (offered, spoken) in cases {
            let offered: Vec<&str> = offered.into_iter().map(Draft::alpn).collect();
            let node = stage.absent_client();
            let relay = stage.sim.address(stage.relay);
            let actor = Actor::new(&stage.sim, relay, Setup::default(), spoken);
            let config = stage.sim.client_config(&offered);
            stage.sim.start(node, actor.with_config(config));
            stage.step("connect", secs(1));
            assert_eq!(stage.actor(node).draft(), spoken);
        }
        let relay: &Relay = stage.sim.app(stage.relay);
        assert_eq!(relay.sessions_by_draft(), [1, 0, 1, 0, 1]);
    });
}
