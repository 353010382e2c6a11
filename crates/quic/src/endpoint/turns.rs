//! Turns: connections that may have events, in the order in which they are asked for some, and how many events a host
//! passes on at once.

use std::{collections::VecDeque, time::Instant};

use super::{Endpoint, events::EVENTS_AT_ONCE};
use crate::App;

/// Connections that wait for their turn, each at most once. Those whose events did not fit into one turn wait until the others
/// have had theirs.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    fresh: VecDeque<u32>,
    busy: VecDeque<u32>,
    /// Number of turns so far.
    count: u64,
    /// Whether the role, or a layer, has left work for later.
    has_left: bool,
    /// Packets in the outbox, and connections that have some to send, when the role began.
    begun: (usize, usize),
}

impl Turns {
    pub(super) fn push(&mut self, index: u32) {
        self.fresh.push_back(index);
    }

    /// Adds a connection that may have more events after its turn.
    pub(crate) fn push_busy(&mut self, index: u32) {
        self.busy.push_back(index);
    }

    /// Takes the connection whose turn it is.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.count += 1;
        let (first, second) = if self.count.is_multiple_of(BUSY_EVERY) {
            (&mut self.busy, &mut self.fresh)
        } else {
            (&mut self.fresh, &mut self.busy)
        };
        first.pop_front().or_else(|| second.pop_front())
    }

    /// Notes that the role, or a layer, has left work for later, such as data of a stream: it has done enough for now.
    pub(crate) fn note_left(&mut self) {
        self.has_left = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.busy.is_empty()
    }
}

impl Endpoint {
    /// Begins to observe how much the role does.
    pub fn begin(&mut self) {
        self.active.has_left = false;
        self.active.begun = (self.outbox.len(), self.dirty.len());
    }

    /// Returns whether the role has done so much since [`begin`](Self::begin) that the host has to look at the clock: it has
    /// written to many connections, or has left work for later.
    pub fn has_done_enough(&self) -> bool {
        let (packets, connections) = self.active.begun;
        let has_filled = self.outbox.len() >= packets + PACKETS_AT_ONCE || self.outbox.is_full();
        has_filled || self.dirty.len() >= connections + PACKETS_AT_ONCE || self.active.has_left
    }

    /// Notes that the role has done enough for now, for reasons that only it knows.
    pub fn note_enough(&mut self) {
        self.active.note_left();
    }

    /// Passes events to the role: a few, or one that many packets answer, such as an object to a hundred subscribers, or of
    /// which the role has left data for later. A host looks at the clock before it passes on more. Returns whether there may
    /// be more.
    pub fn pass_events(&mut self, now: Instant, app: &mut (impl App + ?Sized)) -> bool {
        self.begin();
        let mut collected = 0;
        for _ in 0..EVENTS_AT_ONCE {
            let event = loop {
                if let Some(event) = self.events.pop_front() {
                    break event;
                }
                if self.active.has_left || collected == COLLECTED_AT_ONCE {
                    return true;
                }
                collected += 1;
                if !self.collect_next() {
                    return false;
                }
            };
            app.handle_event(now, self, event);
            if self.has_done_enough() {
                break;
            }
        }
        self.has_events()
    }
}

/// Packets that answer the events of one call, or connections that have some to send, from which on it passes on no more.
const PACKETS_AT_ONCE: usize = 64;
/// Connections that are asked for events in one call. They may have none for the role, which costs all the same.
const COLLECTED_AT_ONCE: usize = 32;
/// Every eighth turn is a busy connection's, so that the others do not hold it up for ever.
const BUSY_EVERY: u64 = 8;
