//! The messages and requests in which a parameter may occur.

use crate::kinds::{MessageKind, RequestKind};

/// The step of a request at which parameters are sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The message that begins the request.
    Request,
    /// The message that accepts the request.
    Answer,
    /// A `REQUEST_UPDATE` of the request.
    Update,
    /// The `REQUEST_OK` that accepts an update.
    UpdateAnswer,
}

/// A set of requests and steps in which a parameter may occur.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scopes(u32);

impl Scopes {
    pub(crate) const NONE: Self = Self(0);

    /// Inside `FILL_PARAMETERS`.
    pub(crate) const FILL: Self = Self(1 << 28);

    /// In `PUBLISH_STATE_NOTIFY`.
    pub(crate) const PUBLISH_STATE_NOTIFY: Self = Self(1 << 29);

    /// Returns where the parameters of a message have to be permitted, as far as its kind determines that.
    pub(crate) const fn of_message(kind: MessageKind) -> Self {
        const GRANTED: [RequestKind; 5] = [
            RequestKind::Publish,
            RequestKind::TrackStatus,
            RequestKind::PublishNamespace,
            RequestKind::SubscribeNamespace,
            RequestKind::SubscribeTracks,
        ];
        match kind {
            MessageKind::Subscribe => Self::of(RequestKind::Subscribe, Step::Request),
            MessageKind::SubscribeOk => Self::of(RequestKind::Subscribe, Step::Answer),
            MessageKind::Publish => Self::of(RequestKind::Publish, Step::Request),
            MessageKind::Fetch => Self::of(RequestKind::Fetch, Step::Request),
            MessageKind::FetchOk => Self::of(RequestKind::Fetch, Step::Answer),
            MessageKind::TrackStatus => Self::of(RequestKind::TrackStatus, Step::Request),
            MessageKind::PublishNamespace => Self::of(RequestKind::PublishNamespace, Step::Request),
            MessageKind::SubscribeNamespace => {
                Self::of(RequestKind::SubscribeNamespace, Step::Request)
            }
            MessageKind::SubscribeTracks => Self::of(RequestKind::SubscribeTracks, Step::Request),
            MessageKind::RequestUpdate => Self::each(Step::Update, &RequestKind::ALL),
            MessageKind::RequestOk => Self::each(Step::Answer, &GRANTED)
                .or(Self::each(Step::UpdateAnswer, &RequestKind::ALL)),
            MessageKind::PublishStateNotify => Self::PUBLISH_STATE_NOTIFY,
            MessageKind::Setup
            | MessageKind::GoAway
            | MessageKind::PublishDone
            | MessageKind::Namespace
            | MessageKind::NamespaceDone
            | MessageKind::PublishBlocked
            | MessageKind::RequestError => Self::NONE,
        }
    }

    pub(crate) const fn of(kind: RequestKind, step: Step) -> Self {
        Self(1 << (kind as u32 * 4 + step as u32))
    }

    /// Returns the scope of `step` in all requests of `kinds`.
    pub(crate) const fn each(step: Step, kinds: &[RequestKind]) -> Self {
        let mut all = Self::NONE;
        let mut index = 0;
        while index < kinds.len() {
            all = all.or(Self::of(kinds[index], step));
            index += 1;
        }
        all
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
