//! Eviction: groups that leave the cache of a track because they are the oldest, or have expired.

use std::time::{Duration, Instant};

use super::{Aging, Ledger, TrackCache};
use crate::{Counters, Limits};

impl TrackCache {
    /// Evicts groups until the limit of the track holds, at most so many. Returns whether it holds.
    pub(crate) fn cut(
        &mut self,
        ledger: &mut Ledger,
        counters: &mut Counters,
        limits: &Limits,
        most: usize,
    ) -> bool {
        let is_over = |it: &Self| it.bytes > limits.cache_track_bytes_max && it.len() > 1;
        for _ in 0..most {
            if !is_over(self) {
                return true;
            }
            self.evict(ledger, counters);
        }
        !is_over(self)
    }

    /// Evicts the oldest group, or the first half of it if it is the only one.
    pub(crate) fn evict(&mut self, ledger: &mut Ledger, counters: &mut Counters) {
        let Some((_, &group)) = self.order.first_key_value() else {
            return;
        };
        if self.groups.len() > 1 {
            counters.cache_groups_evicted += 1;
            return self.forget_group(ledger, group);
        }
        let objects = self
            .groups
            .get(&group)
            .map_or(0, |group| group.objects.len());
        self.forget_objects(ledger, group, objects.div_ceil(2));
        counters.cache_objects_evicted += objects.div_ceil(2) as u64;
    }

    /// Expires a group that is due in the ledger: removes objects that arrived more than `age_max` ago. If younger ones are
    /// left, the group is queued again.
    pub(crate) fn expire(
        &mut self,
        ledger: &mut Ledger,
        counters: &mut Counters,
        aging: Aging,
        (now, age_max): (Instant, Duration),
    ) {
        let Some(oldest) = now.checked_sub(age_max) else {
            return;
        };
        let Some(group) = self.groups.get_mut(&aging.group) else {
            return;
        };
        if group.touched <= oldest {
            counters.cache_groups_expired += 1;
            return self.forget_group(ledger, aging.group);
        }
        let mut objects = group.objects.iter();
        let left = objects.position(|entry| entry.received > oldest);
        let expired = left.unwrap_or(0);
        // A long group is examined a few times in `age_max`, not with each of its objects.
        let next = left.map(|left| group.objects[left].received + age_max / LOOKS);
        let since = next.map_or(group.touched, |next| next.min(group.touched));
        ledger.queue.remove(&group.age);
        self.order.remove(&group.age);
        group.age = ledger.enqueue(aging.track, aging.group, since);
        self.order.insert(group.age, aging.group);
        counters.cache_objects_evicted += expired as u64;
        self.forget_objects(ledger, aging.group, expired);
    }
}

/// How often a group is examined in the time that its objects are kept.
const LOOKS: u32 = 8;
/// Groups that are evicted when an object is added. The cache timer evicts the rest.
pub(crate) const EVICTIONS_AT_ONCE: usize = 64;
