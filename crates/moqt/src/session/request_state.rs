//! What a request makes of each thing its peer does: one table, free of side effects.
//!
//! The session looks up the [`Verdict`] and carries it out; a test prints the whole table as a
//! snapshot.
//!
//! Two decisions stand behind the rows for the ends of a stream. A FIN of the requester ends only
//! the requests for which the draft says so (`SUBSCRIBE_NAMESPACE` and `SUBSCRIBE_TRACKS`
//! [moqt-18 §6.1]) and a `PUBLISH`, which can have no `PUBLISH_DONE` any more; elsewhere it means
//! that no update follows, and deployed peers send it right after the request. `STOP_SENDING` ends
//! a request at once if it comes from the receiver of the data [moqt-18 §5.1]; elsewhere it closes
//! one direction, since a `REQUEST_ERROR` may be on its way in the other. A request whose two
//! directions are both gone is over in any case.

use crate::message::{MessageKind, RequestKind};

/// Which endpoint sent the request.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Opener {
    /// This endpoint: the peer answers.
    Here,
    /// The peer: this endpoint answers.
    Peer,
}

/// How far a request has come.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Not answered.
    Pending,
    /// Answered with an OK.
    Established {
        /// Whether the peer owes an answer to an update.
        updating: bool,
    },
    /// `PUBLISH_DONE` came before this endpoint answered the `PUBLISH`.
    DoneUnanswered,
    /// The peer sent its last message; only the end of the stream may follow.
    EndedByPeer,
    /// This endpoint ended it; the peer may not know yet.
    EndedHere,
}

/// What a peer can do on a request stream after its first message.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Input {
    /// It sends a message.
    Message(MessageKind),
    /// It ends a direction.
    End(End),
}

/// How a peer can end a direction of a request stream.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// A clean end of its own direction.
    Fin,
    /// A reset of its own direction.
    Reset,
    /// `STOP_SENDING` for this endpoint's direction.
    Stopped,
}

/// What the session does about it.
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
    /// The publisher is done.
    Done,
    /// A namespace appears.
    Namespace,
    /// A namespace goes.
    NamespaceDone,
    /// A track cannot be published for want of streams.
    PublishBlocked,
    /// The peer wants the request moved.
    GoAway,
    /// The request is over; the role hears of it.
    Close,
    /// One direction is over, the request is not.
    HalfClose,
    /// It crossed with an end sent from here.
    Ignore,
    /// The peer may not do that.
    Violate(&'static str),
}

/// The table: what `input` means to a request of this kind, from this opener, in this state.
pub(super) fn judge(opener: Opener, kind: RequestKind, state: State, input: Input) -> Verdict {
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

fn judge_message(opener: Opener, kind: RequestKind, state: State, message: MessageKind) -> Verdict {
    match (state, opener) {
        (State::EndedHere, _) => Verdict::Ignore,
        (State::EndedByPeer, _) => Verdict::Violate("a message after the last of its request"),
        (State::DoneUnanswered, _) => Verdict::Violate("a message after PUBLISH_DONE"),
        (State::Pending | State::Established { .. }, _) if message == MessageKind::GoAway => {
            Verdict::GoAway
        }
        (State::Pending, Opener::Here) => answer(kind, message),
        (State::Established { updating }, Opener::Here) => from_responder(kind, updating, message),
        (State::Pending, Opener::Peer) => from_requester(kind, false, message),
        (State::Established { updating }, Opener::Peer) => from_requester(kind, updating, message),
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
        _ => Verdict::Violate("not a message of this request's sender"),
    }
}

fn judge_end(opener: Opener, kind: RequestKind, state: State, end: End) -> Verdict {
    let closes = match (state, end) {
        (State::EndedHere, _)
        | (State::EndedByPeer, End::Stopped)
        | (State::DoneUnanswered, End::Stopped | End::Fin) => false,
        (State::EndedByPeer, End::Fin)
        | (
            State::EndedByPeer | State::DoneUnanswered | State::Pending | State::Established { .. },
            End::Reset,
        ) => true,
        (State::Pending, End::Stopped) => opener == Opener::Peer && is_receiver(opener, kind),
        (State::Established { .. }, End::Stopped) => is_receiver(opener, kind),
        (State::Pending, End::Fin) => opener == Opener::Here || fin_closes(opener, kind),
        (State::Established { .. }, End::Fin) => fin_closes(opener, kind),
    };
    if closes {
        Verdict::Close
    } else {
        Verdict::HalfClose
    }
}

/// Whether the peer is the one the data of the request goes to.
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

/// Whether the peer can leave nothing of an answered request open behind its FIN.
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
