//! Aliases, tokens, data streams and datagrams that break the rules.

use super::*;

fn with_type(stream_type: u64) -> BytesMut {
    let mut out = BytesMut::new();
    varint::encode(stream_type, &mut out);
    out
}

fn with_token(request_id: u64, token: Token) -> Message {
    let parameters = Parameters {
        authorization_tokens: vec![token],
        ..Parameters::default()
    };
    Message::Subscribe(Subscribe {
        request_id,
        track: track("t"),
        parameters,
    })
}

#[test]
fn aliases_and_tokens() {
    violation(SERVER, SessionError::DUPLICATE_TRACK_ALIAS).check(&[
        ("an alias of another track in PUBLISH", |pair, _| {
            pair.peer_opens(SERVER, Direction::Bi, &[publish(0, "t", 1)]);
            pair.peer_opens(SERVER, Direction::Bi, &[publish(2, "u", 1)]);
        }),
        ("an alias of another track in SUBSCRIBE_OK", |pair, _| {
            own_subscribe(pair);
            pair.peer_opens(SERVER, Direction::Bi, &[publish(0, "u", 1)]);
            pair.peer_sends(SERVER, OWN, &[Message::SubscribeOk(subscribe_ok(1))]);
        }),
    ]);
    violation(SERVER, SessionError::DUPLICATE_AUTH_TOKEN_ALIAS).check(&[(
        "a token alias registered twice",
        |pair, _| {
            for id in [0, 2] {
                pair.peer_opens(SERVER, Direction::Bi, &[with_token(id, register(1, 4))]);
            }
        },
    )]);
    violation(SERVER, SessionError::AUTH_TOKEN_CACHE_OVERFLOW).check(&[(
        "more tokens than the cache holds",
        |pair, _| {
            pair.peer_opens(SERVER, Direction::Bi, &[with_token(0, register(1, 24))]);
            assert_eq!(pair.closed(SERVER), None, "at the limit");
            pair.peer_opens(SERVER, Direction::Bi, &[with_token(2, register(2, 0))]);
        },
    )]);
    violation(SERVER, SessionError::UNKNOWN_AUTH_TOKEN_ALIAS).check(&[
        ("a token alias nobody registered", |pair, _| {
            let token = Token::UseAlias { alias: 9 };
            pair.peer_opens(SERVER, Direction::Bi, &[with_token(0, token)]);
        }),
        ("a deleted token alias", |pair, _| {
            let token = Token::Delete { alias: 9 };
            pair.peer_opens(SERVER, Direction::Bi, &[with_token(0, token)]);
        }),
    ]);
    violation(SERVER, SessionError::MALFORMED_AUTH_TOKEN).check(&[(
        "a token twice in an update",
        |pair, _| {
            let authorization_tokens = vec![register(1, 4), Token::UseAlias { alias: 1 }];
            let parameters = Parameters {
                authorization_tokens,
                ..Parameters::default()
            };
            let update = Message::RequestUpdate(RequestUpdate {
                request_id: 2,
                parameters,
            });
            pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t"), update]);
        },
    )]);
}

#[test]
fn types() {
    violation(SERVER, SessionError::PROTOCOL_VIOLATION).check(&[
        ("an unknown stream type", |pair, _| {
            uni(pair, SERVER, &with_type(0x2E00));
        }),
        ("a reserved subgroup type", |pair, _| {
            uni(pair, SERVER, &[0x16]);
        }),
        ("a stream type cut off by FIN", |pair, _| {
            let stream = uni(pair, SERVER, &[0x80]);
            pair.peer_finishes(SERVER, stream);
        }),
        ("an unknown datagram type", |pair, _| {
            pair.datagram_bytes(SERVER, Bytes::from_static(&[0x22, 0, 0]));
        }),
        ("an empty datagram", |pair, _| {
            pair.datagram_bytes(SERVER, Bytes::new());
        }),
        ("a datagram cut off", |pair, _| {
            pair.datagram_bytes(SERVER, Bytes::from_static(&[0x00, 1]));
        }),
    ]);
}

#[test]
fn objects_and_fetches() {
    violation(SERVER, SessionError::PROTOCOL_VIOLATION).check(&[
        ("an object cut off by FIN", |pair, _| {
            pair.peer_opens(SERVER, Direction::Bi, &[publish(0, "t", 7)]);
            let data = subgroup(7, 0);
            let stream = uni(pair, SERVER, &data[..data.len() - 1]);
            pair.peer_finishes(SERVER, stream);
        }),
        ("an object ID beyond the last", |pair, _| {
            pair.peer_opens(SERVER, Direction::Bi, &[publish(0, "t", 7)]);
            let mut out = BytesMut::new();
            header(7, 0).encode(draft(), &mut out);
            object(u64::MAX, 0).encode_in_subgroup(None, false, draft(), &mut out);
            out.extend_from_slice(&[0, 0, 0]);
            uni(pair, SERVER, &out);
        }),
        ("a fetch stream for no request", |pair, _| {
            let mut out = BytesMut::new();
            FetchHeader { request_id: 1 }.encode(draft(), &mut out);
            uni(pair, SERVER, &out);
        }),
        ("a fetch stream for a subscription", |pair, _| {
            own_subscribe(pair);
            let mut out = BytesMut::new();
            FetchHeader { request_id: 1 }.encode(draft(), &mut out);
            uni(pair, SERVER, &out);
        }),
        ("two streams for one fetch", |pair, _| {
            own_fetch(pair);
            let mut out = BytesMut::new();
            FetchHeader { request_id: 1 }.encode(draft(), &mut out);
            uni(pair, SERVER, &out);
            uni(pair, SERVER, &out);
        }),
    ]);
}
