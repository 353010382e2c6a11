//! One stream of an origin: what waits for it, and what became of that.

use bytes::{Bytes, BytesMut};
use weir_client::send_queue::SendQueue;
use weir_moqt::data::{ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId};
use weir_moqt::draft::Draft;
use weir_moqt::error::ResetCode;
use weir_moqt::property::Properties;
use weir_transport::Transport;

use crate::strategy::StreamKey;

/// A stream with what waits for it.
#[derive(Debug)]
pub(super) struct SendStream {
    pub(super) queue: SendQueue,
    /// The group as it is on the wire, and what the strategy says of the stream.
    pub(super) order: SendOrder,
    previous: Option<u64>,
}

/// Where a stream belongs, and when it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendOrder {
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

impl SendStream {
    /// A stream that is yet to be opened.
    pub(super) fn new(order: SendOrder) -> Self {
        Self {
            queue: SendQueue::new(order.rank),
            order,
            previous: None,
        }
    }

    /// Puts an object behind what waits; the first one begins the stream.
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

    /// Sends nothing more of it.
    pub(super) fn give_up(&mut self, connection: &mut dyn Transport, code: ResetCode) {
        drop(self.queue.give_up(connection, code, ()));
    }

    /// It goes by another rank from now on.
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
