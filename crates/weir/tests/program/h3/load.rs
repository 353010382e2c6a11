//! `weir h3 bench` and `weir h3 compare` from outside, on real sockets.

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
            "--duration=1",
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
        shown.contains("successes") && shown.contains("µs per request"),
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
    assert_eq!(missing["requests"]["failures"][0]["kind"], "status_4xx");
    assert!(missing["requests"]["failed"].as_u64().unwrap() > 10);
    let longer = run("/1k", &["--expect-length=1025"]);
    assert_eq!(longer["requests"]["failures"][0]["kind"], "body_short");
    assert_eq!(longer["verdict"]["limit"], "nothing");
    // One that lets nobody send a request, until it is lost or the time is over.
    let stingy = Server::with(&["--requests-max=0"]);
    for (idle_timeout, words) in [("1", "timed out"), ("60", "no request could be sent")] {
        let idle_timeout = format!("--idle-timeout={idle_timeout}");
        let arguments = [
            "--duration=3",
            "--json",
            file.to_str().unwrap(),
            &idle_timeout,
        ];
        let output = bench(&stingy.url("/1k"), &arguments);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let refusal = json(&file)["connections"]["refusals"][0].clone();
        assert_eq!(refusal["kind"], "unusable", "{refusal}");
        assert!(refusal["count"].as_u64().unwrap() >= 10, "{refusal}");
        assert!(
            refusal["words"].as_str().unwrap().contains(words),
            "{refusal}"
        );
        assert!(text(&output.stdout).contains("unusable"));
    }
    // A socket that nobody reads.
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
fn a_server_that_dies_in_mid_run_is_said_to_have() {
    let (mut server, folder) = (Server::start(), Folder::new("dies"));
    let file = folder.file("report.json");
    let mut command = weir();
    command.args([
        "h3",
        "bench",
        &server.url("/1k"),
        "--insecure",
        "--duration=5",
        "--idle-timeout=500ms",
        "--handshake-timeout=500ms",
    ]);
    command
        .args(["--server-pid", &server.child.id().to_string(), "--json"])
        .arg(&file);
    let mut load = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first line about the progress comes after a second.
    let mut progress = String::new();
    let mut lines = BufReader::new(load.stderr.take().unwrap());
    lines.read_line(&mut progress).unwrap();
    assert!(progress.contains("requests"), "{progress}");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    load.wait().unwrap();
    let report = json(&file);
    let died = report["server"]["died"].as_str().unwrap();
    assert!(died.contains("ended in mid-run"), "{died}");
    // What it used in the first second is known, but not all of it.
    assert!(report["server"]["cpu_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(report["server"]["cpu_us_per_request"], Value::Null);
    assert_eq!(report["verdict"]["limit"], "unknown");
    assert!(report["requests"]["successes"].as_u64().unwrap() > 0);
    // What was on its way, and whoever comes after.
    for (part, field) in [("requests", "failures"), ("connections", "refusals")] {
        let kinds = report[part][field].as_array().unwrap();
        assert_eq!(kinds.len(), 1, "{kinds:?}");
        assert_eq!(kinds[0]["kind"], "timed_out");
    }
    assert!(report["run"]["elapsed_ms"].as_f64().unwrap() < 10_000.0);
}

#[test]
fn what_cannot_be_run_is_said_before_anything_is_started() {
    for (arguments, expected) in [
        (&["http://localhost:1/"][..], "is not HTTPS"),
        (&["localhost:1"], "is no URL"),
        (&["https://203.0.113.7/"], "--allow-public"),
        (
            &["https://localhost:1/", "--threads=0"],
            "--threads: expected 1",
        ),
        (
            &["https://localhost:1/", "--max-concurrent-conns=0"],
            "connections: expected 1",
        ),
        (&["https://localhost:1/", "--rate=-1"], "rate: expected"),
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
            "--warm-up: expected up to 3600 s",
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
            "no process here is called",
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
    // Not all runs were made.
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
            "arguments: --duration is the comparison's own: the file has `seconds`",
        ),
        // Long connections may have that, but not those of the last scenario.
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
