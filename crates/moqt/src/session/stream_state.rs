//! What each stream carries, and whether it is read now.

use bytes::Bytes;

use super::request_ids::RequestId;
use crate::data::SubgroupHeader;
use crate::reader::{FetchReader, MessageReader, SubgroupReader};
use crate::varint;

/// What the session knows of a stream.
#[derive(Debug)]
pub(super) enum Stream {
    /// Unidirectional from the peer, with what came of its type; held here in full until SETUP is
    /// there.
    Typeless(Bytes),
    /// The peer's control stream.
    Control,
    /// Bidirectional from the peer, before its first message.
    Opening(Box<MessageReader>),
    /// The stream of a request of either endpoint.
    Request(RequestId),
    /// Objects of a subgroup.
    Subgroup(Box<SubgroupStream>),
    /// Objects of a fetch.
    Fetch(Box<FetchStream>),
    /// Bytes to discard.
    Padding,
}

impl Stream {
    /// Whether the session reads the stream now. Before SETUP that is only what may be or bring
    /// the peer's SETUP, and never more of a data stream than its type.
    pub(super) fn is_readable(&self, is_ready: bool) -> bool {
        match self {
            Self::Control => true,
            Self::Typeless(start) => is_ready || start.is_empty() || is_cut(start),
            Self::Opening(_) | Self::Request(_) | Self::Padding => is_ready,
            Self::Fetch(fetch) => is_ready && !fetch.is_paused,
            Self::Subgroup(subgroup) => is_ready && !matches!(subgroup.owner, Owner::Waiting(_)),
        }
    }

    /// The request whose objects the stream carries.
    pub(super) fn data_of(&self) -> Option<RequestId> {
        match self {
            Self::Subgroup(subgroup) => match subgroup.owner {
                Owner::Request(request) => Some(request),
                Owner::Headless | Owner::Waiting(_) => None,
            },
            Self::Fetch(fetch) => fetch.request,
            Self::Typeless(_)
            | Self::Control
            | Self::Opening(_)
            | Self::Request(_)
            | Self::Padding => None,
        }
    }
}

/// A subgroup stream and whose it is.
#[derive(Debug)]
pub(super) struct SubgroupStream {
    pub(super) reader: SubgroupReader,
    pub(super) owner: Owner,
}

/// Whose objects a subgroup stream carries.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    /// The header is not complete.
    Headless,
    /// Nothing explained the alias of this header; the stream is left unread.
    Waiting(SubgroupHeader),
    /// This subscription's.
    Request(RequestId),
}

/// A fetch stream and whose it is.
#[derive(Debug)]
pub(super) struct FetchStream {
    pub(super) reader: FetchReader,
    /// `None` until the header is complete.
    pub(super) request: Option<RequestId>,
    /// The role does not want it read for now.
    pub(super) is_paused: bool,
}

/// Whether the bytes end within a stream type.
fn is_cut(start: &Bytes) -> bool {
    varint::decode(start).is_none()
}
