//! The golden vectors of playout, which a player in another language runs too.

use serde_json::Value;
use weir_live::FrameKind;
use weir_live::playout::{RenderClock, Reorder, Reordered};

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
