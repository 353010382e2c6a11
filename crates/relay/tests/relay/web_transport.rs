//! Clients over WebTransport, beside others on the same port.

use std::{sync::Arc, time::Instant};

use weir_moqt::{error::SessionError, message::Setup};
use weir_quic::{ClientConfig, Lost, web_transport::Request};
use weir_relay::{Authority, Credentials, Denial, Grant, TokenMemo};
use weir_sim::NodeId;

use crate::{
    actor::Actor,
    stage::{Setting, Stage, millis, payload, secs, space, story},
};

/// Starts a client over WebTransport, whether or not it can connect.
fn begin(stage: &mut Stage, path: &str, setup: Setup) -> NodeId {
    let node = stage.absent_client();
    let config = ClientConfig {
        web_transport: Some(Request {
            authority: "relay.example".to_owned(),
            path: path.to_owned(),
            protocols: vec![stage.draft.alpn().to_owned()],
            origin: None,
        }),
        ..stage.sim.client_config(&[weir_h3::ALPN])
    };
    let actor = Actor::new(
        &stage.sim,
        stage.sim.address(stage.relay),
        setup,
        stage.draft,
    );
    stage.sim.start(node, actor.with_config(config));
    node
}

fn client(stage: &mut Stage) -> NodeId {
    let node = begin(stage, "/", Setup::default());
    stage.step("connect over WebTransport", secs(1));
    assert!(stage.actor(node).is_ready());
    node
}

#[test]
fn sessions_over_both_transports_share_a_track() {
    story(&Setting::default(), |stage| {
        for publishes_over_web_transport in [true, false] {
            let publisher = if publishes_over_web_transport {
                client(stage)
            } else {
                stage.client()
            };
            let track = if publishes_over_web_transport {
                "a--x"
            } else {
                "a--y"
            };
            let publication = stage.publish(publisher, track);
            let nodes = [client(stage), stage.client()];
            let subscriptions = nodes.map(|node| stage.subscribe(node, track));
            stage.step("subscribe", millis(100));
            stage.group(publication, 0, 20, 3000);
            for object in 0..20 {
                stage.datagram(publication, 1, object, &payload(1, object, 500));
            }
            stage.step("send", secs(1));
            for subscription in subscriptions {
                stage.expect_objects(subscription, &[0], 20, 3000);
                let datagrams = &stage.outcome(subscription).datagrams;
                assert_eq!(datagrams.len(), 20);
                for (object, (_, datagram)) in (0..).zip(datagrams) {
                    assert_eq!(datagram.payload, payload(1, object, 500));
                }
            }
        }
        assert_eq!(stage.counters().sessions_violated, 0);
    });
}

#[test]
fn setup_does_not_repeat_what_the_request_says() {
    story(&Setting::default(), |stage| {
        for (setup, code) in [
            (
                Setup {
                    path: Some("/".to_owned()),
                    ..Setup::default()
                },
                SessionError::INVALID_PATH,
            ),
            (
                Setup {
                    authority: Some("relay.example".to_owned()),
                    ..Setup::default()
                },
                SessionError::INVALID_AUTHORITY,
            ),
        ] {
            let node = begin(stage, "/", setup);
            stage.step("connect with too much in SETUP", secs(1));
            let lost = stage.actor(node).lost.clone();
            assert!(
                matches!(&lost, Some(Lost::Application { code: found, .. }) if *found == code.0),
                "{lost:?}"
            );
        }
        assert_eq!(stage.counters().sessions_violated, 2);
    });
}

/// An authority that permits sessions for one path of one host.
#[derive(Debug)]
struct PathKeeper;

impl Authority for PathKeeper {
    fn grant(
        &self,
        _now: Instant,
        credentials: &Credentials,
        _memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial> {
        let named = (
            credentials.path.as_deref(),
            credentials.authority.as_deref(),
        );
        if named != (Some("/open?a"), Some("relay.example")) {
            return Err(Denial::Unauthorized);
        }
        Ok(vec![Grant {
            publish: vec![space("a")],
            ..Grant::default()
        }])
    }
}

#[test]
fn the_authority_learns_what_was_asked_for() {
    let setting = Setting {
        authority: Arc::new(PathKeeper),
        ..Setting::default()
    };
    story(&setting, |stage| {
        for (path, is_permitted) in [("/open?a", true), ("/open", false)] {
            let node = begin(stage, path, Setup::default());
            stage.step("connect", secs(1));
            let publication = stage.publish(node, "a--x");
            stage.step("publish", millis(100));
            assert_eq!(stage.is_accepted(publication), is_permitted, "{path}");
        }
    });
}
