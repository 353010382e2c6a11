//! `weir live lab` as a process: strategies, links, and the error of a run that fails.

use std::{fs, process::Command};

use serde_json::Value;

use crate::process::{Folder, Relay, text, weir};

/// Runs `weir live lab`. Returns the exit code, standard output and standard error.
fn lab(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = weir(&[&["live", "lab"][..], arguments].concat());
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn our_strategy_holds_what_it_has_to_over_the_profile_with_the_hole() {
    let folder = Folder::new("hole");
    let (json, html) = (folder.file("hole.json"), folder.file("hole.html"));
    let (code, table, errors) = lab(&[
        "--strategies",
        "skip,weir",
        "--profiles",
        "INTRA_CASCADE",
        "--target",
        "500ms,1s",
        "--seeds",
        "2",
        "--require",
        "--json",
        &json,
        "--html",
        &html,
    ]);
    assert_eq!(code, Some(0), "{table}{errors}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let runs = runs.as_array().unwrap();
    let of = |name: &str| runs.iter().filter(|run| run["strategy"] == name).count();
    assert_eq!((runs.len(), of("skip"), of("weir")), (6, 2, 2));
    assert_eq!(of("weir 1s"), 2);
    for run in runs {
        assert_eq!(run["link"], "INTRA_CASCADE");
        assert_eq!(run["controller"], "delay");
        assert!(run["seed"] == 1 || run["seed"] == 2);
        let figures = &run["figures"];
        assert!(figures["frames"].as_u64() > Some(3000), "{run}");
        for name in ["shown", "latency_mean", "age_mean", "freeze_longest"] {
            assert!(figures[name].as_f64() > Some(0.0), "{run}");
        }
    }
    let html = fs::read_to_string(html).unwrap();
    assert!(html.contains("live lab --strategies skip,weir"));
    // The logo, three figures of both strategies, and frames received by kind.
    assert_eq!(html.matches("<svg").count(), 5);
    assert!(html.ends_with("</body></html>\n"));
}

#[test]
fn a_recorded_link_is_a_profile_and_a_broken_one_is_named_with_the_line() {
    let folder = Folder::new("trace");
    let (trace, json) = (folder.file("link.mahimahi"), folder.file("trace.json"));
    // A packet every 12 ms: 1 Mbit/s.
    let lines: Vec<String> = (1..=100).map(|number| (number * 12).to_string()).collect();
    fs::write(&trace, lines.join("\n")).unwrap();
    let only = ["--strategies", "weir", "--trace"];
    let arguments = [&only[..], &[&trace, "--trace-time", "8s", "--json", &json]].concat();
    let (code, table, errors) = lab(&arguments);
    assert_eq!(code, Some(0), "{errors}");
    assert!(table.contains(&trace), "{table}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), 1, "no other profile");
    let figures = &runs[0]["figures"];
    assert_eq!(figures["frames"], 168);
    assert!(figures["shown"].as_f64() > Some(0.9), "{figures}");
    for (lines, more, error) in [
        ("12\n24\nsoon\n", &[][..], "line 3"),
        ("", &[], trace.as_str()),
        ("12\n", &["--trace-time", "1s"], "is too short"),
        ("12\n", &["--require"], "--require: compares weir with skip"),
        (
            "12\n",
            &["--strategies", "fast"],
            "--strategies: there is no strategy \"fast\"",
        ),
        (
            "12\n",
            &["--profiles", "HOLE"],
            "--profiles: there is no profile \"HOLE\"",
        ),
        ("12\n", &["--loss", "nan"], "--loss"),
        ("12\n", &["--target", "5ms"], "from 100ms to 10s"),
    ] {
        fs::write(&trace, lines).unwrap();
        let (code, _, errors) = lab(&[&only[..], &[&trace], more].concat());
        assert_eq!(code, Some(2), "{more:?}: {errors}");
        assert!(errors.contains(error), "{more:?}: {errors}");
    }
}

#[test]
fn runs_in_real_time_go_through_relays_that_run_already() {
    let folder = Folder::new("running-relay");
    let (trace, json) = (folder.file("link.mahimahi"), folder.file("runs.json"));
    fs::write(&trace, "12\n").unwrap();
    let mut relay = Relay::start(&[]);
    let urls = ["moqt", "https"].map(|scheme| format!("{scheme}://{}", relay.address()));
    let both = format!("{},wt={}", urls[0], urls[1]);
    let only = ["--strategies", "weir", "--trace", &trace, "--relay", &both];
    let net = ["--net", "--trace-time", "3s", "--json", &json];
    let (code, table, errors) = lab(&[&only[..], &net].concat());
    assert_eq!(code, Some(0), "{errors}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let names = [&*urls[0], "wt"];
    for (run, name) in runs.as_array().unwrap().iter().zip(names) {
        let controller = run["controller"].as_str().unwrap();
        assert!(controller.starts_with(&format!("of {name}")), "{table}");
        assert!(run["figures"]["frames"].as_u64() > Some(0), "{run}");
    }
    assert_eq!(runs.as_array().unwrap().len(), urls.len());
    relay.signal("TERM");
    let (code, counters) = relay.wait();
    assert_eq!(code, Some(0));
    let counters = &counters["counters"];
    assert_eq!(
        counters["sessions"], 4,
        "a publisher and a player of each run"
    );
    assert!(
        counters["stream_objects_received"].as_u64() > Some(0),
        "{counters}"
    );
    for (more, error) in [
        (&[][..], "--net"),
        (&["--net", "--congestion", "cubic"], "cannot be used with"),
    ] {
        let (code, _, errors) = lab(&[&only[..], more].concat());
        assert_eq!(code, Some(2), "{more:?}: {errors}");
        assert!(errors.contains(error), "{more:?}: {errors}");
    }
}

#[test]
fn a_run_that_fails_through_a_relay_that_runs_already_costs_the_others_nothing() {
    let folder = Folder::new("failing-relay");
    let (trace, json) = (folder.file("link.mahimahi"), folder.file("runs.json"));
    fs::write(&trace, "12\n").unwrap();
    let issuer = folder.file("issuer");
    // A key of an earlier run is not replaced.
    drop(fs::remove_file(format!("{issuer}.pem")));
    assert!(weir(&["token", "key", &issuer]).status.success());
    let closed = Relay::start(&["--set", &format!("auth.jwt.keys={issuer}.jwk")]);
    let open = Relay::start(&[]);
    let run = |urls: &str| {
        let only = [
            "--net",
            "--strategies",
            "weir",
            "--trace",
            &trace,
            "--trace-time",
            "3s",
        ];
        lab(&[&only[..], &["--relay", urls, "--json", &json]].concat())
    };
    let [refusing, working] = [&closed, &open].map(|relay| format!("moqt://{}", relay.address()));
    let (code, table, errors) = run(&format!("{refusing},{working}"));
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        table.contains("Runs that failed and are left out: 1"),
        "{table}"
    );
    assert!(table.contains("UNAUTHORIZED"), "{table}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), 1, "{runs}");
    let (code, _, errors) = run(&refusing);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("every run failed"), "{errors}");
}

/// A program in place of ffmpeg, and a PATH on which it comes first.
fn in_place_of_ffmpeg(folder: &Folder, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let encoder = folder.write("ffmpeg", script);
    fs::set_permissions(&encoder, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.file(""), std::env::var("PATH").unwrap())
}

#[test]
fn files_profiles_and_thresholds_of_ones_own_are_used() {
    let folder = Folder::new("own-material");
    let own = folder.write("tunnel.profile", "2M 3s\n300k 2s # dark\n2M 1s\n");
    // A player for whom another program has to repack the file: the script plays ffmpeg.
    let plain = folder.write("plain.mp4", "not fragmented");
    let script = format!("#!/bin/sh\nexec cat {FRAGMENTED}\n");
    let path = in_place_of_ffmpeg(&folder, &script);
    let (csv, frames) = (folder.file("frames.csv"), folder.file("frames.json"));
    let json = folder.file("runs.json");
    let sources = format!("scroll,{FRAGMENTED},{plain}");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["live", "lab", "--strategies", "skip", "--source", &sources])
        .args(["--profiles", &own, "--rate", "800k", "--trace-time", "5s"])
        .args(["--freeze", "30ms", "--deadline", "1ms", "--json", &json])
        .args(["--frames-csv", &csv, "--frames-json", &frames])
        .env("PATH", path)
        .output()
        .unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let runs: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let links: Vec<&str> = runs
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["link"].as_str().unwrap())
        .collect();
    let expected = [
        "tunnel.profile (scroll)",
        "800k (scroll)",
        "tunnel.profile (pyramid.mp4)",
        "800k (pyramid.mp4)",
        "tunnel.profile (plain.mp4)",
        "800k (plain.mp4)",
    ];
    assert_eq!(links, expected);
    // Each frame of 25 in a second stays longer than 30 ms, and none comes within a millisecond.
    for run in runs.as_array().unwrap() {
        let figures = &run["figures"];
        assert!(figures["freezes"].as_u64() > Some(10), "{run}");
        assert_eq!(figures["on_time"], 0.0, "{run}");
        assert_eq!(figures["thresholds"]["freeze"], 0.03, "{run}");
    }
    // The file and its repacked copy hold the same frames.
    assert_eq!(runs[2]["figures"], runs[4]["figures"]);
    assert_ne!(runs[0]["figures"], runs[2]["figures"]);
    let rows = fs::read_to_string(csv).unwrap();
    let frames: Value = serde_json::from_str(&fs::read_to_string(frames).unwrap()).unwrap();
    let received = frames
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["frames"].as_array().unwrap().len());
    assert_eq!(rows.lines().count(), 1 + received.sum::<usize>());
}

#[test]
fn material_that_cannot_be_streamed_is_named() {
    let folder = Folder::new("bad-material");
    let plain = folder.write("plain.mp4", "not fragmented");
    let broken = in_place_of_ffmpeg(&folder, "#!/bin/sh\necho no video here >&2\nexit 1\n");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["live", "lab", "--source", &plain])
        .env("PATH", broken)
        .output()
        .unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("plain.mp4") && errors.contains("no video here"),
        "{errors}"
    );
    for (source, error) in [
        (
            "strife",
            "neither a file nor one of life, zoom, scroll, ffmpeg",
        ),
        ("ffmpeg", "needs --net"),
    ] {
        let (code, _, errors) = lab(&["--source", source]);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(error), "{errors}");
    }
}

/// A committed stream with a frame in each fragment.
const FRAGMENTED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../live/tests/media/pyramid.mp4"
);

#[test]
fn a_run_whose_encoder_dies_fails_with_its_words() {
    let folder = Folder::new("encoder-that-dies");
    let script = "#!/bin/sh\necho no such generator >&2\nexit 3\n";
    let path = in_place_of_ffmpeg(&folder, script);
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["live", "lab", "--net", "--source", "ffmpeg"])
        .args(["--profiles", "SPIKE", "--strategies", "weir"])
        .env("PATH", path)
        .output()
        .unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("ffmpeg failed during the run (exit status: 3): no such generator"),
        "{errors}"
    );
}
