//! TRACK_STATUS, answered by the relay and by publishers.

use weir_moqt::{
    error::RequestErrorCode, location::Location, parameter::Parameters, property::Properties,
};

use crate::stage::{Setting, millis, secs, story};

#[test]
fn an_established_track_is_answered_for_at_once() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let client = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let empty = stage.track_status(client, "a--x");
        stage.wait(millis(50));
        stage.datagram(publication, 3, 4, b"object");
        stage.wait(millis(50));
        let status = stage.track_status(client, "a--x");
        stage.step("before and after an object", millis(50));
        let largest = |asked| {
            let answer = stage.outcome(asked).answer.clone();
            answer.expect("it is answered").map(|ok| ok.largest_object)
        };
        assert_eq!(largest(empty), Ok(None));
        assert_eq!(largest(status), Ok(Some(Location::new(3, 4))));
        assert_eq!(stage.counters().inquiries, 0);
    });
}

#[test]
fn publishers_of_the_namespace_are_asked_in_turn() {
    story(&Setting::default(), |stage| {
        let nodes = stage.clients(3);
        let standings = [
            Err(RequestErrorCode::NOT_SUPPORTED),
            Ok(Location::new(7, 1)),
            Ok(Location::new(9, 9)),
        ];
        for (&node, standing) in nodes.iter().zip(standings) {
            stage.direct(node, |actor| actor.archive.standing = Some(standing));
            stage.announce(node, "a");
            stage.wait(millis(50));
        }
        let client = stage.client();
        let status = stage.track_status(client, "a--x");
        let missing = stage.track_status(client, "b--x");
        stage.step("a track that the relay does not know", millis(200));
        let answer = stage.outcome(status).answer.clone().expect("an answer");
        assert_eq!(answer.unwrap().largest_object, Some(Location::new(7, 1)));
        let asked = nodes
            .iter()
            .map(|&node| stage.actor(node).archive.track_statuses.len());
        assert_eq!(asked.collect::<Vec<_>>(), [1, 1, 0]);
        let code = RequestErrorCode::DOES_NOT_EXIST;
        assert_eq!(stage.refusal(missing), Some(code));
        assert_eq!(stage.gauges().tracks, 0);
    });
}

#[test]
fn the_last_refusal_is_passed_on_and_so_is_silence() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        stage.announce(publisher, "a");
        stage.wait(millis(50));
        let client = stage.client();
        let silent = stage.track_status(client, "a--x");
        stage.step("nobody answers", secs(9));
        assert_eq!(stage.outcome(silent).answer, None);
        stage.step("for long enough", secs(2));
        assert_eq!(stage.refusal(silent), Some(RequestErrorCode::TIMEOUT));
        let (id, code) = (
            stage.actor(publisher).archive.track_statuses[0],
            RequestErrorCode::UNAUTHORIZED,
        );
        assert!(stage.actor(publisher).exchanges[&id].closed.is_some());
        stage.direct(publisher, |actor| actor.archive.standing = Some(Err(code)));
        let refused = stage.track_status(client, "a--x");
        stage.step("a refusal", millis(200));
        assert_eq!(stage.refusal(refused), Some(code));
    });
}

#[test]
fn who_leaves_is_asked_for_no_answer() {
    let mut setting = Setting::default();
    setting.relay.inquiries_per_session_max = 2;
    story(&setting, |stage| {
        let publisher = stage.client();
        stage.announce(publisher, "a");
        stage.publish_with(publisher, "b--x", Parameters::default(), Properties::EMPTY);
        stage.wait(millis(50));
        let [one, other] = [stage.client(), stage.client()];
        let asked: Vec<_> = (0..3).map(|_| stage.track_status(one, "a--x")).collect();
        stage.step("two at the limit, one past it", millis(100));
        let code = RequestErrorCode::EXCESSIVE_LOAD;
        assert_eq!(stage.refusal(asked[2]), Some(code));
        assert_eq!(stage.refusal(asked[1]), None);
        assert_eq!(stage.counters().refused_limit_inquiries, 1);
        stage.sim.shutdown(one);
        stage.step("who asked leaves", millis(100));
        let exchanges = &stage.actor(publisher).exchanges;
        let inquired = &stage.actor(publisher).archive.track_statuses;
        assert!(inquired.iter().all(|id| exchanges[id].closed.is_some()));
        let last = stage.track_status(other, "a--x");
        stage.wait(millis(100));
        stage.sim.shutdown(publisher);
        stage.step("who was asked leaves", millis(100));
        let code = RequestErrorCode::DOES_NOT_EXIST;
        assert_eq!(stage.refusal(last), Some(code));
        stage.sim.shutdown(other);
        stage.step("nothing is left", millis(200));
        assert_eq!(stage.gauges(), weir_relay::Gauges::default());
        assert_eq!(stage.wake_up(), None);
    });
}
