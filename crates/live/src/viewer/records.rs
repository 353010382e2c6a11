//! Records of the frames that arrived.

use weir_report::lab::FrameRecord;

/// The fate of each frame, in the order of arrival. Frames beyond the limit are only counted.
#[derive(Debug)]
pub(super) struct Records {
    kept: Vec<FrameRecord>,
    /// For each of these, whether the player has shown, skipped or dropped it.
    is_settled: Vec<bool>,
    kept_max: usize,
    dropped: u64,
}

impl Records {
    /// Returns empty records that keep at most `kept_max` frames.
    pub(super) fn new(kept_max: usize) -> Self {
        Self {
            kept: Vec::new(),
            is_settled: Vec::new(),
            kept_max,
            dropped: 0,
        }
    }

    /// Adds a frame. Returns its number, which finds its record if that is kept.
    pub(super) fn push(&mut self, record: FrameRecord) -> u64 {
        let number = self.kept.len() as u64;
        if self.kept.len() < self.kept_max {
            self.kept.push(record);
            self.is_settled.push(false);
        } else {
            self.dropped += 1;
        }
        number
    }

    /// Notes that the player has shown, skipped or dropped a frame.
    pub(super) fn settle(&mut self, number: u64) {
        let number = usize::try_from(number).ok();
        if let Some(is_settled) = number.and_then(|number| self.is_settled.get_mut(number)) {
            *is_settled = true;
        }
    }

    /// Notes that the player has dropped all frames that it had not shown.
    pub(super) fn settle_all(&mut self) {
        self.is_settled.fill(true);
    }

    /// Removes the records of frames that still wait to be shown, after `shown_us` of media time. Returns how many.
    pub(super) fn remove_waiting(&mut self, shown_us: Option<i64>) -> usize {
        let before = self.kept.len();
        let mut is_settled = self.is_settled.iter();
        self.kept.retain(|record| {
            let is_later = shown_us.is_none_or(|shown| record.presentation_us > shown);
            is_settled.next() == Some(&true) || !is_later
        });
        self.is_settled = vec![true; self.kept.len()];
        before - self.kept.len()
    }

    pub(super) fn find(&mut self, number: u64) -> Option<&mut FrameRecord> {
        self.kept.get_mut(usize::try_from(number).ok()?)
    }

    pub(super) fn kept(&self) -> &[FrameRecord] {
        &self.kept
    }

    /// Counts the frames without a record.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_that_wait_for_their_time_are_removed() {
        let record = |number: u64, presentation_us| FrameRecord {
            number,
            group: 0,
            kind: 'P',
            bytes: 1,
            presentation_us,
            available_us: None,
            arrived_us: 0,
            shown_us: None,
        };
        let mut records = Records::new(9);
        // Frame 1 is late for a player that has shown frame 2. Frames 3 and 5 wait, and frame 4 could not be decoded.
        for number in 1..=5 {
            records.push(record(number, 10 * i64::try_from(number).expect("small")));
        }
        records.settle(1);
        records.settle(3);
        records.settle(99);
        assert_eq!(records.remove_waiting(Some(20)), 2);
        let left: Vec<u64> = records.kept().iter().map(|one| one.number).collect();
        assert_eq!(left, [1, 2, 4]);
        // A new publisher's frames replace those that wait.
        records.push(record(6, 60));
        records.settle_all();
        assert_eq!(records.remove_waiting(None), 0);
    }

    #[test]
    fn so_many_records_are_kept_and_no_more() {
        let record = |number| FrameRecord {
            number,
            group: 0,
            kind: 'I',
            bytes: 1,
            presentation_us: 0,
            available_us: None,
            arrived_us: 0,
            shown_us: None,
        };
        let mut records = Records::new(2);
        assert_eq!([5, 6].map(|number| records.push(record(number))), [0, 1]);
        assert_eq!((records.kept().len(), records.dropped()), (2, 0));
        let number = records.push(record(7));
        assert_eq!(records.find(number), None);
        assert_eq!((records.kept().len(), records.dropped()), (2, 1));
        assert_eq!(records.find(1).map(|found| found.number), Some(6));
    }
}
