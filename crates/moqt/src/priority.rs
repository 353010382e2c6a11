//! Send priorities of streams on a connection [moqt-18 §7.2].

use crate::parameter::GroupOrder;

/// Returns a stream's rank for the transport (higher first) from MOQT's priorities (lower first).
///
/// Every sender with more data than its connection accepts uses this rank, so it is the same on every hop. The
/// subscriber priority decides first, then the publisher priority, the group order, and the subgroup ID (lower first).
///
/// A rank has 32 bits, half of which are the two priorities. Of the group ID, the lower 11 bits count, so the order of
/// groups is wrong once in 2048 groups. Subgroups from the 32nd on rank equally. The transport sends streams of equal
/// rank in the order in which they were opened. Ascending groups need ranks all the same: otherwise, retransmissions of
/// an old group would follow all newer groups.
pub fn rank(subscriber: u8, publisher: u8, order: GroupOrder, group: u64, subgroup: u64) -> i32 {
    let group = group & GROUP_MAX;
    let group = match order {
        GroupOrder::Ascending => GROUP_MAX - group,
        GroupOrder::Descending => group,
    };
    let subgroup = SUBGROUP_MAX - subgroup.min(SUBGROUP_MAX);
    let within = (group << SUBGROUP_BITS | subgroup).min(WITHIN_MAX);
    let within = i32::try_from(within).unwrap_or(0);
    let priorities = i32::from(subscriber) << 8 | i32::from(publisher);
    // The highest 16 bits, as a signed number.
    (i32::from(i16::MAX) - priorities) * (1 << WITHIN_BITS) + within
}

/// The distance of groups whose ranks are equal; at smaller distances the order holds.
pub const RANKED_GROUPS: u64 = GROUP_MAX + 1;

/// The priority of a subscription without SUBSCRIBER_PRIORITY [moqt-18 §10.2.6].
pub const SUBSCRIBER_PRIORITY_DEFAULT: u8 = 128;

const WITHIN_BITS: u32 = 16;
/// The ranks above belong to control and request streams.
const WITHIN_MAX: u64 = (1 << WITHIN_BITS) - 3;
const SUBGROUP_BITS: u32 = 5;
const SUBGROUP_MAX: u64 = (1 << SUBGROUP_BITS) - 1;
const GROUP_MAX: u64 = (1 << (WITHIN_BITS - SUBGROUP_BITS)) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriber_then_publisher_then_group_then_subgroup() {
        let ascending = GroupOrder::Ascending;
        let descending = GroupOrder::Descending;
        assert!(rank(0, 255, ascending, 0, 40) > rank(1, 0, ascending, 0, 0));
        assert!(rank(1, 0, ascending, 0x7fff, 40) > rank(1, 1, descending, 0x7fff, 0));
        assert!(rank(1, 1, descending, 8, 40) > rank(1, 1, descending, 7, 0));
        assert!(rank(1, 1, ascending, 7, 40) > rank(1, 1, ascending, 8, 0));
        for order in [ascending, descending] {
            assert!(rank(1, 1, order, 7, 0) > rank(1, 1, order, 7, 1));
            assert!(rank(1, 1, order, 7, 30) > rank(1, 1, order, 7, 31));
            assert_eq!(rank(1, 1, order, 7, 31), rank(1, 1, order, 7, 32));
        }
    }

    #[test]
    fn ranks_use_all_bits_but_those_of_control() {
        let lowest = rank(255, 255, GroupOrder::Descending, 0, u64::MAX);
        assert_eq!(lowest, i32::MIN);
        assert!(rank(0, 0, GroupOrder::Ascending, 0, 0) < i32::MAX - 1);
        assert!(rank(0, 1, GroupOrder::Ascending, 0, 0) < rank(0, 0, GroupOrder::Ascending, 5, 0));
    }
}
