//! Hostile messages at random: changed, misplaced, contradictory, or only too many.

mod answers;
pub(crate) mod data;

use weir_link::Random;

pub(crate) use self::answers::Asked;

use crate::{
    line::Action,
    script::Step,
    seen::Slot,
    wire::{self, Range, Request, Subgroup, Track, Value, framed, int, message},
};

/// Encodes a valid message of one kind.
pub(crate) type Encode = fn(u64, &Track) -> Vec<u8>;

/// Every kind of message, with its name in the names of cases. Draft-18 has neither
/// fills nor the last one.
pub(crate) const KINDS: [(&str, Encode); 21] = [
    ("setup", |_, _| {
        framed(message::SETUP, &wire::pairs(&[(0x3FF0, Value::Int(1))]))
    }),
    ("goaway", |_, track| {
        wire::goaway(track.edition, b"", Some(1))
    }),
    ("subscribe", |id, track| {
        Request::Subscribe.encode(id, track, &[])
    }),
    ("publish", |id, track| {
        Request::Publish.encode(id, track, &[])
    }),
    ("subscribe-with-fill", |id, track| {
        let past = wire::fill(&[Range::Recent(1).filter(track.edition)]);
        Request::Subscribe.encode(id, track, &[past])
    }),
    ("fetch", |id, track| Request::Fetch.encode(id, track, &[])),
    ("fetch-of-range", |id, track| {
        wire::fetch(id, track, (200, 0), (300, 0), &[])
    }),
    ("track-status", |id, track| {
        Request::TrackStatus.encode(id, track, &[])
    }),
    ("publish-namespace", |id, track| {
        Request::PublishNamespace.encode(id, track, &[])
    }),
    ("subscribe-namespace", |id, track| {
        Request::SubscribeNamespace.encode(id, track, &[])
    }),
    ("subscribe-tracks", |id, track| {
        Request::SubscribeTracks.encode(id, track, &[])
    }),
    ("request-update", |id, _| {
        wire::update(id, &[(wire::parameter::FORWARD, Value::Byte(1))])
    }),
    ("subscribe-ok", |id, _| wire::subscribe_ok(id, &[], &[])),
    ("fetch-ok", |_, track| {
        wire::fetch_ok(track.edition, (1, 0), &[])
    }),
    ("request-ok", |_, _| wire::request_ok(&[], &[])),
    ("request-error", |_, _| wire::request_error(0, b"reason")),
    ("publish-done", |_, _| wire::publish_done(2, 0, b"reason")),
    ("namespace", |_, track| {
        framed(message::NAMESPACE, &track.namespace())
    }),
    ("namespace-done", |_, track| {
        framed(message::NAMESPACE_DONE, &track.namespace())
    }),
    ("publish-blocked", |_, track| {
        framed(message::PUBLISH_BLOCKED, &track.full())
    }),
    ("publish-state-notify", |_, _| {
        wire::state_notify(&[(wire::parameter::FORWARD, Value::Byte(1))])
    }),
];

/// Returns a message with one to three changes at random.
pub(crate) fn mutated(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..=random.below(3) {
        let place = below(random, bytes.len());
        match random.below(6) {
            0 => bytes.truncate(place),
            1 => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << random.below(8);
                }
            }
            2 => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = 0xFF;
                }
            }
            3 => bytes.insert(place, random.next_u64().to_le_bytes()[0]),
            4 if !bytes.is_empty() => drop(bytes.remove(place)),
            _ => bytes.extend_from_within(place..),
        }
    }
    bytes
}

/// Returns steps that send bytes at one of the positions of a session: before SETUP, on the control stream, as the first
/// message of a request stream, after a request, or on a unidirectional stream.
pub(crate) fn at_a_position(
    client: usize,
    number: u64,
    bytes: Vec<u8>,
    track: &Track,
    random: &mut Random,
) -> Vec<Step> {
    let write = Action::Write(bytes.into());
    let (request, data) = (Slot::Bi(slot(number)), Slot::Uni(slot(number)));
    match random.below(6) {
        0 => vec![
            Step::Connect(client),
            Step::Act(client, Slot::Control, write),
        ],
        1 => vec![
            Step::Rejoin(client),
            Step::Act(client, Slot::Control, write),
        ],
        2 => vec![
            Step::Rejoin(client),
            Step::Act(client, request, write),
            Step::Act(client, request, Action::Finish),
        ],
        3 => vec![
            Step::Rejoin(client),
            Step::Act(client, data, write),
            Step::Act(client, data, Action::Finish),
        ],
        _ => {
            let kind = any_request(random);
            let track = track.clone();
            let encode = move |id| kind.encode(id, &track, &[]);
            vec![
                Step::Rejoin(client),
                Step::Ask(client, request, Box::new(encode)),
                Step::Act(client, request, write),
            ]
        }
    }
}

/// Returns the steps of one hostile message of the volume. About one in 300 breaks a rule that closes the session.
pub(crate) fn act(number: u64, random: &mut Random, track: &Track) -> Vec<Step> {
    let client = usize::try_from(number % CLIENTS).unwrap_or(0);
    let track = track.named(&random.below(16).to_string());
    if random.below(300) == 0 {
        return violate(client, number, random, &track);
    }
    let mut steps = joined(client);
    // What this session asked a little earlier is cancelled, whether or not it was answered.
    if let Some(earlier) = number.checked_sub(CLIENTS * REQUESTS) {
        let earlier = Slot::Bi(slot(earlier));
        steps.push(Step::Act(client, earlier, Action::Stop(1)));
        steps.push(Step::Act(client, earlier, Action::Reset(1)));
    }
    let (turn, request) = (number / CLIENTS, Slot::Bi(slot(number)));
    if turn.is_multiple_of(PUBLISH_TURNS) {
        let alias = alias(turn);
        let encode = move |id| wire::publish(id, &track, alias, &[], &[]);
        steps.push(Step::Ask(client, request, Box::new(encode)));
        return steps;
    }
    // Half of the data is that of the newest publication, if its session still stands.
    let alias = match random.below(2) {
        0 => alias(turn),
        _ => random.below(300),
    };
    match random.below(12) {
        0..=1 => {
            let kind = [Request::TrackStatus, Request::Fetch][below(random, 2)];
            let encode = move |id| kind.encode(id, &track, &[]);
            steps.push(Step::Ask(client, request, Box::new(encode)));
            steps.push(Step::Act(client, request, Action::Finish));
        }
        2 => {
            let kind = any_request(random);
            let encode = move |id| match kind {
                Request::Publish => wire::publish(id, &track, id + 1000, &[], &[]),
                Request::Subscribe
                | Request::Fetch
                | Request::TrackStatus
                | Request::PublishNamespace
                | Request::SubscribeNamespace
                | Request::SubscribeTracks => kind.encode(id, &track, &[]),
            };
            steps.push(Step::Ask(client, request, Box::new(encode)));
        }
        3..=5 => steps.push(Step::Datagram(client, datagram(random, alias).into())),
        6..=8 => steps.extend(subgroup_stream(client, number, alias, random)),
        9 => {
            let group = random_group(random);
            let (is_stream, bytes) = data::any(random, alias, group);
            steps.extend(send(client, number, is_stream, bytes, Action::Finish));
        }
        _ => steps.push(evasion(client, number, random, track)),
    }
    steps
}

/// Returns steps that join a session. Every other client leaves requests of the relay without an answer until it evades
/// one.
fn joined(client: usize) -> Vec<Step> {
    let mut steps = vec![Step::Rejoin(client)];
    if client % 2 == 1 {
        steps.push(Step::Behave(client, Box::new(|line| line.is_mute = true)));
    }
    steps
}

/// Returns the steps of something that breaks a rule: a message, data or an answer with changes at random, or a GOAWAY,
/// after which the client goes on as before.
fn violate(client: usize, number: u64, random: &mut Random, track: &Track) -> Vec<Step> {
    match random.below(5) {
        0 => {
            let group = random.below(9);
            let (is_stream, bytes) = data::any(random, alias(number / CLIENTS), group);
            let bytes = mutated(bytes, random);
            send(client, number, is_stream, bytes, Action::Finish)
        }
        1 => {
            let (asked, seed) = (asked(client, number, track.clone()), random.next_u64());
            let step = asked.step(move |asked, slot, message| {
                asked.contradict(slot, message, &mut Random::new(seed))
            });
            vec![step]
        }
        2 => {
            let goaway = wire::goaway(track.edition, b"", Some(1));
            let write = Action::Write(goaway.into());
            vec![
                Step::Rejoin(client),
                Step::Act(client, Slot::Control, write),
            ]
        }
        _ => {
            let (_, encode) = KINDS[below(random, KINDS.len())];
            let bytes = mutated(encode(number, track), random);
            at_a_position(client, number, bytes, track, random)
        }
    }
}

/// Returns a step that answers what the relay asks, mostly not as it is meant.
fn evasion(client: usize, number: u64, random: &mut Random, track: Track) -> Step {
    let seed = random.next_u64();
    asked(client, number, track)
        .step(move |asked, slot, message| asked.evade(slot, message, &mut Random::new(seed)))
}

fn asked(client: usize, number: u64, track: Track) -> Asked {
    Asked {
        client,
        number,
        track,
    }
}

/// Returns a datagram of an object without properties.
fn datagram(random: &mut Random, alias: u64) -> Vec<u8> {
    let datagram = [
        int(random.below(16)),
        int(alias),
        int(random_group(random)),
        int(random.next_u64() >> random.below(64)),
        vec![1, 2, 3, 4],
    ];
    // Those with properties or a status would break the rules.
    let mut datagram = datagram.concat();
    datagram[0] &= 0x0E;
    datagram
}

/// Returns the steps of a subgroup stream that ends or is reset.
fn subgroup_stream(client: usize, number: u64, alias: u64, random: &mut Random) -> Vec<Step> {
    let header = Subgroup {
        alias,
        group: random_group(random),
        id: random.below(4),
        ..Subgroup::of(0)
    };
    let bytes = wire::group(header, &[b"hostile", b"", b"objects"]);
    let end = if random.below(4) == 0 {
        Action::Reset(random.below(40))
    } else {
        Action::Finish
    };
    send(client, number, true, bytes, end)
}

/// Returns steps that send bytes as a unidirectional stream with this end, or as a datagram.
pub(crate) fn send(
    client: usize,
    number: u64,
    is_stream: bool,
    bytes: Vec<u8>,
    end: Action,
) -> Vec<Step> {
    if !is_stream {
        return vec![Step::Datagram(client, bytes.into())];
    }
    let stream = Slot::Uni(slot(number));
    vec![
        Step::Act(client, stream, Action::Write(bytes.into())),
        Step::Act(client, stream, end),
    ]
}

fn random_group(random: &mut Random) -> u64 {
    random.below(1000)
}

/// Returns the Track Alias of the newest publication of a client. The one that had it before is cancelled.
fn alias(turn: u64) -> u64 {
    300 + turn / PUBLISH_TURNS % 8
}

fn any_request(random: &mut Random) -> Request {
    Request::ALL[below(random, Request::ALL.len())]
}

fn below(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap_or(0)
}

/// The slot of a message. Those of the volume repeat after many.
fn slot(number: u64) -> u32 {
    10_000 + u32::try_from(number % 1_000_000_000).unwrap_or(0)
}

/// Sessions that send the volume at the same time.
const CLIENTS: u64 = 6;
/// Messages of a session after which a request is cancelled.
const REQUESTS: u64 = 40;
/// A session publishes a track each time after so many messages.
const PUBLISH_TURNS: u64 = 20;
