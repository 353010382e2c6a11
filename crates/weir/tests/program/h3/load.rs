//! `weir h3 bench` and `weir h3 compare` as processes, on real sockets.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use serde_json::Value;

use super::stage::{Folder, Server, bench, json, text, weir};

#[test]
fn a_run_is_reported_in_every_form() {
    let (server, folder) = (Server::start(), Folder::new("forms"));
    let (report, page) = (folder.file("report.json"), folder.file("report.html"));
    let pid = server.child.id().to_string();
    let output = bench(
        &server.url("/5k"),
        &[
            "--duration=3",
            "--max-concurrent-conns=3",
            "--max-concurrent-requests=2",
            "--expect-length=5120",
            "--server-pid",
            &pid,
            "--json",
            report.to_str().unwrap(),
            "--html",
            page.to_str().unwrap(),
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.contains(" succeeded, ") && shown.contains("µs of CPU per request"),
        "{shown}"
    );
    let report = json(&report);
    let successes = report["requests"]["successes"].as_u64().unwrap();
    assert!(successes > 0);
    assert_eq!(report["requests"]["failed"], 0);
    assert_eq!(
        report["requests"]["content_bytes"].as_u64().unwrap(),
        successes * 5120
    );
    assert_eq!(report["connections"]["handshakes"], 3);
    assert_eq!(
        report["server"]["pids"][0].as_u64().unwrap().to_string(),
        pid
    );
    assert!(report["server"]["cpu_us_per_request"].as_f64().unwrap() > 0.0);
    assert!(fs::read_to_string(page).unwrap().contains("weir h3 bench"));
}

#[test]
fn what_fails_is_counted_and_the_run_ends_in_time() {
    let (server, folder) = (Server::start(), Folder::new("fails"));
    let file = folder.file("report.json");
    let run = |path: &str, arguments: &[&str]| {
        let mut all = vec!["--duration=2", "--json", file.to_str().unwrap()];
        all.extend(arguments);
        let output = bench(&server.url(path), &all);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        json(&file)
    };
    let missing = run("/nothing", &[]);
    let failure = &missing["requests"]["failures"][0];
    assert_eq!(failure["kind"], "status_4xx");
    assert_eq!(failure["words"], "status 404");
    assert!(missing["requests"]["failed"].as_u64().unwrap() > 10);
    let longer = run("/1k", &["--expect-length=1025"]);
    assert_eq!(longer["requests"]["failures"][0]["kind"], "body_short");
    assert_eq!(longer["verdict"]["limit"], "nothing");
    // The server permits no request, until its connections are lost or the run ends.
    let stingy = Server::with(&["--requests-max=0"]);
    let refusal = |idle_timeout: &str, duration: &str| {
        let arguments = [duration, "--json", file.to_str().unwrap(), idle_timeout];
        let output = bench(&stingy.url("/1k"), &arguments);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let refusal = json(&file)["connections"]["refusals"][0].clone();
        assert_eq!(refusal["kind"], "unusable", "{refusal}");
        assert!(refusal["count"].as_u64().unwrap() >= 10, "{refusal}");
        assert!(text(&output.stdout).contains("unusable"));
        refusal["words"].as_str().unwrap().to_owned()
    };
    // A busy machine may need longer.
    let mut durations = ["--duration=3", "--duration=15", "--duration=60"].into_iter();
    assert!(durations.any(|duration| refusal("--idle-timeout=1", duration).contains("timed out")));
    let words = refusal("--idle-timeout=60", "--duration=3");
    assert!(words.contains("no request could be sent"), "{words}");
    // Nobody reads this socket.
    let deaf = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let connect = format!("--connect={}", deaf.local_addr().unwrap());
    let silent = run("/1k", &[&connect, "--handshake-timeout=200ms"]);
    assert_eq!(silent["connections"]["refusals"][0]["kind"], "timed_out");
    assert_eq!(silent["connections"]["handshakes"], 0);
}

#[test]
fn a_certificate_that_is_not_trusted_is_named() {
    let server = Server::start();
    let mut command = weir();
    command.args([
        "h3",
        "bench",
        &server.url("/1k"),
        "--duration=2",
        "--certificate-hash",
    ]);
    let output = command.arg("00".repeat(32)).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(shown.contains("tls: TLS handshake failed"), "{shown}");
}

#[test]
fn several_urls_of_one_server_take_turns() {
    let (server, folder) = (Server::start(), Folder::new("urls"));
    let (file, page) = (folder.file("report.json"), folder.file("report.html"));
    let other = server.url("/1k");
    let arguments = [
        &other,
        "--duration=60",
        "--max-requests-per-thread=40",
        "--json",
        file.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ];
    let output = bench(&server.url("/5k"), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = json(&file);
    assert_eq!(report["requests"]["content_bytes"], 20 * (5120 + 1024));
    for (place, path) in [(0, "/5k"), (1, "/1k")] {
        let one = &report["requests"]["urls"][place];
        assert_eq!(
            (&one["url"], &one["successes"]),
            (&server.url(path).into(), &20.into())
        );
    }
    let line = format!("{other}: 20 succeeded");
    assert!(text(&output.stdout).contains(&line));
    assert!(fs::read_to_string(page).unwrap().contains("URLs"));
    let output = bench(&server.url("/5k"), &["https://localhost:1/"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.contains("expected URLs with the same host and port"),
        "{said}"
    );
}

#[test]
fn connections_are_logged_in_the_qlog_format() {
    let (server, folder) = (Server::start(), Folder::new("qlog"));
    let (logs, file) = (folder.file("logs"), folder.file("report.json"));
    let arguments = [
        "--duration=60",
        "--max-requests-per-thread=9",
        "--max-concurrent-conns=3",
        "--qlog",
        logs.to_str().unwrap(),
        "--json",
        file.to_str().unwrap(),
    ];
    let output = bench(&server.url("/1k"), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        json(&file)["run"]["notes"][0]
            .as_str()
            .unwrap()
            .contains("qlog")
    );
    let logs: Vec<String> = fs::read_dir(&logs)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    assert_eq!(logs.len(), 3, "one for each connection");
    for log in logs {
        let records: Vec<Value> = log
            .split('\u{1e}')
            .filter(|record| !record.trim().is_empty())
            .map(|record| serde_json::from_str(record).expect("JSON"))
            .collect();
        let names = records.iter().filter_map(|record| record["name"].as_str());
        assert!(
            names.into_iter().any(|name| name.contains("packet_sent")),
            "{log}"
        );
    }
}

/// Runs a load whose server is killed in its midst, with timeouts of `patience`. Returns the report, and whether requests
/// succeeded before and connections were given up afterwards. The server is watched if `is_watched`.
fn killed(folder: &Folder, duration: &str, patience: &str, is_watched: bool) -> (Value, bool) {
    let (mut server, file) = (Server::start(), folder.file("report.json"));
    let mut command = weir();
    let url = server.url("/1k");
    command.args(["h3", "bench", &url, "--insecure", "--duration", duration]);
    command.args(["--idle-timeout", patience, "--handshake-timeout", patience]);
    if is_watched {
        command.args(["--server-pid", &server.child.id().to_string()]);
    }
    command.arg("--json").arg(&file);
    let mut load = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first line of progress comes after a second.
    let lines = BufReader::new(load.stderr.take().unwrap()).lines();
    let progress = lines.map(Result::unwrap);
    let mut progress = progress.skip_while(|line| line.contains("  0 requests"));
    let has_begun = progress
        .next()
        .is_some_and(|line| line.contains("requests"));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let status = load.wait().unwrap();
    let report = json(&file);
    let some = |part: &str, field: &str| !report[part][field].as_array().unwrap().is_empty();
    let is_given_up = some("requests", "failures") && some("connections", "refusals");
    let is_long_enough = has_begun && is_given_up;
    assert!(!is_long_enough || status.code() == Some(1), "{status}");
    (report, is_long_enough)
}

/// Returns the report of a run that was long enough; a busy machine may need longer runs.
fn killed_in_time(folder: &Folder, is_watched: bool) -> Value {
    let times = [("10", "500ms"), ("60", "5s"), ("300", "30s")];
    let mut reports = times
        .into_iter()
        .map(|(duration, patience)| killed(folder, duration, patience, is_watched));
    let report = reports.find(|(_, is_long_enough)| *is_long_enough);
    report.expect("a run that is long enough").0
}

#[test]
fn a_server_that_dies_unwatched_makes_the_run_fail() {
    let report = killed_in_time(&Folder::new("unwatched"), false);
    assert_eq!(report["server"], Value::Null);
    assert_eq!(report["verdict"]["limit"], "unknown");
    let sentence = report["verdict"]["sentence"].as_str().unwrap();
    assert!(
        sentence.contains("The server stopped answering "),
        "{sentence}"
    );
}

#[test]
fn a_server_that_dies_in_mid_run_is_said_to_have() {
    let folder = Folder::new("dies");
    let report = killed_in_time(&folder, true);
    let died = report["server"]["died"].as_str().unwrap();
    assert!(died.contains("ended during the run"), "{died}");
    // The CPU time up to the end of the process is known only in part.
    assert!(report["server"]["cpu_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(report["server"]["cpu_us_per_request"], Value::Null);
    assert_eq!(report["verdict"]["limit"], "unknown");
    assert!(report["requests"]["successes"].as_u64().unwrap() > 0);
    // Requests in flight, and later connections.
    for (part, field) in [("requests", "failures"), ("connections", "refusals")] {
        let kinds = report[part][field].as_array().unwrap();
        assert_eq!(kinds.len(), 1, "{kinds:?}");
        assert_eq!(kinds[0]["kind"], "timed_out");
    }
    // The run lasts its whole duration, although all connections were given up earlier.
    let elapsed_ms = report["run"]["elapsed_ms"].as_f64().unwrap();
    assert!(elapsed_ms < 1e6, "{elapsed_ms}");
}

#[test]
fn what_cannot_be_run_is_said_before_anything_is_started() {
    for (arguments, expected) in [
        (&["http://localhost:1/"][..], "is not HTTPS"),
        (&["localhost:1"], "is not a URL"),
        (&["https://203.0.113.7/"], "--allow-public"),
        (
            &["https://localhost:1/", "--threads=0"],
            "'--threads <COUNT>': expected a whole number from 1 to 256",
        ),
        (
            &["https://localhost:1/", "--max-concurrent-conns=0"],
            "'--max-concurrent-conns <COUNT>': expected a whole number from 1 to 50000",
        ),
        (
            &["https://localhost:1/", "--rate=-1"],
            "'--rate <PER_SECOND>': expected a number above 0",
        ),
        (
            &["https://localhost:1/", "--duration=0"],
            "duration: expected",
        ),
        (
            &["https://localhost:1/", "--handshake-timeout=1e19"],
            "for '--handshake-timeout <TIME>': expected a day at most",
        ),
        (
            &["https://localhost:1/", "--idle-timeout=1000000years"],
            "for '--idle-timeout <TIME>': expected a day at most",
        ),
        (
            &["https://localhost:1/", "--duration=1e19"],
            "for '--duration <TIME>': expected a day at most",
        ),
        (
            &["https://localhost:1/", "--warm-up=3601"],
            "--warm-up: expected at most 3600 s, not 3601 s",
        ),
        (
            &["https://localhost:1/", "--idle-timeout=0"],
            "for '--idle-timeout <TIME>': expected a millisecond",
        ),
        (
            &["https://localhost:1/", "--cores=4096"],
            "there is no core 4096",
        ),
        (
            &["https://localhost:1/", "--server-pid=4194999"],
            "there is no process",
        ),
        (
            &["https://localhost:1/", "--server-process=no-such-thing"],
            "no process on this machine has a program called",
        ),
    ] {
        let output = weir()
            .args(["h3", "bench", "--insecure"])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn servers_are_compared_started_and_ended() {
    let folder = Folder::new("compare");
    let described = "scenarios = [\"1k\", \"5k\"]\nrounds = 1\nseconds = 1.5\nwarm_up_seconds = 0\n\
        [[server]]\nname = \"ours\"\nversion_text = \"one\"\nready_seconds = 60\n\
        start = [\"{weir}\", \"h3\", \"serve\", \"--listen\", \"127.0.0.1:{port}\", \"--cert\", \"{cert}\", \"--key\", \"{key}\", \"--root\", \"{root}\"]\n\
        [[server]]\nname = \"absent\"\nstart = [\"no-such-server-here\"]\n\
        [[server]]\nname = \"short-lived\"\nstart = [\"sh\", \"-c\", \"echo no certificate >&2; exit 4\"]\n";
    fs::write(folder.file("servers.toml"), described).unwrap();
    let results = folder.file("results.md");
    fs::write(&results, "# Results\n\nKept.\n").unwrap();
    let mut command = weir();
    command
        .args(["h3", "compare", "--no-namespace"])
        .arg(folder.file("servers.toml"));
    for (flag, name) in [
        ("--json", "a.json"),
        ("--html", "a.html"),
        ("--markdown", "a.md"),
    ] {
        command.arg(flag).arg(folder.file(name));
    }
    let output = command.arg("--results").arg(&results).output().unwrap();
    // Runs are missing.
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("5k: answers of 5120 bytes"), "{shown}");
    let comparison = json(&folder.file("a.json"));
    assert_eq!(comparison["scenarios"].as_array().unwrap().len(), 2);
    for scenario in comparison["scenarios"].as_array().unwrap() {
        let standings = scenario["standings"].as_array().unwrap();
        let of = |name: &str| {
            let found = standings.iter().find(|one| one["entry"]["server"] == name);
            found.unwrap()["entry"].clone()
        };
        let ours = of("ours");
        assert_eq!(ours["runs"].as_array().unwrap().len(), 1, "{ours}");
        assert!(ours["runs"][0]["successes"].as_u64().unwrap() > 0);
        assert!(ours["runs"][0]["cpu_us_per_request"].as_f64().unwrap() > 0.0);
        let problem = of("absent")["problems"][0].as_str().unwrap().to_owned();
        assert!(
            problem.contains("\"no-such-server-here\" cannot be started"),
            "{problem}"
        );
        let problem = of("short-lived")["problems"][0]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(problem.contains("no certificate"), "{problem}");
    }
    let kept = fs::read_to_string(&results).unwrap();
    assert!(kept.starts_with("# Results\n\nKept.\n") && kept.contains("make results-h3"));
    assert!(
        fs::read_to_string(folder.file("a.html"))
            .unwrap()
            .contains("<svg")
    );
    assert!(
        fs::read_to_string(folder.file("a.md"))
            .unwrap()
            .contains("| ours")
    );
}

#[test]
fn a_comparison_that_is_wrong_is_not_begun() {
    let folder = Folder::new("wrong");
    let file = folder.file("servers.toml");
    for (described, expected) in [
        ("server = []\n", "expected 1 to 32"),
        (
            "[[server]]\nname = \"a\"\nstart = [\"a\"]\nports = 1\n",
            "line 4",
        ),
        (
            "arguments = [\"--duration=20\"]\n[[server]]\nname = \"a\"\nstart = [\"a\"]\n",
            "arguments: --duration is not allowed here; set `seconds`",
        ),
        // The flag is allowed for long connections, but not for those of the last scenario.
        (
            "arguments = [\"--max-requests-per-conn=5\"]\n[[server]]\nname = \"a\"\nstart = [\"a\"]\n",
            "in scenario \"1k-short\"",
        ),
        (
            "[[server]]\nname = \"a\"\nstart = [\"a\"]\ncore = 4096\n",
            "server \"a\": core: there is no core 4096",
        ),
        (
            "arguments = [\"--speed=9\"]\n[[server]]\nname = \"a\"\nstart = [\"a\"]\n",
            "--speed",
        ),
        (
            "server_core = 4096\n[[server]]\nname = \"a\"\nstart = [\"a\"]\n",
            "there is no core 4096",
        ),
    ] {
        fs::write(&file, described).unwrap();
        let output = weir().args(["h3", "compare"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(
            said.contains("servers.toml") && said.contains(expected),
            "{said}"
        );
    }
}
