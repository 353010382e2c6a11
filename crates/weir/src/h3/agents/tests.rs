//! Controller and agents over the message system within the process, against weir's own server.

use std::{
    net::SocketAddr,
    sync::Arc,
    thread::{self, JoinHandle},
};

use weir_http3::server::{Site, SiteLimits};
use weir_net::certificate::Certificate;
use weir_quic::{Limits, Packets, tls::ServerTls};

use super::*;
use crate::{
    h3::{agent, options::LoadOptions, server},
    run::remote::{
        Hub,
        tests::{Agent as OnThread, claim, key},
    },
};

/// A server on a thread of its own.
struct Server {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let Certificate { chain, key } = Certificate::self_made(&["localhost".to_owned()]).unwrap();
        let stop = Stop::new().unwrap();
        let plan = server::Plan {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            threads: 1,
            cores: Vec::new(),
            tls: ServerTls::with_sessions(chain, key, &[weir_h3::ALPN], 0).unwrap(),
            limits: Limits::default(),
            connections_per_address_max: usize::MAX,
            packets: Packets::default(),
            offload: true,
            rest: Duration::ZERO,
            site: Arc::new(Site::new(SiteLimits::default())),
            stop: stop.clone(),
        };
        let serving = plan.bind().unwrap();
        let address = serving.address();
        let thread = thread::Builder::new().spawn(move || {
            serving.serve().unwrap();
        });
        Self {
            address,
            stop,
            thread: Some(thread.unwrap()),
        }
    }

    fn plan(&self, arguments: &[&str]) -> Plan {
        plan(self.address, arguments)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.request();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Returns the plan of requests to `address` for 60 seconds at most.
fn plan(address: SocketAddr, arguments: &[&str]) -> Plan {
    let arguments = [
        &["--insecure", "--allow-public", "--duration=60"],
        arguments,
    ]
    .concat();
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    let options = LoadOptions::from_arguments(&arguments).unwrap();
    let urls = ["1k?secret", "5k"];
    let urls = urls.map(|path| format!("https://{address}/{path}").parse().unwrap());
    options.plan(&urls, &Machine::this()).unwrap()
}

fn agents(hub: &Hub) -> [OnThread; 2] {
    let minutes = |minutes| Duration::from_mins(minutes);
    [("a", minutes(0)), ("b", minutes(5))]
        .map(|(name, offset)| OnThread::with_jobs(hub, name, key("k"), offset, agent::start))
}

#[test]
fn what_two_agents_measured_adds_up() {
    let (hub, server) = (Hub::default(), Server::start());
    let on_threads = agents(&hub);
    let fleet = claim(&hub, "k", 2).unwrap();
    let mut plan = server.plan(&[
        "--threads=2",
        "--max-concurrent-conns=3",
        "--max-requests-per-thread=50",
        "--rate=1000",
    ]);
    plan.server = Some(crate::harness::processes::Processes {
        pids: vec![std::process::id()],
    });
    let stop = Stop::new().unwrap();
    let report = measure(&fleet, &plan, &Machine::this(), &stop, |_| ()).unwrap();
    for agent in &on_threads {
        // The query is not shown.
        agent.expect(&format!("requests https://{}/1k", server.address));
    }
    let (requests, connections) = (&report.requests, &report.connections);
    assert_eq!((requests.sent, requests.successes), (200, 200));
    assert_eq!(requests.content_bytes, 100 * (1024 + 5120));
    assert!(requests.urls.iter().all(|url| url.successes == 100));
    assert_eq!(
        (connections.handshakes, connections.cipher_suites.len()),
        (12, 1)
    );
    assert_eq!(report.latency.overall.unwrap().count, 200);
    assert_eq!(report.client.threads.len(), 4);
    let named = report.client.agents.iter();
    let named: Vec<_> = named
        .map(|one| (&*one.name, one.threads, one.requests))
        .collect();
    assert_eq!(named, [("a", 2, 100), ("b", 2, 100)]);
    let server = report.server.unwrap();
    assert_eq!(server.pids, [std::process::id()]);
    assert!(server.cpu_seconds > 0.0);
}

#[test]
fn an_agent_that_ends_spoils_the_run_by_name() {
    let (hub, server) = (Hub::default(), Server::start());
    let [first, second] = agents(&hub);
    let fleet = claim(&hub, "k", 2).unwrap();
    let mut second = Some(second);
    let stop = Stop::new().unwrap();
    let error = measure(&fleet, &server.plan(&[]), &Machine::this(), &stop, |_| {
        drop(second.take());
    });
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "agent b: it was stopped");
    drop(fleet);
    first.expect("is free again");
}

#[test]
fn a_stop_at_the_controller_ends_the_run_with_a_report() {
    let (hub, server) = (Hub::default(), Server::start());
    let _on_threads = agents(&hub);
    let fleet = claim(&hub, "k", 2).unwrap();
    let stop = Stop::new().unwrap();
    let plan = server.plan(&[]);
    let report = measure(&fleet, &plan, &Machine::this(), &stop, |_| stop.request()).unwrap();
    assert!(report.run.elapsed_ms < 60_000.0);
    assert!(
        report
            .run
            .notes
            .contains(&"The run was interrupted.".to_owned())
    );
    assert_eq!(report.client.agents.len(), 2);
}

#[test]
fn an_agent_refuses_what_it_does_not_permit() {
    let hub = Hub::default();
    let _on_threads = agents(&hub);
    let stop = Stop::new().unwrap();
    let inside = SocketAddr::from(([127, 0, 0, 1], 9));
    let outside = SocketAddr::from(([192, 0, 2, 1], 443));
    for (address, arguments, words) in [
        (
            inside,
            "--threads=11",
            "its share has 110 connections, and the agent runs at most 100 (--clients-max)",
        ),
        (
            outside,
            "--threads=1",
            "192.0.2.1:443 is outside private networks; start the agent with --allow-public to permit it",
        ),
    ] {
        let fleet = claim(&hub, "k", 1).unwrap();
        let plan = plan(address, &[arguments]);
        let error = measure(&fleet, &plan, &Machine::this(), &stop, |_| ());
        let error = error.unwrap_err().to_string();
        assert_eq!(error, format!("agent a: {words}"));
    }
}

#[test]
fn an_order_says_all_of_a_plan_that_concerns_an_agent() {
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let mut sent = plan(
        address,
        &["--rate=500", "--short=0rtt", "--no-gro", "--sockets=2"],
    );
    sent.trust = weir_quic::tls::Trust::Hashes(vec![[7; 32]]);
    let order = Order::of(&sent, 2);
    let text = serde_json::to_string(&order).unwrap();
    let read: Order = serde_json::from_str(&text).unwrap();
    assert_eq!(read, order);
    let surroundings = crate::run::remote::Surroundings {
        cores: &[3],
        limits: crate::run::remote::Limits {
            allows_public: false,
            clients_max: 10,
        },
        watched: Some(7),
        begin: clock::now(),
    };
    let plan = read.plan(surroundings).unwrap();
    assert_eq!(plan.urls, sent.urls);
    assert_eq!(plan.rate_per_second, Some(250.0));
    let server = plan.server.as_ref().unwrap();
    assert_eq!((&*plan.cores, &*server.pids), (&[3][..], &[7][..]));
    let again = Plan {
        rate_per_second: sent.rate_per_second,
        ..plan
    };
    assert_eq!(Order::of(&again, 2), order);
}
