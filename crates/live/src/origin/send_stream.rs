//! One stream of an origin, and its queue.

use bytes::{Bytes, BytesMut};
use weir_client::send_queue::SendQueue;
use weir_moqt::data::{ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId};
use weir_moqt::draft::Draft;
use weir_moqt::error::ResetCode;
use weir_moqt::property::Properties;
use weir_transport::Transport;

use crate::strategy::StreamKey;

/// A stream with its queue.
#[derive(Debug)]
pub(super) struct SendStream {
    pub(super) queue: SendQueue,
    /// The stream's key with its Group ID, and its order.
    pub(super) order: SendOrder,
    previous: Option<u64>,
}

/// The key and the order of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendOrder {
    /// The key, with the Group ID of the group.
    pub(super) key: StreamKey,
    /// The publisher priority.
    pub(super) priority: u8,
    /// The rank for the connection; higher is sent first.
    pub(super) rank: i32,
}

/// An object to write.
#[derive(Debug)]
pub(super) struct Object {
    /// Its Object ID.
    pub(super) id: u64,
    pub(super) properties: Properties,
    pub(super) payload: Bytes,
}

impl SendStream {
    /// Returns a stream that opens with its first object.
    pub(super) fn new(order: SendOrder) -> Self {
        Self {
            queue: SendQueue::new(order.rank),
            order,
            previous: None,
        }
    }

    /// Queues an object. The first one begins the stream.
    pub(super) fn push(&mut self, draft: Draft, object: Object) {
        if self.queue.is_given_up() {
            return;
        }
        let mut head = BytesMut::new();
        if self.previous.is_none() {
            header(&self.order).encode(draft, &mut head);
        }
        ObjectHeader {
            id: object.id,
            properties: object.properties,
            status: ObjectStatus::Normal,
            payload_len: object.payload.len() as u64,
        }
        .encode_in_subgroup(self.previous, true, draft, &mut head);
        self.previous = Some(object.id);
        self.queue.push(head.freeze(), ());
        if !object.payload.is_empty() {
            self.queue.push(object.payload, ());
        }
    }

    /// Resets the stream.
    pub(super) fn give_up(&mut self, connection: &mut dyn Transport, code: ResetCode) {
        drop(self.queue.give_up(connection, code, ()));
    }

    /// Changes the stream's rank.
    pub(super) fn set_rank(&mut self, connection: &mut dyn Transport, rank: i32) {
        self.order.rank = rank;
        self.queue.set_rank(connection, rank);
    }
}

fn header(order: &SendOrder) -> SubgroupHeader {
    SubgroupHeader {
        track_alias: order.key.track as u64,
        group: order.key.group,
        subgroup: SubgroupId::Explicit(order.key.subgroup),
        priority: Some(order.priority),
        has_properties: true,
        end_of_group: false,
        first_object: true,
    }
}
