//! Records of the frames that arrived.

use weir_report::lab::FrameRecord;

/// The fate of each frame, in the order of arrival. Frames beyond the limit are only counted.
#[derive(Debug)]
pub(super) struct Records {
    kept: Vec<FrameRecord>,
    kept_max: usize,
    dropped: u64,
}

impl Records {
    /// Returns empty records that keep at most `kept_max` frames.
    pub(super) fn new(kept_max: usize) -> Self {
        Self {
            kept: Vec::new(),
            kept_max,
            dropped: 0,
        }
    }

    /// Adds a frame. Returns its number, which finds its record if that is kept.
    pub(super) fn push(&mut self, record: FrameRecord) -> u64 {
        let number = self.kept.len() as u64;
        if self.kept.len() < self.kept_max {
            self.kept.push(record);
        } else {
            self.dropped += 1;
        }
        number
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
