//! The registry with a real NATS server.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use async_nats::jetstream::context::ContextBuilder;
use weir_relay::registry::conformance::{self, Setting};

use super::*;
use crate::run::{RelayUrl, TrustChoice, client_target};

/// A NATS server that can be stopped and started again, and forgets everything then.
struct Server {
    port: u16,
    child: Option<Child>,
}

impl Server {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut server = Self { port, child: None };
        server.run();
        server
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
        command.arg(folder).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("nats-server in PATH"));
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    fn servers(&self) -> NatsServers {
        let url = format!("nats://127.0.0.1:{}", self.port);
        NatsServers::parse("--fleet", &url, None).unwrap()
    }

    fn join(&self, id: RelayId) -> anyhow::Result<NatsRegistry> {
        let own = Own {
            id,
            url: "moqt://127.0.0.1:4443".to_owned(),
            scope: Scope::new("test")?,
        };
        let targets: Targets = Arc::new(|url: &str| {
            let url: RelayUrl = url.parse()?;
            Ok((
                url.to_string(),
                client_target(&url, &TrustChoice::Anyone, &crate::run::protocols())?,
            ))
        });
        NatsRegistry::join(self.servers(), own, targets, Waker::new()?)
    }
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
