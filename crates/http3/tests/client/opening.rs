//! Open loops: requests are due at a fixed rate, and latency counts from the planned time.

use weir_http3::client::Failure;
use weir_quic::tls::Sessions;

use crate::stage::{Stage, millis, secs};

#[test]
fn a_rate_that_can_be_kept_is_kept() {
    let mut stage = Stage::new(1);
    stage.load.rate_per_second = Some(200.0);
    let figures = stage.run();
    assert_eq!((figures.failed(), figures.refused()), (0, 0));
    let done = figures.successes + figures.unfinished + figures.unsent;
    assert_eq!(done, 200, "{figures:?}");
    assert!(figures.successes >= 185);
    assert!(figures.latency.quantile(0.5).unwrap() < millis(25));
}

#[test]
fn what_waits_for_a_connection_counts_from_when_it_was_due() {
    let mut stage = Stage::new(2);
    // Two connections, each with one request of 20 ms at a time, complete 100 a second.
    stage.load.requests_at_once = 1;
    stage.load.rate_per_second = Some(200.0);
    let figures = stage.run();
    assert!(
        (75..=100).contains(&figures.successes),
        "{}",
        figures.successes
    );
    let due = figures.successes + figures.unfinished + figures.unsent;
    assert!((199..=201).contains(&due), "{due}");
    assert!(figures.unsent > 75);
    assert!(
        figures.latency.max().unwrap() > millis(400),
        "half of the run behind"
    );
}

#[test]
fn short_connections_are_begun_when_they_are_due() {
    let mut stage = Stage::new(3).short(Sessions::Forgotten);
    stage.load.connections = 20;
    stage.load.rate_per_second = Some(100.0);
    let figures = stage.run();
    assert_eq!((figures.failed(), figures.refused()), (0, 0));
    assert!(
        (92..=100).contains(&figures.successes),
        "{}",
        figures.successes
    );
    assert!(figures.connections_begun.abs_diff(100) <= 1);
    let median = figures.latency.quantile(0.5).unwrap();
    assert!(median >= millis(40) && median < millis(45), "{median:?}");
}

#[test]
fn a_server_that_is_away_for_a_while_is_caught_up_with() {
    let mut stage = Stage::new(4);
    stage.load.rate_per_second = Some(100.0);
    stage.load.duration = secs(2);
    let (server, client) = (stage.server, stage.client);
    stage
        .sim
        .blackhole(server, client, millis(500), millis(700));
    let figures = stage.run();
    assert_eq!(
        figures.failures(Failure::TimedOut),
        0,
        "shorter than the idle time-out"
    );
    assert!(figures.successes > 170, "{}", figures.successes);
    assert!(
        figures.latency.max().unwrap() > millis(150),
        "nothing is left out"
    );
}

#[test]
fn a_limit_of_requests_ends_it_early() {
    let mut stage = Stage::new(5);
    stage.load.rate_per_second = Some(100.0);
    stage.load.requests_max = Some(30);
    let figures = stage.run();
    assert_eq!((figures.successes, figures.unfinished), (30, 0));
    assert!(figures.elapsed() < secs(1));
}
