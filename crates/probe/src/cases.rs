//! The table of cases, by what they are about.

mod answers;
mod asked;
mod bounds;
mod contradictions;
mod data;
mod fetching;
mod filling;
mod filtering;
mod forwarding;
mod framing;
mod goaway;
mod lagging;
mod limits;
mod malformed;
mod mutations;
mod names;
mod namespaces;
mod notifying;
mod parameters;
mod publishing;
mod range_filters;
mod robustness;
mod session;
mod storms;
mod subscribing;
mod tokens;
mod track_status;
mod tracks;
mod upstream_fetches;
mod volume;
mod withholding;

use crate::{
    case::Case,
    edition::{Edition, Sections},
    script::{A, Script, closed},
};

/// Returns all cases of an edition, in the order of the table. With `messages`, the last case sends so many hostile
/// messages.
pub fn all(edition: Edition, messages: Option<u64>) -> Vec<Case> {
    let tables = [
        session::cases(),
        framing::cases(),
        names::cases(),
        parameters::cases(),
        range_filters::cases(),
        tokens::cases(),
        subscribing::cases(),
        filtering::cases(),
        track_status::cases(),
        publishing::cases(),
        answers::cases(),
        notifying::cases(),
        namespaces::cases(),
        tracks::cases(),
        fetching::cases(),
        upstream_fetches::cases(),
        filling::cases(),
        forwarding::cases(),
        data::cases(),
        malformed::cases(),
        goaway::cases(),
        robustness::cases(),
        mutations::cases(),
        contradictions::cases(),
        withholding::cases(),
        limits::cases(),
        bounds::cases(),
        lagging::cases(),
        storms::cases(),
        messages.map(volume::case).into_iter().collect(),
    ];
    let cases = tables.into_iter().flatten();
    cases.filter_map(|case| case.in_edition(edition)).collect()
}

/// A case in which a client sends `bytes` as the first bytes of a request stream, and the relay has to close the session.
fn closes(
    name: impl Into<String>,
    sections: Sections,
    requirement: impl Into<String>,
    codes: &'static [u64],
    bytes: impl Fn(&Script) -> Vec<u8> + Send + 'static,
) -> Case {
    Case::must(name, sections, requirement, move |script| {
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
