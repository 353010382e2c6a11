use weir_moqt::property::PropertiesBuilder;

use super::loc_clock::USUAL_DURATION_US;
use super::*;
use crate::packaging::LOC_TIMESTAMP;
use crate::{Ingest, Item};

/// 36 frames in groups of 15, with B-frames that others need.
const PYRAMID: &[u8] = include_bytes!("../../../tests/media/pyramid.mp4");

fn pyramid() -> (Box<Init>, Vec<crate::Frame>) {
    let mut ingest = Ingest::new();
    ingest.push(PYRAMID);
    let Ok(Some(Item::Init(init))) = ingest.poll() else {
        panic!("the init segment comes first");
    };
    let mut frames = Vec::new();
    while let Some(item) = ingest.poll().expect("a whole stream") {
        let Item::Frame(frame) = item else {
            panic!("it has no sound");
        };
        frames.push(frame);
    }
    (init, frames)
}

fn unpacker(codec: &str, form: Form) -> Unpacker {
    Unpacker::new(VideoPlan {
        name: "video".to_owned(),
        codec: codec.to_owned(),
        form,
    })
}

fn loc(codec: &str, timescale: u64) -> Unpacker {
    unpacker(
        codec,
        Form::Loc {
            timescale,
            length_bytes: 4,
        },
    )
}

fn read(
    unpacker: &mut Unpacker,
    (group, id): (u64, u64),
    properties: PropertiesBuilder,
    payload: &Bytes,
) -> Result<Vec<FrameTag>, UnpackError> {
    unpacker.read(&ReceivedObject {
        group,
        id,
        properties: &properties.build(),
        payload: payload.clone(),
        arrived_us: 7_000_000,
    })
}

#[test]
fn fragments_tell_as_much_as_an_origin_of_ours_would() {
    let (init, frames) = pyramid();
    let mut unpacker = unpacker("avc1.64000a", Form::Cmaf(init));
    for (number, frame) in (0..).zip(&frames) {
        let place = (frame.group, frame.index);
        // Other boxes may precede the fragment.
        let payload = [b"\0\0\0\x0cstypcmf2", &frame.fragment[..]].concat();
        let tags = read(&mut unpacker, place, Properties::builder(), &payload.into());
        assert_eq!(tags, Ok(vec![FrameTag::new(frame, number, 7_000_000)]));
    }
}

#[test]
fn several_frames_in_a_fragment_have_a_time_each() {
    let (init, frames) = pyramid();
    let mut unpacker = unpacker("avc1.64000a", Form::Cmaf(init));
    let payload = [&frames[0].fragment[..], &frames[1].fragment[..]].concat();
    let tags = read(
        &mut unpacker,
        (0, 0),
        Properties::builder(),
        &payload.into(),
    );
    let tags = tags.expect("two frames");
    let times: Vec<i64> = tags.iter().map(|tag| tag.decode_us).collect();
    assert_eq!(times, [frames[0].decode_us, frames[1].decode_us]);
    assert_eq!(tags[1].references, 1);
}

#[test]
fn an_object_has_so_many_frames_and_no_more() {
    let (init, frames) = pyramid();
    let mut unpacker = unpacker("avc1.64000a", Form::Cmaf(init));
    let fragment = &frames[1].fragment;
    for (count, is_taken) in [
        (FRAMES_PER_OBJECT_MAX, true),
        (FRAMES_PER_OBJECT_MAX + 1, false),
    ] {
        let payload = Bytes::from(fragment.repeat(count));
        let tags = read(&mut unpacker, (0, 0), Properties::builder(), &payload);
        let expected = if is_taken {
            Ok(count)
        } else {
            Err(UnpackError::TooManyFrames)
        };
        assert_eq!(tags.map(|tags| tags.len()), expected);
    }
}

#[test]
fn an_object_has_so_many_bytes_beside_its_samples_and_no_more() {
    let (init, frames) = pyramid();
    let mut unpacker = unpacker("avc1.64000a", Form::Cmaf(init));
    let fragment = &frames[1].fragment;
    let (size, _) = fragment.split_first_chunk().expect("a header");
    let room = HEAD_BYTES_PER_OBJECT_MAX - u32::from_be_bytes(*size) as usize;
    for (bytes, expected) in [(room, Ok(1)), (room + 1, Err(UnpackError::HeadTooLarge))] {
        // A box that is skipped.
        let size = u32::try_from(bytes).expect("small").to_be_bytes();
        let mut skipped = [&size[..], b"free"].concat();
        skipped.resize(bytes, 0);
        let payload = Bytes::from([&skipped[..], fragment].concat());
        let tags = read(&mut unpacker, (0, 0), Properties::builder(), &payload);
        assert_eq!(tags.map(|tags| tags.len()), expected);
    }
}

#[test]
fn coded_frames_have_the_time_that_any_version_of_loc_says() {
    let (_, frames) = pyramid();
    let sample = &frames[0].sample;
    for (properties, scale) in [
        (Properties::builder().int(LOC_TIMESTAMP, 45_000), 90_000),
        (Properties::builder().int(0x0A, 45_000), 90_000),
        (Properties::builder().int(0x06, 500_000), 1_000_000),
        (
            Properties::builder()
                .int(LOC_TIMESTAMP, 500)
                .int(LOC_TIMESCALE, 1000),
            90_000,
        ),
    ] {
        let mut unpacker = loc("avc1.64000a", scale);
        let tags = read(&mut unpacker, (3, 0), properties, sample).expect("a frame");
        assert_eq!(tags[0].presentation_us, 500_000);
        assert_eq!(tags[0].kind, FrameKind::Key);
        assert_eq!(tags[0].duration_us, USUAL_DURATION_US);
        let next = Properties::builder()
            .int(LOC_TIMESTAMP, 550)
            .int(LOC_TIMESCALE, 1000);
        let tags = read(&mut unpacker, (3, 1), next, &frames[1].sample).expect("a frame");
        assert_eq!((tags[0].duration_us, tags[0].references), (50_000, 1));
        assert_eq!(tags[0].kind, frames[1].kind);
    }
}

#[test]
fn of_other_codecs_the_first_object_of_a_group_is_its_keyframe() {
    let mut unpacker = loc("av01.0.04M.08", 1000);
    let frame = Bytes::from_static(b"whatever it is");
    let mut kinds = String::new();
    for (group, id) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)] {
        let properties = Properties::builder().int(LOC_TIMESTAMP, group * 3 + id);
        let tags = read(&mut unpacker, (group, id), properties, &frame).expect("a frame");
        kinds.push(tags[0].kind.letter());
        assert_eq!(tags[0].references, id);
    }
    assert_eq!(kinds, "IPPIP");
}

#[test]
fn what_is_no_frame_is_told_why() {
    let (init, frames) = pyramid();
    let error = |unpacker: &mut Unpacker, properties, payload: &[u8]| {
        let payload = Bytes::copy_from_slice(payload);
        let read = read(unpacker, (0, 0), properties, &payload);
        read.expect_err("bad").to_string()
    };
    let none = Properties::builder;
    let mut coded = loc("avc1.64000a", 1000);
    assert_eq!(
        error(&mut coded, none(), &frames[0].sample),
        "the object has no time (LOC: property 0x10)"
    );
    for properties in [
        none().int(LOC_TIMESTAMP, 1).int(LOC_TIMESCALE, 0),
        none().int(LOC_TIMESTAMP, u64::MAX >> 2),
    ] {
        let reason = error(&mut coded, properties, &frames[0].sample);
        assert_eq!(reason, "the time of the object is out of range");
    }
    let mut fragments = unpacker("avc1.64000a", Form::Cmaf(init));
    let fragment = &frames[0].fragment;
    for (payload, reason) in [
        (
            &fragment[..fragment.len() - 1],
            "before the end of a box \"mdat\"",
        ),
        (&fragment[4..], "byte 0: the box"),
        (b"\0\0\0\x08mdat", "it has no video samples"),
        (b"", "it has no video samples"),
    ] {
        let found = error(&mut fragments, none(), payload);
        assert!(found.contains(reason), "{found}");
    }
}
