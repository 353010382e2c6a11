//! Slow readers: subscribers that read their data streams only from time to time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_quic::Event;
use weir_transport::{Direction, StreamId};

use super::client::SubscriberClient;
use super::subscribers::Subscribers;
use super::subscription::Subscription;
use weir_report::relay::Conduct;

/// Data streams that slow readers leave unread. Flow control limits what the relay sends meanwhile, and each event of a
/// stream is stored once, so the memory is bounded.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// When the streams are read next.
    next: Option<Instant>,
    /// Pending events by client and stream.
    held: BTreeMap<(usize, StreamId), Happened>,
    /// The first data stream of each client. Earlier streams are control streams, which are always read.
    first: BTreeMap<usize, StreamId>,
}

/// Pending events of a stream.
#[derive(Debug, Default)]
struct Happened {
    opened: Option<Event>,
    readable: Option<Event>,
}

impl Unread {
    /// Holds an event of a data stream of client `number` until `pause` is over. Returns other events.
    pub(super) fn hold(
        &mut self,
        now: Instant,
        pause: Duration,
        number: usize,
        event: Event,
    ) -> Option<Event> {
        let (stream, is_opened) = match &event {
            Event::Opened {
                stream,
                direction: Direction::Uni,
                ..
            } => {
                self.first.entry(number).or_insert(*stream);
                (*stream, true)
            }
            Event::Readable { stream, .. } => (*stream, false),
            Event::Connected { .. }
            | Event::Lost { .. }
            | Event::Opened { .. }
            | Event::Writable { .. }
            | Event::Stopped { .. }
            | Event::Finished { .. }
            | Event::StreamsAvailable { .. }
            | Event::Datagram { .. } => return Some(event),
        };
        let is_data = is_unidirectional(stream)
            && self
                .first
                .get(&number)
                .is_some_and(|first| *first <= stream);
        if !is_data {
            return Some(event);
        }
        self.next.get_or_insert(now + pause);
        let happened = self.held.entry((number, stream)).or_default();
        if is_opened {
            happened.opened = Some(event);
        } else {
            happened.readable = Some(event);
        }
        None
    }

    /// Returns when the streams are read next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Returns all held events, in order of clients and streams, if their time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(usize, Event)> {
        if self.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        self.next = None;
        let held = std::mem::take(&mut self.held);
        held.into_iter()
            .flat_map(|((number, _), happened)| {
                let events = happened.opened.into_iter().chain(happened.readable);
                events.map(move |event| (number, event))
            })
            .collect()
    }
}

/// Whether a stream is unidirectional, by the second bit of its ID (RFC 9000 §2.1).
fn is_unidirectional(stream: StreamId) -> bool {
    stream.0 & 2 != 0
}

impl Subscribers {
    /// Whether client `number` is a slow reader.
    #[inline]
    pub(super) fn reads_slowly(&self, number: usize) -> bool {
        let client = &self.clients[number];
        client.conduct == Conduct::SlowReader && client.is_served()
    }
}

impl SubscriberClient {
    /// Whether the relay has accepted a subscription in this session.
    #[inline]
    fn is_served(&self) -> bool {
        self.subscriptions.iter().any(Subscription::is_served)
    }
}
