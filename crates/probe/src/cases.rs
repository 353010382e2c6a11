//! The table of cases, by what they are about.

mod data;
mod fetching;
mod forwarding;
mod framing;
mod goaway;
mod limits;
mod malformed;
mod names;
mod namespaces;
mod parameters;
mod publishing;
mod robustness;
mod session;
mod storms;
mod subscribing;
mod tokens;
mod track_status;
mod volume;

use crate::{
    case::Case,
    script::{A, Script, closed},
};

/// Returns all cases, in the order of the table. With `messages`, the last case sends so many hostile messages.
pub fn all(messages: Option<u64>) -> Vec<Case> {
    let tables = [
        session::cases(),
        framing::cases(),
        names::cases(),
        parameters::cases(),
        tokens::cases(),
        subscribing::cases(),
        track_status::cases(),
        publishing::cases(),
        namespaces::cases(),
        fetching::cases(),
        forwarding::cases(),
        data::cases(),
        malformed::cases(),
        goaway::cases(),
        robustness::cases(),
        limits::cases(),
        storms::cases(),
        messages.map(volume::case).into_iter().collect(),
    ];
    tables.into_iter().flatten().collect()
}

/// A case in which a client sends `bytes` as the first bytes of a request stream, and the relay has to close the session.
fn closes(
    name: impl Into<String>,
    section: &'static str,
    requirement: impl Into<String>,
    codes: &'static [u64],
    bytes: impl Fn(&Script) -> Vec<u8> + Send + 'static,
) -> Case {
    Case::must(name, section, requirement, move |script| {
        script.join(A);
        script.then();
        let slot = script.bi();
        let bytes = bytes(script);
        script.write(A, slot, bytes);
        script.expect(A, closed(codes));
    })
}

/// The code that most violations close the session with.
const VIOLATION: &[u64] = &[crate::wire::close::PROTOCOL_VIOLATION];
