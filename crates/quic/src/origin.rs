//! Origins: whom connections and sessions are counted by, over all threads of a process.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// An address that counts as one client: an IPv4 address, or the 64-bit prefix that one IPv6 subscriber has to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(IpAddr);

impl Origin {
    /// Returns the origin of an address; `None` for the machine's own addresses, which are trusted and not counted.
    pub fn of(address: IpAddr) -> Option<Self> {
        let address = address.to_canonical();
        let counted = match address {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            IpAddr::V4(_) => address,
        };
        (!address.is_loopback()).then_some(Self(counted))
    }
}

/// Counts by origin. Clones count together, so that a limit holds for all threads.
#[derive(Clone, Debug, Default)]
pub struct OriginCounts(Arc<Mutex<BTreeMap<Origin, usize>>>);

impl OriginCounts {
    /// Counts one more from `origin` until the result is dropped. `None` if there are `max` already.
    pub fn enter(&self, origin: Option<Origin>, max: usize) -> Option<Counted> {
        if let Some(origin) = origin {
            let mut counts = self.lock();
            let count = counts.entry(origin).or_default();
            if *count >= max {
                return None;
            }
            *count += 1;
        }
        Some(Counted {
            counts: self.clone(),
            origin,
        })
    }

    /// Returns the number from `origin`; 0 for one that is not counted.
    pub fn count(&self, origin: Option<Origin>) -> usize {
        let count = origin.and_then(|origin| self.lock().get(&origin).copied());
        count.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Origin, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that counts for its origin until it is dropped.
#[derive(Debug)]
pub struct Counted {
    counts: OriginCounts,
    origin: Option<Origin>,
}

impl Counted {
    /// Returns the origin that it counts for; `None` if that is not counted.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some(origin) = self.origin else {
            return;
        };
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Option<Origin> {
        Origin::of(text.parse().unwrap())
    }

    #[test]
    fn addresses_are_counted_as_those_who_have_them() {
        assert_eq!(from("127.0.0.1"), None);
        assert_eq!(from("::1"), None);
        assert_eq!(from("192.0.2.1"), from("::ffff:192.0.2.1"));
        assert_ne!(from("192.0.2.1"), from("192.0.2.2"));
        assert_eq!(from("2001:db8:0:1::1"), from("2001:db8:0:1:ffff::2"));
        assert_ne!(from("2001:db8:0:1::1"), from("2001:db8:0:2::1"));
    }

    #[test]
    fn clones_count_together_up_to_the_limit() {
        let counts = OriginCounts::default();
        let other = counts.clone();
        let first = counts.enter(from("192.0.2.1"), 2).unwrap();
        let second = other.enter(from("192.0.2.1"), 2).unwrap();
        assert!(counts.enter(from("192.0.2.1"), 2).is_none(), "one past it");
        assert!(counts.enter(from("192.0.2.2"), 2).is_some(), "another one");
        assert!(counts.enter(None, 0).is_some(), "not counted");
        drop(first);
        assert_eq!(other.count(from("192.0.2.1")), 1);
        drop(second);
        assert!(other.lock().is_empty());
    }
}
