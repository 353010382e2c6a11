//! One stream of an origin: what waits for it, and what became of that.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use weir_moqt::data::{ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId};
use weir_moqt::draft::Draft;
use weir_moqt::error::ResetCode;
use weir_moqt::property::Properties;
use weir_transport::{Direction, StreamId, Transport, WriteError};

use crate::strategy::StreamKey;

/// A stream with what waits for it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) stream: Option<StreamId>,
    /// The group as it is on the wire, and what the strategy says of the stream.
    pub(super) place: Place,
    previous: Option<u64>,
    waiting: VecDeque<Bytes>,
    pub(super) waiting_bytes: usize,
    /// Nothing more comes.
    pub(super) is_finished: bool,
    /// All of it was handed to the connection, and its end.
    is_sent: bool,
    /// What is still to come of it is not sent: no other stream may be opened for its rest [moqt-18 §8].
    pub(super) is_given_up: bool,
}

/// Where a stream belongs, and when it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// With the number that the group has on the wire.
    pub(super) key: StreamKey,
    /// The publisher priority.
    pub(super) priority: u8,
    /// Its rank for the connection; higher goes first.
    pub(super) rank: i32,
}

/// An object to be written.
#[derive(Debug)]
pub(super) struct Object {
    /// Its place in its group.
    pub(super) id: u64,
    pub(super) properties: Properties,
    pub(super) payload: Bytes,
}

impl Outgoing {
    /// A stream that is yet to be opened.
    pub(super) fn new(place: Place) -> Self {
        Self {
            stream: None,
            place,
            previous: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_finished: false,
            is_sent: false,
            is_given_up: false,
        }
    }

    /// Puts an object behind what waits; the first one begins the stream.
    pub(super) fn push(&mut self, draft: Draft, object: Object) {
        if self.is_given_up {
            return;
        }
        let mut head = BytesMut::new();
        if self.previous.is_none() {
            header(&self.place).encode(draft, &mut head);
        }
        ObjectHeader {
            id: object.id,
            properties: object.properties,
            status: ObjectStatus::Normal,
            payload_len: object.payload.len() as u64,
        }
        .encode_in_subgroup(self.previous, true, draft, &mut head);
        self.previous = Some(object.id);
        self.waiting_bytes += head.len() + object.payload.len();
        self.waiting.push_back(head.freeze());
        if !object.payload.is_empty() {
            self.waiting.push_back(object.payload);
        }
    }

    /// Whether there is something to do as soon as the connection takes something.
    pub(super) fn has_work(&self) -> bool {
        let is_ending = self.is_finished && !self.is_sent && !self.is_given_up;
        is_ending || !self.waiting.is_empty()
    }

    /// Opens the stream if there is something to write and the peer permits it; returns whether it did.
    pub(super) fn open(&mut self, connection: &mut dyn Transport) -> bool {
        if self.stream.is_some() || self.waiting.is_empty() {
            return false;
        }
        self.stream = connection.open(Direction::Uni);
        if let Some(stream) = self.stream {
            connection.set_priority(stream, self.place.rank);
        }
        self.stream.is_some()
    }

    /// Writes what the connection takes.
    pub(super) fn flush(&mut self, connection: &mut dyn Transport) {
        let Some(stream) = self.stream.filter(|_| self.has_work()) else {
            return;
        };
        while let Some(data) = self.waiting.front_mut() {
            let before = data.len();
            let result = connection.write(stream, data);
            self.waiting_bytes -= before - data.len();
            match result {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(WriteError::Blocked) => return,
                Err(WriteError::Stopped(_) | WriteError::Closed) => {
                    return self.give_up(connection, ResetCode::CANCELLED);
                }
            }
        }
        if self.is_finished {
            connection.finish(stream);
            self.is_sent = true;
        }
    }

    /// Sends nothing more of it.
    pub(super) fn give_up(&mut self, connection: &mut dyn Transport, code: ResetCode) {
        if let Some(stream) = self.stream.take() {
            connection.reset(stream, code.0);
        }
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.is_given_up = true;
    }

    /// It goes by another rank from now on.
    pub(super) fn set_rank(&mut self, connection: &mut dyn Transport, rank: i32) {
        self.place.rank = rank;
        if let Some(stream) = self.stream {
            connection.set_priority(stream, rank);
        }
    }
}

fn header(place: &Place) -> SubgroupHeader {
    SubgroupHeader {
        track_alias: place.key.track as u64,
        group: place.key.group,
        subgroup: SubgroupId::Explicit(place.key.subgroup),
        priority: Some(place.priority),
        has_properties: true,
        end_of_group: false,
        first_object: true,
    }
}
