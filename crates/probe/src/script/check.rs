//! What a script expects: checks of what a client has seen.

use weir_moqt::message::{Message, MessageKind};

use crate::seen::{Ended, Incoming, Object, Seen, Slot, StreamEnd, Way, code_name};

/// What a check says of what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// What is expected has happened.
    Met,
    /// What is expected may still happen.
    Pending,
    /// What is expected cannot happen any more, for this reason.
    Broken(String),
}

/// Something that the relay has to do, or must not do.
pub(crate) struct Check {
    /// What the relay has to do, in words such as "REQUEST_OK".
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
        let is_over = |incoming: &Incoming| incoming.end.is_some() || incoming.stopped.is_some();
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

/// The relay's SETUP has arrived.
pub(crate) fn set_up() -> Check {
    Check::new("SETUP", |seen| progress(seen.setup().is_some()))
}
