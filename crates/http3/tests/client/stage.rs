//! A server and a load client in a simulation.

use std::{sync::Arc, time::Duration};

use weir_http3::{
    Limits,
    client::{Client, Figures, Greeting, Load, Target, transport_limits},
    server::{Config, Server, Site, SiteLimits},
};
use weir_link::{Delay, Loss, Probability};
use weir_quic::{
    App, ClientConfig,
    tls::{ClientTls, ServerTls, Sessions, Trust},
};
use weir_sim::{End, NodeConfig, NodeId, SERVER_NAME, Sim, certificate};

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// How long a connection may be silent.
const IDLE_TIMEOUT: Duration = millis(400);

/// A simulation with a server. The load can be changed before the client starts.
pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) server: NodeId,
    pub(crate) client: NodeId,
    pub(crate) load: Load,
    pub(crate) config: ClientConfig,
}

impl Stage {
    /// weir's server, 10 ms away in each direction, so that six requests are complete in 20 ms.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, files(), &[weir_h3::ALPN])
    }

    /// Another server.
    pub(crate) fn with(seed: u64, server: impl App + 'static, protocols: &[&str]) -> Self {
        let mut stage = Self::silent(seed, protocols);
        let node = stage.server;
        stage.sim.start(node, server);
        stage
    }

    /// A server that is not running.
    pub(crate) fn silent(seed: u64, protocols: &[&str]) -> Self {
        let limits = weir_quic::Limits::default();
        Self::silent_with(seed, protocols, 1000, limits, IDLE_TIMEOUT)
    }

    /// A server that never allows a request, with this idle timeout.
    pub(crate) fn stingy(server: impl App + 'static, idle_timeout: Duration) -> Self {
        let limits = weir_quic::Limits {
            bidi_streams_max: 0,
            ..weir_quic::Limits::default()
        };
        let mut stage = Self::silent_with(1, &[weir_h3::ALPN], 1000, limits, idle_timeout);
        let node = stage.server;
        stage.sim.start(node, server);
        stage
    }

    /// weir's server without session tickets.
    pub(crate) fn forgetful(seed: u64) -> Self {
        let limits = weir_quic::Limits::default();
        let mut stage = Self::silent_with(seed, &[weir_h3::ALPN], 0, limits, IDLE_TIMEOUT);
        let node = stage.server;
        stage.sim.start(node, files());
        stage
    }

    fn silent_with(
        seed: u64,
        protocols: &[&str],
        sessions_max: usize,
        limits: weir_quic::Limits,
        idle_timeout: Duration,
    ) -> Self {
        let mut sim = Sim::new(seed);
        sim.set_default_link(weir_link::Config {
            delay: Delay::fixed(millis(10)).expect("short"),
            ..weir_link::Config::default()
        });
        let shown = certificate();
        let tls = ServerTls::with_sessions(shown.chain, shown.key, protocols, sessions_max);
        let server = sim.add_node(NodeConfig {
            limits,
            server: Some(tls.expect("the certificate belongs to its key")),
            ..NodeConfig::default()
        });
        let client = sim.add_node(NodeConfig {
            limits: transport_limits(idle_timeout),
            ..NodeConfig::default()
        });
        let load = Load {
            target: Target {
                address: sim.address(server),
                server_name: SERVER_NAME.to_owned(),
                authority: SERVER_NAME.to_owned(),
                paths: vec!["/1k".to_owned()],
            },
            connections: 2,
            requests_per_connection: None,
            requests_at_once: 3,
            requests_max: None,
            rate_per_second: None,
            duration: secs(1),
            handshake_timeout: millis(300),
            expected_bytes: None,
            greeting: Greeting::Patient,
            sockets: 2,
        };
        let config = config(Sessions::Resumed, Trust::Roots(certificate().chain));
        Self {
            sim,
            server,
            client,
            load,
            config,
        }
    }

    /// Makes connections short: one request each.
    pub(crate) fn short(mut self, sessions: Sessions) -> Self {
        self.load.requests_per_connection = Some(1);
        self.load.requests_at_once = 1;
        self.config = config(sessions, Trust::Roots(certificate().chain));
        if sessions == Sessions::Early {
            self.load.greeting = Greeting::Early;
        }
        self
    }

    /// Loses this share of the packets in both directions.
    pub(crate) fn lossy(mut self, ratio: f64) -> Self {
        let config = weir_link::Config {
            delay: Delay::fixed(millis(10)).expect("short"),
            loss: Loss::Independent(Probability::new(ratio).expect("from 0 to 1")),
            ..weir_link::Config::default()
        };
        self.sim.set_path(self.server, self.client, config);
        self
    }

    /// Restarts weir's server without its memory, as after a crash.
    pub(crate) fn restart_server(&mut self) {
        let node = self.server;
        self.sim.start(node, files());
    }

    /// Starts the client.
    pub(crate) fn start(&mut self) {
        let client = Client::new(
            self.load.clone(),
            self.config.clone(),
            Limits::default(),
            self.sim.now(),
        );
        let client = client.expect("the load is within the limits");
        self.sim.start(self.client, client);
    }

    /// Runs the client to its end, which must come within a tenth of a second after its duration.
    pub(crate) fn run(&mut self) -> Figures {
        self.start();
        let node = self.client;
        let limit = self.load.duration + millis(100);
        let end = self.sim.run_until(limit, |sim| !sim.is_busy(node));
        assert_eq!(end, End::Finished, "the run ends in time");
        self.figures()
    }

    pub(crate) fn figures(&self) -> Figures {
        self.sim.app::<Client>(self.client).figures().clone()
    }
}

/// Returns weir's server with two files.
fn files() -> Server {
    let mut site = Site::new(SiteLimits {
        made_bytes_max: 0,
        ..SiteLimits::default()
    });
    for (path, length) in [("/1k", 1 << 10), ("/15k", 15 << 10)] {
        site.add(path, &vec![7; length]).expect("a small file");
    }
    Server::new(Config::default(), Arc::new(site))
}

fn config(sessions: Sessions, trust: Trust) -> ClientConfig {
    let tls = ClientTls::with_sessions(trust, &[weir_h3::ALPN], sessions);
    ClientConfig {
        tls: tls.expect("the certificate is a well-formed one"),
        web_transport: None,
    }
}

/// Returns the configuration of a client that does not trust the server.
pub(crate) fn distrustful() -> ClientConfig {
    config(Sessions::Resumed, Trust::Hashes(vec![[0; 32]]))
}
