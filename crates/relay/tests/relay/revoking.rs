//! Rights that end or are reserved while sessions live: revoked keys, tokens shown often, owners of namespaces.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    parameter::Parameters,
    token::Token,
};
use weir_quic::Lost;
use weir_relay::{Authority, Credentials, Denial, Grant, Load, Relay, TokenMemo, Verdict};

use crate::{
    authorising::{UNAUTHORIZED, client_with, token, with_token},
    stage::{Setting, Stage, millis, secs},
};

/// An authority of keys that can be revoked; it counts how often it verifies a token. A token is the name of a key, or
/// of an owner such as `own:alice`.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    revoked: Mutex<Vec<Bytes>>,
    pub(crate) verified: AtomicU64,
}

impl Keys {
    pub(crate) fn revoke(&self, key: &str) {
        let key = Bytes::copy_from_slice(key.as_bytes());
        self.revoked().push(key);
    }

    fn revoked(&self) -> MutexGuard<'_, Vec<Bytes>> {
        self.revoked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Authority for Keys {
    fn grant(
        &self,
        _now: Instant,
        credentials: &Credentials,
        memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial> {
        let revoked = self.revoked();
        let all = credentials
            .session_tokens
            .iter()
            .chain(&credentials.request_tokens);
        all.map(|token| {
            memo.judge(revoked.len() as u64, &token.value, || {
                self.verified.fetch_add(1, Ordering::Relaxed);
                let text = String::from_utf8_lossy(&token.value);
                let grant = Grant {
                    owner: text.strip_prefix("own:").map(str::to_owned),
                    ..Grant::everything()
                };
                let is_revoked = revoked.contains(&token.value);
                Verdict::Final((!is_revoked).then_some(grant).ok_or(Denial::Unauthorized))
            })
        })
        .collect()
    }

    fn revision(&self) -> u64 {
        self.revoked().len() as u64
    }
}

pub(crate) fn with_keys(keys: &Arc<Keys>) -> Setting {
    let mut setting = Setting {
        authority: Arc::clone(keys) as _,
        ..Setting::default()
    };
    setting.client.keep_alive = Some(secs(10));
    setting
}

fn calm() -> Load {
    Load::default()
}

#[test]
fn a_revoked_key_ends_live_sessions_and_requests() {
    let told = |keys: &Arc<Keys>, stage: &mut Stage| {
        let good = client_with(stage, &["good"]);
        let bad = client_with(stage, &["stolen"]);
        let mixed = client_with(stage, &["good"]);
        let published = stage.publish(good, "a--x");
        let announced = stage.announce_with(mixed, "b", with_token("stolen"));
        stage.wait(millis(100));
        let by_session = stage.subscribe(mixed, "a--x");
        let lost = stage.subscribe(bad, "a--x");
        stage.step("before", millis(100));
        let all = [published, announced, by_session, lost];
        assert!(all.iter().all(|&it| stage.is_accepted(it)));
        stage.load(calm());
        stage.step("nothing changes", millis(100));
        assert_eq!(stage.gauges().sessions, 3);
        keys.revoke("stolen");
        stage.load(calm());
        stage.step("a key is revoked", millis(100));
        let counters = stage.counters();
        assert_eq!(
            (counters.sessions_revoked, counters.requests_revoked),
            (1, 1)
        );
        let Some(Lost::Application { code, .. }) = &stage.actor(bad).lost else {
            panic!("the session stays");
        };
        assert_eq!(*code, SessionError::UNAUTHORIZED.0);
        assert_eq!(stage.gauges().namespaces, 0);
        stage.datagram(published, 1, 0, b"object");
        stage.step("the others go on", millis(100));
        assert_eq!(stage.outcome(by_session).datagram_places(), [(1, 0)]);
        let again = stage.announce_with(mixed, "b", with_token("stolen"));
        stage.wait(millis(100));
        assert_eq!(stage.refusal(again), UNAUTHORIZED);
    };
    for _ in 0..2 {
        let keys = Arc::new(Keys::default());
        let mut stage = Stage::new(crate::stage::seed(), with_keys(&keys));
        told(&keys, &mut stage);
    }
}

#[test]
fn a_token_is_verified_once_in_a_session_however_often_it_is_shown() {
    let keys = Arc::new(Keys::default());
    let mut stage = Stage::new(crate::stage::seed(), with_keys(&keys));
    let node = client_with(&mut stage, &["good"]);
    assert_eq!(keys.verified.load(Ordering::Relaxed), 1);
    for number in 0..20 {
        // The same text as tokens of different types, as aliases of a registered one could be.
        let authorization_tokens = (0..8)
            .map(|kind| Token::UseValue {
                token_type: kind,
                value: Bytes::from_static(b"other"),
            })
            .collect();
        let parameters = Parameters {
            authorization_tokens,
            ..Parameters::default()
        };
        let asked = stage.announce_with(node, &format!("a-{number}"), parameters);
        stage.wait(millis(50));
        assert!(stage.is_accepted(asked));
    }
    assert_eq!(keys.verified.load(Ordering::Relaxed), 2);
    let parameters = Parameters {
        authorization_tokens: vec![token("good"); 9],
        ..Parameters::default()
    };
    let asked = stage.announce_with(node, "b", parameters);
    stage.wait(millis(50));
    let code = RequestErrorCode::MALFORMED_AUTH_TOKEN;
    assert_eq!(stage.refusal(asked), Some(code), "one past the limit");
}

#[test]
fn many_new_tokens_are_verified_in_pieces() {
    let keys = Arc::new(Keys::default());
    let mut stage = Stage::new(crate::stage::seed(), with_keys(&keys));
    let [many, one] = [(); 2].map(|()| client_with(&mut stage, &["good"]));
    let verified = || keys.verified.load(Ordering::Relaxed);
    assert_eq!(verified(), 2);
    let announced: Vec<_> = (0..40)
        .map(|number| {
            let parameters = with_token(&format!("token {number}"));
            stage.announce_with(many, &format!("a-{number}"), parameters)
        })
        .collect();
    let other = stage.announce(one, "b");
    // Requests arrive after 10 ms, and answers after 20 ms.
    stage.wait(millis(22));
    assert_eq!(verified(), 2 + 4, "the first piece");
    assert!(stage.is_accepted(other), "nobody else waits");
    stage.wait(millis(20));
    assert_eq!(verified(), 2 + 8, "the second one");
    stage.wait(millis(200));
    assert_eq!(verified(), 2 + 40);
    assert!(announced.iter().all(|&it| stage.is_accepted(it)));
    // What was granted is not verified again.
    let again = stage.announce_with(many, "c", with_token("token 39"));
    stage.wait(millis(22));
    assert!(stage.is_accepted(again));
    assert_eq!(verified(), 2 + 40);
    // Nobody waits if few come at a time.
    for round in 0..4 {
        let asked = [0, 1, 2].map(|number| {
            let parameters = with_token(&format!("later {round} {number}"));
            stage.announce_with(many, &format!("d-{round}-{number}"), parameters)
        });
        stage.wait(millis(22));
        assert!(asked.iter().all(|&it| stage.is_accepted(it)), "{round}");
    }
    assert_eq!(verified(), 2 + 40 + 12);
}

#[test]
fn a_namespace_is_reserved_to_its_owner_while_it_is_connected() {
    let keys = Arc::new(Keys::default());
    let mut setting = with_keys(&keys);
    setting.threads = 2;
    let mut stage = Stage::new(crate::stage::seed(), setting);
    let stage = &mut stage;
    let strangers: Vec<_> = (0..6).map(|_| client_with(stage, &["stranger"])).collect();
    let early: Vec<_> = strangers
        .iter()
        .map(|&it| stage.publish(it, "show--x"))
        .collect();
    let beside = stage.publish(strangers[0], "shows--x");
    stage.step("strangers publish", millis(100));
    assert!(early.iter().all(|&it| stage.is_accepted(it)));
    let owner = client_with(stage, &["own:alice"]);
    let viewer = client_with(stage, &["viewer"]);
    let published = stage.publish(owner, "show-camera--y");
    let all = stage.announce(owner, "show");
    stage.wait(millis(50));
    assert!(stage.is_accepted(published) && stage.is_accepted(all));
    for thread in stage.threads.clone() {
        stage
            .sim
            .with_app(thread, |now, relay: &mut Relay, endpoint| {
                relay.observe_load(now, endpoint, calm());
            });
    }
    stage.step("the owner comes, on either thread", millis(100));
    assert_eq!(stage.counters().requests_revoked, 6);
    let late = stage.publish(strangers[1], "show--z");
    let other = stage.announce(strangers[2], "show-camera");
    let seen = stage.subscribe(viewer, "show-camera--y");
    stage.step("strangers try again", millis(100));
    assert_eq!(stage.refusal(late), UNAUTHORIZED);
    assert_eq!(stage.refusal(other), UNAUTHORIZED);
    assert_eq!(stage.counters().refused_owned, 2);
    assert!(stage.is_accepted(seen), "anybody may watch");
    // The owner's second session is welcome, even if the first is lost.
    stage.sim.kill(owner);
    let back = client_with(stage, &["own:alice"]);
    let again = stage.publish(back, "show-camera--y");
    stage.wait(millis(50));
    assert!(stage.is_accepted(again));
    stage.sim.shutdown(back);
    stage.step("then both are gone", secs(4));
    let free = stage.publish(strangers[1], "show--z");
    stage.wait(millis(50));
    assert!(stage.is_accepted(free));
    assert!(stage.outcome(beside).error.is_none());
}
