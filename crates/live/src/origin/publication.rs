//! A track as the relay knows it, and the two ways to offer one.

use weir_moqt::error::RequestErrorCode;
use weir_moqt::location::Location;
use weir_moqt::message::{RequestError, Subscribe, SubscribeOk};
use weir_moqt::name::FullTrackName;
use weir_moqt::parameter::{GroupOrder, Parameters};
use weir_moqt::property::{DEFAULT_PUBLISHER_GROUP_ORDER, Properties};
use weir_moqt::session::RequestId;

/// How an origin offers its tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublishFlow {
    /// PUBLISH for each: the relay has the stream before anybody asks for it.
    #[default]
    Publish,
    /// `PUBLISH_NAMESPACE`, and an answer to each SUBSCRIBE: for relays that take no PUBLISH.
    Namespace,
}

/// A track.
#[derive(Debug)]
pub(super) struct Publication {
    pub(super) name: FullTrackName,
    order: GroupOrder,
    /// The PUBLISH, or the SUBSCRIBE that was accepted.
    pub(super) request: Option<RequestId>,
    pub(super) is_accepted: bool,
    pub(super) streams_opened: u64,
    /// Of a track with sound: its number in the MP4 stream, the group and how many objects that has.
    pub(super) audio: Option<(u32, u64, u64)>,
    /// Who subscribed begins with this group, counted from the first.
    from_group: u64,
    /// The last object, whether anybody wanted it or not.
    largest: Option<Location>,
}

impl Publication {
    /// A track that is not offered yet.
    pub(super) fn new(name: FullTrackName, order: GroupOrder, audio: Option<u32>) -> Self {
        Self {
            name,
            order,
            request: None,
            is_accepted: false,
            streams_opened: 0,
            audio: audio.map(|number| (number, 0, 0)),
            from_group: 0,
            largest: None,
        }
    }

    /// What the track says about itself.
    pub(super) fn properties(&self) -> Properties {
        let order = match self.order {
            GroupOrder::Ascending => 1,
            GroupOrder::Descending => 2,
        };
        Properties::builder()
            .int(DEFAULT_PUBLISHER_GROUP_ORDER, order)
            .build()
    }

    /// Notes an object of a group that is counted from the first; returns whether it is to be sent.
    pub(super) fn note(&mut self, group: u64, location: Location) -> bool {
        self.largest = self.largest.max(Some(location));
        self.request.is_some() && group >= self.from_group
    }

    /// Accepts a SUBSCRIBE under the alias. Who comes while a group is on its way gets what comes behind it: the
    /// beginning of the present one is gone.
    pub(super) fn accept(&mut self, id: RequestId, alias: u64, group: u64) -> SubscribeOk {
        self.request = Some(id);
        self.is_accepted = true;
        self.streams_opened = 0;
        self.from_group = self.largest.map_or(0, |_| group + 1);
        SubscribeOk {
            track_alias: alias,
            parameters: Parameters {
                largest_object: self.largest,
                ..Parameters::default()
            },
            properties: self.properties(),
        }
    }

    /// What is held is sent to whoever subscribes, as if it had been made only now: so nobody has to fetch it.
    pub(super) fn forget_largest(&mut self) {
        self.largest = None;
    }
}

/// Which of the tracks a SUBSCRIBE is for.
pub(super) fn asked_for(
    publications: &[Publication],
    subscribe: &Subscribe,
) -> Result<usize, Box<RequestError>> {
    let found = publications
        .iter()
        .position(|one| one.name == subscribe.track);
    match found {
        Some(place) if publications[place].request.is_none() => Ok(place),
        Some(_) => Err(Box::new(refusal(
            RequestErrorCode::DUPLICATE_SUBSCRIPTION,
            "the track is subscribed to already",
        ))),
        None => Err(Box::new(refusal(
            RequestErrorCode::DOES_NOT_EXIST,
            "there is no such track",
        ))),
    }
}

/// A refusal for this reason.
pub(super) fn refusal(code: RequestErrorCode, reason: &str) -> RequestError {
    RequestError {
        code,
        retry_after: None,
        reason: reason.to_owned(),
        redirect: None,
    }
}
