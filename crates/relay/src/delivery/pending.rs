//! The SUBSCRIBE requests that wait for a publisher of one track.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use weir_moqt::{parameter::Parameters, session::RequestId};
use weir_quic::Handle;

use crate::{ids::RequestKey, sessions::peer::PeerKind, timers::Timer};

/// A SUBSCRIBE request that waits for a publisher.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PendingSubscribe {
    pub(super) handle: Handle,
    pub(super) request: RequestId,
    /// What the session is to this relay.
    pub(super) kind: PeerKind,
    pub(super) parameters: Parameters,
    /// How long the request waits for a publisher to appear; a time in the past if it does not wait.
    pub(super) until: Instant,
    /// When the request is examined next.
    pub(super) wake: Instant,
}

impl PendingSubscribe {
    pub(super) fn key(&self) -> RequestKey {
        (self.handle, self.request)
    }

    pub(super) fn timer(&self) -> Timer {
        Timer::Rendezvous(self.handle, self.request)
    }

    fn wants_objects(&self) -> bool {
        self.parameters.forward != Some(false)
    }
}

/// The requests that wait for one track. What the publishers have to know of them costs the same however many they are.
#[derive(Debug, Default)]
pub(super) struct Pending {
    requests: BTreeMap<RequestKey, PendingSubscribe>,
    /// Requests that wait for the answers of publishers. The others wait for a publisher to appear.
    unanswered: BTreeSet<RequestKey>,
    /// Until when each request waits for a publisher to appear.
    untils: BTreeSet<(Instant, RequestKey)>,
    /// The new groups that requests ask for, each with their number.
    new_groups: BTreeMap<u64, usize>,
    /// The number of requests of each kind of session, and of those among them that want objects.
    counts: [(usize, usize); PeerKind::ALL.len()],
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the number of requests of clients.
    pub(super) fn clients_len(&self) -> usize {
        self.counts[PeerKind::Client as usize].0
    }

    /// Returns whether there is a request of a session of some kind.
    pub(super) fn any(&self, of: impl Fn(PeerKind) -> bool) -> bool {
        let mut kinds = PeerKind::ALL.into_iter();
        kinds.any(|kind| of(kind) && self.counts[kind as usize].0 > 0)
    }

    /// Returns whether a request of a session of some kind wants objects.
    pub(super) fn any_wants_objects(&self, of: impl Fn(PeerKind) -> bool) -> bool {
        let mut kinds = PeerKind::ALL.into_iter();
        kinds.any(|kind| of(kind) && self.counts[kind as usize].1 > 0)
    }

    /// Returns the largest new group that a request asks for.
    pub(super) fn new_group(&self) -> Option<u64> {
        self.new_groups.last_key_value().map(|(&group, _)| group)
    }

    /// Returns until when the most patient request waits.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.untils.last().map(|&(until, _)| until)
    }

    pub(super) fn get(&self, key: RequestKey) -> Option<&PendingSubscribe> {
        self.requests.get(&key)
    }

    /// Returns whether a session waits.
    pub(super) fn has_session(&self, handle: Handle) -> bool {
        let of_session = (handle, RequestId(0))..=(handle, RequestId(u64::MAX));
        self.requests.range(of_session).next().is_some()
    }

    /// Returns the requests of sessions of a kind.
    pub(super) fn of_kind(&self, kind: PeerKind) -> Vec<RequestKey> {
        if self.counts[kind as usize].0 == 0 {
            return Vec::new();
        }
        let of_kind = self
            .requests
            .values()
            .filter(|waiting| waiting.kind == kind);
        of_kind.map(PendingSubscribe::key).collect()
    }

    /// Adds a request, which waits for the answers of publishers.
    pub(super) fn insert(&mut self, request: PendingSubscribe) {
        self.unanswered.insert(request.key());
        self.add(request);
    }

    pub(super) fn remove(&mut self, key: RequestKey) -> Option<PendingSubscribe> {
        self.unanswered.remove(&key);
        self.take(key)
    }

    /// Removes the requests that can be established, by the kind of their session.
    pub(super) fn take_all(&mut self, of: impl Fn(PeerKind) -> bool) -> Vec<PendingSubscribe> {
        if !self.any(|kind| !of(kind)) {
            return std::mem::take(self).requests.into_values().collect();
        }
        let taken: Vec<_> = PeerKind::ALL
            .into_iter()
            .filter(|&kind| of(kind))
            .flat_map(|kind| self.of_kind(kind))
            .collect();
        taken
            .into_iter()
            .filter_map(|key| self.remove(key))
            .collect()
    }

    /// Applies a REQUEST_UPDATE; returns false if there is no such request.
    pub(super) fn change(&mut self, key: RequestKey, parameters: &Parameters) -> bool {
        let Some(mut request) = self.take(key) else {
            return false;
        };
        request.parameters.change(parameters);
        self.add(request);
        true
    }

    /// Handles that no publisher is left that could answer. Removes and returns the requests that do not wait for a
    /// publisher to appear. Calls `reset` with each request that does, and the time until which it waits.
    pub(super) fn decline(
        &mut self,
        now: Instant,
        mut reset: impl FnMut(&PendingSubscribe, Instant),
    ) -> Vec<RequestKey> {
        let mut refused = Vec::new();
        for key in std::mem::take(&mut self.unanswered) {
            let Some(waiting) = self.requests.get_mut(&key) else {
                continue;
            };
            if waiting.until > now {
                reset(waiting, waiting.until);
                waiting.wake = waiting.until;
            } else {
                refused.push(key);
            }
        }
        refused
    }

    fn add(&mut self, request: PendingSubscribe) {
        let (all, wanting) = &mut self.counts[request.kind as usize];
        *all += 1;
        *wanting += usize::from(request.wants_objects());
        if let Some(group) = request.parameters.new_group_request {
            *self.new_groups.entry(group).or_default() += 1;
        }
        self.untils.insert((request.until, request.key()));
        self.requests.insert(request.key(), request);
    }

    fn take(&mut self, key: RequestKey) -> Option<PendingSubscribe> {
        let request = self.requests.remove(&key)?;
        self.untils.remove(&(request.until, key));
        let (all, wanting) = &mut self.counts[request.kind as usize];
        *all -= 1;
        *wanting -= usize::from(request.wants_objects());
        if let Some(group) = request.parameters.new_group_request
            && let Some(count) = self.new_groups.get_mut(&group)
        {
            *count -= 1;
            if *count == 0 {
                self.new_groups.remove(&group);
            }
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::{epoch, handles};

    fn request(handle: Handle, request: u64, waits_secs: u64) -> PendingSubscribe {
        PendingSubscribe {
            handle,
            request: RequestId(request),
            kind: PeerKind::Client,
            parameters: Parameters::default(),
            until: epoch() + Duration::from_secs(waits_secs),
            wake: epoch() + Duration::from_secs(10),
        }
    }

    #[test]
    fn who_waits_is_looked_at_once_however_many_come_after() {
        let [handle] = handles();
        let (mut pending, mut looked_at) = (Pending::default(), 0);
        for number in 0..1000 {
            pending.insert(request(handle, number, 30));
            let refused = pending.decline(epoch(), |waiting, until| {
                assert_ne!(waiting.wake, until);
                looked_at += 1;
            });
            assert_eq!(refused, []);
        }
        assert_eq!(looked_at, 1000);
        assert!(pending.patience().is_some_and(|until| until > epoch()));
        pending.insert(request(handle, 1000, 0));
        let refused = pending.decline(epoch(), |_, _| panic!("answered before"));
        assert_eq!(refused, [(handle, RequestId(1000))]);
    }

    #[test]
    fn what_publishers_have_to_know_follows_each_change() {
        let [handle, link] = handles();
        let mut pending = Pending::default();
        let asks = |group, forward| Parameters {
            new_group_request: group,
            forward,
            ..Parameters::default()
        };
        let known = |pending: &Pending| (pending.new_group(), pending.any_wants_objects(|_| true));
        pending.insert(PendingSubscribe {
            parameters: asks(Some(7), Some(false)),
            ..request(handle, 0, 0)
        });
        assert_eq!(known(&pending), (Some(7), false));
        pending.insert(PendingSubscribe {
            kind: PeerKind::Sibling,
            parameters: asks(Some(9), None),
            ..request(link, 0, 0)
        });
        assert_eq!(known(&pending), (Some(9), true));
        assert_eq!((pending.len(), pending.clients_len()), (2, 1));
        assert_eq!(pending.of_kind(PeerKind::Sibling), [(link, RequestId(0))]);
        assert!(pending.has_session(handle) && pending.has_session(link));
        assert!(pending.change((link, RequestId(0)), &asks(None, Some(false))));
        assert_eq!(known(&pending), (Some(9), false));
        assert!(!pending.change((link, RequestId(2)), &asks(None, None)));
        assert_eq!(pending.take_all(|kind| !kind.is_link()).len(), 1);
        assert_eq!((pending.len(), pending.clients_len()), (1, 0));
        assert_eq!(known(&pending), (Some(9), false));
        assert!(pending.remove((link, RequestId(0))).is_some());
        assert!(pending.is_empty() && pending.new_group().is_none());
        assert_eq!(pending.patience(), None);
    }
}
