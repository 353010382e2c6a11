//! Many hostile messages from a seed.

use super::robustness::robust;
use crate::{
    case::{Case, Kind},
    hostile,
    script::{Step, Storm},
};

/// Returns the case that sends so many messages, from six sessions.
pub(super) fn case(messages: u64) -> Case {
    let case = robust("volume.hostile-messages", move |script| {
        let track = script.track.below("volume");
        script.step(Step::Storm(Storm {
            times: messages,
            per_second: PER_SECOND,
            counts_messages: true,
            act: Box::new(move |number, random| hostile::act(number, random, &track)),
        }));
        script.wait(1000);
    });
    case.kind(Kind::Volume)
}

/// Messages per second.
const PER_SECOND: u64 = 20_000;
