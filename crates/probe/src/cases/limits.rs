//! More of everything than relays keep for one session: one past each limit that weir's relay has by default.

use super::robustness::{robust, slot, storm, uni};
use crate::{
    case::Case,
    line::Action,
    script::{A, B, Step},
    wire::{self, Request, Subgroup, Track, Value, parameter},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = open_requests().collect();
    cases.extend(tables());
    cases
}

/// Requests of one kind that stay open, by one session.
fn open_requests() -> impl Iterator<Item = Case> {
    let limits = [
        (Request::Subscribe, 1024),
        (Request::Publish, 1024),
        (Request::PublishNamespace, 1024),
        (Request::SubscribeNamespace, 64),
        (Request::SubscribeTracks, 64),
        (Request::Fetch, 64),
        (Request::TrackStatus, 64),
    ];
    limits.into_iter().map(|(request, most)| {
        robust(format!("limit.{}", request.word()), move |script| {
            let track = script.track.below("limit");
            // Who announced the tracks and never answers keeps requests for them open.
            script.join(B);
            script.request_of(B, Request::PublishNamespace, track.clone());
            script.join(A);
            script.step(storm(most + 1, 2000, move |number, _| {
                let track = numbered(request, &track, number);
                let encode = move |id| match request {
                    Request::Publish => wire::publish(id, &track, id + 100, &[], &[]),
                    Request::Subscribe => {
                        let waits = (parameter::RENDEZVOUS_TIMEOUT, Value::Int(3000));
                        request.encode(id, &track, &[waits])
                    }
                    Request::Fetch
                    | Request::TrackStatus
                    | Request::PublishNamespace
                    | Request::SubscribeNamespace
                    | Request::SubscribeTracks => request.encode(id, &track, &[]),
                };
                vec![
                    Step::Rejoin(A),
                    Step::Ask(A, slot(number), Box::new(encode)),
                ]
            }));
            script.wait(300);
        })
    })
}

/// Returns a track, or a namespace, of its own for a request.
fn numbered(request: Request, track: &Track, number: u64) -> Track {
    match request {
        Request::PublishNamespace | Request::SubscribeNamespace | Request::SubscribeTracks => {
            track.below(&number.to_string())
        }
        Request::Subscribe | Request::Publish | Request::Fetch | Request::TrackStatus => {
            track.named(&number.to_string())
        }
    }
}

/// Other things that a relay keeps for a session.
fn tables() -> Vec<Case> {
    vec![
        robust("limit.updates", |script| {
            script.track = script.track.below("updates");
            let channel = script.channel(B, A);
            script.step(storm(101, 2000, move |number, _| {
                let priority = (
                    parameter::SUBSCRIBER_PRIORITY,
                    Value::Byte(number.to_le_bytes()[0]),
                );
                let encode = move |id| wire::update(id, std::slice::from_ref(&priority));
                vec![Step::Ask(A, channel.subscription, Box::new(encode))]
            }));
            script.track.namespace.pop();
        }),
        robust("limit.subgroups-of-a-track", |script| {
            script.publish(A);
            script.step(storm(257, 2000, |number, _| {
                let bytes = Subgroup::of(number).encode();
                vec![Step::Act(A, uni(number), Action::Write(bytes.into()))]
            }));
            script.wait(300);
        }),
        robust("limit.streams-of-unknown-tracks", |script| {
            script.join(A);
            script.step(storm(65, 2000, |number, _| {
                let header = Subgroup {
                    alias: 5000 + number,
                    ..Subgroup::of(0)
                };
                vec![Step::Act(
                    A,
                    uni(number),
                    Action::Write(header.encode().into()),
                )]
            }));
            script.wait(300);
        }),
        robust("limit.datagrams-of-unknown-tracks", |script| {
            script.join(A);
            script.step(storm(257, 2000, |number, _| {
                vec![Step::Datagram(
                    A,
                    wire::datagram(0, 5000 + number, b"x").into(),
                )]
            }));
            script.wait(300);
        }),
    ]
}
