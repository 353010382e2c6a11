//! The state of a subscription.

use weir_moqt::{error::PublishDoneCode, message::PublishDone};

/// The state of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Objects are sent as they come [moqt-18 §5.1].
    Forwarding,
    /// The subscriber wants no objects (FORWARD 0).
    Paused,
    /// The track has ended, or the subscriber is too slow. No new streams are opened, and PUBLISH_DONE follows once the
    /// open streams are complete.
    Ending(Box<PublishDone>),
}

/// An event that changes the state of a subscription.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The subscriber changed FORWARD.
    Forward(bool),
    /// The track ended, or the link is not served any longer.
    End(Box<PublishDone>),
    /// The subscriber is too slow for a single group.
    TooSlow,
}

impl State {
    /// The state after an event.
    pub(super) fn after(self, event: Event) -> Self {
        match (self, event) {
            (Self::Ending(_) | Self::Forwarding | Self::Paused, Event::TooSlow) => {
                Self::Ending(Box::new(PublishDone::new(
                    PublishDoneCode::TOO_FAR_BEHIND,
                    "a whole group waits",
                )))
            }
            (Self::Ending(done), Event::Forward(_) | Event::End(_))
            | (Self::Forwarding | Self::Paused, Event::End(done)) => Self::Ending(done),
            (Self::Forwarding | Self::Paused, Event::Forward(true)) => Self::Forwarding,
            (Self::Forwarding | Self::Paused, Event::Forward(false)) => Self::Paused,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn every_event_of_a_subscription_has_one_outcome() {
        let done = |reason: &str| PublishDone::new(PublishDoneCode::TRACK_ENDED, reason);
        let text = |state: &State| match state {
            State::Ending(done) => format!("Ending({:?})", done.reason),
            State::Forwarding | State::Paused => format!("{state:?}"),
        };
        let mut table = String::new();
        for state in [
            State::Forwarding,
            State::Paused,
            State::Ending(Box::new(done("first"))),
        ] {
            for event in [
                Event::Forward(true),
                Event::Forward(false),
                Event::End(Box::new(done("second"))),
                Event::TooSlow,
            ] {
                let name = match &event {
                    Event::End(_) => "End".to_owned(),
                    Event::Forward(_) | Event::TooSlow => format!("{event:?}"),
                };
                let (before, after) = (text(&state), text(&state.clone().after(event)));
                writeln!(table, "{before:20} {name:16} {after}").unwrap();
            }
        }
        insta::assert_snapshot!(table);
    }
}
