//! Answers to what the relay asks of a peer: as they should be, and as they should not.

use weir_link::Random;
use weir_moqt::message::Message;

use super::{KINDS, below, data, mutated};
use crate::{
    edition::Edition,
    line::Action,
    script::Step,
    seen::Slot,
    wire::{self, Track},
};

/// A client that the relay asks something.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) client: usize,
    /// The number of this answer, which chooses slots and a Track Alias.
    pub(crate) number: u64,
    /// A track that the client may name.
    pub(crate) track: Track,
}

impl Asked {
    fn edition(&self) -> Edition {
        self.track.edition
    }

    /// Returns the Track Alias of a subscription that is accepted.
    fn alias(&self) -> u64 {
        1000 + self.number % 200
    }

    /// Writes bytes to the stream of a request.
    pub(crate) fn write(&self, slot: Slot, bytes: Vec<u8>) -> Step {
        Step::Act(self.client, slot, Action::Write(bytes.into()))
    }

    /// Writes a whole unidirectional stream; one request may have two.
    pub(crate) fn stream(&self, place: u64, bytes: Vec<u8>, end: Action) -> Vec<Step> {
        let slot = Slot::Uni(super::slot(2 * self.number + place) + DATA_SLOTS);
        vec![self.write(slot, bytes), Step::Act(self.client, slot, end)]
    }

    /// Returns a step that answers the oldest request of the relay, if there is one.
    pub(crate) fn step(
        &self,
        answer: impl Fn(&Self, Slot, &Message) -> Vec<Step> + Send + 'static,
    ) -> Step {
        let asked = self.clone();
        let taken = Slot::Taken(super::slot(self.number));
        let answer = move |slot, message: &Message| answer(&asked, slot, message);
        Step::Answer(self.client, taken, Box::new(answer))
    }

    /// Returns the answer that a request of the relay should get.
    pub(crate) fn valid(&self, message: &Message) -> Vec<u8> {
        if let Message::Subscribe(_) = message {
            wire::subscribe_ok(self.alias(), &[], &[])
        } else if let Message::Fetch(_) = message {
            wire::fetch_ok(self.edition(), (1, 0), &[])
        } else {
            // What else a relay asks is a TRACK_STATUS, a PUBLISH or an update.
            wire::request_ok(&[], &[])
        }
    }

    /// Returns the steps of a valid answer with the data that follows from it.
    pub(crate) fn accept(&self, slot: Slot, message: &Message) -> Vec<Step> {
        let mut steps = vec![self.write(slot, self.valid(message))];
        if let Message::Subscribe(_) = message {
            let bytes = data::STREAMS[0].1(self.alias(), self.number);
            steps.extend(self.stream(0, bytes, Action::Finish));
        } else if let Message::Fetch(fetch) = message {
            let bytes = data::fetch_stream(fetch.request_id, 0);
            steps.extend(self.stream(0, bytes, Action::Finish));
        }
        steps
    }

    /// Returns the steps of an answer that breaks no rule of framing, but is not meant or comes too late.
    pub(crate) fn evade(&self, slot: Slot, message: &Message, random: &mut Random) -> Vec<Step> {
        let refusal = wire::request_error(random.below(0x40), b"no");
        let done = wire::publish_done(random.below(0x14), random.below(3), b"done");
        match random.below(6) {
            0 => vec![self.write(slot, refusal)],
            1 => vec![Step::Act(
                self.client,
                slot,
                Action::Reset(random.below(40)),
            )],
            2 => vec![Step::Act(self.client, slot, Action::Finish)],
            3 if matches!(message, Message::Subscribe(_)) => {
                let mut steps = vec![
                    self.write(slot, self.valid(message)),
                    self.write(slot, done),
                ];
                let late = data::STREAMS[0].1(self.alias(), self.number);
                steps.extend(self.stream(0, late, Action::Finish));
                steps
            }
            4 => vec![
                self.write(slot, self.valid(message)),
                Step::Act(self.client, slot, Action::Stop(random.below(40))),
                Step::Act(self.client, slot, Action::Reset(random.below(40))),
            ],
            _ => self.accept(slot, message),
        }
    }

    /// Returns the steps of an answer that contradicts the request, itself, or the rules of framing.
    pub(crate) fn contradict(
        &self,
        slot: Slot,
        message: &Message,
        random: &mut Random,
    ) -> Vec<Step> {
        let valid = self.valid(message);
        let refusal = wire::request_error(random.below(0x40), b"no");
        match random.below(7) {
            0 => vec![self.write(slot, valid.repeat(2))],
            1 => vec![self.write(slot, [valid, refusal].concat())],
            2 => vec![self.write(slot, [refusal, valid].concat())],
            3 => {
                let (_, encode) = KINDS[below(random, KINDS.len())];
                vec![self.write(slot, encode(self.number, &self.track))]
            }
            4 => self.data(slot, message, random),
            _ => vec![self.write(slot, mutated(valid, random))],
        }
    }

    /// Returns the steps of a valid answer, before or after data with changes at random.
    fn data(&self, slot: Slot, message: &Message, random: &mut Random) -> Vec<Step> {
        let bytes = if let Message::Fetch(fetch) = message {
            data::fetch_stream(fetch.request_id, random.below(3))
        } else {
            let (_, encode) = data::STREAMS[below(random, data::STREAMS.len())];
            encode(self.alias(), random.below(3))
        };
        let ends = [Action::Finish, Action::Reset(random.below(40))];
        let end = ends[below(random, 2)].clone();
        let mut steps = self.stream(1, mutated(bytes, random), end);
        let place = below(random, 2) * steps.len();
        steps.insert(place, self.write(slot, self.valid(message)));
        steps
    }
}

/// Slots of data streams of answers begin so far after those of other streams.
const DATA_SLOTS: u32 = 1_500_000_000;
