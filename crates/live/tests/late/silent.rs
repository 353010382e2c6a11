//! A relay that never responds, or refuses what it does not support: neither player nor origin waits for it for ever.

use std::time::{Duration, Instant};

use weir_client::peer::Peer;
use weir_client::turn::Turn;
use weir_live::{Choice, Origin, PublishFlow, Viewer, ViewerConfig};
use weir_moqt::error::{RequestErrorCode, ResetCode};
use weir_moqt::limits::Limits;
use weir_moqt::message::{RequestError, RequestOk, Setup};
use weir_moqt::session::{Event as SessionEvent, Request, Side};
use weir_quic::{App, Endpoint, Event};

use crate::stage::{Show, Stage};

/// What the relay does with requests.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// Nothing.
    None,
    /// It resets their streams.
    Reset,
    /// It refuses those that it does not support, and accepts `PUBLISH_NAMESPACE` alone.
    NamespaceOnly,
    /// It refuses all as not supported.
    Refused,
}

/// The relay, with one peer.
#[derive(Debug)]
struct Silent {
    answer: Answer,
    peer: Option<Peer>,
}

impl Silent {
    fn new(answer: Answer) -> Self {
        Self { answer, peer: None }
    }
}

impl App for Silent {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        if let Event::Connected { handle } = event {
            let mut connection = turn.connection(handle).expect("it is connected");
            let (setup, limits) = (Setup::default(), Limits::default());
            self.peer = Peer::start(now, &mut connection, Side::Server, setup, limits);
        }
        let Some(peer) = &mut self.peer else {
            return;
        };
        // The relay opens no data streams.
        let _nothing = peer.handle_event(turn, event);
        while let Some(event) = peer.poll_event() {
            let SessionEvent::Request { id, request } = event else {
                continue;
            };
            let Some((session, mut connection)) = peer.open(turn) else {
                return;
            };
            let connection = &mut connection;
            match (self.answer, request) {
                (Answer::None, _) => {}
                (Answer::Reset, _) => session.cancel(connection, id, ResetCode::INTERNAL_ERROR),
                (Answer::NamespaceOnly, Request::PublishNamespace(_)) => {
                    session.request_ok(connection, id, RequestOk::default());
                }
                (Answer::NamespaceOnly | Answer::Refused, _) => {
                    let code = RequestErrorCode::NOT_SUPPORTED;
                    session.request_error(connection, id, RequestError::new(code, "not here"));
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// Lets a player connect to the relay. Returns why the player has failed after `seconds`, if it has.
fn play(answer: Answer, choice: Option<Choice>, seconds: u64) -> Option<String> {
    let mut stage = Stage::new(Duration::from_mins(1));
    stage.sim.start(stage.relay, Silent::new(answer));
    let config = stage.player_of("weir", &["video", "video-disposable"]);
    let choice = choice.unwrap_or_else(|| config.choice.clone());
    stage.play_with(ViewerConfig { choice, ..config });
    stage.sim.run_until(Duration::from_secs(seconds), |_| false);
    let viewer = stage.sim.app::<Viewer>(stage.nodes[2]);
    assert_eq!(viewer.is_finished(), viewer.failure().is_some());
    viewer.failure().map(str::to_owned)
}

#[test]
fn a_player_waits_for_an_answer_as_long_as_it_asked_the_relay_to_wait_and_a_while() {
    for (choice, name) in [(Some(Choice::Catalog), "catalog"), (None, "video")] {
        // The player asks for a rendezvous of 2 s.
        assert_eq!(play(Answer::None, choice.clone(), 11), None);
        let expected = format!("the relay did not answer the SUBSCRIBE of the track {name:?}");
        assert_eq!(play(Answer::None, choice, 14), Some(expected));
    }
}

#[test]
fn a_request_for_the_catalog_that_ends_without_an_answer_is_refused() {
    let failure =
        play(Answer::Reset, Some(Choice::Catalog), 1).expect("nothing is left to wait for");
    assert!(
        failure.starts_with("the relay refused the catalog: ")
            && failure.ends_with("\"it ended the request without an answer\""),
        "{failure}"
    );
}

#[test]
fn an_origin_waits_for_an_answer_to_its_offer_so_long_and_no_longer() {
    for (flow, offered) in [
        (PublishFlow::Publish, "PUBLISH"),
        (PublishFlow::Namespace, "PUBLISH_NAMESPACE"),
    ] {
        let mut stage = Stage::new(Duration::from_mins(1));
        stage.sim.start(stage.relay, Silent::new(Answer::None));
        stage.publish(0, Show::usual(flow));
        stage.sim.run_until(Duration::from_secs(9), |_| false);
        let origin = stage.sim.app::<Origin>(stage.nodes[0]);
        assert_eq!(origin.failure(), None, "{offered}");
        stage.sim.run_until(Duration::from_secs(12), |_| false);
        let origin = stage.sim.app::<Origin>(stage.nodes[0]);
        let expected = format!("the relay did not answer {offered} within 10 s");
        assert_eq!(origin.failure(), Some(&*expected));
    }
}

#[test]
fn an_origin_offers_its_namespace_to_a_relay_that_does_not_support_publish() {
    for flow in [PublishFlow::Publish, PublishFlow::Namespace] {
        let mut stage = Stage::new(Duration::from_mins(1));
        stage
            .sim
            .start(stage.relay, Silent::new(Answer::NamespaceOnly));
        stage.publish(0, Show::usual(flow));
        stage.sim.run_until(Duration::from_secs(12), |_| false);
        let origin = stage.sim.app::<Origin>(stage.nodes[0]);
        assert_eq!(origin.failure(), None, "{flow:?}");
        assert!(
            origin.is_published() && origin.counters().frames > 0,
            "{flow:?}"
        );
    }
    // The namespace is offered once: its refusal is the end.
    let mut stage = Stage::new(Duration::from_mins(1));
    stage.sim.start(stage.relay, Silent::new(Answer::Refused));
    stage.publish(0, Show::usual(PublishFlow::Publish));
    stage.sim.run_until(Duration::from_secs(1), |_| false);
    let origin = stage.sim.app::<Origin>(stage.nodes[0]);
    let expected = "the relay refused the namespace: NOT_SUPPORTED \"not here\"";
    assert_eq!(origin.failure(), Some(expected));
}
