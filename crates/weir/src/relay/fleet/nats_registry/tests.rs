//! The registry with a real NATS server.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use async_nats::jetstream::context::ContextBuilder;
use weir_relay::registry::{
    LEASE,
    conformance::{self, Setting},
};

use super::*;
use crate::run::{RelayUrl, TrustChoice, client_target};

/// A NATS server that can be stopped and started again, and forgets everything then.
struct Server {
    port: u16,
    /// Further arguments.
    more: Vec<String>,
    child: Option<Child>,
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

impl Server {
    fn start() -> Self {
        Self::start_with(Vec::new())
    }

    fn start_with(more: Vec<String>) -> Self {
        let port = free_port();
        let child = None;
        let mut server = Self { port, more, child };
        server.run();
        server
    }

    /// Starts three servers that know each other.
    fn cluster() -> [Self; 3] {
        let routes = [(); 3].map(|()| format!("nats://127.0.0.1:{}", free_port()));
        let list = routes.join(",");
        let mut number = 0;
        routes.map(|route| {
            number += 1;
            let more = [
                format!("--name=n{number}"),
                "--cluster_name=weir".to_owned(),
                format!("--cluster={route}"),
                format!("--routes={list}"),
            ];
            Self::start_with(more.to_vec())
        })
    }

    fn run(&mut self) {
        let folder = std::env::temp_dir().join(format!("weir-nats-{}", self.port));
        let mut command = Command::new("nats-server");
        command.args([
            "-a",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-js",
            "-sd",
        ]);
        command.arg(folder).args(&self.more).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("nats-server in PATH"));
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    fn servers(&self) -> NatsServers {
        servers(std::slice::from_ref(self))
    }

    fn join(&self, id: RelayId) -> anyhow::Result<NatsRegistry> {
        join(self.servers(), id)
    }
}

fn servers(all: &[Server]) -> NatsServers {
    let urls = all
        .iter()
        .map(|server| format!("nats://127.0.0.1:{}", server.port));
    let urls: Vec<String> = urls.collect();
    NatsServers::parse("--fleet", &urls.join(","), None).unwrap()
}

fn join(servers: NatsServers, id: RelayId) -> anyhow::Result<NatsRegistry> {
    join_when(servers, id, || true)
}

/// Joins as a relay whose name service knows the others when `is_known` says so.
fn join_when(
    servers: NatsServers,
    id: RelayId,
    is_known: impl Fn() -> bool + Send + Sync + 'static,
) -> anyhow::Result<NatsRegistry> {
    let own = Own {
        id,
        url: "moqt://127.0.0.1:4443".to_owned(),
        scope: Scope::new("test")?,
    };
    let targets: Targets = Arc::new(move |url: &str| {
        if !is_known() {
            bail!("the host has no address");
        }
        let url: RelayUrl = url.parse()?;
        Ok((
            url.to_string(),
            client_target(&url, &TrustChoice::Anyone, &crate::run::protocols())?,
        ))
    });
    NatsRegistry::join(servers, own, targets, Waker::new()?)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let folder = std::env::temp_dir().join(format!("weir-nats-{}", self.port));
        drop(std::fs::remove_dir_all(folder));
    }
}

impl Setting for Server {
    fn join(&mut self, relay: RelayId) -> Box<dyn Registry> {
        Box::new(Self::join(self, relay).unwrap())
    }

    fn pass(&mut self) -> Instant {
        std::thread::park_timeout(Duration::from_millis(20));
        clock::now()
    }

    fn set_reachable(&mut self, is_reachable: bool) {
        if is_reachable {
            self.run();
        } else {
            self.stop();
        }
    }
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn nats_does_what_a_registry_has_to_do() {
    conformance::check(&mut Server::start());
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn ten_thousand_namespaces_change_five_hundred_times_a_second() {
    let mut server = Server::start();
    conformance::check_many(&mut server, 10_000, (500, Duration::from_secs(10)));
    // What came, what came and went, renewals, and everything once more when the relay left; never all of it again.
    let [leases, registrations] = written(&server);
    assert!(
        registrations <= 25_100 + leases * 170,
        "{registrations} beside {leases}"
    );
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn a_relay_whose_name_is_known_later_is_found() {
    let server = Server::start();
    let lookups = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = Arc::clone(&lookups);
    let is_known = move || counted.fetch_add(1, Ordering::AcqRel) > 0;
    let mut late = join_when(server.servers(), RelayId(2), is_known).unwrap();
    let mut named = server.join(RelayId(1)).unwrap();
    let namespace = Namespace::new(["x"]).unwrap();
    named.register(clock::now(), &namespace);
    let until = clock::now() + Duration::from_mins(1);
    loop {
        assert!(clock::now() < until, "{lookups:?} lookups");
        if let Some(RegistryEvent::Found { .. }) = late.poll(clock::now()) {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(lookups.load(Ordering::Acquire), 2);
}

/// A relay of a cluster, and what it was told.
struct Told {
    registry: NatsRegistry,
    is_current: bool,
    known: BTreeSet<String>,
    losses: usize,
}

impl Told {
    fn take_events(&mut self) {
        while let Some(event) = self.registry.poll(clock::now()) {
            match event {
                RegistryEvent::Found { namespace, .. } => {
                    self.known.insert(namespace.to_string());
                }
                RegistryEvent::Lost { .. } => self.losses += 1,
                RegistryEvent::Joined { .. } | RegistryEvent::Left { .. } => {}
                RegistryEvent::Stale => self.is_current = false,
                RegistryEvent::Current => self.is_current = true,
            }
        }
    }
}

/// Lets the relays take events until a condition holds.
fn wait_until(relays: &mut [Told; 2], step: &str, is_so: impl Fn(&[Told; 2]) -> bool) {
    let until = clock::now() + Duration::from_mins(1);
    loop {
        relays.iter_mut().for_each(Told::take_events);
        if is_so(relays) {
            return;
        }
        assert!(clock::now() < until, "{step}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Waits until the servers take a change of the registry.
fn wait_for_quorum(servers: &NatsServers) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let client = servers.client("test", 16).await.unwrap();
        let context = ContextBuilder::new().build(client);
        let brief = Duration::from_millis(500);
        let put = async || {
            let store = context.get_key_value("weir-fleet").await.ok()?;
            store.put("probe", "".into()).await.ok()
        };
        while !matches!(tokio::time::timeout(brief, put()).await, Ok(Some(_))) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn a_cluster_that_gets_its_quorum_back_is_whole_within_a_lease() {
    let mut cluster = Server::cluster();
    let urls = servers(&cluster);
    let mut relays = [1, 2].map(|number| Told {
        registry: join(urls.clone(), RelayId(number)).unwrap(),
        is_current: false,
        known: BTreeSet::new(),
        losses: 0,
    });
    let all_are_current = |relays: &[Told; 2]| relays.iter().all(|relay| relay.is_current);
    wait_until(&mut relays, "both join", all_are_current);
    let name = |name: &str| Namespace::new([name]).unwrap();
    relays[0].registry.register(clock::now(), &name("x"));
    wait_until(&mut relays, "found", |relays| relays[1].known.contains("x"));
    cluster[1..].iter_mut().for_each(Server::stop);
    wait_until(&mut relays, "the quorum is lost", |relays| {
        relays.iter().all(|relay| !relay.is_current)
    });
    relays[0].registry.register(clock::now(), &name("y"));
    cluster[1..].iter_mut().for_each(Server::run);
    wait_for_quorum(&urls);
    let back_at = clock::now();
    wait_until(&mut relays, "all is whole", |relays| {
        all_are_current(relays) && relays[1].known.contains("y")
    });
    let took = clock::now() - back_at;
    println!("whole {took:?} after the quorum was back");
    assert!(took < LEASE, "{took:?}");
    assert_eq!(relays[1].losses, 0, "nothing was lost meanwhile");
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn a_bucket_of_another_version_is_refused() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let mut client = server.servers().client("test", 16).await;
        while client.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            client = server.servers().client("test", 16).await;
        }
        let context = ContextBuilder::new().build(client.unwrap());
        let config = || kv::Config {
            bucket: "weir-fleet".to_owned(),
            description: "weir fleet, version 99".to_owned(),
            ..kv::Config::default()
        };
        while context.create_key_value(config()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let error = server.join(RelayId(1)).unwrap_err().to_string();
    assert!(error.contains("version 99"), "{error}");
}

/// Returns how many messages the buckets of leases and of registrations have taken.
fn written(server: &Server) -> [u64; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let client = server.servers().client("test", 16).await.unwrap();
        let context = ContextBuilder::new().build(client);
        let mut counts = [0; 2];
        for (count, name) in counts.iter_mut().zip(["weir-fleet-leases", "weir-fleet"]) {
            let store = context.get_key_value(name).await.unwrap();
            *count = store.stream.cached_info().state.last_sequence;
        }
        counts
    })
}

#[test]
#[ignore = "needs nats-server: make test-fleet"]
fn a_relay_with_many_namespaces_writes_little() {
    let server = Server::start();
    let mut relays = [1, 2].map(|number| server.join(RelayId(number)).unwrap());
    for number in 0..300 {
        let namespace = Namespace::new([format!("n{number}")]).unwrap();
        relays[0].register(clock::now(), &namespace);
    }
    let pass = || std::thread::park_timeout(Duration::from_millis(20));
    let until = clock::now() + Duration::from_mins(1);
    let mut found = 0;
    while found < 300 {
        while let Some(event) = relays[1].poll(clock::now()) {
            found += u64::from(matches!(event, RegistryEvent::Found { .. }));
        }
        assert!(clock::now() < until, "{found} were found");
        pass();
    }
    assert_eq!(relays[1].poll_timeout(), None, "nothing waits");
    let before = written(&server);
    while written(&server)[0] < before[0] + 6 {
        assert!(clock::now() < until, "leases are not renewed");
        pass();
    }
    let after = written(&server);
    let [leases, registrations] = [0, 1].map(|place| after[place] - before[place]);
    // With each renewal of its lease, a relay renews a sixtieth of its registrations.
    assert!(
        registrations <= (leases + 2) * 6,
        "{registrations} beside {leases}"
    );
}
