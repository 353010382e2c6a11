//! Authorization tokens and their cache.

use weir_moqt::message::Message;

use super::closes;
use crate::{
    case::Case,
    edition::in_both,
    script::{A, B, Check, Progress, Script, Step, answered, closed, ok, progress, refused},
    seen::{Ended, Seen, Slot},
    wire::{Request, Value, close, int, parameter},
};

pub(super) fn cases() -> Vec<Case> {
    let undecodable: [(&str, &[u8]); 3] = [
        ("unknown-type", &[9, 1]),
        ("empty", &[]),
        ("without-alias", &[2]),
    ];
    let undecodable = undecodable.into_iter();
    let mut cases: Vec<Case> = undecodable
        .map(|(name, token)| {
            closes(
                format!("token.{name}"),
                in_both("10.2.2", "8.9"),
                "a token that cannot be decoded closes the session",
                &[close::KEY_VALUE_FORMATTING_ERROR],
                move |script| {
                    let token = (parameter::AUTHORIZATION_TOKEN, Value::Bytes(token.to_vec()));
                    Request::Subscribe.encode(0, &script.track, &[token])
                },
            )
        })
        .collect();
    cases.push(Case::must(
        "token.alias-not-registered",
        in_both("10.2.2", "8.9"),
        "a message that refers to a token alias that is not registered is rejected",
        |script| {
            script.join(A);
            script.then();
            let token = (parameter::AUTHORIZATION_TOKEN, Value::Bytes(vec![2, 77]));
            let track = script.track.clone();
            let slot = script.request_with(A, Request::Subscribe, track, vec![token]);
            script.expect(A, rejected(slot));
        },
    ));
    cases.push(Case::must(
        "token.cache-overflow",
        in_both("10.2.2", "8.9"),
        "a token beyond the token cache closes the session with AUTH_TOKEN_CACHE_OVERFLOW",
        |script| {
            script.join(A);
            script.then();
            register(script, 1, |room| room.saturating_sub(15));
            script.expect(A, closed(&[close::AUTH_TOKEN_CACHE_OVERFLOW]));
        },
    ));
    cases.push(Case::must(
        "token.alias-registered-twice",
        in_both("10.2.2", "8.9"),
        "a token alias that is registered already closes the session with DUPLICATE_AUTH_TOKEN_ALIAS",
        |script| {
            script.join(A);
            script.then();
            register(script, 1, |_| 4);
            register(script, 2, |_| 5);
            script.expect(A, closed(&[close::DUPLICATE_AUTH_TOKEN_ALIAS]));
        },
    ));
    cases.extend(registered());
    cases.extend(filled());
    cases.extend(accepted());
    cases
}

/// Registers a token of an eighth of the cache under the alias `number` in the request of that number.
fn register_eighth(script: &mut Script, number: u64) -> Slot {
    with_token(script, number, move |room| {
        let bytes = (room / 8).saturating_sub(16);
        if bytes > 60_000 || !room.is_multiple_of(8) {
            return Err("the relay's cache for tokens is not eight messages".to_owned());
        }
        let value = vec![b'x'; usize::try_from(bytes).unwrap_or(usize::MAX)];
        Ok([int(1), int(number), int(0), value].concat())
    })
}

/// Tokens that fill the cache, and one more.
fn filled() -> Vec<Case> {
    fn fill(script: &mut Script) {
        script.join(A);
        for number in 1..=8 {
            let slot = register_eighth(script, number);
            script.expect(A, answered(slot));
        }
    }
    vec![
        Case::must(
            "token.cache-filled",
            in_both("10.3.1.3", "9.1.3"),
            "tokens that fill the cache to its last byte do not close the session",
            |script| {
                script.then();
                fill(script);
            },
        ),
        Case::must(
            "token.cache-overflow-by-many",
            in_both("10.2.2", "8.9"),
            "a token for which registered ones leave no room closes the session with AUTH_TOKEN_CACHE_OVERFLOW",
            |script| {
                fill(script);
                script.then();
                register_eighth(script, 9);
                script.expect(A, closed(&[close::AUTH_TOKEN_CACHE_OVERFLOW]));
            },
        ),
    ]
}

/// The session is closed for the unknown alias, or the request is refused.
fn rejected(slot: Slot) -> Check {
    let text = "REQUEST_ERROR, or the session closed with UNKNOWN_AUTH_TOKEN_ALIAS";
    Check::new(text, move |seen| {
        if let Some(Ended { code, .. }) = &seen.ended
            && *code == Some(close::UNKNOWN_AUTH_TOKEN_ALIAS)
        {
            return Progress::Met;
        }
        match seen.next_message(slot) {
            Some(Message::RequestError(_)) => Progress::Met,
            Some(other) => Progress::Broken(format!("the relay sent {}", other.kind().name())),
            None => progress(false),
        }
    })
}

/// Registers a token under alias 5 in the request with the number `number`. `bytes` tells the length of its value, given
/// the size of the relay's token cache. Skips the case if the relay has none. Returns the request.
fn register(script: &mut Script, number: u64, bytes: fn(u64) -> u64) -> Slot {
    with_token(script, number, move |room| {
        let bytes = bytes(room);
        if bytes > 60_000 {
            return Err("the relay's cache for tokens is larger than a message".to_owned());
        }
        let value = vec![b'x'; usize::try_from(bytes).unwrap_or(usize::MAX)];
        Ok([int(1), int(5), int(0), value].concat())
    })
}

/// Sends TRACK_STATUS number `number` with the token that `token` returns, given the size of the relay's token cache. Skips
/// the case if the relay has none. Returns the request.
fn with_token(
    script: &mut Script,
    number: u64,
    token: impl Fn(u64) -> Result<Vec<u8>, String> + Send + 'static,
) -> Slot {
    let track = script.track.clone();
    let slot = script.bi();
    let reply = move |seen: &Seen| {
        let setup = seen.setup();
        let room = setup.and_then(|setup| setup.max_auth_token_cache_size);
        let room = room.unwrap_or(0);
        if room < 64 {
            return Err("the relay has no cache for tokens".to_owned());
        }
        let token = (parameter::AUTHORIZATION_TOKEN, Value::Bytes(token(room)?));
        Ok(Request::TrackStatus.encode(2 * (number - 1), &track, &[token]))
    };
    script.step(Step::Reply(A, slot, Box::new(reply)));
    slot
}

const DELETE: u8 = 0;
const USE_ALIAS: u8 = 2;

/// Returns a token that names the alias.
fn of_alias(kind: u8) -> impl Fn(u64) -> Result<Vec<u8>, String> + Send {
    move |_| Ok(vec![kind, 5])
}

/// Tokens that are registered, used and deleted. The track is published, so that requests for it succeed.
fn registered() -> Vec<Case> {
    /// Joins, and registers a token.
    fn begin(script: &mut Script) {
        script.publish(B);
        script.join(A);
        let slot = register(script, 1, |_| 4);
        script.expect(A, ok(slot));
    }
    vec![
        Case::must(
            "token.alias-used",
            in_both("10.2.2", "8.9"),
            "a registered alias stands for its token in later requests",
            |script| {
                begin(script);
                script.then();
                for number in [2, 3] {
                    let slot = with_token(script, number, of_alias(USE_ALIAS));
                    script.expect(A, ok(slot));
                }
            },
        ),
        Case::must(
            "token.alias-deleted",
            in_both("10.2.2", "8.9"),
            "a message that refers to a deleted token alias is rejected",
            |script| {
                begin(script);
                let slot = with_token(script, 2, of_alias(DELETE));
                script.expect(A, answered(slot));
                script.then();
                let slot = with_token(script, 3, of_alias(USE_ALIAS));
                script.expect(A, rejected(slot));
            },
        ),
        Case::must(
            "token.alias-registered-again",
            in_both("10.2.2", "8.9"),
            "a deleted token alias can be registered again",
            |script| {
                begin(script);
                let slot = with_token(script, 2, of_alias(DELETE));
                script.expect(A, answered(slot));
                script.then();
                let slot = register(script, 3, |_| 6);
                script.expect(A, ok(slot));
                let slot = with_token(script, 4, of_alias(USE_ALIAS));
                script.expect(A, ok(slot));
            },
        ),
    ]
}

/// Tokens of requests that fail, and of a type that nobody knows.
fn accepted() -> Vec<Case> {
    vec![
        Case::must(
            "token.registered-by-failed-request",
            in_both("10.2.2", "8.9"),
            "a token is registered although its request fails",
            |script| {
                script.join(A);
                let slot = register(script, 1, |_| 4);
                script.expect(A, refused(slot, &[]));
                script.publish(B);
                script.then();
                let slot = with_token(script, 2, of_alias(USE_ALIAS));
                script.expect(A, ok(slot));
            },
        ),
        Case::must(
            "token.unknown-token-type",
            in_both("14", "13"),
            "a token of an unknown token type does not close the session",
            |script| {
                script.join(A);
                script.then();
                let value = [int(3), int(0x9D), b"x".to_vec()].concat();
                let token = (parameter::AUTHORIZATION_TOKEN, Value::Bytes(value));
                let track = script.track.clone();
                let slot = script.request_with(A, Request::TrackStatus, track, vec![token]);
                script.expect(A, answered(slot));
                script.alive(A);
            },
        ),
    ]
}
