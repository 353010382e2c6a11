use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::*;
use crate::error::{RequestErrorCode, SessionError, Violation};
use crate::name::TrackName;
use crate::parameter::{
    AUTHORIZATION_TOKENS_MAX, Filter, RangeCondition, RangeFilter, RangeFilterKind, Step,
};

const DRAFT: Draft = Draft::Draft18;

fn encode(message: &Message) -> Result<BytesMut, EncodeError> {
    let mut out = BytesMut::new();
    message.encode(DRAFT, &mut out)?;
    Ok(out)
}

/// Decodes the output of [`encode`] for one-byte types.
fn decode(encoded: &[u8]) -> Result<Message, DecodeError> {
    Message::decode(
        DRAFT,
        encoded[0].into(),
        &Bytes::copy_from_slice(&encoded[3..]),
    )
}

fn subscribe_ok(properties: Properties) -> Message {
    Message::SubscribeOk(SubscribeOk {
        track_alias: 0,
        parameters: Parameters::none(),
        properties,
    })
}

fn request_error(reason: String) -> RequestError {
    RequestError::new(RequestErrorCode::DOES_NOT_EXIST, reason)
}

fn with_tokens(count: usize) -> Message {
    let token = Token::UseAlias { alias: 1 };
    let parameters = Parameters {
        authorization_tokens: vec![token; count],
        ..Parameters::none()
    };
    Message::SubscribeNamespace(SubscribeNamespace {
        request_id: 0,
        prefix: Namespace::EMPTY,
        parameters,
    })
}

#[test]
fn a_message_carries_at_most_65535_bytes() {
    // Alias and parameters take a byte each, type and length of a long property four.
    let properties = |len| Properties::builder().bytes(0x0D, vec![0; len - 4]).build();
    let longest = subscribe_ok(properties(MESSAGE_BYTES_MAX - 2));
    let encoded = encode(&longest).expect("65535 bytes");
    assert_eq!(encoded.len(), 3 + MESSAGE_BYTES_MAX);
    assert_eq!(decode(&encoded), Ok(longest));

    let mut out = BytesMut::from(&b"before"[..]);
    let longer = subscribe_ok(properties(MESSAGE_BYTES_MAX - 1));
    let error = longer.encode(DRAFT, &mut out).expect_err("65536 bytes");
    assert_eq!(
        error,
        EncodeError::TooLong {
            kind: "SUBSCRIBE_OK",
            bytes: 65_536
        }
    );
    assert_eq!(&out[..], b"before");
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let cut = |reason: String| -> String {
        let encoded = encode(&Message::RequestError(request_error(reason))).expect("short enough");
        match decode(&encoded) {
            Ok(Message::RequestError(error)) => error.reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(cut("x".repeat(1024)), "x".repeat(1024));
    assert_eq!(cut("x".repeat(1025)), "x".repeat(1024));
    assert_eq!(cut("x".repeat(1023) + "é"), "x".repeat(1023));
    assert_eq!(cut("x".repeat(1022) + "é"), "x".repeat(1022) + "é");
}

#[test]
fn a_message_has_at_most_64_tokens() {
    let most = with_tokens(AUTHORIZATION_TOKENS_MAX);
    assert_eq!(decode(&encode(&most).expect("short")), Ok(most));
    let more = encode(&with_tokens(AUTHORIZATION_TOKENS_MAX + 1)).expect("short");
    let error = decode(&more).map_err(DecodeError::into_violation);
    assert_eq!(
        error.map_err(|violation| violation.code),
        Err(SessionError::INTERNAL_ERROR)
    );
}

#[test]
fn setup_has_at_most_64_tokens() {
    let setup = |count| {
        let token = Token::UseValue {
            token_type: 0,
            value: Bytes::new(),
        };
        let setup = Setup {
            authorization_tokens: vec![token; count],
            ..Setup::default()
        };
        let encoded = encode(&Message::Setup(setup)).expect("short");
        Message::decode(DRAFT, 0x2F00, &encoded.freeze().slice(4..))
    };
    assert!(setup(AUTHORIZATION_TOKENS_MAX).is_ok());
    let error = setup(AUTHORIZATION_TOKENS_MAX + 1).map_err(DecodeError::into_violation);
    assert_eq!(
        error.map_err(|violation| violation.code),
        Err(SessionError::INTERNAL_ERROR)
    );
}

#[test]
fn a_relay_of_a_fleet_names_itself() {
    let setup = Setup {
        fleet_relay: Some(u64::MAX),
        ..Setup::default()
    };
    let encoded = encode(&Message::Setup(setup.clone())).expect("short");
    let decoded = Message::decode(DRAFT, 0x2F00, &encoded.freeze().slice(4..));
    assert_eq!(decoded, Ok(Message::Setup(setup)));
}

#[test]
fn a_setup_option_too_long_for_a_message_is_reported() {
    let setup = Setup {
        implementation: Some("w".repeat(65_536)),
        ..Setup::default()
    };
    let error = encode(&Message::Setup(setup)).expect_err("too long");
    assert!(matches!(error, EncodeError::TooLong { kind: "SETUP", .. }));
}

#[test]
fn durations_too_long_for_the_wire_are_written_as_the_longest() {
    let forever = Some(Duration::MAX);
    let longest = Some(Duration::from_millis(u64::MAX));
    let goaway = GoAway {
        timeout: forever,
        ..GoAway::default()
    };
    let expected = GoAway {
        timeout: longest,
        ..GoAway::default()
    };
    let encoded = encode(&Message::GoAway(goaway)).expect("short");
    assert_eq!(decode(&encoded), Ok(Message::GoAway(expected)));

    let error = RequestError {
        retry_after: forever,
        ..request_error(String::new())
    };
    let expected = RequestError {
        retry_after: Some(Duration::from_millis(u64::MAX - 1)),
        ..error.clone()
    };
    let encoded = encode(&Message::RequestError(error)).expect("short");
    assert_eq!(decode(&encoded), Ok(Message::RequestError(expected)));
}

#[test]
fn a_message_is_never_short() {
    let mut payload = BytesMut::new();
    payload.put_slice(&[0, 1, 1, b'a', 1, b'b', 0]);
    let payload = payload.freeze();
    assert!(Message::decode(DRAFT, 3, &payload).is_ok());
    for cut in 0..payload.len() {
        let error = Message::decode(DRAFT, 3, &payload.slice(..cut)).expect_err("cut");
        assert_ne!(error, DecodeError::Short);
    }
}

#[test]
fn only_the_answer_to_track_status_has_properties() {
    let properties = Properties::builder().int(0x0E, 1).build();
    let ok = RequestOk {
        parameters: Parameters::none(),
        properties,
    };
    for kind in RequestKind::ALL {
        for step in [Step::Answer, Step::UpdateAnswer] {
            let may = kind == RequestKind::TrackStatus && step == Step::Answer;
            assert_eq!(
                ok.check(DRAFT, kind, step).is_ok(),
                may,
                "{kind:?} {step:?}"
            );
            assert_eq!(RequestOk::default().check(DRAFT, kind, step), Ok(()));
        }
    }
}

#[test]
fn the_parameters_of_an_answer_fit_its_request() {
    let parameters = Parameters {
        forward: Some(true),
        ..Parameters::none()
    };
    let ok = RequestOk {
        parameters,
        properties: Properties::EMPTY,
    };
    assert_eq!(ok.check(DRAFT, RequestKind::Publish, Step::Answer), Ok(()));
    assert!(
        ok.check(DRAFT, RequestKind::Publish, Step::UpdateAnswer)
            .is_err()
    );
    assert!(
        ok.check(DRAFT, RequestKind::SubscribeTracks, Step::Answer)
            .is_err()
    );
}

#[test]
fn the_parameters_of_an_update_fit_its_request() {
    let update = |parameters| RequestUpdate {
        request_id: 2,
        parameters,
    };
    let prefix = update(Parameters {
        track_namespace_prefix: Some(Namespace::EMPTY),
        ..Parameters::none()
    });
    assert_eq!(prefix.check(DRAFT, RequestKind::SubscribeNamespace), Ok(()));
    assert_eq!(prefix.check(DRAFT, RequestKind::SubscribeTracks), Ok(()));
    assert!(prefix.check(DRAFT, RequestKind::Subscribe).is_err());
    assert!(
        update(Parameters::none())
            .check(DRAFT, RequestKind::TrackStatus)
            .is_err()
    );
    assert_eq!(
        update(Parameters::none()).check(DRAFT, RequestKind::PublishNamespace),
        Ok(())
    );
}

#[test]
fn an_update_of_subscribe_tracks_filters_tracks_and_not_objects() {
    for draft in [Draft::Draft20, Draft::Draft21, Draft::Draft22] {
        for (kind, property, fits) in [
            (RangeFilterKind::Subgroup, None, false),
            (RangeFilterKind::ObjectProperty, Some(0x38), false),
            (RangeFilterKind::TrackProperty, Some(0x38), true),
        ] {
            let condition = RangeCondition {
                set: 0,
                property,
                ranges: vec![(0, 5)],
            };
            let update = RequestUpdate {
                request_id: 2,
                parameters: Parameters {
                    range_filters: vec![RangeFilter::new(kind, &condition)],
                    ..Parameters::none()
                },
            };
            let of = |kind| update.check(draft, kind).is_ok();
            assert_eq!(of(RequestKind::SubscribeTracks), fits, "{draft:?} {kind:?}");
            assert_eq!(of(RequestKind::Subscribe), !fits, "{draft:?} {kind:?}");
        }
    }
}

#[test]
fn subscribe_tracks_may_ask_for_a_range_and_a_fill() {
    for draft in [Draft::Draft20, Draft::Draft21, Draft::Draft22] {
        let request = |parameters| {
            let message = Message::SubscribeTracks(SubscribeTracks {
                request_id: 0,
                prefix: Namespace::EMPTY,
                parameters,
            });
            let mut encoded = BytesMut::new();
            message.encode(draft, &mut encoded).expect("it fits");
            let read = Message::decode(draft, encoded[0].into(), &encoded.split_off(3).freeze());
            (message, read)
        };
        let filter = Some(Filter::LargestObject);
        let fill = Parameters {
            filter,
            ..Parameters::none()
        };
        let (sent, read) = request(Parameters {
            filter,
            fill: Some(Box::new(fill)),
            ..Parameters::none()
        });
        assert_eq!(read, Ok(sent));
    }
}

#[test]
fn the_redirect_of_a_namespace_request_names_no_track() {
    let redirect = |name: &str| RequestError {
        code: RequestErrorCode::REDIRECT,
        redirect: Some(Redirect {
            connect_uri: String::new(),
            track: FullTrackName {
                namespace: Namespace::EMPTY,
                name: TrackName::new(name).expect("a name"),
            },
        }),
        ..request_error(String::new())
    };
    let refused = Err(Violation::protocol(
        "the redirect of a namespace request names a track",
    ));
    for kind in [
        RequestKind::PublishNamespace,
        RequestKind::SubscribeNamespace,
    ] {
        assert_eq!(redirect("t").check(DRAFT, kind), refused);
        assert_eq!(redirect("").check(DRAFT, kind), Ok(()));
    }
    assert_eq!(redirect("t").check(DRAFT, RequestKind::Subscribe), Ok(()));
}

#[test]
#[should_panic(expected = "a redirect goes with the code REDIRECT")]
fn a_redirect_needs_its_code() {
    let error = RequestError {
        redirect: Some(Redirect::default()),
        ..request_error(String::new())
    };
    drop(encode(&Message::RequestError(error)));
}
