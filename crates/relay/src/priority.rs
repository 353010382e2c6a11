//! The order in which a connection sends its streams [moqt-18 §7.2].

use weir_moqt::parameter::GroupOrder;

/// A stream's rank for the transport (higher first) from MOQT's priorities (lower first).
///
/// Subscriber priority decides, then publisher priority, then the group order. Ascending groups need no rank of
/// their own, since streams of one rank are sent in the order in which they were opened; descending ones are
/// ranked by the lower 15 bits of their group ID, so that once in 32768 groups one waits for another.
pub(crate) fn rank(subscriber: u8, publisher: u8, order: GroupOrder, group: u64) -> i32 {
    let within = match order {
        GroupOrder::Ascending => 0,
        GroupOrder::Descending => i32::try_from(group & GROUP_MASK).unwrap_or(0),
    };
    -(i32::from(subscriber) << 23) - (i32::from(publisher) << 15) + within
}

const GROUP_MASK: u64 = 0x7fff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriber_then_publisher_then_group() {
        let ascending = GroupOrder::Ascending;
        let descending = GroupOrder::Descending;
        assert!(rank(0, 255, ascending, 0) > rank(1, 0, ascending, 0));
        assert!(rank(1, 0, ascending, 0) > rank(1, 1, descending, 0x7fff));
        assert!(rank(1, 1, descending, 8) > rank(1, 1, descending, 7));
        assert_eq!(rank(1, 1, ascending, 8), rank(1, 1, ascending, 7));
        assert!(rank(255, 255, ascending, 0) > i32::MIN + 1);
    }
}
