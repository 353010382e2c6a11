//! A relay that never responds, or refuses what it does not support: neither player nor origin waits for it for ever.

use std::time::Duration;

use weir_live::{Choice, Origin, PublishFlow, Viewer, ViewerConfig};
use weir_moqt::error::{RequestErrorCode, ResetCode};
use weir_moqt::message::{RequestError, RequestOk};
use weir_moqt::session::{Event as SessionEvent, Request, Session};
use weir_quic::{App as _, Connection};

use crate::server::{Answers, Server};
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

impl Answers for Answer {
    fn answer(
        &mut self,
        session: &mut Session,
        connection: &mut Connection<'_>,
        event: SessionEvent,
    ) {
        let SessionEvent::Request { id, request } = event else {
            return;
        };
        match (self, request) {
            (Self::None, _) => {}
            (Self::Reset, _) => session.cancel(connection, id, ResetCode::INTERNAL_ERROR),
            (Self::NamespaceOnly, Request::PublishNamespace(_)) => {
                session.request_ok(connection, id, RequestOk::default());
            }
            (Self::NamespaceOnly | Self::Refused, _) => {
                let code = RequestErrorCode::NOT_SUPPORTED;
                session.request_error(connection, id, RequestError::new(code, "not here"));
            }
        }
    }
}

/// Lets a player connect to the relay. Returns why the player has failed after `seconds`, if it has.
fn play(answer: Answer, choice: Option<Choice>, seconds: u64) -> Option<String> {
    let mut stage = Stage::new(Duration::from_mins(1));
    stage.sim.start(stage.relay, Server::new(answer));
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
        stage.sim.start(stage.relay, Server::new(Answer::None));
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
            .start(stage.relay, Server::new(Answer::NamespaceOnly));
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
    stage.sim.start(stage.relay, Server::new(Answer::Refused));
    stage.publish(0, Show::usual(PublishFlow::Publish));
    stage.sim.run_until(Duration::from_secs(1), |_| false);
    let origin = stage.sim.app::<Origin>(stage.nodes[0]);
    let expected = "the relay refused the namespace: NOT_SUPPORTED \"not here\"";
    assert_eq!(origin.failure(), Some(expected));
}
