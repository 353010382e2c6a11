//! The peer's critical unidirectional streams, which have to stay open: control, QPACK encoder and QPACK decoder (RFC
//! 9114 §6.2, RFC 9204 §4.2).

use bytes::Bytes;

use crate::{
    Code, Violation,
    control::{Control, ControlReader},
    instructions::{self, DecoderReader},
    stream_type,
};

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that opens the connection and sends requests.
    Client,
    /// The end that responds to requests.
    Server,
}

/// A critical stream.
#[derive(Debug)]
pub struct PeerStream(Reader);

#[derive(Debug)]
enum Reader {
    Control(Box<ControlReader>),
    Encoder,
    Decoder(DecoderReader),
}

/// The critical streams that the peer has opened.
#[derive(Debug)]
pub struct PeerStreams {
    own: Side,
    /// By stream type.
    opened: [bool; 4],
}

impl PeerStreams {
    /// Creates the state without streams, for the peer of the end `own`.
    pub fn new(own: Side) -> Self {
        Self {
            own,
            opened: [false; 4],
        }
    }

    /// Returns the reader of a unidirectional stream that begins with `stream_type`. `None` if the type is unknown or
    /// reserved: the stream is to be stopped with [`Code::STREAM_CREATION_ERROR`], and the connection continues (RFC
    /// 9114 §6.2, §6.2.3).
    ///
    /// # Errors
    /// If the peer may not open such a stream, or opened it before.
    pub fn open(&mut self, stream_type: u64) -> Result<Option<PeerStream>, Violation> {
        let reader = match (stream_type, self.own) {
            (stream_type::CONTROL, own) => {
                Reader::Control(Box::new(ControlReader::new(own == Side::Server)))
            }
            (stream_type::ENCODER, _) => Reader::Encoder,
            (stream_type::DECODER, _) => Reader::Decoder(DecoderReader::default()),
            (stream_type::PUSH, Side::Client) => {
                let reason = "a push that was not allowed";
                return Err(Violation::new(Code::ID_ERROR, reason));
            }
            (stream_type::PUSH, Side::Server) => {
                let reason = "a client opened a push stream";
                return Err(Violation::new(Code::STREAM_CREATION_ERROR, reason));
            }
            _ => return Ok(None),
        };
        let index = usize::try_from(stream_type).unwrap_or_default();
        if std::mem::replace(&mut self.opened[index], true) {
            let reason = "a second stream of which there may be one";
            return Err(Violation::new(Code::STREAM_CREATION_ERROR, reason));
        }
        Ok(Some(PeerStream(reader)))
    }
}

impl PeerStream {
    /// Takes the next bytes of the stream, and passes each frame of a control stream to `on_control`.
    pub fn push(
        &mut self,
        data: Bytes,
        mut on_control: impl FnMut(Control) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        match &mut self.0 {
            Reader::Control(reader) => {
                reader.push(data);
                while let Some(control) = reader.poll()? {
                    on_control(control)?;
                }
                Ok(())
            }
            Reader::Encoder => instructions::check_encoder(&data),
            Reader::Decoder(reader) => reader.push(&data),
        }
    }
}

/// The peer closed a critical stream, or stopped one of this endpoint.
pub const CLOSED_CRITICAL_STREAM: Violation = Violation::new(
    Code::CLOSED_CRITICAL_STREAM,
    "a stream that must stay open was closed",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_may_be_opened_once() {
        for own in [Side::Client, Side::Server] {
            let mut streams = PeerStreams::new(own);
            for kind in [
                stream_type::CONTROL,
                stream_type::ENCODER,
                stream_type::DECODER,
            ] {
                assert!(streams.open(kind).unwrap().is_some());
                let violation = streams.open(kind).unwrap_err();
                assert_eq!(violation.code, Code::STREAM_CREATION_ERROR);
            }
            assert!(streams.open(0x21).unwrap().is_none(), "reserved");
        }
        let code = |own| {
            PeerStreams::new(own)
                .open(stream_type::PUSH)
                .unwrap_err()
                .code
        };
        assert_eq!(code(Side::Client), Code::ID_ERROR);
        assert_eq!(code(Side::Server), Code::STREAM_CREATION_ERROR);
    }
}
