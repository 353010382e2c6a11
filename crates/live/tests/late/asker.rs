//! A relay that subscribes as soon as a namespace is announced, and updates the subscription at once.

use std::time::Instant;

use weir_client::peer::Peer;
use weir_client::turn::Turn;
use weir_moqt::limits::Limits;
use weir_moqt::message::{RequestOk, Setup};
use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_moqt::parameter::Parameters;
use weir_moqt::session::{Event as SessionEvent, Request, Session, Side};
use weir_quic::{App, Connection, Endpoint, Event};

/// The relay, with one peer.
#[derive(Debug)]
pub(crate) struct Asker {
    track: &'static str,
    /// The forward states of its updates.
    changes: Vec<bool>,
    peer: Option<Peer>,
    /// The responses, in order.
    pub(crate) heard: Vec<&'static str>,
    /// Streams that arrived for the track.
    pub(crate) subgroups: usize,
}

impl Asker {
    pub(crate) fn new(track: &'static str, changes: Vec<bool>) -> Self {
        Self {
            track,
            changes,
            peer: None,
            heard: Vec::new(),
            subgroups: 0,
        }
    }

    fn on_session_event(&mut self, turn: &mut Turn<'_>, event: SessionEvent) {
        match event {
            SessionEvent::Request {
                id,
                request: Request::PublishNamespace(offer),
            } => {
                let peer = self.peer.as_mut().expect("it asks");
                let (session, mut connection) = peer.open(turn).expect("it is open");
                let connection = &mut connection;
                session.request_ok(connection, id, RequestOk::default());
                let asked = ask(session, connection, offer.namespace, self.track);
                for &forward in &self.changes {
                    let parameters = Parameters {
                        forward: Some(forward),
                        ..Parameters::default()
                    };
                    let sent = session.update(connection, asked, parameters);
                    sent.expect("there is room for updates");
                }
            }
            SessionEvent::Accepted { .. } => self.heard.push("accepted"),
            SessionEvent::Rejected { .. } => self.heard.push("rejected"),
            SessionEvent::Updated { result: Ok(_), .. } => self.heard.push("updated"),
            SessionEvent::Updated { result: Err(_), .. } => self.heard.push("not updated"),
            SessionEvent::Violated(_) => self.heard.push("violated"),
            SessionEvent::Subgroup { .. } => self.subgroups += 1,
            SessionEvent::Ready { .. }
            | SessionEvent::Request { .. }
            | SessionEvent::Update { .. }
            | SessionEvent::Done { .. }
            | SessionEvent::Namespace { .. }
            | SessionEvent::NamespaceDone { .. }
            | SessionEvent::PublishBlocked { .. }
            | SessionEvent::StateChanged { .. }
            | SessionEvent::Closed { .. }
            | SessionEvent::GoAway(_)
            | SessionEvent::RequestGoAway { .. }
            | SessionEvent::Object { .. }
            | SessionEvent::Fetched { .. }
            | SessionEvent::FetchObject { .. }
            | SessionEvent::Payload { .. }
            | SessionEvent::StreamEnd { .. }
            | SessionEvent::Datagram { .. } => {}
        }
    }
}

fn ask(
    session: &mut Session,
    connection: &mut Connection<'_>,
    namespace: Namespace,
    track: &str,
) -> weir_moqt::session::RequestId {
    let name = TrackName::new(track).expect("short");
    let name = FullTrackName::new(namespace, name).expect("short");
    let asked = session.subscribe(connection, name, Parameters::default());
    asked.expect("there is room for one")
}

impl App for Asker {
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
        while let Some(peer) = &mut self.peer
            && let Some(event) = peer.poll_event()
        {
            self.on_session_event(turn, event);
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
