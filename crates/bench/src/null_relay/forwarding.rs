//! Forwarding in the null relay: datagrams, streams, and queues of blocked streams.

use bytes::{Bytes, BytesMut};
use weir_client::send_queue::SendQueue;
use weir_client::turn::Turn;
use weir_moqt::data::{ObjectDatagram, ObjectHeader, SubgroupHeader};
use weir_moqt::draft::Draft;
use weir_moqt::error::ResetCode;
use weir_moqt::property::Properties;
use weir_moqt::session::{RequestId, StreamEnd};
use weir_quic::Handle;
use weir_transport::{Direction, StreamId, Transport as _, WriteError};

use super::NullRelay;
use crate::limits::NULL_RELAY_BACKLOG_BYTES_MAX;
use crate::message::{Completion, DATA_HEADER_BYTES, Message};

/// A publisher's stream and its copies.
#[derive(Debug)]
pub(super) struct Forwarded {
    header: SubgroupHeader,
    draft: Draft,
    previous: Option<u64>,
    copies: Vec<(Handle, StreamId)>,
}

impl NullRelay {
    fn loses(&self, group: u64) -> bool {
        let lost = self.faults.lose_groups;
        lost.is_some_and(|(from, to)| (from..=to).contains(&group))
    }

    pub(super) fn on_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        source: (Handle, RequestId),
        mut datagram: ObjectDatagram,
    ) {
        let number = self.upstream.get(&source).copied();
        let Some(number) = number.filter(|_| !self.loses(datagram.group)) else {
            return;
        };
        let draft = self
            .peers
            .get(&source.0)
            .map_or(Draft::KEPT, |peer| peer.session().draft());
        if self.faults.drop_properties {
            datagram.properties = Properties::EMPTY;
        }
        if let Some(objects_sent) = self.faults.forge_completion
            && let Ok(Message::Completion(completion)) =
                Message::decode(&datagram.payload, datagram.payload.len() as u64)
        {
            let forged = Completion {
                objects_sent,
                groups_sent: objects_sent,
                ..completion
            };
            datagram.payload = Bytes::copy_from_slice(&forged.encode());
        }
        let moved = self.faults.move_groups;
        if moved.is_some_and(|(from, to)| (from..=to).contains(&datagram.group)) {
            datagram.group += 1000;
        }
        datagram.track_alias = number as u64;
        let mut bytes = BytesMut::new();
        datagram.encode(draft, &mut bytes);
        let payload = bytes.len() - datagram.payload.len();
        let is_data = datagram.payload.len() > DATA_HEADER_BYTES;
        if self.faults.corrupt
            && let Some(byte) = bytes.last_mut().filter(|_| is_data)
        {
            *byte ^= 1;
        }
        if self.faults.garble
            && let Some(byte) = bytes.get_mut(payload)
        {
            *byte = 0x99;
        }
        let mut echo = None;
        if self.faults.echo_another_run {
            let mut other = bytes.clone();
            // The run's number follows the tag's four magic bytes.
            if let Some(byte) = other.get_mut(payload + DATA_HEADER_BYTES + 4) {
                *byte ^= 1;
                echo = Some(other.freeze());
            }
        }
        for bytes in std::iter::once(bytes.freeze()).chain(echo) {
            for (handle, _) in &self.tracks[number].subscribers {
                if let Some(mut connection) = turn.connection(*handle) {
                    // A datagram that is too large for the path, or does not fit the queue, is lost.
                    let _is_sent = connection.send_datagram(bytes.clone(), None);
                    turn.endpoint.fill_from(turn.now, *handle);
                }
            }
        }
    }

    pub(super) fn on_subgroup(
        &mut self,
        turn: &mut Turn<'_>,
        stream: (Handle, StreamId),
        (request, mut header): (RequestId, SubgroupHeader),
    ) {
        self.done.streams += 1;
        let Some(number) = self.upstream.get(&(stream.0, request)).copied() else {
            return;
        };
        let mut copies = Vec::new();
        if !self.loses(header.group) {
            for (handle, _) in &self.tracks[number].subscribers {
                let connection = turn.connection(*handle);
                match connection.and_then(|mut one| one.open(Direction::Uni)) {
                    Some(copy) => copies.push((*handle, copy)),
                    None => self.done.copies_given_up += 1,
                }
            }
        }
        let draft = self
            .peers
            .get(&stream.0)
            .map_or(Draft::KEPT, |peer| peer.session().draft());
        header.track_alias = number as u64;
        let mut bytes = BytesMut::new();
        header.encode(draft, &mut bytes);
        let forwarded = Forwarded {
            header,
            draft,
            previous: None,
            copies,
        };
        self.streams.insert(stream, forwarded);
        self.write(turn, stream, &bytes.freeze());
    }

    pub(super) fn on_object(
        &mut self,
        turn: &mut Turn<'_>,
        stream: (Handle, StreamId),
        mut object: ObjectHeader,
    ) {
        if self.faults.drop_properties {
            object.properties = Properties::EMPTY;
        }
        let Some(forwarded) = self.streams.get_mut(&stream) else {
            return;
        };
        if self.faults.reset_at == Some((forwarded.header.group, object.id)) {
            for (handle, copy) in std::mem::take(&mut forwarded.copies) {
                if let Some(mut connection) = turn.connection(handle) {
                    connection.reset(copy, ResetCode::CANCELLED.0);
                }
            }
        }
        let mut bytes = BytesMut::new();
        let has_properties = forwarded.header.has_properties;
        object.encode_in_subgroup(
            forwarded.previous,
            has_properties,
            forwarded.draft,
            &mut bytes,
        );
        forwarded.previous = Some(object.id);
        self.write(turn, stream, &bytes.freeze());
    }

    /// Writes to all copies of a publisher's stream. Bytes for blocked copies are queued.
    pub(super) fn write(&mut self, turn: &mut Turn<'_>, stream: (Handle, StreamId), bytes: &Bytes) {
        let Some(forwarded) = self.streams.get_mut(&stream) else {
            return;
        };
        let (backlogs, done) = (&mut self.backlogs, &mut self.done);
        forwarded.copies.retain(|copy| {
            let Some(mut connection) = turn.connection(copy.0) else {
                return false;
            };
            let mut rest = bytes.clone();
            if !backlogs.contains_key(copy) {
                match connection.write(copy.1, &mut rest) {
                    Ok(()) => return true,
                    Err(WriteError::Blocked) => {}
                    Err(WriteError::Stopped(_) | WriteError::Closed) => return false,
                }
            }
            let queue = || SendQueue::of_stream(copy.1);
            let backlog = backlogs.entry(*copy).or_insert_with(queue);
            backlog.push(rest, ());
            let is_too_much = backlog.waiting_bytes() > NULL_RELAY_BACKLOG_BYTES_MAX;
            if is_too_much {
                connection.reset(copy.1, ResetCode::TOO_FAR_BEHIND.0);
                backlogs.remove(copy);
                done.copies_given_up += 1;
            }
            !is_too_much
        });
    }

    /// Resumes a stream that was blocked.
    pub(super) fn on_writable(&mut self, turn: &mut Turn<'_>, copy: (Handle, StreamId)) {
        let Some(backlog) = self.backlogs.get_mut(&copy) else {
            return;
        };
        let Some(mut connection) = turn.connection(copy.0) else {
            return;
        };
        let flushed = backlog.flush(&mut connection, |()| {});
        if flushed.is_err() || backlog.is_empty() {
            self.backlogs.remove(&copy);
        }
    }

    pub(super) fn on_stream_end(
        &mut self,
        turn: &mut Turn<'_>,
        stream: (Handle, StreamId),
        end: StreamEnd,
    ) {
        let Some(forwarded) = self.streams.remove(&stream) else {
            return;
        };
        for copy in forwarded.copies {
            let Some(mut connection) = turn.connection(copy.0) else {
                continue;
            };
            match (end, self.backlogs.get_mut(&copy)) {
                (StreamEnd::Fin, Some(backlog)) => backlog.finish(),
                (StreamEnd::Fin, None) => connection.finish(copy.1),
                (StreamEnd::Reset(code), _) => {
                    connection.reset(copy.1, code.0);
                    self.backlogs.remove(&copy);
                }
            }
        }
    }
}
