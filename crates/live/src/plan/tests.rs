use serde_json::json;

use super::*;
use crate::Media;
use crate::catalog::Catalog;
use crate::strategy;

/// Described in `ingest/tests.rs`.
const AUDIO_VIDEO: &[u8] = include_bytes!("../../tests/media/audio-video.mp4");

fn init() -> Box<Init> {
    read_init(AUDIO_VIDEO).expect("the init segment comes first")
}

fn read(catalog: &Value) -> Result<Plan, PlanError> {
    Plan::read(catalog.to_string().as_bytes(), &BTreeMap::new())
}

#[test]
fn a_catalog_of_ours_is_read_as_it_was_written() {
    for packaging in Packaging::ALL {
        for name in strategy::NAMES {
            let strategy = strategy::by_name(name).expect("a known name");
            let json = Catalog::new(&init(), &*strategy, packaging, 5).encode();
            let plan = Plan::read(&json, &BTreeMap::new()).expect("a good one");
            assert_eq!(plan.strategy.as_deref(), Some(name));
            let found: Vec<&str> = plan.video.iter().map(|track| &*track.name).collect();
            let tracks: Vec<&str> = strategy.tracks().iter().map(|one| one.name).collect();
            assert_eq!(found, tracks);
            for track in plan.video {
                assert_eq!(track.packaging(), packaging);
                assert!(track.codec.starts_with("avc1.64"), "{}", track.codec);
                if let Form::Cmaf(segment) = track.form {
                    assert_eq!(segment.video, init().video);
                }
            }
            assert!(init_tracks(&json).expect("a good one").is_empty());
        }
    }
}

#[test]
fn the_form_before_msf_keeps_fields_elsewhere_and_init_segments_on_tracks() {
    let catalog = json!({
        "version": 1, "streamingFormat": 1, "streamingFormatVersion": "0.2",
        "commonTrackFields": {"packaging": "cmaf", "renderGroup": 1},
        "tracks": [
            {"name": "1.m4s", "initTrack": "0.mp4", "selectionParams": {"codec": "avc1.42c01e", "width": 320}},
            {"name": "2.m4s", "initTrack": "0.mp4", "selectionParams": {"codec": "mp4a.40.2"}},
        ],
    });
    let json = catalog.to_string();
    let names = init_tracks(json.as_bytes()).expect("a good one");
    assert_eq!(names, ["0.mp4"]);
    let error = read(&catalog)
        .expect_err("the segment is missing")
        .to_string();
    assert_eq!(
        error,
        "the catalog has no readable init segment for the track \"1.m4s\""
    );
    let segments = BTreeMap::from([("0.mp4".to_owned(), init().segment)]);
    let plan = Plan::read(json.as_bytes(), &segments).expect("a good one");
    assert_eq!((plan.strategy, plan.video.len()), (None, 1));
    assert_eq!(plan.video[0].name, "1.m4s");
    let Form::Cmaf(found) = &plan.video[0].form else {
        panic!("it is cmaf");
    };
    assert!(matches!(
        &found.video.media,
        Media::Video { width: 64.., .. }
    ));
}

#[test]
fn of_alternatives_the_first_is_taken_with_the_layers_that_depend_on_it() {
    let track = |name: &str, depends: &[&str]| json!({"name": name, "packaging": "loc", "role": "video", "codec": "avc1.42c01e", "depends": depends});
    let tracks = json!([
        {"name": "notes", "packaging": "mediatimeline", "role": "video"},
        {"name": "sound", "packaging": "loc", "role": "audio", "codec": "opus"},
        "no track",
        track("layer", &["high"]),
        track("high", &[]),
        track("low", &[]),
    ]);
    let plan = read(&json!({"version": "draft-01", "tracks": tracks})).expect("a good one");
    let names: Vec<&str> = plan.video.iter().map(|track| &*track.name).collect();
    assert_eq!(names, ["high", "layer"]);
    let form = Form::Loc {
        timescale: 1_000_000,
        length_bytes: 4,
    };
    assert_eq!(plan.video[0].form, form);
}

#[test]
fn layers_and_init_tracks_are_limited() {
    let layer = |number: usize| {
        json!({"name": format!("{number}"), "packaging": "loc", "role": "video", "initTrack": format!("init {number}"),
               "depends": if number == 0 { vec![] } else { vec!["0"] }})
    };
    for (count, layers) in [(LAYERS_MAX, LAYERS_MAX), (LAYERS_MAX + 1, LAYERS_MAX)] {
        let tracks: Vec<Value> = (0..count).map(layer).collect();
        let catalog = json!({"tracks": tracks});
        assert_eq!(read(&catalog).expect("a good one").video.len(), layers);
        let names = init_tracks(catalog.to_string().as_bytes()).expect("a good one");
        assert_eq!(names.len(), count.min(INIT_TRACKS_MAX));
    }
}

#[test]
fn a_catalog_lists_so_many_tracks_and_no_more() {
    for (count, is_taken) in [(CATALOG_TRACKS_MAX, true), (CATALOG_TRACKS_MAX + 1, false)] {
        let track = json!({"name": "video", "role": "video"});
        let catalog = json!({
            "commonTrackFields": {"packaging": "loc", "codec": "avc1.42c01e"},
            "tracks": vec![track; count],
        });
        let plan = read(&catalog);
        assert_eq!(plan.is_ok(), is_taken, "{plan:?}");
        let names = init_tracks(catalog.to_string().as_bytes());
        assert_eq!(names.is_ok(), is_taken, "{names:?}");
    }
}

#[test]
fn what_all_tracks_share_is_kept_once() {
    let catalog = json!({
        "commonTrackFields": {"packaging": "loc", "codec": "opus", "filling": "x".repeat(100)},
        "tracks": [{"name": "a"}, {"name": "b", "codec": "aac", "selectionParams": {"codec": "-", "packaging": "cmaf"}}],
    });
    let listing = Listing::read(catalog.to_string().as_bytes()).expect("a good one");
    let tracks = &listing.tracks[..];
    assert!(Rc::ptr_eq(&tracks[0].for_all, &tracks[1].for_all));
    assert!(
        tracks
            .iter()
            .all(|track| !track.fields.contains_key("filling"))
    );
    let fields = |track: &Listed| (track.packaging(), track.codec().to_owned());
    assert_eq!(
        fields(&tracks[0]),
        (Some(Packaging::Loc), "opus".to_owned())
    );
    assert_eq!(
        fields(&tracks[1]),
        (Some(Packaging::Cmaf), "aac".to_owned())
    );
}

#[test]
fn an_error_repeats_little_of_a_catalog_and_no_control_characters() {
    let track = |name: &str| json!({"name": name, "packaging": "\u{1b}[2J", "codec": "c".repeat(DESCRIBED_CHARACTERS_MAX + 1)});
    let error = |count: usize, name: &str| {
        let tracks = vec![track(name); count];
        let error = read(&json!({"tracks": tracks})).expect_err("no video");
        error.to_string()
    };
    let found = error(1, "a\nb");
    let codec = "c".repeat(DESCRIBED_CHARACTERS_MAX);
    let expected = format!("\"a\\nb\" (\\u{{1b}}[2J {codec})");
    assert!(found.ends_with(&expected), "{found}");
    let name = |characters: usize| format!("\"{}\"", "n".repeat(characters));
    assert!(
        error(1, &"n".repeat(DESCRIBED_CHARACTERS_MAX + 1))
            .contains(&name(DESCRIBED_CHARACTERS_MAX))
    );
    assert!(!error(DESCRIBED_TRACKS_MAX, "a").contains(" more"));
    assert!(error(DESCRIBED_TRACKS_MAX + 1, "a").ends_with(" and 1 more"));
}

#[test]
fn what_cannot_be_played_is_told_why() {
    let error = |json: &str| {
        let read = Plan::read(json.as_bytes(), &BTreeMap::new());
        read.expect_err("bad").to_string()
    };
    assert!(error("{").starts_with("the catalog cannot be read: "));
    for json in ["{}", "[]", r#"{"tracks": 5}"#] {
        assert_eq!(error(json), "the catalog lists no tracks");
    }
    let sound = r#"{"tracks":[{"name":"a","packaging":"loc","role":"audio","codec":"opus"}]}"#;
    assert_eq!(
        error(sound),
        "the catalog lists no video with packaging loc or cmaf, only \"a\" (loc opus)"
    );
    for (data, reason) in [
        ("bm90aGluZyBhdCBhbGw=", "cannot be used: byte 0: the box"),
        (
            "",
            "cannot be used: byte 0: the stream ends without a moov box",
        ),
        ("?", "no readable init segment"),
    ] {
        let track = json!({"name": "v", "packaging": "cmaf", "role": "video", "initData": data});
        let found = error(&json!({"tracks": [track]}).to_string());
        assert!(found.contains(reason), "{found}");
    }
}

#[test]
fn lengths_are_those_that_the_configuration_says() {
    for (field, bytes) in [(0xFC, 1), (0xFD, 2), (0xFE, 4), (0xFF, 4)] {
        assert_eq!(length_bytes(Some(&[1, 0x64, 0, 31, field])), bytes);
    }
    assert_eq!(length_bytes(Some(&[1])), 4);
}
