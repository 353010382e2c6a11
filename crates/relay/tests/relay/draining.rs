//! Drain: all sessions get GOAWAY, and none is waited for longer than configured.

use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    parameter::Parameters,
};
use weir_quic::Lost;
use weir_sim::NodeId;

use crate::stage::{Setting, Stage, millis, secs, space, story};

fn close_code(stage: &Stage, node: NodeId) -> Option<u64> {
    match stage.actor(node).lost {
        Some(Lost::Application { code, .. }) => Some(code),
        _ => None,
    }
}

#[test]
fn all_are_told_and_sent_to_the_successor_and_the_last_are_closed() {
    let setting = Setting {
        successor: Some("moqt://elsewhere:4443".to_owned()),
        ..Setting::default()
    };
    story(&setting, |stage| {
        let [publisher, subscriber, idle] = [stage.client(), stage.client(), stage.client()];
        let source = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        let relay = stage.relay;
        stage.sim.shutdown(relay);
        stage.step("the relay is to stop", millis(100));
        for node in [publisher, subscriber, idle] {
            let goaway = stage.actor(node).goaway.as_ref().expect("it was told");
            assert_eq!(goaway.new_session_uri, "moqt://elsewhere:4443");
            assert_eq!(goaway.timeout, Some(secs(5)));
        }
        stage.group(source, 1, 3, 100);
        stage.step("what runs goes on", secs(1));
        stage.expect_objects(subscription, &[1], 3, 100);
        let no_error = Some(SessionError::NO_ERROR.0);
        assert_eq!(
            close_code(stage, idle),
            no_error,
            "it had nothing to wait for"
        );
        let late = stage.absent_client();
        stage.begin(late, weir_moqt::message::Setup::default());
        stage.step("one more comes", secs(1));
        assert!(!stage.actor(late).is_ready());
        stage.sim.shutdown(subscriber);
        stage.step("the subscriber leaves", secs(1));
        assert!(stage.sim.is_busy(relay));
        stage.step("the time is over", secs(3));
        let timeout = Some(SessionError::GOAWAY_TIMEOUT.0);
        assert_eq!(close_code(stage, publisher), timeout);
        assert!(!stage.sim.is_busy(relay), "it has finished");
        assert_eq!(stage.counters().sessions_drained_late, 1);
        assert_eq!(stage.gauges().sessions, 0);
    });
}

#[test]
fn who_is_still_there_half_way_is_asked_to_move_each_request() {
    let setting = Setting {
        successor: Some("moqt://elsewhere:4443".to_owned()),
        ..Setting::default()
    };
    story(&setting, |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        let source = stage.publish(publisher, "a--x");
        let namespace = stage.announce(publisher, "b");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        let collecting = stage.collect(subscriber, space("c"), Parameters::default());
        stage.wait(millis(50));
        let relay = stage.relay;
        stage.sim.shutdown(relay);
        stage.step("the relay is to stop", millis(2400));
        for asked in [source, namespace, subscription, collecting] {
            assert_eq!(stage.outcome(asked).goaway, None, "the session was told");
        }
        stage.step("half of the time is over", millis(300));
        for asked in [source, namespace, subscription, collecting] {
            let goaway = stage.outcome(asked).goaway.as_ref().expect("it was told");
            assert_eq!(goaway.new_session_uri, "moqt://elsewhere:4443");
            let timeout = goaway.timeout.expect("it ends");
            assert!((secs(2)..=millis(2500)).contains(&timeout), "{timeout:?}");
        }
        assert_eq!(stage.counters().requests_moved, 4);
        stage.group(source, 1, 3, 100);
        stage.step("what runs goes on", millis(100));
        stage.expect_objects(subscription, &[1], 3, 100);
        stage.step("the time is over", secs(3));
        let timeout = Some(SessionError::GOAWAY_TIMEOUT.0);
        for node in [publisher, subscriber] {
            assert_eq!(stage.actor(node).violation, None);
            assert_eq!(close_code(stage, node), timeout);
        }
    });
}

#[test]
fn new_requests_are_refused_while_the_relay_stops() {
    story(&Setting::default(), |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let relay = stage.relay;
        let before = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(15));
        stage.sim.shutdown(relay);
        // The SUBSCRIBE crosses the GOAWAY.
        let crossing = stage.subscribe(subscriber, "a--y");
        stage.step("the relay is to stop", millis(100));
        assert!(stage.is_accepted(before));
        assert_eq!(stage.refusal(crossing), Some(RequestErrorCode::GOING_AWAY));
    });
}

#[test]
fn a_relay_without_sessions_stops_at_once_and_any_if_asked_twice() {
    story(&Setting::default(), |stage| {
        let relay = stage.relay;
        let node = stage.client();
        stage.publish(node, "a--x");
        stage.wait(millis(50));
        stage.sim.shutdown(relay);
        stage.step("asked once", secs(1));
        assert!(stage.sim.is_busy(relay));
        stage.sim.shutdown(relay);
        stage.step("asked again", millis(50));
        assert!(!stage.sim.is_busy(relay));
        assert_eq!(
            close_code(stage, node),
            Some(SessionError::GOAWAY_TIMEOUT.0)
        );
    });
    story(&Setting::default(), |stage| {
        let relay = stage.relay;
        stage.sim.shutdown(relay);
        assert!(!stage.sim.is_busy(relay));
    });
}
