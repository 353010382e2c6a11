//! Integers of one, two, four or eight bytes (RFC 9000 §16).

use bytes::BufMut;

/// The largest encodable integer: 2^62 - 1.
pub const MAX: u64 = (1 << 62) - 1;

/// Returns the integer at the front of `bytes` and its length in bytes; `None` if more bytes are needed.
#[inline]
pub fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1_usize << (first >> 6);
    let rest = bytes.get(1..length)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, byte| {
        value << 8 | u64::from(*byte)
    });
    Some((value, length))
}

/// Appends `value` in the fewest bytes.
///
/// # Panics
/// If `value` is larger than [`MAX`].
#[inline]
pub fn encode(value: u64, out: &mut impl BufMut) {
    assert!(value <= MAX, "{value} fits no QUIC integer");
    match value {
        0..=0x3f => out.put_uint(value, 1),
        0x40..=0x3fff => out.put_uint(value | 1 << 14, 2),
        0x4000..=0x3fff_ffff => out.put_uint(value | 2 << 30, 4),
        _ => out.put_u64(value | 3 << 62),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 §A.1.
    const EXAMPLES: [(&[u8], u64); 4] = [
        (
            &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
            151_288_809_941_952_652,
        ),
        (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
        (&[0x7b, 0xbd], 15_293),
        (&[0x25], 37),
    ];

    #[test]
    fn the_examples_of_the_specification() {
        for (bytes, value) in EXAMPLES {
            assert_eq!(decode(bytes), Some((value, bytes.len())));
            let mut out = Vec::new();
            encode(value, &mut out);
            assert_eq!(out, bytes);
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length]), None);
            }
        }
        assert_eq!(decode(&[0x40, 0x25, 9]), Some((37, 2)), "need not be short");
    }

    #[test]
    fn every_length_at_its_edges() {
        for (value, length) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 4),
            ((1 << 30) - 1, 4),
            (1 << 30, 8),
            (MAX, 8),
        ] {
            let mut out = Vec::new();
            encode(value, &mut out);
            assert_eq!(decode(&out), Some((value, length)));
        }
    }

    #[test]
    #[should_panic(expected = "fits no QUIC integer")]
    fn larger_ones_are_a_mistake() {
        encode(MAX + 1, &mut Vec::new());
    }
}
