//! What travels with each object, besides the frame itself.

use bytes::{Bytes, BytesMut};
use weir_moqt::property::{Properties, Value};
use weir_moqt::varint;

use crate::{Frame, FrameKind};

/// What the origin says about a frame: its availability, its kind and its times, so that neither
/// relays nor players have to parse the sample. Travels as one property of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTag {
    /// How the frame was coded.
    pub kind: FrameKind,
    /// Whether no other frame needs it.
    pub is_disposable: bool,
    /// How many frames of the group before it others may need.
    pub references: u64,
    /// When the origin had it, in microseconds of the clock that origin and player share.
    pub available_us: i64,
    /// When it is decoded, in microseconds of media time.
    pub decode_us: i64,
    /// When it is shown, in microseconds of media time.
    pub presentation_us: i64,
    /// How long it is shown, in microseconds.
    pub duration_us: i64,
}

/// Why a property is not a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object's frame property is broken: {0}")]
pub struct TagError(pub &'static str);

impl FrameTag {
    /// The tag of a frame that the origin has had since `available_us`.
    pub fn new(frame: &Frame, available_us: i64) -> Self {
        Self {
            kind: frame.kind,
            is_disposable: frame.is_disposable,
            references: frame.references,
            available_us,
            decode_us: frame.decode_us,
            presentation_us: frame.presentation_us,
            duration_us: frame.duration_us,
        }
    }

    /// The object's properties.
    pub fn properties(&self) -> Properties {
        let kind = FrameKind::ALL.iter().position(|kind| *kind == self.kind);
        let kind = kind.map_or(0, |place| place as u64);
        let mut value = BytesMut::new();
        for part in [
            self.references << 3 | u64::from(self.is_disposable) << 2 | kind,
            zigzag(self.available_us),
            zigzag(self.decode_us),
            zigzag(self.presentation_us.wrapping_sub(self.decode_us)),
            zigzag(self.duration_us),
        ] {
            varint::encode(part, &mut value);
        }
        Properties::builder()
            .bytes(FRAME_PROPERTY, value.freeze())
            .build()
    }

    /// Reads the tag of an object; `None` if it has none.
    pub fn read(properties: &Properties) -> Result<Option<Self>, TagError> {
        let Some(value) = properties.find(FRAME_PROPERTY) else {
            return Ok(None);
        };
        let Value::Bytes(value) = value else {
            return Err(TagError("it is not made of bytes"));
        };
        let mut rest = value;
        let mut part = || {
            let (part, length) = varint::decode(rest).ok_or(TagError("it is too short"))?;
            rest = &rest[length..];
            Ok(part)
        };
        let first = part()?;
        let [available, decode, composition, duration] = [part()?, part()?, part()?, part()?];
        let kind = usize::try_from(first & 0b11).unwrap_or(usize::MAX);
        let kind = *FrameKind::ALL
            .get(kind)
            .ok_or(TagError("its kind is unknown"))?;
        let decode_us = bounded(decode)?;
        Ok(Some(Self {
            kind,
            is_disposable: first & 0b100 != 0,
            references: first >> 3,
            available_us: bounded(available)?,
            decode_us,
            presentation_us: decode_us + bounded(composition)?,
            duration_us: bounded(duration)?,
        }))
    }
}

/// The payload of a frame's object in the thesis's packaging: the fragment as it came.
pub fn fragment_payload(frame: &Frame) -> Bytes {
    frame.fragment.clone()
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// A time that sums of a few of them do not overflow.
fn bounded(value: u64) -> Result<i64, TagError> {
    let value = (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
    let is_bounded = value.unsigned_abs() <= 1 << 60;
    is_bounded
        .then_some(value)
        .ok_or(TagError("a time is out of range"))
}

/// The property of an object that tells about its frame; odd, so it is made of bytes.
pub const FRAME_PROPERTY: u64 = 0x2F1D;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn objects_without_a_tag_are_told_from_broken_ones() {
        assert_eq!(FrameTag::read(&Properties::EMPTY), Ok(None));
        for (value, reason) in [
            (&[0, 2, 2, 2][..], "it is too short"),
            (&[3, 2, 2, 2, 2], "its kind is unknown"),
            (
                &[0, 0xFF, 255, 255, 255, 255, 255, 255, 255, 255, 2, 2, 2],
                "a time is out of range",
            ),
        ] {
            let properties = Properties::builder()
                .bytes(FRAME_PROPERTY, Bytes::copy_from_slice(value))
                .build();
            assert_eq!(FrameTag::read(&properties), Err(TagError(reason)));
        }
    }

    proptest! {
        #[test]
        fn a_tag_is_read_as_it_was_written(
            kind in 0..3_usize,
            is_disposable: bool,
            references in 0..10_000_u64,
            times in prop::array::uniform4(-(1_i64 << 58)..1 << 58),
        ) {
            let tag = FrameTag {
                kind: FrameKind::ALL[kind],
                is_disposable,
                references,
                available_us: times[0],
                decode_us: times[1],
                presentation_us: times[2],
                duration_us: times[3],
            };
            prop_assert_eq!(FrameTag::read(&tag.properties()), Ok(Some(tag)));
        }
    }
}
