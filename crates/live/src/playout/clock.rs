//! The render clock: Algorithm 1 of the thesis, with the forward snapping of its section 5.1 and a rate to catch up.

/// Decides when frames are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderClock {
    /// The longest gap between presentation times that is waited for.
    snap_us: Option<i64>,
    /// Local time and media time at which playing resumed.
    resumed: Option<(i64, i64)>,
    /// The presentation time of the last shown frame.
    last_us: Option<i64>,
    /// The speed, in thousandths of normal.
    rate: i64,
}

impl RenderClock {
    /// Returns a clock that has not started. A frame more than `snap_us` of media time after the last one is shown at
    /// once; with `None` this never happens.
    pub fn new(snap_us: Option<i64>) -> Self {
        Self {
            snap_us,
            resumed: None,
            last_us: None,
            rate: NORMAL_RATE,
        }
    }

    /// Returns how long to wait until the frame with this presentation time is shown; 0 if it is due. The first frame
    /// after a start or a [`pause`](Self::pause) is due at once.
    pub fn time_until(&mut self, now_us: i64, presentation_us: i64) -> i64 {
        let gap_us = self.last_us.map_or(0, |last| presentation_us - last);
        if self.snap_us.is_some_and(|snap| gap_us > snap) {
            self.resumed = Some((now_us, presentation_us));
            return 0;
        }
        let (local, media) = *self.resumed.get_or_insert((now_us, presentation_us));
        // A publisher may claim times thousands of years ahead.
        let ahead = (presentation_us - media).saturating_mul(NORMAL_RATE) / self.rate;
        let due = local + ahead;
        (due - now_us).max(0)
    }

    /// Records a shown frame.
    pub fn on_shown(&mut self, presentation_us: i64) {
        self.last_us = Some(presentation_us);
    }

    /// Returns the presentation time of the last shown frame.
    pub fn last_us(&self) -> Option<i64> {
        self.last_us
    }

    /// Stops the clock since the buffer is empty. The next frame starts it again.
    pub fn pause(&mut self) {
        self.resumed = None;
    }

    /// Delays the following frames by `by_us`.
    pub fn delay(&mut self, by_us: i64) {
        if let Some((local, _)) = &mut self.resumed {
            *local += by_us;
        }
    }

    /// Continues at `rate` thousandths of normal speed, at least 1.
    pub fn set_rate(&mut self, now_us: i64, rate: i64) {
        let rate = rate.max(1);
        if let Some((local, media)) = &mut self.resumed {
            *media += (now_us - *local) * self.rate / NORMAL_RATE;
            *local = now_us;
        }
        self.rate = rate;
    }

    /// Returns the speed, in thousandths of normal.
    pub fn rate(&self) -> i64 {
        self.rate
    }
}

/// Normal speed.
const NORMAL_RATE: i64 = 1000;
