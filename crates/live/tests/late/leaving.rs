//! Clients that fail, or are told to go away, close their sessions: the relay has nothing to wait for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_live::{Origin, PublishFlow, Viewer};
use weir_quic::App as _;
use weir_relay::{Authority, Config, Credentials, Denial, Grant, Relay, TokenMemo};

use crate::stage::{Pace, Show, Stage};

/// The longest time that a close takes to arrive, with room for a retransmission.
const SOON: Duration = Duration::from_millis(500);

#[track_caller]
fn assert_no_sessions(stage: &Stage, when: &str) {
    let relay = stage.sim.app::<Relay>(stage.relay);
    assert_eq!(relay.gauges().sessions, 0, "{when}");
    assert!(relay.counters().sessions > 0, "{when}");
}

#[test]
fn a_player_that_loses_its_patience_leaves() {
    let mut stage = Stage::new(Duration::from_mins(1));
    // The player asks the relay to wait for 2 s.
    stage.play(&["video"]);
    stage
        .sim
        .run_until(Duration::from_secs(2) + SOON, |_| false);
    let viewer = stage.sim.app::<Viewer>(stage.nodes[2]);
    let failure = viewer.failure().expect("there is no publisher");
    assert!(failure.contains("no publisher came in time"), "{failure}");
    assert_no_sessions(&stage, "without a publisher");
}

/// Permits nothing.
#[derive(Debug)]
struct Closed;

impl Authority for Closed {
    fn grant(
        &self,
        _now: Instant,
        _credentials: &Credentials,
        _memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial> {
        Ok(Vec::new())
    }
}

#[test]
fn a_publisher_that_is_refused_leaves() {
    for flow in [PublishFlow::Publish, PublishFlow::Namespace] {
        let mut stage = Stage::new(Duration::from_mins(1));
        let relay = Relay::with_authority(Config::default(), Arc::new(Closed));
        stage.sim.start(stage.relay, relay);
        stage.publish(0, Show::usual(flow));
        stage.sim.run_until(SOON, |_| false);
        let origin = stage.sim.app::<Origin>(stage.nodes[0]);
        let failure = origin.failure().expect("it is refused");
        assert!(failure.contains("UNAUTHORIZED"), "{failure}");
        assert_no_sessions(&stage, failure);
    }
}

/// Permits everything: to sessions before `from` without an end, to later ones for two seconds.
#[derive(Debug)]
struct Brief {
    from: Instant,
}

impl Authority for Brief {
    fn grant(
        &self,
        now: Instant,
        _credentials: &Credentials,
        _memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial> {
        let expires = (now >= self.from).then_some(now + Duration::from_secs(2));
        Ok(vec![Grant {
            expires,
            ..Grant::everything()
        }])
    }
}

#[test]
fn a_player_whose_token_expires_says_so_and_fails() {
    let mut stage = Stage::new(Duration::from_mins(1));
    let from = stage.sim.instant(Duration::from_secs(1));
    let relay = Relay::with_authority(Config::default(), Arc::new(Brief { from }));
    stage.sim.start(stage.relay, relay);
    stage.publish(0, Show::usual(PublishFlow::Publish));
    stage.sim.run_until(Duration::from_secs(1), |_| false);
    stage.play(&["video"]);
    stage.sim.run_until(Duration::from_secs(2), |_| false);
    assert!(!stage.viewer().records().is_empty(), "it plays");
    stage.sim.run_until(Duration::from_secs(10), |_| false);
    let viewer = stage.sim.app::<Viewer>(stage.nodes[2]);
    let expected = "the relay ended the track \"video\": EXPIRED \"the token has expired\"";
    assert_eq!(
        (viewer.failure(), viewer.is_finished()),
        (Some(expected), true)
    );
    assert_no_publisher_lost(&stage);
}

#[track_caller]
fn assert_no_publisher_lost(stage: &Stage) {
    let origin = stage.sim.app::<Origin>(stage.nodes[0]);
    assert_eq!((origin.failure(), origin.is_finished()), (None, false));
}

#[test]
fn a_publisher_whose_token_expires_says_so_and_fails() {
    for flow in [PublishFlow::Publish, PublishFlow::Namespace] {
        let mut stage = Stage::new(Duration::from_mins(1));
        let from = stage.sim.instant(Duration::ZERO);
        let relay = Relay::with_authority(Config::default(), Arc::new(Brief { from }));
        stage.sim.start(stage.relay, relay);
        stage.publish(0, Show::usual(flow));
        stage.sim.run_until(Duration::from_secs(5), |_| false);
        let origin = stage.sim.app::<Origin>(stage.nodes[0]);
        let failure = origin.failure().expect("its token has expired");
        assert!(failure.ends_with(": EXPIRED_AUTH_TOKEN"), "{failure}");
    }
}

#[test]
fn at_goaway_all_leave_long_before_the_end_of_the_drain() {
    let mut stage = Stage::new(Duration::from_mins(1));
    stage.publish(0, Show::usual(PublishFlow::Publish));
    stage.sim.run_until(Duration::from_secs(1), |_| false);
    stage.play(&["video"]);
    stage.sim.run_until(Duration::from_secs(2), |_| false);
    stage.sim.shutdown(stage.relay);
    stage
        .sim
        .run_until(Duration::from_secs(2) + SOON, |_| false);
    let going = Some("the relay is going away");
    let viewer = stage.sim.app::<Viewer>(stage.nodes[2]);
    let origin = stage.sim.app::<Origin>(stage.nodes[0]);
    assert_eq!((viewer.failure(), origin.failure()), (going, going));
    assert_no_sessions(&stage, "after GOAWAY");
    let relay = stage.sim.app::<Relay>(stage.relay);
    assert!(relay.is_finished());
    assert_eq!(relay.counters().sessions_drained_late, 0);
}

#[test]
fn whoever_has_finished_is_not_disturbed_by_goaway() {
    let mut stage = Stage::new(Duration::from_mins(1));
    stage.publish(
        0,
        Show {
            pace: Pace::Until(5),
            ..Show::usual(PublishFlow::Publish)
        },
    );
    // The end of the stream comes after a second, and the origin stays for a while so that it arrives.
    stage.sim.run_until(Duration::from_millis(1200), |_| false);
    let origin = stage.sim.app::<Origin>(stage.nodes[0]);
    assert!(!origin.is_finished(), "it waits for acknowledgements");
    stage.sim.shutdown(stage.relay);
    stage.sim.run_until(Duration::from_secs(5), |_| false);
    let origin = stage.sim.app::<Origin>(stage.nodes[0]);
    assert_eq!((origin.failure(), origin.is_finished()), (None, true));
    assert_no_sessions(&stage, "at the end of the stream");
}
