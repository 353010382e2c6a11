//! The queue of one outgoing stream, and the stream's state.

use std::collections::VecDeque;

use bytes::Bytes;
use weir_moqt::error::ResetCode;
use weir_transport::{Direction, StreamId, Transport, WriteError};

/// One outgoing stream with its queued chunks. `T` is the role's note on a chunk, `R` the reason to give the stream up.
///
/// The role limits what it queues by [`len`](Self::len) and [`waiting_bytes`](Self::waiting_bytes).
#[derive(Debug)]
pub struct SendQueue<T = (), R = ()> {
    stream: Option<StreamId>,
    rank: i32,
    waiting: VecDeque<(Bytes, T)>,
    waiting_bytes: usize,
    state: State<R>,
}

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State<R> {
    /// More chunks may follow.
    Growing,
    /// The stream ends after the queued chunks.
    Ending,
    /// The transport has accepted everything, including the end.
    Sent,
    /// Nothing more is sent. Further chunks are refused for this reason.
    GivenUp(R),
    /// Nothing more is sent, and no chunk follows.
    Over,
}

/// An event of a stream.
#[derive(Clone, Copy, Debug)]
enum Event<R> {
    /// No chunk follows.
    Finish,
    /// The transport has accepted all queued chunks.
    AllTaken,
    /// The rest will not be sent.
    GiveUp(R),
}

impl<R> State<R> {
    fn after(self, event: Event<R>) -> Self {
        match (self, event) {
            (Self::Growing, Event::Finish) => Self::Ending,
            (Self::Growing, Event::GiveUp(reason)) => Self::GivenUp(reason),
            (Self::Ending, Event::AllTaken) => Self::Sent,
            (Self::Ending | Self::Sent, Event::GiveUp(_)) | (Self::GivenUp(_), Event::Finish) => {
                Self::Over
            }
            (state, Event::Finish | Event::AllTaken | Event::GiveUp(_)) => state,
        }
    }
}

impl<T, R: Copy> SendQueue<T, R> {
    /// Returns a stream that opens with its first chunk. Of several streams, the one with the highest `rank` is opened
    /// first.
    pub fn new(rank: i32) -> Self {
        Self {
            stream: None,
            rank,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            state: State::Growing,
        }
    }

    /// Returns a queue for a stream that is already open and keeps its rank.
    pub fn of_stream(stream: StreamId) -> Self {
        Self {
            stream: Some(stream),
            ..Self::new(0)
        }
    }

    /// Returns the stream, from when it opens until it is given up.
    pub fn stream(&self) -> Option<StreamId> {
        self.stream
    }

    /// Returns the number of queued chunks.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no chunk is queued.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of queued bytes.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns the note on the next chunk.
    pub fn first(&self) -> Option<&T> {
        self.waiting.front().map(|(_, note)| note)
    }

    /// Whether there is something to do when the transport accepts data.
    pub fn has_work(&self) -> bool {
        !self.is_empty() || matches!(self.state, State::Ending)
    }

    /// Returns why chunks are refused, if they are.
    pub fn refusal(&self) -> Option<R> {
        match self.state {
            State::GivenUp(reason) => Some(reason),
            State::Growing | State::Ending | State::Sent | State::Over => None,
        }
    }

    /// Whether the stream was given up.
    pub fn is_given_up(&self) -> bool {
        matches!(self.state, State::GivenUp(_) | State::Over)
    }

    /// Whether nothing is left to send, and no chunk follows.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Sent | State::Over)
    }

    /// Queues a chunk.
    pub fn push(&mut self, bytes: Bytes, note: T) {
        self.waiting_bytes += bytes.len();
        self.waiting.push_back((bytes, note));
    }

    /// Ends the stream after the queued chunks.
    pub fn finish(&mut self) {
        self.state = self.state.after(Event::Finish);
    }

    /// Changes the stream's rank.
    pub fn set_rank(&mut self, transport: &mut dyn Transport, rank: i32) {
        self.rank = rank;
        if let Some(stream) = self.stream {
            transport.set_priority(stream, rank);
        }
    }

    /// Writes what the transport accepts. Calls `on_taken` with the note on each chunk that was accepted completely.
    ///
    /// # Errors
    /// The peer or the connection accepts no more data. The role then gives the stream up.
    pub fn flush(
        &mut self,
        transport: &mut dyn Transport,
        mut on_taken: impl FnMut(T),
    ) -> Result<(), WriteError> {
        if !self.has_work() {
            return Ok(());
        }
        let Some(stream) = self.open(transport) else {
            return Ok(());
        };
        while let Some((bytes, _)) = self.waiting.front_mut() {
            let before = bytes.len();
            let written = transport.write(stream, bytes);
            self.waiting_bytes -= before - bytes.len();
            match written {
                Ok(()) => self.waiting.pop_front().map(|(_, note)| on_taken(note)),
                Err(WriteError::Blocked) => return Ok(()),
                Err(error @ (WriteError::Stopped(_) | WriteError::Closed)) => return Err(error),
            };
        }
        if matches!(self.state, State::Ending) {
            transport.finish(stream);
        }
        self.state = self.state.after(Event::AllTaken);
        Ok(())
    }

    /// Resets the stream. Returns the notes on the queued chunks.
    pub fn give_up(
        &mut self,
        transport: &mut dyn Transport,
        code: ResetCode,
        reason: R,
    ) -> impl Iterator<Item = T> {
        if let Some(stream) = self.stream.take() {
            transport.reset(stream, code.0);
        }
        self.abandon(reason)
    }

    /// Gives the stream up after its connection was lost. Returns the notes on the queued chunks.
    pub fn abandon(&mut self, reason: R) -> impl Iterator<Item = T> {
        self.state = self.state.after(Event::GiveUp(reason));
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|(_, note)| note)
    }

    fn open(&mut self, transport: &mut dyn Transport) -> Option<StreamId> {
        if self.stream.is_none() && !self.waiting.is_empty() {
            let stream = transport.open(Direction::Uni)?;
            transport.set_priority(stream, self.rank);
            self.stream = Some(stream);
        }
        self.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_after_every_event() {
        let mut table = String::new();
        for state in [
            State::Growing,
            State::Ending,
            State::Sent,
            State::GivenUp("first"),
            State::Over,
        ] {
            for event in [Event::Finish, Event::AllTaken, Event::GiveUp("second")] {
                let row = format!("{state:?} + {event:?} -> {:?}\n", state.after(event));
                table.push_str(&row);
            }
        }
        insta::assert_snapshot!(table);
    }
}
