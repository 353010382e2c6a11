//! When a frame is to be shown: Algorithm 1 of the thesis, with snapping forward (its section 5.1)
//! and a rate for catching up.

/// Times the rendering of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderClock {
    /// A gap between presentation times longer than this is not waited for.
    snap_us: Option<i64>,
    /// Where playing resumed: local time, and media time.
    resumed: Option<(i64, i64)>,
    /// Presentation time of the last frame that was shown.
    last_us: Option<i64>,
    /// Thousandths of the media's speed.
    rate: i64,
}

impl RenderClock {
    /// A clock that has not started. A frame that comes more than `snap_us` of media time after the
    /// last one is shown at once; `None`: never.
    pub fn new(snap_us: Option<i64>) -> Self {
        Self {
            snap_us,
            resumed: None,
            last_us: None,
            rate: NORMAL_RATE,
        }
    }

    /// How long to wait before the frame with this presentation time is shown; 0 if it is due. The
    /// first frame after a start or a [`pause`](Self::pause) is due at once.
    pub fn time_until(&mut self, now_us: i64, presentation_us: i64) -> i64 {
        let gap_us = self.last_us.map_or(0, |last| presentation_us - last);
        if self.snap_us.is_some_and(|snap| gap_us > snap) {
            self.resumed = Some((now_us, presentation_us));
            return 0;
        }
        let (local, media) = *self.resumed.get_or_insert((now_us, presentation_us));
        // What a publisher claims may lie thousands of years ahead.
        let ahead = (presentation_us - media).saturating_mul(NORMAL_RATE) / self.rate;
        let due = local + ahead;
        (due - now_us).max(0)
    }

    /// A frame was shown.
    pub fn on_shown(&mut self, presentation_us: i64) {
        self.last_us = Some(presentation_us);
    }

    /// Presentation time of the last frame that was shown.
    pub fn last_us(&self) -> Option<i64> {
        self.last_us
    }

    /// The buffer ran empty: the next frame sets the clock anew.
    pub fn pause(&mut self) {
        self.resumed = None;
    }

    /// Whatever comes next is due this much later.
    pub fn delay(&mut self, by_us: i64) {
        if let Some((local, _)) = &mut self.resumed {
            *local += by_us;
        }
    }

    /// Goes on at `rate` thousandths of the media's speed, which is at least 1.
    pub fn set_rate(&mut self, now_us: i64, rate: i64) {
        let rate = rate.max(1);
        if let Some((local, media)) = &mut self.resumed {
            *media += (now_us - *local) * self.rate / NORMAL_RATE;
            *local = now_us;
        }
        self.rate = rate;
    }

    /// Thousandths of the media's speed.
    pub fn rate(&self) -> i64 {
        self.rate
    }
}

/// The media's own speed.
const NORMAL_RATE: i64 = 1000;
