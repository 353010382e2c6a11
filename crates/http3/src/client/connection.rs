//! One connection of a client, and its requests.

use std::{collections::BTreeMap, time::Instant};

use bytes::Bytes;
use weir_h3::{Code, Violation, peer_streams::Side};
use weir_quic::Handle;
use weir_transport::{Read, StreamId, Transport, WriteError};

use super::{
    figures::Failure,
    load::Load,
    response::{Fault, LastHead, Response},
};
use crate::{Limits, session::Session};

/// A connection to the server.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) handle: Handle,
    pub(super) stage: Stage,
    /// When its first packet was built.
    pub(super) begun: Instant,
    /// For a short connection: when its request was due.
    pub(super) planned: Instant,
    pub(super) session: Session,
    requests: BTreeMap<StreamId, Request>,
    /// The number of requests begun.
    issued: u64,
    /// The planned times of requests that must be sent again.
    pub(super) again: Vec<Instant>,
    /// Whether the server allows no more streams for now.
    pub(super) is_blocked: bool,
    /// Whether the server accepts no more requests on this connection.
    pub(super) is_leaving: bool,
    /// Whether the connection is in an open loop's list of those that can take a request.
    pub(super) is_listed: bool,
    pub(super) successes: u64,
    section_bytes_max: usize,
    last_head: LastHead,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Handshake,
    /// In its handshake, with requests as early data (0-RTT).
    Early,
    Open,
}

#[derive(Debug)]
struct Request {
    /// The place of its path in the load.
    path: usize,
    planned: Instant,
    /// The part of the request that the stream has not accepted.
    unsent: Option<Bytes>,
    response: Response,
}

/// The result of reading a request's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The request continues.
    Going,
    /// The request has succeeded.
    Success {
        /// The place of its path in the load.
        path: usize,
        planned: Instant,
        bytes: u64,
    },
    /// The request has failed.
    Failed {
        kind: Failure,
        /// Content received, in bytes.
        bytes: u64,
        /// The server's error code.
        code: Option<Code>,
        /// The status of the response, if the request failed because of it.
        status: Option<u16>,
    },
    /// The server violated HTTP/3, so the connection must be closed.
    Violation(Violation),
}

impl Connection {
    pub(super) fn new(handle: Handle, now: Instant, planned: Instant, limits: Limits) -> Self {
        let section_bytes_max = limits.field_section_bytes_max;
        Self {
            handle,
            stage: Stage::Handshake,
            begun: now,
            planned,
            session: Session::new(Side::Client, limits),
            requests: BTreeMap::new(),
            issued: 0,
            again: Vec::new(),
            is_blocked: false,
            is_leaving: false,
            is_listed: false,
            successes: 0,
            section_bytes_max,
            last_head: LastHead::new(section_bytes_max),
        }
    }

    /// Whether one more request may be sent.
    pub(super) fn has_room(&self, load: &Load) -> bool {
        let is_in_limit = load
            .requests_per_connection
            .is_none_or(|limit| self.issued < limit);
        self.stage != Stage::Handshake
            && is_in_limit
            && !self.is_blocked
            && !self.is_leaving
            && self.requests.len() < load.requests_at_once
    }

    /// Whether nothing is left to do on this connection.
    pub(super) fn is_done(&self, load: &Load) -> bool {
        let is_at_limit = load
            .requests_per_connection
            .is_some_and(|limit| self.issued >= limit);
        self.requests.is_empty() && (is_at_limit || self.is_leaving)
    }

    /// Whether the server blocks further requests and has none to answer.
    pub(super) fn is_stuck(&self) -> bool {
        self.stage == Stage::Open && self.is_blocked && self.requests.is_empty()
    }

    /// Whether no request was sent.
    pub(super) fn is_unused(&self) -> bool {
        self.issued == 0
    }

    /// Records a request that was written to `stream`, except for `unsent`.
    pub(super) fn begin(
        &mut self,
        stream: StreamId,
        path: usize,
        planned: Instant,
        unsent: Option<Bytes>,
    ) {
        self.issued += 1;
        let request = Request {
            path,
            planned,
            unsent,
            response: Response::new(self.section_bytes_max),
        };
        self.requests.insert(stream, request);
    }

    /// Forgets everything that was sent, and queues its requests in `again`. Returns their number.
    pub(super) fn begin_again(&mut self, limits: Limits) -> u64 {
        let requests = std::mem::take(&mut self.requests);
        let count = requests.len() as u64;
        self.issued -= count;
        self.again
            .extend(requests.into_values().map(|request| request.planned));
        self.session = Session::new(Side::Client, limits);
        self.is_blocked = false;
        count
    }

    /// Writes the rest of a request.
    pub(super) fn write(&mut self, transport: &mut dyn Transport, stream: StreamId) {
        let Some(request) = self.requests.get_mut(&stream) else {
            return;
        };
        if let Some(mut head) = request.unsent.take() {
            match transport.write(stream, &mut head) {
                Ok(()) => transport.finish(stream),
                Err(WriteError::Blocked) => request.unsent = Some(head),
                Err(WriteError::Stopped(_) | WriteError::Closed) => {}
            }
        }
    }

    /// Reads a response. `pieces` is a temporary buffer, empty before and after.
    pub(super) fn read(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        expected_bytes: Option<u64>,
        pieces: &mut Vec<Bytes>,
    ) -> Outcome {
        let Some(request) = self.requests.get_mut(&stream) else {
            return Outcome::Going;
        };
        let response = &mut request.response;
        let end = transport.read_all(stream, pieces);
        let last_head = &mut self.last_head;
        let pushed = pieces
            .drain(..)
            .try_for_each(|data| response.push(data, last_head));
        let (kind, code) = match (pushed, end) {
            (Err(Fault::Connection(violation)), _) => return Outcome::Violation(violation),
            (Err(Fault::Stream(kind, code)), _) => {
                transport.stop(stream, code.0);
                (kind, None)
            }
            (Ok(()), Read::Blocked | Read::Data(_)) => return Outcome::Going,
            (Ok(()), Read::Reset(code)) => (Failure::StreamReset, Some(Code(code))),
            (Ok(()), Read::Fin) => match response.finish(expected_bytes) {
                Ok(bytes) => {
                    let (path, planned) = (request.path, request.planned);
                    self.requests.remove(&stream);
                    return Outcome::Success {
                        path,
                        planned,
                        bytes,
                    };
                }
                Err(kind) => (kind, None),
            },
        };
        let bytes = response.received_bytes();
        let status = kind.is_of_status().then_some(response.status());
        self.requests.remove(&stream);
        Outcome::Failed {
            kind,
            bytes,
            code,
            status,
        }
    }

    /// Removes the requests from `stream` on. Returns the bytes of content that each had received.
    pub(super) fn refuse_from(&mut self, stream: StreamId) -> Vec<u64> {
        let refused = self.requests.split_off(&stream);
        received(refused)
    }

    /// Removes all requests. Returns the bytes of content that each had received.
    pub(super) fn fail_all(&mut self) -> Vec<u64> {
        received(std::mem::take(&mut self.requests))
    }
}

fn received(requests: BTreeMap<StreamId, Request>) -> Vec<u64> {
    requests
        .into_values()
        .map(|request| request.response.received_bytes())
        .collect()
}
