//! The largest and the most that the draft permits, or more than a relay keeps: a relay may serve it or bound it, and says which.

use super::robustness::{robust, slot, storm, uni};
use crate::{
    case::Case,
    line::Action,
    script::{A, B, C, Check, Script, Step, object_at, ok, progress, subscribed},
    seen::Slot,
    wire::{
        self, Request, Subgroup, Track, Value, framed, group, int, message, parameter, property,
    },
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = messages().collect();
    cases.extend(parameters());
    cases.extend(request_ids());
    cases.extend(prefixes());
    cases.extend(waiting());
    cases.extend(objects());
    cases
}

/// A case of more than a relay may permit.
pub(super) fn bounded(
    name: impl Into<String>,
    what: &str,
    act: impl Fn(&mut Script) + Send + 'static,
) -> Case {
    let case = robust(name, move |script| {
        script.track = script.track.below("bounded");
        act(script);
        script.track.namespace.pop();
    });
    case.requiring(format!(
        "the relay serves or bounds {what}, says which, and serves new sessions afterwards"
    ))
}

/// A request was answered, ended by the relay, or its session closed by it.
pub(super) fn settled(slot: Slot) -> Check {
    let text = "an answer, or the end of the request or the session by the relay";
    Check::new(text, move |seen| {
        let is_closed = seen.ended.as_ref().is_some_and(|it| it.code.is_some());
        let is_met = seen
            .on(slot)
            .is_some_and(|it| !it.messages.is_empty() || it.end.is_some() || it.stopped.is_some());
        progress(is_closed || is_met)
    })
}

/// Returns a request whose payload has 65,535 bytes: with a long token, or a long property.
fn largest(request: Request, id: u64, track: &Track) -> Vec<u8> {
    let encode = |filler: usize| {
        let filler = vec![b'x'; filler];
        if request == Request::Publish {
            let kept = (property::OF_APPLICATION, Value::Bytes(filler));
            return wire::publish(id, track, wire::ALIAS, &[], &[kept]);
        }
        let token = [int(3), int(0), filler].concat();
        let token = (parameter::AUTHORIZATION_TOKEN, Value::Bytes(token));
        if request == Request::Fetch {
            return wire::fetch(id, track, (0, 0), (1, 0), &[token]);
        }
        request.encode(id, track, &[token])
    };
    let some = encode(FILLER);
    let header = int(request.message()).len() + 2;
    encode(FILLER + MESSAGE_BYTES_MAX + header - some.len())
}

/// The largest message that the length of 16 bits permits.
const MESSAGE_BYTES_MAX: usize = 65_535;
/// Bytes to begin with; the largest message has more.
const FILLER: usize = 60_000;

/// Messages of 65,535 bytes.
fn messages() -> impl Iterator<Item = Case> {
    let what = "a message of 65,535 bytes";
    let setup = bounded("limit.message-65535-bytes-setup", what, move |script| {
        script.connect(A);
        script.then();
        let unknown = |filler: usize| (0x3FF1, Value::Bytes(vec![b'x'; filler]));
        let some = [&script.space.options[..], &[unknown(FILLER)]].concat();
        let filler = FILLER + MESSAGE_BYTES_MAX - wire::pairs(&some).len();
        let option = [unknown(filler)];
        script.set_up_with(A, &option);
        let slot = script.request(A, Request::TrackStatus);
        script.expect(A, settled(slot));
    });
    let requests = Request::ALL.into_iter().map(move |request| {
        let name = format!("limit.message-65535-bytes-{}", request.word());
        bounded(name, what, move |script| {
            script.join(A);
            script.then();
            let track = script.track.clone();
            let slot = script.ask(A, move |id| largest(request, id, &track));
            script.expect(A, settled(slot));
        })
    });
    requests.chain([setup])
}

/// Many parameters, or a number of them that cannot be.
fn parameters() -> Vec<Case> {
    let counted = |count: u64| {
        move |script: &mut Script| {
            script.join(A);
            script.then();
            let track = script.track.clone();
            let slot = script.ask(A, move |id| {
                let fields = [int(id), track.full(), int(count)];
                framed(message::SUBSCRIBE, &fields.concat())
            });
            script.expect(A, settled(slot));
        }
    };
    vec![
        bounded(
            "limit.tokens-of-a-request",
            "10,000 tokens in one message",
            |script| {
                script.join(A);
                script.then();
                let token = (
                    parameter::AUTHORIZATION_TOKEN,
                    Value::Bytes(vec![3, 0, b'x']),
                );
                let tokens = vec![token; 10_000];
                let track = script.track.clone();
                let slot = script.request_with(A, Request::Subscribe, track, tokens);
                script.expect(A, settled(slot));
            },
        ),
        bounded(
            "limit.parameters-1000",
            "a number of parameters that are not there",
            counted(1000),
        ),
        bounded(
            "limit.parameters-2^64-1",
            "a number of parameters that are not there",
            counted(u64::MAX),
        ),
    ]
}

/// Request IDs with gaps, and the largest ones.
fn request_ids() -> Vec<Case> {
    let ask = |script: &mut Script, id: u64| {
        let absent = script.track.named("absent");
        script.ask(A, move |_| Request::TrackStatus.encode(id, &absent, &[]))
    };
    vec![
        bounded(
            "limit.request-id-gaps",
            "1,100 gaps in Request IDs",
            move |script| {
                script.join(A);
                let track = script.track.named("absent");
                script.step(storm(1100, 2000, move |number, _| {
                    let bytes = Request::TrackStatus.encode(4 * number, &track, &[]);
                    let write = Action::Write(bytes.into());
                    vec![
                        Step::Act(A, slot(number), write),
                        Step::Act(A, slot(number), Action::Finish),
                    ]
                }));
                script.then();
                // The last gap, then the first.
                for id in [4 * 1100, 2] {
                    let slot = ask(script, id);
                    script.expect(A, settled(slot));
                }
            },
        ),
        bounded(
            "limit.request-id-maximum",
            "the largest Request IDs",
            move |script| {
                script.join(A);
                script.then();
                for id in [u64::MAX - 1, u64::MAX - 3, 1 << 62, 0] {
                    let slot = ask(script, id);
                    script.expect(A, settled(slot));
                }
            },
        ),
    ]
}

/// More sessions than any other case has, each with as many requests as a relay may permit at a time. Returns the storm.
fn by_many(requests: u64, encode: impl Fn(u64, u64) -> Vec<u8> + Clone + Send + 'static) -> Step {
    storm(requests, 4000, move |number, _| {
        let client = FIRST + usize::try_from(number % SESSIONS).unwrap_or(0);
        let encode = encode.clone();
        let encode = move |id| encode(number, id);
        vec![
            Step::Rejoin(client),
            Step::Ask(client, slot(number), Box::new(encode)),
        ]
    })
}

/// The first of the sessions.
const FIRST: usize = 8;
const SESSIONS: u64 = 40;
/// Requests of all of them, which is more than weir's relay has for one prefix by default.
const REQUESTS: u64 = 4300;

/// More namespaces under a prefix than a relay may tell of.
fn prefixes() -> Vec<Case> {
    let what = "4,300 namespaces under a prefix";
    let announced = |script: &mut Script| {
        let track = script.track.clone();
        script.step(by_many(REQUESTS, move |number, id| {
            let track = track.below(&number.to_string());
            Request::PublishNamespace.encode(id, &track, &[])
        }));
        script.wait(200);
    };
    vec![
        bounded("limit.matches-of-a-prefix", what, move |script| {
            announced(script);
            script.join(A);
            script.then();
            let slot = script.request(A, Request::SubscribeNamespace);
            script.expect(A, settled(slot));
        }),
        bounded("limit.later-matches-of-a-prefix", what, move |script| {
            script.join(A);
            let slot = script.request(A, Request::SubscribeNamespace);
            script.expect(A, ok(slot));
            announced(script);
        }),
    ]
}

/// Requests that wait for a track, longer or more of them than a relay may permit.
fn waiting() -> Vec<Case> {
    let waits = |time| vec![(parameter::RENDEZVOUS_TIMEOUT, Value::Int(time))];
    vec![
        bounded(
            "limit.rendezvous-2^64-1",
            "a rendezvous timeout of 2^64 - 1 ms",
            move |script| {
                script.join(A);
                let track = script.track.clone();
                let slot = script.request_with(A, Request::Subscribe, track, waits(u64::MAX));
                script.wait(100);
                script.publish(B);
                script.then();
                script.expect(A, settled(slot));
            },
        ),
        bounded(
            "limit.tracks-waiting",
            "4,300 tracks that wait for a publisher",
            move |script| {
                let track = script.track.clone();
                let waits = waits(3000);
                script.step(by_many(REQUESTS, move |number, id| {
                    let track = track.named(&number.to_string());
                    Request::Subscribe.encode(id, &track, &waits)
                }));
                script.then();
                script.join(B);
                let track = script.track.named("0");
                let slot = script.request_of(B, Request::Publish, track);
                script.expect(B, settled(slot));
            },
        ),
        bounded(
            "limit.publishers-of-a-track",
            "40 publishers of a track",
            |script| {
                let track = script.track.clone();
                script.step(by_many(SESSIONS, move |_, id| {
                    Request::Publish.encode(id, &track, &[])
                }));
                script.wait(200);
                script.join(A);
                let subscription = script.request(A, Request::Subscribe);
                script.expect(A, subscribed(subscription));
                script.then();
                script.stream(FIRST, group(Subgroup::of(0), &[b"a"]));
                script.expect(A, object_at(0, 0, b"a"));
            },
        ),
    ]
}

/// Objects and headers of objects that are larger than a relay may permit. The subscriber is served, or at least not harmed.
fn objects() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, values) in [
        ("65535-bytes", vec![65_535]),
        ("200000-bytes", vec![50_000; 4]),
        ("2000000-bytes", vec![50_000; 40]),
    ] {
        let name = format!("limit.object-properties-{name}");
        let case = bounded(name, "a large block of properties", move |script| {
            script.channel(B, A);
            let value = |bytes: &usize| (property::OF_APPLICATION, vec![b'x'; *bytes]);
            let block = values.iter().map(value);
            let block: Vec<(u64, Value)> = block
                .map(|(kind, value)| (kind, Value::Bytes(value)))
                .collect();
            let header = Subgroup {
                bits: wire::subgroup::PROPERTIES,
                ..Subgroup::of(0)
            };
            let object = wire::object_with(0, &block, b"a");
            script.stream(B, [header.encode(), object].concat());
            script.wait(100);
            script.then();
            script.alive(A);
        });
        cases.push(case);
    }
    cases.push(bounded(
        "limit.object-9-MiB",
        "an object of 9 MiB",
        |script| {
            script.channel(B, A);
            script.stream(B, group(Subgroup::of(0), &[&vec![b'x'; 9 << 20]]));
            script.wait(500);
            script.then();
            script.join(C);
            let track = script.track.clone();
            let slot = script.ask(C, move |id| wire::fetch(id, &track, (0, 0), (1, 0), &[]));
            script.expect(C, settled(slot));
            script.alive(A);
        },
    ));
    cases.push(bounded(
        "limit.gaps-of-a-track",
        "300 gaps of a track",
        |script| {
            script.channel(B, A);
            script.step(storm(300, 1000, |number, _| {
                let header = Subgroup {
                    bits: wire::subgroup::PROPERTIES | wire::subgroup::FIRST_OBJECT,
                    ..Subgroup::of(3 * number + 2)
                };
                let gap = (property::PRIOR_GROUP_ID_GAP, Value::Int(2));
                let bytes = [header.encode(), wire::object_with(0, &[gap], b"a")].concat();
                vec![
                    Step::Act(B, uni(number), Action::Write(bytes.into())),
                    Step::Act(B, uni(number), Action::Finish),
                ]
            }));
            script.then();
            script.expect(A, object_at(3 * 299 + 2, 0, b"a"));
        },
    ));
    cases
}
