//! Closed loops: each response is followed by the next request.

use weir_http3::client::Failure;
use weir_quic::tls::Sessions;

use crate::stage::{Stage, millis, secs};

#[test]
fn long_connections_keep_as_many_requests_going_as_they_may() {
    let mut stage = Stage::new(1);
    stage.load.target.paths = vec!["/15k".to_owned()];
    let figures = stage.run();
    // Two connections with three requests each, a round trip of 20 ms, 1 s: at most 300.
    assert!(
        (200..=300).contains(&figures.successes),
        "{}",
        figures.successes
    );
    assert_eq!((figures.failed(), figures.refused()), (0, 0));
    assert_eq!((figures.handshakes, figures.connections_begun), (2, 2));
    assert_eq!(figures.content_bytes, figures.successes * (15 << 10));
    assert_eq!(figures.latency.count(), figures.successes);
    assert!(figures.latency.min().unwrap() >= millis(20));
    assert!(figures.unfinished <= 6);
    assert_eq!(
        figures.requests_sent,
        figures.successes + figures.unfinished
    );
    assert_eq!(figures.elapsed(), secs(1));
    assert_eq!(figures.seconds.len(), 1);
    let by_second: u64 = figures.seconds.iter().map(|one| one.latency.count()).sum();
    assert_eq!(by_second, figures.successes);
}

#[test]
fn several_paths_are_requested_in_turns() {
    let mut stage = Stage::new(1);
    stage.load.target.paths = ["/1k", "/15k", "/1k"].map(str::to_owned).to_vec();
    stage.load.requests_max = Some(31);
    let figures = stage.run();
    assert_eq!((figures.successes, figures.failed()), (31, 0));
    assert_eq!(figures.path_successes, [11, 10, 10]);
    assert_eq!(figures.content_bytes, (21 + 15 * 10) << 10);
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let mut stage = Stage::new(seed).lossy(0.02);
        let figures = stage.run();
        (figures.successes, figures.requests_sent, figures.failed())
    };
    assert_eq!(run(3), run(3));
}

#[test]
fn loss_costs_time_and_no_answer() {
    let figures = Stage::new(2).lossy(0.05).run();
    assert!(figures.successes > 40, "{}", figures.successes);
    assert_eq!(figures.failed(), 0);
    assert!(
        figures.latency.max().unwrap() > millis(25),
        "something was sent again"
    );
}

#[test]
fn short_connections_have_one_request_and_their_latency_has_the_handshake() {
    let mut stage = Stage::new(3).short(Sessions::Forgotten);
    let figures = stage.run();
    // A handshake and a request: two round trips of 20 ms.
    assert!(
        (25..=50).contains(&figures.successes),
        "{}",
        figures.successes
    );
    assert_eq!((figures.failed(), figures.refused()), (0, 0));
    let open = figures.connections_begun - figures.successes;
    assert!(open <= 2, "one request each");
    assert!(figures.latency.min().unwrap() >= millis(40));
    assert!(figures.handshake_time.min().unwrap() >= millis(20));
    assert_eq!(
        stage.config.tls.proofs(),
        figures.handshakes,
        "all are full ones"
    );
}

#[test]
fn sessions_are_resumed() {
    let mut stage = Stage::new(4).short(Sessions::Resumed);
    let figures = stage.run();
    assert!(figures.successes > 25);
    assert_eq!((figures.failed(), figures.early_used), (0, 0));
    let full = stage.config.tls.proofs();
    assert!(
        full <= 4,
        "{full} full handshakes of {}",
        figures.handshakes
    );
}

#[test]
fn a_server_without_sessions_resumes_none() {
    for sessions in [Sessions::Resumed, Sessions::Early] {
        let mut stage = Stage::forgetful(7).short(sessions);
        let figures = stage.run();
        assert!(figures.successes > 20);
        assert_eq!((figures.failed(), figures.early_used), (0, 0));
        assert_eq!(stage.config.tls.proofs(), figures.handshakes);
    }
}

#[test]
fn early_data_saves_a_round_trip() {
    let mut stage = Stage::new(5).short(Sessions::Early);
    let figures = stage.run();
    assert_eq!((figures.failed(), figures.early_rejected), (0, 0));
    assert!(figures.early_used > 50, "{}", figures.early_used);
    assert!(
        figures.successes > 70,
        "one round trip each: {}",
        figures.successes
    );
    assert!(figures.latency.quantile(0.5).unwrap() < millis(30));
}

#[test]
fn early_data_that_the_server_forgot_is_sent_again() {
    let mut stage = Stage::new(6).short(Sessions::Early);
    stage.load.duration = secs(3);
    stage.start();
    let (server, client) = (stage.server, stage.client);
    stage.sim.run_until(secs(1), |_| false);
    let before = stage.figures();
    // The same server after losing its memory.
    stage.restart_server();
    stage.sim.run_until(secs(4), |sim| !sim.is_busy(client));
    let figures = stage.figures();
    assert!(before.early_used > 50 && stage.sim.is_busy(server));
    assert!(figures.successes > before.successes + 70, "it goes on");
    assert_eq!(figures.failures(Failure::Malformed), 0);
}

#[test]
fn connections_are_replaced_at_their_limit_of_requests() {
    let mut stage = Stage::new(7);
    stage.load.requests_per_connection = Some(10);
    let figures = stage.run();
    assert_eq!((figures.failed(), figures.refused()), (0, 0));
    let expected = figures.requests_sent / 10;
    assert!(figures.connections_begun.abs_diff(expected) <= 3);
    assert!(figures.successes > 75);
}

#[test]
fn a_limit_of_requests_ends_the_run_early() {
    for short in [false, true] {
        let mut stage = Stage::new(8);
        if short {
            stage = stage.short(Sessions::Forgotten);
        }
        stage.load.requests_max = Some(20);
        let figures = stage.run();
        assert_eq!((figures.successes, figures.requests_sent), (20, 20));
        assert_eq!((figures.unfinished, figures.failed()), (0, 0));
        assert!(figures.elapsed() < millis(600), "{:?}", figures.elapsed());
    }
}

#[test]
fn an_expected_length_counts_as_well() {
    let mut stage = Stage::new(9);
    stage.load.expected_bytes = Some((15 << 10) + 1);
    let figures = stage.run();
    assert_eq!(figures.successes, 0);
    assert!(figures.failures(Failure::BodyShort) > 225);
}

#[test]
fn a_storm_of_404_is_a_storm_of_failures() {
    let mut stage = Stage::new(10);
    stage.load.target.paths = vec!["/nothing".to_owned()];
    let figures = stage.run();
    assert_eq!(figures.successes, 0);
    assert!(figures.failures(Failure::Status4xx) > 225);
    let words = figures.failure_words(Failure::Status4xx);
    assert!(
        words.is_some_and(|words| words.starts_with("status 4")),
        "{words:?}"
    );
    assert_eq!(figures.failed(), figures.failures(Failure::Status4xx));
    assert_eq!(figures.connections_begun, 2, "connections survive it");
}

#[test]
fn a_shutdown_ends_the_run_with_what_there_is() {
    let mut stage = Stage::new(11);
    stage.start();
    stage.sim.run_until(millis(500), |_| false);
    stage.sim.shutdown(stage.client);
    assert!(!stage.sim.is_busy(stage.client));
    let figures = stage.figures();
    assert_eq!(figures.elapsed(), millis(500));
    assert!(figures.successes > 50);
}
