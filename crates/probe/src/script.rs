//! The script of a case: what the clients do, and what the relay has to do.

use std::{fmt, time::Duration};

use bytes::Bytes;
use weir_link::Random;
use weir_moqt::message::{Message, MessageKind};

use crate::{
    line::{Action, Line},
    seen::{Ended, Object, Seen, Slot, StreamEnd, Way, code_name},
    wire::{self, Request, Track, Value},
};

/// The clients of a case: usually the one that does what the case is about, then others.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const C: usize = 2;
/// The most clients of a case.
pub(crate) const CLIENTS_MAX: usize = 8;

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
    /// Sends a datagram.
    Datagram(usize, Bytes),
    /// Closes the connection with a code.
    Close(usize, u64),
    /// Changes how the client behaves.
    Behave(usize, Box<dyn Fn(&mut Line) + Send>),
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

/// What a check says of what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// What is expected has happened.
    Met,
    /// It may still happen.
    Pending,
    /// It cannot happen any more, because of this.
    Broken(String),
}

/// Something that the relay has to do, or must not do.
pub(crate) struct Check {
    /// What it is, such as "REQUEST_OK".
    pub(crate) text: String,
    test: Box<dyn Fn(&mut Seen) -> Progress + Send>,
}

impl Check {
    pub(crate) fn new(
        text: impl Into<String>,
        test: impl Fn(&mut Seen) -> Progress + Send + 'static,
    ) -> Self {
        Self {
            text: text.into(),
            test: Box::new(test),
        }
    }

    /// Tests it. The end of the session breaks all checks that do not expect it.
    pub(crate) fn test(&self, seen: &mut Seen) -> Progress {
        match (self.test)(seen) {
            Progress::Pending => match (&seen.unreadable, &seen.ended) {
                (Some(problem), _) => Progress::Broken(problem.clone()),
                (None, Some(ended)) => Progress::Broken(format!("the session was {ended}")),
                (None, None) => Progress::Pending,
            },
            progress @ (Progress::Met | Progress::Broken(_)) => progress,
        }
    }
}

/// The session is closed by the relay with one of these codes; with any code if there is none.
pub(crate) fn closed(codes: &'static [u64]) -> Check {
    let names: Vec<String> = codes.iter().map(|code| code_name(*code)).collect();
    let text = match &names[..] {
        [] => "the session closed".to_owned(),
        names => format!("the session closed with {}", names.join(" or ")),
    };
    Check::new(text, move |seen| match &seen.ended {
        Some(Ended {
            code: Some(code), ..
        }) if codes.is_empty() || codes.contains(code) => Progress::Met,
        Some(ended) => Progress::Broken(format!("the session was {ended}")),
        None => Progress::Pending,
    })
}

/// The next message on a stream is one that `is_meant` accepts.
pub(crate) fn message(
    slot: Slot,
    text: impl Into<String>,
    is_meant: impl Fn(&Message) -> bool + Send + 'static,
) -> Check {
    Check::new(text, move |seen| match seen.next_message(slot) {
        Some(message) if is_meant(message) => Progress::Met,
        Some(message) => Progress::Broken(format!("the relay sent {}", shown(message))),
        None => match seen.on(slot).and_then(|incoming| incoming.end) {
            Some(StreamEnd::Fin) => Progress::Broken("the relay ended the stream".to_owned()),
            Some(StreamEnd::Reset(code)) => {
                Progress::Broken(format!("the relay reset the stream with {code:#x}"))
            }
            None => Progress::Pending,
        },
    })
}

/// The next message on a stream has this kind.
pub(crate) fn kind(slot: Slot, kind: MessageKind) -> Check {
    message(slot, kind.name(), move |message| message.kind() == kind)
}

/// The next message is REQUEST_OK.
pub(crate) fn ok(slot: Slot) -> Check {
    kind(slot, MessageKind::RequestOk)
}

/// The next message is SUBSCRIBE_OK.
pub(crate) fn subscribed(slot: Slot) -> Check {
    kind(slot, MessageKind::SubscribeOk)
}

/// The next message is REQUEST_ERROR with one of these codes; with any code if there is none.
pub(crate) fn refused(slot: Slot, codes: &'static [u64]) -> Check {
    let names: Vec<String> = codes.iter().map(|code| refusal_name(*code)).collect();
    let text = format!("REQUEST_ERROR {}", names.join(" or "));
    let is_meant = move |code: u64| codes.is_empty() || codes.contains(&code);
    message(
        slot,
        text.trim_end(),
        move |message| matches!(message, Message::RequestError(error) if is_meant(error.code.0)),
    )
}

/// The next message is any answer to a request.
pub(crate) fn answered(slot: Slot) -> Check {
    message(slot, "an answer", |message| {
        matches!(
            message.kind(),
            MessageKind::RequestOk
                | MessageKind::RequestError
                | MessageKind::SubscribeOk
                | MessageKind::FetchOk
        )
    })
}

/// The next message is PUBLISH_DONE with this code; with any if there is none.
pub(crate) fn done(slot: Slot, code: Option<u64>) -> Check {
    let text = match code {
        Some(code) => format!("PUBLISH_DONE with {code:#x}"),
        None => "PUBLISH_DONE".to_owned(),
    };
    message(
        slot,
        text,
        move |message| matches!(message, Message::PublishDone(done) if code.is_none_or(|code| code == done.code.0)),
    )
}

/// The relay sends this request, which becomes the stream of a slot.
pub(crate) fn request(
    slot: Slot,
    kind: MessageKind,
    is_meant: impl Fn(&Message) -> bool + Send + 'static,
) -> Check {
    Check::new(format!("{} from the relay", kind.name()), move |seen| {
        let is_found = seen.take(slot, |message| message.kind() == kind && is_meant(message));
        progress(is_found)
    })
}

/// The relay ends its side of a stream.
pub(crate) fn finished(slot: Slot) -> Check {
    Check::new("FIN", move |seen| {
        match seen.on(slot).and_then(|incoming| incoming.end) {
            Some(StreamEnd::Fin) => Progress::Met,
            Some(StreamEnd::Reset(code)) => {
                Progress::Broken(format!("the relay reset the stream with {code:#x}"))
            }
            None => Progress::Pending,
        }
    })
}

/// The relay has stopped, reset or finished a stream.
pub(crate) fn over(slot: Slot) -> Check {
    Check::new("the end of the request", move |seen| {
        let is_over =
            |incoming: &crate::seen::Incoming| incoming.end.is_some() || incoming.stopped.is_some();
        progress(seen.on(slot).is_some_and(is_over))
    })
}

/// An object that `is_meant` accepts arrives.
pub(crate) fn object(
    text: impl Into<String>,
    is_meant: impl Fn(&Object) -> bool + Send + 'static,
) -> Check {
    Check::new(text, move |seen| {
        let mut objects = seen.objects.iter();
        progress(objects.any(|object| object.is_complete() && is_meant(object)))
    })
}

/// The object at a location arrives with this payload. Another payload breaks the check.
pub(crate) fn object_at(group: u64, id: u64, payload: &[u8]) -> Check {
    let payload = payload.to_vec();
    let text = format!("object {id} of group {group}, unchanged");
    Check::new(text, move |seen| {
        let mut objects = seen.objects.iter();
        let found = objects.find(|one| one.is_complete() && one.location() == (group, id));
        match found {
            Some(object) if object.payload[..] == payload[..] => Progress::Met,
            Some(object) => Progress::Broken(format!(
                "the payload has {} bytes that differ from the {} bytes published",
                object.payload.len(),
                payload.len()
            )),
            None => Progress::Pending,
        }
    })
}

/// These objects, and no others, have arrived by a fetch, in this order.
pub(crate) fn fetched(request: u64, locations: &'static [(u64, u64)]) -> Check {
    Check::new(format!("objects {locations:?}, then FIN"), move |seen| {
        let mut streams = seen.streams();
        let stream = streams.find(|(_, one)| one.fetch == Some(request));
        let end = stream.and_then(|(_, one)| one.end);
        let of_fetch = |object: &&Object| object.way == Way::Fetch { request };
        let found: Vec<(u64, u64)> = seen
            .objects
            .iter()
            .filter(of_fetch)
            .map(Object::location)
            .collect();
        match end {
            Some(StreamEnd::Fin) if found == locations => Progress::Met,
            Some(StreamEnd::Fin) => Progress::Broken(format!("the relay sent {found:?}")),
            Some(StreamEnd::Reset(code)) => Progress::Broken(format!(
                "the relay reset the stream with {code:#x} after {found:?}"
            )),
            None => Progress::Pending,
        }
    })
}

/// Returns whether something has happened that may still happen.
pub(crate) fn progress(has_happened: bool) -> Progress {
    if has_happened {
        Progress::Met
    } else {
        Progress::Pending
    }
}

/// Returns a message in short.
fn shown(message: &Message) -> String {
    let name = message.kind().name();
    if let Message::RequestError(error) = message {
        return format!("{name} {} ({:?})", refusal_name(error.code.0), error.reason);
    }
    if let Message::PublishDone(done) = message {
        return format!("{name} with {} ({:?})", done.code, done.reason);
    }
    name.to_owned()
}

fn refusal_name(code: u64) -> String {
    let code = weir_moqt::error::RequestErrorCode(code);
    match code.name() {
        Some(name) => format!("{name} ({:#x})", code.0),
        None => format!("{:#x}", code.0),
    }
}

/// What the scripts of one run need: names that no other run uses, and what SETUP says of the relay's URL.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// The first fields of all namespaces.
    pub(crate) fields: Vec<Vec<u8>>,
    /// Options of the usual SETUP, in ascending order.
    pub(crate) options: Vec<(u64, Value)>,
}

/// A script that is being written.
pub(crate) struct Script {
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
            steps: Vec::new(),
            space: space.clone(),
            track: Track {
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
        self.announce(publisher);
        self.join(subscriber);
        let track = self.track.clone();
        let subscription = self.request_with(subscriber, Request::Subscribe, track, parameters);
        let publication = self.taken();
        self.expect(
            publisher,
            request(publication, MessageKind::Subscribe, |_| true),
        );
        let accepted = wire::subscribe_ok(wire::ALIAS, &[], properties);
        self.write(publisher, publication, accepted);
        self.expect(subscriber, subscribed(subscription));
        Channel {
            publication,
            subscription,
        }
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

/// The relay's SETUP has arrived.
pub(crate) fn set_up() -> Check {
    Check::new("SETUP", |seen| {
        let mut streams = seen.streams();
        let is_setup = |message: &Message| matches!(message, Message::Setup(_));
        progress(streams.any(|(_, one)| one.messages.first().is_some_and(is_setup)))
    })
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
            Self::Datagram(client, data) => write!(formatter, "{client} sends {data:?}"),
            Self::Close(client, code) => write!(formatter, "{client} closes with {code:#x}"),
            Self::Behave(client, _) => write!(formatter, "{client} changes"),
            Self::Wait(time) => write!(formatter, "wait {time:?}"),
            Self::Expect(client, check) => write!(formatter, "{client} expects {}", check.text),
            Self::Never(client, check) => write!(formatter, "{client} never sees {}", check.text),
            Self::Then => formatter.write_str("then"),
            Self::Storm(storm) => write!(formatter, "{} times", storm.times),
        }
    }
}
