//! Clients that withhold something: credit, the reading of answers, packets, the end of a handshake.

use weir_quic::Loss;

use super::robustness::{robust_against, slot, storm, uni};
use crate::{
    case::Case,
    line::{Action, Fault, Line},
    script::{A, Check, Step, answered, ok, progress, subscribed},
    wire::{self, Request, Subgroup, Track, Value, group, int, property},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        offers_not_read(),
        answers_not_read(),
        out_of_order(),
        never_finished(),
        pings_in_initials(),
    ]
}

/// Each track has properties of 60 kB, which every offer of the relay repeats.
fn offers_not_read() -> Case {
    let what = "four sessions that grant no credit want 100 tracks with properties of 60 kB";
    robust_against("greedy.offers-not-read", what, |script| {
        for client in GREEDY {
            script.step(Step::Behave(client, Box::new(grant_little)));
            script.join(client);
            let request = script.request(client, Request::SubscribeTracks);
            script.expect(client, answered(request));
            script.step(Step::Behave(client, Box::new(stop_reading)));
        }
        script.join(A);
        let track = script.track.clone();
        script.step(storm(100, 200, move |number, _| {
            let encode = large(track.named(&number.to_string()));
            vec![Step::Ask(A, slot(number), Box::new(encode))]
        }));
        script.wait(HOLDING_MS);
    })
}

/// The answer to each request has the properties of the track.
fn answers_not_read() -> Case {
    let what =
        "four sessions that grant no credit ask 100 times for a track with properties of 60 kB";
    robust_against("greedy.answers-not-read", what, |script| {
        script.join(A);
        let publication = script.ask(A, large(script.track.clone()));
        script.expect(A, ok(publication));
        for client in GREEDY {
            script.step(Step::Behave(client, Box::new(grant_little)));
            script.join(client);
            script.step(Step::Behave(client, Box::new(stop_reading)));
        }
        let track = script.track.clone();
        script.step(storm(100, 200, move |number, _| {
            let kinds = [Request::TrackStatus, Request::Fetch, Request::Subscribe];
            let kind = kinds[usize::try_from(number % 3).unwrap_or(0)];
            let ask = |client| {
                let track = track.clone();
                let encode = move |id| kind.encode(id, &track, &[]);
                Step::Ask(client, slot(number), Box::new(encode))
            };
            GREEDY.map(ask).into()
        }));
        script.wait(HOLDING_MS);
    })
}

/// A relay that keeps packets where they were received keeps what came with them.
fn out_of_order() -> Case {
    let what = "four publishers send single bytes after gaps that they never fill, between 32 KiB of another one each";
    robust_against("greedy.out-of-order", what, |script| {
        let own = script.track.clone();
        for client in GREEDY {
            script.track = own.named(&format!("gaps-{client}"));
            script.publish(client);
        }
        script.join(SUBSCRIBER);
        let subscription = script.request(SUBSCRIBER, Request::Subscribe);
        script.expect(SUBSCRIBER, subscribed(subscription));
        let gaps = GREEDY.map(|client| {
            let stream = script.uni();
            let start = [Subgroup::of(0).encode(), int(0), int(1_000_000)].concat();
            script.write(client, stream, start);
            (client, Fault::Gap(stream))
        });
        script.track = own;
        script.publish(A);
        script.wait(100);
        script.step(storm(150, 150, move |number, _| {
            let bytes = group(Subgroup::of(number), &[&vec![b'x'; 32 << 10]]);
            let mut steps = vec![
                Step::Act(A, uni(number), Action::Write(bytes.into())),
                Step::Act(A, uni(number), Action::Finish),
            ];
            let gaps = gaps.iter().map(|&(client, gap)| Step::Fault(client, gap));
            steps.extend(gaps);
            steps
        }));
        let beyond = Check::new("bytes from beyond a gap", |seen| {
            progress(seen.objects.iter().any(|it| !it.payload.is_empty()))
        });
        script.never(SUBSCRIBER, beyond);
    })
}

/// Clients that fall silent after the first packet.
fn never_finished() -> Case {
    let what = "400 clients begin a handshake and fall silent";
    robust_against("handshake.never-finished", what, |script| {
        script.step(storm(400, 200, |number, _| {
            let client = usize::try_from(number % 6).unwrap_or(0);
            vec![
                Step::Fault(client, Fault::Abandon),
                Step::Connect(client),
                Step::Fault(client, Fault::Lose(received_above(0))),
            ]
        }));
    })
}

/// RFC 9000 §10.1: each packet that arrives restarts the idle timer. The clients lose the packets of the relay's
/// handshake, which are padded, and get the others: acknowledgements, and the end.
fn pings_in_initials() -> Case {
    let what = "six clients keep handshakes open with PINGs, which the relay ends within 12 s";
    robust_against("handshake.pings-in-initials", what, |script| {
        for client in 0..6 {
            script.step(Step::Connect(client));
            script.step(Step::Fault(client, Fault::Lose(received_above(1000))));
        }
        script.step(storm(24, 2, |_, _| {
            let ping = |client| Step::Fault(client, Fault::Ping);
            (0..6).map(ping).collect()
        }));
        script.then();
        for client in 0..6 {
            script.expect(client, given_up());
        }
    })
}

/// The relay ends the connection.
fn given_up() -> Check {
    Check::new("the end of the handshake", |seen| {
        progress(seen.ended.is_some())
    })
}

fn received_above(bytes: u16) -> Loss {
    Loss {
        received_above: Some(bytes),
        ..Loss::NONE
    }
}

/// Grants credit for SETUP and a few answers, also over HTTP/3.
fn grant_little(line: &mut Line) {
    line.grants_bytes = Some(4096);
}

fn stop_reading(line: &mut Line) {
    line.is_deaf = true;
}

/// Returns PUBLISH of a track with large properties.
fn large(track: Track) -> impl Fn(u64) -> Vec<u8> + Send + 'static {
    let kept = (property::OF_APPLICATION, Value::Bytes(vec![b'x'; 60_000]));
    move |id| wire::publish(id, &track, id + 100, &[], std::slice::from_ref(&kept))
}

/// The clients that take and do not read, or send and do not complete.
const GREEDY: [usize; 4] = [1, 2, 3, 4];
/// A client that subscribes to one of them.
const SUBSCRIBER: usize = 5;
/// How long the relay holds what is not read, until the sessions end.
const HOLDING_MS: u64 = 2000;
