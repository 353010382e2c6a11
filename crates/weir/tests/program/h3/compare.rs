//! `weir h3 compare` as a process: the order of turns, the runs that count, and the written results.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::UdpSocket,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::process::free_port;

use super::stage::{Folder, core, json, succeed, text, weir};

/// A file with servers, in which `{all}` stands for the command that starts weir's server.
fn described(folder: &Folder, text: &str) {
    let ours = "\"{weir}\", \"h3\", \"serve\", \"--listen\", \"127.0.0.1:{port}\", \"--cert\", \"{cert}\", \"--key\", \
                \"{key}\", \"--root\", \"{root}\"";
    let text = text.replace("{all}", ours);
    fs::write(folder.file("servers.toml"), text).expect("a folder of our own");
}

fn compare(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = weir();
    command.args(["h3", "compare", "--no-namespace"]);
    command.arg(folder.file("servers.toml"));
    command.arg("--json").arg(folder.file("a.json"));
    command.args(arguments);
    command
}

fn run(folder: &Folder, arguments: &[&str]) -> Output {
    compare(folder, arguments).output().expect("weir is built")
}

/// Compares the servers of `text`. Repeats the comparison with longer runs until every run succeeds.
#[track_caller]
fn run_whole(folder: &Folder, text: &str, arguments: &[&str]) {
    succeed(1.5, |seconds| {
        described(folder, &text.replace("SECONDS", &seconds.to_string()));
        drop(fs::remove_file(folder.file("log")));
        run(folder, arguments)
    });
}

/// Returns the figures of a server in the first scenario.
fn entry(folder: &Folder, server: &str) -> Value {
    let comparison = json(&folder.file("a.json"));
    let standings = comparison["scenarios"][0]["standings"].as_array().cloned();
    let mut standings = standings.expect("a list").into_iter();
    let found = standings.find(|one| one["entry"]["server"] == server);
    found.expect("it was compared")["entry"].clone()
}

#[test]
fn servers_take_turns_in_every_round() {
    let folder = Folder::new("turns");
    let log = folder.file("log");
    let server = |name: &str| {
        format!(
            "[[server]]\nname = \"{name}\"\nready_seconds = 60\nstart = [\"sh\", \"-c\", \"echo {name} >> {}; exec \\\"$@\\\"\", \
             \"sh\", {{all}}]\n",
            log.display()
        )
    };
    let head = "scenarios = [\"1k\"]\nrounds = 2\nseconds = SECONDS\nwarm_up_seconds = 0.1\nsweep = false\n";
    let text = [head, &server("one"), &server("other")].concat();
    run_whole(&folder, &text, &[]);
    let order = fs::read_to_string(&log).unwrap();
    assert_eq!(order, "one\nother\nother\none\n");
    for name in ["one", "other"] {
        assert_eq!(entry(&folder, name)["runs"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn connections_are_raised_until_a_side_is_the_limit_and_stay_so() {
    let folder = Folder::new("sweep");
    let text = "scenarios = [\"1k\"]\nrounds = 2\nseconds = SECONDS\nwarm_up_seconds = 0\n[[server]]\nname = \"ours\"\n\
                ready_seconds = 60\nstart = [{all}]\n";
    run_whole(&folder, text, &[]);
    let comparison = json(&folder.file("a.json"));
    let runs = entry(&folder, "ours")["runs"].clone();
    let connections: Vec<u64> = (0..2)
        .map(|round| runs[round]["connections"].as_u64().unwrap())
        .collect();
    assert_eq!(connections[0], connections[1], "one search for all rounds");
    // Each thread has this number.
    assert!((10..=500).contains(&connections[0]), "{connections:?}");
    let setting = comparison["setting"].to_string();
    assert!(
        setting.contains("The number of connections is doubled"),
        "{setting}"
    );
    let testbed = comparison["testbed"].as_array().unwrap();
    let parts: Vec<&str> = testbed.iter().map(|row| row[0].as_str().unwrap()).collect();
    assert_eq!(parts, ["processor", "cores", "memory", "disk", "kernel"]);
}

#[test]
fn a_link_lies_between_client_and_server() {
    let folder = Folder::new("link");
    let text = "scenarios = [\"1k\"]\nrounds = 1\nseconds = SECONDS\nwarm_up_seconds = 0\nloss = [0.01]\n\
                round_trip_ms = [30, 60]\n[[server]]\nname = \"ours\"\nready_seconds = 60\nstart = [{all}]\n";
    run_whole(&folder, text, &[]);
    let comparison = json(&folder.file("a.json"));
    for (place, (name, least)) in [
        ("1k, loss 1 %, round trip 30 ms", 30.0),
        ("1k, loss 1 %, round trip 60 ms", 60.0),
    ]
    .into_iter()
    .enumerate()
    {
        let scenario = &comparison["scenarios"][place];
        assert_eq!(scenario["name"], name);
        let run = &scenario["standings"][0]["entry"]["runs"][0];
        assert_eq!(run["connections"], 10, "no search over a link");
        let p99 = run["latency_p99_ms"].as_f64().unwrap();
        assert!(p99 >= least, "{p99}");
    }
}

#[test]
fn where_nothing_is_measured_the_results_stay_as_they_are() {
    let folder = Folder::new("nothing");
    described(
        &folder,
        "[[server]]\nname = \"absent\"\nstart = [\"no-such-server-here\"]\n",
    );
    let results = folder.file("results.md");
    let before = "# Results\n\n<!-- http3-servers begin: made by make results-h3 -->\n\n| weir | 17 |\n\n\
                  <!-- http3-servers end -->\n";
    fs::write(&results, before).unwrap();
    let output = run(&folder, &["--results", results.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("nothing was measured; "), "{said}");
    let shown = text(&output.stdout);
    assert!(shown.contains("cannot be started"), "{shown}");
    assert_eq!(fs::read_to_string(&results).unwrap(), before);
}

#[test]
fn a_run_in_which_the_server_falls_is_none() {
    let folder = Folder::new("falls");
    let pid = folder.file("pid");
    let fall = |seconds: u32| {
        let server = format!(
            "scenarios = [\"1k\"]\nrounds = 1\nseconds = {seconds}\nwarm_up_seconds = 0\nsweep = false\n[[server]]\nname = \"ours\"\n\
             ready_seconds = 60\nstart = [\"sh\", \"-c\", \"echo $$ > {}; exec \\\"$@\\\"\", \"sh\", {{all}}]\n",
            pid.display()
        );
        described(&folder, &server);
        let mut command = compare(&folder, &[]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut comparison = command.spawn().unwrap();
        // The first line of progress comes after a second.
        let mut said = BufReader::new(comparison.stderr.take().unwrap());
        let mut progress = String::new();
        said.read_line(&mut progress).unwrap();
        let server = fs::read_to_string(&pid).unwrap();
        let killed = Command::new("kill").args(["-KILL", server.trim()]).status();
        assert!(killed.is_ok());
        let rest: Vec<String> = said.lines().map(Result::unwrap).collect();
        let code = comparison.wait().unwrap().code();
        (code == Some(2))
            .then_some(())
            .ok_or((code, progress, rest))
    };
    // On a busy machine, the run may end before this test notices its beginning.
    let mut all = Vec::new();
    let fell = [8, 60, 240].into_iter().any(|seconds| {
        all.push(fall(seconds));
        all.last().is_some_and(Result::is_ok)
    });
    assert!(fell, "{all:?}");
    let ours = entry(&folder, "ours");
    assert_eq!(ours["runs"], serde_json::json!([]), "{ours}");
    let problem = ours["problems"][0].as_str().unwrap();
    assert!(problem.starts_with("it ended in scenario 1k"), "{problem}");
}

#[test]
fn a_server_may_have_a_core_a_port_and_a_certificate_of_its_own() {
    let folder = Folder::new("own");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.file("chain.pem"), made.cert.pem()).unwrap();
    fs::write(folder.file("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let port = free_port();
    let (core, command) = (core(), folder.file("command"));
    let server = format!(
        "scenarios = [\"1k\"]\nrounds = 1\nseconds = SECONDS\nwarm_up_seconds = 0\nsweep = false\narguments = [\"--threads=2\", \
         \"--recv-udp-payload-size=1300\"]\n[[server]]\nname = \"ours\"\nready_seconds = 60\ncore = {core}\nport = {port}\n\
         cert = \"chain.pem\"\nkey = \"key.pem\"\n\
         start = [\"sh\", \"-c\", \"echo \\\"$@\\\" > {}; exec \\\"$@\\\"\", \"sh\", {{all}}, \"--core={{core}}\"]\n",
        command.display()
    );
    run_whole(&folder, &server, &[]);
    let started = fs::read_to_string(&command).unwrap();
    let (chain, key) = (folder.file("chain.pem"), folder.file("key.pem"));
    for expected in [
        format!("--listen 127.0.0.1:{port} "),
        format!("--cert {} ", chain.display()),
        format!("--key {} ", key.display()),
        format!("--core={core}"),
    ] {
        assert!(started.contains(&expected), "{started}");
    }
    let setting = json(&folder.file("a.json"))["setting"].to_string();
    let own_core = format!(", ours on core {core}, the client");
    for expected in [
        own_core.as_str(),
        ", 2 threads.",
        "ECDSA P-256, but one of its own for ours.",
        "UDP payloads of up to 1300 bytes (max_udp_payload_size) and sends up to 1350.",
    ] {
        assert!(setting.contains(expected), "{expected}: {setting}");
    }
}

#[test]
fn a_namespace_is_claimed_only_where_packets_are_as_small() {
    let folder = Folder::new("claimed");
    let server = "scenarios = [\"1k\"]\nrounds = 1\nseconds = SECONDS\nwarm_up_seconds = 0\nsweep = false\n[[server]]\nname = \"ours\"\n\
                  ready_seconds = 60\nstart = [{all}]\n";
    run_whole(&folder, server, &["--inside-namespace"]);
    let setting = json(&folder.file("a.json"))["setting"].to_string();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect("127.0.0.1:4433").unwrap();
    let mtu = rustix::net::sockopt::ip_mtu(&socket).unwrap();
    let claims = setting.contains("A network namespace of its own");
    assert_eq!(claims, mtu == 1500, "{setting}");
    assert!(
        setting.contains(&format!("an MTU of {mtu} bytes")),
        "{setting}"
    );
}
