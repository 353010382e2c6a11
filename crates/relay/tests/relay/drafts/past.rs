//! Past objects between drafts: FETCH, joining fetches and fills, and the marks of what is unknown.

use weir_moqt::{
    data::{FetchEntry, RangeEnd},
    error::{PublishDoneCode, RequestErrorCode},
    location::Location,
    message::FetchKind,
    parameter::{Filter, GroupOrder, Parameters},
    session::Refused,
};

use super::{client, each_pair, expect_fetched, has_fills, properties};
use crate::{
    archive::{ALL, Fetched, Serving, standalone},
    fetching::{all_of, published, whole_group},
    stage::{Asked, Setting, millis, name},
};

/// Returns the ends of ranges without objects, and why nothing is there.
fn gaps(fetched: &Fetched) -> Vec<(RangeEnd, Location)> {
    let entries = fetched.entries.iter();
    let gaps = entries.filter_map(|(entry, _)| match entry {
        &FetchEntry::EndOfRange { reason, location } => Some((reason, location)),
        FetchEntry::Object(_) => None,
    });
    gaps.collect()
}

#[test]
fn the_same_range_is_fetched() {
    each_pair(&Setting::default(), |stage, pair| {
        stage.draft = pair.publisher;
        published(stage, 5);
        let subscriber = client(stage, pair.subscriber);
        let up = stage.fetch(subscriber, "a--x", (1, 1), (3, ALL));
        let descending = Parameters {
            group_order: Some(GroupOrder::Descending),
            ..Parameters::default()
        };
        let kind = standalone("a--x", (1, 1), (3, 1));
        let down = stage.fetch_with(subscriber, kind, descending);
        let beyond = stage.fetch(subscriber, "a--x", (9, 0), (9, ALL));
        let nothing = stage.fetch(subscriber, "b--x", (0, 0), (0, ALL));
        stage.step("fetches", millis(200));
        assert_eq!(stage.expect_complete(up), Location::new(3, ALL));
        let mut expected = all_of(1..4);
        expected.remove(0);
        assert_eq!(stage.fetched(up).places(500), expected);
        assert_eq!(stage.expect_complete(down), Location::new(3, 1));
        let expected = [(3, 0), (3, 1), (2, 0), (2, 1), (2, 2), (1, 1), (1, 2)];
        assert_eq!(stage.fetched(down).places(500), expected);
        let code = RequestErrorCode::INVALID_RANGE;
        assert_eq!(stage.refusal(beyond), Some(code));
        let code = RequestErrorCode::DOES_NOT_EXIST;
        assert_eq!(stage.refusal(nothing), Some(code));

        let kind = FetchKind::Recent {
            track: name("a--x"),
            groups: 1,
        };
        let recent = stage.act(subscriber, |session, connection| {
            session.fetch(connection, kind, Parameters::default())
        });
        if has_fills(pair.subscriber) {
            let id = stage.noted(subscriber, recent);
            let recent = Asked {
                node: subscriber,
                id,
                alias: 0,
            };
            stage.step("the last two groups", millis(200));
            expect_fetched(stage, recent, 3..5);
        } else {
            assert_eq!(recent, Err(Refused::NotInDraft));
        }
    });
}

#[test]
fn what_the_relay_lacks_is_fetched_from_the_publisher() {
    each_pair(&Setting::default(), |stage, pair| {
        let [publisher, subscriber] = pair.clients(stage);
        stage.direct(publisher, |actor| {
            actor.archive.fill(200, 203, 3, 500);
            actor.archive.properties = properties(900);
            actor.archive.serving = Serving::Serve;
        });
        stage.announce(publisher, "a");
        stage.wait(millis(50));
        let ranges = [((201, 1), (202, ALL)), ((203, 2), (203, 2))];
        for (start, end) in ranges {
            let fetch = stage.fetch(subscriber, "a--x", start, end);
            stage.step("a range", millis(200));
            assert_eq!(stage.expect_complete(fetch), Location::new(end.0, end.1));
            let ok = stage.fetched(fetch).ok.as_ref().expect("it is granted");
            assert_eq!(ok.properties, properties(900));
            let mut expected = all_of(start.0..=end.0);
            expected.retain(|place| (start..=end).contains(place));
            assert_eq!(stage.fetched(fetch).places(500), expected);
        }
        let at = |(group, object)| Location::new(group, object);
        let expected = ranges.map(|(start, end)| (at(start), at(end)));
        assert_eq!(stage.fetched_from(publisher), expected);
        let code = RequestErrorCode::UNAUTHORIZED;
        stage.direct(publisher, |actor| {
            actor.archive.serving = Serving::Decline(code);
        });
        let fetch = stage.fetch(subscriber, "a--y", (200, 0), (200, ALL));
        stage.step("is refused", millis(200));
        assert_eq!(stage.refusal(fetch), Some(code));
    });
}

#[test]
fn a_late_subscriber_gets_the_past_by_a_joining_fetch_or_a_fill() {
    each_pair(&Setting::default(), |stage, pair| {
        stage.draft = pair.publisher;
        let publication = published(stage, 6);
        let subscriber = client(stage, pair.subscriber);
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(50));
        let request_id = subscription.id.0;
        let groups = 1;
        let relative = FetchKind::RelativeJoining { request_id, groups };
        let absolute = FetchKind::AbsoluteJoining {
            request_id,
            start: Location::new(2, 0),
            end: Location::MAX,
        };
        let [relative, absolute] = [relative, absolute]
            .map(|kind| stage.fetch_with(subscriber, kind, Parameters::default()));
        stage.step("join the past", millis(100));
        whole_group(stage, publication, 6);
        stage.step("the track goes on", millis(100));
        expect_fetched(stage, relative, 4..6);
        expect_fetched(stage, absolute, 2..6);
        stage.expect_objects(subscription, &[6], 3, 500);
        assert_eq!(stage.counters().fetches_served, 2);
        stage.publish_done(publication, 7);
        stage.step("the end", millis(500));
        let done = stage.outcome(subscription).done.as_ref();
        let done = done.expect("it was told");
        assert_eq!(done.code, PublishDoneCode::TRACK_ENDED);
        let fills = if has_fills(pair.subscriber) { 2 } else { 0 };
        assert_eq!(done.stream_count, Some(1 + fills));
    });
}

#[test]
fn a_subscribe_may_ask_for_its_fill_where_the_draft_has_fills() {
    each_pair(&Setting::default(), |stage, pair| {
        stage.draft = pair.publisher;
        published(stage, 3);
        let subscriber = client(stage, pair.subscriber);
        let fill = Parameters {
            filter: Some(Filter::AbsoluteStart(Location::new(1, 0))),
            ..Parameters::default()
        };
        let parameters = Parameters {
            filter: Some(Filter::LargestObject),
            fill: Some(Box::new(fill)),
            ..Parameters::default()
        };
        let subscribed = stage.act(subscriber, |session, connection| {
            session.subscribe(connection, name("a--x"), parameters)
        });
        stage.step("subscribe", millis(200));
        if has_fills(pair.subscriber) {
            assert!(subscribed.is_ok());
        } else {
            assert_eq!(subscribed, Err(Refused::NotInDraft));
        }
        let fills = u64::from(has_fills(pair.subscriber));
        assert_eq!(stage.counters().fetches_served, fills);
    });
}

#[test]
fn what_stays_unknown_is_marked_with_the_reason_that_the_draft_has() {
    each_pair(&Setting::default(), |stage, pair| {
        let [publisher, subscriber] = pair.clients(stage);
        stage.direct(publisher, |actor| {
            actor.archive.fill(0, 3, 3, 500);
            actor.archive.serving = Serving::Serve;
        });
        stage.announce(publisher, "a");
        stage.wait(millis(50));
        stage.fetch(subscriber, "a--x", (2, 0), (2, ALL));
        stage.step("one group", millis(200));
        let timed_out = if has_fills(pair.subscriber) {
            RangeEnd::TimedOut
        } else {
            RangeEnd::Unknown
        };
        let declines = Serving::Decline(RequestErrorCode::INTERNAL_ERROR);
        for (serving, reason) in [(Serving::Ignore, timed_out), (declines, RangeEnd::Unknown)] {
            stage.direct(publisher, |actor| actor.archive.serving = serving);
            let kind = standalone("a--x", (1, 0), (2, ALL));
            let parameters = Parameters {
                fill_timeout: Some(millis(300)),
                ..Parameters::default()
            };
            let fetch = stage.fetch_with(subscriber, kind, parameters);
            stage.step("a fetch of more", millis(600));
            assert_eq!(stage.expect_complete(fetch).group, 2);
            let fetched = stage.fetched(fetch);
            assert_eq!(fetched.places(500), all_of(2..3));
            assert_eq!(gaps(fetched), [(reason, Location::new(1, ALL))]);
        }
    });
}
