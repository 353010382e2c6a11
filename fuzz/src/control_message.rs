//! Fuzzing of control messages, which arrive in arbitrary pieces.

use bytes::{Bytes, BytesMut};
use weir_moqt::draft::Draft;
use weir_moqt::error::DecodeError;
use weir_moqt::message::{MESSAGE_BYTES_MAX, Message, REASON_BYTES_MAX};
use weir_moqt::reader::MessageReader;

/// Reads `input` as a control stream of each draft. Checks that its messages do not depend on how it is split, and that a decoded
/// message survives another round of encoding. The first byte determines the split.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else {
        return;
    };
    let stream = Bytes::copy_from_slice(stream);
    for draft in Draft::ALL {
        check(draft, usize::from(*cut) + 1, &stream);
    }
}

fn check(draft: Draft, size: usize, stream: &Bytes) {
    let whole = read(draft, stream, usize::MAX);
    let pieces = read(draft, stream, size);
    assert_eq!(whole, pieces, "the pieces of a stream do not matter");

    for message in &whole.0 {
        if reason_bytes(message) > REASON_BYTES_MAX {
            continue;
        }
        let mut out = BytesMut::new();
        if message.encode(draft, &mut out).is_err() {
            assert!(
                matches!(message, Message::Setup(_)),
                "only text gets longer: {message:?}"
            );
            continue;
        }
        let (again, end) = read(draft, &out.freeze(), usize::MAX);
        let [again] = &again[..] else {
            panic!("one message becomes one: {again:?}");
        };
        assert_eq!(again, &with_code_of(again, message.clone()));
        assert_eq!(end, Ok(()));
    }
}

/// Returns `message` with the code of `encoded`: a code that the draft does not have is encoded as the nearest that it has.
fn with_code_of(encoded: &Message, mut message: Message) -> Message {
    match (encoded, &mut message) {
        (Message::RequestError(encoded), Message::RequestError(error)) => error.code = encoded.code,
        (Message::PublishDone(encoded), Message::PublishDone(done)) => done.code = encoded.code,
        _ => {}
    }
    message
}

/// Returns the length of a message's reason, which may have grown in decoding: invalid UTF-8 is replaced.
fn reason_bytes(message: &Message) -> usize {
    if let Message::RequestError(error) = message {
        error.reason.len()
    } else if let Message::PublishDone(done) = message {
        done.reason.len()
    } else {
        0
    }
}

/// Returns the messages of a stream that arrives in pieces of `size` bytes, and how it ended.
fn read(draft: Draft, stream: &Bytes, size: usize) -> (Vec<Message>, Result<(), DecodeError>) {
    let mut reader = MessageReader::new(draft, MESSAGE_BYTES_MAX);
    let mut messages = Vec::new();
    let mut rest = stream.clone();
    while !rest.is_empty() {
        reader.push(rest.split_to(size.min(rest.len())));
        loop {
            match reader.poll() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    assert_ne!(error, DecodeError::Short, "a reader waits instead");
                    return (messages, Err(error));
                }
            }
        }
    }
    (messages, reader.fin())
}
