//! Comparison of two objects at the same location [moqt-18 §2.4.2, §9.1].
//!
//! Relays may change mutable properties, so only immutable ones are compared.

use bytes::Bytes;
use weir_moqt::{
    data::{FetchObject, ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader},
    location::Location,
    property::{IMMUTABLE, Properties, Value},
};

use super::{Content, Entry, TrackCache};

/// A different object exists at the same location: the track is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction;

impl Entry {
    /// Checks that `other`, which has the same location, is the same object. `default_priority` stands for missing
    /// priorities.
    pub(super) fn check(&self, other: &Self, default_priority: u8) -> Result<(), Contradiction> {
        let (header, parts) = other.fetched(0, default_priority);
        self.check_header(&header, default_priority)?;
        let (_, own) = self.fetched(0, default_priority);
        are_equal(&own, &parts)
    }

    /// Checks that the header of an object at the same location equals this object's.
    fn check_header(
        &self,
        header: &FetchObject,
        default_priority: u8,
    ) -> Result<(), Contradiction> {
        let (own, _) = self.fetched(0, default_priority);
        let is_same = own.subgroup == header.subgroup
            && own.priority == header.priority
            && own.payload_len == header.payload_len
            && immutable(&own.properties) == immutable(&header.properties);
        is_same.then_some(()).ok_or(Contradiction)
    }

    /// Checks that the payload has `data` at `offset`.
    pub(crate) fn check_payload(&self, offset: u64, data: &[u8]) -> Result<(), Contradiction> {
        match &self.content {
            Content::Stream { payload, rest, .. } => {
                holds(std::iter::once(payload).chain(rest), offset, data)
            }
            Content::Fetched { payload, .. } => holds([payload], offset, data),
            Content::Datagram(_) => {
                let (_, parts) = self.fetched(0, 0);
                holds(&parts, offset, data)
            }
        }
    }
}

impl TrackCache {
    /// Checks a datagram against the cached object at its location, if there is one.
    pub(crate) fn check_datagram(&self, datagram: &ObjectDatagram) -> Result<(), Contradiction> {
        let known = self.find(Location::new(datagram.group, datagram.object));
        let Some(known) = known.filter(|_| datagram.status == ObjectStatus::Normal) else {
            return Ok(());
        };
        let header = FetchObject {
            group: datagram.group,
            subgroup: None,
            object: datagram.object,
            priority: datagram.priority.unwrap_or(self.default_priority),
            properties: datagram.properties.clone(),
            payload_len: datagram.payload.len() as u64,
        };
        known.check_header(&header, self.default_priority)?;
        known.check_payload(0, &datagram.payload)
    }

    /// Checks an object that begins on a stream against the cached object at its location, if there is one.
    pub(crate) fn check_object(
        &self,
        header: &SubgroupHeader,
        number: u64,
        object: &ObjectHeader,
    ) -> Result<(), Contradiction> {
        let known = self.find(Location::new(header.group, object.id));
        let Some(known) = known.filter(|_| object.status == ObjectStatus::Normal) else {
            return Ok(());
        };
        let header = FetchObject {
            group: header.group,
            subgroup: Some(number),
            object: object.id,
            priority: header.priority.unwrap_or(self.default_priority),
            properties: object.properties.clone(),
            payload_len: object.payload_len,
        };
        known.check_header(&header, self.default_priority)
    }
}

fn immutable(properties: &Properties) -> Option<Value<'_>> {
    properties.find(IMMUTABLE)
}

/// Checks that the concatenations of two lists are equal.
fn are_equal(one: &[Bytes], other: &[Bytes]) -> Result<(), Contradiction> {
    let (mut ones, mut others) = (one.iter(), other.iter());
    let (mut one, mut other) = (&[][..], &[][..]);
    loop {
        while one.is_empty()
            && let Some(next) = ones.next()
        {
            one = next;
        }
        while other.is_empty()
            && let Some(next) = others.next()
        {
            other = next;
        }
        let length = one.len().min(other.len());
        if length == 0 {
            let is_same = one.is_empty() && other.is_empty();
            return is_same.then_some(()).ok_or(Contradiction);
        }
        let ((head, rest), (other_head, other_rest)) =
            (one.split_at(length), other.split_at(length));
        if head != other_head {
            return Err(Contradiction);
        }
        (one, other) = (rest, other_rest);
    }
}

/// Checks that the concatenation of `parts` has `data` at `offset`.
fn holds<'a>(
    parts: impl IntoIterator<Item = &'a Bytes>,
    offset: u64,
    data: &[u8],
) -> Result<(), Contradiction> {
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut data = data;
    for part in parts {
        if data.is_empty() {
            break;
        }
        let Some(part) = part.get(skip..) else {
            skip -= part.len();
            continue;
        };
        skip = 0;
        let (compared, left) = data.split_at(part.len().min(data.len()));
        if !part.starts_with(compared) {
            return Err(Contradiction);
        }
        data = left;
    }
    data.is_empty().then_some(()).ok_or(Contradiction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_compared_across_their_parts() {
        let parts = [&b"ab"[..], b"", b"cde", b"f"].map(Bytes::from_static);
        let whole = b"abcdef";
        for from in 0..=whole.len() {
            for to in from..=whole.len() {
                let data = &whole[from..to];
                assert_eq!(holds(&parts, from as u64, data), Ok(()), "{from}..{to}");
                for place in 0..data.len() {
                    let mut other = data.to_vec();
                    other[place] ^= 1;
                    assert_eq!(holds(&parts, from as u64, &other), Err(Contradiction));
                }
            }
        }
        for length in 0..=whole.len() {
            let (head, rest) = whole.split_at(length);
            let other = [head, b"", rest].map(Bytes::copy_from_slice);
            assert_eq!(are_equal(&parts, &other), Ok(()), "{length}");
            let is_whole = are_equal(&parts, &other[..1]).is_ok();
            assert_eq!(is_whole, length == whole.len());
            assert_eq!(are_equal(&other[..1], &parts).is_ok(), is_whole);
            for place in 0..length {
                let mut wrong = head.to_vec();
                wrong[place] ^= 1;
                let wrong = [wrong.into(), other[2].clone()];
                assert_eq!(are_equal(&parts, &wrong), Err(Contradiction));
            }
        }
        assert_eq!(are_equal(&[], &[Bytes::new()]), Ok(()));
        assert_eq!(holds(&parts, 5, b"fg"), Err(Contradiction), "too long");
        assert_eq!(holds(&parts, 9, b"a"), Err(Contradiction), "behind its end");
    }
}
