//! The states of a session and its transitions: one table, free of side effects.
//!
//! The session looks up the [`Verdict`] and carries it out; a test prints the whole table as a snapshot.
//! [`request_state`](super::request_state) has the states of a single request.

use std::time::Instant;

use super::event::Refused;
use crate::message::{MessageKind, Setup};

/// The state of a session.
#[derive(Debug)]
pub(super) enum State {
    /// The peer has not opened its control stream.
    AwaitingControl {
        /// When the peer's SETUP is overdue; `None` before the transport is connected.
        deadline: Option<Instant>,
    },
    /// The peer has opened its control stream, and its SETUP is not complete.
    AwaitingSetup {
        /// When the peer's SETUP is overdue; `None` before the transport is connected.
        deadline: Option<Instant>,
    },
    /// The peer's SETUP has come. Requests are sent and served as far as the GOAWAYs permit.
    Ready {
        /// The peer's SETUP.
        peer: Box<Setup>,
        /// The endpoints that have sent GOAWAY.
        goaways: GoAways,
    },
    /// The session closed its transport.
    Closed {
        /// The peer's SETUP, if it came.
        peer: Option<Box<Setup>>,
    },
}

impl State {
    /// Returns whether the peer's SETUP is there and the session is open.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready { .. })
    }

    /// Returns whether the session closed its transport.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Returns the peer's SETUP, once it has come, also after the close.
    pub(super) fn peer(&self) -> Option<&Setup> {
        match self {
            Self::AwaitingControl { .. } | Self::AwaitingSetup { .. } => None,
            Self::Ready { peer, .. } => Some(peer),
            Self::Closed { peer } => peer.as_deref(),
        }
    }

    /// Returns when the peer's SETUP is overdue.
    pub(super) fn setup_deadline(&self) -> Option<Instant> {
        match self {
            Self::AwaitingControl { deadline } | Self::AwaitingSetup { deadline } => *deadline,
            Self::Ready { .. } | Self::Closed { .. } => None,
        }
    }

    /// Starts the wait for the peer's SETUP, unless it has come.
    pub(super) fn await_setup_until(&mut self, until: Instant) {
        match self {
            Self::AwaitingControl { deadline } | Self::AwaitingSetup { deadline } => {
                *deadline = Some(until);
            }
            Self::Ready { .. } | Self::Closed { .. } => {}
        }
    }

    /// Records that the peer opened its control stream.
    pub(super) fn on_control_stream(&mut self) {
        if let Self::AwaitingControl { deadline } = *self {
            *self = Self::AwaitingSetup { deadline };
        }
    }

    /// Records the peer's SETUP.
    pub(super) fn on_setup(&mut self, peer: Box<Setup>) {
        let goaways = GoAways::None;
        *self = Self::Ready { peer, goaways };
    }

    /// Records a GOAWAY of this endpoint.
    pub(super) fn on_goaway_sent(&mut self) {
        if let Self::Ready { goaways, .. } = self {
            goaways.send();
        }
    }

    /// Records a GOAWAY of the peer.
    pub(super) fn on_goaway_received(&mut self) {
        if let Self::Ready { goaways, .. } = self {
            goaways.receive();
        }
    }

    /// Records that the session closed its transport, which happens once.
    pub(super) fn close(&mut self) {
        let open = std::mem::replace(self, Self::Closed { peer: None });
        if let Self::Ready { peer, .. } = open {
            *self = Self::Closed { peer: Some(peer) };
        }
    }
}

/// The endpoints that have sent GOAWAY, for a session or for one request. Each may do so once [moqt-18 §10.4].
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub(super) enum GoAways {
    /// Neither.
    #[default]
    None,
    /// This endpoint.
    Sent,
    /// The peer.
    Received,
    /// Both endpoints.
    Both,
}

impl GoAways {
    fn is_sent(self) -> bool {
        matches!(self, Self::Sent | Self::Both)
    }

    fn is_received(self) -> bool {
        matches!(self, Self::Received | Self::Both)
    }

    /// Records a GOAWAY of this endpoint; returns whether it is its first.
    pub(super) fn send(&mut self) -> bool {
        let is_first = !self.is_sent();
        *self = match self {
            Self::None | Self::Sent => Self::Sent,
            Self::Received | Self::Both => Self::Both,
        };
        is_first
    }

    /// Records a GOAWAY of the peer; returns whether it is its first.
    pub(super) fn receive(&mut self) -> bool {
        let is_first = !self.is_received();
        *self = match self {
            Self::None | Self::Received => Self::Received,
            Self::Sent | Self::Both => Self::Both,
        };
        is_first
    }
}

/// An event of a session.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Input {
    /// The peer opens a control stream.
    ControlStream,
    /// The peer sends a message on its control stream.
    Message(MessageKind),
    /// The peer sends a request.
    Request,
    /// The role sends a request.
    OwnRequest,
    /// The role sends GOAWAY.
    OwnGoAway,
}

/// The reaction of the session to an event.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// The event is carried out.
    Accept,
    /// The input stays unread until the peer's SETUP has come.
    Defer,
    /// The peer's request is answered with `GOING_AWAY`.
    Reject,
    /// The role's request is not sent.
    Refuse(Refused),
    /// Nothing happens.
    Ignore,
    /// The event is a misuse by the role.
    Misuse,
    /// The event violates the protocol.
    Violate(&'static str),
}

/// Returns the verdict on `input` for a session in this state.
pub(super) fn judge(state: &State, input: Input) -> Verdict {
    use State::{AwaitingControl, AwaitingSetup, Closed, Ready};
    match input {
        Input::ControlStream => match state {
            AwaitingControl { .. } => Verdict::Accept,
            AwaitingSetup { .. } | Ready { .. } => Verdict::Violate("a second control stream"),
            Closed { .. } => Verdict::Ignore,
        },
        Input::Message(message) => match state {
            AwaitingControl { .. } | AwaitingSetup { .. } => before_setup(message),
            Ready { goaways, .. } => after_setup(*goaways, message),
            Closed { .. } => Verdict::Ignore,
        },
        Input::Request => match state {
            AwaitingControl { .. } | AwaitingSetup { .. } => Verdict::Defer,
            Ready { goaways, .. } if goaways.is_sent() => Verdict::Reject,
            Ready { .. } => Verdict::Accept,
            Closed { .. } => Verdict::Ignore,
        },
        Input::OwnRequest => match state {
            Ready { goaways, .. } if goaways.is_received() => Verdict::Refuse(Refused::GoingAway),
            AwaitingControl { .. } | AwaitingSetup { .. } | Ready { .. } => Verdict::Accept,
            Closed { .. } => Verdict::Refuse(Refused::Closed),
        },
        Input::OwnGoAway => match state {
            Ready { goaways, .. } if goaways.is_sent() => Verdict::Misuse,
            Ready { .. } => Verdict::Accept,
            AwaitingControl { .. } | AwaitingSetup { .. } | Closed { .. } => Verdict::Ignore,
        },
    }
}

fn before_setup(message: MessageKind) -> Verdict {
    if message == MessageKind::Setup {
        Verdict::Accept
    } else {
        Verdict::Violate("a message before SETUP")
    }
}

fn after_setup(goaways: GoAways, message: MessageKind) -> Verdict {
    if message == MessageKind::Setup {
        Verdict::Violate("a second SETUP")
    } else if message != MessageKind::GoAway {
        Verdict::Violate("not a message of the control stream")
    } else if goaways.is_received() {
        Verdict::Violate("a second GOAWAY")
    } else {
        Verdict::Accept
    }
}
