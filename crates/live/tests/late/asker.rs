//! A relay that subscribes as soon as a namespace is announced, and updates the subscription at once.

use weir_moqt::message::RequestOk;
use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_moqt::parameter::Parameters;
use weir_moqt::session::{Event as SessionEvent, Request, RequestId, Session};
use weir_quic::Connection;

use crate::server::Answers;

/// What the relay has heard.
#[derive(Debug)]
pub(crate) struct Asker {
    track: &'static str,
    /// The forward states of its updates.
    changes: Vec<bool>,
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
            heard: Vec::new(),
            subgroups: 0,
        }
    }
}

impl Answers for Asker {
    fn answer(
        &mut self,
        session: &mut Session,
        connection: &mut Connection<'_>,
        event: SessionEvent,
    ) {
        match event {
            SessionEvent::Request {
                id,
                request: Request::PublishNamespace(offer),
            } => {
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
) -> RequestId {
    let name = TrackName::new(track).expect("short");
    let name = FullTrackName::new(namespace, name).expect("short");
    let asked = session.subscribe(connection, name, Parameters::default());
    asked.expect("there is room for one")
}
