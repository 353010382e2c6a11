//! The objects from the peer: data streams and datagrams, and those that wait until their track alias is known.

use std::time::Instant;

use bytes::BytesMut;
use weir_transport::{StreamId, Transport};

use super::stream_state::{Owner, Stream};
use super::streams::EVENTS_AT_ONCE;
use super::track_aliases::Resolved;
use super::unknown_aliases::WaitingStream;
use super::{Event, RequestId, Session, StreamEnd};
use crate::data::{FetchHeader, ObjectDatagram, SubgroupHeader};
use crate::error::{DecodeError, ResetCode, Violation};
use crate::message::RequestKind;
use crate::reader::{FetchItem, SubgroupItem};

impl Session {
    /// Asks the peer to stop an inbound data stream; nothing more comes of it.
    pub fn stop_data(&mut self, transport: &mut dyn Transport, stream: StreamId, code: ResetCode) {
        if !matches!(
            self.streams.get(&stream),
            Some(Stream::Subgroup(_) | Stream::Fetch(_))
        ) {
            return;
        }
        transport.stop(stream, code.0);
        if let Some(Stream::Fetch(fetch)) = self.forget_stream(stream)
            && let Some(request) = fetch.request
        {
            self.fetches.remove(request);
        }
    }

    /// Stops reading the stream of an own fetch, so that flow control slows the peer down. Data read before still
    /// comes as events.
    pub fn pause_data(&mut self, stream: StreamId) {
        if let Some(Stream::Fetch(fetch)) = self.streams.get_mut(&stream) {
            fetch.is_paused = true;
        }
    }

    /// Resumes reading the stream of an own fetch, beginning with the data that came meanwhile.
    pub fn resume_data(&mut self, now: Instant, transport: &mut dyn Transport, stream: StreamId) {
        if let Some(Stream::Fetch(fetch)) = self.streams.get_mut(&stream) {
            fetch.is_paused = false;
            self.handle_readable(now, transport, stream);
        }
    }

    /// Reports the header, objects and payload that a subgroup stream has received, until many events wait for the role.
    pub(super) fn poll_subgroup(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), DecodeError> {
        while let Some(Stream::Subgroup(subgroup)) = self.streams.get_mut(&stream)
            && !matches!(subgroup.owner, Owner::Waiting(_))
        {
            let header = loop {
                if self.events.len() >= EVENTS_AT_ONCE {
                    return Ok(());
                }
                match subgroup.reader.poll()? {
                    Some(SubgroupItem::Object(object)) => {
                        self.events.push_back(Event::Object { stream, object });
                    }
                    Some(SubgroupItem::Payload(data)) => {
                        self.events.push_back(Event::Payload { stream, data });
                    }
                    Some(SubgroupItem::Header(header)) => break header,
                    None => return Ok(()),
                }
            };
            self.on_subgroup_header(now, transport, stream, header);
        }
        Ok(())
    }

    /// Reports the header, objects and payload that a fetch stream has received, until many events wait for the role.
    pub(super) fn poll_fetch(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), DecodeError> {
        while let Some(Stream::Fetch(fetch)) = self.streams.get_mut(&stream) {
            let header = loop {
                if self.events.len() >= EVENTS_AT_ONCE {
                    return Ok(());
                }
                match fetch.reader.poll()? {
                    Some(FetchItem::Entry(entry)) => {
                        self.events.push_back(Event::FetchObject { stream, entry });
                    }
                    Some(FetchItem::Payload(data)) => {
                        self.events.push_back(Event::Payload { stream, data });
                    }
                    Some(FetchItem::Header(header)) => break header,
                    None => return Ok(()),
                }
            };
            self.on_fetch_header(transport, stream, header)?;
        }
        Ok(())
    }

    /// Handles the end of a data stream.
    pub(super) fn on_data_end(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        end: StreamEnd,
    ) -> Result<(), DecodeError> {
        let (has_owner, fetched) = match self.forget_stream(stream) {
            Some(Stream::Subgroup(subgroup)) => {
                if end == StreamEnd::Fin {
                    subgroup.reader.fin()?;
                }
                (matches!(subgroup.owner, Owner::Request(_)), None)
            }
            Some(Stream::Fetch(fetch)) => {
                if end == StreamEnd::Fin {
                    fetch.reader.fin()?;
                }
                (fetch.request.is_some(), fetch.request)
            }
            Some(
                Stream::Typeless(_)
                | Stream::Control
                | Stream::Opening(_)
                | Stream::Request(_)
                | Stream::Padding,
            )
            | None => (false, None),
        };
        if has_owner {
            self.events.push_back(Event::StreamEnd { stream, end });
        } else if end != StreamEnd::Fin {
            self.counters.streams_reset_early += 1;
        }
        if let Some(request) = fetched {
            self.fetches.remove(request);
            self.finish_fetched(transport, request);
        }
        Ok(())
    }

    /// Finds the subscription of an alias. While an own subscription is not answered, a retired
    /// alias counts as unknown: the answer may use it again.
    pub(super) fn resolve(&self, alias: u64) -> Resolved {
        match self.aliases.resolve(alias) {
            Resolved::Retired if self.requests.is_awaiting_alias() => Resolved::Unknown,
            resolved @ (Resolved::Live(_) | Resolved::Retired | Resolved::Unknown) => resolved,
        }
    }

    /// Keeps a datagram until its alias is known, copied out of its receive buffer.
    pub(super) fn hold_datagram(&mut self, now: Instant, datagram: &ObjectDatagram) {
        let mut copy = BytesMut::new();
        datagram.encode(self.draft, &mut copy);
        let alias = datagram.track_alias;
        let dropped = self
            .unknown_aliases
            .hold_datagram(now, alias, copy.freeze(), &self.limits);
        self.counters.datagrams_unknown_over_limit += dropped.over_count;
        self.counters.datagrams_unknown_over_bytes += dropped.over_bytes;
    }

    /// Delivers the objects that waited for an alias.
    pub(super) fn deliver_waiting(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        alias: u64,
        request: RequestId,
    ) -> Result<(), DecodeError> {
        for data in self.unknown_aliases.take_datagrams(alias) {
            if let Some(datagram) = ObjectDatagram::decode(self.draft, data)? {
                self.events.push_back(Event::Datagram { request, datagram });
            }
        }
        for stream in self.unknown_aliases.take_streams(alias) {
            if let Some(Stream::Subgroup(subgroup)) = self.streams.get_mut(&stream)
                && let Owner::Waiting(header) = subgroup.owner
            {
                subgroup.owner = Owner::Request(request);
                self.data_streams.insert((request, stream));
                self.events.push_back(Event::Subgroup {
                    stream,
                    request,
                    header,
                });
                self.read(now, transport, stream)?;
            }
        }
        Ok(())
    }

    /// Drops the objects that waited for an alias whose request was refused.
    pub(super) fn drop_waiting(&mut self, transport: &mut dyn Transport, alias: u64) {
        self.counters.datagrams_late += self.unknown_aliases.take_datagrams(alias).len() as u64;
        for stream in self.unknown_aliases.take_streams(alias) {
            self.counters.streams_late += 1;
            self.stop_data(transport, stream, ResetCode::CANCELLED);
        }
    }

    /// Stops all data streams of a request.
    pub(super) fn stop_data_of(
        &mut self,
        transport: &mut dyn Transport,
        request: RequestId,
        code: ResetCode,
    ) {
        self.fetches.remove(request);
        let from = (request, StreamId(0));
        let of_request = self
            .data_streams
            .range(from..=(request, StreamId(u64::MAX)));
        for (_, stream) in of_request.copied().collect::<Vec<_>>() {
            self.stop_data(transport, stream, code);
        }
    }

    fn on_subgroup_header(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
        header: SubgroupHeader,
    ) {
        let owner = match self.resolve(header.track_alias) {
            Resolved::Live(request) => {
                self.events.push_back(Event::Subgroup {
                    stream,
                    request,
                    header,
                });
                self.data_streams.insert((request, stream));
                Owner::Request(request)
            }
            Resolved::Retired => {
                self.counters.streams_late += 1;
                return self.stop_data(transport, stream, ResetCode::CANCELLED);
            }
            Resolved::Unknown => {
                let until = now + self.limits.unknown_alias_timeout;
                let waiting = WaitingStream {
                    until,
                    stream,
                    alias: header.track_alias,
                };
                if !self.unknown_aliases.hold_stream(waiting, &self.limits) {
                    self.counters.streams_unknown_over_limit += 1;
                    return self.stop_data(transport, stream, ResetCode::EXCESSIVE_LOAD);
                }
                Owner::Waiting(header)
            }
        };
        if let Some(Stream::Subgroup(subgroup)) = self.streams.get_mut(&stream) {
            subgroup.owner = owner;
            if matches!(owner, Owner::Waiting(_)) {
                subgroup.reader.detach();
            }
        }
    }

    fn on_fetch_header(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        header: FetchHeader,
    ) -> Result<(), Violation> {
        let mut request = RequestId(header.request_id);
        // A stream that overtakes its PUBLISH is stopped below.
        let may_be_of_publish = self.fills_tracks;
        if !self.ids.is_assigned(request) && !may_be_of_publish {
            return Err(Violation::protocol(
                "a fetch stream refers to a request that was not sent",
            ));
        }
        let known = self.requests.get(request);
        let is_fetch = known.is_none_or(|request| request.kind == RequestKind::Fetch);
        if !self.draft.has_joining_fetches() && !self.fetches.contains(request) {
            request = request.fill();
        } else if !is_fetch {
            return Err(Violation::protocol(
                "a fetch stream refers to a request that is not a FETCH",
            ));
        }
        let Some(order) = self.fetches.open(request)? else {
            self.counters.streams_late += 1;
            self.stop_data(transport, stream, ResetCode::CANCELLED);
            return Ok(());
        };
        if let Some(Stream::Fetch(fetch)) = self.streams.get_mut(&stream) {
            fetch.reader.set_group_order(order);
            fetch.request = Some(request);
            self.data_streams.insert((request, stream));
        }
        self.events.push_back(Event::Fetched { stream, request });
        Ok(())
    }
}
