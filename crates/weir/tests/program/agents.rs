//! Load from several processes that talk through NATS. `make test-fleet` runs these tests: they need `nats-server`.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    process::{Child, ChildStderr, Command, Stdio},
};

use serde_json::Value;

use crate::{
    cli::profile,
    process::{Folder, Relay, refusal, signal, start, text, wait_for, wait_for_delivery},
};

/// A NATS server that runs until the test is over.
pub(crate) struct Nats {
    child: Child,
    pub(crate) url: String,
}

impl Nats {
    pub(crate) fn start(more: &[&str]) -> Self {
        // The system gives the port to nobody else for a while.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        let child = Command::new("nats-server")
            .args(["-a", "127.0.0.1", "-p", &port])
            .args(more)
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server in PATH");
        let address = format!("127.0.0.1:{port}");
        let is_up = wait_for(|| std::net::TcpStream::connect(&address).ok());
        assert!(is_up.is_some());
        Self {
            child,
            url: format!("nats://{address}"),
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A process `weir agent` that runs until the test is over.
pub(crate) struct Agent {
    child: Child,
    err: BufReader<ChildStderr>,
}

impl Agent {
    pub(crate) fn start(fleet: &[&str], name: &str, more: &[&str]) -> Self {
        let arguments = [&["agent", "--name", name][..], fleet, more].concat();
        let mut child = start(&arguments);
        let mut agent = Self {
            err: BufReader::new(child.stderr.take().unwrap()),
            child,
        };
        agent.expect("waits for a controller");
        agent
    }

    /// Reads what it says until a line contains `text`.
    pub(crate) fn expect(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let length = self.err.read_line(&mut line).unwrap();
            assert!(length > 0, "the agent ended before it said {text:?}");
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A NATS server, the key of a fleet, and a relay.
struct Scene {
    folder: Folder,
    nats: Nats,
    relay: Relay,
    key: String,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let key = folder.write("fleet.key", "0123456789abcdef0123456789abcdef\n");
        Self {
            nats: Nats::start(&[]),
            relay: Relay::start(&[]),
            folder,
            key,
        }
    }

    fn fleet(&self) -> [&str; 4] {
        ["--fleet", &self.nats.url, "--fleet-key", &self.key]
    }

    /// Starts a run of 40 subscribers for as many milliseconds, with so many agents.
    fn bench(&self, agents: &str, milliseconds: &str, more: &[&str]) -> Child {
        let profile = profile(
            &self.folder,
            ["start_delay", "500"],
            ["total_transmit_time", milliseconds],
        );
        let url = format!("moqt://{}", self.relay.address());
        let json = self.folder.file("run.json");
        let run = [
            "bench",
            &profile,
            "--relay",
            &url,
            "--insecure",
            "--agents",
            agents,
        ];
        let load = ["--subscribers", "40", "--ramp", "0", "--json", &json];
        start(&[&run[..], &load, &self.fleet(), more].concat())
    }

    fn report(&self) -> Value {
        self.folder.json("run.json")
    }
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn three_agents_make_one_run_and_their_clocks_are_corrected() {
    let scene = Scene::new("agents");
    let fleet = scene.fleet();
    let pid = scene.relay.pid().to_string();
    let _first = Agent::start(&fleet, "a", &["--watch", &pid]);
    let mut others = [("b", "300000"), ("c", "0")]
        .map(|(name, offset)| Agent::start(&fleet, name, &["--clock-offset", offset]));
    let bench = scene.bench("3", "3000", &["--slo", "loss=0,failed=0,p99<10s,cpu<100%"]);
    let output = bench.wait_with_output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    let report = scene.report();
    let agents = report["generator"]["agents"].as_array().unwrap();
    let names: Vec<_> = agents
        .iter()
        .map(|agent| agent["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a", "b", "c"], "{said}");
    let load = agents
        .iter()
        .map(|agent| (&agent["publishes"], &agent["subscribes"]));
    let load: Vec<_> = load
        .map(|(one, other)| (one.as_bool(), other.as_bool()))
        .collect();
    let [yes, no] = [true, false].map(Some);
    assert_eq!(load, [(yes, no), (no, yes), (no, yes)]);
    // The clock of b is five minutes ahead, and nothing of that is left in the latency.
    let offset = |number: usize| agents[number]["clock_offset_ms"].as_f64().unwrap();
    assert!(
        (offset(1) - offset(2) - 300_000.0).abs() < 2_000.0,
        "{agents:?}"
    );
    let tracks = report["tracks"].as_array().unwrap();
    let rows = tracks[0]["subscribers"].as_array().unwrap();
    let numbers = rows.iter().map(|row| row["index"].as_u64().unwrap());
    assert!(numbers.eq(0..40));
    for row in rows {
        assert_eq!(row["completion"]["objects_received"], 125, "{said}");
        assert_eq!(row["delivery"]["negative_latencies"], 0, "{row}");
    }
    let p99 = tracks[0]["latency"]["overall"]["p99_ms"].as_f64().unwrap();
    assert!(p99 < 60_000.0, "{p99}");
    assert!(report["run"]["clock_error_ms"].as_f64().unwrap() > 0.0);
    assert!(
        report["relay"]["cost"]["cpu_percent"].as_f64().unwrap() > 0.0,
        "{report}"
    );
    let outcome = report["verdict"]["outcome"].as_str().unwrap();
    // A machine that leaves the agents no time says so.
    assert!(["held", "generator_limit"].contains(&outcome), "{said}");
    for agent in &mut others {
        agent.expect("is free again");
    }
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn an_agent_that_dies_makes_the_run_invalid_by_name() {
    let scene = Scene::new("dying");
    let fleet = scene.fleet();
    let _first = Agent::start(&fleet, "a", &[]);
    let mut second = Agent::start(&fleet, "b", &[]);
    let mut bench = scene.bench("2", "60000", &[]);
    let progress = wait_for_delivery(&mut bench);
    second.child.kill().unwrap();
    let output = bench.wait_with_output().unwrap();
    drop(progress);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("agent b: nothing came from it for"), "{said}");
    let report = scene.report();
    assert_eq!(report["generator"]["healthy"], false);
    let reasons = report["generator"]["reasons"].to_string();
    assert!(reasons.contains("agent b"), "{reasons}");
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn ctrl_c_at_the_controller_ends_the_run_on_all_agents() {
    let scene = Scene::new("interrupted");
    let fleet = scene.fleet();
    let mut agents = ["a", "b"].map(|name| Agent::start(&fleet, name, &[]));
    let mut bench = scene.bench("2", "60000", &[]);
    let progress = wait_for_delivery(&mut bench);
    signal(bench.id(), "INT");
    let output = bench.wait_with_output().unwrap();
    drop(progress);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("interrupted"));
    for agent in &mut agents {
        agent.expect("is free again");
    }
    let report = scene.report();
    assert_eq!(report["run"]["interrupted"], "interrupted");
    let rows = report["tracks"][0]["subscribers"].as_array().unwrap();
    assert_eq!(rows.len(), 40, "what was measured until then is there");
    // The agents take the next run.
    let output = scene
        .bench("2", "1500", &["--slo", "loss<=100%"])
        .wait_with_output();
    assert!(scene.report()["run"]["interrupted"].is_null(), "{output:?}");
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn what_is_wrong_with_a_fleet_is_told_in_a_line() {
    let scene = Scene::new("wrong");
    let relay = format!("moqt://{}", scene.relay.address());
    let profile = profile(
        &scene.folder,
        ["start_delay", "500"],
        ["total_transmit_time", "1500"],
    );
    let bench = |fleet: &str, key: &str, more: &[&str]| {
        let run = [
            "bench",
            &profile,
            "--relay",
            &relay,
            "--insecure",
            "--agents",
            "1",
        ];
        refusal(&[&run[..], &["--fleet", fleet, "--fleet-key", key], more].concat())
    };
    let url = &*scene.nats.url;
    let missing = bench(url, &scene.key, &[]);
    assert!(
        missing.contains("--agents: 1 wanted, and 0 free; start `weir agent`"),
        "{missing}"
    );
    let _agent = Agent::start(&scene.fleet(), "a", &["--clients-max", "10"]);
    let other = scene.folder.write("other.key", &"x".repeat(32));
    let key = bench(url, &other, &[]);
    assert!(
        key.contains("agent a: the keys differ (--fleet-key)"),
        "{key}"
    );
    let short = scene.folder.write("short.key", "x");
    let short = bench(url, &short, &[]);
    assert!(
        short.contains("expected a secret of at least 32 bytes"),
        "{short}"
    );
    let much = bench(url, &scene.key, &["--subscribers", "10"]);
    assert!(
        much.contains("agent a: its share has 11 clients, and the agent runs at most 10"),
        "{much}"
    );
    let nobody = bench(url, &scene.key, &["--publishers-at", "z"]);
    assert!(
        nobody.contains("--publishers-at: no agent \"z\" was chosen; there are a"),
        "{nobody}"
    );
    let guarded = Nats::start(&["--user", "u", "--pass", "right"]);
    let wrong = guarded.url.replace("nats://", "nats://u:wrong@");
    let refused = bench(&wrong, &scene.key, &[]);
    assert!(
        refused.contains("the NATS server refuses these credentials"),
        "{refused}"
    );
    assert!(!refused.contains("wrong"), "{refused}");
    let right = guarded.url.replace("nats://", "nats://u:right@");
    let alone = bench(&right, &scene.key, &[]);
    assert!(alone.contains("0 free"), "{alone}");
    let gone = guarded.url.clone();
    drop(guarded);
    let unreachable = bench(&gone, &scene.key, &[]);
    assert!(
        unreachable.contains("no NATS server can be reached"),
        "{unreachable}"
    );
}
