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
    /// Whether the role, or a layer, has left data of a stream for later.
    has_unread: bool,
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

    /// Notes that the role, or a layer, has left data of a stream for later: it has done enough for now.
    pub(crate) fn note_unread(&mut self) {
        self.has_unread = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.busy.is_empty()
    }
}

impl Endpoint {
    /// Passes events to the role: a few, or one that many packets answer, such as an object to a hundred subscribers, or of
    /// which the role has left data for later. A host looks at the clock before it passes on more. Returns whether there may
    /// be more.
    pub fn pass_events(&mut self, now: Instant, app: &mut (impl App + ?Sized)) -> bool {
        let packets = self.outbox.len();
        self.active.has_unread = false;
        for _ in 0..EVENTS_AT_ONCE {
            let event = loop {
                if let Some(event) = self.events.pop_front() {
                    break event;
                }
                if self.active.has_unread {
                    return true;
                }
                if !self.collect_next() {
                    return false;
                }
            };
            app.handle_event(now, self, event);
            let has_filled = self.outbox.len() >= packets + PACKETS_AT_ONCE;
            if has_filled || self.outbox.is_full() || self.active.has_unread {
                break;
            }
        }
        self.has_events()
    }
}

/// Packets that answer the events of one call, from which on it passes on no more.
const PACKETS_AT_ONCE: usize = 64;
/// Every eighth turn is a busy connection's, so that the others do not hold it up for ever.
const BUSY_EVERY: u64 = 8;
