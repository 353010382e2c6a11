//! The flags of `weir bench`, and the plan of a run that follows from them.

mod cores;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, Command, FromArgMatches as _, ValueEnum, builder::Resettable};
use serde::Deserialize;
use url::Url;
use weir_bench::{
    limits::PROFILE_BYTES_MAX,
    observable::Observable,
    profile::{Mode, Profile},
    publisher::PublishFlow,
    qperf::Wire,
    scenario::Roles,
    subscriber::SubscribeFlow,
};

use weir_report::service_level::ServiceLevel;

use super::{
    ClientTokens, CoreChoice, DraftArguments, Meetings, Plan, RelayChoice, RelayUrl,
    TrustArguments, TrustChoice, remote::Fleet, token,
};
use crate::{
    event_loop,
    file_kind::{Kind, explained},
    harness::{machine::Machine, process},
    numbers::{core, whole},
    output::command_line,
};

// The flags of `weir bench`, which files of comparisons give too. No doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, Args)]
#[command(mut_group("TrustArguments", |group| group.requires("relay")))]
pub(crate) struct RunOptions {
    /// Relay to measure: moqt://HOST:PORT[/PATH] for raw QUIC, https://HOST:PORT[/PATH] for WebTransport; several with
    /// commas between: clients that lose one use the next [default: a relay of weir's own, started for the run]
    #[arg(long, value_name = "URL", env = "WEIR_RELAY")]
    pub(crate) relay: Option<String>,
    /// Process ID of the relay, if it runs on this machine: adds the relay's CPU and memory to the report
    #[arg(long, value_name = "PID", requires = "relay", value_parser = whole(1..=u32::MAX))]
    pub(crate) relay_pid: Option<u32>,
    /// File name of the relay's program, instead of --relay-pid; exactly one process of that name must run
    #[arg(
        long,
        value_name = "NAME",
        requires = "relay",
        conflicts_with = "relay_pid"
    )]
    pub(crate) relay_process: Option<String>,
    /// Prometheus metrics of the relay, http://HOST:PORT/PATH: adds the growth of its counters to the report
    #[arg(long, value_name = "URL", requires = "relay", value_parser = metrics_url)]
    pub(crate) relay_metrics: Option<String>,
    /// Number of subscribers, 1 to 50000
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = whole(1..=SUBSCRIBERS_MAX))]
    pub(crate) subscribers: usize,
    /// Number of publishers, 1 to 5000. Each publishes all tracks of the profile under its own number; each subscriber
    /// receives those of one publisher, in turn
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "meetings", value_parser = whole(1..=PUBLISHERS_MAX))]
    pub(crate) publishers: usize,
    /// Number of the first publisher, which stands for {} in the profile's names; for runs of several processes
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "meetings", value_parser = whole(0..=u32::MAX))]
    pub(crate) instance: u32,
    /// Number of meetings, instead of one publisher with subscribers. Every client publishes all tracks of the profile,
    /// and subscribes to the tracks of the other clients in its meeting. At most 50000 clients in all
    #[arg(long, value_name = "COUNT", conflicts_with = "subscribers", value_parser = whole(1..=SUBSCRIBERS_MAX))]
    pub(crate) meetings: Option<usize>,
    /// Clients in each meeting, 2 or more [default: 5]
    #[arg(long, value_name = "COUNT", value_parser = whole(1..=SUBSCRIBERS_MAX))]
    pub(crate) clients_per_meeting: Option<usize>,
    /// Number of the first meeting; for runs of several processes
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "meetings", value_parser = whole(0..=u32::MAX))]
    pub(crate) first_meeting: u32,
    /// Part of the run that this process takes, in place of the profile's `mode`; start another process with the same
    /// --seed for the other part
    #[arg(long, value_enum, value_name = "ROLE", requires = "relay")]
    pub(crate) role: Option<Role>,
    /// With --role publish: begin when this many subscribers of other processes have subscribed. They announce themselves in
    /// weir-bench/ready, where their tokens must permit them to publish
    #[arg(long, value_name = "COUNT", requires = "role", conflicts_with = "no_wait", value_parser = whole(1..=u64::MAX))]
    pub(crate) await_subscribers: Option<u64>,
    /// Judge latency although publishers are in another process: the clocks of both hosts are synchronised
    #[arg(long, requires = "role")]
    pub(crate) synchronized_clocks: bool,
    /// Clients that connect per second; 0: all at once [default: `joins_per_second` of the profile, or 200]
    #[arg(long, value_name = "PER_SECOND", value_parser = whole(0..=u32::MAX))]
    pub(crate) ramp: Option<u32>,
    /// Seconds that every track sends, 1 to 86400 [default: the profile's]
    #[arg(long, value_name = "SECONDS", value_parser = whole(1..=86_400_u64))]
    pub(crate) seconds: Option<u64>,
    /// How publishers offer their tracks [default: that of --preset, or namespace]
    #[arg(long, value_enum, value_name = "FLOW")]
    pub(crate) publish_flow: Option<Flow>,
    /// How subscribers find their tracks
    #[arg(long, value_enum, default_value_t = Discovery::Subscribe, value_name = "FLOW")]
    pub(crate) subscribe_flow: Discovery,
    /// Encoding of the benchmark's messages
    #[arg(long, value_enum, default_value_t = WireName::Draft, value_name = "FORM")]
    pub(crate) wire: WireName,
    /// Token that every client sends in SETUP and in its requests, at most 16384 bytes: @FILE, or the token itself,
    /// which other users of this machine can then see
    #[arg(long, value_name = "TOKEN", env = "WEIR_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Tokens of subscribers, or of all clients of meetings, in place of --token: a file with one in each line. Client N
    /// takes line N, and the first again after the last. Publishers keep --token
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// Sign a token for each client, which permits all namespaces for a day, with this private key, the FILE.pem of `weir
    /// token key`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["token", "tokens"])]
    pub(crate) sign_tokens: Option<PathBuf>,
    /// Start to send as soon as publishers are connected, without waiting for subscribers
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Service level: clauses METRIC OPERATOR VALUE with commas between. Metrics: loss, late, failed (counts, or shares
    /// such as 0.1%), p50, p90, p99, p99.9, max (latency, such as 100ms), cpu (such as 70%). Operators: =, <, <=, >, >=
    /// [default: loss=0,failed=0,p99<100ms, without what the profile cannot measure]
    #[arg(long, value_name = "CLAUSES")]
    pub(crate) slo: Option<String>,
    #[command(flatten)]
    pub(crate) trust: TrustArguments,
    #[command(flatten)]
    pub(crate) draft: DraftArguments,
    /// Allow a relay outside this machine and private networks
    #[arg(long, requires = "relay")]
    pub(crate) allow_public: bool,
    /// Repeat the load on a null relay afterwards, as proof that the load generator was not the limit
    #[arg(long)]
    pub(crate) calibrate: bool,
    /// Share of each generator thread's time to waste, in per cent, 0 to 100: shows that the report notices a slow
    /// generator
    #[arg(long, value_name = "PER_CENT", default_value_t = 0, value_parser = whole(0..=100_u32))]
    pub(crate) waste_cpu: u32,
    /// Threads of weir's own relay, 1 to 64
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "relay", value_parser = whole(1..=64_u16))]
    pub(crate) relay_threads: u16,
    /// Cores of weir's own relay, one for each of its threads, with commas between. With --relay: the cores that the
    /// relay runs on, which the load generator avoids [default: the first cores]
    #[arg(
        long,
        alias = "relay-core",
        value_name = "CORES",
        value_delimiter = ',',
        value_parser = core
    )]
    pub(crate) relay_cores: Vec<usize>,
    /// Cores of the publishers, with commas between; they have a thread on each, if there are enough of them [default: all
    /// that the relay does not use]
    #[arg(
        long,
        alias = "publishers-core",
        value_name = "CORES",
        value_delimiter = ',',
        value_parser = core
    )]
    pub(crate) publishers_cores: Vec<usize>,
    /// Cores of the subscribers, with commas between; they have a thread on each, unless `threads` in audience sets
    /// another number [default: all that the relay does not use]
    #[arg(
        long,
        alias = "subscribers-core",
        value_name = "CORES",
        value_delimiter = ',',
        value_parser = core
    )]
    pub(crate) subscribers_cores: Vec<usize>,
    /// Settings of the subscribers in place of those in the profile's section audience: KEY=VALUE with commas between,
    /// such as sockets=own,threads=50,acknowledgements=immediate
    #[arg(long, value_name = "SETTINGS")]
    pub(crate) audience: Option<String>,
    /// Give each subscriber a UDP socket of its own, as real clients have; the load generator then needs about three times
    /// the CPU. The same as --audience sockets=own
    #[arg(long)]
    pub(crate) socket_per_subscriber: bool,
    /// Seed of the payloads and ID of the run, a 64-bit number; all processes of one run need the same [default: random]
    #[arg(long, value_name = "NUMBER", value_parser = whole(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Flow {
    /// `PUBLISH_NAMESPACE`, and wait for SUBSCRIBE
    Namespace,
    /// PUBLISH for each track
    Publish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Discovery {
    /// SUBSCRIBE for each track by its name
    Subscribe,
    /// `SUBSCRIBE_NAMESPACE`, then SUBSCRIBE in the namespaces that the relay announces
    Namespace,
    /// `SUBSCRIBE_TRACKS`: the relay sends PUBLISH for each track; needs `--publish-flow publish`
    Tracks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WireName {
    /// Messages of draft-evens-moq-bench-00
    Draft,
    /// Messages of the older tool qperf: one large first object in the whole run, instead of one in each group
    Qperf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Publish only (mode 1)
    Publish,
    /// Subscribe only (mode 2)
    Subscribe,
    /// Both (mode 3)
    Both,
}

impl RunOptions {
    /// Returns the flags that `arguments` in a comparison's file gives.
    pub(crate) fn from_arguments(arguments: &[String]) -> anyhow::Result<Self> {
        let command = Self::augment_args(Command::new("weir bench").no_binary_name(true));
        // Another key of the file names the relay.
        let command = command
            .mut_args(|argument| argument.requires(Resettable::Reset))
            .mut_group("TrustArguments", |group| group.requires(Resettable::Reset));
        let matches = command.try_get_matches_from(arguments);
        let matches = matches.map_err(|error| anyhow::anyhow!("{}", error.render()))?;
        Ok(Self::from_arg_matches(&matches)?)
    }

    /// Returns the plan of a run of the profile in `file`.
    ///
    /// # Errors
    /// Anything that is wrong with flags or profile: nothing is started before all of it is checked.
    pub(crate) fn plan(
        &self,
        file: &Path,
        machine: &Machine,
        fleet: Option<&Fleet>,
    ) -> anyhow::Result<Plan> {
        let name = file.display().to_string();
        let profile = self.profile(file, &name)?;
        self.check()?;
        let meetings = self.meetings()?;
        if meetings.is_some() {
            check_audience_of_meetings(&name, &profile)?;
        }
        let relay = self.relay(machine)?;
        if fleet.is_some() {
            self.check_fleet()?;
        }
        let (role, wire) = (self.role.map(Role::mode), self.wire.wire());
        let roles = Roles { given: role };
        let has_common_clock = self.synchronized_clocks || roles.share_a_clock(&profile);
        let level = self.level(Observable {
            profile: &profile,
            wire,
            roles,
            is_meeting: meetings.is_some(),
            has_relay_cpu: relay.is_watched() || fleet.is_some_and(Fleet::watches),
            has_common_clock,
        })?;
        let ramp = self.ramp.or(profile.audience.joins_per_second);
        let plan = Plan {
            level,
            cores: self.cores(machine, &relay, fleet)?,
            trust: match &relay {
                // weir's own relay makes a certificate for this run only.
                RelayChoice::Own(_) => TrustChoice::Anyone,
                RelayChoice::At { .. } => self.trust.choice()?,
            },
            profile_name: name,
            profile,
            relay,
            subscribers: self.subscribers,
            meetings,
            publishers: self.publishers,
            first_publisher: u64::from(self.instance),
            role,
            await_subscribers: self.await_subscribers,
            has_common_clock,
            ramp_per_second: ramp.unwrap_or(JOINS_PER_SECOND),
            flow: self.publish_flow().flow(),
            subscribe_flow: self.subscribe_flow.flow(),
            drafts: self.draft.protocols(),
            tokens: self.tokens()?,
            wire,
            seed: self.seed.map_or_else(random_seed, Ok)?,
            no_wait: self.no_wait,
            metrics_url: self.relay_metrics.clone(),
            unjudged: Duration::ZERO,
            ends_early: false,
            calibrate: self.calibrate,
            waste_percent: self.waste_cpu,
            command_line: command_line(),
            fleet: fleet.cloned(),
        };
        self.check_plan(&plan)?;
        Ok(plan)
    }

    fn publish_flow(&self) -> Flow {
        let flow = self.publish_flow.or_else(|| self.draft.publish_flow());
        flow.unwrap_or(Flow::Namespace)
    }

    fn profile(&self, file: &Path, name: &str) -> anyhow::Result<Profile> {
        let mut profile = read_profile(file, name)?;
        if let Some(seconds) = self.seconds {
            for track in &mut profile.tracks {
                track.duration = Duration::from_secs(seconds);
                track.has_total_transmit_time = false;
            }
        }
        profile.audience.has_own_sockets |= self.socket_per_subscriber;
        if let Some(settings) = &self.audience {
            profile.audience = profile.audience.with("--audience", settings)?;
        }
        Ok(profile)
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.subscribers == 0 || self.subscribers > SUBSCRIBERS_MAX {
            bail!(
                "--subscribers: expected 1 to {SUBSCRIBERS_MAX}, not {}",
                self.subscribers
            );
        }
        if self.publish_flow() == Flow::Namespace && self.subscribe_flow == Discovery::Tracks {
            bail!(
                "--subscribe-flow tracks: SUBSCRIBE_TRACKS finds only tracks that are offered by PUBLISH; add --publish-flow \
                 publish"
            );
        }
        Ok(())
    }

    fn check_plan(&self, plan: &Plan) -> anyhow::Result<()> {
        if plan.fleet.is_some() {
            plan.check_both_sides()?;
        }
        if let Some(problem) = plan.calibration_problem().filter(|_| self.calibrate) {
            bail!("--calibrate: {problem}");
        }
        plan.check_sides()
    }

    /// Returns the service level of the run, each of whose clauses it can judge.
    fn level(&self, observable: Observable<'_>) -> anyhow::Result<ServiceLevel> {
        let level = observable.level(self.slo.as_deref());
        match &self.slo {
            Some(_) => level.context("--slo"),
            None => Ok(level?),
        }
    }

    /// Returns the cores of the run. Agents choose those of their load themselves.
    fn cores(
        &self,
        machine: &Machine,
        relay: &RelayChoice,
        fleet: Option<&Fleet>,
    ) -> anyhow::Result<CoreChoice> {
        if fleet.is_none() {
            return cores::choose(self, machine, relay);
        }
        Ok(CoreChoice {
            relay: self.relay_cores.clone(),
            publishers: Vec::new(),
            subscribers: Vec::new(),
        })
    }

    /// Refuses flags that say what the agents of a fleet decide.
    fn check_fleet(&self) -> anyhow::Result<()> {
        if self.relay.is_none() {
            bail!("--agents: needs --relay URL, a relay that the agents' hosts can reach");
        }
        for (flag, is_given) in [
            ("--role", self.role.is_some()),
            ("--publishers-cores", !self.publishers_cores.is_empty()),
            ("--subscribers-cores", !self.subscribers_cores.is_empty()),
        ] {
            if is_given {
                bail!("{flag}: cannot be combined with --agents: each agent chooses for its host");
            }
        }
        Ok(())
    }

    fn meetings(&self) -> anyhow::Result<Option<Meetings>> {
        let Some(meetings) = self.meetings else {
            if self.clients_per_meeting.is_some() {
                bail!("--clients-per-meeting: needs --meetings COUNT too");
            }
            return Ok(None);
        };
        let clients_per_meeting = self.clients_per_meeting.unwrap_or(CLIENTS_PER_MEETING);
        let clients = meetings.saturating_mul(clients_per_meeting);
        if meetings == 0 || clients_per_meeting < 2 || clients > SUBSCRIBERS_MAX {
            bail!(
                "--meetings, --clients-per-meeting: expected at least one meeting of at least 2 clients, and at most \
                 {SUBSCRIBERS_MAX} clients in all, not {meetings} of {clients_per_meeting}"
            );
        }
        Ok(Some(Meetings {
            first: u64::from(self.first_meeting),
            count: meetings,
            clients_per_meeting,
        }))
    }

    fn relay(&self, machine: &Machine) -> anyhow::Result<RelayChoice> {
        Ok(match &self.relay {
            None => RelayChoice::Own(cores::own_relay(self, machine)?),
            Some(url) => {
                let url = RelayUrl::list(url).context("--relay")?;
                if !url.is_isolated() && !self.allow_public {
                    bail!(
                        "--relay: {url} is outside this machine and private networks. A benchmark can overload a relay that \
                         serves others; if the relay is yours, add --allow-public"
                    );
                }
                let by_name = self.relay_process.as_deref();
                let found = by_name.map(process::find).transpose();
                if let Some(pid) = self.relay_pid.filter(|pid| process::usage(*pid).is_err()) {
                    bail!("--relay-pid: there is no process {pid} on this machine");
                }
                RelayChoice::At {
                    url,
                    pid: found.context("--relay-process")?.or(self.relay_pid),
                    by_name: by_name.is_some(),
                }
            }
        })
    }

    /// Returns the tokens of clients. Those that are signed here have a different signature each.
    fn tokens(&self) -> anyhow::Result<ClientTokens> {
        if let Some(key) = &self.sign_tokens {
            let clients = self.clients_per_meeting.unwrap_or(CLIENTS_PER_MEETING);
            let clients = self
                .meetings
                .map(|meetings| meetings.saturating_mul(clients));
            let subscribers = clients.unwrap_or(self.subscribers).min(SUBSCRIBERS_MAX);
            return ClientTokens::signed(key, self.publishers, subscribers);
        }
        let given = self.token.as_deref().map(token).transpose()?;
        ClientTokens::given(given, self.tokens.as_deref())
    }
}

impl Flow {
    fn flow(self) -> PublishFlow {
        match self {
            Self::Namespace => PublishFlow::PublishNamespace,
            Self::Publish => PublishFlow::Publish,
        }
    }
}

impl Discovery {
    fn flow(self) -> SubscribeFlow {
        match self {
            Self::Subscribe => SubscribeFlow::Subscribe,
            Self::Namespace => SubscribeFlow::SubscribeNamespace,
            Self::Tracks => SubscribeFlow::SubscribeTracks,
        }
    }
}

impl WireName {
    fn wire(self) -> Wire {
        match self {
            Self::Draft => Wire::Draft,
            Self::Qperf => Wire::Qperf,
        }
    }
}

impl Role {
    fn mode(self) -> Mode {
        match self {
            Self::Publish => Mode::Publisher,
            Self::Subscribe => Mode::Subscriber,
            Self::Both => Mode::Both,
        }
    }
}

/// Refuses what clients of meetings cannot be: slow, churning, or with delays of their own.
fn check_audience_of_meetings(name: &str, profile: &Profile) -> anyhow::Result<()> {
    let audience = &profile.audience;
    if audience.is_unruly() {
        bail!(
            "{name}: [audience]: slow and churning subscribers cannot be combined with --meetings; remove the section, or leave \
             --meetings out"
        );
    }
    if !audience.reply_spread.is_zero() {
        bail!(
            "{name}: [audience]: reply_spread cannot be combined with --meetings, whose clients share a socket; remove the key, \
             or leave --meetings out"
        );
    }
    Ok(())
}

fn read_profile(path: &Path, name: &str) -> anyhow::Result<Profile> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).with_context(|| format!("{name}: cannot be opened"))?;
    let mut bytes = Vec::new();
    // One byte above the limit shows that the file is too large.
    let limit = PROFILE_BYTES_MAX as u64 + 1;
    file.take(limit)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{name}: cannot be read"))?;
    Profile::parse(name, &bytes).map_err(|error| explained(path, Kind::Profile, error.into()))
}

/// Returns a random seed that programs which read JSON numbers as 64-bit floats do not round.
fn random_seed() -> anyhow::Result<u64> {
    let seed = event_loop::seed().map(u64::from_le_bytes)?;
    Ok(seed >> (u64::BITS - EXACT_BITS))
}

fn metrics_url(text: &str) -> Result<String, String> {
    let is_http = |url: &Url| url.scheme() == "http" && url.has_host();
    if Url::parse(text).is_ok_and(|url| is_http(&url)) {
        Ok(text.to_owned())
    } else {
        Err("expected http://HOST:PORT/PATH, such as http://127.0.0.1:9443/metrics".to_owned())
    }
}

/// Clients that connect per second, if neither flag nor profile sets it.
const JOINS_PER_SECOND: u32 = 200;
/// Bits of a random seed: one less than a 64-bit float holds exactly, since a search counts up from its seed.
const EXACT_BITS: u32 = 52;
/// Clients of a meeting in the draft's scenario 3.
const CLIENTS_PER_MEETING: usize = 5;
/// Largest number of publishers: more connections than one thread serves.
const PUBLISHERS_MAX: usize = 5000;
/// One process has about so many UDP ports per address.
const SUBSCRIBERS_MAX: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_seed_survives_as_a_64_bit_float() {
        for _ in 0..64 {
            let seed = random_seed().unwrap();
            // A search counts up from it.
            assert!(seed + (1 << 52) <= 1 << 53, "{seed}");
        }
    }
}
