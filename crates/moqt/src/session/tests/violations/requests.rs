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
    violation(SERVER, SessionError::PROTOCOL_VIOLATION).check(&[
        ("an answer as the first message", |pair, _| {
            pair.peer_opens(SERVER, Direction::Bi, &[Message::RequestOk(ok())]);
        }),
        ("SETUP as the first message", |pair, _| {
            pair.peer_opens(SERVER, Direction::Bi, &[Message::Setup(Setup::default())]);
        }),
        ("a request cut off by FIN", |pair, _| {
            let stream = pair.peer_opens(SERVER, Direction::Bi, &[]);
            pair.peer_writes(SERVER, stream, &[3, 0]);
            pair.peer_finishes(SERVER, stream);
        }),
        ("a message cut off by FIN", |pair, _| {
            let stream = pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t")]);
            pair.peer_writes(SERVER, stream, &[2]);
            pair.peer_finishes(SERVER, stream);
        }),
    ]);
    violation(SERVER, SessionError::INVALID_REQUEST_ID).check(&[
        ("a Request ID with the wrong parity", |pair, _| {
            pair.peer_opens(SERVER, Direction::Bi, &[subscribe(1, "t")]);
        }),
        ("a Request ID used twice", |pair, _| {
            for _ in 0..2 {
                pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t")]);
            }
        }),
        ("a Request ID used for an update again", |pair, _| {
            pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t"), update(0)]);
        }),
    ]);
}

#[test]
fn later_messages_of_the_requester() {
    violation(SERVER, SessionError::PROTOCOL_VIOLATION).check(&[
        ("a second request", |pair, _| {
            pair.peer_opens(
                SERVER,
                Direction::Bi,
                &[subscribe(0, "t"), subscribe(2, "u")],
            );
        }),
        ("an OK from the requester", |pair, _| {
            let messages = [subscribe(0, "t"), Message::RequestOk(ok())];
            pair.peer_opens(SERVER, Direction::Bi, &messages);
        }),
        ("a message after PUBLISH_DONE", |pair, _| {
            let messages = [publish(0, "t", 1), Message::PublishDone(done()), update(2)];
            pair.peer_opens(SERVER, Direction::Bi, &messages);
        }),
        ("PUBLISH_DONE from a subscriber", |pair, _| {
            let messages = [subscribe(0, "t"), Message::PublishDone(done())];
            pair.peer_opens(SERVER, Direction::Bi, &messages);
        }),
        ("GOAWAY twice on a request stream", |pair, _| {
            let goaway = Message::GoAway(goaway(None));
            let messages = [subscribe(0, "t"), goaway.clone(), goaway];
            pair.peer_opens(SERVER, Direction::Bi, &messages);
        }),
        ("GOAWAY with a Request ID on a request stream", |pair, _| {
            let messages = [subscribe(0, "t"), Message::GoAway(goaway(Some(1)))];
            pair.peer_opens(SERVER, Direction::Bi, &messages);
        }),
        ("a parameter of another request in an update", |pair, _| {
            let parameters = Parameters {
                track_namespace_prefix: Some(namespace("a")),
                ..Parameters::default()
            };
            let update = Message::RequestUpdate(RequestUpdate {
                request_id: 2,
                parameters,
            });
            pair.peer_opens(SERVER, Direction::Bi, &[subscribe(0, "t"), update]);
        }),
    ]);
}

#[test]
fn answers() {
    violation(SERVER, SessionError::PROTOCOL_VIOLATION).check(&[
        ("SUBSCRIBE_OK to a PUBLISH", |pair, _| {
            own_publish(pair);
            pair.peer_sends(SERVER, OWN, &[Message::SubscribeOk(subscribe_ok(1))]);
        }),
        ("REQUEST_OK to a SUBSCRIBE", |pair, _| {
            own_subscribe(pair);
            pair.peer_sends(SERVER, OWN, &[Message::RequestOk(ok())]);
        }),
        ("a second OK", |pair, _| {
            own_subscribe(pair);
            let ok = Message::SubscribeOk(subscribe_ok(1));
            pair.peer_sends(SERVER, OWN, &[ok.clone(), ok]);
        }),
        ("an error after the OK", |pair, _| {
            own_subscribe(pair);
            let error = Message::RequestError(request_error(RequestErrorCode::TIMEOUT));
            pair.peer_sends(SERVER, OWN, &[Message::SubscribeOk(subscribe_ok(1)), error]);
        }),
        ("a message after the error", |pair, _| {
            own_subscribe(pair);
            let error = Message::RequestError(request_error(RequestErrorCode::TIMEOUT));
            pair.peer_sends(SERVER, OWN, &[error, Message::SubscribeOk(subscribe_ok(1))]);
        }),
        ("PUBLISH_DONE before SUBSCRIBE_OK", |pair, _| {
            own_subscribe(pair);
            pair.peer_sends(SERVER, OWN, &[Message::PublishDone(done())]);
        }),
    ]);
}

#[test]
fn answers_of_namespaces() {
    violation(SERVER, SessionError::PROTOCOL_VIOLATION).check(&[
        ("NAMESPACE before REQUEST_OK", |pair, _| {
            own(pair, |session, view| {
                session
                    .subscribe_namespace(view, namespace("a"), Parameters::default())
                    .unwrap();
            });
            pair.peer_sends(SERVER, OWN, &[Message::Namespace(namespace("x"))]);
        }),
        ("NAMESPACE_DONE without NAMESPACE", |pair, _| {
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
        }),
        ("NAMESPACE for tracks", |pair, _| {
            own(pair, |session, view| {
                session
                    .subscribe_tracks(view, namespace("a"), Parameters::default())
                    .unwrap();
            });
            let messages = [Message::RequestOk(ok()), Message::Namespace(namespace("x"))];
            pair.peer_sends(SERVER, OWN, &messages);
        }),
        ("an update by the publisher of a SUBSCRIBE", |pair, _| {
            own_subscribe(pair);
            pair.peer_sends(
                SERVER,
                OWN,
                &[Message::SubscribeOk(subscribe_ok(1)), update(0)],
            );
        }),
    ]);
}

#[test]
fn what_answers_say() {
    violation(SERVER, SessionError::PROTOCOL_VIOLATION).check(&[
        ("properties in an OK that has none", |pair, _| {
            own_namespace(pair);
            let ok = RequestOk {
                properties: mandatory(),
                ..ok()
            };
            pair.peer_sends(SERVER, OWN, &[Message::RequestOk(ok)]);
        }),
        ("a parameter an OK may not have", |pair, _| {
            own_namespace(pair);
            let parameters = Parameters {
                forward: Some(true),
                ..Parameters::default()
            };
            let ok = RequestOk { parameters, ..ok() };
            pair.peer_sends(SERVER, OWN, &[Message::RequestOk(ok)]);
        }),
        ("FETCH_OK that ends before the fetch starts", |pair, _| {
            own_fetch(pair);
            let ok = fetch_ok(Location::new(3, 2));
            pair.peer_sends(SERVER, OWN, &[Message::FetchOk(ok)]);
        }),
        ("a redirect with a URI from a client", |pair, _| {
            own_subscribe(pair);
            pair.peer_sends(SERVER, OWN, &[redirect("moqt://other.example/", "t")]);
        }),
        ("a redirect of a namespace to a track", |pair, _| {
            own_namespace(pair);
            pair.peer_sends(SERVER, OWN, &[redirect("", "t")]);
        }),
    ]);
}
