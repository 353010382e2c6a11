//! Rings of upstream relays: how a relay notices that what it asks an upstream relay comes back to itself.
//!
//! The relay sends TRACK_STATUS for a track with a name of its own over each link, when the link is established and from
//! time to time. Every relay passes such a request on to its own upstream relay, whatever its implementation; weir's relays do so
//! whatever the rights of the link, since rings are to be found with every token. If the request returns, this relay answers
//! it with a location that only it knows, and so recognises the answer.

use weir_moqt::{
    location::Location,
    message::RequestOk,
    name::{FullTrackName, Namespace, TrackName},
    parameter::Parameters,
};

/// The track that this relay asks upstream relays about, and its answer.
#[derive(Debug)]
pub(super) struct Probe {
    track: FullTrackName,
    answer: Location,
}

impl Probe {
    /// Returns the probe of a process with this random number.
    pub(super) fn new(identity: u64) -> Self {
        let (public, secret) = (identity >> 32, identity & u64::from(u32::MAX));
        let namespace = Namespace::new([NAMESPACE]).unwrap_or(Namespace::EMPTY);
        let name = TrackName::new(format!("{public:08x}").into_bytes()).unwrap_or_default();
        Self {
            track: FullTrackName { namespace, name },
            answer: Location::new(secret, 0),
        }
    }

    /// Returns the track that is asked about.
    pub(super) fn track(&self) -> &FullTrackName {
        &self.track
    }

    /// Returns the answer to a TRACK_STATUS request, if the request is the relay's own.
    pub(super) fn answer(&self, track: &FullTrackName) -> Option<RequestOk> {
        (*track == self.track).then(|| RequestOk {
            parameters: Parameters {
                largest_object: Some(self.answer),
                ..Parameters::default()
            },
            ..RequestOk::default()
        })
    }

    /// Returns whether an answer is the relay's own.
    pub(super) fn is_own(&self, ok: &RequestOk) -> bool {
        ok.parameters.largest_object == Some(self.answer)
    }
}

/// Returns whether a track is one that relays ask about to find rings. Nobody publishes it.
pub(super) fn is_probe(track: &FullTrackName) -> bool {
    track.namespace.fields().eq([NAMESPACE.as_bytes()])
}

/// The namespace of probes.
const NAMESPACE: &str = ".weir-ring";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_knows_its_own_question_and_answer_and_no_other() {
        let one = Probe::new(0x0123_4567_89ab_cdef);
        let other = Probe::new(0x0123_4568_89ab_cdee);
        let answer = one.answer(one.track()).unwrap();
        assert!(one.is_own(&answer) && !other.is_own(&answer));
        assert!(other.answer(one.track()).is_none());
        assert!(!one.is_own(&RequestOk::default()));
        assert!(is_probe(one.track()) && is_probe(other.track()));
        let mut longer = one.track().clone();
        longer.namespace = Namespace::new([NAMESPACE, "more"]).unwrap();
        assert!(!is_probe(&longer));
        longer.namespace = Namespace::EMPTY;
        assert!(!is_probe(&longer));
        assert_eq!(one.track().to_string(), ".2eweir.2dring--01234567");
    }
}
