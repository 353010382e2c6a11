//! What an origin has on its streams and before them.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use weir_moqt::data::{ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId};
use weir_moqt::draft::Draft;
use weir_moqt::error::ResetCode;
use weir_moqt::property::Properties;
use weir_moqt::transport::{Direction, StreamId, Transport, WriteError};

use crate::strategy::StreamKey;

/// A stream with what waits for it.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) stream: Option<StreamId>,
    previous: Option<u64>,
    waiting: VecDeque<Bytes>,
    pub(super) waiting_bytes: usize,
    pub(super) is_finished: bool,
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
    /// Puts an object behind what waits; the first one begins the stream.
    pub(super) fn push(&mut self, draft: Draft, key: StreamKey, priority: u8, object: Object) {
        let mut head = BytesMut::new();
        if self.previous.is_none() {
            header(key, priority).encode(draft, &mut head);
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

    /// Opens the stream if there is something to write and the peer permits it; returns whether it did.
    pub(super) fn open(&mut self, connection: &mut dyn Transport) -> bool {
        if self.stream.is_none() && !self.waiting.is_empty() {
            self.stream = connection.open(Direction::Uni);
            return self.stream.is_some();
        }
        false
    }

    /// Writes what the connection takes; returns whether there will be something to do later.
    pub(super) fn flush(&mut self, connection: &mut dyn Transport) -> bool {
        let Some(stream) = self.stream else {
            return true;
        };
        while let Some(data) = self.waiting.front_mut() {
            let before = data.len();
            let result = connection.write(stream, data);
            self.waiting_bytes -= before - data.len();
            match result {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(WriteError::Blocked) => return true,
                Err(WriteError::Stopped(_)) => {
                    connection.reset(stream, ResetCode::CANCELLED.0);
                    return false;
                }
                Err(WriteError::Closed) => return false,
            }
        }
        if self.is_finished {
            connection.finish(stream);
        }
        !self.is_finished
    }
}

fn header(key: StreamKey, priority: u8) -> SubgroupHeader {
    SubgroupHeader {
        track_alias: key.track as u64,
        group: key.group,
        subgroup: SubgroupId::Explicit(key.subgroup),
        priority: Some(priority),
        has_properties: true,
        end_of_group: false,
        first_object: true,
    }
}
