//! Subgroup streams that are being received from one session.

use std::collections::BTreeMap;

use weir_moqt::{data::SubgroupHeader, session::RequestId};
use weir_transport::StreamId;

use crate::ids::{SubgroupId, TrackId};

/// Subgroup streams that are being received from one session.
pub(super) type InboundStreams = BTreeMap<StreamId, InboundStream>;

/// A subgroup stream that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InboundStream {
    pub(super) track: TrackId,
    pub(super) request: RequestId,
    /// The session is a link.
    pub(super) is_link: bool,
    /// The publisher's header.
    pub(super) header: SubgroupHeader,
    pub(super) flow: Flow,
    /// The object that began last is dropped: it was known not to exist.
    pub(super) is_ruled_out: bool,
}

/// Where the objects of a subgroup stream go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// None has come.
    Fresh,
    /// They are passed on, in this subgroup.
    Passed(SubgroupId),
    /// They are dropped, because another publisher sends them or has sent them.
    Repeated(Repetition),
}

/// How far a subgroup has come whose objects are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repetition {
    /// The subgroup's ID.
    pub(super) number: u64,
    /// The last object that began.
    pub(super) object: u64,
    /// Bytes that have come of its payload.
    pub(super) bytes: u64,
}

impl InboundStream {
    /// The ID of its subgroup, if its next object is `object`.
    pub(super) fn number(&self, object: u64) -> Option<u64> {
        match self.flow {
            Flow::Passed(_) => None,
            Flow::Fresh => Some(self.header.subgroup.resolve(object)),
            Flow::Repeated(repetition) => Some(repetition.number),
        }
    }

    /// Drops the object that begins, and what follows of the subgroup `number` as long as it is a repetition.
    pub(super) fn repeat(&mut self, number: u64, object: u64) {
        self.flow = Flow::Repeated(Repetition {
            number,
            object,
            bytes: 0,
        });
    }
}
