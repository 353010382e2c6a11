//! Requests that wait for a link to another relay of the fleet.

use std::sync::Arc;

use weir_client::target::Target;
use weir_moqt::{
    error::ResetCode,
    session::{CloseReason, StreamEnd},
};
use weir_quic::Limits as QuicLimits;
use weir_relay::{
    Authority, Config, Open, Relay,
    registry::{Member, RelayId, simulated::SimulatedFleet},
};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME};

use crate::{
    archive::{ALL, Serving, standalone},
    authorising::{Doorkeeper, with_token},
    stage::{Setting, Stage, millis, secs, story},
};

/// Starts a relay of a fleet.
fn relay_of(
    stage: &mut Stage,
    registry: &SimulatedFleet,
    number: u64,
    authority: Arc<dyn Authority>,
) -> NodeId {
    let node = stage.sim.add_node(NodeConfig {
        server: Some(crate::stage::server_tls(&stage.sim)),
        limits: QuicLimits::default(),
        ..NodeConfig::default()
    });
    let config = Config {
        identity: 1000 + number,
        ..Config::default()
    };
    let mut relay = Relay::with_authority(config, authority);
    let client = stage.sim.client_config(&[stage.draft.alpn()]);
    let target = Target::new(stage.sim.address(node), SERVER_NAME, client);
    let member = Member {
        id: RelayId(number),
        name: format!("relay {number}"),
        target: Arc::new(target),
    };
    let registry = Box::new(registry.join(member));
    relay.join_fleet(stage.sim.now(), RelayId(number), registry);
    stage.sim.start(node, relay);
    node
}

#[test]
fn a_request_that_waited_ends_with_the_token_that_permitted_it() {
    story(&Setting::default(), |stage| {
        let registry = SimulatedFleet::new(crate::stage::seed(), millis(20));
        let far = relay_of(stage, &registry, 0, Arc::new(Open));
        let near = relay_of(stage, &registry, 1, Arc::new(Doorkeeper));
        stage.step("the relays know each other", millis(300));
        let archive = stage.client_at(far);
        stage.direct(archive, |actor| {
            actor.archive.fill(1, 3, 3, 500);
            actor.archive.serving = Serving::Stall(700);
        });
        stage.announce(archive, "a");
        let viewer = stage.client_at(near);
        stage.step("an archive at the first", millis(300));
        assert!(stage.links_at(near).is_empty());
        let kind = standalone("a--x", (1, 0), (3, ALL));
        let fetch = stage.fetch_with(viewer, kind, with_token("subscribe:a:3"));
        stage.step("a fetch at the other waits for the link", secs(2));
        assert_eq!(stage.fetched_from(archive).len(), 1);
        assert!(stage.fetched(fetch).ok.is_some(), "it is being served");
        stage.step("its token ends", secs(2));
        let code = ResetCode::EXPIRED_AUTH_TOKEN;
        let closed = stage.outcome(fetch).closed;
        let end = stage.fetched(fetch).end;
        assert!(
            closed == Some(CloseReason::Reset(code)) || end == Some(StreamEnd::Reset(code)),
            "{closed:?}, {end:?}"
        );
        assert_eq!(stage.counters_at(near).requests_expired, 1);
    });
}
