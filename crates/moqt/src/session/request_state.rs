//! The states of a request and its transitions: one table, free of side effects.
//!
//! The session looks up the [`Verdict`] and carries it out; a test prints the whole table as a snapshot.
//!
//! Two decisions determine the rows for the ends of a stream:
//!
//! - A FIN of the requester ends `SUBSCRIBE_NAMESPACE` and `SUBSCRIBE_TRACKS`, as the draft says [moqt-18 §6.1], and a
//!   `PUBLISH`, which can send no `PUBLISH_DONE` after it. For other requests it means that no update follows: deployed
//!   peers send it right after the request.
//! - `STOP_SENDING` ends a request at once if it comes from the receiver of the data [moqt-18 §5.1]. Otherwise it
//!   closes one direction, since a `REQUEST_ERROR` may be under way in the other. A request whose two directions are
//!   closed is over in any case.

use std::collections::VecDeque;

use super::event::CloseReason;
use super::request_ids::RequestId;
use super::state::GoAways;
use crate::message::{MessageKind, RequestKind, RequestOk};
use crate::name::Namespace;

/// The endpoint that sent the request.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Opener {
    /// This endpoint: the peer answers.
    Here,
    /// The peer: this endpoint answers.
    Peer,
}

/// The state of a request, with the data that exists only in that state.
#[derive(Debug)]
pub(super) enum State {
    /// Not answered.
    Pending {
        /// Updates and GOAWAYs.
        live: Live,
        /// The role's OKs to the peer's oldest updates, which follow the answer to the request.
        granted: VecDeque<RequestOk>,
    },
    /// Answered with an OK.
    Established(Live),
    /// `PUBLISH_DONE` came before this endpoint answered the `PUBLISH`.
    DoneUnanswered {
        /// How many updates of the peer the role has not answered.
        updates_due: usize,
        /// As in [`State::Pending`].
        granted: VecDeque<RequestOk>,
    },
    /// Over; its stream may be open.
    Ended(EndedBy),
}

/// The messages that both endpoints may still exchange about a request that neither has ended.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// The own updates without an answer, oldest first.
    pub(super) updates_sent: VecDeque<(RequestId, UpdateSent)>,
    /// How many updates of the peer the role has not answered.
    pub(super) updates_due: usize,
    /// The endpoints that have asked to move the request.
    pub(super) goaways: GoAways,
}

impl Live {
    /// Returns whether the peer owes an answer to an update.
    fn is_updating(&self) -> bool {
        !self.updates_sent.is_empty()
    }
}

/// What the answer to an own update means.
#[derive(Debug)]
pub(super) enum UpdateSent {
    /// The role learns it, and the prefix of a namespace subscription changes to this one.
    OfRole(Option<Namespace>),
    /// Whether the fill that the update asked for begins.
    Fill,
    /// Nothing: the update was part of the answer to a PUBLISH.
    OfAnswer,
}

/// The endpoint that ended a request.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum EndedBy {
    /// The peer sent its last message; only the end of the stream may follow.
    Peer {
        /// Whether the role was notified of the end, or has forgotten the request.
        is_reported: bool,
    },
    /// This endpoint; the peer may not know yet.
    Here,
}

/// Where the role's answer to an update of the peer is sent.
#[derive(Debug)]
pub(super) enum UpdateAnswer<'a> {
    /// On the stream at once.
    Now,
    /// After these answers, which wait for the answer to the request.
    AfterRequest(&'a mut VecDeque<RequestOk>),
    /// Nowhere: no update is due, which is a misuse by the role.
    NotDue,
    /// Nowhere: the request is over, and its updates with it.
    Over,
}

impl State {
    /// Returns the state of a new request.
    pub(super) fn new() -> Self {
        Self::Pending {
            live: Live::default(),
            granted: VecDeque::new(),
        }
    }

    /// Returns what both endpoints may still exchange, if neither has ended the request.
    pub(super) fn live(&self) -> Option<&Live> {
        match self {
            Self::Pending { live, .. } | Self::Established(live) => Some(live),
            Self::DoneUnanswered { .. } | Self::Ended(_) => None,
        }
    }

    /// Returns the same, mutable.
    pub(super) fn live_mut(&mut self) -> Option<&mut Live> {
        match self {
            Self::Pending { live, .. } | Self::Established(live) => Some(live),
            Self::DoneUnanswered { .. } | Self::Ended(_) => None,
        }
    }

    /// Returns the number of the peer's updates without an answer on the stream.
    pub(super) fn updates_unanswered(&self) -> usize {
        match self {
            Self::Pending { live, granted } => live.updates_due + granted.len(),
            Self::Established(live) => live.updates_due,
            Self::DoneUnanswered {
                updates_due,
                granted,
            } => updates_due + granted.len(),
            Self::Ended(_) => 0,
        }
    }

    /// Records the role's answer to the oldest unanswered update; returns where the answer is sent.
    pub(super) fn answer_update(&mut self) -> UpdateAnswer<'_> {
        match self {
            Self::Pending { live, .. } | Self::Established(live) if live.updates_due == 0 => {
                UpdateAnswer::NotDue
            }
            Self::DoneUnanswered { updates_due: 0, .. } | Self::Ended(_) => UpdateAnswer::Over,
            Self::Pending { live, granted } => {
                live.updates_due -= 1;
                UpdateAnswer::AfterRequest(granted)
            }
            Self::Established(live) => {
                live.updates_due -= 1;
                UpdateAnswer::Now
            }
            Self::DoneUnanswered {
                updates_due,
                granted,
            } => {
                *updates_due -= 1;
                UpdateAnswer::AfterRequest(granted)
            }
        }
    }

    /// Takes the OKs to updates that follow the answer to the request.
    pub(super) fn take_granted(&mut self) -> VecDeque<RequestOk> {
        match self {
            Self::Pending { granted, .. } | Self::DoneUnanswered { granted, .. } => {
                std::mem::take(granted)
            }
            Self::Established(_) | Self::Ended(_) => VecDeque::new(),
        }
    }

    /// Returns whether the request is not answered, and neither side has ended it.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }

    /// Returns whether the request was answered with an OK, and neither side has ended it.
    pub(super) fn is_established(&self) -> bool {
        matches!(self, Self::Established(_))
    }

    /// Returns whether `PUBLISH_DONE` came before this endpoint answered the `PUBLISH`.
    pub(super) fn is_done_unanswered(&self) -> bool {
        matches!(self, Self::DoneUnanswered { .. })
    }
}

/// An event on a request stream after its first message.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Input {
    /// The peer sends a message.
    Message(MessageKind),
    /// The peer ends a direction.
    End(CloseReason),
}

/// The reaction of the session to an event.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// The request is answered with an OK.
    Accept,
    /// The request is answered with an error.
    Reject,
    /// The oldest own update is answered.
    UpdateAnswer,
    /// The peer updates the request.
    Update,
    /// The publisher sent PUBLISH_DONE.
    Done,
    /// The publisher changed the subscription.
    StateNotify,
    /// A namespace appears.
    Namespace,
    /// A namespace is gone.
    NamespaceDone,
    /// A track cannot be published because the peer has no stream for it.
    PublishBlocked,
    /// The peer asks to move the request elsewhere.
    GoAway,
    /// The request is over; the role is notified.
    Close,
    /// One direction is over, but not the request.
    HalfClose,
    /// The event crossed with an end that this endpoint sent.
    Ignore,
    /// The event violates the protocol.
    Violate(&'static str),
}

/// Returns the verdict on `input` for a request of this kind, from this opener, in this state.
pub(super) fn judge(opener: Opener, kind: RequestKind, state: &State, input: Input) -> Verdict {
    match input {
        Input::Message(MessageKind::Setup) => Verdict::Violate("SETUP on a request stream"),
        Input::Message(
            MessageKind::Subscribe
            | MessageKind::Publish
            | MessageKind::Fetch
            | MessageKind::TrackStatus
            | MessageKind::PublishNamespace
            | MessageKind::SubscribeNamespace
            | MessageKind::SubscribeTracks,
        ) => Verdict::Violate("a second request on a request stream"),
        Input::Message(message) => judge_message(opener, kind, state, message),
        Input::End(end) => judge_end(opener, kind, state, end),
    }
}

fn judge_message(
    opener: Opener,
    kind: RequestKind,
    state: &State,
    message: MessageKind,
) -> Verdict {
    match (state, opener) {
        (State::Ended(EndedBy::Here), _) => Verdict::Ignore,
        (State::Ended(EndedBy::Peer { .. }), _) => {
            Verdict::Violate("a message after the last of its request")
        }
        (State::DoneUnanswered { .. }, _) => Verdict::Violate("a message after PUBLISH_DONE"),
        (State::Pending { .. } | State::Established(_), _) if message == MessageKind::GoAway => {
            Verdict::GoAway
        }
        (State::Pending { .. }, Opener::Here) => answer(kind, message),
        (State::Established(live), Opener::Here) => {
            from_responder(kind, live.is_updating(), message)
        }
        (State::Pending { .. }, Opener::Peer) => from_requester(kind, false, message),
        (State::Established(live), Opener::Peer) => {
            from_requester(kind, live.is_updating(), message)
        }
    }
}

fn answer(kind: RequestKind, message: MessageKind) -> Verdict {
    match (message, kind) {
        (MessageKind::RequestError, _) => Verdict::Reject,
        (MessageKind::SubscribeOk, RequestKind::Subscribe)
        | (MessageKind::FetchOk, RequestKind::Fetch)
        | (
            MessageKind::RequestOk,
            RequestKind::Publish
            | RequestKind::TrackStatus
            | RequestKind::PublishNamespace
            | RequestKind::SubscribeNamespace
            | RequestKind::SubscribeTracks,
        ) => Verdict::Accept,
        _ => Verdict::Violate("not an answer to this request"),
    }
}

fn from_responder(kind: RequestKind, updating: bool, message: MessageKind) -> Verdict {
    match (message, kind) {
        (MessageKind::RequestOk | MessageKind::RequestError, _) if updating => {
            Verdict::UpdateAnswer
        }
        (
            MessageKind::SubscribeOk
            | MessageKind::FetchOk
            | MessageKind::RequestOk
            | MessageKind::RequestError,
            _,
        ) => Verdict::Violate("a second answer to a request"),
        (MessageKind::PublishDone, RequestKind::Subscribe) => Verdict::Done,
        (MessageKind::PublishStateNotify, RequestKind::Subscribe) => Verdict::StateNotify,
        (MessageKind::RequestUpdate, RequestKind::Publish) => Verdict::Update,
        (MessageKind::Namespace, RequestKind::SubscribeNamespace) => Verdict::Namespace,
        (MessageKind::NamespaceDone, RequestKind::SubscribeNamespace) => Verdict::NamespaceDone,
        (MessageKind::PublishBlocked, RequestKind::SubscribeTracks) => Verdict::PublishBlocked,
        _ => Verdict::Violate("not a message of this request's responder"),
    }
}

fn from_requester(kind: RequestKind, updating: bool, message: MessageKind) -> Verdict {
    match (message, kind) {
        (MessageKind::RequestOk | MessageKind::RequestError, RequestKind::Publish) if updating => {
            Verdict::UpdateAnswer
        }
        (MessageKind::RequestUpdate, RequestKind::TrackStatus) => {
            Verdict::Violate("an update of TRACK_STATUS")
        }
        (MessageKind::RequestUpdate, _) => Verdict::Update,
        (MessageKind::PublishDone, RequestKind::Publish) => Verdict::Done,
        (MessageKind::PublishStateNotify, RequestKind::Publish) => Verdict::StateNotify,
        _ => Verdict::Violate("not a message of this request's sender"),
    }
}

fn judge_end(opener: Opener, kind: RequestKind, state: &State, end: CloseReason) -> Verdict {
    let closes = match (state, end) {
        (State::Ended(EndedBy::Here), _)
        | (State::Ended(EndedBy::Peer { .. }), CloseReason::Stopped(_))
        | (State::DoneUnanswered { .. }, CloseReason::Stopped(_) | CloseReason::Fin) => false,
        (State::Ended(EndedBy::Peer { .. }), CloseReason::Fin | CloseReason::Reset(_))
        | (
            State::DoneUnanswered { .. } | State::Pending { .. } | State::Established(_),
            CloseReason::Reset(_),
        ) => true,
        (State::Pending { .. }, CloseReason::Stopped(_)) => {
            opener == Opener::Peer && is_receiver(opener, kind)
        }
        (State::Established(_), CloseReason::Stopped(_)) => is_receiver(opener, kind),
        (State::Pending { .. }, CloseReason::Fin) => {
            opener == Opener::Here || fin_closes(opener, kind)
        }
        (State::Established(_), CloseReason::Fin) => fin_closes(opener, kind),
    };
    if closes {
        Verdict::Close
    } else {
        Verdict::HalfClose
    }
}

/// Returns whether the data of the request goes to the peer.
fn is_receiver(opener: Opener, kind: RequestKind) -> bool {
    match kind {
        RequestKind::Publish => opener == Opener::Here,
        RequestKind::PublishNamespace => false,
        RequestKind::Subscribe
        | RequestKind::Fetch
        | RequestKind::TrackStatus
        | RequestKind::SubscribeNamespace
        | RequestKind::SubscribeTracks => opener == Opener::Peer,
    }
}

/// Returns whether a FIN of the peer leaves nothing of an answered request open.
fn fin_closes(opener: Opener, kind: RequestKind) -> bool {
    match kind {
        RequestKind::SubscribeNamespace | RequestKind::SubscribeTracks => true,
        RequestKind::Publish => opener == Opener::Peer,
        RequestKind::Subscribe | RequestKind::Fetch | RequestKind::TrackStatus => {
            opener == Opener::Here
        }
        RequestKind::PublishNamespace => false,
    }
}
