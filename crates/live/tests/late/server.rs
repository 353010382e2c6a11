//! A relay of a story with one session, whose answers the story chooses.

use std::{fmt, time::Instant};

use weir_client::peer::Peer;
use weir_client::turn::Turn;
use weir_moqt::{
    limits::Limits,
    message::Setup,
    session::{Event as SessionEvent, Session, Side},
};
use weir_quic::{App, Connection, Endpoint, Event};

/// What a relay does with what its client sends.
pub(crate) trait Answers: fmt::Debug {
    fn answer(
        &mut self,
        session: &mut Session,
        connection: &mut Connection<'_>,
        event: SessionEvent,
    );
}

/// The relay.
#[derive(Debug)]
pub(crate) struct Server<A> {
    pub(crate) answers: A,
    peer: Option<Peer>,
}

impl<A: Answers> Server<A> {
    pub(crate) fn new(answers: A) -> Self {
        Self {
            answers,
            peer: None,
        }
    }
}

impl<A: Answers> App for Server<A> {
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
            let Some((session, mut connection)) = peer.open(turn) else {
                return;
            };
            self.answers.answer(session, &mut connection, event);
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
