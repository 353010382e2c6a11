//! The plan of a run: all parameters, checked.

use std::time::Duration;

use anyhow::bail;
use weir_bench::{
    profile::{Mode, Pattern, Profile},
    publisher::PublishFlow,
    qperf::Wire,
    scenario::Roles,
    subscriber::SubscribeFlow,
};
use weir_report::service_level::ServiceLevel;

use super::{ClientTokens, RelayUrl, TrustChoice, remote::Fleet};
use crate::harness::{machine::Machine, own_relay::OwnRelay};

/// All parameters of a run, checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) profile_name: String,
    pub(crate) profile: Profile,
    pub(crate) relay: RelayChoice,
    /// Number of subscribers, in a run without meetings.
    pub(crate) subscribers: usize,
    /// Number of publishers, in a run without meetings, and the number of the first one.
    pub(crate) publishers: usize,
    pub(crate) first_publisher: u64,
    /// The meetings, in a run with meetings.
    pub(crate) meetings: Option<Meetings>,
    /// Part of the run that this process makes, in place of the profile's `mode`; another process makes the rest.
    pub(crate) role: Option<Mode>,
    /// Subscribers of other processes that publishers wait for.
    pub(crate) await_subscribers: Option<u64>,
    /// True if the clocks of publishers and subscribers are known to agree (decision 34).
    pub(crate) has_common_clock: bool,
    /// Encoding of the benchmark's messages.
    pub(crate) wire: Wire,
    /// Clients that connect per second; 0: all at once.
    pub(crate) ramp_per_second: u32,
    pub(crate) flow: PublishFlow,
    pub(crate) subscribe_flow: SubscribeFlow,
    /// Drafts that clients offer, by their ALPN, the preferred one first.
    pub(crate) drafts: Vec<&'static str>,
    /// Tokens of clients, in SETUP and requests.
    pub(crate) tokens: ClientTokens,
    pub(crate) level: ServiceLevel,
    pub(crate) seed: u64,
    pub(crate) cores: CoreChoice,
    pub(crate) no_wait: bool,
    pub(crate) trust: TrustChoice,
    /// URL of the relay's own metrics.
    pub(crate) metrics_url: Option<String>,
    /// Start of the data phase that loss and latency leave out.
    pub(crate) unjudged: Duration,
    /// Whether the run ends as soon as its service level is broken for certain.
    pub(crate) ends_early: bool,
    /// Whether the same load is repeated on a null relay afterwards.
    pub(crate) calibrate: bool,
    /// Share of time that the generator's threads waste on purpose, in per cent.
    pub(crate) waste_percent: u32,
    pub(crate) command_line: String,
    /// Agents on other hosts that make the load; `None`: this process makes it.
    pub(crate) fleet: Option<Fleet>,
}

/// Groups of clients. Each client publishes, and subscribes to all other clients of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meetings {
    /// The number of the first one in the run.
    pub(crate) first: u64,
    pub(crate) count: usize,
    pub(crate) clients_per_meeting: usize,
}

impl Plan {
    /// Returns the part of the run that this process makes. Clients of meetings make both sides.
    pub(crate) fn part(&self) -> Mode {
        match self.meetings {
            Some(_) => self.role.unwrap_or(Mode::Both),
            None => Roles { given: self.role }.part(&self.profile),
        }
    }

    /// Returns the first track of which this process makes one side only, if there is one.
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

    /// Checks that this process makes both sides of the run, as searches and comparisons require.
    pub(crate) fn check_both_sides(&self) -> anyhow::Result<()> {
        if let Some(one_sided) = self.one_sided() {
            bail!(
                "{}: a search or comparison needs publishers and subscribers in one process; set mode = 3, or use --role \
                 both",
                one_sided.named
            );
        }
        Ok(())
    }

    /// Returns an error for flags of the other side of a run, and for publishers without subscribers.
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

    /// Returns why this load cannot be calibrated on a null relay; `None` if it can.
    pub(crate) fn calibration_problem(&self) -> Option<String> {
        if self.fleet.is_some() {
            return Some(
                "--agents: a null relay would run on this host, and prove nothing of the agents"
                    .to_owned(),
            );
        }
        let fetched = self.profile.tracks.iter().find_map(|track| {
            let is_fetched = track.pattern == Pattern::Fetch;
            let joins = track.joining_fetch.map(|_| "joining_fetch");
            let key = is_fetched.then_some("pattern = fetch").or(joins)?;
            Some((&track.section, key))
        });
        if let Some((section, key)) = fetched {
            return Some(format!(
                "[{section}]: {key}: a null relay has no cache to fetch from"
            ));
        }
        let one_sided = self.one_sided().filter(|one| one.publishes)?;
        Some(format!(
            "{}: a null relay would have no subscribers; calibrate in the process of the subscribers",
            one_sided.named
        ))
    }

    /// Returns the number of publishers of this process.
    pub(crate) fn publishers_total(&self) -> usize {
        match self.meetings {
            Some(_) => self.subscribers_total(),
            None => self.publishers,
        }
    }

    /// Returns the sockets and the threads of this process's subscribers.
    pub(crate) fn sockets_and_threads(&self) -> (usize, usize) {
        let (audience, subscribers) = (&self.profile.audience, self.subscribers_total());
        if let Some(fleet) = &self.fleet {
            let threads = fleet.subscriber_threads(audience, subscribers);
            let sockets = if audience.has_own_sockets {
                subscribers.max(1)
            } else {
                threads
            };
            return (sockets, threads);
        }
        let clients = subscribers / self.meetings.map_or(1, |one| one.clients_per_meeting);
        let threads = audience.threads_of(clients, self.cores.subscribers.len());
        let sockets = if audience.has_own_sockets {
            subscribers.max(1)
        } else {
            threads
        };
        (sockets, threads)
    }

    /// Returns the number of subscribers that this process and its agents measure: none if it only publishes.
    pub(crate) fn subscribers_measured(&self) -> usize {
        if self.part() == Mode::Publisher {
            0
        } else {
            self.subscribers_total()
        }
    }

    /// Returns the number of subscribers in all processes.
    pub(crate) fn subscribers_total(&self) -> usize {
        self.meetings.map_or(self.subscribers, |meetings| {
            meetings.count.saturating_mul(meetings.clients_per_meeting)
        })
    }
}

/// A track of which this process makes one side only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OneSided {
    /// Whether this process publishes the track.
    pub(crate) publishes: bool,
    /// The flag, or the section and key, that determines it.
    pub(crate) named: String,
}

/// The relay to measure.
#[derive(Clone, Debug)]
pub(crate) enum RelayChoice {
    /// weir's own relay, started for the run.
    Own(OwnRelay),
    /// A relay that runs already.
    At {
        /// URL of the relay.
        url: RelayUrl,
        /// Process of the relay, if --relay-pid or --relay-process names it.
        pid: Option<u32>,
        /// Whether --relay-process named it.
        by_name: bool,
    },
}

impl RelayChoice {
    /// Whether the CPU time of its process is measured.
    pub(crate) fn is_watched(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::At { pid, .. } => pid.is_some(),
        }
    }
}

/// The cores of relay, publishers and subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreChoice {
    /// Cores of the relay; empty if unknown.
    pub(crate) relay: Vec<usize>,
    /// Cores of the publishers, one for each of their threads. As with all lists here, several roles may share a core.
    pub(crate) publishers: Vec<usize>,
    /// Cores of the subscribers.
    pub(crate) subscribers: Vec<usize>,
}

impl CoreChoice {
    /// Returns the core of a null relay: the relay's, or a free one.
    pub(super) fn for_null_relay(&self, machine: &Machine) -> Option<usize> {
        let is_free =
            |core: &&usize| !self.publishers.contains(core) && !self.subscribers.contains(core);
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
