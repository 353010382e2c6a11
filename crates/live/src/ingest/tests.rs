use proptest::prelude::*;

use super::*;
use crate::limits::{BOX_BYTES_MAX, BOX_DEPTH_MAX};

/// 36 frames with audio from ffmpeg 5.1: x264, groups of 15, at most 3 B-frames.
const AUDIO_VIDEO: &[u8] = include_bytes!("../../tests/media/audio-video.mp4");
/// 36 frames with B-frames that other frames need (b-pyramid).
const PYRAMID: &[u8] = include_bytes!("../../tests/media/pyramid.mp4");

/// Ingests `data` in pieces of at most `piece` bytes.
fn take(data: &[u8], piece: usize) -> (Vec<Item>, Result<(), IngestError>) {
    let mut ingest = Ingest::new();
    let mut items = Vec::new();
    for piece in data.chunks(piece) {
        ingest.push(piece);
        loop {
            match ingest.poll() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => return (items, Err(error)),
            }
        }
    }
    let end = ingest.finish();
    (items, end)
}

fn error(data: &[u8]) -> String {
    let (_, end) = take(data, 1000);
    end.expect_err("the stream is broken").to_string()
}

fn frames(items: &[Item]) -> Vec<&Frame> {
    let frames = items.iter().filter_map(|item| match item {
        Item::Frame(frame) => Some(frame),
        Item::Init(_) | Item::Audio { .. } => None,
    });
    frames.collect()
}

/// Returns the offsets and types of the top-level boxes.
fn boxes(data: &[u8]) -> Vec<(usize, [u8; 4])> {
    let mut reader = BoxReader::default();
    reader.push(data);
    let found = std::iter::from_fn(|| reader.poll().expect("well-formed"));
    found
        .map(|found| (usize::try_from(found.offset).expect("small"), found.kind))
        .collect()
}

/// Returns the offset of box `number` of a kind.
fn place(data: &[u8], kind: [u8; 4], number: usize) -> usize {
    let mut found = boxes(data).into_iter().filter(|(_, found)| *found == kind);
    found.nth(number).expect("there are that many").0
}

/// Returns the stream without fragments `from..to`.
fn without(data: &[u8], from: usize, to: usize) -> Vec<u8> {
    let (from, to) = (place(data, *b"moof", from), place(data, *b"moof", to));
    [&data[..from], &data[to..]].concat()
}

#[test]
fn a_real_stream_comes_out_in_groups() {
    let (items, end) = take(PYRAMID, 1000);
    end.expect("a whole stream");
    let Item::Init(init) = &items[0] else {
        panic!("the init segment comes first");
    };
    assert_eq!(&init.segment[..], &PYRAMID[..init.segment.len()]);
    assert_eq!(init.segment.len(), place(PYRAMID, *b"moof", 0));
    let Media::Video {
        codec,
        width,
        height,
        configuration,
        ..
    } = &init.video.media
    else {
        panic!("the video track is video");
    };
    assert!(codec.starts_with("avc1.64"), "{codec}");
    assert_eq!((*width, *height, configuration[0]), (64, 48, 1));

    let frames = frames(&items);
    assert_eq!(frames.len(), 36);
    let places: Vec<_> = frames
        .iter()
        .map(|frame| (frame.group, frame.index))
        .collect();
    let expected: Vec<_> = (0..36).map(|number| (number / 15, number % 15)).collect();
    assert_eq!(places, expected);
    for frame in &frames {
        assert_eq!(frame.kind == FrameKind::Key, frame.index == 0);
        assert_eq!(frame.duration_us, 41_666);
        assert!(frame.fragment.len() > frame.sample.len());
        assert!(frame.fragment.ends_with(&frame.sample));
    }
    let referenced =
        |frame: &&&Frame| frame.kind == FrameKind::Bidirectional && !frame.is_disposable;
    assert!(
        frames.iter().filter(referenced).count() > 0,
        "some B-frames are needed"
    );
    let mut shown: Vec<i64> = frames.iter().map(|frame| frame.presentation_us).collect();
    shown.sort_unstable();
    let gaps = shown.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(
        gaps.into_iter().all(|gap| (41_666..=41_667).contains(&gap)),
        "every frame has its time"
    );
}

#[test]
fn references_are_counted_within_a_group() {
    let (items, _) = take(PYRAMID, 1000);
    for pair in frames(&items).windows(2) {
        let expected = if pair[1].index == 0 {
            0
        } else {
            pair[0].references + u64::from(!pair[0].is_disposable)
        };
        assert_eq!(pair[1].references, expected);
    }
}

#[test]
fn audio_passes_through() {
    let (items, end) = take(AUDIO_VIDEO, 1000);
    end.expect("a whole stream");
    let Item::Init(init) = &items[0] else {
        panic!("the init segment comes first");
    };
    let [audio] = &init.audio[..] else {
        panic!("one audio track");
    };
    let expected = crate::Audio {
        codec: "mp4a.40.2".to_owned(),
        sample_rate: 16_000,
        channels: 2,
        configuration: Some(Bytes::from_static(&[0x14, 0x08, 0x56, 0xE5, 0x00])),
    };
    assert_eq!(audio.media, Media::Audio(expected));
    let heard = items
        .iter()
        .filter(|item| matches!(item, Item::Audio { track, .. } if *track == audio.number));
    assert!(heard.count() > 10);
    assert_eq!(frames(&items).len(), 36);
}

#[test]
fn a_stream_that_ends_early_says_where() {
    let moof = place(PYRAMID, *b"moof", 3);
    let mdat = place(PYRAMID, *b"mdat", 3);
    let cut = |at: usize| error(&PYRAMID[..at]);
    assert_eq!(cut(0), "byte 0: the stream ends without a moov box");
    assert_eq!(
        cut(5),
        "byte 0: the stream ends 3 bytes before the end of a box"
    );
    let moov = place(PYRAMID, *b"moov", 0);
    assert_eq!(
        cut(moov),
        format!("byte {moov}: the stream ends without a moov box")
    );
    assert!(cut(moof + 20).starts_with(&format!("byte {moof}: the stream ends ")));
    assert_eq!(
        cut(mdat),
        format!("byte {moof}: the stream ends 8 bytes before the end of a box \"mdat\"")
    );
    assert!(
        take(&PYRAMID[..moof], 1000).1.is_ok(),
        "between fragments it may end"
    );
}

#[test]
fn boxes_out_of_order_are_named() {
    let moov = place(PYRAMID, *b"moov", 0);
    let moof = place(PYRAMID, *b"moof", 0);
    let mdat = place(PYRAMID, *b"mdat", 0);
    let without_moov = [&PYRAMID[..moov], &PYRAMID[moof..]].concat();
    assert_eq!(
        error(&without_moov),
        format!("byte {moov}: the box moof comes before the box moov")
    );
    let twice = [&PYRAMID[..moof], &PYRAMID[moov..]].concat();
    assert_eq!(
        error(&twice),
        format!("byte {moof}: the box moov comes a second time")
    );
    let without_moof = [&PYRAMID[..moof], &PYRAMID[mdat..]].concat();
    assert!(error(&without_moof).contains(&format!(
        "byte {moof}: the box mdat comes before its box moof"
    )));
    let moof_twice = [&PYRAMID[..mdat], &PYRAMID[moof..]].concat();
    assert!(
        error(&moof_twice).starts_with(&format!("byte {mdat}: the box moof comes behind another"))
    );
}

#[test]
fn a_stream_without_a_keyframe_is_refused() {
    let moof = place(PYRAMID, *b"moof", 0);
    let data = without(PYRAMID, 0, 1);
    assert_eq!(
        error(&data),
        format!("byte {moof}: the first frame is a P-frame, not a keyframe")
    );
}

#[test]
fn time_does_not_run_backwards() {
    let (first, second) = (place(PYRAMID, *b"moof", 15), place(PYRAMID, *b"moof", 16));
    let data = [PYRAMID, &PYRAMID[first..second]].concat();
    let at = PYRAMID.len();
    let message = error(&data);
    assert!(
        message.starts_with(&format!(
            "byte {at}: time runs backwards in track 1: decode time 7680 after"
        )),
        "{message}"
    );
    let mfra = place(PYRAMID, *b"mfra", 0);
    assert!(mfra < at, "what stands behind the fragments is passed over");
}

#[test]
fn a_stream_without_video_is_refused() {
    let moov = place(PYRAMID, *b"moov", 0);
    let at = PYRAMID
        .windows(4)
        .position(|kind| kind == b"avc1")
        .expect("it is H.264");
    let mut data = PYRAMID.to_vec();
    data[at..at + 4].copy_from_slice(b"av99");
    assert_eq!(
        error(&data),
        format!("byte {moov}: no track of the moov box is H.264 video (tracks: vide)")
    );
}

#[test]
fn samples_lie_within_their_fragment() {
    let (moof, mdat) = (place(PYRAMID, *b"moof", 2), place(PYRAMID, *b"mdat", 2));
    let next = place(PYRAMID, *b"moof", 3);
    // The mdat box is one byte shorter than the sample.
    let size = u32::try_from(next - mdat - 1).expect("small");
    let mut data = PYRAMID[..next - 1].to_vec();
    data[mdat..mdat + 4].copy_from_slice(&size.to_be_bytes());
    let message = error(&data);
    assert!(
        message.starts_with(&format!("byte {moof}: the box moof is invalid: its ")),
        "{message}"
    );
}

#[test]
fn an_absurd_size_is_refused_before_it_is_waited_for() {
    let moof = place(PYRAMID, *b"moof", 1);
    let mut data = PYRAMID.to_vec();
    data[moof..moof + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(
        error(&data),
        format!(
            "byte {moof}: the box \"moof\" has 4294967295 bytes; at most {BOX_BYTES_MAX} are accepted. Is the input fragmented MP4?"
        )
    );
}

#[test]
fn boxes_that_lie_too_deep_in_each_other_are_refused_before_they_are_decoded() {
    let moof = place(PYRAMID, *b"moof", 0);
    for (kind, before) in [(b"moov", &PYRAMID[..0]), (b"moof", &PYRAMID[..moof])] {
        let broken = |levels: usize| {
            let level = |number: usize| {
                let size = u32::try_from((levels - number) * 8).expect("small");
                [size.to_be_bytes(), *kind].concat()
            };
            let boxes: Vec<u8> = (0..levels).flat_map(level).collect();
            error(&[before, &boxes, b"\0\0\0\x08mdat"].concat())
        };
        let decoded = broken(BOX_DEPTH_MAX);
        assert!(
            decoded.contains(" is invalid: ") && !decoded.contains(" deep"),
            "{decoded}"
        );
        for levels in [BOX_DEPTH_MAX + 1, 131_000] {
            let refused = broken(levels);
            let reason = format!("boxes lie in each other more than {BOX_DEPTH_MAX} deep");
            assert!(refused.ends_with(&reason), "{refused}");
        }
    }
}

/// Found by fuzzing.
#[test]
fn an_error_has_no_control_characters_of_the_stream() {
    let mut stream = PYRAMID.to_vec();
    let mut words = PYRAMID.windows(4);
    let handler = words.position(|word| word == b"hdlr").expect("a handler");
    stream[handler] = 0;
    let message = error(&stream);
    assert!(
        message.contains(" is invalid: ") && !message.contains(char::is_control),
        "{message:?}"
    );
}

#[test]
fn times_too_large_for_microseconds_are_refused() {
    let at = PYRAMID
        .windows(4)
        .position(|kind| kind == b"tfdt")
        .expect("there are times");
    assert_eq!(PYRAMID[at + 4], 1, "version 1 has 64 bits");
    let mut data = PYRAMID.to_vec();
    data[at + 8..at + 16].copy_from_slice(&u64::MAX.to_be_bytes());
    assert!(error(&data).contains("the time 18446744073709551615 of track 1 is out of range"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pieces_do_not_matter(piece in 1_usize..700) {
        prop_assert_eq!(take(AUDIO_VIDEO, piece), take(AUDIO_VIDEO, usize::MAX));
    }

    #[test]
    fn changed_bytes_do_no_harm(
        changes in prop::collection::vec((0..PYRAMID.len(), any::<u8>()), 1..8),
        end in 0..PYRAMID.len(),
    ) {
        let mut data = PYRAMID.to_vec();
        for (at, byte) in changes {
            data[at] = byte;
        }
        let (_, end) = take(&data[..end], 4096);
        if let Err(error) = end {
            prop_assert!(error.to_string().starts_with("byte "));
        }
    }
}
