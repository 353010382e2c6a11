//! Hostile clients that the relay asks something: publishers, and subscribers to the tracks of a namespace.

use weir_link::Random;
use weir_moqt::message::Message;

use super::robustness::{slot, storm};
use crate::{
    hostile::Asked,
    line::Action,
    script::{Script, Step},
    seen::Slot,
    wire::{self, Request, Track, Value, parameter},
};

/// What makes the relay ask a client something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    Subscribe,
    Fetch,
    TrackStatus,
    Publish,
    Update,
}

impl Asks {
    pub(super) const ALL: [Self; 5] = [
        Self::Subscribe,
        Self::Fetch,
        Self::TrackStatus,
        Self::Publish,
        Self::Update,
    ];

    /// Returns the relay's message in the names of cases.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Fetch => "fetch",
            Self::TrackStatus => "track-status",
            Self::Publish => "publish",
            Self::Update => "request-update",
        }
    }

    /// Returns what the hostile client asks first, so that the relay asks it.
    fn offer(self, id: u64, track: &Track) -> Vec<u8> {
        match self {
            Self::Subscribe | Self::Fetch | Self::TrackStatus => {
                Request::PublishNamespace.encode(id, track, &[])
            }
            Self::Publish => Request::SubscribeTracks.encode(id, track, &[]),
            Self::Update => {
                let paused = (parameter::FORWARD, Value::Byte(0));
                wire::publish(id, track, id + 100, &[paused], &[])
            }
        }
    }

    /// Returns what another client asks, so that the relay asks the hostile one.
    fn demand(self, id: u64, track: &Track) -> Vec<u8> {
        match self {
            Self::Subscribe | Self::Update => Request::Subscribe.encode(id, track, &[]),
            Self::Fetch => wire::fetch(id, track, (0, 0), (1, 0), &[]),
            Self::TrackStatus => Request::TrackStatus.encode(id, track, &[]),
            Self::Publish => wire::publish(id, track, id + 100, &[], &[]),
        }
    }
}

/// Four hostile clients are asked something, so many times in all. `answer` returns the steps of each answer, given its number.
pub(super) fn answering(
    script: &mut Script,
    asks: Asks,
    times: u64,
    answer: impl Fn(u64, &Asked, Slot, &Message, &mut Random) -> Vec<Step> + Clone + Send + 'static,
) {
    script.join(OTHER);
    let all = script.track.below("asked");
    script.step(storm(times, 300, move |number, random| {
        let client = usize::try_from(number % CLIENTS).unwrap_or(0);
        let track = all.below(&client.to_string()).named(&number.to_string());
        let mut steps = cancelled(client, number);
        let mute = Box::new(|line: &mut crate::line::Line| line.is_mute = true);
        steps.extend([Step::Rejoin(client), Step::Behave(client, mute)]);
        let offered = track.clone();
        let offer = Box::new(move |id| asks.offer(id, &offered));
        steps.push(Step::Ask(client, slot(2 * number), offer));
        let demanded = track.clone();
        let demand = Box::new(move |id| asks.demand(id, &demanded));
        steps.push(Step::Rejoin(OTHER));
        steps.push(Step::Ask(OTHER, slot(2 * number + 1), demand));
        let asked = Asked {
            client,
            number,
            track,
        };
        let (seed, answer) = (random.next_u64(), answer.clone());
        steps.push(asked.step(move |asked, slot, message| {
            answer(number, asked, slot, message, &mut Random::new(seed))
        }));
        steps
    }));
    script.wait(200);
}

/// Returns steps that cancel what was asked some time ago, so that the relay permits more streams.
fn cancelled(client: usize, number: u64) -> Vec<Step> {
    let Some(earlier) = number.checked_sub(KEPT) else {
        return Vec::new();
    };
    let streams = [(client, slot(2 * earlier)), (OTHER, slot(2 * earlier + 1))];
    let ends = streams.into_iter().flat_map(|(client, slot)| {
        [Action::Stop(1), Action::Reset(1)].map(|end| Step::Act(client, slot, end))
    });
    ends.collect()
}

/// Hostile clients.
const CLIENTS: u64 = 4;
/// The client whose requests make the relay ask the hostile ones.
const OTHER: usize = 5;
/// Requests that stay open at a time.
const KEPT: u64 = 40;
