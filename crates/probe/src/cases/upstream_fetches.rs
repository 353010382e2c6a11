//! What a relay makes of the fetches that it sends to publishers.

use weir_moqt::message::{Message, MessageKind};

use super::VIOLATION;
use crate::{
    case::Case,
    edition::{Edition, Sections, in_18, in_both},
    script::{
        A, B, C, Check, Progress, Script, Step, answered, closed, kind, message, object, object_at,
        over, refused, request,
    },
    seen::{Object, Slot, StreamEnd, Way},
    wire::{self, Subgroup, Value, group, int, parameter, property, refusal},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = publishers();
    cases.push(waiting());
    cases.push(datagram_bits());
    cases.push(cancelled());
    cases.extend(mandatory_properties());
    cases.extend(kept());
    cases
}

/// A publisher announces the track, a client asks for its groups 5 and 6, and the relay's FETCH reaches the publisher, which
/// has not answered it. Returns the stream of the relay's FETCH and that of the client's.
fn asked(script: &mut Script, publisher: usize, client: usize) -> (Slot, Slot) {
    script.announce(publisher);
    script.step(Step::Behave(
        publisher,
        Box::new(|line| line.is_mute = true),
    ));
    script.join(client);
    let track = script.track.clone();
    let slot = script.ask(client, move |id| {
        wire::fetch(id, &track, (5, 0), (6, 0), &[])
    });
    let taken = script.taken();
    script.expect(publisher, request(taken, MessageKind::Fetch, |_| true));
    (taken, slot)
}

/// Sends a fetch stream for the relay's FETCH: its header, and this content. Returns the stream, which is open.
pub(super) fn serve(script: &mut Script, publisher: usize, taken: Slot, content: &[u8]) -> Slot {
    let (slot, content) = (script.uni(), content.to_vec());
    script.step(Step::Reply(
        publisher,
        slot,
        Box::new(move |seen| {
            let first = seen.on(taken).and_then(|it| it.messages.first());
            let Some(Message::Fetch(fetch)) = first else {
                return Err("the relay's FETCH is gone".to_owned());
            };
            let header = [int(wire::stream::FETCH), int(fetch.request_id)].concat();
            Ok([&header[..], &content].concat())
        }),
    ));
    slot
}

/// Object 0 of group 5.
const FIRST: [u8; 6] = [0x1C, 5, 0, 128, 1, b'a'];

/// An answer that waits for a publisher.
fn waiting() -> Case {
    Case::must(
        "fetch.waits-for-upstream",
        in_both("9.4", "7.4"),
        "FETCH_OK is not sent before the relay knows what it says",
        |script| {
            let (taken, slot) = asked(script, B, A);
            script.then();
            script.never(A, answered(slot));
            let stream = serve(script, B, taken, &FIRST);
            script.finish(B, stream);
            script.write(B, taken, wire::fetch_ok(script.edition, (6, 0), &[]));
            script.expect(A, kind(slot, MessageKind::FetchOk));
            script.expect(A, object_at(5, 0, b"a"));
        },
    )
}

/// The relay has reset its fetch stream, with this code; with any if there is none.
pub(super) fn stream_reset(code: Option<u64>) -> Check {
    let text = match code {
        Some(code) => format!("a reset of the fetch stream with {code:#x}"),
        None => "a reset of the fetch stream".to_owned(),
    };
    Check::new(text, move |seen| {
        let mut streams = seen.streams();
        let stream = streams.find(|(_, one)| one.fetch.is_some());
        match stream.and_then(|(_, one)| one.end) {
            Some(StreamEnd::Reset(found)) if code.is_none_or(|code| code == found) => Progress::Met,
            Some(StreamEnd::Reset(found)) => {
                Progress::Broken(format!("the relay reset the stream with {found:#x}"))
            }
            Some(StreamEnd::Fin) => Progress::Broken("the relay sent FIN".to_owned()),
            None => Progress::Pending,
        }
    })
}

/// A datagram of a fetch, of whose flags two bits mean nothing.
fn datagram_bits() -> Case {
    Case::must(
        "fetch-stream.datagram-subgroup-bits",
        in_both("11.4.4.1", "11.4.1.1"),
        "the bits of the subgroup ID are ignored for an object that was published as a datagram",
        |script| {
            let (taken, _) = asked(script, B, A);
            script.then();
            script.write(B, taken, wire::fetch_ok(script.edition, (6, 0), &[]));
            let stream = serve(script, B, taken, &[0x5F, 5, 0, 128, 1, b'a']);
            script.finish(B, stream);
            script.expect(A, object_at(5, 0, b"a"));
        },
    )
}

/// A fetch that the subscriber cancels.
fn cancelled() -> Case {
    Case::must(
        "fetch.cancel-resets-stream",
        in_both("5.2", "3.2.4"),
        "a publisher that receives STOP_SENDING for a FETCH resets its fetch stream",
        |script| {
            let (taken, slot) = asked(script, B, A);
            script.write(B, taken, wire::fetch_ok(script.edition, (6, 0), &[]));
            serve(script, B, taken, &FIRST);
            script.expect(A, object_at(5, 0, b"a"));
            script.then();
            script.stop(A, slot, 1);
            script.reset(A, slot, 1);
            script.expect(A, stream_reset(None));
        },
    )
}

/// Answers of a publisher with a mandatory property that the relay does not know.
fn mandatory_properties() -> Vec<Case> {
    fn accept(script: &mut Script, taken: Slot) {
        let unknown = [(property::MANDATORY_UNKNOWN, Value::Int(1))];
        let accepted = wire::fetch_ok(script.edition, (6, 0), &unknown);
        script.write(B, taken, accepted);
    }
    vec![
        Case::must(
            "mandatory-property.fetch-ok",
            in_both("2.5.1", "3.7"),
            "a FETCH of a track with an unknown mandatory property is refused with UNSUPPORTED_EXTENSION",
            |script| {
                let (taken, slot) = asked(script, B, A);
                script.then();
                accept(script, taken);
                script.expect(A, refused(slot, &[refusal::UNSUPPORTED_EXTENSION]));
            },
        ),
        Case::must(
            "mandatory-property.cancels-fetch",
            in_both("2.5.1", "3.7"),
            "the relay cancels a fetch with an unknown mandatory property",
            |script| {
                let (taken, _) = asked(script, B, A);
                script.then();
                accept(script, taken);
                script.expect(B, over(taken));
            },
        ),
    ]
}

/// What a relay has kept of a track.
fn kept() -> Vec<Case> {
    vec![
        Case::must(
            "fetch.track-properties",
            in_both("9.6", "7.7"),
            "a relay forwards all Track Properties in FETCH_OK",
            |script| {
                let kept = [(property::OF_APPLICATION, Value::Bytes(b"kept".to_vec()))];
                let encoded = wire::pairs(&kept);
                script.channel_with(B, C, vec![], &kept);
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(C, object_at(0, 0, b"a"));
                script.join(A);
                script.then();
                let track = script.track.clone();
                let slot = script.ask(A, move |id| wire::fetch(id, &track, (0, 0), (0, 1), &[]));
                let text = "FETCH_OK with the Track Properties of the publisher";
                script.expect(
                    A,
                    message(slot, text, move |message| {
                        matches!(message, Message::FetchOk(ok) if ok.properties.as_bytes()[..] == encoded[..])
                    }),
                );
            },
        ),
        Case::must(
            "fetch.max-cache-duration",
            in_both("12.3", "10.3"),
            "an object is not served from the cache after MAX_CACHE_DURATION",
            |script| {
                let duration = [(property::MAX_CACHE_DURATION, Value::Int(200))];
                script.channel_with(B, C, vec![], &duration);
                script.step(Step::Behave(B, Box::new(|line| line.is_mute = true)));
                script.stream(B, group(Subgroup::of(0), &[b"a"]));
                script.expect(C, object_at(0, 0, b"a"));
                script.wait(600);
                script.join(A);
                script.then();
                let track = script.track.clone();
                let at_once = (parameter::FILL_TIMEOUT, Value::Int(0));
                script.ask(A, move |id| {
                    wire::fetch(id, &track, (0, 0), (0, 1), std::slice::from_ref(&at_once))
                });
                let is_fetched = |object: &Object| matches!(object.way, Way::Fetch { .. });
                script.never(A, object("a fetched object", is_fetched));
            },
        ),
    ]
}

/// An answer to a FETCH: `FETCH_OK`, and the content of the fetch stream after its header.
type Answer = fn(Edition) -> (Vec<u8>, Vec<u8>);

/// A case in which a publisher answers the relay's own FETCH, if the relay sends one for a track that is only announced.
fn answering(name: &str, sections: Sections, text: &str, answer: Answer) -> Case {
    Case::must(name, sections, text, move |script| {
        let (taken, _) = asked(script, A, B);
        script.then();
        let edition = script.edition;
        serve(script, A, taken, &answer(edition).1);
        script.write(A, taken, answer(edition).0);
        script.expect(A, closed(VIOLATION));
    })
}

/// Answers that a publisher may not give.
fn publishers() -> Vec<Case> {
    vec![
        answering(
            "fetch-stream.first-without-location",
            in_both("11.4.4.1", "11.4.1.1"),
            "a first object that refers to one before closes the session",
            |edition| (wire::fetch_ok(edition, (6, 0), &[]), vec![0x10, 1, 1, b'a']),
        ),
        answering(
            "fetch-stream.unknown-flags",
            in_both("11.4.4", "11.4.1"),
            "unknown serialization flags close the session",
            |edition| {
                (
                    wire::fetch_ok(edition, (6, 0), &[]),
                    [int(0x80), vec![5, 0, 0]].concat(),
                )
            },
        ),
        answering(
            "fetch-stream.timed-out-range",
            in_18("11.4.4"),
            "unknown serialization flags, as those of a timed-out range are, close the session",
            |edition| {
                let end = [int(0x20C), vec![5, 0]].concat();
                (wire::fetch_ok(edition, (6, 0), &[]), end)
            },
        ),
        answering(
            "fetch-stream.group-above-maximum",
            in_both("11.4.4.1", "11.4.1.1"),
            "a group ID beyond 2^64 - 1 closes the session",
            |edition| {
                let first = vec![0x1C, 5, 0, 128, 1, b'a'];
                let beyond = [vec![0x0C], int(u64::MAX), vec![0, 1, b'a']].concat();
                let bytes = [first, beyond].concat();
                (wire::fetch_ok(edition, (6, 0), &[]), bytes)
            },
        ),
        answering(
            "fetch-stream.object-above-maximum",
            in_both("11.4.4.1", "11.4.1.1"),
            "an object ID beyond 2^64 - 1 closes the session",
            |edition| {
                let first = vec![0x1C, 5, 1, 128, 1, b'a'];
                let beyond = [vec![0x04], int(u64::MAX), vec![1, b'a']].concat();
                let bytes = [first, beyond].concat();
                (wire::fetch_ok(edition, (6, 0), &[]), bytes)
            },
        ),
        answering(
            "fetch-ok.end-before-start",
            in_both("10.13", "9.12"),
            "a FETCH_OK that ends before the start of the FETCH closes the session",
            |edition| (wire::fetch_ok(edition, (1, 1), &[]), vec![]),
        ),
    ]
}
