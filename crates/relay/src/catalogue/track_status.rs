//! TRACK_STATUS: how a track stands, from what the relay knows or from a publisher.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    message::{RequestError, RequestOk},
    name::FullTrackName,
    parameter::Parameters,
    session::RequestId,
};
use weir_quic::Handle;

use crate::{dispatch::Owners, sessions::peer::Part, timers::Timer, turn::Turn};

/// A question that was passed on to a publisher.
#[derive(Debug)]
pub(crate) struct Inquiry {
    track: FullTrackName,
    /// Who wants to know.
    asker: (Handle, RequestId),
    /// Who else may be asked.
    others: Vec<Handle>,
    until: Instant,
}

impl Owners {
    /// A session asks how a track stands. Without an established subscription to it, a publisher of its namespace is
    /// asked [moqt-18 §10.14].
    pub(crate) fn on_track_status(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        name: FullTrackName,
    ) {
        let track = self.tracks.find(&name).and_then(|id| self.tracks.get(id));
        if let Some(track) = track.as_ref().filter(|track| track.is_established()) {
            let ok = RequestOk {
                parameters: Parameters {
                    largest_object: track.largest,
                    ..Parameters::default()
                },
                properties: track.properties.clone(),
            };
            turn.with_session(handle, |session, connection| {
                session.request_ok(connection, id, ok);
            });
            return;
        }
        // Neighbours that offered it, and rest.
        let offering = track.into_iter().flat_map(|track| &track.sources);
        let offering = offering.filter(|source| source.is_offered());
        let mut others: Vec<Handle> = offering.map(|source| source.handle).collect();
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let for_neighbour = peer.is_neighbour;
        let max = turn.config.limits.inquiries_per_session_max;
        if !for_neighbour && peer.counts.inquiries >= max {
            turn.counters.refused_limit_inquiries += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let announcing = self.announcers_of(turn, &name.namespace);
        others.extend(
            announcing
                .into_iter()
                .filter(|other| !others.contains(other))
                .collect::<Vec<_>>(),
        );
        others.retain(|&other| other != handle && !(for_neighbour && turn.is_neighbour(other)));
        let inquiry = Inquiry {
            track: name,
            asker: (handle, id),
            others,
            until: turn.now + ANSWER_MAX,
        };
        self.inquire(turn, inquiry, RequestErrorCode::DOES_NOT_EXIST);
    }

    /// Asks the next publisher; if none is left, the answer is `code`.
    fn inquire(&mut self, turn: &mut Turn<'_>, mut inquiry: Inquiry, code: RequestErrorCode) {
        while !inquiry.others.is_empty() {
            let publisher = inquiry.others.remove(0);
            let track = inquiry.track.clone();
            let request = turn.with_session(publisher, |session, connection| {
                session.track_status(connection, track, Parameters::default())
            });
            let Some(Ok(request)) = request else {
                continue;
            };
            turn.counters.inquiries += 1;
            let asked = (publisher, request);
            if let Some(peer) = turn.sessions.get(publisher) {
                peer.insert(request, Part::Inquiry);
            }
            if let Some(peer) = turn.sessions.get(inquiry.asker.0) {
                peer.remove(inquiry.asker.1);
                peer.insert(inquiry.asker.1, Part::Status(asked));
            }
            turn.timers
                .set(inquiry.until, Timer::Inquiry(publisher, request));
            self.inquiries.insert(asked, inquiry);
            return;
        }
        let (handle, id) = inquiry.asker;
        if let Some(peer) = turn.sessions.get(handle) {
            peer.remove(id);
        }
        if code == RequestErrorCode::DOES_NOT_EXIST {
            turn.counters.refused_does_not_exist += 1;
        }
        turn.refuse(handle, id, code);
    }

    /// A publisher says how a track stands; the answer is passed on as it is.
    pub(crate) fn on_inquiry_answered(
        &mut self,
        turn: &mut Turn<'_>,
        asked: (Handle, RequestId),
        ok: &RequestOk,
    ) {
        let Some(inquiry) = self.end_inquiry(turn, asked) else {
            return;
        };
        let (handle, id) = inquiry.asker;
        if let Some(peer) = turn.sessions.get(handle) {
            peer.remove(id);
        }
        let ok = RequestOk {
            parameters: Parameters {
                largest_object: ok.parameters.largest_object,
                ..Parameters::default()
            },
            properties: ok.properties.clone(),
        };
        turn.with_session(handle, |session, connection| {
            session.request_ok(connection, id, ok);
        });
    }

    /// A publisher does not say how a track stands: another one is asked.
    pub(crate) fn on_inquiry_rejected(
        &mut self,
        turn: &mut Turn<'_>,
        asked: (Handle, RequestId),
        error: &RequestError,
    ) {
        let code = if error.code == RequestErrorCode::REDIRECT {
            RequestErrorCode::DOES_NOT_EXIST
        } else {
            error.code
        };
        self.inquiry_gone(turn, asked, code);
    }

    /// A publisher wants to be asked anew.
    pub(crate) fn renew_inquiry(&mut self, turn: &mut Turn<'_>, asked: (Handle, RequestId)) {
        if let Some(mut inquiry) = self.end_inquiry(turn, asked) {
            turn.cancel_inquiry(asked);
            inquiry.others.insert(0, asked.0);
            self.inquire(turn, inquiry, RequestErrorCode::DOES_NOT_EXIST);
        }
    }

    /// A publisher that was asked is gone, or has no answer.
    pub(crate) fn inquiry_gone(
        &mut self,
        turn: &mut Turn<'_>,
        asked: (Handle, RequestId),
        code: RequestErrorCode,
    ) {
        if let Some(inquiry) = self.end_inquiry(turn, asked) {
            self.inquire(turn, inquiry, code);
        }
    }

    /// Publishers have had time enough to answer.
    pub(crate) fn on_inquiry_late(&mut self, turn: &mut Turn<'_>, asked: (Handle, RequestId)) {
        if let Some(mut inquiry) = self.end_inquiry(turn, asked) {
            turn.cancel_inquiry(asked);
            inquiry.others.clear();
            turn.counters.refused_timeout += 1;
            self.inquire(turn, inquiry, RequestErrorCode::TIMEOUT);
        }
    }

    /// Who asked does not want to know any more.
    pub(crate) fn asker_gone(&mut self, turn: &mut Turn<'_>, asked: (Handle, RequestId)) {
        if self.end_inquiry(turn, asked).is_some() {
            turn.cancel_inquiry(asked);
        }
    }

    fn end_inquiry(&mut self, turn: &mut Turn<'_>, asked: (Handle, RequestId)) -> Option<Inquiry> {
        let inquiry = self.inquiries.remove(&asked)?;
        let (publisher, request) = asked;
        turn.timers
            .cancel(inquiry.until, Timer::Inquiry(publisher, request));
        if let Some(peer) = turn.sessions.get(publisher) {
            peer.remove(request);
        }
        Some(inquiry)
    }
}

impl Turn<'_> {
    fn cancel_inquiry(&mut self, (publisher, request): (Handle, RequestId)) {
        self.with_session(publisher, |session, connection| {
            session.cancel(connection, request, ResetCode::CANCELLED);
        });
    }
}

/// How long publishers may take to say how a track stands.
const ANSWER_MAX: Duration = Duration::from_secs(10);
