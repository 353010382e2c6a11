//! Equal seeds give equal runs.

use std::process::Command;

use weir_link::{Config, Delay, GilbertElliott, Jitter, Loss, Probability, Reordering};
use weir_sim::{Sim, Traffic};

use crate::audience::{Seats, speech};
use crate::{echo_pair, millis, secs};

/// Runs all kinds of faults together. Returns what two equal runs share.
fn eventful(seed: u64) -> (u64, Traffic) {
    let rare = Probability::new(0.01).expect("from 0 to 1");
    let link = Config {
        delay: Delay::new(millis(20), Jitter::Normal(millis(5))).expect("short"),
        keep_order: false,
        loss: Loss::Burst(GilbertElliott::from_bursts(0.02, 3.0).expect("possible")),
        duplication: rare,
        reordering: Reordering::new(rare, millis(3)).expect("short"),
        ..Config::default()
    };
    let mut sim = Sim::new(seed);
    let (server, client) = echo_pair(&mut sim, link, 10, 100_000);
    sim.blackhole(server, client, millis(400), millis(900));
    sim.at(millis(1000), move |sim| {
        sim.rebind(client, ([10, 7, 7, 7], 7777).into());
    });
    speech(&mut sim, 10, Seats::OwnSockets, 100);
    sim.run_until(secs(20), |_| false);
    (sim.trace_hash(), sim.traffic())
}

#[test]
fn two_runs_with_one_seed_are_equal() {
    for seed in 1..=3 {
        let first = eventful(seed);
        assert_eq!(first, eventful(seed), "seed {seed}");
        assert!(first.1.delivered > 2000, "seed {seed}");
        assert_ne!(first, eventful(seed + 10), "seeds {seed} and {}", seed + 10);
    }
}

/// Prints what the test below compares between processes.
#[test]
#[ignore = "it is run by another test, in a process of its own"]
fn print_an_eventful_run() {
    println!("hash {:x}", eventful(5).0);
}

#[test]
fn two_processes_with_one_seed_are_equal() {
    let expected = format!("hash {:x}", eventful(5).0);
    for _ in 0..3 {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--nocapture",
                "--exact",
                "determinism::print_an_eventful_run",
            ])
            .output()
            .unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(output.contains(&expected), "{expected} is not in {output}");
    }
}
