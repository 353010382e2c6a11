//! Reads from the first bytes of H.264 NAL units how a frame is coded (ITU-T H.264 §7.3).

use crate::FrameKind;

/// The coding of one picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// How the picture is coded.
    pub kind: FrameKind,
    /// Whether no other picture needs it.
    pub is_disposable: bool,
}

/// Why a sample is not a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// The length before a NAL unit exceeds the sample.
    #[error("the NAL unit at byte {at} of the sample is longer than the sample")]
    Truncated {
        /// The offset of the length in the sample.
        at: usize,
    },
    /// No NAL unit of the sample is a slice.
    #[error("the sample has no coded slice")]
    NoSlice,
    /// A slice header is invalid.
    #[error("the slice header at byte {at} of the sample cannot be read")]
    SliceHeader {
        /// The offset of the NAL unit in the sample.
        at: usize,
    },
}

/// Reads a sample: NAL units, each after a length of `length_bytes` (1, 2 or 4).
pub fn picture(sample: &[u8], length_bytes: usize) -> Result<Picture, SampleError> {
    let mut at = 0;
    let mut picture: Option<Picture> = None;
    while at < sample.len() {
        let length = sample
            .get(at..at + length_bytes)
            .ok_or(SampleError::Truncated { at })?;
        let length = length
            .iter()
            .fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
        let start = at + length_bytes;
        let unit = start
            .checked_add(length)
            .and_then(|end| sample.get(start..end))
            .ok_or(SampleError::Truncated { at })?;
        if let Some(slice) = slice(unit, start)? {
            picture = Some(picture.map_or(slice, |picture| picture.joined(slice)));
        }
        at = start + length;
    }
    picture.ok_or(SampleError::NoSlice)
}

impl Picture {
    /// Joins two slices of a picture, which has the kind of its most demanding slice.
    fn joined(self, slice: Self) -> Self {
        Self {
            kind: self.kind.max(slice.kind),
            is_disposable: self.is_disposable && slice.is_disposable,
        }
    }
}

/// Reads a NAL unit; `None` if it is not a slice.
fn slice(unit: &[u8], at: usize) -> Result<Option<Picture>, SampleError> {
    let Some(&header) = unit.first() else {
        return Ok(None);
    };
    let is_disposable = header & REFERENCE_MASK == 0;
    let kind = match header & 0b1_1111 {
        IDR_SLICE => FrameKind::Key,
        SLICE | PARTITION_A => slice_kind(&unit[1..]).ok_or(SampleError::SliceHeader { at })?,
        _ => return Ok(None),
    };
    Ok(Some(Picture {
        kind,
        is_disposable,
    }))
}

/// Reads the slice type, after the position of the first macroblock. An I slice outside an IDR picture is not a point
/// to join at, so it counts as predicted.
fn slice_kind(header: &[u8]) -> Option<FrameKind> {
    let mut bits = Bits {
        data: header,
        at: 0,
    };
    let _first_macroblock = bits.unsigned()?;
    match bits.unsigned()? {
        slice_type @ 0..10 if slice_type % 5 == 1 => Some(FrameKind::Bidirectional),
        0..10 => Some(FrameKind::Predicted),
        _ => None,
    }
}

/// Reads bits from the front. Ignores emulation prevention bytes: three zero bytes cannot precede the slice type in a
/// picture of less than 2^22 macroblocks.
struct Bits<'a> {
    data: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> Option<u32> {
        let byte = self.data.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(u32::from(bit))
    }

    /// Reads an Exp-Golomb code, `ue(v)` (ITU-T H.264 §9.1).
    fn unsigned(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while self.bit()? == 0 {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        let mut value: u32 = 0;
        for _ in 0..zeros {
            value = value << 1 | self.bit()?;
        }
        Some((1_u32 << zeros) - 1 + value)
    }
}

/// The bits of `nal_ref_idc`.
const REFERENCE_MASK: u8 = 0b0110_0000;
/// The type of a coded slice of a picture that is not IDR.
const SLICE: u8 = 1;
/// The type of data partition A, which holds the slice header.
const PARTITION_A: u8 = 2;
/// The type of a coded slice of an IDR picture.
const IDR_SLICE: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a NAL unit after its length in four bytes.
    fn unit(bytes: &[u8]) -> Vec<u8> {
        let mut unit = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        unit.extend_from_slice(bytes);
        unit
    }

    #[test]
    fn pictures_are_told_by_their_first_bytes() {
        let expect = |bytes: &[u8], kind, is_disposable| {
            let picture = picture(&unit(bytes), 4).unwrap();
            assert_eq!(
                picture,
                Picture {
                    kind,
                    is_disposable
                },
                "{bytes:02x?}"
            );
        };
        expect(&[0x65, 0x88], FrameKind::Key, false);
        // first_mb 0 (1), slice type 5 = P (00110); type 6 = B (00111); type 1 = B (010).
        expect(&[0x41, 0b1001_1000], FrameKind::Predicted, false);
        expect(&[0x01, 0b1001_1100], FrameKind::Bidirectional, true);
        expect(&[0x41, 0b1001_1100], FrameKind::Bidirectional, false);
        expect(&[0x01, 0b1010_0000], FrameKind::Bidirectional, true);
        // An I slice (7 = 0001000) of a picture that is not IDR.
        expect(&[0x41, 0b1000_1000], FrameKind::Predicted, false);
    }

    #[test]
    fn other_units_and_further_slices_do_not_hide_the_kind() {
        let mut sample = unit(&[0x06, 5, 1]);
        assert_eq!(picture(&sample, 4), Err(SampleError::NoSlice));
        sample.extend(unit(&[0x41, 0b1001_1000]));
        sample.extend(unit(&[0x41, 0b1001_1100]));
        assert_eq!(picture(&sample, 4).unwrap().kind, FrameKind::Bidirectional);
    }

    #[test]
    fn broken_samples_are_named_with_their_place() {
        let at = unit(&[6]).len();
        for (tail, error) in [
            (&[0, 0, 0][..], SampleError::Truncated { at }),
            (&[0, 0, 0, 9, 0x65], SampleError::Truncated { at }),
            (&[255, 255, 255, 255, 0x65], SampleError::Truncated { at }),
            (&[0, 0, 0, 1, 0x41], SampleError::SliceHeader { at: at + 4 }),
            (
                &[0, 0, 0, 5, 0x41, 0, 0, 0, 0],
                SampleError::SliceHeader { at: at + 4 },
            ),
        ] {
            let mut sample = unit(&[6]);
            sample.extend_from_slice(tail);
            assert_eq!(picture(&sample, 4), Err(error), "{tail:02x?}");
        }
        assert_eq!(picture(&[], 4), Err(SampleError::NoSlice));
    }

    #[test]
    fn lengths_may_be_shorter() {
        assert!(picture(&[2, 0x65, 0x88], 1).is_ok());
        assert!(picture(&[0, 2, 0x65, 0x88], 2).is_ok());
    }
}
