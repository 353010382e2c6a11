//! Peers that break rules, are slow, silent or greedy, or vanish: the relay survives them and serves others.

use weir_link::Random;

use crate::{
    case::{Case, Kind},
    edition::in_both,
    hostile,
    line::{Action, Line},
    script::{A, B, C, Script, Step, Storm, object_at},
    seen::Slot,
    wire::{self, ALIAS, Request, Subgroup, Value, group, int, property},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = mutations().collect();
    cases.extend(large());
    cases.extend(slow());
    cases.extend(greedy());
    cases.extend(vanishing());
    cases
}

/// A case in which hostile clients act, and new clients are served afterwards.
pub(super) fn robust(name: impl Into<String>, act: impl Fn(&mut Script) + Send + 'static) -> Case {
    robust_to(name, SERVES, act)
}

/// The same, with the words for what the clients do.
pub(super) fn robust_against(
    name: &str,
    what: &str,
    act: impl Fn(&mut Script) + Send + 'static,
) -> Case {
    robust_to(name, &format!("{what}: {SERVES}"), act)
}

fn robust_to(
    name: impl Into<String>,
    requirement: &str,
    act: impl Fn(&mut Script) + Send + 'static,
) -> Case {
    Case::must(name, in_both("", ""), requirement, move |script| {
        act(script);
        script.then();
        script.track = script.track.below("served");
        script.channel(PUBLISHER, SUBSCRIBER);
        script.stream(PUBLISHER, group(Subgroup::of(0), &[b"served"]));
        script.expect(SUBSCRIBER, object_at(0, 0, b"served"));
    })
    .kind(Kind::Robustness)
}

/// What every relay has to do.
const SERVES: &str = "the relay serves new sessions afterwards, and loses nothing of the bystander";

/// The clients that are served after the hostile ones.
const PUBLISHER: usize = 6;
const SUBSCRIBER: usize = 7;

/// Repeats steps at a rate.
pub(super) fn storm(
    times: u64,
    per_second: u64,
    act: impl Fn(u64, &mut Random) -> Vec<Step> + Send + 'static,
) -> Step {
    Step::Storm(Storm {
        times,
        per_second,
        counts_messages: false,
        act: Box::new(act),
    })
}

/// Each message with changes at random, at each position of a session.
fn mutations() -> impl Iterator<Item = Case> {
    hostile::KINDS.into_iter().map(|(name, encode)| {
        robust(format!("mutated.{name}"), move |script| {
            let track = script.track.below("mutated");
            script.step(storm(240, 300, move |number, random| {
                let client = usize::try_from(number % 4).unwrap_or(0);
                let bytes = hostile::mutated(encode(2 * (number / 4), &track), random);
                hostile::at_a_position(client, number, bytes, &track, random)
            }));
            script.wait(200);
        })
    })
}

/// Messages as large as they can be, and as many streams as the relay permits.
fn large() -> Vec<Case> {
    vec![
        robust("large.messages", |script| {
            let track = script.track.below("large");
            script.step(storm(100, 200, move |number, _| {
                let track = track.named(&number.to_string());
                let value = Value::Bytes(vec![b'x'; 60_000]);
                let encode = move |id| {
                    let kept = (property::OF_APPLICATION, value.clone());
                    wire::publish(id, &track, id + 100, &[], &[kept])
                };
                let slot = slot(number);
                vec![Step::Rejoin(A), Step::Ask(A, slot, Box::new(encode))]
            }));
        }),
        robust("large.incomplete-messages", |script| {
            script.step(storm(100, 200, move |number, _| {
                let start = [int(wire::message::PUBLISH), vec![0xFF; 2], vec![0; 60_000]];
                let start = Action::Write(start.concat().into());
                vec![Step::Rejoin(A), Step::Act(A, slot(number), start)]
            }));
        }),
        robust("large.object-that-never-ends", |script| {
            script.publish(A);
            let stream = script.uni();
            let start = [Subgroup::of(0).encode(), int(0), int(u64::MAX >> 1)].concat();
            script.write(A, stream, start);
            for _ in 0..40 {
                script.write(A, stream, vec![b'x'; 100_000]);
            }
            script.wait(300);
        }),
        robust("large.empty-streams", |script| {
            script.join(A);
            script.step(storm(2000, 4000, |number, _| {
                let nothing = Action::Write(vec![].into());
                vec![Step::Act(A, slot(number), nothing)]
            }));
        }),
    ]
}

/// The stream of a repetition.
pub(super) fn slot(number: u64) -> Slot {
    Slot::Bi(FIRST_SLOT + u32::try_from(number).unwrap_or(0))
}

/// The unidirectional stream of a repetition.
pub(super) fn uni(number: u64) -> Slot {
    Slot::Uni(FIRST_SLOT + u32::try_from(number).unwrap_or(0))
}

/// Slots from here on are those of storms.
const FIRST_SLOT: u32 = 10_000;

fn slow() -> Vec<Case> {
    vec![
        robust("slow.byte-by-byte", |script| {
            script.join(A);
            let bytes = Request::Subscribe.encode(0, &script.track.below("slow"), &[]);
            let slot = script.bi();
            script.step(storm(bytes.len() as u64, 50, move |number, _| {
                let place = usize::try_from(number).unwrap_or(0);
                let byte = bytes.get(place).copied().into_iter().collect::<Vec<u8>>();
                vec![Step::Act(A, slot, Action::Write(byte.into()))]
            }));
        }),
        robust("slow.silent-connections", |script| {
            for client in 0..6 {
                script.connect(client);
            }
            script.wait(1000);
        }),
        robust("slow.silent-sessions", |script| {
            for client in 0..6 {
                script.join(client);
            }
            script.wait(1000);
        }),
    ]
}

/// Clients that take or ask for more than they read.
fn greedy() -> Vec<Case> {
    let deaf = |line: &mut Line| line.is_deaf = true;
    vec![
        robust("greedy.subscriber-that-does-not-read", move |script| {
            script.track = script.track.below("greedy");
            script.channel(B, A);
            script.step(Step::Behave(A, Box::new(deaf)));
            script.step(storm(400, 800, |number, _| {
                let bytes = group(Subgroup::of(number), &[&vec![b'x'; 20_000]]);
                let stream = uni(number);
                let write = Action::Write(bytes.into());
                vec![
                    Step::Act(B, stream, write),
                    Step::Act(B, stream, Action::Finish),
                ]
            }));
            script.wait(300);
            script.track.namespace.pop();
        }),
        robust("greedy.fetches", |script| {
            script.track = script.track.below("greedy");
            script.channel(B, C);
            script.stream(B, group(Subgroup::of(0), &[&vec![b'x'; 50_000]]));
            script.join(A);
            let track = script.track.clone();
            script.step(storm(300, 600, move |number, _| {
                let track = track.clone();
                let encode = move |id| wire::fetch(id, &track, (0, 0), (1, 0), &[]);
                vec![
                    Step::Rejoin(A),
                    Step::Ask(A, slot(number), Box::new(encode)),
                ]
            }));
            script.wait(300);
            script.track.namespace.pop();
        }),
        robust("greedy.contradictions", |script| {
            script.publish(A);
            script.step(storm(500, 1000, |number, _| {
                let payload = number.to_string();
                let bytes = group(Subgroup::of(number % 3), &[payload.as_bytes()]);
                let stream = uni(number);
                let write = Action::Write(bytes.into());
                vec![
                    Step::Act(A, stream, write),
                    Step::Act(A, stream, Action::Finish),
                ]
            }));
        }),
    ]
}

fn vanishing() -> Vec<Case> {
    vec![
        robust("vanishing.publishers", |script| {
            let track = script.track.below("vanishing");
            script.step(storm(200, 100, move |number, random| {
                let client = usize::try_from(number % 5).unwrap_or(0);
                if random.below(3) == 0 {
                    return vec![Step::Close(client, 0)];
                }
                let encoded = track.named(&(number % 7).to_string());
                let encode = move |id| Request::Publish.encode(id, &encoded, &[]);
                let half = [Subgroup::of(number).encode(), int(0), int(100)].concat();
                vec![
                    Step::Rejoin(client),
                    Step::Ask(client, slot(number), Box::new(encode)),
                    Step::Act(client, uni(number), Action::Write(half.into())),
                    Step::Datagram(client, wire::datagram(number, ALIAS, b"x").into()),
                ]
            }));
        }),
        robust("vanishing.subscribers", |script| {
            let track = script.track.below("vanishing");
            script.step(storm(300, 150, move |number, random| {
                let client = usize::try_from(number % 5).unwrap_or(0);
                if random.below(3) == 0 {
                    return vec![Step::Close(client, 0)];
                }
                let track = track.named(&(number % 7).to_string());
                let waits = (wire::parameter::RENDEZVOUS_TIMEOUT, Value::Int(5000));
                let encode =
                    move |id| Request::Subscribe.encode(id, &track, std::slice::from_ref(&waits));
                vec![
                    Step::Rejoin(client),
                    Step::Ask(client, slot(number), Box::new(encode)),
                ]
            }));
        }),
    ]
}
