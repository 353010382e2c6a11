//! Runs the golden vectors of playout, which the browser player runs too.

use bytes::Bytes;
use serde_json::{Value, json};
use weir_live::packaging::{FRAME_PROPERTY, FrameTag};
use weir_live::playout::{
    Arrival, Buffering, Fate, Freshness, Player, PlayerSettings, RenderClock, Reorder, Reordered,
};
use weir_live::{FrameKind, strategy};
use weir_moqt::property::Properties;
use weir_report::lab::{Figures, FrameRecord};

fn int(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn algorithm_1_waits_as_long_as_it_should() {
    let file = include_str!("../../../vectors/playout/clock.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    for vector in list(&file["vectors"]) {
        let mut clock = RenderClock::new(vector["snap_us"].as_i64());
        for step in list(&vector["steps"]) {
            if step["pause"] == true {
                clock.pause();
            }
            let presentation_us = int(&step["presentation_us"]);
            let wait_us = clock.time_until(int(&step["now_us"]), presentation_us);
            assert_eq!(wait_us, int(&step["wait_us"]), "{}: {step}", vector["name"]);
            clock.on_shown(presentation_us);
        }
    }
}

#[test]
fn algorithm_2_drops_what_is_late_and_holds_what_is_early() {
    let file = include_str!("../../../vectors/playout/reorder.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    let mut reorder = Reorder::new(int(&file["target_us"]));
    for step in list(&file["steps"]) {
        let letter = step["kind"].as_str().and_then(|kind| kind.chars().next());
        let frame = Reordered {
            kind: letter.and_then(FrameKind::from_letter).expect("a kind"),
            decode_us: int(&step["decode_us"]),
            duration_us: int(&file["duration_us"]),
            frame: (),
        };
        assert_eq!(reorder.push(frame).is_err(), step["late"] == true, "{step}");
        let out = std::iter::from_fn(|| reorder.poll());
        let out: Vec<i64> = out.map(|frame| frame.decode_us).collect();
        let expected: Vec<i64> = list(&step["out"]).iter().map(int).collect();
        assert_eq!(out, expected, "{step}");
    }
}

fn kind(value: &Value) -> FrameKind {
    let letter = value.as_str().and_then(|kind| kind.chars().next());
    letter.and_then(FrameKind::from_letter).expect("a kind")
}

fn unsigned(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

fn settings(vector: &Value) -> PlayerSettings {
    let buffering = &vector["buffering"];
    PlayerSettings {
        buffering: match buffering["fixed_us"].as_i64() {
            Some(fixed_us) => Buffering::Fixed(fixed_us),
            None => Buffering::Adaptive {
                min_us: int(&buffering["min_us"]),
                max_us: int(&buffering["max_us"]),
            },
        },
        snap_us: vector["snap_us"].as_i64(),
        reorders: vector["reorders"] == true,
        catches_up: vector["catches_up"] == true,
        resumes_at_once: vector["resumes_at_once"] == true,
        in_sequence: vector["in_sequence"] == true,
        stops_stale: vector["stops_stale"] == true,
        limits_queue: vector["limits_queue"] == true,
    }
}

fn arrival(value: &Value) -> Arrival {
    let decode_us = int(&value["decode_us"]);
    let kind = kind(&value["kind"]);
    Arrival {
        number: 0,
        kind,
        is_disposable: kind == FrameKind::Bidirectional,
        group: unsigned(&value["group"]),
        references: unsigned(&value["references"]),
        decode_us,
        presentation_us: value["presentation_us"].as_i64().unwrap_or(decode_us),
        duration_us: int(&value["duration_us"]),
    }
}

#[test]
fn the_player_shows_each_frame_when_it_should() {
    let file = include_str!("../../../vectors/playout/player.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    for vector in list(&file["vectors"]) {
        let name = &vector["name"];
        let mut player = Player::new(settings(vector));
        for step in list(&vector["steps"]) {
            let now_us = int(&step["now_us"]);
            if step["arrival"].is_object() {
                let fate = match player.push(now_us, arrival(&step["arrival"])) {
                    Fate::Waiting => "waiting",
                    Fate::Late => "late",
                    Fate::Overflow => "overflow",
                };
                assert_eq!(step["fate"], fate, "{name}: {step}");
                continue;
            }
            if step["finish"] == true {
                player.finish(now_us);
            }
            let (mut shown, mut passed) = (Vec::new(), Vec::new());
            while let Some(next) = player.poll(now_us) {
                let times = if next.is_decodable {
                    &mut shown
                } else {
                    &mut passed
                };
                times.push(next.frame.presentation_us);
            }
            assert_eq!(json!(shown), step["shown"], "{name}: {step}");
            let expected = step.get("passed").cloned().unwrap_or(json!([]));
            assert_eq!(json!(passed), expected, "{name}: {step}");
            if let Some(next_us) = step.get("next_us") {
                assert_eq!(
                    &json!(player.poll_timeout(now_us)),
                    next_us,
                    "{name}: {step}"
                );
            }
        }
    }
}

#[test]
fn each_strategy_has_its_tracks_and_its_player() {
    let file = include_str!("../../../vectors/playout/strategies.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    let listed = list(&file["strategies"]);
    let names: Vec<&str> = listed
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, strategy::NAMES);
    for (name, listed) in names.into_iter().zip(listed) {
        let strategy = strategy::by_name(name).expect("a strategy");
        let tracks: Vec<&str> = strategy.tracks().iter().map(|terms| terms.name).collect();
        assert_eq!(json!(tracks), listed["tracks"], "{name}");
        assert_eq!(strategy.player(), settings(listed), "{name}");
    }
}

#[test]
fn a_keyframe_is_refused_only_if_a_newer_one_can_overtake_it() {
    let file = include_str!("../../../vectors/playout/freshness.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    for vector in list(&file["vectors"]) {
        let mut freshness = Freshness::default();
        for step in list(&vector["steps"]) {
            if let Some(shown) = step.get("shown") {
                freshness.note_shown(unsigned(shown));
                continue;
            }
            let is_wanted = freshness.is_wanted(
                int(&step["now_us"]),
                unsigned(&step["group"]),
                step["subgroup"].as_u64(),
                kind(&step["kind"]),
                int(&step["available_us"]),
            );
            assert_eq!(
                json!(is_wanted),
                step["wanted"],
                "{}: {step}",
                vector["name"]
            );
        }
    }
}

#[test]
fn figures_are_those_of_the_records() {
    let file = include_str!("../../../vectors/playout/figures.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    for vector in list(&file["vectors"]) {
        let records: Vec<FrameRecord> = list(&vector["records"])
            .iter()
            .map(|record| FrameRecord {
                number: unsigned(&record["number"]),
                group: unsigned(&record["group"]),
                kind: kind(&record["kind"]).letter(),
                bytes: unsigned(&record["bytes"]),
                presentation_us: int(&record["presentation_us"]),
                available_us: record["available_us"].as_i64(),
                arrived_us: int(&record["arrived_us"]),
                shown_us: record["shown_us"].as_i64(),
            })
            .collect();
        for (record, given) in records.iter().zip(list(&vector["records"])) {
            assert_eq!(&json!(record), given);
        }
        let figures = Figures::new(
            &records,
            unsigned(&vector["frames"]),
            int(&vector["start_us"]),
            int(&vector["end_us"]),
        );
        near(&json!(figures), &vector["figures"], &vector["name"]);
    }
}

/// Compares numbers within 1e-9.
fn near(found: &Value, expected: &Value, place: &Value) {
    match (found, expected) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = |map: &serde_json::Map<String, Value>| {
                let mut keys: Vec<String> = map.keys().cloned().collect();
                keys.sort();
                keys
            };
            assert_eq!(keys(one), keys(other), "{place}");
            for (key, value) in one {
                near(value, &other[key], &json!([place, key]));
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            assert_eq!(one.len(), other.len(), "{place}");
            for (one, other) in one.iter().zip(other) {
                near(one, other, place);
            }
        }
        _ => match (found.as_f64(), expected.as_f64()) {
            (Some(one), Some(other)) => {
                assert!((one - other).abs() < 1e-9, "{place}: {one}, not {other}");
            }
            _ => assert_eq!(found, expected, "{place}"),
        },
    }
}

#[test]
fn the_tag_of_a_frame_is_read_and_written() {
    let file = include_str!("../../../vectors/live/frame-tag.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    for vector in list(&file["vectors"]) {
        let name = &vector["name"];
        let hex = vector["hex"].as_str().expect("bytes");
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        let value: Bytes = (0..hex.len()).step_by(2).map(digits).collect();
        let properties = Properties::builder().bytes(FRAME_PROPERTY, value).build();
        let Ok(read) = FrameTag::read(&properties) else {
            assert_eq!(vector["error"], "broken", "{name}");
            continue;
        };
        let tag = &vector["tag"];
        let tag = FrameTag {
            kind: kind(&tag["kind"]),
            is_disposable: tag["is_disposable"] == true,
            references: unsigned(&tag["references"]),
            available_us: int(&tag["available_us"]),
            decode_us: int(&tag["decode_us"]),
            presentation_us: int(&tag["presentation_us"]),
            duration_us: int(&tag["duration_us"]),
            number: unsigned(&tag["number"]),
        };
        assert_eq!(read, Some(tag), "{name}");
        assert_eq!(
            tag.add_to(Properties::builder()).build(),
            properties,
            "{name}"
        );
    }
}
