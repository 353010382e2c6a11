//! The plan of a run: everything that it is made from, checked.

use std::time::Duration;

use anyhow::bail;
use weir_bench::{
    profile::{Mode, Pattern, Profile},
    publisher::PublishFlow,
    qperf::Wire,
    scenario::Roles,
    subscriber::SubscribeFlow,
};
use weir_moqt::token::Token;
use weir_report::service_level::ServiceLevel;

use super::{RelayUrl, TrustChoice};
use crate::harness::{machine::Machine, own_relay::OwnRelay};

/// Everything that a run is made from, checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) profile_name: String,
    pub(crate) profile: Profile,
    pub(crate) relay: RelayChoice,
    /// Subscribers of a fan-out.
    pub(crate) subscribers: usize,
    /// Publishers of a fan-out, and the number of the first one in the run.
    pub(crate) publishers: usize,
    pub(crate) first_publisher: u64,
    /// Meetings instead of a fan-out.
    pub(crate) meetings: Option<Meetings>,
    /// What is done here of a fan-out, whatever the profile says; the rest is another process's to do.
    pub(crate) role: Option<Mode>,
    /// Subscribers of other processes that publishers wait for.
    pub(crate) await_subscribers: Option<u64>,
    /// Whether the clocks of publishers and subscribers are known to agree (decision 34).
    pub(crate) has_common_clock: bool,
    /// How the benchmark's messages look.
    pub(crate) wire: Wire,
    /// Clients started per second; all at once if zero.
    pub(crate) ramp_per_second: u32,
    pub(crate) flow: PublishFlow,
    pub(crate) subscribe_flow: SubscribeFlow,
    /// Drafts that clients offer, by their ALPN, the preferred one first.
    pub(crate) drafts: Vec<&'static str>,
    /// What every client shows in its SETUP and with its requests.
    pub(crate) tokens: Vec<Token>,
    pub(crate) level: ServiceLevel,
    pub(crate) seed: u64,
    pub(crate) cores: CoreChoice,
    /// One socket for each subscriber instead of one for all.
    pub(crate) socket_per_subscriber: bool,
    pub(crate) no_wait: bool,
    pub(crate) trust: TrustChoice,
    /// Where the relay's own metrics are.
    pub(crate) metrics_url: Option<String>,
    /// How much of the beginning of the data phase is not judged by loss and latency.
    pub(crate) unjudged: Duration,
    /// Whether the run ends as soon as its service level cannot hold any more.
    pub(crate) ends_early: bool,
    /// Whether the same load is put on a null relay afterwards.
    pub(crate) calibrate: bool,
    /// Share of their time that the generator's threads waste on purpose, in per cent.
    pub(crate) waste_percent: u32,
    pub(crate) command_line: String,
}

/// Groups of clients that each publish, and subscribe to all others of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meetings {
    /// The number of the first one in the run.
    pub(crate) first: u64,
    pub(crate) count: usize,
    pub(crate) clients_per_meeting: usize,
}

impl Plan {
    /// What is done here; the rest is another process's. Clients of meetings do both.
    pub(crate) fn part(&self) -> Mode {
        match self.meetings {
            Some(_) => self.role.unwrap_or(Mode::Both),
            None => Roles { given: self.role }.part(&self.profile),
        }
    }

    /// The first thing of which only one side is done here, as it stands in the command line or the profile.
    pub(crate) fn one_sided(&self) -> Option<OneSided> {
        if self.meetings.is_some() && self.role.is_none() {
            return None;
        }
        let roles = Roles { given: self.role };
        self.profile.tracks.iter().find_map(|track| {
            let publishes = roles.publishes(track.mode);
            let is_both = publishes && roles.subscribes(track.mode);
            (!is_both).then(|| OneSided {
                publishes,
                named: match (self.role, publishes) {
                    (Some(_), true) => "--role publish".to_owned(),
                    (Some(_), false) => "--role subscribe".to_owned(),
                    (None, true) => format!("[{}]: mode = 1", track.section),
                    (None, false) => format!("[{}]: mode = 2", track.section),
                },
            })
        })
    }

    /// Refuses a plan of which another process would do a part, where every run is one of its own.
    pub(crate) fn check_both_sides(&self) -> anyhow::Result<()> {
        if let Some(one_sided) = self.one_sided() {
            bail!(
                "{}: each run is one of its own, whose publishers and subscribers are in one process; say --role both",
                one_sided.named
            );
        }
        Ok(())
    }

    /// Refuses what one side of a run cannot do alone, or has nobody for.
    pub(crate) fn check_sides(&self) -> anyhow::Result<()> {
        let part = self.part();
        if self.await_subscribers.is_some() && part != Mode::Publisher {
            bail!(
                "--await-subscribers: only a process that publishes and has no subscribers waits for them; say --role publish"
            );
        }
        if part == Mode::Both && self.meetings.is_none() && self.publishers > self.subscribers {
            bail!(
                "--publishers: {} publishers need a subscriber each, found --subscribers {}",
                self.publishers,
                self.subscribers
            );
        }
        Ok(())
    }

    /// Why this load says nothing of the generator if a null relay is put under it; none if it does.
    pub(crate) fn calibration_problem(&self) -> Option<String> {
        let mut tracks = self.profile.tracks.iter();
        if let Some(track) = tracks.find(|track| track.pattern == Pattern::Fetch) {
            return Some(format!(
                "[{}]: pattern = fetch: a null relay keeps nothing that could be fetched",
                track.section
            ));
        }
        let one_sided = self.one_sided().filter(|one| one.publishes)?;
        Some(format!(
            "{}: a null relay would have nobody to forward to; calibrate where the subscribers are",
            one_sided.named
        ))
    }

    /// Publishers in all, wherever they are.
    pub(crate) fn publishers_total(&self) -> usize {
        match self.meetings {
            Some(_) => self.subscribers_total(),
            None => self.publishers,
        }
    }

    /// Subscribers in all, wherever they are.
    pub(crate) fn subscribers_total(&self) -> usize {
        self.meetings.map_or(self.subscribers, |meetings| {
            meetings.count.saturating_mul(meetings.clients_per_meeting)
        })
    }
}

/// What leaves the other side of a track to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OneSided {
    /// Whether what is done here is to publish.
    pub(crate) publishes: bool,
    /// The flag, or section and key, that says so.
    pub(crate) named: String,
}

/// Which relay is measured.
#[derive(Clone, Debug)]
pub(crate) enum RelayChoice {
    /// Ours, started for the run.
    Own(OwnRelay),
    /// One that runs already.
    At {
        /// Where it is reached.
        url: RelayUrl,
        /// Its process, if it is on this machine and is to be watched.
        pid: Option<u32>,
        /// Whether that was found by the name of its program.
        by_name: bool,
    },
}

impl RelayChoice {
    /// Whether the CPU time of its process is seen.
    pub(crate) fn is_watched(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::At { pid, .. } => pid.is_some(),
        }
    }
}

/// Which thread runs on which core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreChoice {
    /// Those of the relay; empty if they are not known.
    pub(crate) relay: Vec<usize>,
    pub(crate) publishers: Option<usize>,
    pub(crate) subscribers: Option<usize>,
}

impl CoreChoice {
    /// The core that a null relay stands in on for the relay.
    pub(super) fn for_null_relay(&self, machine: &Machine) -> Option<usize> {
        let is_free =
            |core: &&usize| Some(**core) != self.publishers && Some(**core) != self.subscribers;
        let mut cores = machine.cores.iter();
        let free = cores.find(is_free).or_else(|| machine.cores.first());
        self.relay.first().or(free).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_of_our_own_is_seen() {
        assert!(RelayChoice::Own(OwnRelay::Null { core: None }).is_watched());
        let at = |pid| RelayChoice::At {
            url: "moqt://127.0.0.1:4443".parse().unwrap(),
            pid,
            by_name: false,
        };
        assert!(at(Some(1)).is_watched() && !at(None).is_watched());
    }
}
