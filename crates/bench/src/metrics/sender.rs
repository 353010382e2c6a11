//! The publisher's view of one track.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::SentTotals;
use crate::clock::{RunClock, nanoseconds};
use crate::message::{Completion, DataHeader};
use crate::payload::Tag;
use crate::schedule::DataItem;
use weir_histogram::Histogram;
use weir_report::latency::distribution;
use weir_report::statistics::Distribution;

/// Objects of one track that a publisher has sent, and their lateness.
#[derive(Clone, Debug, Default)]
pub struct TrackSender {
    /// The times of sending of the first and the last object.
    ends: Option<(Instant, Instant)>,
    objects: u64,
    groups: u64,
    last_group: Option<u64>,
    bytes: u64,
    starts: u64,
    lateness: Histogram,
    refusals: Refusals,
    dropped: Dropped,
}

/// Why a due object was not sent, or was dropped after it had been queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Larger than the largest datagram of the path.
    TooLarge,
    /// Its time to live ended in a send queue.
    Expired,
    /// The queue of a blocked stream was full.
    QueueFull,
    /// The relay stopped the stream.
    Stopped,
    /// The relay has no subscription to the track, or has paused it.
    NotForwarded,
    /// The session was lost.
    Disconnected,
}

/// Objects that were not sent, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// [`Refusal::TooLarge`]
    pub too_large: u64,
    /// [`Refusal::Expired`]
    pub expired: u64,
    /// [`Refusal::QueueFull`]
    pub queue_full: u64,
    /// [`Refusal::Stopped`]
    pub stopped: u64,
    /// [`Refusal::NotForwarded`]
    pub not_forwarded: u64,
    /// [`Refusal::Disconnected`]
    pub disconnected: u64,
}

/// Datagrams of any kind that the connection accepted and then dropped. They still count as sent, as in COMPLETION.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Dropped because their time to live ended.
    pub expired: u64,
    /// Dropped because the queue was full.
    pub crowded_out: u64,
}

/// A publisher's measurements of one track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SenderResult {
    /// DATA objects sent.
    pub objects_sent: u64,
    /// Groups begun.
    pub groups_sent: u64,
    /// Bytes of the DATA objects sent.
    pub bytes_sent: u64,
    /// START messages sent.
    pub starts_sent: u64,
    /// Milliseconds from the first object to the last.
    pub total_duration_ms: u32,
    /// From the planned time to the time of sending.
    pub lateness: Option<Distribution>,
    /// Objects not sent.
    pub refusals: Refusals,
    /// Datagrams that the connection accepted and then dropped.
    pub dropped: Dropped,
}

impl TrackSender {
    /// Returns the header of an object that is sent at `now`.
    pub fn header(&self, now: Instant, item: &DataItem) -> DataHeader {
        DataHeader {
            group_number: item.group_number,
            object_number: item.object_number,
            milliseconds_since_first_object: self
                .ends
                .map_or(0, |(first, _)| rounded_ms(first, now)),
            data_length: item.size.data_length(),
        }
    }

    /// Returns the tag of an object that is sent at `now` and was planned for `planned`.
    pub fn tag(
        now: Instant,
        planned: Instant,
        item: &DataItem,
        run_id: u64,
        clock: &RunClock,
    ) -> Tag {
        Tag {
            run_id,
            sequence: item.number,
            planned_ns: clock.ns(planned),
            sent_ns: clock.ns(now),
        }
    }

    /// Counts a START message.
    pub fn on_start(&mut self) {
        self.starts += 1;
    }

    /// Counts an object planned for `planned` that was handed to the transport at `now`.
    pub fn on_sent(&mut self, now: Instant, planned: Instant, item: &DataItem) {
        let first = self.ends.map_or(now, |(first, _)| first);
        self.ends = Some((first, now));
        self.objects += 1;
        self.bytes += u64::from(item.size.bytes());
        if self.last_group != Some(item.group_number) {
            self.last_group = Some(item.group_number);
            self.groups += 1;
        }
        self.lateness
            .record_ns(nanoseconds(now.saturating_duration_since(planned)));
    }

    /// Counts an object that was not sent.
    pub fn on_refused(&mut self, refusal: Refusal) {
        *self.refusals.of_mut(refusal) += 1;
    }

    /// Counts datagrams that the connection accepted and then dropped.
    pub fn on_dropped(&mut self, dropped: Dropped) {
        self.dropped.expired += dropped.expired;
        self.dropped.crowded_out += dropped.crowded_out;
    }

    /// Returns the COMPLETION message for the objects sent so far. [evens-00 §5.4.3]
    pub fn completion(&self) -> Completion {
        Completion {
            objects_sent: self.objects,
            groups_sent: self.groups,
            total_duration_ms: self.ends.map_or(0, |(first, last)| rounded_ms(first, last)),
        }
    }

    /// Returns when the first object was sent.
    pub fn first_sent(&self) -> Option<Instant> {
        self.ends.map(|(first, _)| first)
    }

    /// Returns the objects and groups sent so far.
    pub fn totals(&self) -> SentTotals {
        SentTotals {
            objects: self.objects,
            groups: self.groups,
        }
    }

    /// Returns the objects that were not sent, by reason.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Returns the delays between planned time and time of sending.
    pub fn lateness(&self) -> &Histogram {
        &self.lateness
    }

    /// Returns all figures so far.
    pub fn result(&self) -> SenderResult {
        let completion = self.completion();
        SenderResult {
            objects_sent: completion.objects_sent,
            groups_sent: completion.groups_sent,
            bytes_sent: self.bytes,
            starts_sent: self.starts,
            total_duration_ms: completion.total_duration_ms,
            lateness: distribution(&self.lateness),
            refusals: self.refusals,
            dropped: self.dropped,
        }
    }
}

impl Refusals {
    /// Returns the sum over all reasons.
    pub fn total(&self) -> u64 {
        self.too_large
            + self.expired
            + self.queue_full
            + self.stopped
            + self.not_forwarded
            + self.disconnected
    }

    fn of_mut(&mut self, refusal: Refusal) -> &mut u64 {
        match refusal {
            Refusal::TooLarge => &mut self.too_large,
            Refusal::Expired => &mut self.expired,
            Refusal::QueueFull => &mut self.queue_full,
            Refusal::Stopped => &mut self.stopped,
            Refusal::NotForwarded => &mut self.not_forwarded,
            Refusal::Disconnected => &mut self.disconnected,
        }
    }
}

/// Returns the milliseconds between two instants, rounded to the nearest.
fn rounded_ms(from: Instant, to: Instant) -> u32 {
    let ns = nanoseconds(to.saturating_duration_since(from));
    u32::try_from(ns.saturating_add(500_000) / 1_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::any_instant;
    use crate::profile::ObjectSize;

    fn item(number: u64) -> DataItem {
        DataItem {
            number,
            group_number: number / 2,
            object_number: number % 2,
            size: ObjectSize::new(100).unwrap(),
            last_in_group: number % 2 == 1,
        }
    }

    #[test]
    fn counts_what_was_sent_and_how_late() {
        let origin = any_instant();
        let at = |us: u64| origin + Duration::from_micros(us);
        let mut sender = TrackSender::default();
        assert_eq!(sender.completion().total_duration_ms, 0);
        sender.on_start();
        assert_eq!(
            sender
                .header(at(70), &item(0))
                .milliseconds_since_first_object,
            0
        );
        sender.on_sent(at(70), at(0), &item(0));
        sender.on_refused(Refusal::Expired);
        let header = sender.header(at(40_600), &item(2));
        assert_eq!((header.group_number, header.object_number), (1, 0));
        assert_eq!(header.milliseconds_since_first_object, 41);
        assert_eq!(header.data_length, 75);
        sender.on_sent(at(40_600), at(40_000), &item(2));
        sender.on_sent(at(60_000), at(60_000), &item(3));

        let result = sender.result();
        assert_eq!(
            (result.objects_sent, result.groups_sent, result.bytes_sent),
            (3, 2, 300)
        );
        assert_eq!((result.starts_sent, result.total_duration_ms), (1, 60));
        assert_eq!((result.refusals.expired, result.refusals.total()), (1, 1));
        let lateness = result.lateness.unwrap();
        assert_eq!((lateness.count, lateness.max_ms), (3, 0.6));
    }

    #[test]
    fn every_refusal_has_its_counter() {
        let mut refusals = Refusals::default();
        for (number, refusal) in (1..).zip([
            Refusal::TooLarge,
            Refusal::Expired,
            Refusal::QueueFull,
            Refusal::Stopped,
            Refusal::NotForwarded,
            Refusal::Disconnected,
        ]) {
            *refusals.of_mut(refusal) += 1;
            assert_eq!((*refusals.of_mut(refusal), refusals.total()), (1, number));
        }
    }

    #[test]
    fn the_tag_reads_the_runs_clock() {
        let origin = any_instant();
        let clock = RunClock::new(origin, 100);
        let planned = origin + Duration::from_nanos(5);
        let now = planned + Duration::from_nanos(7);
        let tag = TrackSender::tag(now, planned, &item(9), 3, &clock);
        assert_eq!(
            tag,
            Tag {
                run_id: 3,
                sequence: 9,
                planned_ns: 105,
                sent_ns: 112
            }
        );
    }
}
