//! The states of a stream: what it carries, and whether it is read.

use bytes::Bytes;

use super::request_ids::RequestId;
use crate::data::SubgroupHeader;
use crate::reader::{FetchReader, MessageReader, SubgroupReader};
use crate::varint;

/// The state of a stream in the session.
#[derive(Debug)]
pub(super) enum Stream {
    /// A unidirectional stream of the peer, with the bytes of its type that came. A data stream stays
    /// in this state until the peer's SETUP is there.
    Typeless(Bytes),
    /// The peer's control stream.
    Control,
    /// A bidirectional stream of the peer, before its first message.
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
    /// Returns whether the session reads the stream. Before the peer's SETUP it reads only the peer's control stream,
    /// and the types of other streams to find it.
    pub(super) fn is_readable(&self, is_ready: bool) -> bool {
        match self {
            Self::Control => true,
            Self::Typeless(start) => is_ready || start.is_empty() || is_cut(start),
            Self::Opening(_) | Self::Request(_) | Self::Padding => is_ready,
            Self::Fetch(fetch) => is_ready && !fetch.is_paused,
            Self::Subgroup(subgroup) => is_ready && !matches!(subgroup.owner, Owner::Waiting(_)),
        }
    }

    /// Returns whether bytes of the stream were read and not handled: they came before SETUP or the alias, or with too many
    /// others.
    pub(super) fn has_unhandled(&self) -> bool {
        match self {
            Self::Typeless(start) => !start.is_empty() && !is_cut(start),
            Self::Subgroup(subgroup) => subgroup.reader.unread() > 0,
            Self::Fetch(fetch) => fetch.reader.unread() > 0,
            Self::Control | Self::Opening(_) | Self::Request(_) | Self::Padding => false,
        }
    }

    /// Returns whether the stream carries messages, of which many may be ignored without an event.
    pub(super) fn carries_messages(&self) -> bool {
        match self {
            Self::Typeless(_) | Self::Control | Self::Opening(_) | Self::Request(_) => true,
            Self::Subgroup(_) | Self::Fetch(_) | Self::Padding => false,
        }
    }

    /// Returns the request whose objects the stream carries.
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

/// A subgroup stream and its owner.
#[derive(Debug)]
pub(super) struct SubgroupStream {
    pub(super) reader: SubgroupReader,
    pub(super) owner: Owner,
}

/// The request whose objects a subgroup stream carries.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    /// The header is not complete.
    Headless,
    /// The alias of this header is unknown; the stream is left unread.
    Waiting(SubgroupHeader),
    /// The subscription.
    Request(RequestId),
}

/// A fetch stream and its request.
#[derive(Debug)]
pub(super) struct FetchStream {
    pub(super) reader: FetchReader,
    /// The fetch; `None` until the header is complete.
    pub(super) request: Option<RequestId>,
    /// Whether the role has paused the stream.
    pub(super) is_paused: bool,
}

/// Returns whether the bytes end within a stream type.
fn is_cut(start: &Bytes) -> bool {
    varint::decode(start).is_none()
}
