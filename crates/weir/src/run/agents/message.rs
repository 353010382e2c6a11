//! What controller and agents say to each other.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use weir_bench::{
    measured::{PublishersMeasured, SubscribersMeasured},
    metrics::SentTotals,
};
use weir_moqt::name::FullTrackName;
use weir_net::Delays;
use weir_report::process::Usage;

use super::{
    Assignment,
    threads::{SecondSeen, Seen},
};

/// An order of the controller.
#[derive(Clone, Debug)]
pub(in crate::run) enum Order {
    /// Connect the publishers of this share, and offer their tracks.
    Prepare(Box<Assignment>),
    /// Let the subscribers connect.
    AdmitSubscribers,
    /// Begin the schedules.
    Release,
    /// Say what was used so far: a [`Said::Sample`] with this number.
    Sample(u32),
    /// End the run, and say what the publishers measured. Clients that are not done close their connections.
    End,
    /// Say what the subscribers measured, compared with how much was sent of each track.
    Compare(BTreeMap<FullTrackName, SentTotals>),
}

/// What an agent says.
#[derive(Clone, Debug)]
pub(in crate::run) enum Said {
    /// The progress of its clients.
    State(State),
    /// The figures of a second of the run, over all its subscribers.
    Second(Box<SecondSeen>),
    /// What was used so far, as an order asked for.
    Sample(u32, Sample),
    /// What its publishers measured.
    Published(Box<PublishersMeasured>),
    /// What its subscribers measured.
    Received(Box<SubscribersMeasured>),
}

/// The progress of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::run) struct State {
    /// One for each thread.
    pub(in crate::run) threads: Vec<ThreadState>,
    /// Packets received so far.
    pub(in crate::run) packets_received: u64,
}

/// The progress of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::run) struct ThreadState {
    /// The progress of its clients.
    pub(in crate::run) seen: Seen,
    /// Whether all of its clients are done.
    pub(in crate::run) is_done: bool,
}

/// What an agent has used at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::run) struct Sample {
    /// One for each thread, in the order of [`State::threads`].
    pub(in crate::run) threads: Vec<ThreadSample>,
    /// Objects received so far.
    pub(in crate::run) objects: u64,
    /// What the agent's process has used.
    pub(in crate::run) process: Option<Usage>,
    /// What the relay has used, if the agent watches its process.
    pub(in crate::run) relay: Option<Usage>,
}

/// What one thread has used at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::run) struct ThreadSample {
    /// The name of its role.
    pub(in crate::run) name: String,
    /// The core that it is pinned to, if it is.
    pub(in crate::run) core: Option<usize>,
    /// CPU time.
    pub(in crate::run) cpu: Duration,
    /// How long turns and late timers delayed other work.
    #[serde(with = "PlainDelays")]
    pub(in crate::run) lag: Delays,
    /// Packets that the kernel dropped because the receive buffer was full.
    pub(in crate::run) receive_dropped: u64,
}

/// The plain data of [`Delays`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Delays")]
struct PlainDelays {
    buckets: Vec<u64>,
    max: Duration,
    sum: Duration,
}
