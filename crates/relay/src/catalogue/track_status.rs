//! TRACK_STATUS: answered from the relay's own state, or forwarded to the track's publishers, one after another.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    message::RequestOk,
    name::FullTrackName,
    parameter::Parameters,
};
use weir_quic::Handle;

use crate::{
    catalogue::Catalogue,
    ids::RequestKey,
    sessions::{deadlines::ANSWER_TIME, peer::Purpose},
    timers::Timer,
    track::{Publisher, Track, Tracks},
    turn::Turn,
};

/// A TRACK_STATUS request that waits for a publisher's answer.
#[derive(Debug)]
pub(super) struct TrackStatusRequest {
    /// The relay's own request to the publisher.
    upstream: RequestKey,
    query: TrackStatusQuery,
}

/// The state of a TRACK_STATUS request until its answer.
#[derive(Debug)]
struct TrackStatusQuery {
    track: FullTrackName,
    /// Publishers that were not asked, in the order in which they will be.
    publishers: Vec<Handle>,
    /// When the request is refused because no publisher answered in time.
    deadline: Instant,
    /// When the next publisher is asked because this one did not answer.
    wake: Instant,
}

/// An event of a [`TrackStatusRequest`].
#[derive(Clone, Debug)]
pub(crate) enum TrackStatusEvent {
    /// The publisher answered.
    Answered(Box<RequestOk>),
    /// The publisher refused to answer.
    Rejected(RequestErrorCode),
    /// The publisher's session was lost, or the publisher ended the request without an answer.
    UpstreamClosed,
    /// The publisher wants the request sent again [moqt-18 §10.4].
    GoAway,
    /// This publisher did not answer in time, and others were not asked.
    Unanswered,
    /// No publisher answered in time.
    DeadlinePassed,
    /// The requesting session was lost, or the session ended its request.
    Cancelled,
}

/// The consequence of an event for the requesting session.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// The session gets the publisher's answer.
    Answer(Box<RequestOk>),
    /// The relay asks these publishers, in this order. If none can be asked, the request is refused with the code.
    Ask(Vec<Handle>, RequestErrorCode),
    /// Nothing: the request is over.
    Drop,
}

impl TrackStatusEvent {
    /// Returns whether the relay's request to the publisher is still open and has to be cancelled.
    fn leaves_upstream_open(&self) -> bool {
        match self {
            Self::GoAway | Self::Unanswered | Self::DeadlinePassed | Self::Cancelled => true,
            Self::Answered(_) | Self::Rejected(_) | Self::UpstreamClosed => false,
        }
    }

    /// Returns the consequence of the event if `publisher` was asked, and `others` were not.
    fn outcome(self, publisher: Handle, mut others: Vec<Handle>) -> Outcome {
        match self {
            // Only the Track Properties and the largest object are passed on.
            Self::Answered(mut ok) => {
                ok.parameters = Parameters {
                    largest_object: ok.parameters.largest_object,
                    ..Parameters::default()
                };
                Outcome::Answer(ok)
            }
            Self::Rejected(RequestErrorCode::REDIRECT) | Self::UpstreamClosed => {
                Outcome::Ask(others, RequestErrorCode::DOES_NOT_EXIST)
            }
            Self::Rejected(code) => Outcome::Ask(others, code),
            Self::GoAway => {
                others.insert(0, publisher);
                Outcome::Ask(others, RequestErrorCode::DOES_NOT_EXIST)
            }
            Self::Unanswered => Outcome::Ask(others, RequestErrorCode::TIMEOUT),
            Self::DeadlinePassed => Outcome::Ask(Vec::new(), RequestErrorCode::TIMEOUT),
            Self::Cancelled => Outcome::Drop,
        }
    }
}

impl Catalogue {
    /// Answers a TRACK_STATUS request. If the relay has no established subscription to the track, publishers are asked
    /// [moqt-18 §10.14].
    pub(crate) fn on_track_status(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        (handle, id): RequestKey,
        name: FullTrackName,
    ) {
        let track = tracks.find(&name).and_then(|id| tracks.get(id));
        if let Some(track) = track.as_ref().filter(|track| track.is_established()) {
            let ok = RequestOk {
                parameters: Parameters {
                    largest_object: track.largest(),
                    ..Parameters::default()
                },
                properties: track.properties().clone(),
            };
            turn.accept((handle, id), ok);
            return;
        }
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let max = turn.config.limits.inquiries_per_session_max;
        if !peer.is_link() && peer.counts().track_statuses >= max {
            turn.counters.refused_limit_inquiries += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        peer.insert(id, Purpose::TrackStatus);
        let publishers = self.track_status_publishers(turn, track.as_deref(), handle, &name);
        let query = TrackStatusQuery {
            track: name,
            publishers,
            deadline: turn.now + ANSWER_MAX,
            wake: turn.now,
        };
        let code = RequestErrorCode::DOES_NOT_EXIST;
        self.ask_next_publisher(turn, (handle, id), query, code);
    }

    /// Returns the sessions to ask for the status of a track: links that offer the track and send no objects, then the
    /// sessions that announced its namespace, then the links to ask otherwise, and last those that are unresponsive. Only
    /// those that serve the requester.
    fn track_status_publishers(
        &self,
        turn: &mut Turn<'_>,
        track: Option<&Track>,
        requester: Handle,
        name: &FullTrackName,
    ) -> Vec<Handle> {
        let known = track.into_iter().flat_map(Track::publishers);
        let offering = known.filter(|publisher| publisher.is_offering());
        let mut publishers: Vec<Handle> = offering.map(Publisher::session).collect();
        for announcer in self.announcers_of(turn, &name.namespace) {
            if !publishers.contains(&announcer) {
                publishers.push(announcer);
            }
        }
        for fallback in self.fallbacks_for(&name.namespace) {
            if !publishers.contains(&fallback) {
                publishers.push(fallback);
            }
        }
        let kind = turn.kind(requester);
        publishers.retain(|&other| other != requester && turn.kind(other).serves(kind));
        publishers.sort_by_key(|&other| turn.is_unresponsive(other));
        publishers
    }

    /// Asks the next publisher; if none is left, refuses the session's request with `code`.
    fn ask_next_publisher(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        mut query: TrackStatusQuery,
        code: RequestErrorCode,
    ) {
        while !query.publishers.is_empty() {
            let publisher = query.publishers.remove(0);
            let track = query.track.clone();
            let request = turn.with_session(publisher, |session, connection| {
                session.track_status(connection, track, Parameters::default())
            });
            let Some(Ok(request)) = request else {
                continue;
            };
            turn.counters.inquiries += 1;
            turn.insert_request(
                (publisher, request),
                Purpose::UpstreamTrackStatus((handle, id)),
            );
            query.wake = if query.publishers.is_empty() {
                query.deadline
            } else {
                query.deadline.min(turn.now + ANSWER_TIME)
            };
            turn.timers.set(query.wake, Timer::TrackStatus(handle, id));
            let upstream = (publisher, request);
            let request = TrackStatusRequest { upstream, query };
            self.track_statuses.insert((handle, id), request);
            return;
        }
        turn.remove_request((handle, id));
        if code == RequestErrorCode::DOES_NOT_EXIST {
            turn.counters.refused_does_not_exist += 1;
        }
        turn.refuse(handle, id, code);
    }

    /// Handles a publisher that has not answered in time: asks the next one, unless the time of the request is over.
    pub(crate) fn on_unanswered(&mut self, turn: &mut Turn<'_>, requester: RequestKey) {
        let Some(request) = self.track_statuses.get(&requester) else {
            return;
        };
        let event = if request.query.deadline <= turn.now {
            TrackStatusEvent::DeadlinePassed
        } else {
            TrackStatusEvent::Unanswered
        };
        turn.note_unresponsive(request.upstream.0);
        self.on_track_status_event(turn, requester, event);
    }

    /// Answers, passes on or ends a session's TRACK_STATUS request after an event.
    pub(crate) fn on_track_status_event(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        event: TrackStatusEvent,
    ) {
        let Some(TrackStatusRequest { upstream, query }) =
            self.track_statuses.remove(&(handle, id))
        else {
            return;
        };
        turn.timers
            .cancel(query.wake, Timer::TrackStatus(handle, id));
        turn.remove_request(upstream);
        if event.leaves_upstream_open() {
            turn.cancel(upstream, ResetCode::CANCELLED);
        }
        let has_expired = matches!(event, TrackStatusEvent::DeadlinePassed);
        turn.counters.refused_timeout += u64::from(has_expired);
        match event.outcome(upstream.0, query.publishers) {
            Outcome::Answer(ok) => {
                turn.remove_request((handle, id));
                turn.accept((handle, id), *ok);
            }
            Outcome::Ask(publishers, code) => {
                let query = TrackStatusQuery {
                    publishers,
                    ..query
                };
                self.ask_next_publisher(turn, (handle, id), query, code);
            }
            Outcome::Drop => {}
        }
    }
}

/// How long publishers may take to answer TRACK_STATUS.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use weir_moqt::{location::Location, property::Properties};

    use super::*;
    use crate::tests::handles;

    fn describe(outcome: Outcome, asked: Handle) -> String {
        let name = |handle: Handle| if handle == asked { "asked" } else { "other" };
        match outcome {
            Outcome::Answer(ok) => {
                let Parameters {
                    forward,
                    largest_object,
                    ..
                } = ok.parameters;
                format!("answer largest {largest_object:?}, forward {forward:?}")
            }
            Outcome::Ask(publishers, code) => {
                let publishers: Vec<_> = publishers.into_iter().map(name).collect();
                format!("ask {publishers:?}, else refuse with {code:?}")
            }
            Outcome::Drop => "drop".to_owned(),
        }
    }

    #[test]
    fn each_event_of_a_waiting_request_has_one_outcome() {
        let [asked, other] = handles();
        let ok = RequestOk {
            parameters: Parameters {
                largest_object: Some(Location {
                    group: 3,
                    object: 1,
                }),
                forward: Some(true),
                ..Parameters::default()
            },
            properties: Properties::EMPTY,
        };
        let events = [
            TrackStatusEvent::Answered(Box::new(ok)),
            TrackStatusEvent::Rejected(RequestErrorCode::UNAUTHORIZED),
            TrackStatusEvent::Rejected(RequestErrorCode::REDIRECT),
            TrackStatusEvent::UpstreamClosed,
            TrackStatusEvent::GoAway,
            TrackStatusEvent::Unanswered,
            TrackStatusEvent::DeadlinePassed,
            TrackStatusEvent::Cancelled,
        ];
        let mut table = String::new();
        for (state, others) in [
            ("other publishers left", vec![other]),
            ("none left", vec![]),
        ] {
            writeln!(table, "{state}").unwrap();
            for event in events.clone() {
                let label = if matches!(event, TrackStatusEvent::Answered(_)) {
                    "Answered".to_owned()
                } else {
                    format!("{event:?}")
                };
                let cancels = if event.leaves_upstream_open() {
                    "cancel upstream, "
                } else {
                    ""
                };
                let outcome = describe(event.outcome(asked, others.clone()), asked);
                writeln!(table, "  {label}: {cancels}{outcome}").unwrap();
            }
        }
        insta::assert_snapshot!(table.trim_end());
    }
}
