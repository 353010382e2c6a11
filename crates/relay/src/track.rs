//! Tracks: the publishers of each track, the subgroups under way, and what is known of its objects.

mod admit;
mod answers;
mod duplicates;
mod end_markers;
mod inbound;
mod keep;
mod leaving;
mod new_group;
mod object_gaps;
mod publisher;
mod publishers;
mod restart;
mod subgroup;
mod table;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use weir_moqt::{
    data::SubgroupHeader, draft::Draft, location::Location, name::FullTrackName,
    parameter::GroupOrder, property::Properties,
};

use weir_quic::{Counted, Handle};

pub(crate) use self::{
    admit::AdmittedDatagram,
    keep::OutgoingDatagram,
    publisher::{Leaving, Publisher},
    publishers::Demand,
    subgroup::{Ended, Mark, Start, Subgroup},
    table::Tracks,
};
use self::{
    duplicates::{Duplicates, Restarted},
    end_markers::EndMarkers,
};
use crate::{
    cache::{Ledger, TrackCache},
    ids::{PublisherId, SubgroupId},
    sessions::peer::PeerKind,
};

/// The properties of a track that apply to all its subscribers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackDefaults {
    pub(crate) priority: u8,
    pub(crate) order: GroupOrder,
    /// The object delivery timeout, if there is one.
    pub(crate) object_timeout: Option<Duration>,
    /// The subgroup delivery timeout, if there is one.
    pub(crate) subgroup_timeout: Option<Duration>,
}

/// One track.
#[derive(Debug)]
pub(crate) struct Track {
    name: FullTrackName,
    /// The Track Alias by which all subscribers know the track [moqt-18 §11.1].
    alias: u64,
    properties: Properties,
    /// Whether a publisher has sent the Track Properties.
    is_known: bool,
    /// Counts the track for the address of the client that added it, as long as it is in use.
    counted: Option<Counted>,
    publishers: Vec<Publisher>,
    largest: Option<Location>,
    /// In the order of their IDs.
    subgroups: VecDeque<Subgroup>,
    next_subgroup: SubgroupId,
    duplicates: Duplicates,
    end_markers: EndMarkers,
    /// The new group that publishers were asked for, and the largest group at that time.
    group_asked: Option<(u64, Option<u64>)>,
    cache: TrackCache,
    /// When to check whether the last streams of a leaving publisher have arrived.
    leaving_at: Option<Instant>,
    /// When the next answer of a publisher to SUBSCRIBE is due.
    answers_due: Option<Instant>,
    /// Whether an offer of the track waits until its largest location is known.
    awaits_offer: bool,
    /// Until when subscribers are kept without a publisher; `None` if the track has one.
    orphaned_until: Option<Instant>,
    /// Whether the last publisher is gone and the next one has sent nothing.
    is_restarting: bool,
}

impl Track {
    fn new(name: FullTrackName, alias: u64) -> Self {
        Self {
            name,
            alias,
            properties: Properties::EMPTY,
            is_known: false,
            counted: None,
            publishers: Vec::new(),
            largest: None,
            subgroups: VecDeque::new(),
            next_subgroup: 0,
            duplicates: Duplicates::default(),
            end_markers: EndMarkers::default(),
            group_asked: None,
            cache: TrackCache::default(),
            leaving_at: None,
            answers_due: None,
            awaits_offer: false,
            orphaned_until: None,
            is_restarting: false,
        }
    }

    pub(crate) fn name(&self) -> &FullTrackName {
        &self.name
    }

    pub(crate) fn alias(&self) -> u64 {
        self.alias
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the bytes of its full name.
    pub(crate) fn name_bytes(&self) -> usize {
        self.name.namespace.bytes_len() + self.name.name.as_bytes().len()
    }

    /// Returns whether a publisher has sent the Track Properties.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns the largest known location.
    pub(crate) fn largest(&self) -> Option<Location> {
        self.largest
    }

    pub(crate) fn publishers(&self) -> &[Publisher] {
        &self.publishers
    }

    pub(crate) fn cache(&self) -> &TrackCache {
        &self.cache
    }

    /// Returns the subgroups that have not ended, or that some subscriber has not read in full; the oldest first.
    pub(crate) fn subgroups(&self) -> &VecDeque<Subgroup> {
        &self.subgroups
    }

    /// Returns whether a subgroup that is being received may bring the object at `location`.
    pub(crate) fn is_arriving(&self, location: Location) -> bool {
        let mut subgroups = self.subgroups.iter();
        subgroups.any(|subgroup| subgroup.is_arriving(location))
    }

    /// Returns the bytes of subgroups that some subscriber has not read.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.subgroups.iter().map(Subgroup::held).sum()
    }

    /// Returns the publishers that are clients.
    fn clients(&self) -> impl Iterator<Item = &Publisher> {
        self.publishers
            .iter()
            .filter(|publisher| !publisher.is_link())
    }

    /// Returns the publishers whose objects are passed on to sessions of a kind.
    fn serving(&self, kind: PeerKind) -> impl Iterator<Item = &Publisher> {
        let publishers = self.publishers.iter();
        publishers.filter(move |publisher| publisher.kind.serves(kind))
    }

    /// Returns whether the track has an established publisher for sessions of a kind.
    pub(crate) fn is_established_for(&self, kind: PeerKind) -> bool {
        self.serving(kind).any(Publisher::is_established)
    }

    /// Returns whether a session offers the track with PUBLISH, to be passed on to sessions of a kind.
    pub(crate) fn is_published_for(&self, kind: PeerKind) -> bool {
        self.serving(kind).any(Publisher::is_offering)
    }

    /// Returns whether objects come for sessions of a kind, including the last ones after PUBLISH_DONE.
    pub(crate) fn is_sent_for(&self, kind: PeerKind) -> bool {
        self.serving(kind).any(Publisher::is_sending)
    }

    /// Returns whether a publisher that serves sessions of a kind was asked with SUBSCRIBE and has not answered.
    pub(crate) fn is_asking_for(&self, kind: PeerKind) -> bool {
        self.serving(kind).any(Publisher::is_asked)
    }

    /// Returns whether the track has an established publisher.
    pub(crate) fn is_established(&self) -> bool {
        self.publishers.iter().any(Publisher::is_established)
    }

    /// Returns whether a session offers the track with PUBLISH.
    pub(crate) fn is_published(&self) -> bool {
        self.publishers.iter().any(Publisher::is_offering)
    }

    /// Returns whether objects come from a publisher, including the last ones after PUBLISH_DONE.
    pub(crate) fn is_sent(&self) -> bool {
        self.publishers.iter().any(Publisher::is_sending)
    }

    /// Returns whether objects come, or would as soon as there is a subscriber here, because a link offers the track.
    pub(crate) fn is_within_reach(&self) -> bool {
        let mut publishers = self.publishers.iter();
        self.is_sent() || publishers.any(|it| it.is_link() && it.is_offering())
    }

    /// Returns whether a publisher was asked with SUBSCRIBE and has not answered.
    pub(crate) fn is_asking(&self) -> bool {
        self.publishers.iter().any(Publisher::is_asked)
    }

    /// Returns whether an answer of a publisher is expected, so that others need not be asked.
    pub(crate) fn expects_answer(&self) -> bool {
        let mut publishers = self.publishers.iter();
        publishers.any(|publisher| publisher.is_asked() && !publisher.is_overdue())
    }

    /// Returns whether objects arrive as they are published, so that the largest location is always known.
    pub(crate) fn is_live(&self) -> bool {
        self.publishers.iter().any(Publisher::is_live)
    }

    /// Returns whether a session is a publisher of the track.
    pub(crate) fn has_publisher(&self, session: Handle) -> bool {
        let mut publishers = self.publishers.iter();
        publishers.any(|publisher| publisher.handle == session)
    }

    /// Returns the largest known location, and whether it is final.
    pub(crate) fn known_end(&self) -> Option<(Location, bool)> {
        let largest = self.largest.max(self.cache.largest())?;
        Some((largest, self.cache.is_final(largest)))
    }

    /// Returns whether an offer of the track waits until its largest location is known.
    pub(crate) fn awaits_offer(&self) -> bool {
        self.awaits_offer
    }

    pub(crate) fn set_awaits_offer(&mut self, awaits: bool) {
        self.awaits_offer = awaits;
    }

    /// Returns the properties that apply to all subscribers.
    pub(crate) fn defaults(&self) -> TrackDefaults {
        let is_set = |timeout: &Duration| !timeout.is_zero();
        let object_timeout = self.properties.object_delivery_timeout();
        let subgroup_timeout = self.properties.subgroup_delivery_timeout();
        TrackDefaults {
            priority: self.properties.publisher_priority(),
            order: self.properties.group_order(),
            object_timeout: object_timeout.filter(is_set),
            subgroup_timeout: subgroup_timeout.filter(is_set),
        }
    }

    fn publisher(&mut self, id: PublisherId) -> Option<&mut Publisher> {
        self.publishers.iter_mut().find(|it| it.id() == id)
    }

    fn remove_publisher(&mut self, id: PublisherId) -> Option<Publisher> {
        let index = self.publishers.iter().position(|it| it.id() == id)?;
        Some(self.publishers.remove(index))
    }

    /// Prepares for the next publisher, which starts from the beginning, after the last one is gone.
    pub(crate) fn restart(&mut self) {
        self.duplicates.clear();
        self.end_markers = EndMarkers::default();
        self.group_asked = None;
        self.is_restarting = true;
    }

    /// Notes the sender of an object, and returns how the object is treated if the sender has restarted the track. The
    /// first object after the restart clears a cache that has reached its location, since the cached objects are those
    /// of other publishers.
    #[inline]
    fn note_sender(
        &mut self,
        sender: PublisherId,
        location: Location,
        ledger: &mut Ledger,
    ) -> Option<Restarted> {
        // A new publisher after the last one also clears the cache, if it begins at a location that the former
        // publisher has reached or declared not to exist.
        if std::mem::take(&mut self.is_restarting)
            && (self.cache.largest() >= Some(location) || self.cache.rules_out(location))
        {
            self.cache.clear(ledger);
        }
        if !self.duplicates.is_shared() {
            return None;
        }
        let restarted = self.duplicates.note_sender(sender)?;
        if restarted.is_first && self.cache.largest() >= Some(location) {
            self.cache.clear(ledger);
        }
        Some(restarted)
    }

    /// Notes the location of an object that arrived.
    #[inline]
    fn observe(&mut self, location: Location) {
        if self.largest.is_none_or(|largest| location > largest) {
            self.largest = Some(location);
        }
    }

    /// Returns the number of subgroup streams that are being received.
    fn streams_open(&self) -> usize {
        self.publishers.iter().map(|it| it.streams_open).sum()
    }

    /// Creates a subgroup with the publisher's header; `number` is the subgroup ID.
    fn open_subgroup(&mut self, header: SubgroupHeader, number: u64) -> &mut Subgroup {
        let id = self.next_subgroup;
        self.next_subgroup += 1;
        let header = SubgroupHeader {
            track_alias: self.alias,
            ..header
        };
        let index = self.subgroups.len();
        self.subgroups
            .push_back(Subgroup::new(id, header, number, Draft::KEPT));
        &mut self.subgroups[index]
    }

    pub(crate) fn subgroup(&self, id: SubgroupId) -> Option<&Subgroup> {
        Some(&self.subgroups[self.place(id)?])
    }

    pub(crate) fn subgroup_mut(&mut self, id: SubgroupId) -> Option<&mut Subgroup> {
        let index = self.place(id)?;
        Some(&mut self.subgroups[index])
    }

    fn place(&self, id: SubgroupId) -> Option<usize> {
        let place = self.subgroups.binary_search_by_key(&id, |it| it.id);
        place.ok()
    }

    /// Removes what all subscribers have read of a subgroup, up to `taken`; `None` if it has no readers. Returns
    /// whether the whole subgroup was removed.
    pub(crate) fn trim_subgroup(&mut self, id: SubgroupId, taken: Option<u64>) -> bool {
        let Some(subgroup) = self.subgroup_mut(id) else {
            return false;
        };
        let is_over = taken.is_none() && subgroup.ended().is_some() && !subgroup.is_fresh();
        if !is_over {
            subgroup.trim(taken.unwrap_or(subgroup.len()));
        }
        is_over
    }

    pub(crate) fn remove_subgroup(&mut self, id: SubgroupId) {
        if let Some(index) = self.place(id) {
            self.subgroups.remove(index);
        }
    }
}
