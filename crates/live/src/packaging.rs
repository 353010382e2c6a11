//! Packaging: how a frame becomes an object with payload and properties.

use bytes::{Bytes, BytesMut};
use weir_moqt::property::{Properties, PropertiesBuilder, Value};
use weir_moqt::varint;

use crate::{Frame, FrameKind, Init, Media};

/// The form of an object's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packaging {
    /// The fragment as received, `moof` and `mdat`: as in the thesis and draft-ietf-moq-cmsf-01.
    #[default]
    Cmaf,
    /// The coded frame alone, as in draft-ietf-moq-loc-04.
    Loc,
}

impl Packaging {
    /// All packagings.
    pub const ALL: [Self; 2] = [Self::Cmaf, Self::Loc];

    /// Returns the name on the command line and in catalogs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cmaf => "cmaf",
            Self::Loc => "loc",
        }
    }

    /// Returns the packaging with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Returns properties and payload of a frame's object.
    pub fn frame(self, frame: &Frame, tag: &FrameTag, init: Option<&Init>) -> (Properties, Bytes) {
        let properties = tag.add_to(Properties::builder());
        match self {
            Self::Cmaf => (properties.build(), frame.fragment.clone()),
            Self::Loc => {
                let mut properties = timed(properties, frame.presentation_us)
                    .bytes(LOC_FRAME_MARKING, vec![marking(frame)]);
                if let (FrameKind::Key, Some(init)) = (frame.kind, init)
                    && let Media::Video { configuration, .. } = &init.video.media
                {
                    properties = properties.bytes(LOC_VIDEO_CONFIG, configuration.clone());
                }
                (properties.build(), frame.sample.clone())
            }
        }
    }

    /// Returns properties and payload of an audio object, whose `samples` are the last part of `fragment`.
    pub fn audio(self, tag: &FrameTag, fragment: &Bytes, samples: &Bytes) -> (Properties, Bytes) {
        let properties = tag.add_to(Properties::builder());
        match self {
            Self::Cmaf => (properties.build(), fragment.clone()),
            Self::Loc => {
                let properties = timed(properties, tag.presentation_us);
                (properties.build(), samples.clone())
            }
        }
    }
}

/// Adds the time of an object in LOC, which cannot be negative there.
fn timed(properties: PropertiesBuilder, presentation_us: i64) -> PropertiesBuilder {
    properties
        .int(LOC_TIMESTAMP, u64::try_from(presentation_us).unwrap_or(0))
        .int(LOC_TIMESCALE, 1_000_000)
}

/// Returns the frame marking of a stream without layers: complete, independent or not, discardable or not (RFC 9626
/// §3.2).
fn marking(frame: &Frame) -> u8 {
    const WHOLE: u8 = 0x80 | 0x40;
    WHOLE | u8::from(frame.kind == FrameKind::Key) << 5 | u8::from(frame.is_disposable) << 4
}

/// The origin's description of a frame: availability, kind and times, so that players need not parse the sample. It is
/// one property of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTag {
    /// How the frame is coded.
    pub kind: FrameKind,
    /// Whether no other frame needs it.
    pub is_disposable: bool,
    /// The number of earlier frames of the group that others may need.
    pub references: u64,
    /// When the origin had the frame, in microseconds of the shared clock.
    pub available_us: i64,
    /// The decode time, in microseconds of media time.
    pub decode_us: i64,
    /// The presentation time, in microseconds of media time.
    pub presentation_us: i64,
    /// The duration, in microseconds.
    pub duration_us: i64,
    /// The number of earlier frames of the track at the origin.
    pub number: u64,
}

/// Why a property is not a valid tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object's frame property is invalid: {0}")]
pub struct TagError(pub &'static str);

impl FrameTag {
    /// Returns the tag of frame `number`, available since `available_us`.
    pub fn new(frame: &Frame, number: u64, available_us: i64) -> Self {
        Self {
            kind: frame.kind,
            is_disposable: frame.is_disposable,
            references: frame.references,
            available_us,
            decode_us: frame.decode_us,
            presentation_us: frame.presentation_us,
            duration_us: frame.duration_us,
            number,
        }
    }

    /// Splits a tag of several samples into one tag for each, with the sample.
    pub fn split(self, samples: &Bytes, sizes: &[usize]) -> Vec<(Self, Bytes)> {
        let count = i64::try_from(sizes.len()).unwrap_or(i64::MAX).max(1);
        let mut begin = 0;
        let mut parts = Vec::new();
        for (place, size) in (0..).zip(sizes) {
            let end = begin + size;
            if end > samples.len() {
                break;
            }
            let shift_us = self.duration_us / count * place;
            let tag = Self {
                decode_us: self.decode_us + shift_us,
                presentation_us: self.presentation_us + shift_us,
                duration_us: self.duration_us / count,
                ..self
            };
            parts.push((tag, samples.slice(begin..end)));
            begin = end;
        }
        parts
    }

    /// Adds the tag to an object's properties.
    pub fn add_to(&self, properties: PropertiesBuilder) -> PropertiesBuilder {
        let kind = FrameKind::ALL.iter().position(|kind| *kind == self.kind);
        let kind = kind.map_or(0, |place| place as u64);
        let mut value = BytesMut::new();
        for part in [
            self.references << 3 | u64::from(self.is_disposable) << 2 | kind,
            zigzag(self.available_us),
            zigzag(self.decode_us),
            zigzag(self.presentation_us.wrapping_sub(self.decode_us)),
            zigzag(self.duration_us),
            self.number,
        ] {
            varint::encode(part, &mut value);
        }
        properties.bytes(FRAME_PROPERTY, value.freeze())
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
        let number = part()?;
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
            number,
        }))
    }
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Returns a time, limited so that sums of a few do not overflow.
fn bounded(value: u64) -> Result<i64, TagError> {
    let value = (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
    let is_bounded = value.unsigned_abs() <= 1 << 60;
    is_bounded
        .then_some(value)
        .ok_or(TagError("a time is out of range"))
}

/// The property of an object that holds the frame tag. The type is odd, so the value is bytes.
pub const FRAME_PROPERTY: u64 = 0x2F1D;
/// The presentation time, in units of the timescale [loc-04 §2.3.1].
pub const LOC_TIMESTAMP: u64 = 0x10;
/// The types of the same property in versions of LOC, newest first. Readers try them in this order.
pub const LOC_TIMESTAMPS: [u64; 3] = [LOC_TIMESTAMP, 0x0A, 0x06];
/// Units of the timestamp per second [loc-04 §2.3.1].
pub const LOC_TIMESCALE: u64 = 0x08;
/// The data for the decoder, with each keyframe [loc-04 §2.3.2].
pub const LOC_VIDEO_CONFIG: u64 = 0x0D;
/// Whether a frame is independent, and whether it is discardable [loc-04 §2.3.2].
pub const LOC_FRAME_MARKING: u64 = 0x09;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn objects_without_a_tag_are_told_from_broken_ones() {
        assert_eq!(FrameTag::read(&Properties::EMPTY), Ok(None));
        for (value, reason) in [
            (&[0, 2, 2, 2, 2][..], "it is too short"),
            (&[3, 2, 2, 2, 2, 0], "its kind is unknown"),
            (
                &[0, 0xFF, 255, 255, 255, 255, 255, 255, 255, 255, 2, 2, 2, 0],
                "a time is out of range",
            ),
        ] {
            let properties = Properties::builder()
                .bytes(FRAME_PROPERTY, Bytes::copy_from_slice(value))
                .build();
            assert_eq!(FrameTag::read(&properties), Err(TagError(reason)));
        }
    }

    #[test]
    fn a_player_of_loc_finds_what_it_needs() {
        let frame = Frame {
            kind: FrameKind::Bidirectional,
            is_disposable: true,
            group: 3,
            index: 2,
            references: 2,
            decode_us: 40_000,
            presentation_us: 80_000,
            duration_us: 40_000,
            fragment: Bytes::from_static(b"moof mdat frame"),
            sample: Bytes::from_static(b"frame"),
        };
        let tag = FrameTag::new(&frame, 47, 1_000_000);
        let (properties, payload) = Packaging::Loc.frame(&frame, &tag, None);
        assert_eq!(&payload[..], b"frame");
        assert_eq!(properties.find_int(LOC_TIMESTAMP), Some(80_000));
        assert_eq!(properties.find_int(LOC_TIMESCALE), Some(1_000_000));
        let marking = properties.find(LOC_FRAME_MARKING);
        assert_eq!(marking, Some(Value::Bytes(&[0b1101_0000])));
        assert_eq!(properties.find(LOC_VIDEO_CONFIG), None, "it is no keyframe");
        assert_eq!(FrameTag::read(&properties), Ok(Some(tag)));
        let (properties, payload) = Packaging::Cmaf.frame(&frame, &tag, None);
        assert_eq!(&payload[..], b"moof mdat frame");
        assert_eq!(properties.find(LOC_TIMESTAMP), None);
    }

    proptest! {
        #[test]
        fn a_tag_is_read_as_it_was_written(
            kind in 0..3_usize,
            is_disposable: bool,
            references in 0..10_000_u64,
            times in prop::array::uniform4(-(1_i64 << 58)..1 << 58),
            number in 0..1_u64 << 62,
        ) {
            let tag = FrameTag {
                kind: FrameKind::ALL[kind],
                is_disposable,
                references,
                available_us: times[0],
                decode_us: times[1],
                presentation_us: times[2],
                duration_us: times[3],
                number,
            };
            let properties = tag.add_to(Properties::builder()).build();
            prop_assert_eq!(FrameTag::read(&properties), Ok(Some(tag)));
        }
    }
}
