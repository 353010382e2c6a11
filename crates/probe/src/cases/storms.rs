//! Storms: many requests, ends, updates and announcements in a short time.

use super::robustness::{robust, slot, storm, uni};
use crate::{
    case::Case,
    line::Action,
    script::{A, B, Step},
    wire::{self, Request, Subgroup, Value, parameter},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = requests();
    cases.extend(others());
    cases
}

/// Requests of one kind, each cancelled a little later.
fn requests() -> Vec<Case> {
    let mut cases = Vec::new();
    for request in Request::ALL {
        cases.push(robust(format!("storm.{}", request.word()), move |script| {
            script.join(A);
            let track = script.track.below("storm");
            script.step(storm(1000, 1000, move |number, _| {
                let track = match request {
                    Request::PublishNamespace
                    | Request::SubscribeNamespace
                    | Request::SubscribeTracks => track.below(&(number % 200).to_string()),
                    Request::Subscribe
                    | Request::Publish
                    | Request::Fetch
                    | Request::TrackStatus => track.named(&(number % 200).to_string()),
                };
                let encode = move |id| match request {
                    Request::Publish => wire::publish(id, &track, id + 100, &[], &[]),
                    Request::Subscribe
                    | Request::Fetch
                    | Request::TrackStatus
                    | Request::PublishNamespace
                    | Request::SubscribeNamespace
                    | Request::SubscribeTracks => request.encode(id, &track, &[]),
                };
                let mut steps = vec![
                    Step::Rejoin(A),
                    Step::Ask(A, slot(number), Box::new(encode)),
                ];
                if let Some(earlier) = number.checked_sub(20) {
                    steps.push(Step::Act(A, slot(earlier), Action::Stop(1)));
                    steps.push(Step::Act(A, slot(earlier), Action::Reset(1)));
                }
                steps
            }));
        }));
    }
    cases
}

fn others() -> Vec<Case> {
    vec![
        robust("storm.joins", |script| {
            script.step(storm(200, 100, |number, _| {
                let client = usize::try_from(number % 6).unwrap_or(0);
                let join = || [Step::Close(client, 0), Step::Rejoin(client)];
                // Half of them end a handshake with its first packet.
                let joins = 1 + number % 2;
                (0..joins).flat_map(|_| join()).collect()
            }));
        }),
        robust("storm.updates", |script| {
            script.track = script.track.below("updates");
            let channel = script.channel(B, A);
            script.step(storm(1000, 1000, move |number, _| {
                let priority = number.to_le_bytes()[0];
                let priority = (parameter::SUBSCRIBER_PRIORITY, Value::Byte(priority));
                let encode = move |id| wire::update(id, std::slice::from_ref(&priority));
                vec![Step::Ask(A, channel.subscription, Box::new(encode))]
            }));
            script.track.namespace.pop();
        }),
        robust("storm.resets", |script| {
            script.publish(A);
            script.step(storm(2000, 2000, |number, _| {
                let bytes = Subgroup::of(number).encode();
                vec![
                    Step::Act(A, uni(number), Action::Write(bytes.into())),
                    Step::Act(A, uni(number), Action::Reset(1)),
                ]
            }));
        }),
        robust("storm.datagrams", |script| {
            script.publish(A);
            script.step(storm(10_000, 10_000, |number, _| {
                let data = wire::datagram(number / 100, number % 100, b"storm");
                vec![Step::Datagram(A, data.into())]
            }));
        }),
        robust("storm.subgroups", |script| {
            script.publish(A);
            script.step(storm(2000, 2000, |number, _| {
                let bytes = wire::group(Subgroup::of(number), &[b"storm"]);
                vec![
                    Step::Act(A, uni(number), Action::Write(bytes.into())),
                    Step::Act(A, uni(number), Action::Finish),
                ]
            }));
        }),
        robust("storm.same-track-by-many", |script| {
            let track = script.track.below("storm");
            script.step(storm(300, 300, move |number, _| {
                let client = usize::try_from(number % 6).unwrap_or(0);
                let track = track.clone();
                let encode = move |id| {
                    if number % 2 == 0 {
                        Request::Publish.encode(id, &track, &[])
                    } else {
                        Request::Subscribe.encode(id, &track, &[])
                    }
                };
                vec![
                    Step::Rejoin(client),
                    Step::Ask(client, slot(number), Box::new(encode)),
                ]
            }));
        }),
    ]
}
