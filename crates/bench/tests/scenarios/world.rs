//! A benchmark in virtual time: relay, clients on nodes of their own, links, and the part of a runner.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use weir_bench::{
    clock::RunClock,
    early_stop::EarlyStop,
    measured::Measured,
    meeting::MeetingRole,
    metrics::{SentTotals, TrackPlan},
    outcome::{self, Judged, Surroundings},
    part::Part,
    profile::Profile,
    publisher::{PublishFlow, PublisherConfig, PublisherRole},
    scenario::{Roles, Scenario},
    subscriber::{
        SubscribeFlow, SubscribeRequest, SubscriberConfig, SubscriberRole, SubscriptionResult,
    },
};
use weir_client::target::Target;
use weir_link::{Config as LinkConfig, Delay};
use weir_moqt::draft::Draft;
use weir_quic::App;
use weir_report::{
    relay::{Cores, Generator, Relay, RelaySource, Report, Run},
    service_level::{JudgedClause, ServiceLevel},
};
use weir_sim::{End, NodeConfig, NodeId, SERVER_NAME, Sim};

/// The parameters of a benchmark.
#[derive(Clone, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) profile: &'a str,
    pub(crate) seed: u64,
    pub(crate) crowd: Crowd,
    /// Every link, in both directions.
    pub(crate) link: LinkConfig,
    pub(crate) publish: PublishFlow,
    pub(crate) subscribe: SubscribeFlow,
    /// Clients that join per second, unless the profile sets the rate.
    pub(crate) joins_per_second: u32,
    /// The drafts that clients offer.
    pub(crate) drafts: Vec<&'static str>,
}

/// The clients of a benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Crowd {
    /// One publisher, and this many subscribers.
    Subscribers(usize),
    /// Meetings, and clients in each.
    Meetings(usize, usize),
}

impl<'a> Setting<'a> {
    /// Links of 10 ms without loss, 200 joins per second, and SUBSCRIBE by name.
    pub(crate) fn new(profile: &'a str, seed: u64, crowd: Crowd) -> Self {
        Self {
            profile,
            seed,
            crowd,
            link: delay(10),
            publish: PublishFlow::PublishNamespace,
            subscribe: SubscribeFlow::Subscribe,
            joins_per_second: 200,
            drafts: Draft::alpns().to_vec(),
        }
    }
}

/// Returns a link that only delays.
pub(crate) fn delay(milliseconds: u64) -> LinkConfig {
    LinkConfig {
        delay: Delay::fixed(Duration::from_millis(milliseconds))
            .expect("some milliseconds are few"),
        ..LinkConfig::default()
    }
}

/// A benchmark under the virtual clock.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) relay: NodeId,
    clients: Clients,
    profile: Profile,
    plans: Arc<[TrackPlan]>,
    seed: u64,
    /// When the schedules began.
    released: Duration,
    /// The clauses that stopped the run early, if any.
    ended_early_by: Vec<JudgedClause>,
}

/// The nodes of the clients.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clients {
    /// Publishers on one node, subscribers on another.
    Apart {
        /// The publishers.
        source: NodeId,
        /// The subscribers.
        sink: NodeId,
    },
    /// Publishers and subscribers on one node.
    Together(NodeId),
}

impl Clients {
    /// Starts the roles of a crowd on nodes of their own.
    fn start(
        sim: &mut Sim,
        crowd: Crowd,
        publishers: PublisherConfig,
        subscribers: SubscriberConfig,
    ) -> Self {
        match crowd {
            Crowd::Subscribers(_) => {
                let source = sim.add_node(NodeConfig::default());
                let sink = sim.add_node(NodeConfig::default());
                sim.start(source, PublisherRole::new(publishers, sim.now()));
                sim.start(sink, SubscriberRole::new(subscribers));
                Self::Apart { source, sink }
            }
            Crowd::Meetings(..) => {
                let node = sim.add_node(NodeConfig::default());
                sim.start(node, MeetingRole::new(publishers, subscribers, sim.now()));
                Self::Together(node)
            }
        }
    }
}

impl World {
    /// Returns a benchmark of `relay` that has not begun.
    pub(crate) fn new(setting: &Setting<'_>, relay: impl App + 'static) -> Self {
        let seed = setting.seed;
        let profile = Profile::parse("profile.ini", setting.profile.as_bytes());
        let profile = profile.expect("a test's profile is right");
        let mut sim = Sim::new(seed);
        sim.set_default_link(setting.link.clone());
        let server = Some(sim.server_tls(&Draft::alpns()));
        let relay_node = sim.add_node(NodeConfig {
            server,
            ..NodeConfig::default()
        });
        sim.start(relay_node, relay);
        let clock = RunClock::new(sim.now(), 0);
        let plans: Arc<[TrackPlan]> = (0_u64..)
            .zip(&profile.tracks)
            .map(|(number, track)| TrackPlan::new(track, number, seed, clock))
            .collect();
        let scenario = match setting.crowd {
            Crowd::Subscribers(subscribers) => Scenario::fan_out(&profile, subscribers, seed),
            Crowd::Meetings(meetings, clients) => Scenario::meetings(
                &profile,
                0..meetings as u64,
                clients,
                seed,
                Roles::default(),
            ),
        };
        let scenario = scenario.expect("a test's profile can be laid out");
        let client = sim.client_config(&setting.drafts);
        let target = Target::new(sim.address(relay_node), SERVER_NAME, client);
        let joins = profile.audience.joins_per_second;
        let publishers = PublisherConfig {
            target: target.clone(),
            plans: Arc::clone(&plans),
            part: Part::whole(scenario.publishers.len()),
            publishers: scenario.publishers,
            flow: setting.publish,
            ramp_per_second: joins.unwrap_or(setting.joins_per_second),
            await_subscribers: None,
        };
        let subscribers = SubscriberConfig {
            target,
            plans: Arc::clone(&plans),
            part: Part::whole(scenario.subscribers.len()),
            subscribers: scenario.subscribers,
            flow: setting.subscribe,
            request: SubscribeRequest::default(),
            ramp_per_second: joins.unwrap_or(setting.joins_per_second),
            audience: profile.audience,
            start_timeout: Duration::from_secs(30),
            verify_content: true,
            announce_as: None,
        };
        let clients = Clients::start(&mut sim, setting.crowd, publishers, subscribers);
        Self {
            sim,
            relay: relay_node,
            clients,
            profile,
            plans,
            seed,
            released: Duration::ZERO,
            ended_early_by: Vec::new(),
        }
    }

    /// Runs from the first packet to the last object and its drain.
    pub(crate) fn run(&mut self) {
        self.join();
        self.release();
        self.finish();
    }

    /// Runs until everybody has joined.
    pub(crate) fn join(&mut self) {
        let clients = self.clients;
        self.wait(|sim| publishers(sim, clients).has_announced());
        match clients {
            Clients::Apart { sink, .. } => {
                self.sim
                    .with_app(sink, |now, role: &mut SubscriberRole, _| role.start(now));
            }
            Clients::Together(node) => {
                self.sim
                    .with_app(node, |now, role: &mut MeetingRole, _| role.start(now));
            }
        }
        self.wait(|sim| {
            subscribers(sim, clients).is_subscribed() && publishers(sim, clients).is_served()
        });
    }

    /// Begins the schedules.
    pub(crate) fn release(&mut self) {
        self.released = self.sim.elapsed();
        match self.clients {
            Clients::Apart { source, sink } => {
                let released = self
                    .sim
                    .with_app(source, |now, role: &mut PublisherRole, endpoint| {
                        role.release(now, endpoint)
                    });
                released.expect("a test's objects fit their path");
                self.sim
                    .with_app(sink, |now, role: &mut SubscriberRole, endpoint| {
                        role.release(now, endpoint);
                    });
            }
            Clients::Together(node) => {
                let released = self
                    .sim
                    .with_app(node, |now, role: &mut MeetingRole, endpoint| {
                        role.release(now, endpoint)
                    });
                released.expect("a test's objects fit their path");
            }
        }
    }

    /// Runs from the release to the end, or until `early_stop` finds that the run is certain to fail. Checks once a
    /// second, as a runner does. Returns how long the schedules ran.
    pub(crate) fn finish_under(&mut self, level: &ServiceLevel, unjudged: Duration) -> Duration {
        let mut early_stop = EarlyStop::new(unjudged);
        early_stop.on_released(self.sim.now(), self.subscribers());
        let clients = self.clients;
        while self.ended_early_by.is_empty() {
            let next = self.sim.elapsed() + Duration::from_secs(1);
            let is_done = |sim: &Sim| is_done(sim, clients);
            if self.sim.run_until(next, is_done) == End::Finished {
                break;
            }
            assert!(next < TIME_MAX, "seed {}", self.seed);
            let so_far = early_stop.look(self.sim.now(), self.subscribers());
            self.ended_early_by = so_far.map_or_else(Vec::new, |one| level.clearly_broken(&one));
        }
        let lasted = self.sim.elapsed().saturating_sub(self.released);
        let nodes = match clients {
            Clients::Apart { source, sink } => vec![source, sink],
            Clients::Together(node) => vec![node],
        };
        for node in nodes
            .into_iter()
            .filter(|_| !self.ended_early_by.is_empty())
        {
            self.sim.shutdown(node);
        }
        lasted
    }

    /// Runs until all clients are done.
    pub(crate) fn finish(&mut self) {
        let clients = self.clients;
        self.wait(|sim| is_done(sim, clients));
    }

    fn wait(&mut self, is_done: impl FnMut(&Sim) -> bool) {
        let end = self.sim.run_until(TIME_MAX, is_done);
        assert_eq!(end, End::Finished, "seed {}", self.seed);
    }

    /// The nodes of the clients.
    pub(crate) fn clients(&self) -> Clients {
        self.clients
    }

    pub(crate) fn publishers(&self) -> &PublisherRole {
        publishers(&self.sim, self.clients)
    }

    pub(crate) fn subscribers(&self) -> &SubscriberRole {
        subscribers(&self.sim, self.clients)
    }

    /// What was measured of every subscription.
    pub(crate) fn results(&self) -> Vec<SubscriptionResult> {
        let sent: BTreeMap<_, SentTotals> = self
            .publishers()
            .results()
            .into_iter()
            .map(|result| (result.name, result.totals))
            .collect();
        self.subscribers().results(|name| sent.get(name).copied())
    }

    /// Returns the report, judged by `level` without the first `unjudged` of the data phase. `counters` are the
    /// relay's.
    pub(crate) fn report(
        &self,
        level: &ServiceLevel,
        unjudged: Duration,
        counters: BTreeMap<String, u64>,
    ) -> Report {
        let starts = self.profile.tracks.iter().map(|track| track.start_delay);
        let data_from = self.released + starts.max().unwrap_or_default();
        let judged = if unjudged.is_zero() {
            Judged::default()
        } else {
            Judged {
                planned_from: unjudged,
                arrived_from: data_from + unjudged,
            }
        };
        let surroundings = Surroundings {
            run: self.description(),
            relay: Relay {
                source: RelaySource::Simulated,
                implementation: None,
                cost: None,
                per_second: Vec::new(),
                counters,
                metrics: Vec::new(),
            },
            generator: Generator {
                healthy: true,
                reasons: Vec::new(),
                cores: Vec::new(),
                threads: Vec::new(),
                socket_receive_buffer_drops: 0,
                publisher_lateness: None,
                stolen_percent: None,
                per_second: Vec::new(),
                agents: Vec::new(),
                calibration: None,
            },
            judged,
            clock_error: Some(Duration::ZERO),
        };
        outcome::report(
            &self.profile,
            &self.plans,
            &Measured::of(self.publishers(), self.subscribers()),
            level,
            surroundings,
        )
    }

    fn description(&self) -> Run {
        Run {
            weir_version: String::new(),
            command_line: String::new(),
            profile: weir_report::relay::Profile {
                name: "profile.ini".to_owned(),
                text: self.profile.to_ini(),
            },
            seed: self.seed,
            run_id: format!("{:016x}", self.seed),
            start_time: "2026-01-01T00:00:00Z".to_owned(),
            duration_ms: self.sim.elapsed().as_secs_f64() * 1e3,
            relay_url: "sim".to_owned(),
            draft: None,
            transport: "raw QUIC".to_owned(),
            publish_flow: String::new(),
            latency_clock: "virtual".to_owned(),
            clock_error_ms: Some(0.0),
            subscribers_requested: self.subscribers().progress().subscribers,
            publishers_requested: 1,
            audience: weir_report::relay::Audience::default(),
            cores: Cores::default(),
            kernel: String::new(),
            cpu_model: String::new(),
            interrupted: None,
            ended_early_by: Vec::new(),
            partial: false,
        }
        .ended_early(self.ended_early_by.clone())
    }
}

fn is_done(sim: &Sim, clients: Clients) -> bool {
    match clients {
        Clients::Apart { source, sink } => !sim.is_busy(source) && !sim.is_busy(sink),
        Clients::Together(node) => !sim.is_busy(node),
    }
}

fn publishers(sim: &Sim, clients: Clients) -> &PublisherRole {
    match clients {
        Clients::Apart { source, .. } => sim.app(source),
        Clients::Together(node) => sim.app::<MeetingRole>(node).publishers(),
    }
}

fn subscribers(sim: &Sim, clients: Clients) -> &SubscriberRole {
    match clients {
        Clients::Apart { sink, .. } => sim.app(sink),
        Clients::Together(node) => sim.app::<MeetingRole>(node).subscribers(),
    }
}

/// Returns the seed of a story; the variable `WEIR_SEED` overrides it.
pub(crate) fn seed(default: u64) -> u64 {
    std::env::var("WEIR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(default)
}

/// Returns the relay with its default configuration.
pub(crate) fn relay() -> weir_relay::Relay {
    weir_relay::Relay::new(weir_relay::Config::default())
}

/// The longest run in virtual time.
const TIME_MAX: Duration = Duration::from_mins(2);
