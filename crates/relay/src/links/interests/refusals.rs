//! The relay's own subscriptions to prefixes that relays behind links refused or ended, and when they are sent again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use weir_moqt::{error::RequestErrorCode, message::RequestError};
use weir_quic::Handle;

use super::subscriptions::Target;
use crate::{timers::Timer, turn::Turn};

/// Prefixes of which a subscription was refused, ended or not sent, as long as they are wanted.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    refused: BTreeMap<Target, Refusal>,
    due: BTreeSet<(Instant, Target)>,
    /// When the timer is set.
    armed: Option<Instant>,
}

#[derive(Debug, Default)]
struct Refusal {
    /// How often in a row, because of an overlap and for other reasons.
    overlaps: u32,
    others: u32,
    /// `None`: it was sent again.
    hold: Option<Hold>,
    /// When it is or was sent again; `None`: never over this link.
    until: Option<Instant>,
}

/// Why a subscription is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It is sent again soon, and nothing under its prefix meanwhile: it may have been refused for what has just ended.
    Waits,
    /// Longer prefixes that it would cover are subscribed to instead.
    Barred,
}

/// Why a relay does not serve a subscription.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// It overlaps with one whose end is on another stream, and may arrive later.
    Overlap,
    /// It may be sent again after this time.
    Retry(Duration),
    /// It is not to be sent again.
    Final,
}

impl Cause {
    /// Returns the cause of a refusal. Without a retry interval, the request is not to be repeated [moqt-18 §10.6].
    pub(super) fn of(error: &RequestError) -> Self {
        if error.code == RequestErrorCode::PREFIX_OVERLAP {
            return Self::Overlap;
        }
        error.retry_after.map_or(Self::Final, Self::Retry)
    }
}

impl Refusals {
    /// Notes that a subscription was refused, ended by the other relay, or not sent. `is_wide`: longer prefixes are wanted,
    /// which each attempt interrupts.
    pub(super) fn note(
        &mut self,
        turn: &mut Turn<'_>,
        target: Target,
        cause: Cause,
        is_wide: bool,
    ) -> Hold {
        let refusal = self.refused.entry(target.clone()).or_default();
        let is_old = |until| turn.now.saturating_duration_since(until) >= FORGOTTEN_AFTER;
        if refusal.until.is_some_and(is_old) {
            (refusal.overlaps, refusal.others) = (0, 0);
        }
        let pause_max = if is_wide { PAUSE_WIDE_MAX } else { PAUSE_MAX };
        let (hold, pause) = refusal.next(cause, pause_max);
        refusal.hold = Some(hold);
        if let Some(until) = refusal.until.take() {
            self.due.remove(&(until, target.clone()));
        }
        if let Some(pause) = pause {
            let until = turn.now + pause;
            refusal.until = Some(until);
            self.due.insert((until, target));
            self.arm(turn);
        }
        hold
    }

    /// Returns why a subscription is not sent now.
    pub(super) fn hold(&self, target: &Target) -> Option<Hold> {
        self.refused.get(target)?.hold
    }

    /// Returns whether a subscription was refused or ended before, but for overlaps.
    pub(super) fn is_repeated(&self, target: &Target) -> bool {
        let refusal = self.refused.get(target);
        refusal.is_some_and(|refusal| refusal.others > 0)
    }

    /// Returns some of the subscriptions that are to be sent again now. The others follow.
    pub(super) fn take_due(&mut self, turn: &mut Turn<'_>) -> Vec<Target> {
        self.armed.take_if(|at| *at <= turn.now);
        let mut due = Vec::new();
        while due.len() < DUE_MAX
            && self.due.first().is_some_and(|(at, _)| *at <= turn.now)
            && let Some((_, target)) = self.due.pop_first()
        {
            if let Some(refusal) = self.refused.get_mut(&target) {
                refusal.hold = None;
            }
            due.push(target);
        }
        self.arm(turn);
        due
    }

    fn arm(&mut self, turn: &mut Turn<'_>) {
        let Some(&(first, _)) = self.due.first() else {
            return;
        };
        let at = first.max(turn.now + TURN);
        if self.armed.is_none_or(|armed| at < armed) {
            if let Some(later) = self.armed.replace(at) {
                turn.timers.cancel(later, Timer::InterestsRefused);
            }
            turn.timers.set(at, Timer::InterestsRefused);
        }
    }

    /// Forgets the refusals of a subscription that is no longer wanted.
    pub(super) fn forget(&mut self, target: &Target) {
        if let Some(until) = self.refused.remove(target).and_then(|it| it.until) {
            self.due.remove(&(until, target.clone()));
        }
    }

    /// Forgets the refusals of the relay behind a link that was lost.
    pub(super) fn forget_link(&mut self, link: Handle) {
        self.refused.retain(|(other, ..), _| *other != link);
        self.due.retain(|(_, (other, ..))| *other != link);
    }
}

impl Refusal {
    /// Counts another one. Returns what is done until the subscription is sent again, and after which time that is.
    fn next(&mut self, cause: Cause, pause_max: Duration) -> (Hold, Option<Duration>) {
        let interval = match cause {
            Cause::Overlap if self.overlaps < OVERLAPS_MAX => {
                self.overlaps += 1;
                return (Hold::Waits, Some(OVERLAP_PAUSE));
            }
            Cause::Overlap => Duration::ZERO,
            Cause::Retry(interval) if interval <= INTERVAL_MAX => interval,
            Cause::Retry(_) | Cause::Final => {
                self.others += 1;
                return (Hold::Barred, None);
            }
        };
        self.overlaps = 0;
        self.others += 1;
        // After a first, third, ... refusal, it alone is sent again: longer prefixes that have just ended may have been in its
        // way.
        if self.others % 2 == 1 && interval <= PAUSE {
            return (Hold::Waits, Some(PAUSE));
        }
        let pause = PAUSE * 2_u32.saturating_pow(self.others / 2);
        (Hold::Barred, Some(pause.min(pause_max).max(interval)))
    }
}

/// Subscriptions that are sent again in one turn, and the time until the next one.
const DUE_MAX: usize = 128;
const TURN: Duration = Duration::from_millis(1);
/// How often a subscription is refused because of an overlap before it counts as refused for another reason.
const OVERLAPS_MAX: u32 = 10;
/// The pause after a refusal because of an overlap.
const OVERLAP_PAUSE: Duration = Duration::from_millis(50);
/// The pause after another refusal. It doubles with each that lets longer prefixes be subscribed to.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, unless the other relay demands a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The same, if longer prefixes are wanted.
const PAUSE_WIDE_MAX: Duration = Duration::from_mins(10);
/// The longest pause that another relay may demand. Beyond it, the subscription is not sent again.
const INTERVAL_MAX: Duration = Duration::from_hours(1);
/// How long after the last pause earlier refusals no longer count.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);
