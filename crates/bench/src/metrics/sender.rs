//! The publisher's view of one track.

use std::time::Instant;

use serde::Serialize;

use super::SentTotals;
use crate::clock::{RunClock, nanoseconds};
use crate::message::{Completion, DataHeader};
use crate::payload::Tag;
use crate::schedule::DataItem;
use weir_histogram::Histogram;
use weir_report::latency::distribution;
use weir_report::statistics::Distribution;

/// What a publisher has sent of one track, and how punctually.
#[derive(Clone, Debug, Default)]
pub struct TrackSender {
    /// When the first and the last object were sent.
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

/// Why an object that was due was not sent, or was dropped after it had been handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Larger than a datagram on this path.
    TooLarge,
    /// Its time to live passed in a send queue.
    Expired,
    /// The queue before a blocked stream was full.
    QueueFull,
    /// The relay stopped the stream.
    Stopped,
    /// Nobody wants the track, or the relay asked to pause it.
    NotForwarded,
    /// The session was lost.
    Disconnected,
}

/// Objects that were not sent, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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

/// Datagrams of any kind that the connection took and did not send. They stay among what was sent, as COMPLETION has
/// said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Because their time to live had passed.
    pub expired: u64,
    /// Because too much waited to be sent.
    pub crowded_out: u64,
}

/// What a publisher says of one track.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SenderResult {
    /// DATA objects sent.
    pub objects_sent: u64,
    /// Groups begun.
    pub groups_sent: u64,
    /// Bytes of those objects.
    pub bytes_sent: u64,
    /// START messages sent.
    pub starts_sent: u64,
    /// Milliseconds from the first object to the last.
    pub total_duration_ms: u32,
    /// From the planned time to the time of sending.
    pub lateness: Option<Distribution>,
    /// Objects not sent.
    pub refusals: Refusals,
    /// Datagrams that were dropped after they had been handed over.
    pub dropped: Dropped,
}

impl TrackSender {
    /// The header of an object that is sent now.
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

    /// The tag of an object that is sent now and was planned for `planned`.
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

    /// A START message was sent.
    pub fn on_start(&mut self) {
        self.starts += 1;
    }

    /// An object planned for `planned` was handed to the transport now.
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

    /// An object was not sent.
    pub fn on_refused(&mut self, refusal: Refusal) {
        *self.refusals.of_mut(refusal) += 1;
    }

    /// The connection has dropped datagrams that it had taken.
    pub fn on_dropped(&mut self, dropped: Dropped) {
        self.dropped.expired += dropped.expired;
        self.dropped.crowded_out += dropped.crowded_out;
    }

    /// The COMPLETION message for what has been sent. [evens-00 §5.4.3]
    pub fn completion(&self) -> Completion {
        Completion {
            objects_sent: self.objects,
            groups_sent: self.groups,
            total_duration_ms: self.ends.map_or(0, |(first, last)| rounded_ms(first, last)),
        }
    }

    /// Objects and groups sent so far.
    pub fn totals(&self) -> SentTotals {
        SentTotals {
            objects: self.objects,
            groups: self.groups,
        }
    }

    /// Objects that were not sent.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// How long after their planned time objects were sent.
    pub fn lateness(&self) -> &Histogram {
        &self.lateness
    }

    /// All figures as they stand.
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
    /// All together.
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

/// Milliseconds between two instants, rounded to the nearest.
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
