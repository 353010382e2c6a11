//! A flood of handshakes that are never completed.

use weir_moqt::message::Setup;

use crate::stage::{Setting, millis, secs, story};

#[test]
fn a_flood_of_handshakes_harms_no_session_and_leaves_nothing_behind() {
    let mut setting = Setting::default();
    setting.quic.handshakes_before_retry_max = 4;
    setting.quic.handshakes_max = 20;
    setting.quic.idle_timeout = secs(5);
    setting.client.keep_alive = Some(secs(1));
    story(&setting, |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        let source = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("a session each", millis(50));
        let before = stage.gauges();
        let mut groups = Vec::new();
        for wave in 0..20 {
            let flood: Vec<_> = (0..50).map(|_| stage.absent_client()).collect();
            for &node in &flood {
                stage.begin(node, Setup::default());
            }
            // They disappear while the relay's answer is under way, or after their address was validated.
            stage.wait(millis(if wave % 2 == 0 { 15 } else { 35 }));
            for &node in &flood {
                stage.sim.kill(node);
            }
            stage.group(source, wave, 3, 500);
            groups.push(wave);
            stage.wait(millis(50));
            assert!(stage.gauges().sessions <= 22, "{:?}", stage.gauges());
        }
        stage.step("a thousand came and vanished", millis(500));
        stage.expect_objects(subscription, &groups, 3, 500);
        stage.step("they are forgotten", secs(15));
        let after = stage.gauges();
        assert_eq!((after.sessions, after.subscriptions), (before.sessions, 1));
        let newcomer = stage.client();
        let late = stage.subscribe(newcomer, "a--x");
        stage.step("there is room for who means it", millis(100));
        assert!(stage.is_accepted(late));
    });
}
