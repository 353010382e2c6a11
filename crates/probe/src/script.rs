//! The script of a case: what the clients do, and what the relay has to do.

mod check;

use std::{fmt, time::Duration};

use bytes::Bytes;
use weir_link::Random;
use weir_moqt::message::{Message, MessageKind};

pub(crate) use self::check::{
    Check, Progress, answered, closed, done, fetched, finished, kind, message, object, object_at,
    ok, over, progress, refused, request, set_up, subscribed,
};
use crate::{
    edition::Edition,
    line::{Action, Fault, Line},
    seen::{Seen, Slot},
    wire::{self, Request, Track, Value},
};

/// The clients of a case: usually the one that does what the case is about, then others.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const C: usize = 2;
/// The most clients of a case.
pub(crate) const CLIENTS_MAX: usize = 48;

/// One step of a script.
pub(crate) enum Step {
    /// Starts a new connection.
    Connect(usize),
    /// Sends the usual SETUP.
    SetUp(usize),
    /// Starts a new connection with the usual SETUP if there is none, or if it has ended.
    Rejoin(usize),
    /// Acts on a stream.
    Act(usize, Slot, Action),
    /// Sends a request or an update that gets the next Request ID.
    Ask(usize, Slot, Encode),
    /// Sends bytes that depend on what the client has seen. `Err` skips the case, for this reason.
    Reply(usize, Slot, Replying),
    /// Gives a slot the oldest request of the relay that nobody has answered, or finds its oldest update, and acts as
    /// follows from it. Does nothing if there is none.
    Answer(usize, Slot, Answering),
    /// Sends a datagram.
    Datagram(usize, Bytes),
    /// Closes the connection with a code.
    Close(usize, u64),
    /// Changes how the client behaves.
    Behave(usize, Box<dyn Fn(&mut Line) + Send>),
    /// Does something with the packets of a client.
    Fault(usize, Fault),
    /// Does nothing for a while.
    Wait(Duration),
    /// Waits until a check is met.
    Expect(usize, Check),
    /// Waits for the time in which something forbidden would happen.
    Never(usize, Check),
    /// From here on, the requirement of the case is tested; before, its conditions are set up.
    Then,
    /// Repeats steps at a rate.
    Storm(Storm),
}

/// Encodes a request with this Request ID.
type Encode = Box<dyn Fn(u64) -> Vec<u8> + Send>;
/// Encodes what follows from what was seen.
type Replying = Box<dyn Fn(&Seen) -> Result<Vec<u8>, String> + Send>;
/// Returns the steps that answer a message of the relay on the stream of a slot, none of which waits.
type Answering = Box<dyn Fn(Slot, &Message) -> Vec<Step> + Send>;
/// Returns the steps of one repetition.
type Acting = Box<dyn Fn(u64, &mut Random) -> Vec<Step> + Send>;

/// Steps that are repeated at a rate.
pub(crate) struct Storm {
    /// How often; or the number of messages that have to be sent, if `counts_messages`.
    pub(crate) times: u64,
    pub(crate) per_second: u64,
    pub(crate) counts_messages: bool,
    /// Returns the steps of one time, which do not wait.
    pub(crate) act: Acting,
}

/// What the scripts of one run need: names that no other run uses, and what SETUP says of the relay's URL.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// The edition in which clients write.
    pub(crate) edition: Edition,
    /// The first fields of all namespaces.
    pub(crate) fields: Vec<Vec<u8>>,
    /// Options of the usual SETUP, in ascending order.
    pub(crate) options: Vec<(u64, Value)>,
}

/// A script that is being written.
pub(crate) struct Script {
    pub(crate) edition: Edition,
    pub(crate) steps: Vec<Step>,
    pub(crate) space: Space,
    /// The track of the case.
    pub(crate) track: Track,
    next_slot: u32,
}

impl Script {
    /// Returns an empty script for the case of this name.
    pub(crate) fn new(space: &Space, name: &str) -> Self {
        let mut namespace = space.fields.clone();
        namespace.push(name.as_bytes().to_vec());
        Self {
            edition: space.edition,
            steps: Vec::new(),
            space: space.clone(),
            track: Track {
                edition: space.edition,
                namespace,
                name: b"track".to_vec(),
            },
            next_slot: 0,
        }
    }

    /// Returns a slot for a new request stream of a client.
    pub(crate) fn bi(&mut self) -> Slot {
        self.next_slot += 1;
        Slot::Bi(self.next_slot)
    }

    /// Returns a slot for a new unidirectional stream of a client.
    pub(crate) fn uni(&mut self) -> Slot {
        self.next_slot += 1;
        Slot::Uni(self.next_slot)
    }

    /// Returns a slot for a request of the relay.
    pub(crate) fn taken(&mut self) -> Slot {
        self.next_slot += 1;
        Slot::Taken(self.next_slot)
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Connects a client and completes SETUP.
    pub(crate) fn join(&mut self, client: usize) {
        self.step(Step::Connect(client));
        self.step(Step::SetUp(client));
        self.expect(client, set_up());
    }

    /// Connects a client and waits for the handshake, without SETUP.
    pub(crate) fn connect(&mut self, client: usize) {
        self.step(Step::Connect(client));
        self.expect(
            client,
            Check::new("a connection", |seen| progress(seen.is_connected)),
        );
    }

    /// Sends a SETUP with these options in addition to the usual ones.
    pub(crate) fn set_up_with(&mut self, client: usize, options: &[(u64, Value)]) {
        let mut all = [&self.space.options[..], options].concat();
        all.sort_by_key(|(option, _)| *option);
        let setup = wire::framed(wire::message::SETUP, &wire::pairs(&all));
        self.write(client, Slot::Control, setup);
    }

    pub(crate) fn write(&mut self, client: usize, slot: Slot, bytes: Vec<u8>) {
        self.step(Step::Act(client, slot, Action::Write(bytes.into())));
    }

    pub(crate) fn finish(&mut self, client: usize, slot: Slot) {
        self.step(Step::Act(client, slot, Action::Finish));
    }

    pub(crate) fn reset(&mut self, client: usize, slot: Slot, code: u64) {
        self.step(Step::Act(client, slot, Action::Reset(code)));
    }

    pub(crate) fn stop(&mut self, client: usize, slot: Slot, code: u64) {
        self.step(Step::Act(client, slot, Action::Stop(code)));
    }

    /// Writes a whole unidirectional stream.
    pub(crate) fn stream(&mut self, client: usize, bytes: Vec<u8>) -> Slot {
        let slot = self.uni();
        self.write(client, slot, bytes);
        self.finish(client, slot);
        slot
    }

    pub(crate) fn datagram(&mut self, client: usize, bytes: Vec<u8>) {
        self.step(Step::Datagram(client, bytes.into()));
    }

    /// Sends a request on a new stream.
    pub(crate) fn ask(
        &mut self,
        client: usize,
        encode: impl Fn(u64) -> Vec<u8> + Send + 'static,
    ) -> Slot {
        let slot = self.bi();
        self.ask_on(client, slot, encode);
        slot
    }

    /// Sends a request or update on a stream.
    pub(crate) fn ask_on(
        &mut self,
        client: usize,
        slot: Slot,
        encode: impl Fn(u64) -> Vec<u8> + Send + 'static,
    ) {
        self.step(Step::Ask(client, slot, Box::new(encode)));
    }

    /// Sends a plain request for the track of the case on a new stream.
    pub(crate) fn request(&mut self, client: usize, request: Request) -> Slot {
        let track = self.track.clone();
        self.request_of(client, request, track)
    }

    /// Sends a plain request for a track on a new stream.
    pub(crate) fn request_of(&mut self, client: usize, request: Request, track: Track) -> Slot {
        self.request_with(client, request, track, Vec::new())
    }

    /// Sends a request with parameters on a new stream.
    pub(crate) fn request_with(
        &mut self,
        client: usize,
        request: Request,
        track: Track,
        parameters: Vec<(u64, Value)>,
    ) -> Slot {
        self.ask(client, move |id| request.encode(id, &track, &parameters))
    }

    /// Updates a request.
    pub(crate) fn update(&mut self, client: usize, slot: Slot, parameters: Vec<(u64, Value)>) {
        self.ask_on(client, slot, move |id| wire::update(id, &parameters));
    }

    pub(crate) fn expect(&mut self, client: usize, check: Check) {
        self.step(Step::Expect(client, check));
    }

    pub(crate) fn never(&mut self, client: usize, check: Check) {
        self.step(Step::Never(client, check));
    }

    /// From here on, the requirement is tested.
    pub(crate) fn then(&mut self) {
        self.step(Step::Then);
    }

    pub(crate) fn wait(&mut self, milliseconds: u64) {
        self.step(Step::Wait(Duration::from_millis(milliseconds)));
    }

    /// The session of a client still works: a request gets an answer.
    pub(crate) fn alive(&mut self, client: usize) {
        let absent = self.track.named("absent");
        let slot = self.request_of(client, Request::TrackStatus, absent);
        self.expect(client, answered(slot));
    }

    /// A client joins and publishes the track of the case. Returns the request.
    pub(crate) fn publish(&mut self, client: usize) -> Slot {
        self.join(client);
        let slot = self.request(client, Request::Publish);
        self.expect(client, ok(slot));
        slot
    }

    /// A client joins and publishes the track with FORWARD 0. Returns the request.
    pub(crate) fn publish_paused(&mut self, client: usize) -> Slot {
        self.join(client);
        let paused = vec![(wire::parameter::FORWARD, Value::Byte(0))];
        let slot = self.request_with(client, Request::Publish, self.track.clone(), paused);
        self.expect(client, ok(slot));
        slot
    }

    /// A client joins and announces the namespace of the case. Returns the request.
    pub(crate) fn announce(&mut self, client: usize) -> Slot {
        self.join(client);
        let slot = self.request(client, Request::PublishNamespace);
        self.expect(client, ok(slot));
        slot
    }

    /// A publisher announces the namespace, a subscriber subscribes, and the publisher accepts with the usual Track Alias.
    pub(crate) fn channel(&mut self, publisher: usize, subscriber: usize) -> Channel {
        self.channel_with(publisher, subscriber, Vec::new(), &[])
    }

    /// Does the same, with parameters of SUBSCRIBE and Track Properties of SUBSCRIBE_OK.
    pub(crate) fn channel_with(
        &mut self,
        publisher: usize,
        subscriber: usize,
        parameters: Vec<(u64, Value)>,
        properties: &[(u64, Value)],
    ) -> Channel {
        let channel = self.pending_with(publisher, subscriber, parameters);
        let accepted = wire::subscribe_ok(wire::ALIAS, &[], properties);
        self.write(publisher, channel.publication, accepted);
        self.expect(subscriber, subscribed(channel.subscription));
        channel
    }

    /// A publisher announces the namespace, a subscriber subscribes, and the relay's SUBSCRIBE reaches the publisher, which has
    /// not answered it.
    pub(crate) fn pending(&mut self, publisher: usize, subscriber: usize) -> Channel {
        self.pending_with(publisher, subscriber, Vec::new())
    }

    /// Does the same, with parameters of SUBSCRIBE.
    pub(crate) fn pending_with(
        &mut self,
        publisher: usize,
        subscriber: usize,
        parameters: Vec<(u64, Value)>,
    ) -> Channel {
        self.announce(publisher);
        self.join(subscriber);
        let track = self.track.clone();
        let subscription = self.request_with(subscriber, Request::Subscribe, track, parameters);
        let publication = self.taken_subscribe(publisher);
        Channel {
            publication,
            subscription,
        }
    }

    /// A client gets a SUBSCRIBE of the relay.
    pub(crate) fn taken_subscribe(&mut self, client: usize) -> Slot {
        let taken = self.taken();
        self.expect(client, request(taken, MessageKind::Subscribe, |_| true));
        taken
    }

    /// A client gets a PUBLISH of the relay.
    pub(crate) fn taken_publish(&mut self, client: usize) -> Slot {
        let taken = self.taken();
        self.expect(client, request(taken, MessageKind::Publish, |_| true));
        taken
    }

    /// A client subscribes to the tracks of the namespace, a publisher publishes the track, and the relay's PUBLISH reaches the
    /// client, which has not answered it. Returns its stream.
    pub(crate) fn offer(&mut self, publisher: usize, client: usize) -> Slot {
        self.collect(client, Vec::new());
        self.publish(publisher);
        self.taken_publish(client)
    }

    /// A client joins and subscribes to the tracks of the namespace of the case. Returns the request.
    pub(crate) fn collect(&mut self, client: usize, parameters: Vec<(u64, Value)>) -> Slot {
        self.join(client);
        let track = self.track.clone();
        let slot = self.request_with(client, Request::SubscribeTracks, track, parameters);
        self.expect(client, ok(slot));
        slot
    }
}

/// The two ends of a subscription through the relay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    /// The stream of the relay's SUBSCRIBE at the publisher.
    pub(crate) publication: Slot,
    /// The stream of the SUBSCRIBE at the subscriber.
    pub(crate) subscription: Slot,
}

impl fmt::Debug for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(client) => write!(formatter, "{client} connects"),
            Self::SetUp(client) => write!(formatter, "{client} sends SETUP"),
            Self::Rejoin(client) => write!(formatter, "{client} joins again"),
            Self::Act(client, slot, action) => write!(formatter, "{client} {slot:?} {action:?}"),
            Self::Ask(client, slot, _) => write!(formatter, "{client} {slot:?} asks"),
            Self::Reply(client, slot, _) => write!(formatter, "{client} {slot:?} replies"),
            Self::Answer(client, slot, _) => write!(formatter, "{client} {slot:?} answers"),
            Self::Datagram(client, data) => write!(formatter, "{client} sends {data:?}"),
            Self::Close(client, code) => write!(formatter, "{client} closes with {code:#x}"),
            Self::Fault(client, fault) => write!(formatter, "{client} {fault:?}"),
            Self::Behave(client, _) => write!(formatter, "{client} changes"),
            Self::Wait(time) => write!(formatter, "wait {time:?}"),
            Self::Expect(client, check) => write!(formatter, "{client} expects {}", check.text),
            Self::Never(client, check) => write!(formatter, "{client} never sees {}", check.text),
            Self::Then => formatter.write_str("then"),
            Self::Storm(storm) => write!(formatter, "{} times", storm.times),
        }
    }
}
