//! `weir h3 bench` with agents that talk through NATS. `make test-fleet` runs these tests: they need `nats-server`.

use std::{
    io::{BufRead as _, BufReader},
    process::{Output, Stdio},
};

use super::stage::{Folder, Server, json, text, weir};
use crate::{
    agents::{Agent, Nats},
    process::signal,
};

/// A NATS server, the key of a fleet, and a server.
struct Scene {
    folder: Folder,
    nats: Nats,
    server: Server,
    key: String,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let key = folder.file("fleet.key");
        std::fs::write(&key, "0123456789abcdef0123456789abcdef\n").unwrap();
        Self {
            nats: Nats::start(&[]),
            server: Server::start(),
            key: key.to_str().unwrap().to_owned(),
            folder,
        }
    }

    fn fleet(&self) -> [&str; 4] {
        ["--fleet", &self.nats.url, "--fleet-key", &self.key]
    }

    /// Runs with two agents for so many seconds. `during` happens after the first line of progress, with the process ID.
    fn bench(&self, duration: &str, more: &[&str], during: impl FnOnce(u32)) -> Output {
        let mut command = weir();
        command
            .args(["h3", "bench", &self.server.url("/1k"), "--insecure"])
            .args(["--agents=2", "--duration", duration, "--json"])
            .arg(self.folder.file("run.json"))
            .args(self.fleet())
            .args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains(" in flight") {
            let length = err.read_line(&mut said).unwrap();
            assert!(length > 0, "it ended without progress: {said}");
        }
        during(child.id());
        for line in err.lines() {
            said += &line.unwrap();
        }
        let output = child.wait_with_output().unwrap();
        Output {
            stderr: said.into_bytes(),
            ..output
        }
    }
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn two_agents_make_one_load_and_one_of_them_watches_the_server() {
    let scene = Scene::new("agents-load");
    let fleet = scene.fleet();
    let pid = scene.server.child.id().to_string();
    let _agents = [("a", "0"), ("b", "300000")].map(|(name, offset)| {
        let more = ["--watch", &pid, "--clock-offset", offset];
        Agent::start(&fleet, name, if name == "a" { &more } else { &more[2..] })
    });
    let more = ["--threads=2", "--warm-up=1"];
    let output = scene.bench("3", &more, |_| ());
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report = json(&scene.folder.file("run.json"));
    let agents = report["client"]["agents"].as_array().unwrap();
    let names = agents.iter().map(|agent| agent["name"].as_str().unwrap());
    assert!(names.eq(["a", "b"]), "{said}");
    let requests = agents
        .iter()
        .map(|agent| agent["requests"].as_u64().unwrap());
    let requests: Vec<_> = requests.collect();
    assert!(requests.iter().all(|count| *count > 0), "{said}");
    let sum = requests.iter().sum::<u64>();
    assert_eq!(report["requests"]["successes"], sum, "{said}");
    assert_eq!(report["server"]["pids"][0].to_string(), pid);
    assert!(report["server"]["cpu_us_per_request"].as_f64().unwrap() > 0.0);
    assert!(said.contains("2 agents × 2 threads"), "{said}");
    assert!(said.contains("agent b: 2 threads, "), "{said}");
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn an_agent_that_dies_makes_the_run_invalid_by_name() {
    let scene = Scene::new("agents-dying");
    let fleet = scene.fleet();
    let _first = Agent::start(&fleet, "a", &[]);
    let second = Agent::start(&fleet, "b", &[]);
    // The process is killed.
    let output = scene.bench("60", &[], |_| drop(second));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("agent b: nothing came from it for"), "{said}");
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn ctrl_c_at_the_controller_ends_the_load_on_all_agents() {
    let scene = Scene::new("agents-interrupted");
    let fleet = scene.fleet();
    let mut agents = ["a", "b"].map(|name| Agent::start(&fleet, name, &[]));
    let output = scene.bench("60", &[], |pid| signal(pid, "INT"));
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("The run was interrupted."), "{said}");
    let report = json(&scene.folder.file("run.json"));
    assert!(report["run"]["elapsed_ms"].as_f64().unwrap() < 60_000.0);
    for agent in &mut agents {
        agent.expect("is free again");
    }
}
