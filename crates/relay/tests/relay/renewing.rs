//! Credentials for other relays that change while a relay runs: tokens that expire, and new ones in time or too late.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_client::target::Target;
use weir_moqt::error::RequestErrorCode;
use weir_relay::{Config, LinkCredentials, Load, Relay, Upstream};
use weir_sim::{NodeId, SERVER_NAME};

use crate::{
    actor::Heard,
    authorising::{Doorkeeper, client_with, token},
    fleet::{Fleet, lasting, wait_until},
    stage::{Asked, Setting, Stage, millis, payload, secs, space, story},
};

/// Tokens of a relay, and how often they were exchanged.
#[derive(Debug, Default)]
struct Wallet(Mutex<(u64, Vec<&'static str>)>);

impl Wallet {
    fn new(tokens: &[&'static str]) -> Arc<Self> {
        Arc::new(Self(Mutex::new((0, tokens.to_vec()))))
    }

    fn content(&self) -> MutexGuard<'_, (u64, Vec<&'static str>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exchanges the tokens, which a relay notices at its next look.
    fn exchange(&self, stage: &mut Stage, relay: NodeId, tokens: &[&'static str]) {
        let mut content = self.content();
        *content = (content.0 + 1, tokens.to_vec());
        drop(content);
        stage.load_at(relay, Load::default());
    }
}

impl LinkCredentials for Wallet {
    fn revision(&self) -> u64 {
        self.content().0
    }

    fn apply(&self, target: &mut Target) {
        let tokens = self.content().1.iter().map(|text| token(text)).collect();
        target.setup.authorization_tokens = tokens;
    }
}

/// Everything is permitted for so many seconds.
const LONG: [&str; 2] = ["subscribe::1000", "publish::1000"];
const SHORT: [&str; 2] = ["subscribe::10", "publish::10"];

fn guarded() -> Setting {
    Setting {
        authority: Arc::new(Doorkeeper),
        ..lasting()
    }
}

/// Creates a relay that presents the tokens of a wallet.
fn edge_with(stage: &mut Stage, wallet: &Arc<Wallet>) -> NodeId {
    stage.credentials = Some(Arc::clone(wallet) as _);
    let edge = stage.edge(&[stage.relay]);
    stage.await_links(edge);
    stage.load_at(edge, Load::default());
    edge
}

/// Creates a relay that presents the tokens of a wallet, a publisher at the relay that it asks, and a viewer.
fn chain(stage: &mut Stage, wallet: &Arc<Wallet>) -> (NodeId, Asked, Asked) {
    let edge = edge_with(stage, wallet);
    let publisher = client_with(stage, &LONG);
    let publication = stage.publish(publisher, "a--x");
    stage.wait(millis(50));
    let viewer = stage.client_at(edge);
    let subscription = stage.subscribe(viewer, "a--x");
    stage.wait_for_answers(&[subscription]);
    (edge, publication, subscription)
}

/// Publishes groups of four objects, an object each 50 ms, and the groups overlap.
fn broadcast(stage: &mut Stage, publication: Asked, groups: std::ops::Range<u64>) {
    for group in groups {
        let mut stream = stage.open(publication, group);
        for id in 0..4 {
            stage.object(publication, &mut stream, id, &payload(group, id, 600));
            stage.wait(millis(50));
        }
        stage.finish(publication, &stream);
    }
}

fn groups(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

#[test]
fn a_link_with_a_new_token_takes_over_and_nothing_is_lost() {
    story(&guarded(), |stage| {
        let wallet = Wallet::new(&SHORT);
        let (edge, publication, subscription) = chain(stage, &wallet);
        let far = client_with(stage, &LONG);
        let near = stage.client_at(edge);
        let returned = stage.publish(near, "b--y");
        stage.wait(millis(100));
        let back = stage.subscribe(far, "b--y");
        stage.wait_for_answers(&[back]);
        stage.step("both ways, before", millis(0));
        broadcast(stage, publication, 0..2);
        broadcast(stage, returned, 0..2);
        let mut stream = stage.open(publication, 2);
        stage.object(publication, &mut stream, 0, &payload(2, 0, 600));
        wallet.exchange(stage, edge, &LONG);
        stage.step("a new token, in the middle of a group", millis(0));
        for id in 1..4 {
            stage.wait(millis(30));
            stage.object(publication, &mut stream, id, &payload(2, id, 600));
        }
        stage.finish(publication, &stream);
        broadcast(stage, publication, 3..12);
        broadcast(stage, returned, 2..12);
        stage.step("the old token expires", secs(4));
        broadcast(stage, publication, 12..14);
        broadcast(stage, returned, 12..14);
        stage.wait(millis(200));
        stage.expect_objects(subscription, &groups(0..14), 4, 600);
        stage.expect_objects(back, &groups(0..14), 4, 600);
        let counters = stage.counters_at(edge);
        assert_eq!(
            (counters.links_renewed, counters.link_requests_refused),
            (1, 0)
        );
        let link = &stage.links_at(edge)[0];
        assert_eq!((link.connects, link.failures), (2, 0));
        assert_eq!((link.is_ready, &link.problem), (true, &None));
        assert!(link.objects >= 14 * 4, "{}", link.objects);
        assert_eq!(stage.gauges_at(edge).link_subscriptions, 1);
        assert_eq!(stage.gauges().sessions, 3, "the old link is closed");
    });
}

#[test]
fn watchers_are_not_told_that_a_link_was_replaced() {
    story(&guarded(), |stage| {
        let wallet = Wallet::new(&LONG);
        let edge = edge_with(stage, &wallet);
        let publisher = client_with(stage, &LONG);
        let announced = ["a-1", "a-2", "b-1"].map(|name| stage.announce(publisher, name));
        let viewer = stage.client_at(edge);
        let watches = ["a", "b"].map(|prefix| stage.watch(viewer, space(prefix)));
        stage.step("namespaces are found", secs(1));
        wallet.exchange(stage, edge, &LONG);
        stage.step("a new link finds them again", secs(1));
        stage.cancel(announced[0]);
        stage.step("one goes while the old link is kept", millis(200));
        assert_eq!(stage.counters_at(edge).links_renewed, 1);
        wallet.exchange(stage, edge, &LONG);
        stage.cancel(announced[2]);
        stage.step("one goes while there is no link that knows it", secs(9));
        assert_eq!(stage.counters_at(edge).links_renewed, 2);
        let [first, second] = watches.map(|watch| stage.heard(watch));
        let [came, went] = [Heard::Came, Heard::Went];
        let gone = went(space("1"));
        assert_eq!(first, [came(space("1")), came(space("2")), gone.clone()]);
        assert_eq!(second, [came(space("1")), gone]);
    });
}

#[test]
fn a_link_whose_token_has_expired_says_so_and_recovers_with_a_new_one() {
    story(&guarded(), |stage| {
        let wallet = Wallet::new(&SHORT);
        let (edge, publication, subscription) = chain(stage, &wallet);
        broadcast(stage, publication, 0..2);
        stage.step("the token expires", secs(7));
        let link = &stage.links_at(edge)[0];
        assert!(link.is_ready, "the session stays");
        let problem = link.problem.as_deref().unwrap_or_default();
        assert!(problem.contains("EXPIRED_AUTH_TOKEN"), "{problem}");
        assert!(stage.counters_at(edge).link_requests_refused >= 2);
        let viewer = stage.client_at(edge);
        let late = stage.subscribe(viewer, "a--x");
        let fetch = stage.fetch(viewer, "a--x", (0, 0), (1, 0));
        stage.step("another asks", millis(300));
        assert!(!stage.is_accepted(late), "{:?}", stage.outcome(late));
        assert!(stage.refusal(fetch).is_some() || stage.is_accepted(fetch));
        assert_eq!(stage.outcome(subscription).done, None, "the viewer waits");
        wallet.exchange(stage, edge, &LONG);
        stage.step("a new token", secs(2));
        broadcast(stage, publication, 5..8);
        stage.wait(millis(200));
        let received = stage.outcome(subscription);
        assert_eq!(received.done, None);
        stage.expect_objects(subscription, &[0, 1, 5, 6, 7], 4, 600);
        let link = &stage.links_at(edge)[0];
        assert_eq!((link.is_ready, &link.problem), (true, &None));
        assert_eq!(stage.counters_at(edge).links_renewed, 1);
    });
}

#[test]
fn a_new_token_that_is_refused_leaves_the_link_as_it_is() {
    story(&guarded(), |stage| {
        let wallet = Wallet::new(&LONG);
        let (edge, publication, subscription) = chain(stage, &wallet);
        wallet.exchange(stage, edge, &["subscribe::0"]);
        broadcast(stage, publication, 0..10);
        stage.step("a token that has expired already", millis(200));
        stage.expect_objects(subscription, &groups(0..10), 4, 600);
        let link = &stage.links_at(edge)[0];
        assert_eq!((link.is_ready, link.connects), (true, 1));
        assert!(link.failures >= 2, "it tries again");
        let tried = link.failures;
        assert!(tried < 20, "after pauses: {tried}");
        wallet.exchange(stage, edge, &LONG);
        broadcast(stage, publication, 10..40);
        stage.step("a good one", millis(200));
        stage.expect_objects(subscription, &groups(0..40), 4, 600);
        assert_eq!(stage.counters_at(edge).links_renewed, 1);
        assert_eq!(stage.links_at(edge)[0].connects, 2);
        assert_eq!(stage.gauges().sessions, 2);
    });
}

#[test]
fn a_link_that_is_lost_meanwhile_comes_back_with_the_new_token() {
    story(&guarded(), |stage| {
        let wallet = Wallet::new(&LONG);
        let (edge, _, _) = chain(stage, &wallet);
        stage.sim.kill(stage.relay);
        wallet.exchange(stage, edge, &SHORT);
        stage.step("the relay dies, and the token changes", secs(3));
        assert!(!stage.links_at(edge)[0].is_ready);
        stage.serve(stage.relay, &[]);
        stage.step("it comes back", secs(10));
        let link = &stage.links_at(edge)[0];
        assert_eq!((link.is_ready, &link.problem), (true, &None));
        assert_eq!(link.connects, 2);
    });
}

#[test]
fn links_of_a_fleet_are_replaced_and_nothing_is_lost() {
    story(&lasting(), |stage| {
        let wallet = Wallet::new(&[]);
        stage.credentials = Some(Arc::clone(&wallet) as _);
        let fleet = Fleet::new(stage, 3);
        let publisher = fleet.client(stage, 0);
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(300));
        let viewers = [1, 2].map(|relay| fleet.client(stage, relay));
        let asked = viewers.map(|viewer| stage.subscribe(viewer, "a--x"));
        stage.wait_for_answers(&asked);
        broadcast(stage, publication, 0..2);
        for round in 1..4 {
            for &relay in &fleet.relays {
                wallet.exchange(stage, relay, &[]);
            }
            broadcast(stage, publication, 2 * round..2 * round + 2);
        }
        stage.step("three new credentials, one soon after the other", secs(2));
        for subscription in asked {
            stage.expect_objects(subscription, &groups(0..8), 4, 600);
        }
        for relay in [1, 2] {
            let node = fleet.relays[relay];
            assert!(stage.counters_at(node).links_renewed >= 3);
            assert_eq!(fleet.links(stage, relay), ["relay 0"]);
            assert_eq!(stage.gauges_at(node).link_subscriptions, 1);
        }
        assert_eq!(stage.gauges_at(fleet.relays[0]).sessions, 3);
        stage.cancel(asked[0]);
        stage.cancel(asked[1]);
        wait_until(stage, "the links are closed", |stage| {
            [1, 2].iter().all(|&it| fleet.links(stage, it).is_empty())
        });
    });
}

/// Rights that never were.
#[test]
fn a_link_without_rights_says_so() {
    story(&guarded(), |stage| {
        let wallet = Wallet::new(&["subscribe:other:1000"]);
        let edge = edge_with(stage, &wallet);
        assert_eq!(stage.links_at(edge)[0].problem, None);
        let viewer = stage.client_at(edge);
        let subscription = stage.subscribe(viewer, "a--x");
        stage.step("a viewer asks", millis(300));
        let refused = Some(RequestErrorCode::UNAUTHORIZED);
        assert_eq!(stage.refusal(subscription), refused);
        let status = stage.track_status(viewer, "a--x");
        stage.step("and asks for the status", millis(300));
        assert_eq!(stage.refusal(status), refused);
        let link = &stage.links_at(edge)[0];
        let problem = link.problem.as_deref().unwrap_or_default();
        assert!(problem.starts_with("TRACK_STATUS refused: UNAUTHORIZED"));
        assert_eq!(stage.counters_at(edge).link_requests_refused, 2);
        let publisher = client_with(stage, &LONG);
        stage.publish(publisher, "other--x");
        stage.wait(millis(50));
        let permitted = stage.subscribe(viewer, "other--x");
        stage.wait_for_answers(&[permitted]);
        assert_eq!(stage.links_at(edge)[0].problem, None, "this one is");
    });
}

/// Starts or restarts a relay that permits what tokens say, and asks another one with the tokens of the stage.
fn serve_guarded(stage: &mut Stage, node: NodeId, upstream: NodeId, identity: u64) {
    let config = Config {
        identity,
        ..Config::default()
    };
    let wallet = stage.credentials.clone().expect("the story sets them");
    let mut relay =
        Relay::with_authority(config, Arc::new(Doorkeeper)).with_link_credentials(wallet);
    let client = stage.sim.client_config(&[stage.draft.alpn()]);
    let target = Target::new(stage.sim.address(upstream), SERVER_NAME, client);
    let upstream = Upstream {
        name: format!("{upstream:?}"),
        target: Arc::new(target),
        seed: identity,
        whereabouts: None,
    };
    relay.add_upstream(stage.sim.now(), upstream);
    stage.sim.start(node, relay);
}

#[test]
fn a_ring_is_found_although_no_token_permits_the_question() {
    story(&Setting::default(), |stage| {
        stage.credentials = Some(Wallet::new(&["subscribe:live:1000", "publish:live:1000"]) as _);
        let relays = [stage.edge(&[]), stage.edge(&[])];
        serve_guarded(stage, relays[0], relays[1], 0x0123_4567_89ab_cdef);
        serve_guarded(stage, relays[1], relays[0], 0xfedc_ba98_7654_3210);
        stage.step("two relays that name each other", secs(8));
        let found = relays.map(|relay| stage.counters_at(relay).links_in_ring);
        assert!(found.iter().sum::<u64>() > 0, "{found:?}");
        for relay in relays {
            let counters = stage.counters_at(relay);
            assert_eq!(
                counters.refused_unauthorized, 0,
                "the question is no intrusion"
            );
        }
    });
}

#[test]
fn an_announcement_without_rights_and_a_renewal_that_fails_are_named() {
    story(&guarded(), |stage| {
        let wallet = Wallet::new(&["subscribe::1000"]);
        let edge = edge_with(stage, &wallet);
        let publisher = stage.client_at(edge);
        stage.announce(publisher, "mine");
        stage.step("the edge may not publish", millis(300));
        let problem = |stage: &mut Stage| stage.links_at(edge)[0].problem.clone();
        let refused = problem(stage).unwrap();
        let expected = "PUBLISH_NAMESPACE refused: UNAUTHORIZED";
        assert!(refused.starts_with(expected), "{refused}");
        assert_eq!(stage.counters_at(edge).link_requests_refused, 1);
        wallet.exchange(stage, edge, &["nonsense"]);
        stage.step("a token that cannot be read", secs(1));
        let refused = problem(stage).unwrap();
        let expected = "the new credentials are not accepted: ";
        assert!(refused.starts_with(expected), "{refused}");
        wallet.exchange(stage, edge, &LONG);
        stage.step("a good one", secs(6));
        assert_eq!(problem(stage), None);
        assert_eq!(stage.gauges().namespaces, 1, "and the namespace is there");
    });
}
