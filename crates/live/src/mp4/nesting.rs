//! Limits how deep boxes are nested in a `moov` or `moof` box. The check precedes decoding, since the decoder recurses
//! for each level without a limit.

use crate::limits::{
    BOX_DEPTH_MAX, BOXES_WITHOUT_SIZE_MAX, DESCRIPTION_BOXES_MAX, DESCRIPTOR_DEPTH_MAX,
};

/// Refuses a box whose boxes are nested too deep. Each offset is treated as a possible box, so every box that the
/// decoder finds is counted, and sometimes bytes that only look like one.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let mut ends: Vec<usize> = Vec::new();
    let (mut without_size, mut descriptions) = (0, 0);
    for (place, header) in bytes.windows(HEADER_BYTES).enumerate() {
        let Some((short, kind)) = header.split_first_chunk::<4>() else {
            continue;
        };
        // The cheaper check first: few bytes are the size of a box.
        let Some(extent) = extent(bytes, place, u32::from_be_bytes(*short)) else {
            continue;
        };
        let is_description = kind == b"esds";
        if !is_description && !is_container(kind) {
            continue;
        }
        match extent {
            _ if is_description => {
                descriptions += 1;
                check_descriptors(contents(bytes, place, extent))?;
            }
            Extent::ToEnd => without_size += 1,
            Extent::Until(end) => {
                while ends.last().is_some_and(|end| *end <= place) {
                    ends.pop();
                }
                ends.push(end);
            }
        }
        check_counts(ends.len(), without_size, descriptions)?;
    }
    Ok(())
}

fn is_container(kind: &[u8]) -> bool {
    CONTAINERS
        .binary_search_by(|container| container[..].cmp(kind))
        .is_ok()
}

fn check_counts(depth: usize, without_size: usize, descriptions: usize) -> Result<(), String> {
    if depth > BOX_DEPTH_MAX {
        return Err(format!(
            "boxes lie in each other more than {BOX_DEPTH_MAX} deep"
        ));
    }
    if without_size > BOXES_WITHOUT_SIZE_MAX {
        return Err(format!(
            "more than {BOXES_WITHOUT_SIZE_MAX} boxes in it do not give their size"
        ));
    }
    if descriptions > DESCRIPTION_BOXES_MAX {
        return Err(format!(
            "more than {DESCRIPTION_BOXES_MAX} boxes \"esds\" lie in it"
        ));
    }
    Ok(())
}

/// Where a box ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// At this offset.
    Until(usize),
    /// At the end of its parent.
    ToEnd,
}

/// Returns the end of the box at this offset; `None` if there cannot be one.
fn extent(bytes: &[u8], place: usize, short: u32) -> Option<Extent> {
    let size = match short {
        0 => return Some(Extent::ToEnd),
        1 => {
            let long = bytes.get(place.checked_add(HEADER_BYTES)?..)?;
            usize::try_from(u64::from_be_bytes(*long.first_chunk::<8>()?)).ok()?
        }
        size => usize::try_from(size).ok()?,
    };
    let end = place.checked_add(size)?;
    (size >= HEADER_BYTES && end <= bytes.len()).then_some(Extent::Until(end))
}

/// Returns the contents of an `esds` box after its header, version and flags.
fn contents(bytes: &[u8], place: usize, extent: Extent) -> &[u8] {
    let rest = bytes.get(place..).unwrap_or_default();
    let header_bytes = if rest.starts_with(&[0, 0, 0, 1]) {
        HEADER_BYTES + LONG_SIZE_BYTES
    } else {
        HEADER_BYTES
    };
    let begin = place + header_bytes + VERSION_BYTES;
    let end = match extent {
        Extent::Until(end) => end,
        Extent::ToEnd => bytes.len(),
    };
    bytes.get(begin..end).unwrap_or_default()
}

/// Refuses descriptors (ISO/IEC 14496-1 §7.2.6) that are nested too deep.
fn check_descriptors(bytes: &[u8]) -> Result<(), String> {
    let mut left = vec![(bytes, 0)];
    while let Some((mut rest, depth)) = left.pop() {
        while let Some((tag, body, behind)) = descriptor(rest) {
            rest = behind;
            let children = match tag {
                STREAM_TAG => stream_children(body),
                DECODER_TAG => body.get(DECODER_BYTES..),
                _ => None,
            };
            let Some(children) = children else {
                continue;
            };
            if depth == DESCRIPTOR_DEPTH_MAX {
                return Err(format!(
                    "descriptors lie in each other more than {DESCRIPTOR_DEPTH_MAX} deep"
                ));
            }
            left.push((children, depth + 1));
        }
    }
    Ok(())
}

/// Returns the tag of the first descriptor, its body, and the bytes after it.
fn descriptor(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, mut rest) = bytes.split_first()?;
    let mut size = 0_usize;
    for _ in 0..DESCRIPTOR_SIZE_BYTES_MAX {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        size = size << 7 | usize::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            let (body, behind) = rest.split_at_checked(size)?;
            return Some((*tag, body, behind));
        }
    }
    None
}

/// Returns the child descriptors of a stream's descriptor, after its fields, some of which are optional.
fn stream_children(body: &[u8]) -> Option<&[u8]> {
    let (flags, mut rest) = body.get(2..)?.split_first()?;
    if flags & 0x80 != 0 {
        rest = rest.get(2..)?;
    }
    if flags & 0x40 != 0 {
        let (length, behind) = rest.split_first()?;
        rest = behind.get(usize::from(*length)..)?;
    }
    if flags & 0x20 != 0 {
        rest = rest.get(2..)?;
    }
    Some(rest)
}

/// The header of a box with a 32-bit size.
const HEADER_BYTES: usize = 8;
/// A 64-bit size after the header.
const LONG_SIZE_BYTES: usize = 8;
const VERSION_BYTES: usize = 4;
const STREAM_TAG: u8 = 3;
const DECODER_TAG: u8 = 4;
/// The fields of a decoder's descriptor.
const DECODER_BYTES: usize = 13;
const DESCRIPTOR_SIZE_BYTES_MAX: usize = 4;

/// The boxes whose contents mp4-atom 0.17 decodes as any known box (`Any`), sorted.
const CONTAINERS: [&[u8; 4]; 53] = [
    b".mp3", b"Opus", b"ac-3", b"av01", b"avc1", b"avc3", b"camm", b"dinf", b"dref", b"ec-3",
    b"edts", b"evte", b"fLaC", b"fl32", b"fl64", b"fpcm", b"hev1", b"hvc1", b"ilst", b"in24",
    b"in32", b"ipcm", b"ipco", b"iprp", b"jpeg", b"lpcm", b"mdia", b"mebx", b"meta", b"mett",
    b"metx", b"mfra", b"minf", b"moof", b"moov", b"mp4a", b"mvex", b"s16l", b"samr", b"sowt",
    b"stbl", b"stsd", b"traf", b"trak", b"twos", b"tx3g", b"udta", b"uncv", b"urim", b"vp08",
    b"vp09", b"wave", b"wvtt",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns nested boxes.
    fn nested(levels: usize, long: bool) -> Vec<u8> {
        let bytes = if long { 16 } else { 8 };
        let level = |number: usize| {
            let size = (levels - number) * bytes;
            let short = if long {
                1
            } else {
                u32::try_from(size).expect("small")
            };
            let long = (size as u64).to_be_bytes();
            let long = &long[..bytes - 8];
            [&short.to_be_bytes()[..], b"moof", long].concat()
        };
        (0..levels).flat_map(level).collect()
    }

    #[test]
    fn all_containers_are_found() {
        assert!(CONTAINERS.iter().all(|kind| is_container(&kind[..])));
        assert!(!is_container(b"free"));
    }

    #[test]
    fn boxes_lie_in_each_other_so_deep_and_no_deeper() {
        for long in [false, true] {
            check(&nested(BOX_DEPTH_MAX, long)).expect("at the limit");
            for levels in [BOX_DEPTH_MAX + 1, 131_000] {
                let error = check(&nested(levels, long)).expect_err("past the limit");
                assert!(error.starts_with("boxes lie in each other"), "{error}");
            }
            let beside = nested(BOX_DEPTH_MAX, long).repeat(100);
            check(&beside).expect("beside each other they are no deeper");
        }
    }

    #[test]
    fn boxes_without_a_size_are_limited_by_their_number() {
        let boxes = |count| b"\0\0\0\0moof".repeat(count);
        check(&boxes(BOXES_WITHOUT_SIZE_MAX)).expect("at the limit");
        let error = check(&boxes(BOXES_WITHOUT_SIZE_MAX + 1)).expect_err("past the limit");
        assert!(error.contains("do not give their size"), "{error}");
    }

    /// A box with these descriptors.
    fn description(descriptors: &[u8]) -> Vec<u8> {
        let size = u32::try_from(12 + descriptors.len()).expect("small");
        [&size.to_be_bytes()[..], b"esds\0\0\0\0", descriptors].concat()
    }

    #[test]
    fn descriptors_lie_in_each_other_so_deep_and_no_deeper() {
        let nested = |levels: usize| {
            let mut inner = Vec::new();
            for level in 0..levels {
                let fields: &[u8] = if level % 2 == 0 {
                    // With all optional fields.
                    &[0, 1, 0xE0, 0, 2, 1, b'u', 0, 3]
                } else {
                    &[0; DECODER_BYTES]
                };
                let tag = if level % 2 == 0 {
                    STREAM_TAG
                } else {
                    DECODER_TAG
                };
                let size = fields.len() + inner.len();
                let size =
                    [14, 7, 0].map(|shift| u8::try_from(size >> shift & 0x7F).expect("7 bits"));
                let size = [size[0] | 0x80, size[1] | 0x80, size[2]];
                inner = [&[tag][..], &size[..], fields, &inner].concat();
            }
            description(&inner)
        };
        check(&nested(DESCRIPTOR_DEPTH_MAX)).expect("at the limit");
        for levels in [DESCRIPTOR_DEPTH_MAX + 1, 1000] {
            let error = check(&nested(levels)).expect_err("past the limit");
            assert!(error.starts_with("descriptors lie"), "{error}");
        }
    }

    #[test]
    fn so_many_boxes_with_descriptors_may_be_there_and_no_more() {
        let boxes = |count| description(&[]).repeat(count);
        check(&boxes(DESCRIPTION_BOXES_MAX)).expect("at the limit");
        let error = check(&boxes(DESCRIPTION_BOXES_MAX + 1)).expect_err("past the limit");
        assert!(error.contains("boxes \"esds\""), "{error}");
    }
}
