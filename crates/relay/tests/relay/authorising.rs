//! Authorization: grants of sessions and of requests, their prefixes, and their expiry.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode, ResetCode, SessionError},
    location::Location,
    message::{FetchKind, Setup},
    name::Namespace,
    parameter::Parameters,
    property::Properties,
    session::CloseReason,
    token::Token,
};
use weir_quic::Lost;
use weir_relay::{Authority, Credentials, Denial, Grant, TokenMemo};

use crate::stage::{
    Asked, Setting, Stage, joining_draft, millis, name, rendezvous, secs, space, story,
};

/// An authority for tokens such as `publish:a-b:5`: an action, a namespace, and the validity in seconds.
#[derive(Debug)]
pub(crate) struct Doorkeeper;

impl Authority for Doorkeeper {
    fn grant(
        &self,
        now: Instant,
        credentials: &Credentials,
        _memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial> {
        let tokens = if credentials.request_tokens.is_empty() {
            &credentials.session_tokens
        } else {
            &credentials.request_tokens
        };
        let mut grant = Grant::default();
        if tokens.is_empty() && credentials.path.as_deref() != Some("/open?a") {
            return Err(Denial::Unauthorized);
        }
        if tokens.is_empty() {
            grant.subscribe.push(space("a"));
        }
        for token in tokens {
            let text = std::str::from_utf8(&token.value).map_err(|_| Denial::Malformed)?;
            let parts: Vec<&str> = text.split(':').collect();
            let &[verb, prefix, seconds] = parts.as_slice() else {
                return Err(Denial::Malformed);
            };
            let seconds: u64 = seconds.parse().map_err(|_| Denial::Malformed)?;
            if seconds == 0 {
                return Err(Denial::Expired);
            }
            let prefix = if prefix.is_empty() {
                Namespace::EMPTY
            } else {
                space(prefix)
            };
            match verb {
                "publish" => grant.publish.push(prefix),
                "subscribe" => grant.subscribe.push(prefix),
                _ => return Err(Denial::Unauthorized),
            }
            grant.expires = Some(now + secs(seconds));
        }
        Ok(vec![grant])
    }
}

fn guarded() -> Setting {
    Setting {
        authority: Arc::new(Doorkeeper),
        ..Setting::default()
    }
}

pub(crate) fn token(text: &str) -> Token {
    Token::UseValue {
        token_type: 0,
        value: Bytes::copy_from_slice(text.as_bytes()),
    }
}

pub(crate) fn with_token(text: &str) -> Parameters {
    Parameters {
        authorization_tokens: vec![token(text)],
        ..Parameters::default()
    }
}

pub(crate) fn client_with(stage: &mut Stage, tokens: &[&str]) -> weir_sim::NodeId {
    let node = stage.absent_client();
    let setup = Setup {
        authorization_tokens: tokens.iter().map(|text| token(text)).collect(),
        ..Setup::default()
    };
    stage.connect_with(node, &setup);
    node
}

/// Such a session holds a place, whatever else the relay refuses it.
#[test]
fn a_session_without_rights_has_to_show_some_in_time() {
    let mut setting = guarded();
    setting.relay.unauthorized_max = secs(10);
    setting.client.keep_alive = Some(secs(10));
    story(&setting, |stage| {
        let idle = stage.client();
        let refused = stage.client();
        let late = stage.client();
        let entitled = client_with(stage, &["subscribe:a:99"]);
        let asked = stage.subscribe(refused, "a--x");
        stage.step("ask for what is not permitted", secs(9));
        assert_eq!(stage.refusal(asked), UNAUTHORIZED);
        let parameters = Parameters {
            authorization_tokens: vec![token("publish:a:99")],
            ..Parameters::default()
        };
        let published = stage.publish_with(late, "a--x", parameters, Properties::EMPTY);
        stage.wait(millis(500));
        assert!(stage.is_accepted(published));
        assert_eq!(stage.counters().sessions_unauthorized, 0);
        stage.step("the time is over", secs(1));
        for node in [idle, refused] {
            let lost = stage.actor(node).lost.as_ref();
            let Some(Lost::Application { code, .. }) = lost else {
                panic!("{lost:?}");
            };
            assert_eq!(*code, SessionError::UNAUTHORIZED.0);
        }
        assert_eq!(stage.counters().sessions_unauthorized, 2);
        stage.step("the others stay, asking for nothing", secs(60));
        assert_eq!(stage.gauges().sessions, 2);
        assert!(stage.actor(late).lost.is_none() && stage.actor(entitled).lost.is_none());
    });
}

pub(crate) const UNAUTHORIZED: Option<RequestErrorCode> = Some(RequestErrorCode::UNAUTHORIZED);

#[test]
fn a_session_may_do_what_it_was_granted_and_nothing_else() {
    story(&guarded(), |stage| {
        let publisher = client_with(stage, &["publish:a-b:99"]);
        let subscriber = client_with(stage, &["subscribe:a:99"]);
        let inside = stage.publish(publisher, "a-b--x");
        let beside = stage.publish(publisher, "a-c--x");
        let above = stage.announce(publisher, "a");
        let below = stage.announce(publisher, "a-b-c");
        let own = stage.subscribe(publisher, "a-b--x");
        stage.step("publish and announce", millis(100));
        assert!(stage.is_accepted(inside) && stage.is_accepted(below));
        assert_eq!(stage.refusal(beside), UNAUTHORIZED);
        assert_eq!(stage.refusal(above), UNAUTHORIZED);
        assert_eq!(stage.refusal(own), UNAUTHORIZED);
        let wanted = stage.subscribe(subscriber, "a-b--x");
        let elsewhere = stage.subscribe(subscriber, "b--x");
        let offered = stage.publish(subscriber, "a-b--x");
        let status = stage.act(subscriber, |session, connection| {
            session.track_status(connection, name("b--x"), Parameters::default())
        });
        stage.step("subscribe", millis(100));
        assert!(stage.is_accepted(wanted));
        assert_eq!(stage.refusal(elsewhere), UNAUTHORIZED);
        assert_eq!(stage.refusal(offered), UNAUTHORIZED);
        let status = Asked {
            id: status.expect("there is room"),
            ..wanted
        };
        assert_eq!(stage.refusal(status), UNAUTHORIZED);
        assert_eq!(stage.counters().refused_unauthorized, 6);
        let left = stage
            .outcome(wanted)
            .ok
            .as_ref()
            .map(|ok| ok.parameters.expires);
        let left = left.flatten().expect("it is told when it ends");
        assert!(left > secs(90) && left <= secs(99));
    });
}

#[test]
fn a_path_may_be_a_credential_too() {
    story(&guarded(), |stage| {
        let publisher = client_with(stage, &["publish::99"]);
        let node = stage.absent_client();
        let setup = Setup {
            path: Some("/open?a".to_owned()),
            ..Setup::default()
        };
        stage.connect_with(node, &setup);
        stage.publish(publisher, "a--x");
        stage.wait(millis(100));
        let open = stage.subscribe(node, "a--x");
        let closed = stage.subscribe(node, "b--x");
        stage.step("subscribe", millis(100));
        assert!(stage.is_accepted(open));
        assert_eq!(stage.refusal(closed), UNAUTHORIZED);
    });
}

#[test]
fn a_request_may_bring_its_own_tokens_and_is_judged_by_them() {
    story(&guarded(), |stage| {
        let publisher = client_with(stage, &["publish::99"]);
        stage.publish(publisher, "a--x");
        let node = stage.client();
        let nothing = stage.subscribe(node, "a--x");
        let asked = ["subscribe:b:9", "subscribe:a:0", "what", "subscribe:a:9"]
            .map(|text| stage.subscribe_with(node, "a--x", with_token(text)));
        stage.step("subscribe with all sorts of tokens", millis(100));
        assert_eq!(stage.refusal(nothing), UNAUTHORIZED);
        assert_eq!(stage.refusal(asked[0]), UNAUTHORIZED);
        let expired = Some(RequestErrorCode::EXPIRED_AUTH_TOKEN);
        assert_eq!(stage.refusal(asked[1]), expired);
        let malformed = Some(RequestErrorCode::MALFORMED_AUTH_TOKEN);
        assert_eq!(stage.refusal(asked[2]), malformed);
        assert!(stage.is_accepted(asked[3]));
        let counters = stage.counters();
        let refused = (counters.refused_expired, counters.refused_malformed_token);
        assert_eq!((counters.refused_unauthorized, refused), (2, (1, 1)));
    });
}

#[test]
fn a_session_whose_own_tokens_are_denied_is_closed() {
    story(&guarded(), |stage| {
        for (text, code) in [
            ("subscribe:a:0", SessionError::EXPIRED_AUTH_TOKEN),
            ("what", SessionError::MALFORMED_AUTH_TOKEN),
            ("dance:a:9", SessionError::UNAUTHORIZED),
        ] {
            let node = stage.absent_client();
            let setup = Setup {
                authorization_tokens: vec![token(text)],
                ..Setup::default()
            };
            stage.begin(node, setup);
            stage.step(text, secs(1));
            let lost = stage.actor(node).lost.as_ref();
            let is_it = matches!(lost, Some(Lost::Application { code: c, .. }) if *c == code.0);
            assert!(is_it, "{text}: {lost:?}");
        }
        assert_eq!(stage.counters().sessions_denied, 3);
        assert_eq!(stage.gauges().sessions, 0);
    });
}

#[test]
fn everything_ends_with_its_authorization() {
    story(&guarded(), |stage| {
        let publisher = client_with(stage, &["publish::99"]);
        let brief = client_with(stage, &["publish:b:5", "subscribe:a:5"]);
        let source = stage.publish(publisher, "a--x");
        let announced = stage.announce(brief, "b");
        let published = stage.publish(brief, "b--y");
        stage.wait(millis(100));
        let subscribed = stage.subscribe(brief, "a--x");
        let waiting = stage.subscribe_with(brief, "a--z", rendezvous(secs(20)));
        stage.step("everything runs", secs(4));
        stage.group(source, 0, 3, 100);
        stage.step("the last objects", millis(500));
        stage.expect_objects(subscribed, &[0], 3, 100);
        stage.step("the time is over", secs(2));
        stage.group(source, 1, 3, 100);
        stage.step("objects for nobody", millis(500));
        stage.expect_objects(subscribed, &[0], 3, 100);
        let done = stage.outcome(subscribed).done.as_ref();
        assert_eq!(done.map(|done| done.code), Some(PublishDoneCode::EXPIRED));
        assert_eq!(done.and_then(|done| done.stream_count), Some(1));
        let expired = Some(RequestErrorCode::EXPIRED_AUTH_TOKEN);
        assert_eq!(stage.refusal(waiting), expired);
        for asked in [announced, published] {
            let closed = stage.outcome(asked).closed;
            let code = ResetCode::EXPIRED_AUTH_TOKEN;
            let is_it = matches!(closed,
                Some(CloseReason::Reset(found) | CloseReason::Stopped(found)) if found == code);
            assert!(is_it, "{closed:?}");
        }
        let late = stage.subscribe(brief, "a--x");
        stage.step(
            "the session is still there, and may do nothing",
            millis(100),
        );
        assert_eq!(stage.refusal(late), expired);
        let (counters, gauges) = (stage.counters(), stage.gauges());
        assert_eq!(
            (counters.requests_expired, counters.refused_expired),
            (4, 1)
        );
        let left = (gauges.sessions, gauges.tracks, gauges.namespaces);
        assert_eq!((left, gauges.subscriptions), ((2, 1, 0), 0));
    });
}

#[test]
fn a_subscription_is_extended_by_a_new_token_and_ends_by_a_bad_one() {
    story(&guarded(), |stage| {
        let publisher = client_with(stage, &["publish::99"]);
        let source = stage.publish(publisher, "a--x");
        stage.wait(millis(100));
        let nodes = [stage.client(), stage.client()];
        let asked =
            nodes.map(|node| stage.subscribe_with(node, "a--x", with_token("subscribe:a:5")));
        stage.step("two subscribe for a while", secs(4));
        stage.update(asked[0], with_token("subscribe:a:20"));
        stage.update(asked[1], with_token("subscribe:b:20"));
        stage.step("one extends it", secs(2));
        stage.group(source, 0, 3, 100);
        stage.step("objects", secs(1));
        stage.expect_objects(asked[0], &[0], 3, 100);
        stage.expect_objects(asked[1], &[], 0, 0);
        let done = stage.outcome(asked[1]).done.as_ref();
        assert_eq!(
            done.map(|done| done.code),
            Some(PublishDoneCode::UPDATE_FAILED)
        );
        let errors = &stage.outcome(asked[1]).update_errors;
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].code, RequestErrorCode::UNAUTHORIZED);
        stage.step("the second time is over, too", secs(20));
        let done = stage.outcome(asked[0]).done.as_ref();
        assert_eq!(done.map(|done| done.code), Some(PublishDoneCode::EXPIRED));
    });
}

#[test]
fn a_new_token_outlasts_that_of_the_session() {
    story(&guarded(), |stage| {
        let publisher = client_with(stage, &["publish::99"]);
        let source = stage.publish(publisher, "a--x");
        stage.wait(millis(100));
        let node = client_with(stage, &["subscribe:a:5"]);
        let asked = stage.subscribe(node, "a--x");
        stage.step("a session with a token for a while", secs(4));
        stage.update(asked, with_token("subscribe:a:20"));
        stage.step("its subscription has a better one", secs(3));
        stage.group(source, 0, 3, 100);
        stage.step("objects", secs(1));
        stage.expect_objects(asked, &[0], 3, 100);
        assert!(stage.outcome(asked).done.is_none());
    });
}

/// Subscribes with a token for five seconds to a track whose publisher never answers a FETCH.
fn with_a_past(stage: &mut Stage) -> Asked {
    let publisher = client_with(stage, &["publish::99"]);
    let begun = Parameters {
        largest_object: Some(Location::new(5, 0)),
        ..Parameters::default()
    };
    stage.publish_with(publisher, "a--x", begun, Properties::EMPTY);
    stage.wait(millis(100));
    let node = stage.client();
    let asked = stage.subscribe_with(node, "a--x", with_token("subscribe:a:5"));
    stage.wait(millis(100));
    asked
}

/// Sends a fetch that joins a subscription, with a long wait for publishers.
fn join(stage: &mut Stage, asked: Asked, tokens: &[&str]) -> Asked {
    let kind = FetchKind::AbsoluteJoining {
        request_id: asked.id.0,
        start: Location::ZERO,
        end: Location::MAX,
    };
    let parameters = Parameters {
        authorization_tokens: tokens.iter().map(|text| token(text)).collect(),
        fill_timeout: Some(secs(60)),
        ..Parameters::default()
    };
    stage.fetch_with(asked.node, kind, parameters)
}

#[test]
fn a_fetch_that_joins_a_subscription_stands_and_falls_with_it() {
    let mut setting = guarded();
    setting.draft = joining_draft();
    setting.relay.fill_max = secs(60);
    story(&setting, |stage| {
        let asked = with_a_past(stage);
        let fetch = join(stage, asked, &[]);
        let bad = ["what", "subscribe:b:9"].map(|text| join(stage, asked, &[text]));
        stage.step("fetches that wait for the publisher", secs(4));
        let malformed = Some(RequestErrorCode::MALFORMED_AUTH_TOKEN);
        assert_eq!(stage.refusal(bad[0]), malformed);
        assert_eq!(stage.refusal(bad[1]), UNAUTHORIZED);
        stage.update(asked, with_token("subscribe:a:10"));
        stage.step(
            "the subscription is extended, and the fetch with it",
            secs(3),
        );
        assert_eq!(stage.gauges().fetches, 1);
        assert!(stage.outcome(asked).done.is_none());
        stage.step("the time is over", secs(8));
        let done = stage.outcome(asked).done.as_ref();
        assert_eq!(done.map(|done| done.code), Some(PublishDoneCode::EXPIRED));
        assert_eq!(stage.gauges().fetches, 0);
        assert!(stage.outcome(fetch).closed.is_some() || stage.refusal(fetch).is_some());
    });
}

#[test]
fn a_fetch_that_gets_a_token_of_its_own_no_longer_falls_with_its_subscription() {
    let mut setting = guarded();
    setting.draft = joining_draft();
    setting.relay.fill_max = secs(60);
    story(&setting, |stage| {
        let asked = with_a_past(stage);
        let fetches = [(); 2].map(|()| join(stage, asked, &[]));
        stage.step("two fetches that join", millis(100));
        stage.update(fetches[0], with_token("subscribe:a:60"));
        stage.wait(millis(100));
        stage.update(asked, with_token("subscribe:a:5"));
        stage.step("one of them has its own token", secs(6));
        let done = stage.outcome(asked).done.as_ref();
        assert_eq!(done.map(|done| done.code), Some(PublishDoneCode::EXPIRED));
        assert_eq!(stage.gauges().fetches, 1);
        assert!(stage.outcome(fetches[0]).closed.is_none());
        assert!(stage.outcome(fetches[1]).closed.is_some());
        assert_eq!(stage.counters().requests_expired, 2);
    });
}

#[test]
fn a_fetch_that_joins_what_expires_before_it_is_there_is_told_so_once() {
    let mut setting = guarded();
    setting.draft = joining_draft();
    story(&setting, |stage| {
        let node = stage.client();
        let parameters = Parameters {
            rendezvous_timeout: Some(secs(20)),
            ..with_token("subscribe:a:5")
        };
        let asked = stage.subscribe_with(node, "a--x", parameters);
        stage.wait(millis(50));
        let fetch = join(stage, asked, &[]);
        stage.step("a subscription waits, and a fetch for it", secs(4));
        assert_eq!(stage.gauges().fetches, 1);
        stage.step("the time of both is over", secs(2));
        let expired = Some(RequestErrorCode::EXPIRED_AUTH_TOKEN);
        assert_eq!(stage.refusal(asked), expired);
        let joining = Some(RequestErrorCode::INVALID_JOINING_REQUEST_ID);
        assert_eq!(stage.refusal(fetch), joining);
        assert_eq!(stage.counters().requests_expired, 1);
        assert_eq!(stage.gauges().fetches, 0);
    });
}

#[test]
fn registered_tokens_fill_their_cache_and_not_a_byte_more() {
    let mut setting = guarded();
    let text = "subscribe:a:9";
    setting.relay.token_cache_bytes_max = 2 * (16 + text.len() as u64);
    story(&setting, |stage| {
        let publisher = client_with(stage, &["publish::99"]);
        for track in ["a--1", "a--2", "a--3", "a--4"] {
            stage.publish(publisher, track);
        }
        let node = stage.client();
        let register = |alias| Parameters {
            authorization_tokens: vec![Token::Register {
                alias,
                token_type: 0,
                value: Bytes::from_static(text.as_bytes()),
            }],
            ..Parameters::default()
        };
        let used = Parameters {
            authorization_tokens: vec![Token::UseAlias { alias: 1 }],
            ..Parameters::default()
        };
        let first = stage.subscribe_with(node, "a--1", register(1));
        let second = stage.subscribe_with(node, "a--2", register(2));
        stage.step("at the limit", millis(100));
        let again = stage.subscribe_with(node, "a--3", used);
        stage.step("by its alias", millis(100));
        for asked in [first, second, again] {
            assert!(stage.is_accepted(asked));
        }
        assert_eq!(stage.counters().sessions_token_overflow, 0);
        stage.subscribe_with(node, "a--4", register(3));
        stage.step("one past the limit", millis(100));
        assert_eq!(stage.counters().sessions_token_overflow, 1);
        let code = SessionError::AUTH_TOKEN_CACHE_OVERFLOW.0;
        let lost = stage.actor(node).lost.as_ref();
        assert!(matches!(lost, Some(Lost::Application { code: c, .. }) if *c == code));
    });
}
