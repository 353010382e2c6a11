//! Black holes, changed addresses, nodes that crash and restart.

use weir_link::Probability;
use weir_quic::Lost;
use weir_sim::{End, NodeConfig, Sim};

use crate::echo::{Courier, Echo, PROTOCOL};
use crate::{echo_pair, lossy, millis, secs, short};

#[test]
fn a_black_hole_of_two_seconds_only_delays() {
    for (seed, both_ways) in [(1, true), (2, false), (3, true)] {
        let mut sim = Sim::new(seed);
        let (server, client) = echo_pair(&mut sim, lossy(0.01), 5, 200_000);
        sim.blackhole(server, client, millis(50), millis(2050));
        if both_ways {
            sim.blackhole(client, server, millis(50), millis(2050));
        }
        let end = sim.run_until(secs(60), |sim| !sim.is_busy(client));
        assert_eq!(end, End::Finished, "seed {seed}");
        assert_eq!(sim.app::<Courier>(client).streams_done, 5, "seed {seed}");
        assert!(sim.link_stats(server, client).blackholed > 0, "seed {seed}");
        assert!(
            (millis(2050)..secs(8)).contains(&sim.elapsed()),
            "{:?}",
            sim.elapsed()
        );
    }
}

#[test]
fn flipped_bits_only_delay() {
    for seed in 1..=3 {
        let mut sim = Sim::new(seed);
        sim.set_corruption(Probability::new(0.05).expect("from 0 to 1"));
        let (server, client) = echo_pair(&mut sim, short(), 5, 200_000);
        let end = sim.run_until(secs(60), |sim| !sim.is_busy(client));
        assert_eq!(end, End::Finished, "seed {seed}");
        assert_eq!(sim.app::<Courier>(client).streams_done, 5, "seed {seed}");
        assert_eq!(sim.link_stats(server, client).dropped(), 0);
        assert!(sim.traffic().corrupted > 20, "seed {seed}");
    }
}

#[test]
fn a_black_hole_without_end_loses_the_connection() {
    let mut sim = Sim::new(1);
    let (server, client) = echo_pair(&mut sim, short(), 5, 2_000_000);
    sim.blackhole(client, server, millis(100), secs(1000));
    sim.blackhole(server, client, millis(100), secs(1000));
    assert_eq!(
        sim.run_until(secs(100), |sim| !sim.is_busy(client)),
        End::Finished
    );
    assert_eq!(sim.app::<Courier>(client).lost, Some(Lost::TimedOut));
    assert!(
        (secs(25)..secs(40)).contains(&sim.elapsed()),
        "{:?}",
        sim.elapsed()
    );
}

#[test]
fn a_connection_survives_a_new_address() {
    let mut sim = Sim::new(1);
    let (server, client) = echo_pair(&mut sim, lossy(0.01), 5, 500_000);
    let old = sim.address(client);
    let new = [(old.ip(), 9999).into(), "10.9.9.9:1234".parse().unwrap()];
    for (index, address) in (1u64..).zip(new) {
        sim.at(millis(100 * index), move |sim| sim.rebind(client, address));
    }
    assert_eq!(
        sim.run_until(secs(60), |sim| !sim.is_busy(client)),
        End::Finished
    );
    assert_eq!(sim.app::<Courier>(client).streams_done, 5);
    assert_eq!(sim.address(client), new[1]);
    let seen = &sim.app::<Echo>(server).peers_seen;
    assert_eq!(seen[..], [old, new[0], new[1]]);
    // Packets on their way to the old addresses were lost.
    assert!(sim.traffic().unroutable > 0);
}

#[test]
fn a_node_that_died_and_came_back_knows_nothing() {
    let mut sim = Sim::new(1);
    let (server, client) = echo_pair(&mut sim, short(), 1, 5_000_000);
    sim.at(millis(100), move |sim| sim.kill(server));
    sim.at(millis(600), move |sim| sim.start(server, Echo::default()));
    assert_eq!(
        sim.run_until(secs(100), |sim| !sim.is_busy(client)),
        End::Finished
    );
    assert_eq!(sim.app::<Courier>(client).lost, Some(Lost::TimedOut));

    let courier = Courier::new(&sim, sim.address(server), 3, 1000);
    sim.start(client, courier);
    assert_eq!(
        sim.run_until(secs(200), |sim| !sim.is_busy(client)),
        End::Finished
    );
    assert_eq!(sim.app::<Courier>(client).streams_done, 3);
}

#[test]
fn a_server_that_starts_late_is_found() {
    let mut sim = Sim::new(1);
    sim.set_default_link(short());
    let server = sim.add_node(NodeConfig {
        server: Some(sim.server_tls(&[PROTOCOL])),
        ..NodeConfig::default()
    });
    let client = sim.add_node(NodeConfig::default());
    let courier = Courier::new(&sim, sim.address(server), 3, 1000);
    sim.start(client, courier);
    sim.at(secs(2), move |sim| sim.start(server, Echo::default()));
    assert_eq!(
        sim.run_until(secs(20), |sim| !sim.is_busy(client)),
        End::Finished
    );
    assert_eq!(sim.app::<Courier>(client).streams_done, 3);
    assert!(
        (secs(2)..secs(5)).contains(&sim.elapsed()),
        "{:?}",
        sim.elapsed()
    );
}

#[test]
#[should_panic(expected = "belongs to")]
fn an_address_cannot_be_had_twice() {
    let mut sim = Sim::new(1);
    let (server, client) = echo_pair(&mut sim, short(), 1, 1);
    let taken = sim.address(server);
    sim.rebind(client, taken);
}
