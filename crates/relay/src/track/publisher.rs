//! One publisher of a track: a session that sends its objects, and its state.

use std::time::Instant;

use weir_moqt::{message::PublishDone, session::RequestId};
use weir_quic::Handle;

use crate::{ids::PublisherId, sessions::peer::PeerKind};

/// A session that sends objects of a track.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Publisher {
    pub(super) handle: Handle,
    pub(super) request: RequestId,
    /// The kind of peer that the session is with.
    pub(super) kind: PeerKind,
    pub(super) state: PublisherState,
    /// By when it has to answer SUBSCRIBE, before others are asked as well. `None` if that time is over, or if it was
    /// not asked.
    pub(super) answer_by: Option<Instant>,
    /// Number of subgroup streams that came.
    pub(super) streams: u64,
    /// Number of subgroup streams that are open.
    pub(super) streams_open: usize,
    /// Payload bytes that came on subgroup streams.
    pub(super) stream_bytes: u64,
    /// Bytes received on its connection when it was probed because another publisher restarted the track.
    pub(super) probed: Option<u64>,
}

/// The state of a publisher.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PublisherState {
    /// The relay sent SUBSCRIBE and has no answer.
    Asked,
    /// Objects come, or may come at any time if `forward` is set.
    Active { origin: Origin, forward: bool },
    /// A link that offers the track and was sent FORWARD 0, with the number of unanswered `updates`.
    Paused { updates: u32 },
    /// A link that offers the track and was sent FORWARD 1. Until it has answered all `updates`, the largest location
    /// is unknown.
    Resuming { updates: u32 },
    /// The publisher sent PUBLISH_DONE: only data under way may still come.
    Leaving {
        origin: Origin,
        /// Whether the publisher was active before.
        was_active: bool,
        leaving: Leaving,
    },
}

/// An event that changes the state of a publisher.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PublisherEvent {
    /// The publisher accepted the relay's SUBSCRIBE.
    Accepted,
    /// The relay sent FORWARD with this value.
    ForwardSent(bool),
    /// The publisher answered an update.
    UpdateAnswered,
    /// The publisher sent PUBLISH_DONE.
    Done(Leaving),
}

/// How a publisher came to send the track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The publisher sent PUBLISH.
    Published,
    /// The publisher accepted the relay's SUBSCRIBE.
    Subscribed,
}

/// The state of a publisher that sent PUBLISH_DONE.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leaving {
    /// Its PUBLISH_DONE.
    pub(crate) done: PublishDone,
    /// When PUBLISH_DONE came.
    pub(super) since: Instant,
    /// How long missing or stalled streams are waited for.
    pub(super) until: Instant,
    /// The publisher's `stream_bytes` when `until` was set.
    pub(super) stream_bytes: u64,
}

impl Publisher {
    /// Creates a publisher that sent PUBLISH and was answered with FORWARD, or that was sent SUBSCRIBE.
    pub(super) fn new(
        (handle, request): PublisherId,
        kind: PeerKind,
        state: PublisherState,
    ) -> Self {
        Self {
            handle,
            request,
            kind,
            state,
            answer_by: None,
            streams: 0,
            streams_open: 0,
            stream_bytes: 0,
            probed: None,
        }
    }

    /// Returns the session that sends the objects.
    pub(crate) fn session(&self) -> Handle {
        self.handle
    }

    pub(crate) fn id(&self) -> PublisherId {
        (self.handle, self.request)
    }

    pub(crate) fn is_link(&self) -> bool {
        self.kind.is_link()
    }

    /// Returns whether everything has arrived that the publisher sent, according to its PUBLISH_DONE.
    pub(super) fn is_complete(&self) -> bool {
        let count = self.done().and_then(|done| done.stream_count);
        self.streams_open == 0 && count.is_some_and(|count| self.streams >= count)
    }

    /// Returns whether objects come, or may come at any time.
    pub(crate) fn is_established(&self) -> bool {
        matches!(self.state, PublisherState::Active { .. })
    }

    /// Returns whether objects come, including the last ones after PUBLISH_DONE.
    pub(crate) fn is_sending(&self) -> bool {
        match self.state {
            PublisherState::Active { .. } => true,
            PublisherState::Leaving { was_active, .. } => was_active,
            PublisherState::Asked
            | PublisherState::Paused { .. }
            | PublisherState::Resuming { .. } => false,
        }
    }

    /// Returns whether the publisher was sent SUBSCRIBE and has not answered.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(
            self.state,
            PublisherState::Asked | PublisherState::Resuming { .. }
        )
    }

    /// Returns whether the publisher was sent SUBSCRIBE and did not answer in time.
    pub(super) fn is_overdue(&self) -> bool {
        self.state == PublisherState::Asked && self.answer_by.is_none()
    }

    /// Returns whether the publisher offers the track with PUBLISH.
    pub(crate) fn is_offering(&self) -> bool {
        match self.state {
            PublisherState::Active { origin, .. } => origin == Origin::Published,
            PublisherState::Paused { .. } | PublisherState::Resuming { .. } => true,
            PublisherState::Asked | PublisherState::Leaving { .. } => false,
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.state, PublisherState::Leaving { .. })
    }

    /// Returns whether objects arrive as they are published.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, PublisherState::Active { forward: true, .. })
    }
}

impl PublisherState {
    /// Returns the state of a publisher that sent PUBLISH and was answered with `forward`.
    pub(super) fn published(is_link: bool, forward: bool) -> Self {
        if is_link && !forward {
            return Self::Paused { updates: 0 };
        }
        let origin = Origin::Published;
        Self::Active { origin, forward }
    }

    /// Returns the FORWARD value that the publisher was sent; `None` while it cannot be sent one.
    pub(super) fn forward(&self) -> Option<bool> {
        match *self {
            Self::Active { forward, .. } => Some(forward),
            Self::Paused { .. } => Some(false),
            Self::Resuming { .. } => Some(true),
            Self::Asked | Self::Leaving { .. } => None,
        }
    }

    /// Returns whether the publisher was found by the relay's own SUBSCRIBE.
    pub(super) fn is_own_request(&self) -> bool {
        match *self {
            Self::Asked => true,
            Self::Active { origin, .. } | Self::Leaving { origin, .. } => {
                origin == Origin::Subscribed
            }
            Self::Paused { .. } | Self::Resuming { .. } => false,
        }
    }

    /// Returns the state after an event; `is_link` tells whether the publisher is a link.
    pub(super) fn after(self, event: PublisherEvent, is_link: bool) -> Self {
        use PublisherEvent as Event;
        match (self, event) {
            (Self::Asked, Event::Accepted) => Self::Active {
                origin: Origin::Subscribed,
                forward: true,
            },
            (Self::Active { origin, forward }, Event::ForwardSent(wanted)) => {
                if is_link && origin == Origin::Published && forward && !wanted {
                    Self::Paused { updates: 1 }
                } else {
                    let forward = wanted;
                    Self::Active { origin, forward }
                }
            }
            (Self::Paused { updates } | Self::Resuming { updates }, Event::ForwardSent(wanted)) => {
                let updates = updates.saturating_add(1);
                if wanted {
                    Self::Resuming { updates }
                } else {
                    Self::Paused { updates }
                }
            }
            (Self::Paused { updates }, Event::UpdateAnswered) => Self::Paused {
                updates: updates.saturating_sub(1),
            },
            (Self::Resuming { updates: 0 | 1 }, Event::UpdateAnswered) => Self::Active {
                origin: Origin::Published,
                forward: true,
            },
            (Self::Resuming { updates }, Event::UpdateAnswered) => Self::Resuming {
                updates: updates - 1,
            },
            (Self::Active { origin, .. }, Event::Done(leaving)) => Self::Leaving {
                origin,
                was_active: true,
                leaving,
            },
            (Self::Asked, Event::Done(leaving)) => Self::Leaving {
                origin: Origin::Subscribed,
                was_active: false,
                leaving,
            },
            (Self::Paused { .. } | Self::Resuming { .. }, Event::Done(leaving)) => Self::Leaving {
                origin: Origin::Published,
                was_active: false,
                leaving,
            },
            // A second answer changes nothing, nor does any event after PUBLISH_DONE.
            (
                state,
                Event::Accepted | Event::ForwardSent(_) | Event::UpdateAnswered | Event::Done(_),
            ) => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use weir_moqt::error::PublishDoneCode;

    use super::*;
    use crate::tests::epoch;

    fn leaving() -> Leaving {
        Leaving {
            done: PublishDone::new(PublishDoneCode::TRACK_ENDED, ""),
            since: epoch(),
            until: epoch(),
            stream_bytes: 0,
        }
    }

    fn text(state: &PublisherState) -> String {
        match state {
            PublisherState::Leaving {
                origin, was_active, ..
            } => format!("Leaving {{ origin: {origin:?}, was_active: {was_active} }}"),
            PublisherState::Asked
            | PublisherState::Active { .. }
            | PublisherState::Paused { .. }
            | PublisherState::Resuming { .. } => format!("{state:?}"),
        }
    }

    #[test]
    fn every_event_of_a_publisher_has_one_outcome() {
        let active = |origin, forward| PublisherState::Active { origin, forward };
        let states = [
            PublisherState::Asked,
            active(Origin::Subscribed, true),
            active(Origin::Subscribed, false),
            active(Origin::Published, true),
            active(Origin::Published, false),
            PublisherState::Paused { updates: 0 },
            PublisherState::Resuming { updates: 1 },
            PublisherState::Resuming { updates: 2 },
            PublisherState::Asked.after(PublisherEvent::Done(leaving()), false),
        ];
        let events = [
            ("accepted", PublisherEvent::Accepted),
            ("told to send", PublisherEvent::ForwardSent(true)),
            ("told not to send", PublisherEvent::ForwardSent(false)),
            ("answered what it was told", PublisherEvent::UpdateAnswered),
            ("PUBLISH_DONE", PublisherEvent::Done(leaving())),
        ];
        let mut table = String::new();
        for is_link in [false, true] {
            for state in &states {
                let can_be = is_link
                    || !matches!(
                        state,
                        PublisherState::Paused { .. } | PublisherState::Resuming { .. }
                    );
                for (name, event) in events.iter().filter(|_| can_be) {
                    let after = state.clone().after(event.clone(), is_link);
                    let who = if is_link { "link" } else { "client" };
                    let (before, after) = (text(state), text(&after));
                    writeln!(table, "{who:6} {before:60} {name:26} {after}").unwrap();
                }
            }
        }
        insta::assert_snapshot!(table);
    }
}
