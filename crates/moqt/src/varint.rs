//! Variable-length integers: the number of leading one bits of the first byte is the number of bytes that follow
//! [moqt-18 §1.4.1].
//!
//! Encodings of any permitted length are decoded; the shortest is written.

use bytes::{BufMut, BytesMut};

/// The longest encoding, in bytes.
pub const BYTES_MAX: usize = 9;

/// Returns the value at the front of `data` and its encoded length; `None` if `data` ends within it.
#[inline]
pub fn decode(data: &[u8]) -> Option<(u64, usize)> {
    let first = *data.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    decode_long(first, data)
}

/// Returns the length of an encoding that starts with `first`.
#[inline]
pub const fn len_from_first(first: u8) -> usize {
    first.leading_ones() as usize + 1
}

/// Returns the length of the shortest encoding of `value`.
#[inline]
pub const fn encoded_len(value: u64) -> usize {
    let bits = 64 - value.leading_zeros() as usize;
    match bits {
        0 => 1,
        1..=56 => bits.div_ceil(7),
        _ => BYTES_MAX,
    }
}

/// Appends the shortest encoding of `value`.
#[inline]
pub fn encode(value: u64, out: &mut BytesMut) {
    if let Ok(byte @ ..0x80) = u8::try_from(value) {
        out.put_u8(byte);
        return;
    }
    encode_long(value, out);
}

fn decode_long(first: u8, data: &[u8]) -> Option<(u64, usize)> {
    let len = len_from_first(first);
    let body = data.get(1..len)?;
    // The bits of the first byte after its first zero bit; none in encodings of eight and nine bytes.
    let mut value = if len >= 8 {
        0
    } else {
        u64::from(first & (0xff >> len))
    };
    for byte in body {
        value = value << 8 | u64::from(*byte);
    }
    Some((value, len))
}

fn encode_long(value: u64, out: &mut BytesMut) {
    let len = encoded_len(value);
    if len == BYTES_MAX {
        out.put_u8(0xff);
        out.put_u64(value);
        return;
    }
    let ones = !(u64::MAX >> (len - 1));
    let aligned = ones | value << (64 - 8 * len);
    out.put_slice(&aligned.to_be_bytes()[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(value: u64) -> Vec<u8> {
        let mut out = BytesMut::new();
        encode(value, &mut out);
        out.to_vec()
    }

    #[test]
    fn the_examples_of_the_draft() {
        for (bytes, value) in [
            (&[0x25][..], 37),
            (&[0x80, 0x25], 37),
            (&[0xbb, 0xbd], 15_293),
            (&[0xed, 0x7f, 0x3e, 0x7d], 226_442_877),
            (&[0xfa, 0xa1, 0xa0, 0xe4, 0x03, 0xd8], 2_893_212_287_960),
            (
                &[0xfc, 0x89, 0x98, 0xab, 0xc6, 0x6b, 0xc0],
                151_288_809_941_952,
            ),
            (
                &[0xfe, 0xfa, 0x31, 0x8f, 0xa8, 0xe3, 0xca, 0x11],
                70_423_237_261_249_041,
            ),
            (&[0xff; 9], u64::MAX),
        ] {
            assert_eq!(decode(bytes), Some((value, bytes.len())), "{bytes:02x?}");
        }
    }

    #[test]
    fn each_length_ends_where_the_table_says() {
        for len in 1..=8_usize {
            let last = (1_u64 << (7 * len)) - 1;
            assert_eq!(encoded_len(last), len);
            assert_eq!(encoded(last).len(), len);
            assert_eq!(encoded_len(last + 1), len + 1);
            assert_eq!(encoded(last + 1).len(), len + 1);
        }
        assert_eq!(encoded_len(0), 1);
        assert_eq!(encoded_len(u64::MAX), 9);
    }

    #[test]
    fn a_cut_encoding_is_none() {
        assert_eq!(decode(&[]), None);
        for len in 2..=BYTES_MAX {
            let whole = encoded(if len == 9 {
                u64::MAX
            } else {
                (1 << (7 * len)) - 1
            });
            for cut in 0..len {
                assert_eq!(decode(&whole[..cut]), None);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in any::<u64>(), shift in 0_u32..64) {
            let value = value >> shift;
            let bytes = encoded(value);
            prop_assert_eq!(bytes.len(), encoded_len(value));
            prop_assert_eq!(len_from_first(bytes[0]), bytes.len());
            prop_assert_eq!(decode(&bytes), Some((value, bytes.len())));
        }
    }
}
