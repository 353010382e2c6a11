//! QPACK instructions for a dynamic table with a capacity of zero (RFC 9204 §4).

use crate::{Code, Violation};

/// Checks the instructions of the peer's encoder: only a capacity of zero is permitted (RFC 9204 §4.3.1).
pub(crate) fn check_encoder(data: &[u8]) -> Result<(), Violation> {
    if data.iter().all(|byte| *byte == NO_CAPACITY) {
        return Ok(());
    }
    Err(Violation::new(
        Code::ENCODER_STREAM_ERROR,
        "the encoder uses a dynamic table of no bytes",
    ))
}

/// A reader of the instructions of the peer's decoder. The own encoder inserts nothing, so only a stream cancellation
/// is permitted (RFC 9204 §4.4.2).
#[derive(Debug, Default)]
pub(crate) struct DecoderReader {
    /// Number of bytes read of the current integer, after its first byte.
    open: Option<u32>,
}

impl DecoderReader {
    /// Takes the next bytes of the stream.
    pub(crate) fn push(&mut self, data: &[u8]) -> Result<(), Violation> {
        for byte in data {
            self.open = match self.open {
                None if byte >> 6 != CANCELLATION => {
                    return Err(wrong("the decoder acknowledges what was never sent"));
                }
                None => (byte & PREFIX == PREFIX).then_some(0),
                Some(_) if byte & 0x80 == 0 => None,
                Some(INTEGER_BYTES_MAX) => {
                    return Err(wrong("the decoder names a stream that cannot be"));
                }
                Some(length) => Some(length + 1),
            };
        }
        Ok(())
    }
}

const fn wrong(reason: &'static str) -> Violation {
    Violation::new(Code::DECODER_STREAM_ERROR, reason)
}

/// Set Dynamic Table Capacity, to 0.
const NO_CAPACITY: u8 = 0x20;
/// The first two bits of Stream Cancellation.
const CANCELLATION: u8 = 0b01;
/// The six bits of the first byte in which the stream ID begins.
const PREFIX: u8 = 0x3f;
/// Nine times seven bits are more than a stream ID has.
const INTEGER_BYTES_MAX: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoder_without_a_table() {
        assert_eq!(check_encoder(&[]), Ok(()));
        assert_eq!(check_encoder(&[0x20, 0x20]), Ok(()));
        // A capacity of one byte, an insertion, a duplicate.
        for bad in [&[0x21][..], &[0x20, 0xc0, 0x01, b'a'], &[0x00]] {
            let violation = check_encoder(bad).unwrap_err();
            assert_eq!(violation.code, Code::ENCODER_STREAM_ERROR);
        }
    }

    #[test]
    fn a_decoder_may_only_cancel() {
        // Streams 8, 63, and 2^62 - 4, in pieces and at once.
        let good = [
            0x48, 0x7f, 0x00, 0x7f, 0xbd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f,
        ];
        let mut reader = DecoderReader::default();
        assert_eq!(reader.push(&good), Ok(()));
        for byte in good {
            assert_eq!(reader.push(&[byte]), Ok(()));
        }
        assert_eq!(reader.open, None);
        // An acknowledgement, an increment.
        for bad in [&[0x80][..], &[0x01], &[0x00], &[0x48, 0x84]] {
            let violation = DecoderReader::default().push(bad).unwrap_err();
            assert_eq!(violation.code, Code::DECODER_STREAM_ERROR);
        }
    }

    #[test]
    fn a_number_as_long_as_the_limit_and_one_byte_longer() {
        let mut number = vec![0x7f];
        number.extend([0x80; 9]);
        number.push(0x00);
        assert_eq!(DecoderReader::default().push(&number), Ok(()));
        number.insert(1, 0x80);
        assert!(DecoderReader::default().push(&number).is_err());
    }
}
