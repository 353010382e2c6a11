//! Searches for the largest load, and watched relays in other processes: small runs on real sockets, without a claim about
//! speed.

use std::{fs, path::Path};

use serde_json::Value;

use crate::process::{ANY, Folder, Relay, text, weir};

const PROFILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles");

/// Returns the arguments of a search of a few short probes.
const SHORT: [&str; 10] = [
    "--settle",
    "1",
    "--steady",
    "1",
    "--repeats",
    "1",
    "--needed",
    "1",
    "--no-calibration",
    "--slo",
];

#[test]
fn a_search_by_meetings_tries_one_meeting_after_the_other() {
    let folder = Folder::new("meetings");
    let record = search(
        &folder,
        "meeting-short.ini",
        &[
            "--by",
            "meetings",
            "--clients-per-meeting",
            "2",
            "--most",
            "2",
        ],
    );
    assert_eq!(record["search"]["dimension"], "meetings");
    let loads = loads(&record);
    assert!(loads.iter().all(|load| (1..=2).contains(load)), "{loads:?}");
    // Each client received the objects of the other one: two tracks, two clients, 1 s and the second before.
    let objects = record["probes"][0]["figures"]["objects_delivered"].as_u64();
    assert!(objects > Some(100), "{record}");
}

#[test]
fn a_search_by_bit_rate_tries_no_rate_that_the_profile_cannot_have() {
    let folder = Folder::new("bitrate");
    // If the generator never keeps up, the search halves the load repeatedly.
    let record = search(
        &folder,
        "audio-video-short.ini",
        &[
            "--by",
            "bitrate",
            "--subscribers",
            "1",
            "--from",
            "12",
            "--waste-cpu",
            "100",
            "--probes-max",
            "3",
        ],
    );
    assert_eq!(record["search"]["dimension"], "bit_rate");
    let least = record["search"]["settings"]["least"].as_u64().unwrap();
    // Each object has a header of 25 bytes; there are 30 objects per second.
    assert_eq!(least, 8, "{record}");
    assert!(loads(&record).iter().all(|load| *load >= least), "{record}");
}

#[test]
fn a_search_by_publishers_or_tracks_gives_each_load_its_tracks() {
    let folder = Folder::new("publishers");
    for (by, name, objects_each) in [("publishers", "publishers", 1), ("tracks", "tracks", 2)] {
        let loads_given = [
            "--subscribers",
            "4",
            "--from",
            "2",
            "--most",
            "2",
            "--least",
            "2",
        ];
        let record = search(
            &folder,
            "audio-short.ini",
            &[&["--by", by][..], &loads_given].concat(),
        );
        assert_eq!(record["search"]["dimension"], name, "{record}");
        let probe = &record["probes"][0];
        assert_eq!(probe["load"], 2, "{record}");
        // Four subscribers that receive one publisher's track each, or both copies of it. A generator without time receives
        // less, never more.
        let received = probe["figures"]["objects_delivered"].as_u64().unwrap();
        let whole = 4 * objects_each * 100;
        assert!(
            (whole / 2 + 1..=whole).contains(&received),
            "{by}: {received} of {whole}"
        );
    }
}

#[test]
fn several_publishers_fan_out_in_one_run() {
    let folder = Folder::new("fan-out");
    let (json, profile) = (
        folder.file("run.json"),
        format!("{PROFILES}/audio-short.ini"),
    );
    let run = [
        "bench",
        &profile,
        "--publishers",
        "2",
        "--subscribers",
        "5",
        "--seconds",
        "1",
    ];
    let output = weir(&[&run[..], &["--slo", ANY, "--json", &json]].concat());
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        text(&output.stderr)
    );
    let report = folder.json("run.json");
    let rows = report["tracks"][0]["subscribers"].as_array().unwrap();
    let of = |publisher: &str| {
        let rows = rows
            .iter()
            .filter(|row| row["track_name"].as_str().unwrap().contains(publisher));
        rows.count()
    };
    // The publishers serve subscribers in turn.
    assert_eq!(
        (rows.len(), of("audio-0"), of("audio-1")),
        (5, 3, 2),
        "{rows:?}"
    );
    for row in rows {
        assert_eq!(row["completion"]["objects_received"], 50, "{row}");
    }
}

#[test]
fn a_search_that_cannot_be_is_refused_in_words() {
    let profile = format!("{PROFILES}/audio-video-short.ini");
    for (arguments, problem) in [
        (
            &["--by", "subscribers", "--meetings", "2"][..],
            "weir: --meetings: needs --by meetings, bitrate or tracks",
        ),
        (
            &["--archive", "all.weir"][..],
            "weir: --archive: a search has many runs; use --json FILE, which records every probe",
        ),
        (
            &["--by", "bitrate", "--most", "1"][..],
            "weir: --most: expected 8 to",
        ),
    ] {
        let output = weir(&[&["bench", "find-max", &profile], arguments].concat());
        let text = text(&output.stderr);
        assert!(text.starts_with(problem), "{arguments:?}: {text}");
        assert_eq!(output.status.code(), Some(2));
    }
    let lonely = ["bench", &profile, "--clients-per-meeting", "3"];
    let text = text(&weir(&lonely).stderr);
    assert!(
        text.starts_with("weir: --clients-per-meeting: needs --meetings COUNT too"),
        "{text}"
    );
}

#[test]
fn a_search_goes_on_where_it_was_broken_off_and_no_other_does() {
    let folder = Folder::new("resume");
    let (json, html, profile) = (
        folder.file("search.json"),
        folder.file("best.html"),
        format!("{PROFILES}/audio-short.ini"),
    );
    let find_max = |more: &[&str]| {
        let run = ["bench", "find-max", &profile, "--json", &json];
        let loads = ["--from", "1", "--most", "2"];
        weir(&[&run[..], &SHORT, &[ANY], &loads, more].concat())
    };
    let refused = |more: &[&str], problem: &str| {
        let output = find_max(more);
        let text = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(problem), "{more:?}: {text}");
    };
    refused(
        &["--resume"],
        "search.json does not exist; leave --resume out",
    );
    find_max(&["--probes-max", "1"]);
    let first = folder.json("search.json");
    assert_eq!(first["answer"]["kind"], "open", "{first}");
    refused(
        &["--resume", "--wire", "qperf"],
        "search.json: the record is of another search: its encoding of messages (--wire) is draft in the record, and qperf in this search",
    );
    refused(
        &["--resume", "--publish-flow", "publish"],
        "its publish flow is PUBLISH_NAMESPACE in the record, and PUBLISH in this search",
    );
    refused(
        &["--resume", "--relay-threads", "2"],
        "its relay is weir in the record, and weir on 2 threads in this search",
    );
    find_max(&["--resume"]);
    let whole = folder.json("search.json");
    let (before, after) = (loads(&first), loads(&whole));
    // If the machine leaves the generator no time, the search makes no further probe.
    assert!(
        after.len() > before.len() || whole["answer"]["kind"] == "generator",
        "{whole}"
    );
    for (number, probe) in first["probes"].as_array().unwrap().iter().enumerate() {
        assert_eq!(whole["probes"][number], *probe);
    }
    assert_ne!(whole["answer"]["kind"], "open", "{whole}");
    refused(
        &["--resume", "--html", &html],
        "weir: --html: the search in ",
    );
    assert!(!Path::new(&html).exists());
}

#[test]
fn a_page_that_cannot_be_is_not_left_empty() {
    let folder = Folder::new("page");
    let (html, profile) = (
        folder.file("best.html"),
        format!("{PROFILES}/audio-short.ini"),
    );
    let run = ["bench", "find-max", &profile, "--html", &html];
    let never = ["--waste-cpu", "100", "--from", "1", "--probes-max", "1"];
    let output = weir(&[&run[..], &SHORT, &[ANY], &never].concat());
    let text = text(&output.stderr);
    assert!(
        text.contains("best.html: not written: no load held"),
        "{text}"
    );
    assert!(!Path::new(&html).exists());
    // Earlier files stay, empty or not.
    fs::write(&html, "").unwrap();
    weir(&[&run[..], &SHORT, &[ANY], &never].concat());
    assert!(Path::new(&html).exists());
    fs::remove_file(&html).unwrap();
}

#[test]
fn a_relay_of_two_threads_serves_everybody() {
    let folder = Folder::new("threads");
    let (json, profile) = (
        folder.file("run.json"),
        format!("{PROFILES}/audio-short.ini"),
    );
    let arguments = [
        "--subscribers",
        "8",
        "--relay-threads",
        "2",
        "--relay-cores",
        "0,0",
    ];
    let run = ["bench", &profile, "--json", &json, "--slo", ANY];
    let output = weir(&[&run[..], &arguments].concat());
    let report = folder.json("run.json");
    let subscribers = report["tracks"][0]["subscribers"].as_array().unwrap();
    assert_eq!(subscribers.len(), 8, "{}", text(&output.stderr));
    for one in subscribers {
        assert_eq!(one["completion"]["objects_received"], 150, "{one}");
    }
    // The threads of the event loops, and others.
    let threads = report["relay"]["cost"]["threads"].as_u64();
    assert!(threads >= Some(2), "{}", report["relay"]);
}

#[test]
fn what_a_relay_says_of_itself_stands_in_the_report_and_its_process_is_watched() {
    let folder = Folder::new("metrics");
    let (json, profile) = (
        folder.file("run.json"),
        format!("{PROFILES}/audio-short.ini"),
    );
    let relay = Relay::start(&["--admin", "127.0.0.1:0"]);
    let url = format!("moqt://{}", relay.address());
    let metrics = format!("http://{}/metrics", relay.admin());
    let pid = relay.child.id().to_string();
    let output = weir(&[
        "bench",
        &profile,
        "--relay",
        &url,
        "--relay-pid",
        &pid,
        "--relay-metrics",
        &metrics,
        "--subscribers",
        "4",
        "--insecure",
        "--json",
        &json,
        "--slo",
        ANY,
    ]);
    let report = folder.json("run.json");
    let seen = &report["relay"]["metrics"];
    let names: Vec<&str> = seen
        .as_array()
        .unwrap_or_else(|| panic!("{}", text(&output.stderr)))
        .iter()
        .filter_map(|one| one["metric"].as_str())
        .collect();
    assert!(names.contains(&"weir_relay_sessions"), "{names:?}");
    let delivered = report["relay"]["counters"]["weir_relay_datagrams_sent_total"].as_u64();
    assert!(
        delivered >= Some(4 * 150),
        "{}",
        report["relay"]["counters"]
    );
    assert_eq!(report["relay"]["source"]["kind"], "pid_given");
    assert!(report["relay"]["cost"]["cpu_seconds"].as_f64() > Some(0.0));
}

#[test]
#[ignore = "says whose fault it was, so the machine must have time for the generator: run it alone, in a release build"]
fn a_relay_behind_a_slow_link_is_the_limit_and_not_the_generator() {
    let folder = Folder::new("link");
    let (json, profile) = (
        folder.file("run.json"),
        format!("{PROFILES}/audio-short.ini"),
    );
    let relay = Relay::start(&[]);
    let to = relay.address().to_string();
    for (rate, outcome, clause) in [
        // 20 subscribers need 20 × 50 × (120 bytes and headers) per second: about 1.5 Mbit/s.
        ("10M", "held", Value::Null),
        ("700k", "broken", Value::from("loss=0")),
    ] {
        let link = Relay::launch(&["link", "--to", &to, "--rate", rate], &[]);
        let url = format!("moqt://{}", link.address());
        let pid = relay.child.id().to_string();
        weir(&[
            "bench",
            &profile,
            "--relay",
            &url,
            "--relay-pid",
            &pid,
            "--insecure",
            "--subscribers",
            "20",
            "--json",
            &json,
            "--slo",
            "loss=0,failed=0,p99<100ms",
        ]);
        let report = folder.json("run.json");
        assert_eq!(
            report["generator"]["healthy"], true,
            "{rate}: {}",
            report["generator"]
        );
        let verdict = &report["verdict"];
        assert_eq!(verdict["outcome"], outcome, "{rate}: {verdict}");
        assert_eq!(
            report["slo"]["first_broken"], clause,
            "{rate}: {}",
            report["slo"]
        );
    }
}

/// Runs a search. Returns its record.
fn search(folder: &Folder, profile: &str, arguments: &[&str]) -> Value {
    let (json, profile) = (folder.file("search.json"), format!("{PROFILES}/{profile}"));
    let run = ["bench", "find-max", &profile, "--json", &json];
    let output = weir(&[&run[..], &SHORT, &[ANY], arguments].concat());
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{}", text(&output.stderr));
    folder.json("search.json")
}

/// Returns the loads of the probes.
fn loads(record: &Value) -> Vec<u64> {
    let probes = record["probes"].as_array().unwrap();
    let loads: Vec<u64> = probes
        .iter()
        .filter_map(|one| one["load"].as_u64())
        .collect();
    assert!(!loads.is_empty(), "{record}");
    loads
}
