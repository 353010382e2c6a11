//! One track: where its objects come from, who gets them, and what is on its way.

use std::time::Instant;

use weir_moqt::{
    data::SubgroupHeader, draft::Draft, location::Location, message::PublishDone,
    name::FullTrackName, parameter::Parameters, property::Properties, session::RequestId,
};
use weir_quic::Handle;

use crate::{
    subgroup::{Subgroup, SubgroupId},
    subscriber::{Subscriber, TrackDefaults, smaller},
};

/// One track.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) name: FullTrackName,
    /// The alias by which all subscribers know it [moqt-18 §11.1].
    pub(crate) alias: u64,
    pub(crate) properties: Properties,
    pub(crate) sources: Vec<Source>,
    /// Sorted by session and request, so that the fan-out meets connections in the order of their memory.
    pub(crate) subscribers: Vec<Subscriber>,
    /// Those that wait for a publisher.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) largest: Option<Location>,
    pub(crate) subgroups: Vec<Subgroup>,
    next_subgroup: SubgroupId,
    recent: Recent,
    /// The publishers are done, and their last streams may come until then.
    pub(crate) ending_by: Option<Instant>,
    /// Without a publisher since then.
    pub(crate) orphaned_until: Option<Instant>,
}

/// A session that objects of a track come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    pub(crate) handle: Handle,
    pub(crate) request: RequestId,
    pub(crate) origin: Origin,
    /// Whether it was told to send objects.
    pub(crate) forward: bool,
    /// Subgroup streams that came so far.
    pub(crate) streams: u64,
    /// Those of them still open.
    pub(crate) streams_open: u64,
    /// Its last word.
    pub(crate) done: Option<PublishDone>,
}

/// How a source came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It sent PUBLISH.
    Published,
    /// It was asked with SUBSCRIBE, and has not answered.
    Asked,
    /// It was asked with SUBSCRIBE, and accepted.
    Subscribed,
}

/// A request that waits for a publisher.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) handle: Handle,
    pub(crate) request: RequestId,
    pub(crate) parameters: Parameters,
    /// How long it waits for a publisher to appear; a moment that has passed if it does not want to wait.
    pub(crate) until: Instant,
    /// How long it waits for the answers of publishers that were asked.
    pub(crate) answer_by: Instant,
}

impl Track {
    pub(crate) fn new(name: FullTrackName, alias: u64) -> Self {
        Self {
            name,
            alias,
            properties: Properties::EMPTY,
            sources: Vec::new(),
            subscribers: Vec::new(),
            waiting: Vec::new(),
            largest: None,
            subgroups: Vec::new(),
            next_subgroup: 0,
            recent: Recent::default(),
            ending_by: None,
            orphaned_until: None,
        }
    }

    /// Whether nobody has anything to do with it any more.
    pub(crate) fn is_unused(&self) -> bool {
        self.sources.is_empty() && self.subscribers.is_empty() && self.waiting.is_empty()
    }

    /// Whether objects come, or may come at any time.
    pub(crate) fn is_established(&self) -> bool {
        self.sources
            .iter()
            .any(|source| source.origin != Origin::Asked && source.done.is_none())
    }

    /// Whether some publisher was asked and has not answered.
    pub(crate) fn is_asking(&self) -> bool {
        self.sources
            .iter()
            .any(|source| source.origin == Origin::Asked)
    }

    /// Whether some subscriber wants objects now.
    pub(crate) fn is_wanted(&self) -> bool {
        self.subscribers.iter().any(|subscriber| subscriber.forward)
            || self
                .waiting
                .iter()
                .any(|waiting| waiting.parameters.forward != Some(false))
    }

    pub(crate) fn source(&mut self, handle: Handle, request: RequestId) -> Option<&mut Source> {
        self.sources
            .iter_mut()
            .find(|source| source.handle == handle && source.request == request)
    }

    pub(crate) fn remove_source(&mut self, handle: Handle, request: RequestId) -> Option<Source> {
        let is_it = |source: &Source| source.handle == handle && source.request == request;
        let index = self.sources.iter().position(is_it)?;
        Some(self.sources.remove(index))
    }

    /// Place of a subscription in the list, or where it belongs.
    pub(crate) fn place(&self, handle: Handle, request: RequestId) -> Result<usize, usize> {
        self.subscribers
            .binary_search_by_key(&(handle, request), |other| (other.handle, other.request))
    }

    pub(crate) fn subscriber(
        &mut self,
        handle: Handle,
        request: RequestId,
    ) -> Option<&mut Subscriber> {
        let place = self.place(handle, request).ok()?;
        self.subscribers.get_mut(place)
    }

    /// Whether a session subscribes to it already, or waits to.
    pub(crate) fn has_subscriber(&self, handle: Handle) -> bool {
        let first = self
            .subscribers
            .partition_point(|other| other.handle < handle);
        self.subscribers
            .get(first)
            .is_some_and(|other| other.handle == handle)
            || self.waiting.iter().any(|waiting| waiting.handle == handle)
    }

    /// What holds for all subscribers.
    pub(crate) fn defaults(&self) -> TrackDefaults {
        TrackDefaults {
            priority: self.properties.publisher_priority(),
            order: self.properties.group_order(),
            object_timeout: smaller(self.properties.object_delivery_timeout(), None),
        }
    }

    /// Notes the location of an object that arrived.
    #[inline]
    pub(crate) fn observe(&mut self, location: Location) {
        if self.largest.is_none_or(|largest| location > largest) {
            self.largest = Some(location);
        }
    }

    /// Whether a datagram at `location` came already, from another publisher. With only one publisher
    /// nothing is remembered: it may send an object once only [moqt-18 §2.1].
    #[inline]
    pub(crate) fn is_repeated(&mut self, location: Location) -> bool {
        self.sources.len() > 1 && self.recent.contains_or_insert(location)
    }

    /// A subgroup begins; the header is the publisher's.
    pub(crate) fn open_subgroup(&mut self, header: SubgroupHeader, draft: Draft) -> SubgroupId {
        let id = self.next_subgroup;
        self.next_subgroup += 1;
        let header = SubgroupHeader {
            track_alias: self.alias,
            ..header
        };
        self.subgroups.push(Subgroup::new(id, header, draft));
        id
    }

    /// Whether the same subgroup is being received from another publisher.
    pub(crate) fn has_twin(&self, id: SubgroupId) -> bool {
        let key = self
            .subgroups
            .iter()
            .find(|other| other.id == id)
            .and_then(Subgroup::key);
        key.is_some()
            && self
                .subgroups
                .iter()
                .any(|other| other.id != id && other.key() == key)
    }

    pub(crate) fn subgroup(&mut self, id: SubgroupId) -> Option<&mut Subgroup> {
        self.subgroups.iter_mut().find(|subgroup| subgroup.id == id)
    }

    pub(crate) fn remove_subgroup(&mut self, id: SubgroupId) {
        self.subgroups.retain(|subgroup| subgroup.id != id);
        for subscriber in &mut self.subscribers {
            subscriber.forget(id);
        }
    }
}

/// The locations of the last datagrams, to tell repetitions by another publisher.
#[derive(Debug, Default)]
struct Recent {
    locations: Vec<Location>,
    next: usize,
}

impl Recent {
    fn contains_or_insert(&mut self, location: Location) -> bool {
        if self.locations.contains(&location) {
            return true;
        }
        if self.locations.len() < RECENT_MAX {
            self.locations.push(location);
        } else {
            self.locations[self.next] = location;
            self.next = (self.next + 1) % RECENT_MAX;
        }
        false
    }
}

/// Five seconds of audio: publishers of one track are not further apart than that.
const RECENT_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_locations_are_bounded() {
        let mut recent = Recent::default();
        let at = |group| Location { group, object: 0 };
        for group in 0..RECENT_MAX as u64 {
            assert!(!recent.contains_or_insert(at(group)));
        }
        assert!(recent.contains_or_insert(at(0)));
        assert!(!recent.contains_or_insert(at(1000)));
        assert!(!recent.contains_or_insert(at(0)), "the oldest made room");
        assert_eq!(recent.locations.len(), RECENT_MAX);
    }
}
