//! A track at the relay, and the two ways to offer it.

use std::time::Duration;

use weir_moqt::error::RequestErrorCode;
use weir_moqt::location::Location;
use weir_moqt::message::{RequestError, Subscribe, SubscribeOk};
use weir_moqt::name::FullTrackName;
use weir_moqt::parameter::{GroupOrder, Parameters};
use weir_moqt::priority::{RANKED_GROUPS, SUBSCRIBER_PRIORITY_DEFAULT, rank};
use weir_moqt::property::{DEFAULT_PUBLISHER_GROUP_ORDER, Properties, SUBGROUP_DELIVERY_TIMEOUT};
use weir_moqt::session::RequestId;

/// How an origin offers its tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublishFlow {
    /// PUBLISH for each track: the relay receives the stream before the first subscriber. A relay that answers `NOT_SUPPORTED` is
    /// offered the namespace instead.
    #[default]
    Publish,
    /// `PUBLISH_NAMESPACE`, and a response to each SUBSCRIBE: for relays that do not accept PUBLISH.
    Namespace,
}

/// The settings of a track, for the relay and its origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The group order at equal priorities.
    pub(super) order: GroupOrder,
    /// How long a subgroup may take to arrive after its end.
    pub(super) subgroup_timeout: Option<Duration>,
    /// For audio: the track's number in the MP4 stream.
    pub(super) audio: Option<u32>,
    /// Whether the origin keeps the objects for late subscribers.
    pub(super) is_metadata: bool,
}

impl Terms {
    /// For a track whose groups are sent in order and never expire.
    pub(super) const PLAIN: Self = Self {
        order: GroupOrder::Ascending,
        subgroup_timeout: None,
        audio: None,
        is_metadata: false,
    };
    /// For a track with one object, which the origin keeps.
    pub(super) const METADATA: Self = Self {
        is_metadata: true,
        ..Self::PLAIN
    };
}

/// A track.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) name: FullTrackName,
    terms: Terms,
    /// The track's priority among all that the peer has requested.
    subscriber_priority: u8,
    order: GroupOrder,
    /// Groups below this Group ID rank like it, since ranks distinguish a limited number of groups.
    ranked_from: u64,
    pub(super) request: RequestState,
    pub(super) streams_opened: u64,
    /// For audio: the track's number in the MP4 stream, the group, and its number of objects.
    pub(super) audio: Option<(u32, u64, u64)>,
    /// The first group that the subscriber receives, counted from the origin's first.
    from_group: u64,
    /// Whether the peer wants objects [moqt-18 §5.1].
    pub(super) is_forwarded: bool,
    /// The last object, sent or not.
    largest: Option<Location>,
}

/// The request that publishes a track or the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// No request.
    None,
    /// PUBLISH or `PUBLISH_NAMESPACE` was sent and has no response.
    Offered(RequestId),
    /// The offer, or the relay's SUBSCRIBE, was accepted.
    Established(RequestId),
    /// `PUBLISH_DONE` was sent.
    Done,
}

impl RequestState {
    /// Returns the request's ID while the request lasts.
    pub(super) fn id(self) -> Option<RequestId> {
        match self {
            Self::Offered(request) | Self::Established(request) => Some(request),
            Self::None | Self::Done => None,
        }
    }

    /// Whether the offer was accepted.
    pub(super) fn is_accepted(self) -> bool {
        matches!(self, Self::Established(_) | Self::Done)
    }
}

impl Publication {
    /// Returns a track that is not offered yet.
    pub(super) fn new(name: FullTrackName, terms: Terms) -> Self {
        Self {
            name,
            terms,
            subscriber_priority: SUBSCRIBER_PRIORITY_DEFAULT,
            order: terms.order,
            ranked_from: 0,
            request: RequestState::None,
            streams_opened: 0,
            audio: terms.audio.map(|number| (number, 0, 0)),
            from_group: 0,
            is_forwarded: true,
            largest: None,
        }
    }

    /// Returns the track's properties.
    pub(super) fn properties(&self) -> Properties {
        let order = match self.terms.order {
            GroupOrder::Ascending => 1,
            GroupOrder::Descending => 2,
        };
        let mut properties = Properties::builder();
        properties = properties.int(DEFAULT_PUBLISHER_GROUP_ORDER, order);
        if let Some(timeout) = self.terms.subgroup_timeout {
            let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            properties = properties.int(SUBGROUP_DELIVERY_TIMEOUT, milliseconds);
        }
        properties.build()
    }

    /// Applies the parameters of a subscription or of an update.
    pub(super) fn apply_parameters(&mut self, parameters: &Parameters) {
        if let Some(priority) = parameters.subscriber_priority {
            self.subscriber_priority = priority;
        }
        if let Some(order) = parameters.group_order {
            self.order = order;
        }
    }

    /// Returns a stream's rank for the connection [moqt-18 §7.2].
    pub(super) fn rank(&self, priority: u8, group: u64, subgroup: u64) -> i32 {
        rank(
            self.subscriber_priority,
            priority,
            self.order,
            group.max(self.ranked_from),
            subgroup,
        )
    }

    /// Records a new Group ID. Returns whether ranks start over, so that the streams of earlier groups must be ranked
    /// again to stay in order.
    pub(super) fn begins_over(&mut self, group: u64) -> bool {
        let from = group - group % RANKED_GROUPS;
        let begins_over = from > self.ranked_from;
        self.ranked_from = self.ranked_from.max(from);
        begins_over
    }

    /// Records an object of `group`, counted from the first. Returns whether to send it.
    pub(super) fn note(&mut self, group: u64, location: Location) -> bool {
        self.largest = self.largest.max(Some(location));
        self.request.id().is_some() && self.is_forwarded && group >= self.from_group
    }

    /// Applies whether the peer wants objects. If the peer resumes while `group` is in progress, it has missed that
    /// group's beginning, and receives the groups after it.
    pub(super) fn forward(&mut self, parameters: &Parameters, group: u64) {
        let Some(is_forwarded) = parameters.forward.filter(|_| !self.is_metadata()) else {
            return;
        };
        if is_forwarded && !self.is_forwarded {
            self.from_group = self.largest.map_or(0, |_| group + 1);
        }
        self.is_forwarded = is_forwarded;
    }

    /// Accepts a SUBSCRIBE under the alias. A subscriber that joins while a group is in progress receives the groups
    /// after it, since that group's beginning is not kept.
    pub(super) fn accept(
        &mut self,
        id: RequestId,
        parameters: &Parameters,
        alias: u64,
        group: u64,
    ) -> SubscribeOk {
        self.request = RequestState::Established(id);
        (self.subscriber_priority, self.order) = (SUBSCRIBER_PRIORITY_DEFAULT, self.terms.order);
        self.apply_parameters(parameters);
        self.streams_opened = 0;
        self.from_group = self.largest.map_or(0, |_| group + 1);
        self.is_forwarded = parameters.forward.unwrap_or(true) || self.is_metadata();
        SubscribeOk {
            track_alias: alias,
            parameters: Parameters {
                largest_object: self.largest,
                ..Parameters::default()
            },
            properties: self.properties(),
        }
    }

    /// Whether the origin keeps its objects. They are sent once, whatever the forward state.
    fn is_metadata(&self) -> bool {
        self.terms.is_metadata
    }

    /// Forgets the largest object, so that a kept object is sent to each subscriber as if it were new, and needs no
    /// FETCH.
    pub(super) fn forget_largest(&mut self) {
        self.largest = None;
    }
}

/// Returns the index of the track that a SUBSCRIBE names.
pub(super) fn requested_track(
    publications: &[Publication],
    subscribe: &Subscribe,
) -> Result<usize, Box<RequestError>> {
    let found = publications
        .iter()
        .position(|one| one.name == subscribe.track);
    match found {
        Some(place) if publications[place].request.id().is_none() => Ok(place),
        Some(_) => Err(Box::new(RequestError::new(
            RequestErrorCode::DUPLICATE_SUBSCRIPTION,
            "the track is subscribed to already",
        ))),
        None => Err(Box::new(RequestError::new(
            RequestErrorCode::DOES_NOT_EXIST,
            "there is no such track",
        ))),
    }
}

#[cfg(test)]
mod tests {
    use weir_moqt::name::Namespace;

    use super::*;
    use crate::origin::track;

    #[test]
    fn the_peer_says_how_urgent_a_track_is_and_which_groups_go_first() {
        let name = track(&Namespace::new(["live"]).expect("short"), "video").expect("short");
        let mut publication = Publication::new(name, Terms::PLAIN);
        let rank = |publication: &Publication, group| publication.rank(128, group, 0);
        assert!(rank(&publication, 1) > rank(&publication, 2));
        let usual = rank(&publication, 1);
        publication.apply_parameters(&Parameters {
            subscriber_priority: Some(127),
            group_order: Some(GroupOrder::Descending),
            ..Parameters::default()
        });
        assert!(rank(&publication, 1) < rank(&publication, 2));
        assert!(rank(&publication, 1) > usual);
        // A parameter that an update omits keeps its value.
        publication.apply_parameters(&Parameters::default());
        assert!(rank(&publication, 1) > usual);
        // The next subscriber begins with the track's own settings.
        publication.accept(RequestId(2), &Parameters::default(), 0, 0);
        assert_eq!(rank(&publication, 1), usual);
    }

    #[test]
    fn who_wants_objects_again_gets_those_of_the_next_group() {
        let name = track(&Namespace::new(["live"]).expect("short"), "video").expect("short");
        let forward = |forward| Parameters {
            forward: Some(forward),
            ..Parameters::default()
        };
        let at = |group| Location { group, object: 0 };
        for (terms, is_metadata) in [(Terms::PLAIN, false), (Terms::METADATA, true)] {
            let mut publication = Publication::new(name.clone(), terms);
            publication.request = RequestState::Established(RequestId(2));
            publication.forward(&forward(false), 0);
            assert_eq!(publication.note(0, at(100)), is_metadata);
            publication.forward(&Parameters::default(), 1);
            assert_eq!(publication.note(1, at(101)), is_metadata, "nothing is said");
            publication.forward(&forward(true), 1);
            assert_eq!(publication.note(1, at(101)), is_metadata);
            assert!(publication.note(2, at(102)));
            publication.accept(RequestId(4), &forward(false), 0, 2);
            assert_eq!(publication.note(3, at(103)), is_metadata);
            publication.accept(RequestId(6), &Parameters::default(), 0, 3);
            assert!(publication.note(4, at(104)));
        }
    }

    #[test]
    fn what_is_behind_stays_behind_where_ranks_begin_over() {
        let name = track(&Namespace::new(["live"]).expect("short"), "video").expect("short");
        for order in [GroupOrder::Ascending, GroupOrder::Descending] {
            let terms = Terms {
                order,
                ..Terms::PLAIN
            };
            let mut publication = Publication::new(name.clone(), terms);
            let last = 3 * RANKED_GROUPS - 1;
            assert!(publication.begins_over(last - 1));
            assert!(!publication.begins_over(last));
            assert!(publication.begins_over(last + 1));
            let rank = |group| publication.rank(128, group, 0);
            for before in [last - 1, last] {
                for after in [last + 2, last + RANKED_GROUPS] {
                    let goes_first = rank(before) > rank(after);
                    assert_eq!(goes_first, order == GroupOrder::Ascending);
                }
            }
        }
    }

    #[test]
    fn a_track_tells_how_long_a_subgroup_may_take() {
        let name = track(&Namespace::new(["live"]).expect("short"), "video").expect("short");
        let timeout = Some(Duration::from_millis(200));
        for subgroup_timeout in [None, timeout] {
            let terms = Terms {
                subgroup_timeout,
                ..Terms::PLAIN
            };
            let properties = Publication::new(name.clone(), terms).properties();
            assert_eq!(properties.subgroup_delivery_timeout(), subgroup_timeout);
            assert_eq!(properties.object_delivery_timeout(), None);
        }
    }
}
