//! The relay's own subscriptions to prefixes that relays behind links refused or ended, and when they are sent again.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::{Duration, Instant},
};

use weir_moqt::{error::RequestErrorCode, message::RequestError};
use weir_quic::Handle;

use super::subscriptions::Target;
use crate::{timers::Timer, turn::Turn};

/// Prefixes of which a subscription was refused, ended or not sent.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    refused: BTreeMap<Target, Refusal>,
    /// When they are looked at again.
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
    /// The same as long as longer prefixes are wanted, which each attempt interrupts.
    until_if_wide: Option<Instant>,
    /// When it is looked at again: at the latest after the longest pause of a relay that demands none.
    due: Option<Instant>,
    /// Whether it is held because nobody wanted it any more.
    is_left: bool,
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
    /// Notes that a subscription was refused, ended by the other relay, or not sent.
    pub(super) fn note(&mut self, turn: &mut Turn<'_>, target: Target, cause: Cause) -> Hold {
        let refusal = self.refused.entry(target.clone()).or_default();
        if refusal.is_old(turn.now) {
            (refusal.overlaps, refusal.others) = (0, 0);
        }
        let (hold, pauses) = refusal.next(cause);
        refusal.hold = Some(hold);
        refusal.is_left = false;
        refusal.until = pauses.map(|(pause, _)| turn.now + pause);
        refusal.until_if_wide = pauses.map(|(_, pause)| turn.now + pause);
        let due = refusal.until;
        self.set_due(turn, target, due);
        hold
    }

    fn set_due(&mut self, turn: &mut Turn<'_>, target: Target, due: Option<Instant>) {
        let Some(refusal) = self.refused.get_mut(&target) else {
            return;
        };
        let due = due.map(|at| at.min(turn.now + PAUSE_MAX));
        if let Some(before) = mem::replace(&mut refusal.due, due) {
            self.due.remove(&(before, target.clone()));
        }
        if let Some(at) = due {
            self.due.insert((at, target));
            self.arm(turn);
        }
    }

    /// Holds a subscription back that nobody wants any more, for a while, if it is held or `is_unanswered`. For if somebody
    /// wants it again and again, each attempt interrupts those to longer prefixes.
    pub(super) fn on_left(&mut self, turn: &mut Turn<'_>, target: Target, is_unanswered: bool) {
        if self.hold(&target).is_none() && !is_unanswered {
            self.forget(&target);
            return;
        }
        let refusal = self.refused.entry(target.clone()).or_default();
        if mem::replace(&mut refusal.is_left, true) {
            return;
        }
        let pause = if refusal.others > 0 { PAUSE_MAX } else { PAUSE };
        let later = Some(turn.now + pause);
        refusal.hold = Some(Hold::Barred);
        refusal.until = refusal.until.max(later);
        refusal.until_if_wide = refusal.until_if_wide.max(later);
        self.set_due(turn, target, later);
    }

    /// Forgets the refusals of a subscription.
    pub(super) fn forget(&mut self, target: &Target) {
        if let Some(due) = self.refused.remove(target).and_then(|it| it.due) {
            self.due.remove(&(due, target.clone()));
        }
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

    /// Returns some of the subscriptions that are to be sent again now. The others follow. `is_wide` says whether longer
    /// prefixes than that of a subscription are wanted; `None` if it is not wanted itself.
    pub(super) fn take_due(
        &mut self,
        turn: &mut Turn<'_>,
        is_wide: impl Fn(&Target) -> Option<bool>,
    ) -> Vec<Target> {
        self.armed.take_if(|at| *at <= turn.now);
        let mut due = Vec::new();
        let mut looked_at = 0;
        while looked_at < DUE_MAX
            && self.due.first().is_some_and(|(at, _)| *at <= turn.now)
            && let Some((_, target)) = self.due.pop_first()
        {
            looked_at += 1;
            let Some(refusal) = self.refused.get_mut(&target) else {
                continue;
            };
            refusal.due = None;
            let Some(is_wide) = is_wide(&target) else {
                self.refused.remove(&target);
                continue;
            };
            let until = if is_wide {
                refusal.until_if_wide
            } else {
                refusal.until
            };
            match until {
                Some(until) if until <= turn.now => {
                    refusal.hold = None;
                    refusal.is_left = false;
                    refusal.until = Some(turn.now);
                    due.push(target);
                }
                later => self.set_due(turn, target, later),
            }
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

    /// Handles that this relay has ended a subscription: what it overlapped with no longer counts.
    pub(super) fn on_ended(&mut self, target: &Target) {
        if let Some(refusal) = self.refused.get_mut(target) {
            refusal.overlaps = 0;
        }
    }

    /// Forgets the refusals of the relay behind a link that was lost.
    pub(super) fn forget_link(&mut self, link: Handle) {
        self.refused.retain(|(other, ..), _| *other != link);
        self.due.retain(|(_, (other, ..))| *other != link);
    }
}

impl Refusal {
    /// Returns whether the subscription was sent again long ago.
    fn is_old(&self, now: Instant) -> bool {
        let age = |until| now.saturating_duration_since(until);
        self.until
            .is_some_and(|until| age(until) >= FORGOTTEN_AFTER)
    }

    /// Counts another one. Returns what is done until the subscription is sent again, and after which time that is: at
    /// least, and as long as longer prefixes are wanted.
    fn next(&mut self, cause: Cause) -> (Hold, Option<(Duration, Duration)>) {
        let interval = match cause {
            Cause::Overlap if self.overlaps < OVERLAPS_MAX => {
                self.overlaps += 1;
                return (Hold::Waits, Some((OVERLAP_PAUSE, OVERLAP_PAUSE)));
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
            return (Hold::Waits, Some((PAUSE, PAUSE)));
        }
        let pause = PAUSE * 2_u32.saturating_pow(self.others / 2);
        let [pause, pause_if_wide] =
            [PAUSE_MAX, PAUSE_WIDE_MAX].map(|max| pause.min(max).max(interval));
        (Hold::Barred, Some((pause, pause_if_wide)))
    }
}

/// Subscriptions that are looked at in one turn, and the time until the next one.
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
