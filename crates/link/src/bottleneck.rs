//! The queue and the rate after it. Computes exactly when each packet has left the sender.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::Queue;
use crate::rate::{Bitrate, OPPORTUNITY_BYTES, Rate};

/// The work of sending one bit. A link of `r` bit/s does work `r` each nanosecond, so every rate and size is an
/// integer.
const WORK_PER_BIT: u128 = 1_000_000_000;
/// The work of one opportunity of a trace.
const WORK_PER_OPPORTUNITY: u128 = OPPORTUNITY_BYTES as u128 * 8 * WORK_PER_BIT;

/// A drop-tail queue that is emptied at a rate, one packet at a time.
///
/// The owner takes each departure when it is due. Before any call with a time, it must have taken all departures up to
/// that time.
#[derive(Debug)]
pub(crate) struct Bottleneck<P> {
    rate: Rate,
    limits: Queue,
    waiting: VecDeque<Queued<P>>,
    waiting_bytes: u64,
    /// The packet being sent, and its remaining work at `clock`.
    sending: Option<(Queued<P>, u128)>,
    clock: Instant,
    /// Work available at `clock` after the last packet: the rest of a nanosecond, or of an opportunity. Only a packet
    /// that was already waiting can use it.
    spare_work: u128,
    /// When the trace began.
    trace_start: Instant,
    /// The next opportunity of the trace.
    opportunity: u64,
}

#[derive(Debug)]
struct Queued<P> {
    packet: P,
    bytes: u64,
}

/// The limit of the queue that a packet exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Bytes,
    Packets,
}

impl<P> Bottleneck<P> {
    pub(crate) fn new(now: Instant, rate: Rate, limits: Queue) -> Self {
        let mut bottleneck = Self {
            rate: Rate::Unlimited,
            limits,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sending: None,
            clock: now,
            spare_work: 0,
            trace_start: now,
            opportunity: 0,
        };
        bottleneck.set_rate(now, rate);
        bottleneck
    }

    /// Takes a packet: sends it at once if the link is idle, otherwise queues it.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        packet: P,
        bytes: u64,
    ) -> Result<(), Full> {
        let packet = Queued { packet, bytes };
        if self.sending.is_none() {
            self.begin_after_idling(now, packet);
            return Ok(());
        }
        if self.waiting_bytes.saturating_add(bytes) > self.limits.bytes_max {
            return Err(Full::Bytes);
        }
        if self.waiting.len() >= self.limits.packets_max {
            return Err(Full::Packets);
        }
        self.waiting_bytes += bytes;
        self.waiting.push_back(packet);
        Ok(())
    }

    /// Returns when the packet being sent will have left; `None` if there is none, or the rate is zero.
    pub(crate) fn next_departure(&self) -> Option<Instant> {
        let missing = self.missing_work()?;
        if missing == 0 {
            return Some(self.clock);
        }
        match &self.rate {
            Rate::Unlimited => Some(self.clock),
            Rate::Fixed(Bitrate::ZERO) => None,
            Rate::Fixed(rate) => {
                let nanoseconds = missing.div_ceil(rate.bits_per_second().into());
                self.clock
                    .checked_add(Duration::from_nanos(nanoseconds.try_into().ok()?))
            }
            Rate::Trace(trace) => {
                let last = self.opportunity + opportunities_for(missing) - 1;
                self.trace_start.checked_add(trace.time(last))
            }
        }
    }

    /// Takes the packet that leaves at `at`, the result of [`Self::next_departure`], and begins to send the next one.
    pub(crate) fn depart(&mut self, at: Instant) -> Option<(P, u64)> {
        let missing = self.missing_work()?;
        let gained = match &self.rate {
            Rate::Unlimited => missing,
            Rate::Fixed(_) => self.work_until(at),
            Rate::Trace(_) => {
                let used = opportunities_for(missing);
                self.opportunity += used;
                u128::from(used) * WORK_PER_OPPORTUNITY
            }
        };
        let (sent, work) = self.sending.take()?;
        self.spare_work = self.spare_work + gained - work;
        self.clock = at;
        match self.waiting.pop_front() {
            Some(next) => {
                self.waiting_bytes -= next.bytes;
                self.begin(next);
            }
            None => self.spare_work = 0,
        }
        Some((sent.packet, sent.bytes))
    }

    /// Changes the rate. The packet being sent continues at the new rate.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: Rate) {
        let missing = self
            .missing_work()
            .map(|missing| missing.saturating_sub(self.work_until(now)));
        if let Some(((_, work), missing)) = self.sending.as_mut().zip(missing) {
            *work = missing;
        }
        self.spare_work = 0;
        self.clock = now;
        self.trace_start = now;
        self.opportunity = first_opportunity_after(&rate, Duration::ZERO);
        self.rate = rate;
    }

    /// Changes the limits. Packets in the queue stay, even if they exceed the new limits.
    pub(crate) fn set_limits(&mut self, limits: Queue) {
        self.limits = limits;
    }

    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    pub(crate) fn waiting_packets(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    fn begin_after_idling(&mut self, now: Instant, packet: Queued<P>) {
        self.clock = now;
        let elapsed = now.saturating_duration_since(self.trace_start);
        self.opportunity = self
            .opportunity
            .max(first_opportunity_after(&self.rate, elapsed));
        self.begin(packet);
    }

    fn begin(&mut self, packet: Queued<P>) {
        let work = u128::from(packet.bytes) * 8 * WORK_PER_BIT;
        self.sending = Some((packet, work));
    }

    /// Returns the remaining work on the packet being sent, from `clock` on.
    fn missing_work(&self) -> Option<u128> {
        let (_, work) = self.sending.as_ref()?;
        Some(work.saturating_sub(self.spare_work))
    }

    /// Returns the work that the rate allows from `clock` to `until`.
    fn work_until(&self, until: Instant) -> u128 {
        match &self.rate {
            Rate::Unlimited => 0,
            Rate::Fixed(rate) => {
                let elapsed = until.saturating_duration_since(self.clock);
                elapsed.as_nanos() * u128::from(rate.bits_per_second())
            }
            Rate::Trace(_) => {
                let elapsed = until.saturating_duration_since(self.trace_start);
                let next = first_opportunity_after(&self.rate, elapsed);
                u128::from(next.saturating_sub(self.opportunity)) * WORK_PER_OPPORTUNITY
            }
        }
    }
}

fn opportunities_for(work: u128) -> u64 {
    // A packet has less than 2^64 bytes, so the number of opportunities fits.
    u64::try_from(work.div_ceil(WORK_PER_OPPORTUNITY)).unwrap_or(u64::MAX)
}

fn first_opportunity_after(rate: &Rate, elapsed: Duration) -> u64 {
    match rate {
        Rate::Unlimited | Rate::Fixed(_) => 0,
        Rate::Trace(trace) => trace.first_after(elapsed),
    }
}
