//! Packets between sender and receiver: loss, duplication, delay.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::config::{Config, Delay, GilbertElliott, Jitter, Loss, Probability, Reordering};
use crate::random::Random;
use crate::stats::Stats;

/// The most packets in transit on one link. Further packets are dropped and counted.
pub const IN_FLIGHT_PACKETS_MAX: usize = 1 << 20;

/// The packets in transit, and their random choices.
#[derive(Debug)]
pub(crate) struct Transit<P> {
    pub(crate) delay: Delay,
    pub(crate) keep_order: bool,
    pub(crate) duplication: Probability,
    pub(crate) reordering: Reordering,
    pub(crate) is_blackhole: bool,
    loss: Loss,
    is_loss_state_bad: bool,
    in_flight: BinaryHeap<Reverse<InFlight<P>>>,
    /// The latest arrival of any packet that was not held back.
    last_arrival: Option<Instant>,
    sequence: u64,
    chances: Chances,
}

/// One generator per kind of choice, so that a change to one kind does not affect the others.
#[derive(Debug)]
struct Chances {
    loss: Random,
    duplication: Random,
    reordering: Random,
    jitter: Random,
}

#[derive(Debug)]
struct InFlight<P> {
    arrives_at: Instant,
    /// Orders packets that arrive at the same time.
    sequence: u64,
    bytes: u64,
    packet: P,
}

impl<P: Clone> Transit<P> {
    pub(crate) fn new(config: &Config, seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            delay: config.delay,
            keep_order: config.keep_order,
            duplication: config.duplication,
            reordering: config.reordering,
            is_blackhole: false,
            loss: config.loss,
            is_loss_state_bad: false,
            in_flight: BinaryHeap::new(),
            last_arrival: None,
            sequence: 0,
            chances: Chances {
                loss: random.fork(),
                duplication: random.fork(),
                reordering: random.fork(),
                jitter: random.fork(),
            },
        }
    }

    /// Takes a packet that leaves its sender at `sent_at`. These times never run backwards.
    pub(crate) fn handle_packet(
        &mut self,
        sent_at: Instant,
        packet: P,
        bytes: u64,
        stats: &mut Stats,
    ) {
        if self.is_blackhole {
            stats.blackholed += 1;
            return;
        }
        if self.is_lost() {
            stats.lost += 1;
            return;
        }
        if self.chances.duplication.chance(self.duplication) {
            stats.duplicated += 1;
            self.launch(sent_at, packet.clone(), bytes, stats);
        }
        self.launch(sent_at, packet, bytes, stats);
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(first)| first.arrives_at)
    }

    /// Returns the next packet that has arrived by `now`, with its size.
    pub(crate) fn poll_packet(&mut self, now: Instant) -> Option<(P, u64)> {
        if self.next_arrival()? > now {
            return None;
        }
        let Reverse(first) = self.in_flight.pop()?;
        Some((first.packet, first.bytes))
    }

    pub(crate) fn in_flight_packets(&self) -> usize {
        self.in_flight.len()
    }

    /// Changes the loss. Burst loss starts in its good state.
    pub(crate) fn set_loss(&mut self, loss: Loss) {
        self.loss = loss;
        self.is_loss_state_bad = false;
    }

    fn is_lost(&mut self) -> bool {
        let random = &mut self.chances.loss;
        match self.loss {
            Loss::None => false,
            Loss::Independent(probability) => random.chance(probability),
            Loss::Burst(model) => {
                let GilbertElliott {
                    good_to_bad,
                    bad_to_good,
                    loss_in_good,
                    loss_in_bad,
                } = model;
                let (loss, change) = if self.is_loss_state_bad {
                    (loss_in_bad, bad_to_good)
                } else {
                    (loss_in_good, good_to_bad)
                };
                let is_lost = random.chance(loss);
                self.is_loss_state_bad ^= random.chance(change);
                is_lost
            }
        }
    }

    /// Sends one packet or copy on its way.
    fn launch(&mut self, sent_at: Instant, packet: P, bytes: u64, stats: &mut Stats) {
        if self.in_flight.len() >= IN_FLIGHT_PACKETS_MAX {
            stats.dropped_in_flight += 1;
            return;
        }
        let mut arrives_at = sent_at + jittered(self.delay, &mut self.chances.jitter);
        if self
            .chances
            .reordering
            .chance(self.reordering.probability())
        {
            stats.held_back += 1;
            arrives_at += self.reordering.hold();
        } else {
            if self.keep_order {
                arrives_at = self
                    .last_arrival
                    .map_or(arrives_at, |last| last.max(arrives_at));
            }
            self.last_arrival = self.last_arrival.max(Some(arrives_at));
        }
        self.sequence += 1;
        let sequence = self.sequence;
        self.in_flight.push(Reverse(InFlight {
            arrives_at,
            sequence,
            bytes,
            packet,
        }));
    }
}

fn jittered(delay: Delay, random: &mut Random) -> Duration {
    let base = delay.base();
    match delay.jitter() {
        Jitter::None => base,
        Jitter::Uniform(spread) => {
            let offset = random.below(nanoseconds(spread * 2) + 1);
            base.saturating_sub(spread) + Duration::from_nanos(offset)
        }
        Jitter::Normal(deviation) => {
            let offset = random.normal(nanoseconds(deviation));
            let delay = i128::from(nanoseconds(base)) + offset;
            Duration::from_nanos(u64::try_from(delay).unwrap_or(0))
        }
    }
}

/// Returns a delay in nanoseconds. `DELAY_MAX` keeps it within 64 bits.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl<P> InFlight<P> {
    fn order(&self) -> (Instant, u64) {
        (self.arrives_at, self.sequence)
    }
}

impl<P> PartialEq for InFlight<P> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<P> Eq for InFlight<P> {}

impl<P> PartialOrd for InFlight<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for InFlight<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}
