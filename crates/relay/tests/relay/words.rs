//! Short constructors of objects and headers for stories.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId},
    draft::Draft,
    error::RequestErrorCode,
    name::{FullTrackName, Namespace},
    parameter::Parameters,
    property::Properties,
};

/// Returns a payload that contains its location.
pub(crate) fn payload(group: u64, object: u64, bytes: usize) -> Vec<u8> {
    let seed = group.wrapping_mul(31).wrapping_add(object);
    (0..bytes as u64)
        .map(|place| (place.wrapping_mul(seed | 1) >> 3).to_le_bytes()[0])
        .collect()
}

/// Returns the header of an object with a payload of this size.
pub(crate) fn object(id: u64, bytes: usize) -> ObjectHeader {
    ObjectHeader {
        id,
        properties: Properties::EMPTY,
        status: ObjectStatus::Normal,
        payload_len: bytes as u64,
    }
}

/// Returns an object in a datagram.
pub(crate) fn datagram(group: u64, object: u64, payload: &[u8]) -> ObjectDatagram {
    ObjectDatagram {
        track_alias: 0,
        group,
        object,
        priority: None,
        end_of_group: false,
        properties: Properties::EMPTY,
        status: ObjectStatus::Normal,
        payload: Bytes::copy_from_slice(payload),
    }
}

/// Returns the header of a subgroup stream with subgroup ID 0, without properties.
pub(crate) fn plain(group: u64) -> SubgroupHeader {
    SubgroupHeader {
        track_alias: 0,
        group,
        subgroup: SubgroupId::Zero,
        priority: None,
        has_properties: false,
        end_of_group: false,
        first_object: true,
    }
}

/// Encodes an object of a subgroup stream.
pub(crate) fn encoded(
    header: &SubgroupHeader,
    previous: Option<u64>,
    object: &ObjectHeader,
    payload: &[u8],
) -> Bytes {
    let mut out = BytesMut::new();
    object.encode_in_subgroup(previous, header.has_properties, Draft::KEPT, &mut out);
    out.extend_from_slice(payload);
    out.freeze()
}

pub(crate) fn name(text: &str) -> FullTrackName {
    text.parse().expect("a name in its canonical form")
}

/// Returns a namespace; the text is empty for the empty one.
pub(crate) fn space(text: &str) -> Namespace {
    if text.is_empty() {
        return Namespace::EMPTY;
    }
    name(&format!("{text}--")).namespace
}

pub(crate) fn rendezvous(duration: Duration) -> Parameters {
    Parameters {
        rendezvous_timeout: Some(duration),
        ..Parameters::default()
    }
}

pub(crate) fn forward(forward: bool) -> Parameters {
    Parameters {
        forward: Some(forward),
        ..Parameters::default()
    }
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns whether a subscription asks for its past with a fill, and not with a FETCH that joins it. These drafts have no
/// parameters in the acceptance of an offer either.
pub(crate) fn has_fills(draft: Draft) -> bool {
    draft >= Draft::Draft20
}

/// Returns the code that refuses a second subscription to a track, or its second publication by one session.
pub(crate) fn duplicate(draft: Draft) -> RequestErrorCode {
    if draft == Draft::Draft18 {
        RequestErrorCode::DUPLICATE_SUBSCRIPTION
    } else {
        RequestErrorCode::NOT_SUPPORTED
    }
}
