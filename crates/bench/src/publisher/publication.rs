//! One track at one publisher: its schedule, its subscription, its streams.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use weir_moqt::data::{ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId};
use weir_moqt::draft::Draft;
use weir_moqt::error::ResetCode;
use weir_moqt::location::Location;
use weir_moqt::name::FullTrackName;
use weir_moqt::property::Properties;
use weir_moqt::session::RequestId;
use weir_quic::{Connection, SendDatagramError};
use weir_transport::{StreamId, Transport};

use super::outgoing::Outgoing;
use crate::limits::STREAMS_PER_TRACK_MAX;
use crate::message::COMPLETION_BYTES;
use crate::metrics::{Refusal, TrackPlan, TrackSender};
use crate::profile::{StreamMapping, TrackMode};
use crate::qperf::{self, BitRates, Totals, Wire};
use crate::schedule::{Cursor, DataItem, Item, ItemKind};

/// A track that a publisher sends.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) plan: usize,
    pub(super) name: FullTrackName,
    pub(super) alias: u64,
    pub(super) sender: TrackSender,
    subscription: Subscription,
    cursor: Cursor,
    largest: Option<Location>,
    /// Open streams by MOQT group and subgroup, oldest first.
    streams: VecDeque<((u64, u64), Outgoing)>,
    streams_opened: u64,
    /// Whether the relay fetches objects, instead of their being sent by the schedule.
    is_fetched: bool,
    progress: Progress,
}

/// The relay's subscription to a track [moqt-18 §5.1].
#[derive(Clone, Copy, Debug)]
enum Subscription {
    /// There is no subscription.
    None,
    /// PUBLISH was sent and has no response.
    Offered { request: RequestId, forward: bool },
    /// The relay's SUBSCRIBE or the publisher's PUBLISH was accepted. `forward` says whether the relay wants objects.
    Established { request: RequestId, forward: bool },
}

/// The progress of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Items remain, or the end is not announced.
    Going,
    /// The relay was notified of the end.
    Done,
    /// The connection was lost before the relay was notified of the end.
    CutOff,
}

impl Publication {
    pub(super) fn new(plan: usize, name: FullTrackName, alias: u64, is_fetched: bool) -> Self {
        Self {
            plan,
            name,
            alias,
            sender: TrackSender::default(),
            subscription: Subscription::None,
            cursor: Cursor::default(),
            largest: None,
            streams: VecDeque::new(),
            streams_opened: 0,
            is_fetched,
            progress: Progress::Going,
        }
    }

    /// PUBLISH was sent.
    pub(super) fn on_offered(&mut self, request: RequestId) {
        self.subscription = Subscription::Offered {
            request,
            forward: false,
        };
    }

    /// The relay's SUBSCRIBE was accepted.
    pub(super) fn on_subscribed(&mut self, request: RequestId, forward: bool) {
        self.subscription = Subscription::Established { request, forward };
    }

    /// The relay accepted the PUBLISH.
    pub(super) fn on_established(&mut self, forward: bool) {
        if let Some(request) = self.request() {
            self.subscription = Subscription::Established { request, forward };
        }
    }

    /// Applies the relay's request to send objects or to pause. A pause resets open streams, since their ends may not
    /// be sent [moqt-18 §11.4.3]. Returns whether the state changed.
    pub(super) fn on_forward(&mut self, transport: &mut dyn Transport, forward: bool) -> bool {
        let is_change = match &mut self.subscription {
            Subscription::None => false,
            Subscription::Offered { forward: now, .. }
            | Subscription::Established { forward: now, .. } => {
                std::mem::replace(now, forward) != forward
            }
        };
        if is_change && !forward {
            self.cancel_streams(transport);
        }
        is_change
    }

    /// Ends the subscription, on behalf of the relay or the publisher.
    pub(super) fn on_unsubscribed(&mut self, transport: &mut dyn Transport) {
        self.subscription = Subscription::None;
        self.cancel_streams(transport);
    }

    /// Resets the open streams, the rest of which is not wanted.
    fn cancel_streams(&mut self, transport: &mut dyn Transport) {
        for (_, outgoing) in &mut self.streams {
            let code = ResetCode::CANCELLED;
            outgoing.give_up(transport, &mut self.sender, Refusal::NotForwarded, code);
        }
        self.streams.clear();
    }

    /// Notes that the session has ended. The next one may continue the track.
    pub(super) fn on_session_end(&mut self) {
        self.subscription = Subscription::None;
        for (_, outgoing) in &mut self.streams {
            outgoing.abandon(&mut self.sender, Refusal::Disconnected);
        }
        self.streams.clear();
    }

    /// Notes that the connection was lost, and that none follows.
    pub(super) fn on_disconnected(&mut self) {
        self.on_session_end();
        if self.progress == Progress::Going {
            self.progress = Progress::CutOff;
        }
    }

    pub(super) fn request(&self) -> Option<RequestId> {
        match self.subscription {
            Subscription::None => None,
            Subscription::Offered { request, .. } | Subscription::Established { request, .. } => {
                Some(request)
            }
        }
    }

    /// Whether the relay accepts objects.
    pub(super) fn is_served(&self) -> bool {
        let is_wanted = matches!(
            self.subscription,
            Subscription::Established { forward: true, .. }
        );
        self.is_fetched || is_wanted
    }

    /// Whether objects are fetched instead of sent by the schedule.
    pub(super) fn is_fetched(&self) -> bool {
        self.is_fetched
    }

    /// Whether the relay was notified of the end, or cannot be.
    pub(super) fn is_done(&self) -> bool {
        self.progress != Progress::Going
    }

    /// Whether the connection was lost before the relay was notified of the end.
    pub(super) fn is_cut_off(&self) -> bool {
        self.progress == Progress::CutOff
    }

    /// Returns the largest location published so far.
    pub(super) fn largest(&self) -> Option<Location> {
        self.largest
    }

    /// Returns when the next item is due, since the release; `None` if all were sent.
    pub(super) fn next_at(&self, plan: &TrackPlan) -> Option<Duration> {
        if self.is_fetched {
            // A fetched track stays available for the time that its schedule would take.
            return (!self.cursor.is_at_end()).then(|| plan.schedule().end());
        }
        self.cursor.next_at(plan.schedule())
    }

    /// Sends the next item if it is due, or counts why it was not sent. `released` is when the schedule began. Returns
    /// whether an item was due.
    pub(super) fn send_due(
        &mut self,
        now: Instant,
        released: Instant,
        plan: &TrackPlan,
        connection: Option<(Draft, &mut Connection<'_>)>,
        buffer: &mut BytesMut,
    ) -> bool {
        if self.awaits_streams(plan) {
            return false;
        }
        let elapsed = now.saturating_duration_since(released);
        if self.is_fetched {
            if elapsed >= plan.schedule().end() {
                self.cursor.end();
            }
            return false;
        }
        let Some(item) = self.cursor.take_due(plan.schedule(), elapsed) else {
            return false;
        };
        let Some((draft, connection)) = connection else {
            self.refuse(&item, Refusal::Disconnected);
            return true;
        };
        if !self.is_served() {
            self.refuse(&item, Refusal::NotForwarded);
            return true;
        }
        let at = Turn {
            now,
            planned: released + item.at,
            draft,
        };
        match plan.track_mode() {
            TrackMode::Datagram => self.send_datagram(at, plan, connection, buffer, &item),
            TrackMode::Stream => self.send_on_stream(at, plan, connection, buffer, &item),
        }
        self.largest = Some(Location {
            group: item.group,
            object: item.object,
        });
        true
    }

    /// Whether COMPLETION is next and must wait: until all objects have left their queues, their count is unknown.
    /// Their time to live bounds the wait.
    pub(super) fn awaits_streams(&self, plan: &TrackPlan) -> bool {
        let waits = |(_, outgoing): &((u64, u64), Outgoing)| !outgoing.queue.is_empty();
        self.cursor.awaits_completion(plan.schedule()) && self.streams.iter().any(waits)
    }

    /// Resumes streams that were blocked.
    pub(super) fn flush(&mut self, now: Instant, transport: &mut dyn Transport) {
        for (_, outgoing) in &mut self.streams {
            outgoing.flush(now, transport, &mut self.sender);
        }
        self.streams
            .retain(|(_, outgoing)| !outgoing.queue.is_over());
    }

    /// Handles the relay's `STOP_SENDING`. Returns whether the stream belongs to this track.
    pub(super) fn handle_stopped(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> bool {
        let found = self
            .streams
            .iter_mut()
            .find(|(_, outgoing)| outgoing.queue.stream() == Some(stream));
        let Some((_, outgoing)) = found else {
            return false;
        };
        let code = ResetCode::CANCELLED;
        outgoing.give_up(transport, &mut self.sender, Refusal::Stopped, code);
        true
    }

    /// Whether everything was sent and the streams are closed, so that the end can be announced.
    pub(super) fn is_ready_to_end(&self, plan: &TrackPlan) -> bool {
        !self.is_done() && self.next_at(plan).is_none() && self.streams.is_empty()
    }

    /// Notes that the end was announced, or has nobody to be announced to.
    pub(super) fn on_done(&mut self) {
        self.progress = Progress::Done;
    }

    /// Returns the number of data streams opened so far, for `PUBLISH_DONE`.
    pub(super) fn streams_opened(&self) -> u64 {
        self.streams_opened
    }

    fn send_datagram(
        &mut self,
        at: Turn,
        plan: &TrackPlan,
        connection: &mut Connection<'_>,
        buffer: &mut BytesMut,
        item: &Item,
    ) {
        self.write_payload(at, plan, item, buffer);
        let datagram = ObjectDatagram {
            track_alias: self.alias,
            group: item.group,
            object: item.object,
            priority: Some(plan.priority()),
            end_of_group: ends_group(item),
            properties: properties_of(plan, item),
            status: ObjectStatus::Normal,
            payload: buffer.split().freeze(),
        };
        datagram.encode(at.draft, buffer);
        let deadline = at.now + plan.ttl();
        match connection.send_datagram(buffer.split().freeze(), Some(deadline)) {
            Ok(()) => match item.kind {
                ItemKind::Data(data) => self.sender.on_sent(at.now, at.planned, &data),
                ItemKind::Start => self.sender.on_start(),
                ItemKind::Completion { .. } => {}
            },
            Err(SendDatagramError::TooLarge(_) | SendDatagramError::Unsupported) => {
                self.refuse(item, Refusal::TooLarge);
            }
        }
    }

    fn send_on_stream(
        &mut self,
        at: Turn,
        plan: &TrackPlan,
        transport: &mut dyn Transport,
        buffer: &mut BytesMut,
        item: &Item,
    ) {
        let place = (item.group, subgroup_of(plan, item));
        if self.stream_at(place).is_none() {
            self.open_stream(at, plan, transport, buffer, item, place);
        }
        let (payload_len, data) = describe(plan, item, at.planned);
        let Some(stream) = self.stream_at(place) else {
            return;
        };
        match self.streams[stream].1.check_room(payload_len) {
            Ok(()) => {
                let properties = properties_of(plan, item);
                let has_properties = !properties.is_empty();
                let header = ObjectHeader {
                    id: item.object,
                    properties,
                    status: ObjectStatus::Normal,
                    payload_len: payload_len as u64,
                };
                let previous = self.streams[stream].1.previous;
                header.encode_in_subgroup(previous, has_properties, at.draft, buffer);
                self.write_payload(at, plan, item, buffer);
                let bytes = buffer.split().freeze();
                let deadline = at.now + plan.ttl();
                self.streams[stream]
                    .1
                    .push(item.object, bytes, deadline, data);
                if item.kind == ItemKind::Start {
                    self.sender.on_start();
                }
            }
            Err(reason) => {
                buffer.clear();
                self.refuse(item, reason);
            }
        }
        if plan.stream_mapping() == StreamMapping::SubgroupPerObject || ends_group(item) {
            let ends = |one: &&mut ((u64, u64), Outgoing)| one.0.0 == item.group;
            for (_, outgoing) in self.streams.iter_mut().filter(ends) {
                outgoing.queue.finish();
            }
        }
        self.flush(at.now, transport);
    }

    /// Returns the index of an open stream. Searches from the newest.
    fn stream_at(&self, place: (u64, u64)) -> Option<usize> {
        self.streams.iter().rposition(|(one, _)| *one == place)
    }

    /// Opens the stream of the item's subgroup. Its header is sent with the first object.
    fn open_stream(
        &mut self,
        at: Turn,
        plan: &TrackPlan,
        transport: &mut dyn Transport,
        buffer: &mut BytesMut,
        item: &Item,
        place: (u64, u64),
    ) {
        if self.streams.len() >= STREAMS_PER_TRACK_MAX
            && let Some((_, mut oldest)) = self.streams.pop_front()
        {
            let code = ResetCode::DELIVERY_TIMEOUT;
            oldest.give_up(transport, &mut self.sender, Refusal::QueueFull, code);
        }
        let (group, subgroup) = place;
        let header = SubgroupHeader {
            track_alias: self.alias,
            group,
            subgroup: match subgroup {
                0 => SubgroupId::Zero,
                subgroup => SubgroupId::Explicit(subgroup),
            },
            priority: Some(plan.priority()),
            has_properties: !properties_of(plan, item).is_empty(),
            end_of_group: ends_group_on(plan, item, subgroup),
            // A subgroup has the number of its first object.
            first_object: item.object == subgroup,
        };
        buffer.clear();
        header.encode(at.draft, buffer);
        self.streams_opened += 1;
        self.streams
            .push_back((place, Outgoing::new(-i32::from(plan.priority()))));
    }

    fn write_payload(&self, at: Turn, plan: &TrackPlan, item: &Item, buffer: &mut BytesMut) {
        if plan.wire() == Wire::Qperf {
            return self.write_qperf(at, plan, item, buffer);
        }
        match item.kind {
            ItemKind::Start => {
                buffer.extend_from_slice(&plan.schedule().start_message().encode());
            }
            ItemKind::Data(data) => {
                let header = self.sender.header(at.now, &data);
                let tag = TrackSender::tag(at.now, at.planned, &data, plan.run_id(), plan.clock());
                plan.content().write_object(&header, &tag, buffer);
            }
            ItemKind::Completion { .. } => {
                buffer.extend_from_slice(&self.sender.completion().encode());
            }
        }
    }

    /// Writes the item as qperf would send it.
    fn write_qperf(&self, at: Turn, plan: &TrackPlan, item: &Item, buffer: &mut BytesMut) {
        let sent_us = plan.clock().ns(at.now) / 1000;
        match item.kind {
            ItemKind::Start => {}
            ItemKind::Data(data) => {
                qperf::write_data(sent_us, data.size.bytes(), buffer);
            }
            ItemKind::Completion { .. } => {
                let (sender, schedule) = (&self.sender, plan.schedule());
                let objects = sender.totals().objects;
                let first_us = sender
                    .first_sent()
                    .map(|first| plan.clock().ns(first) / 1000);
                let totals = Totals {
                    first_us: first_us.unwrap_or(sent_us),
                    objects,
                    dropped: sender.refusals().total(),
                    bytes: schedule.bytes_of(objects),
                    rates: BitRates::of(schedule),
                };
                qperf::write_complete(sent_us, &totals, buffer);
            }
        }
    }

    fn refuse(&mut self, item: &Item, reason: Refusal) {
        match item.kind {
            ItemKind::Data(_) => self.sender.on_refused(reason),
            ItemKind::Start | ItemKind::Completion { .. } => {}
        }
    }
}

/// The values that are constant while one item is sent.
#[derive(Clone, Copy, Debug)]
struct Turn {
    now: Instant,
    planned: Instant,
    draft: Draft,
}

/// Returns the item's size, and what to count when it has left.
fn describe(
    plan: &TrackPlan,
    item: &Item,
    planned: Instant,
) -> (usize, Option<(DataItem, Instant)>) {
    match item.kind {
        ItemKind::Start => (plan.schedule().start_message().encode().len(), None),
        ItemKind::Data(data) => (data.size.bytes() as usize, Some((data, planned))),
        ItemKind::Completion { .. } => match plan.wire() {
            Wire::Draft => (COMPLETION_BYTES, None),
            Wire::Qperf => (qperf::COMPLETE_BYTES, None),
        },
    }
}

/// Returns the extension headers of an item. START and COMPLETION have none.
pub(super) fn properties_of(plan: &TrackPlan, item: &Item) -> Properties {
    match item.kind {
        ItemKind::Data(_) => plan.properties().clone(),
        ItemKind::Start | ItemKind::Completion { .. } => Properties::EMPTY,
    }
}

/// Returns the subgroup of an item. START and COMPLETION have a subgroup of their own.
fn subgroup_of(plan: &TrackPlan, item: &Item) -> u64 {
    match item.kind {
        ItemKind::Data(data) => plan.stream_mapping().subgroup_of(data.object_number),
        ItemKind::Start | ItemKind::Completion { .. } => 0,
    }
}

/// Whether the item's group ends in `subgroup`.
fn ends_group_on(plan: &TrackPlan, item: &Item, subgroup: u64) -> bool {
    match item.kind {
        ItemKind::Data(data) => {
            let objects = plan.schedule().objects_in_group(data.group_number);
            plan.stream_mapping().subgroup_of(objects.saturating_sub(1)) == subgroup
        }
        ItemKind::Start | ItemKind::Completion { .. } => true,
    }
}

/// Whether the item is the last of its group.
fn ends_group(item: &Item) -> bool {
    match item.kind {
        ItemKind::Start => true,
        ItemKind::Data(data) => data.last_in_group,
        ItemKind::Completion { last } => last,
    }
}
