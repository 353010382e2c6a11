//! Links without faults, or with faults that QUIC repairs.

use weir_link::{Bitrate, Config, Queue, Rate};
use weir_sim::{End, Sim};

use crate::audience::{Seats, received, speech};
use crate::echo::{Courier, Echo};
use crate::{echo_pair, lossy, millis, secs, short};

#[test]
fn streams_come_back_over_a_clean_link() {
    let mut sim = Sim::new(1);
    let (server, client) = echo_pair(&mut sim, short(), 10, 1000);
    let end = sim.run_until(secs(10), |sim| !sim.is_busy(client));
    assert_eq!(end, End::Finished);
    assert_eq!(sim.app::<Courier>(client).streams_done, 10);
    // A round trip of 20 ms for the handshake, and one for the data, which fits the first congestion window.
    assert_eq!(sim.elapsed(), millis(40));
    assert_eq!(sim.link_stats(server, client).dropped(), 0);
    assert_eq!(sim.traffic().unroutable, 0);
}

#[test]
fn streams_come_back_once_and_in_order_despite_loss() {
    for seed in 1..=5 {
        let mut sim = Sim::new(seed);
        let (server, client) = echo_pair(&mut sim, lossy(0.05), 20, 50_000);
        let end = sim.run_until(secs(60), |sim| !sim.is_busy(client));
        assert_eq!(end, End::Finished, "seed {seed}");
        // The courier checks each byte.
        assert_eq!(sim.app::<Courier>(client).streams_done, 20, "seed {seed}");
        let (there, back) = (
            sim.link_stats(client, server),
            sim.link_stats(server, client),
        );
        assert!(there.lost > 0 && back.lost > 0, "seed {seed}");
        assert_eq!(there.lost, there.dropped(), "seed {seed}");
    }
}

#[test]
fn a_slow_link_takes_the_time_it_must() {
    let mut sim = Sim::new(1);
    let rate = Rate::Fixed(Bitrate::from_megabits_per_second(1));
    let queue = Queue {
        bytes_max: 20_000,
        packets_max: 1000,
    };
    let link = Config {
        rate,
        queue,
        ..short()
    };
    let (server, client) = echo_pair(&mut sim, link, 1, 250_000);
    let end = sim.run_until(secs(60), |sim| !sim.is_busy(client));
    assert_eq!(end, End::Finished);
    assert!(
        (secs(2)..secs(4)).contains(&sim.elapsed()),
        "{:?}",
        sim.elapsed()
    );
    assert!(sim.link_stats(client, server).queue_bytes_peak <= 20_000);
}

#[test]
fn a_link_changes_while_it_is_used() {
    let mut sim = Sim::new(1);
    let rate = |megabits| Rate::Fixed(Bitrate::from_megabits_per_second(megabits));
    let queue = Queue {
        bytes_max: 30_000,
        packets_max: 1000,
    };
    let (server, client) = echo_pair(
        &mut sim,
        Config {
            rate: rate(1),
            queue,
            ..short()
        },
        1,
        500_000,
    );
    sim.at(secs(1), move |sim| {
        sim.change_link(client, server, |now, link| link.set_rate(now, rate(20)));
        sim.change_link(server, client, |now, link| link.set_rate(now, rate(20)));
    });
    let end = sim.run_until(secs(60), |sim| !sim.is_busy(client));
    assert_eq!(end, End::Finished);
    assert!(
        (secs(1)..secs(3)).contains(&sim.elapsed()),
        "{:?}",
        sim.elapsed()
    );
}

#[test]
fn datagrams_reach_every_listener() {
    for seats in [Seats::Together, Seats::OwnSockets, Seats::OwnNodes] {
        let mut sim = Sim::new(1);
        let listeners = speech(&mut sim, 20, seats, 100);
        assert_eq!(sim.run(secs(10)), End::Finished);
        // The last datagrams were sent; this lets them arrive.
        sim.run_until(sim.elapsed() + millis(20), |_| false);
        assert_eq!(received(&sim, &listeners), 20 * 100);
    }
}

#[test]
fn a_server_takes_leave_when_asked() {
    let mut sim = Sim::new(1);
    let (server, client) = echo_pair(&mut sim, short(), 1, 10_000_000);
    sim.at(millis(200), move |sim| sim.shutdown(server));
    assert_eq!(
        sim.run_until(secs(10), |sim| !sim.is_busy(client)),
        End::Finished
    );
    let lost = sim
        .app::<Courier>(client)
        .lost
        .clone()
        .map(|lost| lost.to_string());
    assert_eq!(
        lost.as_deref(),
        Some("the peer closed the session with code 0x7: \"closing time\"")
    );
    assert!(sim.app::<Echo>(server).lost.is_empty());
}

#[test]
fn a_run_ends_when_nothing_is_left_to_happen() {
    let mut sim = Sim::new(1);
    let node = sim.add_node(weir_sim::NodeConfig::default());
    sim.start(node, Echo::default());
    assert_eq!(sim.run(secs(1)), End::Idle);
    assert_eq!(sim.elapsed(), secs(0));
    sim.at(secs(2), |_| {});
    assert_eq!(sim.run(secs(1)), End::Deadline);
    assert_eq!(sim.elapsed(), secs(1));
    assert_eq!(sim.run(secs(3)), End::Idle);
    assert_eq!(sim.elapsed(), secs(2));
}
