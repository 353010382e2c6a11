//! The order in which a connection sends its streams [moqt-18 §7.2].

use weir_moqt::parameter::GroupOrder;

/// A stream's rank for the transport (higher first) from MOQT's priorities (lower first).
///
/// Subscriber priority decides, then publisher priority, then the group order by the lower 15 bits of the group
/// ID, so that once in 32768 groups one waits for another. Ascending groups need ranks too, although
/// streams of one rank are sent in the order in which they were opened: what was lost of an old group
/// would else be sent again behind all newer ones.
pub(crate) fn rank(subscriber: u8, publisher: u8, order: GroupOrder, group: u64) -> i32 {
    let group = i32::try_from(group & GROUP_MASK).unwrap_or(0);
    let within = match order {
        GroupOrder::Ascending => MASK_BITS - group,
        GroupOrder::Descending => group,
    };
    -(i32::from(subscriber) << 23) - (i32::from(publisher) << 15) + within
}

const GROUP_MASK: u64 = 0x7fff;
const MASK_BITS: i32 = 0x7fff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriber_then_publisher_then_group() {
        let ascending = GroupOrder::Ascending;
        let descending = GroupOrder::Descending;
        assert!(rank(0, 255, ascending, 0) > rank(1, 0, ascending, 0));
        assert!(rank(1, 0, ascending, 0x7fff) > rank(1, 1, descending, 0x7fff));
        assert!(rank(1, 1, descending, 8) > rank(1, 1, descending, 7));
        assert!(rank(1, 1, ascending, 7) > rank(1, 1, ascending, 8));
        assert!(rank(255, 255, ascending, 0x7fff) > i32::MIN + 1);
    }
}
