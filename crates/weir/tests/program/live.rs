//! Live streams on real sockets: published from a file or standard input, played without a screen, and damaged in many ways.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use weir_net::terminate;

use crate::{
    metrics::get,
    process::{Relay, free_port, text, wait_for},
};

/// 36 frames with sound.
const AUDIO_VIDEO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../live/tests/media/audio-video.mp4"
);
/// The last frame that others need. On a busy machine, later frames may miss their playout time, and are given up.
const LAST_NEEDED: Option<u64> = Some(32);
/// The frames of each group that others need.
const AUDIO_VIDEO_NEEDED: [&[u64]; 3] =
    [&[0, 1, 5, 9, 13], &[15, 16, 18, 22, 25, 29], &[30, 31, 32]];
/// 36 frames without sound.
const VIDEO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../live/tests/media/pyramid.mp4"
);

/// A relay whose log names the tracks that subscribers wait for.
fn relay() -> Relay {
    Relay::start(&["--admin", "127.0.0.1:0", "--set", "admin.tracks_max=100"])
}

/// Waits until a player has asked a relay for a track that nobody publishes yet.
#[track_caller]
fn expect_player(admin: SocketAddr) {
    let waits = wait_for(|| {
        let tracks: Value = serde_json::from_str(&get(admin, "/tracks").1).ok()?;
        let is_wanted = |track: &Value| track["waiting"].as_u64() > Some(0);
        tracks.as_array()?.iter().any(is_wanted).then_some(())
    });
    assert!(waits.is_some(), "{}", get(admin, "/tracks").1);
}

fn weir(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Plays a stream whose publisher starts a moment later. Returns the output of player and publisher.
fn stream(scheme: &str, more: &[&str]) -> (Value, Value) {
    let relay = relay();
    let url = format!("{scheme}://{}", relay.address());
    let json = file(&format!("{scheme}-{}.json", more.join("")));
    let strategy = more.windows(2).filter(|pair| pair[0] == "--strategy");
    let mut play = vec!["live", "play", &url, "--insecure", "--namespace", "a/b"];
    play.extend(["--patience", "5min", "--json", json.to_str().unwrap()]);
    play.extend(strategy.flatten());
    let player = weir(&play);
    expect_player(relay.admin());
    let mut publish = vec!["live", "publish", &url, "--insecure", "--namespace", "a/b"];
    publish.extend(["--realtime", "--input", AUDIO_VIDEO]);
    publish.extend(more);
    let published = weir(&publish).wait_with_output().unwrap();
    let played = player.wait_with_output().unwrap();
    for output in [&published, &played] {
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let summary = text(&played.stdout);
    assert!(summary.starts_with("frames  "), "{summary}");
    let played = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    (played, serde_json::from_slice(&published.stdout).unwrap())
}

/// Asserts the form of a report, which is also that of the browser player's export.
fn assert_report(played: &Value) {
    let file = include_str!("../../../../vectors/live/report.json");
    let form: Value = serde_json::from_str(file).unwrap();
    assert_eq!(played["schema"], form["schema"]);
    let parts = [
        ("report", played),
        ("track", &played["tracks"][0]),
        ("figures", &played["figures"]),
        ("frame", &played["frames"][0]),
    ];
    for (part, value) in parts {
        // Without a catalog, there is no list of tracks.
        if let Some(fields) = value.as_object() {
            let mut found: Vec<&str> = fields.keys().map(String::as_str).collect();
            found.sort_unstable();
            assert_eq!(Value::from(found), form[part], "{part}");
        }
    }
}

/// Asserts that frames are shown in order and not before they have arrived. A frame that is not shown came too late, or another
/// frame of its group did. On a busy machine, any number of frames may come too late.
fn assert_shown(frames: &[Value]) {
    let time = |frame: &Value, name: &str| frame[name].as_i64();
    let mut shown: Vec<&Value> = frames
        .iter()
        .filter(|one| !one["shown_us"].is_null())
        .collect();
    assert!(!shown.is_empty());
    shown.sort_by_key(|one| time(one, "presentation_us"));
    for pair in shown.windows(2) {
        assert!(
            time(pair[0], "shown_us") <= time(pair[1], "shown_us"),
            "{pair:?}"
        );
    }
    for one in &shown {
        assert!(time(one, "arrived_us") <= time(one, "shown_us"), "{one}");
    }
    let is_late = |frame: &Value| {
        let is_beyond = |one: &&Value| {
            time(one, "presentation_us") >= time(frame, "presentation_us")
                && time(one, "shown_us") <= time(frame, "arrived_us")
        };
        shown.iter().any(is_beyond)
    };
    // A player that had no time when a frame was due passes over those that are due before it has time again.
    let between = |pair: &[&Value], name: &str| Some(time(pair[1], name)? - time(pair[0], name)?);
    let has_stalled = shown.windows(2).any(|pair| {
        let gaps = between(pair, "shown_us").zip(between(pair, "presentation_us"));
        gaps.is_none_or(|(shown, presented)| shown - presented > STALL_US)
    });
    if has_stalled {
        return;
    }
    for missing in frames.iter().filter(|one| one["shown_us"].is_null()) {
        let mut group = frames.iter().filter(|one| one["group"] == missing["group"]);
        assert!(group.any(is_late), "{missing} of {frames:?}");
    }
}

/// How much later than planned after the one before it a frame is shown by a player that lacks time.
const STALL_US: i64 = 20_000;

fn assert_whole(played: &Value, published: &Value) {
    assert_eq!(published["published"]["frames"], 36);
    assert!(published["published"]["audio_objects"].as_u64() > Some(10));
    assert_eq!(played["objects_unknown"], 0);
    let frames = played["frames"].as_array().unwrap();
    let numbers = |frames: &[&Value]| -> Vec<u64> {
        let numbers = frames.iter().filter_map(|frame| frame["number"].as_u64());
        numbers.collect()
    };
    let all = numbers(&frames.iter().collect::<Vec<_>>());
    // When the player joins depends on the machine.
    let last = all.iter().copied().max();
    assert!(last >= LAST_NEEDED, "{}", played["figures"]);
    // The player may have joined one track of a group only.
    let keyframes: Vec<&Value> = frames.iter().filter(|one| one["kind"] == "I").collect();
    let first = numbers(&keyframes).into_iter().min();
    let count = last.zip(first).map(|(last, first)| last - first + 1);
    assert_report(played);
    assert_eq!(played["figures"]["frames"].as_u64(), count);
    // All frames have arrived, except the end of a group that the next group overtook on a busy machine.
    for group in AUDIO_VIDEO_NEEDED {
        let needed = group.iter().filter(|number| Some(**number) >= first);
        let is_missing = |number: &u64| !all.contains(number);
        assert!(needed.is_sorted_by_key(is_missing), "{group:?}: {all:?}");
    }
    assert_shown(frames);
    for frame in frames {
        assert!(frame["arrived_us"].as_i64() >= frame["available_us"].as_i64());
    }
}

#[test]
fn a_file_is_played_as_it_is_published() {
    let (played, published) = stream("moqt", &["--strategy", "weir"]);
    assert_whole(&played, &published);
    assert_eq!(played["tracks"], Value::Null, "they were known");
}

#[test]
fn a_player_that_is_told_nothing_reads_the_catalog() {
    let (played, published) = stream("moqt", &["--packaging", "loc"]);
    assert_eq!(published["published"]["frames"], 36);
    assert_report(&played);
    assert_eq!(played["strategy"], "weir", "as the catalog says");
    assert_eq!(played["tracks"][0]["name"], "video");
    assert_eq!(played["tracks"][0]["packaging"], "loc");
    assert_eq!(played["buffer"], "strategy", "unless told otherwise");
    let frames = played["frames"].as_array().unwrap();
    // The player joins at the group after that in which it read the catalog.
    let last = frames.iter().map(|frame| frame["number"].as_u64()).max();
    assert!(last >= Some(LAST_NEEDED), "{}", played["figures"]);
    assert!(played["figures"]["latency_mean"].is_number());
}

#[test]
fn a_publisher_that_comes_back_with_other_tracks_is_followed() {
    let relay = relay();
    let url = format!("moqt://{}", relay.address());
    let json = file("followed.json");
    let mut play = vec!["live", "play", &url, "--insecure", "--json"];
    play.extend([json.to_str().unwrap(), "--join", "current"]);
    play.extend(["--patience", "5min", "--patience-again", "5min"]);
    let player = weir(&play);
    for (strategy, packaging) in [("weir", "loc"), ("combined", "cmaf")] {
        let mut publish = vec!["live", "publish", &url, "--insecure", "--realtime"];
        publish.extend(["--input", VIDEO, "--strategy", strategy]);
        publish.extend(["--packaging", packaging]);
        expect_player(relay.admin());
        let published = weir(&publish).wait_with_output().unwrap();
        let errors = text(&published.stderr);
        assert_eq!(published.status.code(), Some(0), "{errors}");
    }
    // The player has seen the end of the second stream, and waits for a third.
    expect_player(relay.admin());
    terminate(i32::try_from(player.id()).unwrap());
    let played = player.wait_with_output().unwrap();
    assert_eq!(played.status.code(), Some(0), "{}", text(&played.stderr));
    let summary = text(&played.stdout);
    assert!(
        summary.ends_with("new catalogs followed   1\n"),
        "{summary}"
    );
    let played: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(played["catalogs_followed"], 1);
    assert_eq!(played["strategy"], "combined");
    assert_eq!(played["tracks"][0]["packaging"], "cmaf");
    assert_eq!(played["tracks"][1]["name"], "video-disposable");
    let frames = played["frames"].as_array().unwrap();
    // When the player joins each stream depends on the machine, but some frames of both arrive.
    let groups = frames.iter().filter_map(|frame| frame["group"].as_u64());
    let (first, last) = (groups.clone().min(), groups.max());
    // Group numbers begin with the time of day in milliseconds at which the publisher started; the clip has three groups.
    assert!(last > first.map(|first| first + 3), "{}", played["figures"]);
}

#[test]
fn a_stream_of_which_only_the_namespace_is_offered_is_played() {
    let (played, published) = stream("moqt", &["--publish-flow", "namespace"]);
    assert_eq!(published["published"]["frames"], 36);
    let frames = played["frames"].as_array().unwrap();
    // Nobody had subscribed when the stream began.
    let last = frames.iter().map(|frame| frame["number"].as_u64()).max();
    assert!(last >= Some(LAST_NEEDED), "{}", played["figures"]);
}

#[test]
fn a_stream_goes_over_web_transport_in_another_packaging_and_by_another_strategy() {
    let (played, published) = stream(
        "https",
        &["--packaging", "loc", "--strategy", "deprioritize-b"],
    );
    assert_whole(&played, &published);
}

#[test]
fn a_slow_link_lets_the_stream_through_and_says_what_it_did() {
    let relay = relay();
    let to = relay.address().to_string();
    let shaped = ["link", "--to", &to, "--rate", "5M", "--delay", "5ms"];
    let mut link = Relay::launch(&shaped, &[]);
    let url = format!("moqt://{}", link.address());
    let json = file("link.json");
    let mut play = vec!["live", "play", &url, "--insecure", "--strategy", "weir"];
    play.extend(["--join", "current", "--patience", "5min"]);
    play.extend(["--json", json.to_str().unwrap()]);
    let player = weir(&play);
    expect_player(relay.admin());
    let url = format!("moqt://{to}");
    let publish = ["live", "publish", &url, "--insecure", "--realtime"];
    let published = weir(&[&publish[..], &["--input", VIDEO]].concat());
    let published = published.wait_with_output().unwrap();
    assert_eq!(
        published.status.code(),
        Some(0),
        "{}",
        text(&published.stderr)
    );
    let played = player.wait_with_output().unwrap();
    assert_eq!(played.status.code(), Some(0), "{}", text(&played.stderr));
    link.signal("TERM");
    let (code, report) = link.wait();
    assert_eq!(code, Some(0));
    assert_eq!(report["clients"], 1, "only the player is behind the link");
    let played: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let frames = played["frames"].as_array().unwrap();
    // A busy machine may put any number of objects into one packet.
    let bytes = frames.iter().filter_map(|frame| frame["bytes"].as_u64());
    let delivered = report["down"]["delivered_bytes"].as_u64();
    assert!(delivered > Some(bytes.sum()), "{report}");
    let transit = |frame: &Value| {
        frame["arrived_us"].as_i64().unwrap() - frame["available_us"].as_i64().unwrap()
    };
    assert!(
        frames.iter().all(|frame| transit(frame) >= 5_000),
        "the delay"
    );
}

/// Publishes from standard input through a relay that the publisher starts.
fn publish(input: &[u8]) -> Output {
    let mut child = weir(&["live", "publish", "--listen", "127.0.0.1:0"]);
    let mut stdin = child.stdin.take().unwrap();
    // A publisher that finds the beginning invalid does not read the rest.
    drop(stdin.write_all(input));
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// Returns begin, end and type of each top-level box.
fn boxes(data: &[u8]) -> Vec<(usize, usize, String)> {
    let (mut begin, mut found) = (0, Vec::new());
    while begin < data.len() {
        let size = u32::from_be_bytes(data[begin..begin + 4].try_into().unwrap());
        let end = begin + usize::try_from(size).unwrap();
        found.push((begin, end, text(&data[begin + 4..begin + 8])));
        begin = end;
    }
    found
}

#[test]
fn a_broken_stream_ends_with_an_error_that_names_the_place() {
    let video = fs::read(VIDEO).unwrap();
    let boxes = boxes(&video);
    let of = |kind: &str| -> Vec<(usize, usize)> {
        let found = boxes.iter().filter(|(.., found)| found == kind);
        found.map(|(begin, end, _)| (*begin, *end)).collect()
    };
    let (moov, moofs, data) = (of("moov")[0], of("moof"), of("mdat"));
    let without = |begin: usize, end: usize| [&video[..begin], &video[end..]].concat();
    let again = [&video[..data[4].1], &video[moofs[2].0..data[2].1]].concat();
    for (what, input, error) in [
        ("nothing", Vec::new(), "without a moov box"),
        (
            "a cut",
            video[..moofs[3].0 + 30].to_vec(),
            "the stream ends",
        ),
        (
            "no moov box",
            without(moov.0, moov.1),
            "before the box moov",
        ),
        (
            "no keyframe",
            without(moofs[0].0, data[0].1),
            "-frame, not a keyframe",
        ),
        ("time", again, "time runs backwards"),
        ("no MP4", b"x".repeat(4000), "byte 0: the box"),
        (
            "no sample",
            video[..data[3].1 - 1].to_vec(),
            "before the end of a box \"mdat\"",
        ),
        (
            "no moof box",
            without(moofs[3].0, moofs[3].1),
            "before its box moof",
        ),
        (
            "two moov boxes",
            [&video[..moov.1], &video[moov.0..]].concat(),
            "a second time",
        ),
    ] {
        let output = publish(&input);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{what}: {errors}");
        assert!(
            errors.contains("weir: standard input: byte ") && errors.contains(error),
            "{what}: {errors}"
        );
    }
}

#[test]
fn a_stream_whose_writer_goes_ends_cleanly() {
    let video = fs::read(VIDEO).unwrap();
    let data = boxes(&video);
    let fifth = data.iter().filter(|(.., kind)| kind == "mdat").nth(4);
    let output = publish(&video[..fifth.unwrap().1]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["published"]["frames"], 5);
    assert_eq!(said["published"]["frames_written"], 5);
}

#[test]
fn what_cannot_be_reached_or_is_not_there_is_named() {
    let relay = relay();
    let url = format!("moqt://{}", relay.address());
    let play = ["live", "play", &url, "--insecure", "--patience", "0s"];
    let output = weir(&play).wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("the relay refused the catalog"), "{errors}");
    let known = [&play[..], &["--strategy", "skip"]].concat();
    let output = weir(&known).wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("the relay refused a track"), "{errors}");
    let nobody = format!("moqt://127.0.0.1:{}", free_port());
    for (arguments, error) in [
        (
            &["live", "play", &nobody, "--insecure", "--time", "1s"][..],
            ": no answer within ",
        ),
        (
            &["live", "publish", &url, "--input", "/no/such/file"],
            "/no/such/file: cannot be opened",
        ),
        (
            &["live", "publish", &url, "--insecure", "--input", "/"],
            "weir: /: cannot be read: Is a directory (os error 21)\n",
        ),
        (
            &["live", "publish", &url, "--strategy", "fast"],
            "--strategy: there is no strategy \"fast\"; expected one of: baseline",
        ),
        (&["live", "publish"], "required arguments"),
        (
            &["live", "play", &url, "--buffer", "250ms"],
            "'--buffer <TARGET>': expected adaptive, strategy, or milliseconds from 0 to 99999",
        ),
    ] {
        let output = weir(arguments).wait_with_output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(error), "{errors}");
    }
}

#[test]
fn what_watch_started_ends_with_it_even_if_it_is_killed() {
    let arguments = ["live", "watch", "--page", "127.0.0.1:0", "--no-source"];
    let mut watch = Relay::launch(&arguments, &[]);
    let relay = watch.ready["relay"].as_str().unwrap().to_owned();
    let relay = relay.trim_start_matches("https://").trim_end_matches('/');
    assert!(UdpSocket::bind(relay).is_err(), "a relay is at {relay}");
    watch.child.kill().unwrap();
    watch.child.wait().unwrap();
    let is_gone = wait_for(|| UdpSocket::bind(relay).ok());
    assert!(is_gone.is_some(), "the relay at {relay} is still there");
}

#[test]
fn the_demo_does_not_wait_for_what_does_not_start() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/live-demo.sh");
    let output = Command::new("bash")
        .args([script, "/bin/false"])
        .output()
        .unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors, "the relay ended before it listened\n");
}

#[test]
fn a_publisher_that_listens_serves_players_itself() {
    // The relay that it starts reads these variables.
    let mut publisher = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["live", "publish", "--listen", "127.0.0.1:0", "--realtime"])
        .env("WEIR_RELAY_ADMIN_LISTEN", "127.0.0.1:0")
        .env("WEIR_RELAY_ADMIN_TRACKS_MAX", "100")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(publisher.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let url = format!("moqt://{}", ready["listening"].as_str().unwrap());
    let json = file("listens.json");
    let mut play = vec![
        "live",
        "play",
        &url,
        "--join",
        "current",
        "--patience",
        "5min",
        "--certificate-hash",
    ];
    play.push(ready["certificate_sha256"].as_str().unwrap());
    play.extend(["--json", json.to_str().unwrap()]);
    let player = weir(&play);
    expect_player(ready["admin"].as_str().unwrap().parse().unwrap());
    let mut stdin = publisher.stdin.take().unwrap();
    stdin.write_all(&fs::read(AUDIO_VIDEO).unwrap()).unwrap();
    drop(stdin);
    let played = player.wait_with_output().unwrap();
    assert_eq!(played.status.code(), Some(0), "{}", text(&played.stderr));
    let published = publisher.wait_with_output().unwrap();
    assert_eq!(published.status.code(), Some(0));
    let published = serde_json::from_slice(&published.stdout).unwrap();
    let played = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_whole(&played, &published);
}
