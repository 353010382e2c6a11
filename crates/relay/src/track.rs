//! One track: where its objects come from, who gets them, and what is on its way.

pub(crate) mod admit;
pub(crate) mod departure;
pub(crate) mod duplicates;
pub(crate) mod end_markers;
pub(crate) mod keep;
pub(crate) mod malformed;
pub(crate) mod object_gaps;
pub(crate) mod publishers;
pub(crate) mod restart;
pub(crate) mod subgroup;
pub(crate) mod table;

use std::{collections::BTreeSet, time::Instant};

use weir_moqt::{
    data::SubgroupHeader, draft::Draft, location::Location, message::PublishDone,
    name::FullTrackName, parameter::Parameters, property::Properties, session::RequestId,
};
use weir_quic::Handle;

use crate::{
    cache::{Ledger, TrackCache},
    delivery::subscription::{Subscriber, TrackDefaults},
    delivery::timeouts::smaller,
    fetch::served::FetchId,
    track::duplicates::{Anew, Duplicates, Sender},
    track::end_markers::Ends,
    track::subgroup::{Subgroup, SubgroupId},
};

/// One track.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) name: FullTrackName,
    /// The alias by which all subscribers know it [moqt-18 §11.1].
    pub(crate) alias: u64,
    pub(crate) properties: Properties,
    /// Some publisher has said what its properties are.
    pub(crate) is_known: bool,
    pub(crate) sources: Vec<Source>,
    /// Sorted by session and request, so that the fan-out meets connections in the order of their memory.
    pub(crate) subscribers: Vec<Subscriber>,
    /// Those that wait for a publisher.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) largest: Option<Location>,
    pub(crate) subgroups: Vec<Subgroup>,
    next_subgroup: SubgroupId,
    pub(crate) duplicates: Duplicates,
    pub(crate) ends: Ends,
    /// The new group that publishers were asked for, and the largest one at that time.
    pub(crate) group_asked: Option<(u64, Option<u64>)>,
    pub(crate) cache: TrackCache,
    /// Fetches of peers.
    pub(crate) readers: BTreeSet<FetchId>,
    /// Those of them that wait for what comes into the cache.
    pub(crate) hungry: BTreeSet<FetchId>,
    /// Fetches of the relay.
    pub(crate) feeders: BTreeSet<FetchId>,
    /// When it is to be looked whether the last streams of a leaving publisher have arrived.
    pub(crate) leaving_at: Option<Instant>,
    /// Somebody is to be offered it as soon as it is known how far it has come.
    pub(crate) awaits_offer: bool,
    /// Without a publisher, and until when its subscribers are kept.
    pub(crate) orphaned_until: Option<Instant>,
    /// The last publisher went, and the next one has sent nothing yet.
    is_afresh: bool,
}

/// A session that objects of a track come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    pub(crate) handle: Handle,
    pub(crate) request: RequestId,
    /// The session is one with a neighbour.
    pub(crate) is_neighbour: bool,
    pub(crate) origin: Origin,
    /// Whether it was told to send objects.
    pub(crate) forward: bool,
    /// How often it was told otherwise since, without an answer; counted of neighbours only.
    pub(crate) updates_pending: u32,
    /// Subgroup streams that came so far.
    pub(crate) streams: u64,
    /// Those of them still open.
    pub(crate) streams_open: usize,
    /// Bytes of payload that came on them.
    pub(crate) stream_bytes: u64,
    /// Bytes that its connection had brought when another publisher counted anew, and it was asked for a sign of
    /// life.
    pub(crate) probed: Option<u64>,
    /// It said that it is done; only what is on its way may still come.
    pub(crate) leaving: Option<Leaving>,
}

/// A source that is done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leaving {
    /// Its last word.
    pub(crate) done: PublishDone,
    /// When it came.
    pub(crate) since: Instant,
    /// How long streams of it that are missing, or that do not go on, are waited for.
    pub(crate) until: Instant,
    /// Its `stream_bytes` when `until` was set.
    pub(crate) stream_bytes: u64,
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
    /// The session is one with a neighbour.
    pub(crate) is_neighbour: bool,
    pub(crate) parameters: Parameters,
    /// How long it waits for a publisher to appear; a moment that has passed if it does not want to wait.
    pub(crate) until: Instant,
    /// How long it waits for the answers of publishers that were asked.
    pub(crate) answer_by: Instant,
    /// When it is looked at again.
    pub(crate) wake: Instant,
}

impl Waiting {
    pub(crate) fn is_of(&self, handle: Handle, request: RequestId) -> bool {
        self.handle == handle && self.request == request
    }
}

impl Source {
    /// Whether everything that it sent has arrived, as far as it says how much that is.
    pub(crate) fn is_complete(&self) -> bool {
        let count = self.leaving.as_ref().and_then(|l| l.done.stream_count);
        self.streams_open == 0 && count.is_some_and(|count| self.streams >= count)
    }

    /// Whether objects come, or may come at any time.
    pub(crate) fn is_established(&self) -> bool {
        self.is_feeding() && self.leaving.is_none()
    }

    /// Whether objects come, if only the last ones.
    pub(crate) fn is_feeding(&self) -> bool {
        self.origin != Origin::Asked && !self.is_resting() && !self.is_waking()
    }

    /// Whether it was asked and has not answered.
    pub(crate) fn is_asked(&self) -> bool {
        self.origin == Origin::Asked || self.is_waking()
    }

    /// Whether it is a neighbour that offers the track, and was told that nobody here wants it.
    fn is_resting(&self) -> bool {
        self.is_neighbour && self.origin == Origin::Published && !self.forward
    }

    /// Whether it is such a neighbour, was told that somebody does, and has not said yet how far the track has come.
    fn is_waking(&self) -> bool {
        let is_offer = self.is_neighbour && self.origin == Origin::Published;
        is_offer && self.forward && self.updates_pending > 0
    }

    /// Whether it offers the track of its own accord.
    pub(crate) fn is_offered(&self) -> bool {
        self.origin == Origin::Published && self.leaving.is_none()
    }
}

impl Track {
    pub(crate) fn new(name: FullTrackName, alias: u64) -> Self {
        Self {
            name,
            alias,
            properties: Properties::EMPTY,
            is_known: false,
            sources: Vec::new(),
            subscribers: Vec::new(),
            waiting: Vec::new(),
            largest: None,
            subgroups: Vec::new(),
            next_subgroup: 0,
            duplicates: Duplicates::default(),
            ends: Ends::default(),
            group_asked: None,
            cache: TrackCache::default(),
            readers: BTreeSet::new(),
            hungry: BTreeSet::new(),
            feeders: BTreeSet::new(),
            leaving_at: None,
            awaits_offer: false,
            orphaned_until: None,
            is_afresh: false,
        }
    }

    /// Whether nobody has anything to do with it any more; its objects may still be remembered.
    pub(crate) fn is_unused(&self) -> bool {
        self.sources.is_empty()
            && self.subscribers.is_empty()
            && self.waiting.is_empty()
            && self.readers.is_empty()
            && self.feeders.is_empty()
    }

    /// What sessions of this thread publish of it.
    fn sources_here(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| !source.is_neighbour)
    }

    /// Number of sessions of this thread that objects come from, or that were asked for them.
    pub(crate) fn publishers_here(&self) -> usize {
        self.sources_here().count()
    }

    /// Whether objects come from a session of this thread, or may come at any time.
    pub(crate) fn is_established_here(&self) -> bool {
        self.sources_here().any(Source::is_established)
    }

    /// Whether some session of this thread offers it with PUBLISH.
    pub(crate) fn is_published_here(&self) -> bool {
        self.sources_here().any(Source::is_offered)
    }

    /// Whether objects come from a session of this thread, if only the last ones.
    pub(crate) fn is_fed_here(&self) -> bool {
        self.sources_here().any(Source::is_feeding)
    }

    /// Whether some publisher of this thread was asked and has not answered.
    pub(crate) fn is_asking_here(&self) -> bool {
        self.sources_here().any(Source::is_asked)
    }

    /// Number of subscriptions of neighbours, which come first.
    pub(crate) fn neighbours_len(&self) -> usize {
        let mut subscribers = self.subscribers.iter();
        let first_here = subscribers.position(|subscriber| !subscriber.is_neighbour);
        first_here.unwrap_or(self.subscribers.len())
    }

    /// Whether objects come, or may come at any time.
    pub(crate) fn is_established(&self) -> bool {
        self.sources.iter().any(Source::is_established)
    }

    /// Whether some session offers it with PUBLISH.
    pub(crate) fn is_published(&self) -> bool {
        self.sources.iter().any(Source::is_offered)
    }

    /// Whether objects come, if only the last ones of a publisher that is done.
    pub(crate) fn is_fed(&self) -> bool {
        self.sources.iter().any(Source::is_feeding)
    }

    /// Whether objects come, or would as soon as somebody here wants them: a neighbour offers them.
    pub(crate) fn is_within_reach(&self) -> bool {
        let mut sources = self.sources.iter();
        self.is_fed() || sources.any(|source| source.is_neighbour && source.is_offered())
    }

    /// Whether some publisher was asked and has not answered.
    pub(crate) fn is_asking(&self) -> bool {
        self.sources.iter().any(Source::is_asked)
    }

    /// Whether nobody subscribes to it or waits to. A neighbour that was offered it and does not want it now does not
    /// count; for a source that is a neighbour itself, no neighbour does.
    pub(crate) fn is_unwanted(&self, from_neighbour: bool) -> bool {
        let here = |is_neighbour: bool| !(from_neighbour && is_neighbour);
        let mut subscribers = self.subscribers.iter();
        let mut waiting = self.waiting.iter();
        !subscribers.any(|other| here(other.is_neighbour) && !other.is_resting_offer())
            && !waiting.any(|waiting| here(waiting.is_neighbour))
    }

    /// Whether some subscriber wants objects now. For a source that is a neighbour no neighbour counts, but everyone
    /// who waits does: to be answered, what is largest has to be known.
    pub(crate) fn is_wanted(&self, from_neighbour: bool) -> bool {
        let mut subscribers = self.subscribers.iter();
        let wants = |other: &Subscriber| other.forward && other.ending.is_none();
        from_neighbour && self.awaits_offer
            || subscribers.any(|other| wants(other) && !(from_neighbour && other.is_neighbour))
            || self.waiting.iter().any(|waiting| {
                if from_neighbour {
                    !waiting.is_neighbour
                } else {
                    waiting.parameters.forward != Some(false)
                }
            })
    }

    /// The largest location known, and whether nothing will ever follow.
    pub(crate) fn known_end(&self) -> Option<(Location, bool)> {
        let largest = self.largest.max(self.cache.largest)?;
        Some((largest, self.cache.is_final(largest)))
    }

    /// Whether objects come as they are published, so that the largest location is known at any time.
    pub(crate) fn is_live(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| source.is_established() && source.forward)
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
            subgroup_timeout: smaller(self.properties.subgroup_delivery_timeout(), None),
        }
    }

    /// The last publisher is gone: the next one starts afresh.
    pub(crate) fn start_afresh(&mut self) {
        self.duplicates.clear();
        self.ends = Ends::default();
        self.group_asked = None;
        self.is_afresh = true;
    }

    /// An object of a track with several publishers is there: whether its sender counts anew. Then what the cache
    /// remembers of the others is not what it will send.
    #[inline]
    pub(crate) fn hear(
        &mut self,
        sender: Sender,
        location: Location,
        ledger: &mut Ledger,
    ) -> Option<Anew> {
        // Nor what the last publisher sent, if this one begins where that one was, or where it said that nothing comes.
        if std::mem::take(&mut self.is_afresh)
            && (self.cache.largest >= Some(location) || self.cache.rules_out(location))
        {
            self.cache.clear(ledger);
        }
        if !self.duplicates.is_shared() {
            return None;
        }
        let anew = self.duplicates.hear(sender)?;
        if anew.is_first && self.cache.largest >= Some(location) {
            self.cache.clear(ledger);
        }
        Some(anew)
    }

    /// Notes the location of an object that arrived.
    #[inline]
    pub(crate) fn observe(&mut self, location: Location) {
        if self.largest.is_none_or(|largest| location > largest) {
            self.largest = Some(location);
        }
    }

    /// Subgroup streams that are being received.
    pub(crate) fn streams_open(&self) -> usize {
        self.sources.iter().map(|source| source.streams_open).sum()
    }

    /// A subgroup begins; the header is the publisher's, `number` the subgroup's ID.
    pub(crate) fn open_subgroup(
        &mut self,
        header: SubgroupHeader,
        number: u64,
        draft: Draft,
    ) -> &mut Subgroup {
        let id = self.next_subgroup;
        self.next_subgroup += 1;
        let header = SubgroupHeader {
            track_alias: self.alias,
            ..header
        };
        let place = self.subgroups.len();
        self.subgroups
            .push(Subgroup::new(id, header, number, draft));
        &mut self.subgroups[place]
    }

    pub(crate) fn subgroup(&mut self, id: SubgroupId) -> Option<&mut Subgroup> {
        self.subgroups.iter_mut().find(|subgroup| subgroup.id == id)
    }

    /// Forgets what is no longer needed of a subgroup: what all have read, or all of it once it has ended.
    pub(crate) fn settle_subgroup(&mut self, id: SubgroupId) {
        let cursors = self.subscribers.iter().filter_map(|other| other.cursor(id));
        let taken = cursors.min();
        let Some(subgroup) = self.subgroup(id) else {
            return;
        };
        if taken.is_none() && subgroup.ended().is_some() && !subgroup.is_fresh() {
            self.remove_subgroup(id);
        } else {
            subgroup.trim(taken.unwrap_or(subgroup.len()));
        }
    }

    pub(crate) fn remove_subgroup(&mut self, id: SubgroupId) {
        self.subgroups.retain(|subgroup| subgroup.id != id);
        for subscriber in &mut self.subscribers {
            subscriber.forget(id);
        }
    }
}
