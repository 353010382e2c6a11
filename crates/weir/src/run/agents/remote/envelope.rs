//! Envelopes of messages: version, sender, order, and a proof that the sender has the shared key.
//!
//! A message is compressed and cut into frames. A frame is a line of JSON, the [`Header`], and a piece of the message. The
//! proof is an HMAC over subject, header and piece, so nobody without the key can change, move or repeat a frame.

use std::{collections::VecDeque, io::Read as _};

use anyhow::Context as _;
use aws_lc_rs::{constant_time, hmac};
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The key that a controller and its agents share.
#[derive(Clone)]
pub(crate) struct SharedKey(hmac::Key);

/// The first line of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Version of the messages: [`VERSION`].
    pub(crate) weir_agents: u16,
    /// Version of the sender's program.
    weir: String,
    /// The sender.
    pub(crate) from: String,
    /// What both have drawn for this conversation, so that frames of an earlier one are worth nothing.
    pub(crate) session: String,
    /// Number of the message in the session, from 1.
    number: u64,
    /// Number of the piece, from zero.
    piece: u32,
    /// Pieces of the message.
    pieces: u32,
    /// The proof, in hexadecimal digits; empty in a frame that has none.
    #[serde(default)]
    proof: String,
}

/// Why a frame is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// It is no frame.
    #[error("a message that is not one of weir's agents")]
    Foreign,
    /// Its sender has another version.
    #[error("weir {weir} speaks version {version} of the agents' messages, this weir {} speaks {VERSION}", env!("CARGO_PKG_VERSION"))]
    Version {
        /// The sender's version of the messages.
        version: u16,
        /// The sender's program.
        weir: String,
    },
    /// It has no proof, or a wrong one.
    #[error("the keys differ (--fleet-key)")]
    Key,
    /// It came twice, too late, or with pieces missing.
    #[error("message {0} is out of order")]
    Order(u64),
    /// The message is too large.
    #[error("a message of more than {} MiB", INFLATED_BYTES_MAX >> 20)]
    TooLarge,
    /// The message cannot be read.
    #[error("a message that cannot be read: {0}")]
    Content(String),
}

/// Makes the frames of one sender in one session.
#[derive(Clone)]
pub(crate) struct Sealer {
    key: SharedKey,
    from: String,
    session: String,
    number: u64,
}

/// Reads the frames of one sender in one session.
#[derive(Clone)]
pub(crate) struct Opener {
    key: SharedKey,
    /// The last number that has begun.
    number: u64,
    /// Pieces of that message that have come.
    pieces: u32,
    /// Whether that message is still incomplete.
    is_open: bool,
    bytes: Vec<u8>,
}

impl SharedKey {
    /// Returns the key that a file holds: its bytes without white space at the ends.
    ///
    /// # Errors
    /// It is too short to be secret.
    pub(crate) fn new(text: &[u8]) -> anyhow::Result<Self> {
        let secret = text.trim_ascii();
        anyhow::ensure!(
            secret.len() >= KEY_BYTES_MIN,
            "expected a secret of at least {KEY_BYTES_MIN} bytes, such as `openssl rand -hex 32` makes, not {}",
            secret.len()
        );
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    fn proof(&self, subject: &str, header: &Header, piece: &[u8]) -> String {
        let plain = Header {
            proof: String::new(),
            ..header.clone()
        };
        let mut context = hmac::Context::with_key(&self.0);
        context.update(subject.as_bytes());
        context.update(b"\n");
        context.update(&line(&plain));
        context.update(piece);
        digits(context.sign().as_ref())
    }
}

/// Returns the bytes in hexadecimal digits.
pub(super) fn digits(bytes: &[u8]) -> String {
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16));
    digits.collect()
}

fn line(header: &Header) -> Vec<u8> {
    let mut line = serde_json::to_vec(header).expect("a header has string keys only");
    line.push(b'\n');
    line
}

/// Returns a frame without a proof that says which version its sender has. Its content is not to be trusted.
pub(crate) fn notice(from: &str, session: &str) -> Vec<u8> {
    line(&Header {
        weir_agents: VERSION,
        weir: env!("CARGO_PKG_VERSION").to_owned(),
        from: from.to_owned(),
        session: session.to_owned(),
        number: 0,
        piece: 0,
        pieces: 1,
        proof: String::new(),
    })
}

/// Returns the header of a frame and its piece of the message, before its proof is checked.
///
/// # Errors
/// It is no frame, or one of another version.
pub(crate) fn header_of(frame: &[u8]) -> Result<(Header, &[u8]), Refused> {
    let head = &frame[..frame.len().min(HEADER_BYTES_MAX)];
    let end = head.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or(Refused::Foreign)?;
    let header: Header = serde_json::from_slice(&frame[..end]).map_err(|_| Refused::Foreign)?;
    if header.weir_agents != VERSION {
        let plain = |one: char| one.is_ascii_alphanumeric() || ".-+".contains(one);
        return Err(Refused::Version {
            version: header.weir_agents,
            weir: header
                .weir
                .chars()
                .filter(|one| plain(*one))
                .take(32)
                .collect(),
        });
    }
    Ok((header, &frame[end + 1..]))
}

impl Sealer {
    pub(crate) fn new(key: SharedKey, from: &str, session: &str) -> Self {
        Self {
            key,
            from: from.to_owned(),
            session: session.to_owned(),
            number: 0,
        }
    }

    /// Returns the frames of a message to `subject`, each of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The message is too large.
    pub(crate) fn seal<T: Serialize>(
        &mut self,
        subject: &str,
        message: &T,
        bytes_max: usize,
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        serde_json::to_writer(&mut encoder, message).context("a message cannot be written")?;
        let bytes = encoder.finish().context("a message cannot be compressed")?;
        let piece_bytes = bytes_max
            .saturating_sub(HEADER_BYTES_MAX)
            .clamp(1, PIECE_BYTES_MAX);
        let pieces = bytes.len().div_ceil(piece_bytes).max(1);
        anyhow::ensure!(bytes.len() <= DEFLATED_BYTES_MAX, Refused::TooLarge);
        self.number += 1;
        let frame = |(piece, content): (u32, &[u8])| {
            let mut header = Header {
                weir_agents: VERSION,
                weir: env!("CARGO_PKG_VERSION").to_owned(),
                from: self.from.clone(),
                session: self.session.clone(),
                number: self.number,
                piece,
                pieces: u32::try_from(pieces).unwrap_or(u32::MAX),
                proof: String::new(),
            };
            header.proof = self.key.proof(subject, &header, content);
            let mut frame = line(&header);
            frame.extend_from_slice(content);
            frame
        };
        Ok((0_u32..)
            .zip(bytes.chunks(piece_bytes))
            .map(frame)
            .collect())
    }
}

impl Opener {
    pub(crate) fn new(key: SharedKey) -> Self {
        Self {
            key,
            number: 0,
            pieces: 0,
            is_open: false,
            bytes: Vec::new(),
        }
    }

    /// Reads a frame that came to `subject`. Returns the message that it completes.
    ///
    /// # Errors
    /// The proof is wrong, a frame is missing, or the message is too large or cannot be read.
    pub(crate) fn open<T: DeserializeOwned>(
        &mut self,
        subject: &str,
        header: &Header,
        piece: &[u8],
    ) -> Result<Option<T>, Refused> {
        let proof = self.key.proof(subject, header, piece);
        constant_time::verify_slices_are_equal(proof.as_bytes(), header.proof.as_bytes())
            .map_err(|_| Refused::Key)?;
        let begins = header.piece == 0 && header.number > self.number;
        let continues = self.is_open && header.number == self.number && header.piece == self.pieces;
        if !begins && !continues {
            return Err(Refused::Order(header.number));
        }
        if begins {
            self.bytes.clear();
            self.number = header.number;
            self.pieces = 0;
        }
        self.pieces += 1;
        self.is_open = self.pieces < header.pieces;
        if self.bytes.len() + piece.len() > DEFLATED_BYTES_MAX {
            self.is_open = false;
            self.bytes = Vec::new();
            return Err(Refused::TooLarge);
        }
        self.bytes.extend_from_slice(piece);
        if self.is_open {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.bytes);
        let mut inflated = Vec::new();
        let mut decoder = DeflateDecoder::new(&bytes[..]).take(INFLATED_BYTES_MAX as u64 + 1);
        let content = |error: String| Refused::Content(error);
        decoder
            .read_to_end(&mut inflated)
            .map_err(|error| content(error.to_string()))?;
        if inflated.len() > INFLATED_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        let message = serde_json::from_slice(&inflated);
        message
            .map(Some)
            .map_err(|error| content(error.to_string()))
    }
}

/// The sessions that agents have offered to controllers, the newest last.
#[derive(Default)]
pub(crate) struct Offers(VecDeque<(String, Opener)>);

impl Offers {
    /// Remembers an offered session. The oldest is forgotten if there are too many.
    pub(crate) fn add(&mut self, session: String, opener: Opener) {
        if self.0.len() >= OFFERS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((session, opener));
    }

    pub(crate) fn of_mut(&mut self, session: &str) -> Option<&mut Opener> {
        let mut offers = self.0.iter_mut();
        offers.find_map(|(offered, opener)| (offered == session).then_some(opener))
    }
}

/// Version of the messages. It grows whenever one of them changes.
pub(crate) const VERSION: u16 = 1;
/// Bytes of a header, at most.
const HEADER_BYTES_MAX: usize = 1024;
/// Bytes of a piece: more would hold up other messages of the connection.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Bytes of a compressed message: the results of 50,000 subscribers have about 10 MiB.
const DEFLATED_BYTES_MAX: usize = 64 << 20;
/// Bytes of a message.
const INFLATED_BYTES_MAX: usize = 512 << 20;
/// Bytes of a shared key, at least: 128 bits in hexadecimal digits.
const KEY_BYTES_MIN: usize = 32;
/// Sessions that an agent has offered and nobody has taken.
const OFFERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(letter: &str) -> SharedKey {
        SharedKey::new(letter.repeat(32).as_bytes()).unwrap()
    }

    fn opened<T: DeserializeOwned>(
        opener: &mut Opener,
        frame: &[u8],
    ) -> Result<Option<T>, Refused> {
        let (header, piece) = header_of(frame)?;
        opener.open("to", &header, piece)
    }

    #[test]
    fn a_message_in_many_pieces_arrives_whole() {
        let mut sealer = Sealer::new(key("a"), "one", "s");
        let mut opener = Opener::new(key("a"));
        // Content that does not compress.
        let numbers: Vec<u64> = (0..5_000_u64)
            .map(|one| one.wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .collect();
        let frames = sealer.seal("to", &numbers, 4096).unwrap();
        assert!(frames.len() > 10 && frames.iter().all(|frame| frame.len() <= 4096));
        let (last, first) = frames.split_last().unwrap();
        for frame in first {
            assert_eq!(opened::<Vec<u64>>(&mut opener, frame), Ok(None));
        }
        assert_eq!(opened(&mut opener, last), Ok(Some(numbers)));
        let frames = sealer.seal("to", &7_u64, 4096).unwrap();
        assert_eq!(opened(&mut opener, &frames[0]), Ok(Some(7_u64)));
    }

    #[test]
    fn nobody_without_the_key_can_say_change_move_or_repeat_anything() {
        let mut opener = Opener::new(key("a"));
        let frame = |letter: &str, subject: &str| {
            let mut sealer = Sealer::new(key(letter), "one", "s");
            sealer.seal(subject, &7_u64, 4096).unwrap().remove(0)
        };
        assert_eq!(
            opened::<u64>(&mut opener, &frame("b", "to")),
            Err(Refused::Key)
        );
        assert_eq!(
            opened::<u64>(&mut opener, &frame("a", "other")),
            Err(Refused::Key)
        );
        assert_eq!(
            opened::<u64>(&mut opener, &notice("one", "s")),
            Err(Refused::Key)
        );
        let good = frame("a", "to");
        for place in 0..good.len() {
            let mut changed = good.clone();
            changed[place] ^= 1;
            assert!(
                opened::<u64>(&mut opener, &changed).is_err(),
                "byte {place}"
            );
        }
        assert_eq!(opened(&mut opener, &good), Ok(Some(7_u64)));
        assert_eq!(opened::<u64>(&mut opener, &good), Err(Refused::Order(1)));
    }

    #[test]
    fn a_missing_piece_costs_its_message_only() {
        let mut sealer = Sealer::new(key("a"), "one", "s");
        let mut opener = Opener::new(key("a"));
        let numbers: Vec<u64> = (0..2_000_u64)
            .map(|one| one.wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .collect();
        let frames = sealer.seal("to", &numbers, 4096).unwrap();
        assert_eq!(opened::<Vec<u64>>(&mut opener, &frames[0]), Ok(None));
        assert_eq!(
            opened::<Vec<u64>>(&mut opener, &frames[2]),
            Err(Refused::Order(1))
        );
        let next = sealer.seal("to", &vec![1_u64], 4096).unwrap();
        assert_eq!(opened(&mut opener, &next[0]), Ok(Some(vec![1_u64])));
    }

    #[test]
    fn another_version_and_foreign_messages_are_named() {
        let mut sealer = Sealer::new(key("a"), "one", "s");
        let frame = sealer.seal("to", &7_u64, 4096).unwrap().remove(0);
        let text = String::from_utf8_lossy(&frame);
        let newer = text.replacen("\"weir_agents\":1", "\"weir_agents\":2", 1);
        let error = header_of(newer.as_bytes()).unwrap_err().to_string();
        assert!(
            error.contains("speaks version 2 of the agents' messages"),
            "{error}"
        );
        for foreign in [&b""[..], b"\n", b"{}\n", b"hello", &[0xFF; 5000]] {
            assert_eq!(header_of(foreign).unwrap_err(), Refused::Foreign);
        }
    }

    #[test]
    fn content_that_cannot_be_read_is_refused_without_a_panic() {
        let mut sealer = Sealer::new(key("a"), "one", "s");
        let mut opener = Opener::new(key("a"));
        let frame = sealer.seal("to", &"text", 4096).unwrap().remove(0);
        assert!(matches!(
            opened::<u64>(&mut opener, &frame),
            Err(Refused::Content(_))
        ));
        // A megabyte of zeros in a few bytes is no larger than it is.
        let zeros = sealer.seal("to", &vec![0_u8; 1 << 20], 1 << 16).unwrap();
        assert_eq!(zeros.len(), 1);
        assert_eq!(
            opened(&mut opener, &zeros[0]),
            Ok(Some(vec![0_u8; 1 << 20]))
        );
    }

    #[test]
    fn a_key_has_a_least_length() {
        assert!(SharedKey::new(b"short").is_err());
        assert!(SharedKey::new(&[b' '; 64]).is_err());
        assert!(SharedKey::new(&[b'k'; KEY_BYTES_MIN]).is_ok());
    }
}
