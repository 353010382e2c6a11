//! The relay's own subscriptions to prefixes: which are wanted, and which are open.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included, Unbounded},
    time::{Duration, Instant},
};

use weir_moqt::{error::ResetCode, name::Namespace, parameter::Parameters, session::RequestId};
use weir_quic::Handle;

use super::refusals::{Cause, Hold, Refusals};
use crate::{
    ids::RequestKey,
    sessions::peer::{PrefixKind, Purpose},
    timers::Timer,
    turn::Turn,
};

/// The prefixes that sessions of this relay want to know about, and the relay's own subscriptions for them.
///
/// What changes is noted at once. The subscriptions follow in pieces, in the order of their prefixes: first those end
/// that a new one would overlap with.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Number of subscriptions of sessions to each prefix.
    wanted: BTreeMap<(PrefixKind, Namespace), usize>,
    open: BTreeMap<Target, RequestId>,
    requests: BTreeMap<RequestKey, Request>,
    /// Prefixes under which subscriptions are not as they should be, and how far they are.
    changing: BTreeMap<Target, Place>,
    /// Links that were lost: requests up to this one are to end.
    lost: BTreeMap<Handle, RequestId>,
    refusals: Refusals,
    /// When a second began, and how many subscriptions have ended in it.
    second: Option<Instant>,
    ended: usize,
    /// Whether the timer for more of them is set.
    is_paused: bool,
}

/// A subscription to a prefix.
#[derive(Debug)]
struct Request {
    kind: PrefixKind,
    prefix: Namespace,
    is_accepted: bool,
}

/// What changed in one step.
pub(super) struct Changed {
    /// Requests that ended in favour of others, and their prefixes.
    pub(super) ended: Vec<(RequestKey, Namespace)>,
    /// Prefixes of namespaces under which others may find again what these found.
    pub(super) begun: Vec<(Handle, Namespace)>,
    /// Whether nothing more is to change now.
    pub(super) is_over: bool,
    /// As how many steps of a walk all that counts.
    pub(super) work: usize,
}

/// A prefix at the relay behind a link.
pub(super) type Target = (Handle, PrefixKind, Namespace);

/// A subscription that the relay behind a link has refused or ended.
pub(super) struct Closed {
    pub(super) prefix: Namespace,
    /// Why it is not sent again at once; `None`: because nobody wants it.
    pub(super) hold: Option<Hold>,
}

/// How far the subscriptions under a prefix are as they should be.
#[derive(Clone, Debug)]
enum Place {
    /// Up to this prefix.
    Before(Namespace),
    /// Up to this prefix and with it.
    After(Namespace),
    /// All of them.
    End,
}

impl Place {
    /// Up to the last prefix under this one.
    fn behind(passed: &Namespace) -> Self {
        passed.next_beyond().map_or(Self::End, Self::Before)
    }
}

/// What is to do next under a prefix.
enum Step {
    End(Namespace),
    Begin(Namespace),
    /// A subscription is as it should be.
    Pass(Namespace),
    /// A subscription is refused. Longer prefixes are subscribed to instead.
    Skip(Namespace),
}

impl Subscriptions {
    /// Returns the prefix of an open subscription. Those over a link that was lost do not count.
    pub(super) fn prefix(&self, key: RequestKey) -> Option<&Namespace> {
        let request = self.requests.get(&key).filter(|_| !self.is_lost(key))?;
        Some(&request.prefix)
    }

    /// Notes a subscription of a session. `links` are those that are asked.
    pub(super) fn want(&mut self, links: &[Handle], (kind, prefix): (PrefixKind, Namespace)) {
        let count = self.wanted.entry((kind, prefix.clone())).or_default();
        *count += 1;
        if *count == 1 {
            if !is_wide(&self.wanted, kind, &prefix) {
                // It interrupts nothing.
                for &link in links {
                    self.refusals.forget(&(link, kind, prefix.clone()));
                }
            }
            self.change_over(links, kind, &prefix);
        }
    }

    /// Notes the end of a subscription of a session.
    pub(super) fn end_want(
        &mut self,
        turn: &mut Turn<'_>,
        links: &[Handle],
        name: (PrefixKind, Namespace),
    ) {
        let Some(count) = self.wanted.get_mut(&name) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.wanted.remove(&name);
            let (kind, prefix) = name;
            let is_wide = is_wide(&self.wanted, kind, &prefix);
            for &link in links {
                let target = (link, kind, prefix.clone());
                if is_wide {
                    let is_unanswered = self.is_unanswered(&target);
                    self.refusals.on_left(turn, target, is_unanswered);
                } else {
                    self.refusals.forget(&target);
                }
            }
            self.change_over(links, kind, &prefix);
        }
    }

    fn change_over(&mut self, links: &[Handle], kind: PrefixKind, prefix: &Namespace) {
        for &link in links {
            let target = (link, kind, prefix.clone());
            if !self.is_covered(&target) {
                self.change(target);
            }
        }
    }

    /// Has everything that is wanted subscribed to over a new link.
    pub(super) fn on_link(&mut self, link: Handle) {
        for kind in [PrefixKind::Namespaces, PrefixKind::Tracks] {
            self.change((link, kind, Namespace::EMPTY));
        }
    }

    /// Has all subscriptions over a link end.
    pub(super) fn on_link_lost(&mut self, link: Handle) {
        let mut requests = self.requests.range(requests_of(link));
        if let Some((&(_, last), _)) = requests.next_back() {
            self.lost.insert(link, last);
        }
        self.refusals.forget_link(link);
        self.on_link(link);
    }

    /// Notes that the subscriptions under a prefix may have to change.
    fn change(&mut self, target: Target) {
        let (link, kind, _) = target;
        let target = if self.changing.len() < CHANGING_MAX {
            target
        } else {
            // All of them are looked at.
            self.changing
                .retain(|(other, of, _), _| (*other, *of) != (link, kind));
            (link, kind, Namespace::EMPTY)
        };
        // What is half done under it is looked at from its start again.
        while let Some((under, _)) = self.changing.range(&target..).next()
            && is_under(under, &target)
        {
            let under = under.clone();
            self.changing.remove(&under);
        }
        let place = Place::Before(target.2.clone());
        self.changing.insert(target, place);
    }

    /// Returns whether subscriptions are to change.
    pub(super) fn is_changing(&self) -> bool {
        !self.changing.is_empty()
    }

    /// Sends and ends the next subscriptions. `links` are those that are asked.
    pub(super) fn change_some(&mut self, turn: &mut Turn<'_>, links: &[Handle]) -> Changed {
        let (mut ended, mut begun, mut left) = (Vec::new(), Vec::new(), LOOKED_AT_MAX);
        // Paused targets, and the last of them that no other covers.
        let (mut later, mut outer) = (Vec::new(), None);
        while left > 0
            && let Some((target, mut place)) = self.changing.pop_first()
        {
            left -= 1;
            if outer.as_ref().is_some_and(|outer| is_under(&target, outer)) {
                later.push((target, place));
                continue;
            }
            let (link, kind, _) = target;
            let is_asked = links.contains(&link);
            let mut is_paused = false;
            while left > 0
                && let Some(step) = self.next(&target, &place, is_asked)
            {
                match step {
                    Step::End(prefix) => {
                        is_paused = !self.may_end(turn.now);
                        if is_paused {
                            break;
                        }
                        left = left.saturating_sub(LOOKS_TO_SEND);
                        let key = self.end(turn, &(link, kind, prefix.clone()));
                        let key = key.filter(|key| !self.is_lost(*key));
                        ended.extend(key.map(|key| (key, prefix)));
                    }
                    Step::Begin(prefix) => {
                        left = left.saturating_sub(LOOKS_TO_SEND);
                        if self.begin(turn, &(link, kind, prefix.clone())) {
                            place = Place::behind(&prefix);
                            if kind == PrefixKind::Namespaces {
                                begun.push((link, prefix));
                            }
                        }
                    }
                    Step::Pass(prefix) => {
                        left -= 1;
                        place = Place::behind(&prefix);
                    }
                    Step::Skip(prefix) => {
                        left -= 1;
                        place = Place::After(prefix);
                    }
                }
            }
            if is_paused {
                outer = Some(target.clone());
                later.push((target, place));
            } else if left == 0 {
                self.changing.insert(target, place);
            }
            self.forget_loss(link);
        }
        let is_over = self.changing.is_empty();
        if !later.is_empty() {
            self.changing.extend(later);
            self.change_later(turn);
        }
        let work = (LOOKED_AT_MAX - left) / LOOKS_TO_WORK;
        Changed {
            ended,
            begun,
            is_over,
            work,
        }
    }

    /// Returns whether another subscription may end now, and counts it.
    fn may_end(&mut self, now: Instant) -> bool {
        if self.second.is_none_or(|second| now >= second + SECOND) {
            (self.second, self.ended) = (Some(now), 0);
        }
        let may_end = self.ended < ENDED_PER_SECOND_MAX;
        self.ended += usize::from(may_end);
        may_end
    }

    /// Has the subscriptions changed when more of them may end.
    fn change_later(&mut self, turn: &mut Turn<'_>) {
        if !self.is_paused
            && let Some(second) = self.second
        {
            self.is_paused = true;
            turn.timers.set(second + SECOND, Timer::InterestsRefused);
        }
    }

    /// Returns what is to do next under a prefix.
    fn next(&self, target: &Target, place: &Place, is_asked: bool) -> Option<Step> {
        let (link, kind, prefix) = target;
        if is_asked && self.is_covered(target) {
            return None;
        }
        let from = match place {
            Place::Before(from) => Included(from),
            Place::After(from) => Excluded(from),
            Place::End => return None,
        };
        let from_open = from.map(|from| (*link, *kind, from.clone()));
        let mut open = self.open.range((from_open, Unbounded));
        let open = open.next().map(|(open, _)| open);
        let open = open.filter(|open| is_under(open, target));
        let open = open.map(|(.., it)| it);
        let from_wanted = from.map(|from| (*kind, from.clone()));
        let mut wanted = self.wanted.range((from_wanted, Unbounded));
        let wanted = wanted.next().map(|(wanted, _)| wanted);
        let wanted = wanted.filter(|(of, it)| is_asked && of == kind && it.starts_with(prefix));
        let Some((_, wanted)) = wanted else {
            return open.cloned().map(Step::End);
        };
        if let Some(open) = open
            && (open < wanted || self.is_of_lost_link(*link, *kind, open))
        {
            return Some(Step::End(open.clone()));
        }
        let covering = (*link, *kind, wanted.clone());
        let hold = self.refusals.hold(&covering);
        if hold == Some(Hold::Barred) {
            let step = if open == Some(wanted) {
                Step::End
            } else {
                Step::Skip
            };
            return Some(step(wanted.clone()));
        }
        let beyond = (Excluded(covering.clone()), Unbounded);
        let next = self.open.range(beyond).next();
        Some(match next.filter(|(next, _)| is_under(next, &covering)) {
            Some(((.., under), _)) => Step::End(under.clone()),
            None if open == Some(wanted) || hold.is_some() => Step::Pass(wanted.clone()),
            None => Step::Begin(wanted.clone()),
        })
    }

    /// Returns whether an open subscription is over a link that was lost since.
    fn is_of_lost_link(&self, link: Handle, kind: PrefixKind, prefix: &Namespace) -> bool {
        let request = self.open.get(&(link, kind, prefix.clone()));
        request.is_some_and(|&request| self.is_lost((link, request)))
    }

    fn is_lost(&self, (link, request): RequestKey) -> bool {
        self.lost.get(&link).is_some_and(|last| request <= *last)
    }

    /// Forgets the loss of a link when all subscriptions have ended for that.
    fn forget_loss(&mut self, link: Handle) {
        let mut requests = self.requests.range(requests_of(link));
        let first = requests.next().map(|(&key, _)| key);
        if !first.is_some_and(|key| self.is_lost(key)) {
            self.lost.remove(&link);
        }
    }

    /// Sends SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS. Returns false if that cannot be sent now.
    fn begin(&mut self, turn: &mut Turn<'_>, target: &Target) -> bool {
        let (link, kind, prefix) = target.clone();
        let sent = turn.with_session(link, |session, connection| {
            let (wanted, parameters) = (prefix.clone(), Parameters::default());
            match kind {
                PrefixKind::Namespaces => {
                    session.subscribe_namespace(connection, wanted, parameters)
                }
                PrefixKind::Tracks => session.subscribe_tracks(connection, wanted, parameters),
            }
        });
        let Some(Ok(request)) = sent else {
            turn.counters.link_requests_unsent += 1;
            self.note_refusal(turn, target.clone(), Cause::Retry(Duration::ZERO));
            return false;
        };
        turn.insert_request((link, request), Purpose::UpstreamPrefix);
        self.open.insert(target.clone(), request);
        let open = Request {
            kind,
            prefix,
            is_accepted: false,
        };
        self.requests.insert((link, request), open);
        true
    }

    /// Ends one of the relay's subscriptions; returns its request.
    fn end(&mut self, turn: &mut Turn<'_>, target: &Target) -> Option<RequestKey> {
        let key = (target.0, self.open.remove(target)?);
        self.requests.remove(&key);
        self.refusals.on_ended(target);
        if turn.remove_request(key).is_some() {
            turn.cancel(key, ResetCode::CANCELLED);
        }
        Some(key)
    }

    /// Handles a subscription that the other relay has refused or ended. Returns `None` if its link is lost.
    pub(super) fn on_closed(
        &mut self,
        turn: &mut Turn<'_>,
        key: RequestKey,
        cause: Cause,
    ) -> Option<Closed> {
        let is_lost = self.is_lost(key);
        let Request { kind, prefix, .. } = self.requests.remove(&key)?;
        let target = (key.0, kind, prefix.clone());
        self.open.remove(&target);
        if is_lost {
            return None;
        }
        let is_wanted = self.wanted.contains_key(&(kind, prefix.clone()));
        let hold = is_wanted.then(|| self.note_refusal(turn, target, cause));
        Some(Closed { prefix, hold })
    }

    fn note_refusal(&mut self, turn: &mut Turn<'_>, target: Target, cause: Cause) -> Hold {
        let hold = self.refusals.note(turn, target.clone(), cause);
        if hold == Hold::Barred {
            self.change(target);
        }
        hold
    }

    /// Returns whether an open subscription was refused or ended before, but for overlaps.
    pub(super) fn is_repeated(&self, key: RequestKey) -> bool {
        let of = self.requests.get(&key);
        of.is_some_and(|it| {
            let target = (key.0, it.kind, it.prefix.clone());
            self.refusals.is_repeated(&target)
        })
    }

    /// Notes that the other relay has accepted a subscription.
    pub(super) fn on_accepted(&mut self, key: RequestKey) {
        if let Some(request) = self.requests.get_mut(&key) {
            request.is_accepted = true;
        }
    }

    /// Returns whether a subscription is open, and the other relay has not accepted it yet.
    fn is_unanswered(&self, target: &Target) -> bool {
        let request = self.open.get(target);
        let request = request.and_then(|&id| self.requests.get(&(target.0, id)));
        request.is_some_and(|request| !request.is_accepted)
    }

    /// Has subscriptions sent again that were refused or ended, and those ended that had to wait.
    pub(super) fn send_again(&mut self, turn: &mut Turn<'_>) {
        self.is_paused = false;
        let wanted = &self.wanted;
        let of = |(_, kind, prefix): &Target| {
            let is_wanted = wanted.contains_key(&(*kind, prefix.clone()));
            is_wanted.then(|| is_wide(wanted, *kind, prefix))
        };
        for target in self.refusals.take_due(turn, of) {
            self.change(target);
        }
    }

    /// Returns whether a shorter prefix of the same kind is wanted, and not refused.
    fn is_covered(&self, (link, kind, prefix): &Target) -> bool {
        prefix
            .prefixes()
            .skip(1)
            .filter(|shorter| self.wanted.contains_key(&(*kind, shorter.clone())))
            .any(|shorter| self.refusals.hold(&(*link, *kind, shorter)) != Some(Hold::Barred))
    }
}

/// Returns whether a prefix lies under another one at the same link.
fn is_under((link, kind, prefix): &Target, (other, of, outer): &Target) -> bool {
    (link, kind) == (other, of) && prefix.starts_with(outer)
}

/// Returns whether a longer prefix is wanted.
fn is_wide(
    wanted: &BTreeMap<(PrefixKind, Namespace), usize>,
    kind: PrefixKind,
    prefix: &Namespace,
) -> bool {
    let longer = (Excluded((kind, prefix.clone())), Unbounded);
    let next = wanted.range(longer).next();
    next.is_some_and(|((of, it), _)| *of == kind && it.starts_with(prefix))
}

fn requests_of(link: Handle) -> std::ops::RangeInclusive<RequestKey> {
    (link, RequestId(0))..=(link, RequestId(u64::MAX))
}

/// Prefixes under which subscriptions change. Beyond it, all subscriptions over a link are looked at. All of them may be
/// paused, and are passed in one step.
const CHANGING_MAX: usize = LOOKED_AT_MAX / 2;
/// Subscriptions that are looked at before others have their turn.
const LOOKED_AT_MAX: usize = 1024;
/// As how many of them one counts that is sent or ended.
const LOOKS_TO_SEND: usize = 16;
/// How many of them count as a step.
const LOOKS_TO_WORK: usize = 8;
/// Subscriptions that end in a second. Each may reset two streams, and a relay that gets very many resets closes the link.
const ENDED_PER_SECOND_MAX: usize = 200;
const SECOND: Duration = Duration::from_secs(1);
