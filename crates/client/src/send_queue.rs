//! What waits for one outgoing stream, and how far the stream has come.

use std::collections::VecDeque;

use bytes::Bytes;
use weir_moqt::error::ResetCode;
use weir_transport::{Direction, StreamId, Transport, WriteError};

/// One outgoing stream with the pieces that wait for it. `T` is what the role notes of a piece, `R` why it gives a stream up.
///
/// The role bounds what it pushes by [`len`](Self::len) and [`waiting_bytes`](Self::waiting_bytes).
#[derive(Debug)]
pub struct SendQueue<T = (), R = ()> {
    stream: Option<StreamId>,
    rank: i32,
    waiting: VecDeque<(Bytes, T)>,
    waiting_bytes: usize,
    state: State<R>,
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State<R> {
    /// More pieces may follow those that wait.
    Growing,
    /// The stream ends behind what waits.
    Ending,
    /// The transport has taken everything, and the end.
    Sent,
    /// Nothing more is sent; pieces that still come are refused for this reason.
    GivenUp(R),
    /// Nothing more is sent, and no piece comes.
    Over,
}

/// What happens to a stream.
#[derive(Clone, Copy, Debug)]
enum Event<R> {
    /// No piece follows.
    Finish,
    /// The transport has taken all that waited.
    AllTaken,
    /// The rest is not sent.
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
    /// A stream that is opened when there is something to write; of several, the one with the higher `rank` goes first.
    pub fn new(rank: i32) -> Self {
        Self {
            stream: None,
            rank,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            state: State::Growing,
        }
    }

    /// A stream that is open already, and whose rank stays.
    pub fn of_stream(stream: StreamId) -> Self {
        Self {
            stream: Some(stream),
            ..Self::new(0)
        }
    }

    /// The stream, from when it is opened until it is given up.
    pub fn stream(&self) -> Option<StreamId> {
        self.stream
    }

    /// Pieces that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no piece waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// What was noted of the piece that is written next.
    pub fn first(&self) -> Option<&T> {
        self.waiting.front().map(|(_, note)| note)
    }

    /// Whether there is something to do as soon as the transport takes something.
    pub fn has_work(&self) -> bool {
        !self.is_empty() || matches!(self.state, State::Ending)
    }

    /// Why pieces are refused, if they are.
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

    /// Whether nothing is left to send, and no piece comes.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Sent | State::Over)
    }

    /// Puts a piece behind those that wait.
    pub fn push(&mut self, bytes: Bytes, note: T) {
        self.waiting_bytes += bytes.len();
        self.waiting.push_back((bytes, note));
    }

    /// Ends the stream behind what waits.
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

    /// Writes what the transport takes, and calls `on_taken` with the note of each piece that it has taken whole.
    ///
    /// # Errors
    /// The peer or the connection takes nothing more; the role then gives the stream up.
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

    /// Resets the stream; returns the notes of what waited.
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

    /// The connection is gone, and the stream with it; returns the notes of what waited.
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
