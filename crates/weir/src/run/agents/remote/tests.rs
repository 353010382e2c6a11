//! Controller and agents over the message system within the process.

use std::{
    sync::mpsc::{Receiver, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::bail;
use weir_net::Stop;

use super::{
    bus::{Bus as _, hub::Hub},
    clocks::Clock,
    envelope::{Sealer, SharedKey},
    fleet::{Fleet, Wanted},
    job::StartJob,
    members::{HELLO, publish},
    protocol::{AgentInfo, Limits, SentPlan, ToAgent},
    server::{AgentServer, check_name},
};
use crate::run::agents::Share;

pub(crate) fn key(letter: &str) -> SharedKey {
    SharedKey::new(letter.repeat(32).as_bytes()).unwrap()
}

/// An agent on a thread of its own.
pub(crate) struct Agent {
    stop: Stop,
    said: Receiver<String>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    fn start(hub: &Hub, name: &str, key: SharedKey, clock_offset: Duration) -> Self {
        Self::with_jobs(hub, name, key, clock_offset, |_, _| bail!("no jobs"))
    }

    pub(crate) fn with_jobs(
        hub: &Hub,
        name: &str,
        key: SharedKey,
        clock_offset: Duration,
        start_job: StartJob,
    ) -> Self {
        let info = AgentInfo {
            name: name.to_owned(),
            id: String::new(),
            kernel: "test".to_owned(),
            cpu_model: "test".to_owned(),
            cores: Vec::new(),
            is_busy: false,
            watches: false,
        };
        let limits = Limits {
            allows_public: false,
            clients_max: 100,
        };
        let stop = Stop::new().unwrap();
        let (stopped, hub) = (stop.clone(), hub.clone());
        let (sender, said) = channel();
        let (ready, wait) = channel();
        let thread = thread::Builder::new().spawn(move || {
            let bus = Box::new(hub.connect());
            let mut server =
                AgentServer::new(bus, key, info, (limits, None, clock_offset), start_job).unwrap();
            ready.send(()).unwrap();
            let say = |text: &str| drop(sender.send(text.to_owned()));
            server.serve(&stopped, say).unwrap();
        });
        wait.recv().unwrap();
        Self {
            stop,
            said,
            thread: Some(thread.unwrap()),
        }
    }

    /// Waits until the agent says something that contains `text`.
    pub(crate) fn expect(&self, text: &str) {
        loop {
            let said = self.said.recv_timeout(Duration::from_secs(30)).unwrap();
            if said.contains(text) {
                return;
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.request();
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(crate) fn claim(hub: &Hub, letter: &str, agents: usize) -> anyhow::Result<Fleet> {
    let wanted = Wanted {
        agents,
        publishers_at: Vec::new(),
    };
    let stop = Stop::new()?;
    Fleet::claim(Box::new(hub.connect()), key(letter), &wanted, &stop)
}

fn refused(hub: &Hub, letter: &str, agents: usize) -> String {
    claim(hub, letter, agents).unwrap_err().to_string()
}

#[test]
fn agents_are_claimed_by_name_and_free_again_afterwards() {
    let hub = Hub::default();
    let start = |name| Agent::start(&hub, name, key("k"), Duration::ZERO);
    let (b, a) = (start("b"), start("a"));
    let fleet = claim(&hub, "k", 2).unwrap();
    assert_eq!(fleet.shares().len(), 2);
    a.expect("works for controller");
    b.expect("works for controller");
    // Another controller finds nobody who is free.
    let error = refused(&hub, "k", 1);
    assert!(
        error.contains("1 wanted, and 0 free; busy for another controller: a, b"),
        "{error}"
    );
    drop(fleet);
    a.expect("is free again");
    b.expect("is free again");
    assert_eq!(claim(&hub, "k", 1).unwrap().shares(), [Share::WHOLE]);
}

#[test]
fn clocks_that_are_minutes_apart_are_corrected_within_the_error() {
    let hub = Hub::default();
    let apart = Duration::from_mins(5);
    let _one = Agent::start(&hub, "one", key("k"), Duration::ZERO);
    let _two = Agent::start(&hub, "two", key("k"), apart);
    let fleet = claim(&hub, "k", 2).unwrap();
    let stop = Stop::new().unwrap();
    let links = fleet.links(&stop).unwrap();
    fleet.measure_after(&stop);
    let mut agents = ["one", "two"].map(|name| weir_report::relay::Agent {
        name: name.to_owned(),
        ..weir_report::relay::Agent::default()
    });
    fleet.describe(&mut agents);
    let [one, two] = agents.map(|agent| {
        (
            agent.clock_offset_ms.unwrap(),
            agent.clock_error_ms.unwrap(),
        )
    });
    // All three clocks read the system's when they were made, a moment apart.
    let distance = (two.0 - one.0 - 300_000.0).abs();
    assert!(distance <= one.1 + two.1 + 50.0, "{one:?} {two:?}");
    let error = fleet.clock_error().unwrap();
    assert!(
        (error.as_secs_f64() * 1e3 - one.1 - two.1).abs() < 1e-3,
        "{error:?}"
    );
    drop(links);
}

#[test]
fn wrong_keys_missing_agents_and_equal_names_are_told_in_a_line() {
    let hub = Hub::default();
    let error = refused(&hub, "k", 1);
    assert!(
        error.starts_with("--agents: 1 wanted, and 0 free; start `weir agent`"),
        "{error}"
    );
    let _other = Agent::start(&hub, "other", key("x"), Duration::ZERO);
    let error = refused(&hub, "k", 1);
    assert!(
        error.contains("agent other: the keys differ (--fleet-key)"),
        "{error}"
    );
    let _same = Agent::start(&hub, "other", key("x"), Duration::ZERO);
    let error = refused(&hub, "x", 2);
    assert!(error.contains("two agents are called \"other\""), "{error}");
}

#[test]
fn an_agent_obeys_nobody_without_the_key() {
    let hub = Hub::default();
    let agent = Agent::start(&hub, "a", key("k"), Duration::ZERO);
    let mut stranger = hub.connect();
    let mut sealer = Sealer::new(key("x"), "stranger", "stranger");
    for order in [ToAgent::Hello, ToAgent::Claim, ToAgent::Leave] {
        publish(&mut stranger, &mut sealer, HELLO, &order).unwrap();
    }
    stranger.publish(HELLO, vec![0xFF; 1000]).unwrap();
    stranger
        .publish(
            HELLO,
            b"{\"weir_agents\":9,\"weir\":\"9\",\"from\":\"x\"}\n".to_vec(),
        )
        .unwrap();
    let _fleet = claim(&hub, "k", 1).unwrap();
    agent.expect("works for controller");
    assert!(agent.said.try_recv().is_err(), "it worked for nobody else");
}

#[test]
fn a_plan_that_asks_too_much_or_leads_outside_is_refused() {
    let clock = Clock::set_wrong_by(Duration::ZERO);
    let limits = |allows_public, clients_max| Limits {
        allows_public,
        clients_max,
    };
    let told = |url: &str, limits: Limits| {
        let plan = sent_plan(url, &clock);
        plan.assignment(&clock, vec![0], &limits)
            .map(|one| one.url.to_string())
    };
    let inside = "moqt://127.0.0.1:4443";
    assert_eq!(told(inside, limits(false, 201)).unwrap(), inside);
    let error = told(inside, limits(false, 200)).unwrap_err().to_string();
    assert_eq!(
        error,
        "its share has 201 clients, and the agent runs at most 200 (--clients-max)"
    );
    let outside = "moqt://192.0.2.1:4443";
    let error = told(outside, limits(false, 1000)).unwrap_err().to_string();
    assert!(
        error.contains("start the agent with --allow-public"),
        "{error}"
    );
    assert_eq!(told(outside, limits(true, 1000)).unwrap(), outside);
}

#[test]
fn names_of_agents_are_plain() {
    assert!(check_name("host-a.example_1").is_ok());
    for bad in ["", "a b", "a,b", "ü", &"a".repeat(65)] {
        assert!(check_name(bad).is_err(), "{bad:?}");
    }
}

/// Returns the plan of a run of the short audio profile with 200 subscribers, as a controller sends it.
fn sent_plan(url: &str, clock: &Clock) -> SentPlan {
    use crate::{harness::machine::Machine, run::options::RunOptions};
    let profile = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../profiles/audio-short.ini"
    );
    let arguments = ["--relay", url, "--insecure", "--allow-public"].map(str::to_owned);
    let options = RunOptions::from_arguments(&arguments).unwrap();
    let plan = options
        .plan(profile.as_ref(), &Machine::this(), None)
        .unwrap();
    let assignment = crate::run::agents::Assignment {
        url: url.parse().unwrap(),
        share: Share::WHOLE,
        clock: weir_bench::clock::RunClock::new(weir_net::clock::now(), 7),
        plan,
    };
    let sent = SentPlan::of(&assignment, clock, 0).unwrap();
    let text = serde_json::to_string(&sent).unwrap();
    let read: SentPlan = serde_json::from_str(&text).unwrap();
    // Nothing of the load is lost on the way.
    let limits = Limits {
        allows_public: true,
        clients_max: 1000,
    };
    let arrived = read.clone().assignment(clock, vec![0], &limits).unwrap();
    assert_eq!(arrived.plan.profile, assignment.plan.profile);
    let both = [&arrived, &assignment].map(|one| {
        let plan = &one.plan;
        (
            plan.seed,
            plan.subscribers,
            plan.publishers,
            plan.ramp_per_second,
            plan.drafts.clone(),
        )
    });
    assert_eq!(both[0], both[1]);
    assert_eq!(arrived.clock.origin(), assignment.clock.origin());
    assert_eq!(arrived.clock.ns(arrived.clock.origin()), 7);
    read
}
