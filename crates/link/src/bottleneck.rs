//! The queue and the rate behind it: when each packet has left the sender, exactly.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::Queue;
use crate::rate::{Bitrate, OPPORTUNITY_BYTES, Rate};

/// The work of sending one bit. A link of `r` bit/s does `r` of this work each nanosecond, so no
/// rate and no size ever meets a fraction.
const WORK_PER_BIT: u128 = 1_000_000_000;
/// The work one opportunity of a trace can do.
const WORK_PER_OPPORTUNITY: u128 = OPPORTUNITY_BYTES as u128 * 8 * WORK_PER_BIT;

/// A drop-tail queue that is emptied at a rate, one packet at a time.
///
/// The owner takes each departure when it is due: before any call with a time, all departures up to
/// that time must have been taken.
#[derive(Debug)]
pub(crate) struct Bottleneck<P> {
    rate: Rate,
    limits: Queue,
    waiting: VecDeque<Queued<P>>,
    waiting_bytes: u64,
    /// The packet being sent, and the work left on it at `clock`.
    sending: Option<(Queued<P>, u128)>,
    clock: Instant,
    /// Work that could be done at `clock` beyond what the last packet needed: the rest of a
    /// nanosecond, or of an opportunity. Only a packet that was already waiting can use it.
    spare_work: u128,
    /// When a trace began.
    trace_start: Instant,
    /// The first opportunity of a trace that is still to come.
    opportunity: u64,
}

#[derive(Debug)]
struct Queued<P> {
    packet: P,
    bytes: u64,
}

/// Which limit of the queue kept a packet out.
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

    /// Takes a packet in: to be sent at once if nothing is being sent, else to wait.
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

    /// When the packet being sent will have left; `None` if there is none, or the rate is zero.
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

    /// Takes the packet that leaves at `at`, the time [`Self::next_departure`] gave, and begins to
    /// send the next.
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

    /// Changes the rate. What is left of the packet being sent goes on at the new one.
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

    /// Changes the limits. Packets that already wait stay, even if they are now too many.
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

    /// The work that must still be done on the packet being sent, from `clock` on.
    fn missing_work(&self) -> Option<u128> {
        let (_, work) = self.sending.as_ref()?;
        Some(work.saturating_sub(self.spare_work))
    }

    /// The work the rate allows from `clock` to `until`.
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
    // A packet has less than 2^64 bytes, so this always fits.
    u64::try_from(work.div_ceil(WORK_PER_OPPORTUNITY)).unwrap_or(u64::MAX)
}

fn first_opportunity_after(rate: &Rate, elapsed: Duration) -> u64 {
    match rate {
        Rate::Unlimited | Rate::Fixed(_) => 0,
        Rate::Trace(trace) => trace.first_after(elapsed),
    }
}
