//! What controller and agents say to each other, as plain data.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_bench::{
    clock::RunClock,
    measured::{PublishersMeasured, SubscribersMeasured, TrackSent},
    profile::{Mode, Profile},
    publisher::PublishFlow,
    qperf::Wire,
    subscriber::SubscribeFlow,
};
use weir_client::tokens::Tokens;
use weir_moqt::{draft::Draft, token::Token};
use weir_report::service_level::ServiceLevel;

use super::{
    super::{Assignment, Sample, SecondSeen, Share, Slice, State},
    clocks::{Clock, Pong},
};
use crate::run::{ClientTokens, CoreChoice, Meetings, Plan, RelayChoice, RelayUrl, SentTrust};

/// What a controller says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToAgent {
    /// To all agents: who is there? The answer goes to the sender.
    Hello,
    /// You work for me from now on.
    Claim,
    Prepare(Box<SentPlan>),
    AdmitSubscribers,
    Release,
    Sample(u32),
    End,
    Compare(Vec<TrackSent>),
    /// Start a job of another kind, which begins when the agent's clock reads this.
    StartJob {
        order: Value,
        begin_agent_ns: i64,
    },
    /// End the job early, and say its results.
    EndJob,
    Ping(u64),
    /// You are free.
    Leave,
}

/// What an agent says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromAgent {
    Here(AgentInfo),
    Claimed,
    /// Its clients have begun to connect.
    Prepared,
    State(State),
    Second(Box<SecondSeen>),
    Sample(u32, Sample),
    Published(Box<PublishersMeasured>),
    Received(Box<SubscribersMeasured>),
    /// What its job says.
    Job(Value),
    Pong(Pong),
    /// It cannot carry out its orders, for this reason.
    Failed(String),
}

/// An agent, as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentInfo {
    pub(crate) name: String,
    /// Its own subject ends with this.
    pub(crate) id: String,
    pub(crate) kernel: String,
    pub(crate) cpu_model: String,
    /// Cores for its load.
    pub(crate) cores: Vec<usize>,
    /// Whether it works for another controller.
    pub(crate) is_busy: bool,
    /// Whether it watches the relay's process.
    pub(crate) watches: bool,
}

/// A [`Plan`] and its share, as plain data. What concerns only the controller stays there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SentPlan {
    profile_name: String,
    /// The profile in its canonical form.
    profile: String,
    url: String,
    share: Share,
    subscribers: usize,
    publishers: usize,
    first_publisher: u64,
    /// The number of the first meeting, the number of meetings, and of clients in each.
    meetings: Option<(u64, usize, usize)>,
    is_qperf: bool,
    ramp_per_second: u32,
    uses_publish: bool,
    /// 0: SUBSCRIBE, 1: `SUBSCRIBE_NAMESPACE`, 2: `SUBSCRIBE_TRACKS`.
    subscribe_flow: u8,
    drafts: Vec<String>,
    /// Type and value of each token of the publishers, and of the subscribers.
    tokens: [Vec<(u64, Vec<u8>)>; 2],
    trust: SentTrust,
    seed: u64,
    no_wait: bool,
    unjudged: Duration,
    ends_early: bool,
    waste_percent: u32,
    /// The origin of the run's times, by the agent's clock.
    origin_agent_ns: i64,
    /// The origin of the run's times, as objects carry it.
    origin_ns: u64,
}

impl SentPlan {
    /// Returns the plan for an agent whose clock reads `offset_ns` more than the controller's `clock`.
    ///
    /// # Errors
    /// A file of certificates cannot be read, or a token has no value.
    pub(super) fn of(
        assignment: &Assignment,
        clock: &Clock,
        offset_ns: i64,
    ) -> anyhow::Result<Self> {
        let Assignment {
            plan,
            url,
            share,
            clock: run,
        } = assignment;
        let token = |token: &Token| match token {
            Token::UseValue { token_type, value } => Ok((*token_type, value.to_vec())),
            Token::Delete { .. } | Token::Register { .. } | Token::UseAlias { .. } => {
                bail!("a token without a value")
            }
        };
        let tokens = |all: &Tokens| all.all().iter().map(token).collect::<anyhow::Result<_>>();
        Ok(Self {
            profile_name: plan.profile_name.clone(),
            profile: plan.profile.to_ini(),
            url: url.with_query(),
            share: *share,
            subscribers: plan.subscribers,
            publishers: plan.publishers,
            first_publisher: plan.first_publisher,
            meetings: plan
                .meetings
                .map(|one| (one.first, one.count, one.clients_per_meeting)),
            is_qperf: plan.wire == Wire::Qperf,
            ramp_per_second: plan.ramp_per_second,
            uses_publish: plan.flow == PublishFlow::Publish,
            subscribe_flow: match plan.subscribe_flow {
                SubscribeFlow::Subscribe => 0,
                SubscribeFlow::SubscribeNamespace => 1,
                SubscribeFlow::SubscribeTracks => 2,
            },
            drafts: plan.drafts.iter().map(|&alpn| alpn.to_owned()).collect(),
            tokens: [
                tokens(&plan.tokens.of_publishers)?,
                tokens(&plan.tokens.of_subscribers)?,
            ],
            trust: SentTrust::of(&plan.trust.load()?),
            seed: plan.seed,
            no_wait: plan.no_wait,
            unjudged: plan.unjudged,
            ends_early: plan.ends_early,
            waste_percent: plan.waste_percent,
            origin_agent_ns: clock.ns(run.origin()).saturating_add(offset_ns),
            origin_ns: run.ns(run.origin()),
        })
    }

    /// Returns the assignment of an agent with this `clock` and these `cores`.
    ///
    /// # Errors
    /// The plan is not possible here; the error says what is wrong.
    pub(super) fn assignment(
        self,
        clock: &Clock,
        cores: Vec<usize>,
        limits: &Limits,
    ) -> anyhow::Result<Assignment> {
        let url = RelayUrl::list(&self.url)?;
        if !limits.allows_public && !url.is_isolated() {
            bail!(
                "{url} is outside private networks; start the agent with --allow-public to permit it"
            );
        }
        let origin = clock.instant(self.origin_agent_ns);
        let origin = origin.context("a clock that cannot be represented")?;
        let (share, origin_ns) = (self.share, self.origin_ns);
        for slice in [share.publishers, share.subscribers].into_iter().flatten() {
            if slice.of == 0 || slice.number >= slice.of || slice.of > AGENTS_MAX {
                bail!("a share that does not exist");
            }
        }
        let plan = self.plan(&url, cores)?;
        limits.check(&plan, &share)?;
        Ok(Assignment {
            plan,
            url,
            share,
            clock: RunClock::new(origin, origin_ns),
        })
    }

    fn plan(self, url: &RelayUrl, cores: Vec<usize>) -> anyhow::Result<Plan> {
        let profile = Profile::parse(&self.profile_name, self.profile.as_bytes())?;
        let meetings = self.meetings.map(|(first, count, clients)| Meetings {
            first,
            count,
            clients_per_meeting: clients,
        });
        Ok(Plan {
            subscribe_flow: self.subscribe_flow()?,
            drafts: self.drafts()?,
            profile_name: self.profile_name,
            profile,
            relay: RelayChoice::At {
                url: url.clone(),
                pid: None,
                by_name: false,
            },
            subscribers: self.subscribers,
            publishers: self.publishers,
            first_publisher: self.first_publisher,
            meetings,
            role: Some(Mode::Both),
            await_subscribers: None,
            has_common_clock: true,
            wire: if self.is_qperf {
                Wire::Qperf
            } else {
                Wire::Draft
            },
            ramp_per_second: self.ramp_per_second,
            flow: if self.uses_publish {
                PublishFlow::Publish
            } else {
                PublishFlow::PublishNamespace
            },
            tokens: client_tokens(self.tokens),
            // The controller judges.
            level: ServiceLevel::default(),
            seed: self.seed,
            cores: CoreChoice {
                relay: Vec::new(),
                publishers: cores.clone(),
                subscribers: cores,
            },
            no_wait: self.no_wait,
            trust: self.trust.choice(),
            metrics_url: None,
            unjudged: self.unjudged,
            ends_early: self.ends_early,
            calibrate: false,
            waste_percent: self.waste_percent.min(100),
            command_line: String::new(),
            fleet: None,
        })
    }

    fn subscribe_flow(&self) -> anyhow::Result<SubscribeFlow> {
        Ok(match self.subscribe_flow {
            0 => SubscribeFlow::Subscribe,
            1 => SubscribeFlow::SubscribeNamespace,
            2 => SubscribeFlow::SubscribeTracks,
            other => bail!("an unknown way to subscribe: {other}"),
        })
    }

    fn drafts(&self) -> anyhow::Result<Vec<&'static str>> {
        let drafts = self.drafts.iter();
        let known = drafts.map(|alpn| Draft::from_alpn(alpn.as_bytes()).map(Draft::alpn));
        let known: Option<Vec<_>> = known.collect();
        known.context("a draft of MOQT that this weir does not speak")
    }
}

fn client_tokens(sent: [Vec<(u64, Vec<u8>)>; 2]) -> ClientTokens {
    let [of_publishers, of_subscribers] = sent.map(|all| {
        let token = |(token_type, value): (u64, Vec<u8>)| Token::UseValue {
            token_type,
            value: value.into(),
        };
        Tokens::new(all.into_iter().map(token).collect())
    });
    ClientTokens {
        of_publishers,
        of_subscribers,
    }
}

/// What an agent permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Whether the relay may be outside private networks.
    pub(crate) allows_public: bool,
    /// Clients that it runs at once.
    pub(crate) clients_max: usize,
}

impl Limits {
    fn check(&self, plan: &Plan, share: &Share) -> anyhow::Result<()> {
        let of = |slice: Option<Slice>, all: usize| slice.map_or(0, |slice| all.div_ceil(slice.of));
        let subscribers = of(share.subscribers, plan.subscribers_total());
        let publishers = of(share.publishers, plan.publishers_total());
        let clients = subscribers.saturating_add(publishers);
        if clients > self.clients_max {
            bail!(
                "its share has {clients} clients, and the agent runs at most {} (--clients-max)",
                self.clients_max
            );
        }
        Ok(())
    }
}

/// Agents of one run.
pub(crate) const AGENTS_MAX: usize = 256;
