//! What the clients of one address may add of what all share.

use crate::{
    limits::{LOAD, expect_one_past, refusals},
    stage::{Setting, Stage, millis, rendezvous, secs, story},
};

#[test]
fn namespaces_of_an_address() {
    let mut setting = Setting::default();
    setting.relay.namespaces_per_address_max = 3;
    story(&setting, |stage| {
        let [greedy, other] = [stage.client(), stage.client()];
        let asked = ["a", "b", "c", "d"].map(|space| stage.announce(greedy, space));
        let refused = "refused_limit_announcements_address";
        expect_one_past(stage, &asked, refused, |stage| stage.announce(greedy, "e"));
        let announced = stage.announce(other, "f");
        stage.step("another address", millis(100));
        assert!(stage.is_accepted(announced));
    });
}

#[test]
fn tracks_of_an_address() {
    let mut setting = Setting::default();
    setting.relay.tracks_per_address_max = 3;
    story(&setting, |stage| {
        let [greedy, other] = [stage.client(), stage.client()];
        stage.publish(other, "b--1");
        stage.wait(millis(100));
        // What others publish does not count.
        stage.subscribe(greedy, "b--1");
        let asked = ["a--1", "a--2", "a--3", "a--4"].map(|track| stage.publish(greedy, track));
        let refused = "refused_limit_tracks_address";
        expect_one_past(stage, &asked, refused, |stage| {
            stage.publish(greedy, "a--5")
        });
        let wait = |stage: &mut Stage, node, track| {
            let asked = stage.subscribe_with(node, track, rendezvous(secs(20)));
            stage.wait(millis(100));
            asked
        };
        let waiting = wait(stage, greedy, "w--1");
        assert_eq!(stage.refusal(waiting), Some(LOAD));
        let waiting = wait(stage, other, "w--1");
        assert_eq!(stage.refusal(waiting), None);
        let fetch = stage.fetch(greedy, "f--1", (0, 0), (1, 0));
        stage.wait(millis(100));
        assert_eq!(stage.refusal(fetch), Some(LOAD));
        assert_eq!(refusals(stage), [(refused, 3)]);
    });
}
