//! Rules that change: everybody is judged by them, in pieces, whatever owners of namespaces do meanwhile.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use weir_moqt::error::RequestErrorCode;
use weir_relay::Load;

use crate::{
    authorising::{client_with, with_token},
    revoking::{Keys, with_keys},
    stage::{Setting, Stage, millis, secs},
};

/// Rules by keys, and sessions that may have many requests.
fn wide(keys: &Arc<Keys>) -> Setting {
    let mut setting = with_keys(keys);
    setting.quic.bidi_streams_max = 1000;
    setting.client.bidi_streams_max = 1000;
    setting.session.requests_max = 1000;
    setting
}

#[test]
fn requests_with_tokens_of_their_own_are_judged_in_pieces() {
    let keys = Arc::new(Keys::default());
    let mut stage = Stage::new(crate::stage::seed(), wide(&keys));
    let stage = &mut stage;
    let publisher = client_with(stage, &["good"]);
    let announced: Vec<_> = (0..200)
        .map(|number| {
            let parameters = with_token(&format!("token {number}"));
            stage.announce_with(publisher, &format!("a-{number}"), parameters)
        })
        .collect();
    stage.step("two hundred tokens", secs(3));
    assert!(announced.iter().all(|&it| stage.is_accepted(it)));
    let verified = || keys.verified.load(Ordering::Relaxed);
    let before = verified();
    keys.revoke("token 7");
    stage.load(Load::default());
    let mut pieces = Vec::new();
    let mut last = before;
    while last < before + 201 {
        assert!(pieces.len() < 1000, "{pieces:?}");
        stage.wait(Duration::from_micros(500));
        pieces.push(verified() - last);
        last = verified();
    }
    // Eight signature checks take about a millisecond.
    assert!(pieces.iter().all(|&count| count <= 9), "{pieces:?}");
    stage.step("judged", millis(100));
    assert_eq!(stage.counters().requests_revoked, 1);
    assert_eq!(stage.gauges().namespaces, 199);
}

/// Each new reservation changes the rules. If judging began from the start each time, it would not come to those behind.
#[test]
fn who_lost_rights_is_found_though_owners_come_all_the_while() {
    let keys = Arc::new(Keys::default());
    let mut stage = Stage::new(crate::stage::seed(), wide(&keys));
    let stage = &mut stage;
    let owner = client_with(stage, &["own:alice"]);
    for _ in 0..100 {
        client_with(stage, &["good"]);
    }
    let bad = client_with(stage, &["stolen"]);
    stage.load(Load::default());
    stage.step("a hundred sessions before it", millis(100));
    keys.revoke("stolen");
    for number in 0..400 {
        stage.announce(owner, &format!("show-{number}"));
        stage.load(Load::default());
        stage.wait(millis(1));
    }
    assert!(stage.actor(bad).lost.is_some(), "it is closed");
    assert_eq!(stage.counters().sessions_revoked, 1);
}

#[test]
fn a_request_that_is_refused_reserves_nothing() {
    let keys = Arc::new(Keys::default());
    let mut setting = wide(&keys);
    setting.relay.namespaces_per_session_max = 1;
    let mut stage = Stage::new(crate::stage::seed(), setting);
    let stage = &mut stage;
    let owner = client_with(stage, &["own:alice"]);
    let stranger = client_with(stage, &["stranger"]);
    let [kept, refused] = ["a", "b"].map(|space| stage.announce(owner, space));
    stage.step("two namespaces, one past the limit", millis(100));
    assert!(stage.is_accepted(kept));
    let load = Some(RequestErrorCode::EXCESSIVE_LOAD);
    assert_eq!(stage.refusal(refused), load);
    stage.cancel(kept);
    stage.step("one ends", millis(100));
    let [still_hers, free] = ["a--x", "b--x"].map(|track| stage.publish(stranger, track));
    stage.step("a stranger comes", millis(100));
    assert_eq!(
        stage.refusal(still_hers),
        Some(RequestErrorCode::UNAUTHORIZED)
    );
    assert!(stage.is_accepted(free));
}

#[test]
fn tokens_of_a_crowd_leave_time_for_others() {
    let keys = Arc::new(Keys::default());
    let mut stage = Stage::new(crate::stage::seed(), wide(&keys));
    let stage = &mut stage;
    let crowd: Vec<_> = (0..40).map(|_| client_with(stage, &["good"])).collect();
    let verified = || keys.verified.load(Ordering::Relaxed);
    let before = verified();
    let mut asked = Vec::new();
    for (place, &node) in crowd.iter().enumerate() {
        for number in 0..40 {
            let parameters = with_token(&format!("token {place} {number}"));
            asked.push(stage.announce_with(node, &format!("a-{place}-{number}"), parameters));
        }
    }
    // Each of them may have 200 verified in a second, and each had sixteen whatever the others have.
    stage.step("sixteen hundred tokens", millis(500));
    let soon = verified() - before;
    assert!((600..1_200).contains(&soon), "{soon}");
    let newcomer = client_with(stage, &["good"]);
    let announced = stage.announce_with(newcomer, "b", with_token("its own"));
    stage.wait(millis(30));
    assert!(stage.is_accepted(announced), "it does not wait");
    stage.step("all of them in the end", secs(20));
    assert!(asked.iter().all(|&it| stage.is_accepted(it)));
    assert_eq!(verified() - before, 1_600 + 2);
}
