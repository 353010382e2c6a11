//! Eviction: groups that leave the cache of a track because they are the oldest, or have expired.

use std::time::Instant;

use super::{Keeper, TrackCache};

impl TrackCache {
    /// Evicts groups until the limit of the track holds, or the work that is `left` is done. Returns whether it holds.
    pub(crate) fn cut(&mut self, keeper: &mut Keeper<'_>, left: &mut usize) -> bool {
        let max = keeper.limits.cache_track_bytes_max;
        let is_over = |it: &Self| it.bytes > max && it.len() > 1;
        while is_over(self) {
            if *left == 0 {
                return false;
            }
            self.evict(keeper, left);
        }
        true
    }

    /// Evicts the oldest group, or the first half of it if it is the only one; less, if the work that is `left` does not
    /// suffice.
    pub(crate) fn evict(&mut self, keeper: &mut Keeper<'_>, left: &mut usize) {
        let Some((_, &id)) = self.order.first_key_value() else {
            return;
        };
        let Some(group) = self.groups.get(&id) else {
            return;
        };
        let held = group.objects.len();
        let is_only = self.groups.len() == 1;
        let count = if is_only { held.div_ceil(2) } else { held };
        let count = count.min(spend(left, count));
        if count == held && !is_only {
            keeper.counters.cache_groups_evicted += 1;
        } else {
            keeper.counters.cache_objects_evicted += count as u64;
        }
        self.forget_objects(keeper.ledger, id, count);
        if is_only && let Some(oldest) = self.oldest_of(id) {
            // The rest is not older than the groups of other tracks.
            self.requeue(keeper.ledger, keeper.track, id, oldest);
        }
    }

    /// Expires a group that is due in the ledger: removes objects that arrived more than `age_max` ago. If younger ones are
    /// left, the group is queued again; if the work that is `left` does not suffice, it stays where it is.
    pub(crate) fn expire(&mut self, keeper: &mut Keeper<'_>, id: u64, left: &mut usize) {
        let age_max = keeper.limits.cache_age_max;
        let Some(oldest) = keeper.now.checked_sub(age_max) else {
            return;
        };
        let Some(group) = self.groups.get(&id) else {
            return;
        };
        let held = group.objects.len();
        let mut objects = group.objects.iter();
        let fresh = objects
            .position(|entry| entry.received > oldest)
            .filter(|_| group.touched > oldest);
        let expired = fresh.unwrap_or(held);
        let count = expired.min(spend(left, expired));
        if count == held {
            keeper.counters.cache_groups_expired += 1;
        } else {
            keeper.counters.cache_objects_evicted += count as u64;
        }
        if count == expired
            && let Some(fresh) = fresh
        {
            // A long group is examined a few times in `age_max`, not with each of its objects.
            let next = group.objects[fresh].received + age_max / LOOKS;
            let since = next.min(group.touched);
            self.requeue(keeper.ledger, keeper.track, id, since);
        }
        self.forget_objects(keeper.ledger, id, count);
    }

    /// Returns when the first object of a group began to arrive.
    fn oldest_of(&self, id: u64) -> Option<Instant> {
        Some(self.groups.get(&id)?.objects.front()?.received)
    }
}

/// Takes the removal of so many objects of a group from the work that is left. Returns how many of them may be removed.
fn spend(left: &mut usize, objects: usize) -> usize {
    let may = objects.min(*left);
    *left = left.saturating_sub(may.max(GROUP_WORK));
    may
}

/// How often a group is examined in the time that its objects are kept.
const LOOKS: u32 = 8;
/// As much work as the removal of so many objects is that of their group.
const GROUP_WORK: usize = 16;
/// The work, in objects that are removed, when an object is added. The cache timer evicts the rest.
pub(crate) const EVICTIONS_AT_ONCE: usize = 64 * GROUP_WORK;
/// The work of the cache timer in one turn, in objects that are removed.
pub(crate) const EVICTIONS_PER_TURN: usize = 1024 * GROUP_WORK;
