//! The other endpoints of this process that share the address, each on a thread of its own.

use std::{collections::VecDeque, time::Instant};

use super::connection::{Content, Crossing, CrossingLimits};
use crate::{Endpoint, Event, Handle, Letter, Shard};

/// What was done between neighbours, in numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourCounters {
    /// Datagrams to neighbours dropped because too many were in flight.
    pub datagrams_dropped: u64,
    /// Packets that came to the wrong endpoint and were passed on to the right one.
    pub strays_passed: u64,
    /// Such packets dropped because too many waited.
    pub strays_dropped: u64,
}

/// The connections to all neighbours.
pub(crate) struct Neighbours {
    shard: Shard,
    /// In the order of the neighbours' numbers; the place is the handle's index.
    crossings: Vec<Crossing>,
}

impl Neighbours {
    pub(crate) fn new(shard: Shard) -> Self {
        let others = (0..shard.count()).filter(|&other| other != shard.index());
        let crossings = (0..).zip(others).map(|(index, other)| {
            Crossing::new(shard.index(), other, index, CrossingLimits::default())
        });
        Self {
            shard,
            crossings: crossings.collect(),
        }
    }

    /// Connections to neighbours are there from the start.
    pub(crate) fn greetings(&self) -> VecDeque<Event> {
        let crossings = self.crossings.iter();
        crossings
            .map(|crossing| Event::Connected {
                handle: crossing.handle(),
            })
            .collect()
    }

    /// The connection behind a handle, unless it is lost or closed.
    pub(crate) fn usable(&mut self, handle: Handle) -> Option<&mut Crossing> {
        let crossing = self.crossings.get_mut(handle.index())?;
        (crossing.handle() == handle && crossing.is_open()).then_some(crossing)
    }

    /// The connection to the neighbour that a packet is for, unless it is for this endpoint.
    #[inline]
    pub(crate) fn owner(&mut self, packet: &[u8]) -> Option<&mut Crossing> {
        if self.crossings.is_empty() {
            return None;
        }
        let owner = Shard::owner(packet, self.shard.count());
        self.crossing(owner)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.crossings
            .iter()
            .filter_map(Crossing::poll_timeout)
            .min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        for crossing in &mut self.crossings {
            crossing.handle_timeout(now, events);
        }
    }

    pub(crate) fn close_all(&mut self, code: u64, reason: &[u8]) {
        for crossing in &mut self.crossings {
            crossing.close(code, reason);
        }
    }

    /// The connection to neighbour number `number`, which is not this endpoint's own.
    fn crossing(&mut self, number: u16) -> Option<&mut Crossing> {
        let own = self.shard.index();
        let place = match number.cmp(&own) {
            std::cmp::Ordering::Less => number,
            std::cmp::Ordering::Equal => return None,
            std::cmp::Ordering::Greater => number - 1,
        };
        self.crossings.get_mut(usize::from(place))
    }
}

impl Endpoint {
    /// Which of several endpoints with one address this is.
    pub fn shard(&self) -> Shard {
        self.neighbours.shard
    }

    /// What this endpoint has to tell neighbour number `neighbour`, oldest first. The host takes letters
    /// off the front after each turn and brings them there.
    ///
    /// # Panics
    /// There is no such neighbour.
    pub fn letters(&mut self, neighbour: u16) -> &mut Vec<Letter> {
        self.crossing(neighbour).letters()
    }

    /// Letters came from neighbour number `neighbour`.
    ///
    /// # Panics
    /// There is no such neighbour.
    pub fn handle_letters(
        &mut self,
        now: Instant,
        neighbour: u16,
        letters: impl IntoIterator<Item = Letter>,
    ) {
        for Letter(content) in letters {
            if let Content::Packet(stray) = content {
                self.handle_own_packet(now, 0, stray.remote, stray.local, stray.ecn, stray.data);
                continue;
            }
            let place = self.crossing(neighbour).handle().index();
            let Self {
                neighbours, events, ..
            } = self;
            neighbours.crossings[place].handle_letter(now, content, events);
        }
    }

    /// What was done between neighbours so far.
    pub fn neighbour_counters(&self) -> NeighbourCounters {
        let mut sum = NeighbourCounters::default();
        for crossing in &self.neighbours.crossings {
            sum.datagrams_dropped += crossing.datagrams_dropped;
            sum.strays_passed += crossing.strays_passed;
            sum.strays_dropped += crossing.strays_dropped;
        }
        sum
    }

    fn crossing(&mut self, neighbour: u16) -> &mut Crossing {
        self.neighbours
            .crossing(neighbour)
            .expect("the host names neighbours only")
    }
}
