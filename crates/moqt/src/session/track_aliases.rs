//! The peer's track aliases and their subscriptions: live, lingering after `PUBLISH_DONE`, or
//! retired [moqt-18 §11.1].

use std::collections::VecDeque;
use std::time::Instant;

use super::request_ids::RequestId;

/// The peer's track aliases, from its `SUBSCRIBE_OK` and `PUBLISH` messages.
///
/// Every datagram and every subgroup stream causes a look-up, so the live aliases are a small sorted list.
#[derive(Debug, Default)]
pub(super) struct TrackAliases {
    /// Sorted by alias; among equal aliases the older subscription first.
    live: Vec<TrackAlias>,
    /// Subscriptions ended by `PUBLISH_DONE` that stay in `live` until this time; oldest first.
    lingering: VecDeque<(Instant, TrackAlias)>,
    /// Aliases of ended subscriptions, oldest first.
    retired: VecDeque<u64>,
}

/// One alias and the subscription it belongs to.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) struct TrackAlias {
    pub(super) alias: u64,
    pub(super) request: RequestId,
}

/// The state of an alias.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Resolved {
    /// Objects go to this subscription.
    Live(RequestId),
    /// Objects come too late and are dropped.
    Retired,
    /// No message has assigned it.
    Unknown,
}

impl TrackAliases {
    /// Finds the subscription of an alias.
    pub(super) fn resolve(&self, alias: u64) -> Resolved {
        let at = self.live.partition_point(|track| track.alias < alias);
        match self.live.get(at) {
            Some(track) if track.alias == alias => Resolved::Live(track.request),
            Some(_) | None if self.retired.contains(&alias) => Resolved::Retired,
            Some(_) | None => Resolved::Unknown,
        }
    }

    /// Returns the subscriptions that use an alias. Several are possible only for one track.
    pub(super) fn users(&self, alias: u64) -> impl Iterator<Item = RequestId> {
        let from = self.live.partition_point(|track| track.alias < alias);
        self.live[from..]
            .iter()
            .take_while(move |t| t.alias == alias)
            .map(|track| track.request)
    }

    /// Lets a subscription receive the objects of an alias.
    pub(super) fn insert(&mut self, track: TrackAlias) {
        self.retired.retain(|&retired| retired != track.alias);
        let at = self
            .live
            .partition_point(|other| other.alias <= track.alias);
        self.live.insert(at, track);
    }

    /// Ends a subscription: late objects are dropped. Returns whether an older retired alias was removed because there
    /// were more than `retired_max`.
    pub(super) fn retire(&mut self, request: RequestId, retired_max: usize) -> bool {
        self.lingering.retain(|(_, track)| track.request != request);
        let Some(at) = self.live.iter().position(|track| track.request == request) else {
            return false;
        };
        let alias = self.live.remove(at).alias;
        if self.users(alias).next().is_some() {
            return false;
        }
        self.retired.push_back(alias);
        let is_too_many = self.retired.len() > retired_max;
        if is_too_many {
            self.retired.pop_front();
        }
        is_too_many
    }

    /// Lets a subscription accept late objects until a deadline.
    pub(super) fn linger(&mut self, request: RequestId, until: Instant) {
        if self.is_lingering(request) {
            return;
        }
        if let Some(track) = self.live.iter().find(|track| track.request == request) {
            self.lingering.push_back((until, *track));
        }
    }

    /// Returns whether a subscription has ended and accepts late objects.
    pub(super) fn is_lingering(&self, request: RequestId) -> bool {
        self.lingering
            .iter()
            .any(|(_, track)| track.request == request)
    }

    /// How many subscriptions linger.
    pub(super) fn lingering_len(&self) -> usize {
        self.lingering.len()
    }

    /// The subscription that has lingered longest, and until when it lingers.
    pub(super) fn first_lingering(&self) -> Option<(Instant, RequestId)> {
        self.lingering
            .front()
            .map(|(until, track)| (*until, track.request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(alias: u64, request: u64) -> TrackAlias {
        TrackAlias {
            alias,
            request: RequestId(request),
        }
    }

    #[test]
    fn aliases_resolve_until_they_retire() {
        let mut tracks = TrackAliases::default();
        for (alias, request) in [(7, 0), (3, 2), (9, 4)] {
            tracks.insert(track(alias, request));
        }
        assert_eq!(tracks.resolve(3), Resolved::Live(RequestId(2)));
        assert_eq!(tracks.resolve(4), Resolved::Unknown);
        tracks.retire(RequestId(2), 8);
        assert_eq!(tracks.resolve(3), Resolved::Retired);
        tracks.insert(track(3, 6));
        assert_eq!(tracks.resolve(3), Resolved::Live(RequestId(6)));
    }

    #[test]
    fn two_subscriptions_to_one_track_share_its_alias() {
        let mut tracks = TrackAliases::default();
        tracks.insert(track(3, 0));
        tracks.insert(track(3, 2));
        assert_eq!(tracks.resolve(3), Resolved::Live(RequestId(0)));
        tracks.retire(RequestId(0), 8);
        assert_eq!(tracks.resolve(3), Resolved::Live(RequestId(2)));
        tracks.retire(RequestId(2), 8);
        assert_eq!(tracks.resolve(3), Resolved::Retired);
    }

    #[test]
    fn retired_aliases_are_bounded() {
        let mut tracks = TrackAliases::default();
        for n in 0..3 {
            tracks.insert(track(n, n));
            assert_eq!(tracks.retire(RequestId(n), 2), n == 2);
        }
        assert_eq!(
            tracks.resolve(0),
            Resolved::Unknown,
            "one past the limit forgets the oldest"
        );
        assert_eq!(tracks.resolve(1), Resolved::Retired);
        assert_eq!(tracks.resolve(2), Resolved::Retired);
    }
}
