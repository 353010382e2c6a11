//! Requests and answers that break the rules.

use super::*;

fn own_namespace(pair: &mut Pair) {
    own(pair, |session, view| {
        session
            .publish_namespace(view, namespace("a"), Parameters::default())
            .unwrap();
    });
}

fn own_publish(pair: &mut Pair) {
    own(pair, |session, view| {
        let (none, properties) = (Parameters::default(), Properties::EMPTY);
        session
            .publish(view, track("t"), 3, none, properties)
            .unwrap();
    });
}

fn redirect(connect_uri: &str, name: &str) -> Message {
    let name = TrackName::new(name).unwrap();
    let track = FullTrackName::new(namespace("a"), name).unwrap();
    let redirect = Some(Redirect {
        connect_uri: String::from(connect_uri),
        track,
    });
    let error = request_error(RequestErrorCode::REDIRECT);
    Message::RequestError(RequestError { redirect, ..error })
}

#[test]
fn request_streams() {
    check(&[
        (
            "an answer as the first message",
            SERVER,
            |pair, _| {
                pair.peer_opens(SERVER, Direction::Bi, &[Message::RequestOk(ok())]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "SETUP as the first message",
            SERVER,
            |pair, _| {
                pair.peer_opens(SERVER, Direction::Bi, &[Message::Setup(Setup::default())]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a request cut off by FIN",
            SERVER,
            |pair, _| {
                let stream = pair.peer_opens(SERVER, Direction::Bi, &[]);
                pair.peer_writes(SERVER, stream, &[3, 0]);
                pair.peer_finishes(SERVER, stream);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a message cut off by FIN",
            SERVER,
            |pair, _| {
                let stream = pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t")]);
                pair.peer_writes(SERVER, stream, &[2]);
                pair.peer_finishes(SERVER, stream);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a Request ID with the wrong parity",
            SERVER,
            |pair, _| {
                pair.peer_opens(SERVER, Direction::Bi, &[subscribe(1, "t")]);
            },
            SessionError::INVALID_REQUEST_ID,
        ),
        (
            "a Request ID used twice",
            SERVER,
            |pair, _| {
                for _ in 0..2 {
                    pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t")]);
                }
            },
            SessionError::INVALID_REQUEST_ID,
        ),
        (
            "a Request ID used for an update again",
            SERVER,
            |pair, _| {
                pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t"), update(0)]);
            },
            SessionError::INVALID_REQUEST_ID,
        ),
    ]);
}

#[test]
fn later_messages_of_the_requester() {
    check(&[
        (
            "a second request",
            SERVER,
            |pair, _| {
                pair.peer_opens(
                    SERVER,
                    Direction::Bi,
                    &[subscribe(0, "t"), subscribe(2, "u")],
                );
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "an OK from the requester",
            SERVER,
            |pair, _| {
                let messages = [subscribe(0, "t"), Message::RequestOk(ok())];
                pair.peer_opens(SERVER, Direction::Bi, &messages);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a message after PUBLISH_DONE",
            SERVER,
            |pair, _| {
                let messages = [publish(0, "t", 1), Message::PublishDone(done()), update(2)];
                pair.peer_opens(SERVER, Direction::Bi, &messages);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "PUBLISH_DONE from a subscriber",
            SERVER,
            |pair, _| {
                let messages = [subscribe(0, "t"), Message::PublishDone(done())];
                pair.peer_opens(SERVER, Direction::Bi, &messages);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "GOAWAY twice on a request stream",
            SERVER,
            |pair, _| {
                let goaway = Message::GoAway(goaway(None));
                let messages = [subscribe(0, "t"), goaway.clone(), goaway];
                pair.peer_opens(SERVER, Direction::Bi, &messages);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "GOAWAY with a Request ID on a request stream",
            SERVER,
            |pair, _| {
                let messages = [subscribe(0, "t"), Message::GoAway(goaway(Some(1)))];
                pair.peer_opens(SERVER, Direction::Bi, &messages);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a parameter of another request in an update",
            SERVER,
            |pair, _| {
                let parameters = Parameters {
                    track_namespace_prefix: Some(namespace("a")),
                    ..Parameters::default()
                };
                let update = Message::RequestUpdate(RequestUpdate {
                    request_id: 2,
                    parameters,
                });
                pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t"), update]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
    ]);
}

#[test]
fn answers() {
    check(&[
        (
            "SUBSCRIBE_OK to a PUBLISH",
            SERVER,
            |pair, _| {
                own_publish(pair);
                pair.peer_sends(SERVER, OWN, &[Message::SubscribeOk(subscribe_ok(1))]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "REQUEST_OK to a SUBSCRIBE",
            SERVER,
            |pair, _| {
                own_subscribe(pair);
                pair.peer_sends(SERVER, OWN, &[Message::RequestOk(ok())]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a second OK",
            SERVER,
            |pair, _| {
                own_subscribe(pair);
                let ok = Message::SubscribeOk(subscribe_ok(1));
                pair.peer_sends(SERVER, OWN, &[ok.clone(), ok]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "an error after the OK",
            SERVER,
            |pair, _| {
                own_subscribe(pair);
                let error = Message::RequestError(request_error(RequestErrorCode::TIMEOUT));
                pair.peer_sends(SERVER, OWN, &[Message::SubscribeOk(subscribe_ok(1)), error]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a message after the error",
            SERVER,
            |pair, _| {
                own_subscribe(pair);
                let error = Message::RequestError(request_error(RequestErrorCode::TIMEOUT));
                pair.peer_sends(SERVER, OWN, &[error, Message::SubscribeOk(subscribe_ok(1))]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "PUBLISH_DONE before SUBSCRIBE_OK",
            SERVER,
            |pair, _| {
                own_subscribe(pair);
                pair.peer_sends(SERVER, OWN, &[Message::PublishDone(done())]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
    ]);
}

#[test]
fn answers_of_namespaces() {
    check(&[
        (
            "NAMESPACE before REQUEST_OK",
            SERVER,
            |pair, _| {
                own(pair, |session, view| {
                    session
                        .subscribe_namespace(view, namespace("a"), Parameters::default())
                        .unwrap();
                });
                pair.peer_sends(SERVER, OWN, &[Message::Namespace(namespace("x"))]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "NAMESPACE_DONE without NAMESPACE",
            SERVER,
            |pair, _| {
                own(pair, |session, view| {
                    session
                        .subscribe_namespace(view, namespace("a"), Parameters::default())
                        .unwrap();
                });
                let messages = [
                    Message::RequestOk(ok()),
                    Message::NamespaceDone(namespace("x")),
                ];
                pair.peer_sends(SERVER, OWN, &messages);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "NAMESPACE for tracks",
            SERVER,
            |pair, _| {
                own(pair, |session, view| {
                    session
                        .subscribe_tracks(view, namespace("a"), Parameters::default())
                        .unwrap();
                });
                let messages = [Message::RequestOk(ok()), Message::Namespace(namespace("x"))];
                pair.peer_sends(SERVER, OWN, &messages);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "an update by the publisher of a SUBSCRIBE",
            SERVER,
            |pair, _| {
                own_subscribe(pair);
                pair.peer_sends(
                    SERVER,
                    OWN,
                    &[Message::SubscribeOk(subscribe_ok(1)), update(0)],
                );
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
    ]);
}

#[test]
fn what_answers_say() {
    check(&[
        (
            "properties in an OK that has none",
            SERVER,
            |pair, _| {
                own_namespace(pair);
                let ok = RequestOk {
                    properties: mandatory(),
                    ..ok()
                };
                pair.peer_sends(SERVER, OWN, &[Message::RequestOk(ok)]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a parameter an OK may not have",
            SERVER,
            |pair, _| {
                own_namespace(pair);
                let parameters = Parameters {
                    forward: Some(true),
                    ..Parameters::default()
                };
                let ok = RequestOk { parameters, ..ok() };
                pair.peer_sends(SERVER, OWN, &[Message::RequestOk(ok)]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "FETCH_OK that ends before the fetch starts",
            SERVER,
            |pair, _| {
                own_fetch(pair);
                let (parameters, properties) = (Parameters::default(), Properties::EMPTY);
                let end = Location::new(3, 2);
                let ok = FetchOk {
                    end_of_track: false,
                    end,
                    parameters,
                    properties,
                };
                pair.peer_sends(SERVER, OWN, &[Message::FetchOk(ok)]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a redirect with a URI from a client",
            SERVER,
            |pair, _| {
                own_subscribe(pair);
                pair.peer_sends(SERVER, OWN, &[redirect("moqt://other.example/", "t")]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
        (
            "a redirect of a namespace to a track",
            SERVER,
            |pair, _| {
                own_namespace(pair);
                pair.peer_sends(SERVER, OWN, &[redirect("", "t")]);
            },
            SessionError::PROTOCOL_VIOLATION,
        ),
    ]);
}
