//! Every frame of every run, for figures of one's own.

use std::fmt::Write as _;

use serde::Serialize;

use super::FrameRecord;

/// The frames that the player of one run received.
#[derive(Clone, Debug, Serialize)]
pub struct FramesOf {
    /// The profile's name, with the conditions that differ from the defaults.
    pub link: String,
    /// The congestion controller of relay and origin.
    pub controller: String,
    /// The strategy's name, and its target of the latency if that is not the default.
    pub strategy: String,
    /// The seed of the run.
    pub seed: u64,
    /// The frames, in the order in which they were complete.
    pub frames: Vec<FrameRecord>,
}

/// Returns the frames as CSV with a head line. Unknown times, and those of frames that were not shown, are empty.
pub fn frames_csv(runs: &[FramesOf]) -> String {
    let mut out = "link,controller,strategy,seed,number,group,kind,bytes,presentation_us,available_us,arrived_us,shown_us\n".to_owned();
    for run in runs {
        let names = [&run.link, &run.controller, &run.strategy].map(|name| quoted(name));
        let names = names.join(",");
        for frame in &run.frames {
            let optional = |time: Option<i64>| time.map_or_else(String::new, |us| us.to_string());
            let (available, shown) = (optional(frame.available_us), optional(frame.shown_us));
            let FrameRecord {
                number,
                group,
                kind,
                bytes,
                presentation_us,
                arrived_us,
                ..
            } = frame;
            let seed = run.seed;
            writeln!(
                out,
                "{names},{seed},{number},{group},{kind},{bytes},{presentation_us},{available},{arrived_us},{shown}"
            )
            .expect("writing to a string succeeds");
        }
    }
    out
}

/// Returns the frames as JSON, with a line feed at its end.
pub fn frames_json(runs: &[FramesOf]) -> String {
    let text = serde_json::to_string(runs);
    text.expect("records have string keys only, and memory takes all") + "\n"
}

/// Returns a field of CSV: names of links may hold anything (RFC 4180 §2).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each_frame_and_what_is_unknown_is_empty() {
        let frame = FrameRecord {
            number: 7,
            group: 2,
            kind: 'B',
            bytes: 120,
            presentation_us: 291_666,
            available_us: Some(300_000),
            arrived_us: 350_000,
            shown_us: None,
        };
        let other = FrameRecord {
            available_us: None,
            shown_us: Some(400_000),
            ..frame
        };
        let runs = [FramesOf {
            link: "a,\"b\"".to_owned(),
            controller: "delay".to_owned(),
            strategy: "weir 1s".to_owned(),
            seed: 3,
            frames: vec![frame, other],
        }];
        let text = frames_csv(&runs);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split(',').count(), 12);
        assert_eq!(
            lines[1..],
            [
                "\"a,\"\"b\"\"\",delay,weir 1s,3,7,2,B,120,291666,300000,350000,",
                "\"a,\"\"b\"\"\",delay,weir 1s,3,7,2,B,120,291666,,350000,400000",
            ]
        );
        let json: serde_json::Value = serde_json::from_str(&frames_json(&runs)).unwrap();
        assert_eq!(json[0]["frames"][1]["shown_us"], 400_000);
        assert_eq!(json[0]["frames"][0]["shown_us"], serde_json::Value::Null);
    }
}
