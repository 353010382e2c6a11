//! What makes a subscriber hard for a relay: reading now and then only, and coming and going.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_quic::Event;
use weir_transport::{Direction, StreamId};

use super::client::SubscriberClient;
use super::subscribers::Subscribers;
use crate::metrics::TrackReceiver;
use weir_report::relay::Conduct;

/// Data streams that slow readers leave unread for now. What QUIC lets the relay send meanwhile is what the
/// limits of flow control allow, and no event of a stream is kept twice, so nothing here grows beyond these.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// When they are read next.
    next: Option<Instant>,
    /// What happened on them, by client and stream.
    held: BTreeMap<(usize, StreamId), Happened>,
    /// The first data stream of each client; those before are control streams, which are always read.
    first: BTreeMap<usize, StreamId>,
}

/// What happened on a stream that is unread.
#[derive(Debug, Default)]
struct Happened {
    opened: Option<Event>,
    readable: Option<Event>,
}

impl Unread {
    /// Keeps an event of a data stream of client `number` until `pause` is over; others come back.
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

    /// When the streams are read next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Everything that was held back, in the order of clients and streams, if its time has come.
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

/// RFC 9000 §2.1: the second bit of a stream's number.
fn is_unidirectional(stream: StreamId) -> bool {
    stream.0 & 2 != 0
}

impl Subscribers {
    /// Whether client `number` leaves data streams unread.
    #[inline]
    pub(super) fn reads_slowly(&self, number: usize) -> bool {
        let client = &self.clients[number];
        client.conduct == Conduct::SlowReader && client.is_served()
    }

    /// When the next client leaves, and comes back.
    pub(super) fn next_leave(&self) -> Option<Instant> {
        self.next_leave
    }

    /// The client that leaves now, if one does. The turn goes round, and passes over those who have not come back
    /// yet and those whose tracks are over.
    pub(super) fn next_to_leave(&mut self, now: Instant) -> Option<usize> {
        let period = self.config.audience.churn_period()?;
        let at = self.next_leave.filter(|at| *at <= now)?;
        // A role that was late does not send a crowd away at once.
        self.next_leave = Some((at + period).max(now));
        let all = self.clients.len();
        let mut order = (0..all).map(|step| (self.leave_turn + step) % all);
        let number =
            order.find(|number| self.clients[*number].may_leave(&self.measured.receivers))?;
        self.leave_turn = number + 1;
        self.clients[number].leave();
        Some(number)
    }

    /// Lets clients begin to leave once all have joined.
    pub(super) fn note_joined(&mut self, now: Instant) {
        let have_joined = self.measured.progress.started == self.clients.len() as u64;
        if have_joined && self.next_leave.is_none() {
            let period = self.config.audience.churn_period();
            self.next_leave = period.map(|period| now + period);
        }
    }
}

impl SubscriberClient {
    /// Whether the relay has accepted a subscription in this session.
    #[inline]
    fn is_served(&self) -> bool {
        self.subscriptions.iter().any(|one| one.is_served)
    }

    fn may_leave(&self, receivers: &[TrackReceiver]) -> bool {
        let receivers = &receivers[self.first..][..self.subscriptions.len()];
        self.conduct == Conduct::Churning
            && !self.is_closed()
            && self.subscriptions.iter().all(|one| one.is_served)
            && receivers.iter().all(TrackReceiver::is_open)
    }

    /// The session ends; what was received stays.
    fn leave(&mut self) {
        self.requests.clear();
        self.streams.clear();
        self.discovery = None;
        for subscription in &mut self.subscriptions {
            subscription.leave();
        }
    }
}
