//! One publisher of a track: a session that its objects come from, and how far it is with that.

use std::time::Instant;

use weir_moqt::{message::PublishDone, session::RequestId};
use weir_quic::Handle;

use crate::ids::PublisherId;

/// A session that objects of a track come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Publisher {
    pub(super) handle: Handle,
    pub(super) request: RequestId,
    /// The session is a link.
    pub(super) is_link: bool,
    pub(super) state: PublisherState,
    /// Subgroup streams that came so far.
    pub(super) streams: u64,
    /// Subgroup streams that are open.
    pub(super) streams_open: usize,
    /// Bytes of payload that came on subgroup streams.
    pub(super) stream_bytes: u64,
    /// Bytes that its connection had brought when another publisher restarted the track, and this one was probed.
    pub(super) probed: Option<u64>,
}

/// How far a publisher is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PublisherState {
    /// The relay sent SUBSCRIBE, and has no answer.
    Asked,
    /// Objects come, or may come at any time, if `forward` is set.
    Active { origin: Origin, forward: bool },
    /// A link that offers the track and was told that nobody here wants it; `updates` of what it was told are not
    /// answered.
    Paused { updates: u32 },
    /// A link that offers the track and was told that somebody wants it. Until it has answered all `updates`, it is not
    /// known how far the track has come.
    Resuming { updates: u32 },
    /// It sent PUBLISH_DONE: only what is on its way may still come.
    Leaving {
        origin: Origin,
        /// It was active before.
        was_active: bool,
        leaving: Leaving,
    },
}

/// What happens to a publisher.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PublisherEvent {
    /// It accepted the relay's SUBSCRIBE.
    Accepted,
    /// It was told whether objects are wanted.
    ForwardSent(bool),
    /// It answered what it was told.
    UpdateAnswered,
    /// It sent PUBLISH_DONE.
    Done(Leaving),
}

/// How a publisher came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It sent PUBLISH.
    Published,
    /// It was asked with SUBSCRIBE, and accepted.
    Subscribed,
}

/// What is known of a publisher that is done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leaving {
    /// Its PUBLISH_DONE.
    pub(crate) done: PublishDone,
    /// When that came.
    pub(super) since: Instant,
    /// How long streams of it that are missing, or that do not go on, are waited for.
    pub(super) until: Instant,
    /// The publisher's `stream_bytes` when `until` was set.
    pub(super) stream_bytes: u64,
}

impl Publisher {
    /// A publisher that sent PUBLISH and was told whether to send objects, or that was asked with SUBSCRIBE.
    pub(super) fn new(
        (handle, request): PublisherId,
        is_link: bool,
        state: PublisherState,
    ) -> Self {
        Self {
            handle,
            request,
            is_link,
            state,
            streams: 0,
            streams_open: 0,
            stream_bytes: 0,
            probed: None,
        }
    }

    /// The session that objects come from.
    pub(crate) fn session(&self) -> Handle {
        self.handle
    }

    pub(crate) fn id(&self) -> PublisherId {
        (self.handle, self.request)
    }

    pub(crate) fn is_link(&self) -> bool {
        self.is_link
    }

    /// Whether everything that it sent has arrived, as far as it says how much that is.
    pub(super) fn is_complete(&self) -> bool {
        let count = self.done().and_then(|done| done.stream_count);
        self.streams_open == 0 && count.is_some_and(|count| self.streams >= count)
    }

    /// Whether objects come, or may come at any time.
    pub(crate) fn is_established(&self) -> bool {
        matches!(self.state, PublisherState::Active { .. })
    }

    /// Whether objects come, if only the last ones.
    pub(crate) fn is_sending(&self) -> bool {
        match self.state {
            PublisherState::Active { .. } => true,
            PublisherState::Leaving { was_active, .. } => was_active,
            PublisherState::Asked
            | PublisherState::Paused { .. }
            | PublisherState::Resuming { .. } => false,
        }
    }

    /// Whether it was asked for objects and has not answered.
    pub(super) fn is_asked(&self) -> bool {
        matches!(
            self.state,
            PublisherState::Asked | PublisherState::Resuming { .. }
        )
    }

    /// Whether it offers the track of its own accord.
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

    /// Whether objects come from it as they are published.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, PublisherState::Active { forward: true, .. })
    }
}

impl PublisherState {
    /// The state of a publisher that sent PUBLISH, and was answered whether to send objects.
    pub(super) fn published(is_link: bool, forward: bool) -> Self {
        if is_link && !forward {
            return Self::Paused { updates: 0 };
        }
        let origin = Origin::Published;
        Self::Active { origin, forward }
    }

    /// Whether it was told to send objects; `None` while it cannot be told.
    pub(super) fn forward(&self) -> Option<bool> {
        match *self {
            Self::Active { forward, .. } => Some(forward),
            Self::Paused { .. } => Some(false),
            Self::Resuming { .. } => Some(true),
            Self::Asked | Self::Leaving { .. } => None,
        }
    }

    /// The relay's own SUBSCRIBE brought it about.
    pub(super) fn is_own_request(&self) -> bool {
        match *self {
            Self::Asked => true,
            Self::Active { origin, .. } | Self::Leaving { origin, .. } => {
                origin == Origin::Subscribed
            }
            Self::Paused { .. } | Self::Resuming { .. } => false,
        }
    }

    /// The state after an event; `is_link` tells whether the publisher is one.
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
            // Nothing new is said by a second answer, nor by whatever follows PUBLISH_DONE.
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
