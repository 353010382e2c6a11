//! Data streams, datagrams and answers with changes at random, and everything after a GOAWAY.

use super::{
    asked::{self, Asks},
    robustness::{robust, slot, storm, uni},
};
use crate::{
    case::Case,
    hostile::{self, data},
    line::Action,
    script::{Script, Step},
    seen::Slot,
    wire::{self, Request},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = streams().chain(datagrams()).collect();
    cases.extend(answers());
    cases.extend(after_goaway());
    cases
}

/// A client subscribes to the tracks of all publishers, accepts them, and receives what the relay forwards.
fn receive(script: &mut Script) {
    script.join(RECEIVER);
    let track = script.track.below("data");
    script.request_of(RECEIVER, Request::SubscribeTracks, track);
}

/// Returns a step in which the receiver accepts a track that the relay offers.
fn accept(number: u64, track: &wire::Track) -> Step {
    let asked = hostile::Asked {
        client: RECEIVER,
        number,
        track: track.clone(),
    };
    asked.step(|asked, slot, message| vec![asked.write(slot, asked.valid(message))])
}

/// Publications with data that the closure changes, from four clients.
fn publications(
    script: &mut Script,
    times: u64,
    data: impl Fn(u64, u64, &mut weir_link::Random) -> (bool, Vec<u8>) + Send + 'static,
) {
    receive(script);
    let all = script.track.below("data");
    script.step(storm(times, 300, move |number, random| {
        let client = usize::try_from(number % CLIENTS).unwrap_or(0);
        let (track, alias) = (all.named(&number.to_string()), ALIASES + number);
        let (offered, open) = (track.clone(), slot(number));
        let encode = move |id| wire::publish(id, &offered, alias, &[], &[]);
        let mut steps = vec![Step::Rejoin(client)];
        if let Some(earlier) = number.checked_sub(KEPT) {
            steps.push(Step::Act(client, slot(earlier), Action::Stop(1)));
            steps.push(Step::Act(client, slot(earlier), Action::Reset(1)));
        }
        steps.push(Step::Ask(client, open, Box::new(encode)));
        let (is_stream, bytes) = data(number, alias, random);
        if is_stream {
            let end = [Action::Finish, Action::Reset(random.below(40))];
            let place = usize::from(random.below(4) == 0);
            let write = Action::Write(bytes.into());
            steps.push(Step::Act(client, uni(number), write));
            steps.push(Step::Act(client, uni(number), end[place].clone()));
        } else {
            steps.push(Step::Datagram(client, bytes.into()));
        }
        steps.push(accept(number, &track));
        steps
    }));
    script.wait(200);
}

/// Each kind of data stream with changes at random.
fn streams() -> impl Iterator<Item = Case> {
    data::STREAMS.into_iter().map(|(name, encode)| {
        robust(format!("mutated.{name}"), move |script| {
            publications(script, 240, move |number, alias, random| {
                (true, hostile::mutated(encode(alias, number % 3), random))
            });
        })
    })
}

/// Each kind of datagram with changes at random.
fn datagrams() -> impl Iterator<Item = Case> {
    data::DATAGRAMS.into_iter().map(|(name, encode)| {
        robust(format!("mutated.{name}"), move |script| {
            publications(script, 240, move |number, alias, random| {
                (false, hostile::mutated(encode(alias, number % 3), random))
            });
        })
    })
}

/// Answers to each request of the relay that contradict it, themselves or the rules of framing, with data that does.
fn answers() -> impl Iterator<Item = Case> {
    Asks::ALL.into_iter().map(|asks| {
        robust(
            format!("mutated.answer-to-{}", asks.word()),
            move |script| {
                asked::answering(script, asks, 240, |_, asked, slot, message, random| {
                    if random.below(2) == 0 {
                        asked.contradict(slot, message, random)
                    } else {
                        asked.evade(slot, message, random)
                    }
                });
            },
        )
    })
}

/// What clients send after their own GOAWAY: messages, data and answers, with and without changes.
fn after_goaway() -> Vec<Case> {
    vec![
        robust("after-goaway.messages", |script| {
            let track = script.track.below("goaway");
            script.step(storm(240, 300, move |number, random| {
                let client = usize::try_from(number % CLIENTS).unwrap_or(0);
                let kind = usize::try_from(number).unwrap_or(0) % hostile::KINDS.len();
                let (_, encode) = hostile::KINDS[kind];
                let mut bytes = encode(2 * (number / CLIENTS), &track);
                if random.below(2) == 0 {
                    bytes = hostile::mutated(bytes, random);
                }
                let mut steps = leave(client, number, &track);
                steps.extend(hostile::at_a_position(
                    client, number, bytes, &track, random,
                ));
                steps
            }));
            script.wait(200);
        }),
        robust("after-goaway.data", |script| {
            let track = script.track.below("goaway");
            script.step(storm(240, 300, move |number, random| {
                let client = usize::try_from(number % CLIENTS).unwrap_or(0);
                let alias = ALIASES + number;
                let track = track.named(&number.to_string());
                let mut steps = leave(client, number, &track);
                let encode = Box::new(move |id| wire::publish(id, &track, alias, &[], &[]));
                steps.push(Step::Ask(client, slot(number), encode));
                let (is_stream, mut bytes) = data::any(random, alias, number % 3);
                if random.below(4) == 0 {
                    bytes = hostile::mutated(bytes, random);
                }
                let end = Action::Finish;
                steps.extend(hostile::send(client, number, is_stream, bytes, end));
                steps
            }));
            script.wait(200);
        }),
        robust("after-goaway.answers", |script| {
            asked::answering(
                script,
                Asks::Subscribe,
                240,
                |_, asked, slot, message, random| {
                    let mut steps = Vec::new();
                    if random.below(2) == 0 {
                        let goaway = wire::goaway(asked.track.edition, b"", Some(1));
                        steps.push(asked.write(Slot::Control, goaway));
                    }
                    if random.below(4) == 0 {
                        steps.extend(asked.contradict(slot, message, random));
                    } else {
                        steps.extend(asked.evade(slot, message, random));
                    }
                    steps
                },
            );
        }),
    ]
}

/// Returns steps in which a client sends GOAWAY in a new session, or goes on after it.
fn leave(client: usize, number: u64, track: &wire::Track) -> Vec<Step> {
    if !(number / CLIENTS).is_multiple_of(TURNS) {
        return vec![Step::Rejoin(client)];
    }
    let goaway = wire::goaway(track.edition, b"", Some(1));
    vec![
        Step::Close(client, 0),
        Step::Rejoin(client),
        Step::Act(client, Slot::Control, Action::Write(goaway.into())),
    ]
}

/// Hostile clients.
const CLIENTS: u64 = 4;
/// The client that receives what they publish.
const RECEIVER: usize = 5;
/// Track Aliases of publications begin here.
const ALIASES: u64 = 100;
/// What a session sends after its GOAWAY, unless the relay closes it before.
const TURNS: u64 = 4;
/// Publications that stay open at a time.
const KEPT: u64 = 40;
