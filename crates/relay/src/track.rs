//! Tracks: who publishes each track, what is on its way, what is known of it.

mod admit;
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

use std::time::{Duration, Instant};

use weir_moqt::{
    data::SubgroupHeader, draft::Draft, location::Location, name::FullTrackName,
    parameter::GroupOrder, property::Properties,
};

use weir_quic::Handle;

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
};

/// What a track says for all its subscribers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackDefaults {
    pub(crate) priority: u8,
    pub(crate) order: GroupOrder,
    /// The object delivery time-out, unless there is none.
    pub(crate) object_timeout: Option<Duration>,
    /// The subgroup delivery time-out, unless there is none.
    pub(crate) subgroup_timeout: Option<Duration>,
}

/// One track.
#[derive(Debug)]
pub(crate) struct Track {
    name: FullTrackName,
    /// The alias by which all subscribers know it [moqt-18 §11.1].
    alias: u64,
    properties: Properties,
    /// Some publisher has said what its properties are.
    is_known: bool,
    publishers: Vec<Publisher>,
    largest: Option<Location>,
    subgroups: Vec<Subgroup>,
    next_subgroup: SubgroupId,
    duplicates: Duplicates,
    end_markers: EndMarkers,
    /// The new group that publishers were asked for, and the largest group at that time.
    group_asked: Option<(u64, Option<u64>)>,
    cache: TrackCache,
    /// When it is to be looked whether the last streams of a leaving publisher have arrived.
    leaving_at: Option<Instant>,
    /// Somebody is to be offered it as soon as it is known how far it has come.
    awaits_offer: bool,
    /// Without a publisher, and until when its subscribers are kept.
    orphaned_until: Option<Instant>,
    /// The last publisher went, and the next one has sent nothing yet.
    is_restarting: bool,
}

impl Track {
    fn new(name: FullTrackName, alias: u64) -> Self {
        Self {
            name,
            alias,
            properties: Properties::EMPTY,
            is_known: false,
            publishers: Vec::new(),
            largest: None,
            subgroups: Vec::new(),
            next_subgroup: 0,
            duplicates: Duplicates::default(),
            end_markers: EndMarkers::default(),
            group_asked: None,
            cache: TrackCache::default(),
            leaving_at: None,
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

    /// Whether some publisher has said what its properties are.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// The largest location that is known of it.
    pub(crate) fn largest(&self) -> Option<Location> {
        self.largest
    }

    pub(crate) fn publishers(&self) -> &[Publisher] {
        &self.publishers
    }

    pub(crate) fn cache(&self) -> &TrackCache {
        &self.cache
    }

    /// The subgroups that some subscriber has not taken in full, or that have not ended.
    pub(crate) fn subgroups(&self) -> &[Subgroup] {
        &self.subgroups
    }

    /// Whether a subgroup that is being received may bring the object at `location`.
    pub(crate) fn is_arriving(&self, location: Location) -> bool {
        let mut subgroups = self.subgroups.iter();
        subgroups.any(|subgroup| subgroup.is_arriving(location))
    }

    /// Bytes of subgroups that some subscriber has not taken yet.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.subgroups.iter().map(Subgroup::held).sum()
    }

    /// Publishers that are clients.
    fn clients(&self) -> impl Iterator<Item = &Publisher> {
        self.publishers
            .iter()
            .filter(|publisher| !publisher.is_link)
    }

    /// Whether objects come from a client, or may come at any time.
    pub(crate) fn is_established_by_client(&self) -> bool {
        self.clients().any(Publisher::is_established)
    }

    /// Whether some client offers it with PUBLISH.
    pub(crate) fn is_published_by_client(&self) -> bool {
        self.clients().any(Publisher::is_offering)
    }

    /// Whether objects come from a client, if only the last ones.
    pub(crate) fn is_sent_by_client(&self) -> bool {
        self.clients().any(Publisher::is_sending)
    }

    /// Whether some client was asked and has not answered.
    pub(crate) fn is_asking_client(&self) -> bool {
        self.clients().any(Publisher::is_asked)
    }

    /// Whether objects come, or may come at any time.
    pub(crate) fn is_established(&self) -> bool {
        self.publishers.iter().any(Publisher::is_established)
    }

    /// Whether some session offers it with PUBLISH.
    pub(crate) fn is_published(&self) -> bool {
        self.publishers.iter().any(Publisher::is_offering)
    }

    /// Whether objects come, if only the last ones of a publisher that is done.
    pub(crate) fn is_sent(&self) -> bool {
        self.publishers.iter().any(Publisher::is_sending)
    }

    /// Whether objects come, or would as soon as somebody here wants them: a link offers them.
    pub(crate) fn is_within_reach(&self) -> bool {
        let mut publishers = self.publishers.iter();
        self.is_sent() || publishers.any(|it| it.is_link && it.is_offering())
    }

    /// Whether some publisher was asked and has not answered.
    pub(crate) fn is_asking(&self) -> bool {
        self.publishers.iter().any(Publisher::is_asked)
    }

    /// Whether objects come as they are published, so that the largest location is known at any time.
    pub(crate) fn is_live(&self) -> bool {
        self.publishers.iter().any(Publisher::is_live)
    }

    /// Whether a session is among its publishers.
    pub(crate) fn has_publisher(&self, session: Handle) -> bool {
        let mut publishers = self.publishers.iter();
        publishers.any(|publisher| publisher.handle == session)
    }

    /// The largest location known, and whether nothing will ever follow.
    pub(crate) fn known_end(&self) -> Option<(Location, bool)> {
        let largest = self.largest.max(self.cache.largest())?;
        Some((largest, self.cache.is_final(largest)))
    }

    /// Whether somebody is to be offered it as soon as it is known how far it has come.
    pub(crate) fn awaits_offer(&self) -> bool {
        self.awaits_offer
    }

    pub(crate) fn set_awaits_offer(&mut self, awaits: bool) {
        self.awaits_offer = awaits;
    }

    /// What holds for all subscribers.
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

    /// The last publisher is gone: the next one starts from the beginning.
    pub(crate) fn restart(&mut self) {
        self.duplicates.clear();
        self.end_markers = EndMarkers::default();
        self.group_asked = None;
        self.is_restarting = true;
    }

    /// An object of a track with several publishers is there: whether its sender has restarted the track. Then what the
    /// cache remembers of the others is not what it will send.
    #[inline]
    fn note_sender(
        &mut self,
        sender: PublisherId,
        location: Location,
        ledger: &mut Ledger,
    ) -> Option<Restarted> {
        // Nor what the last publisher sent, if this one begins where that one was, or where it said that nothing comes.
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

    /// Subgroup streams that are being received.
    fn streams_open(&self) -> usize {
        self.publishers.iter().map(|it| it.streams_open).sum()
    }

    /// A subgroup begins; the header is the publisher's, `number` the subgroup's ID.
    fn open_subgroup(&mut self, header: SubgroupHeader, number: u64) -> &mut Subgroup {
        let id = self.next_subgroup;
        self.next_subgroup += 1;
        let header = SubgroupHeader {
            track_alias: self.alias,
            ..header
        };
        let index = self.subgroups.len();
        self.subgroups
            .push(Subgroup::new(id, header, number, Draft::KEPT));
        &mut self.subgroups[index]
    }

    pub(crate) fn subgroup(&mut self, id: SubgroupId) -> Option<&mut Subgroup> {
        self.subgroups.iter_mut().find(|subgroup| subgroup.id == id)
    }

    /// Forgets what all subscribers have taken of a subgroup, up to `taken`; with `None`, nobody reads it. Returns whether
    /// all of it can go.
    pub(crate) fn trim_subgroup(&mut self, id: SubgroupId, taken: Option<u64>) -> bool {
        let Some(subgroup) = self.subgroup(id) else {
            return false;
        };
        let is_over = taken.is_none() && subgroup.ended().is_some() && !subgroup.is_fresh();
        if !is_over {
            subgroup.trim(taken.unwrap_or(subgroup.len()));
        }
        is_over
    }

    pub(crate) fn remove_subgroup(&mut self, id: SubgroupId) {
        self.subgroups.retain(|subgroup| subgroup.id != id);
    }
}
