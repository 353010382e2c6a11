//! Stories of the server in virtual time, with real QUIC between it and a client that records the results.
//!
//! A story prints its seed, and `WEIR_SEED` sets another one. Each story runs twice, with equal results.

#![expect(clippy::print_stdout, reason = "stories print their seed")]
#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

mod client;

use std::{sync::Arc, time::Duration};

use weir_http3::server::{Config, Counters, Server, Site, SiteLimits};
use weir_link::{Bitrate, Config as LinkConfig, Delay, Loss, Probability, Rate};
use weir_quic::Limits;
use weir_sim::{End, NodeConfig, NodeId, Sim};

use crate::client::{FileClient, Got};

const DELAY: Duration = Duration::from_millis(10);

/// A server and a client, with a link of [`DELAY`] each way.
struct Stage {
    sim: Sim,
    server: NodeId,
    client: NodeId,
}

impl Stage {
    fn new(seed: u64, limits: Limits, paths: &[&str]) -> Self {
        Self::with(seed, limits, Limits::default(), paths)
    }

    fn with(seed: u64, limits: Limits, client_limits: Limits, paths: &[&str]) -> Self {
        Self::with_config(seed, Config::default(), (limits, client_limits), paths)
    }

    fn with_config(
        seed: u64,
        config: Config,
        (limits, client_limits): (Limits, Limits),
        paths: &[&str],
    ) -> Self {
        let mut sim = Sim::new(seed);
        sim.set_default_link(link());
        let mut site = Site::new(SiteLimits {
            made_bytes_max: 4 << 20,
            ..SiteLimits::default()
        });
        site.add("/file", &[7; 5000]).unwrap();
        let server = sim.add_node(NodeConfig {
            server: Some(sim.server_tls(&[weir_h3::ALPN])),
            limits,
            ..NodeConfig::default()
        });
        sim.start(server, Server::new(config, Arc::new(site)));
        let client = sim.add_node(NodeConfig {
            limits: client_limits,
            ..NodeConfig::default()
        });
        let config = sim.client_config(&[weir_h3::ALPN]);
        let app = FileClient::new(sim.now(), config, sim.address(server), paths);
        sim.start(client, app);
        Self {
            sim,
            server,
            client,
        }
    }

    fn wait(&mut self) {
        let client = self.client;
        let end = self
            .sim
            .run_until(Duration::from_mins(1), |sim| !sim.is_busy(client));
        assert_eq!(end, End::Finished, "at {:?}", self.sim.elapsed());
    }

    /// Waits for the server to close the connection. Returns its code.
    fn wait_for_close(&mut self) -> Option<u64> {
        let client = self.client;
        self.sim.run_until(Duration::from_mins(1), |sim| {
            sim.app::<FileClient>(client).closed_with().is_some()
        });
        self.client().closed_with()
    }

    fn client(&self) -> &FileClient {
        self.sim.app(self.client)
    }

    fn counters(&self) -> Counters {
        self.sim.app::<Server>(self.server).counters()
    }
}

fn link() -> LinkConfig {
    LinkConfig {
        delay: Delay::fixed(DELAY).unwrap(),
        ..LinkConfig::default()
    }
}

/// Runs a story twice.
fn tell(story: impl Fn(u64) -> u64) {
    let seed = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(5);
    println!("WEIR_SEED={seed}");
    assert_eq!(story(seed), story(seed), "the story went two ways");
}

fn ok(bytes: usize) -> Got {
    Got::Answer(200, bytes)
}

#[test]
fn everything_arrives_however_bad_the_link() {
    tell(|seed| {
        let paths = ["/file", "/15k", "/none", "/2m", "/1k", "/50k", "/"];
        let mut stage = Stage::new(seed, Limits::default(), &paths);
        let bad = LinkConfig {
            rate: Rate::Fixed(Bitrate::from_megabits_per_second(20)),
            loss: Loss::Independent(Probability::new(0.03).unwrap()),
            ..link()
        };
        stage.sim.set_path(stage.server, stage.client, bad);
        stage.wait();
        let expected = [
            ok(5000),
            ok(15 << 10),
            Got::Answer(404, 0),
            ok(2 << 20),
            ok(1 << 10),
            ok(50 << 10),
            Got::Answer(404, 0),
        ];
        assert_eq!(stage.client().got(), expected);
        let counters = stage.counters();
        assert_eq!((counters.requests, counters.answers_ok), (7, 5));
        assert_eq!((counters.violations, counters.answers_refused), (0, 2));
        stage.sim.trace_hash()
    });
}

#[test]
fn an_answer_larger_than_all_windows() {
    tell(|seed| {
        let limits = Limits {
            send_bytes_max: 10_000,
            ..Limits::default()
        };
        let mut stage = Stage::new(seed, limits, &["/100k", "/file", "/100k"]);
        stage.wait();
        let expected = [ok(100 << 10), ok(5000), ok(100 << 10)];
        assert_eq!(stage.client().got(), expected);
        stage.sim.trace_hash()
    });
}

#[test]
fn a_server_that_stops_finishes_what_it_has_begun() {
    tell(|seed| {
        let mut stage = Stage::new(seed, Limits::default(), &["/2m"]);
        let slow = LinkConfig {
            rate: Rate::Fixed(Bitrate::from_megabits_per_second(20)),
            ..link()
        };
        let (server, client) = (stage.server, stage.client);
        stage.sim.set_path(server, client, slow);
        // The response takes 0.9 s. In the middle of it the server is asked to stop; then the client sends more
        // requests.
        stage
            .sim
            .at(Duration::from_millis(300), move |sim| sim.shutdown(server));
        stage.sim.at(Duration::from_millis(400), move |sim| {
            sim.with_app(client, |now, app: &mut FileClient, endpoint| {
                app.ask(now, endpoint, "/file");
            });
        });
        stage.wait();
        let rejected = Got::Reset(weir_h3::Code::REQUEST_REJECTED.0);
        assert_eq!(stage.client().got(), [ok(2 << 20), rejected]);
        assert_eq!(stage.client().goaway(), Some(4));
        let end = stage
            .sim
            .run_until(Duration::from_secs(10), |sim| !sim.is_busy(server));
        assert_eq!(end, End::Finished);
        assert_eq!(stage.wait_for_close(), Some(weir_h3::Code::NO_ERROR.0));
        assert!(stage.sim.elapsed() < Duration::from_secs(3), "at once");
        stage.sim.trace_hash()
    });
}

#[test]
fn a_server_that_stops_does_not_wait_for_ever() {
    tell(|seed| {
        let mut stage = Stage::new(seed, Limits::default(), &["/2m"]);
        let (server, client) = (stage.server, stage.client);
        let crawling = LinkConfig {
            rate: Rate::Fixed(Bitrate::from_kilobits_per_second(200)),
            ..link()
        };
        stage.sim.set_path(server, client, crawling);
        stage
            .sim
            .at(Duration::from_secs(2), move |sim| sim.shutdown(server));
        let end = stage
            .sim
            .run_until(Duration::from_secs(20), |sim| !sim.is_busy(server));
        assert_eq!(end, End::Finished);
        let limit = Duration::from_secs(2) + Config::default().drain_max;
        let end = stage.sim.elapsed();
        assert!(end >= limit && end < limit + DELAY, "{end:?}");
        stage.sim.trace_hash()
    });
}

#[test]
fn connections_from_one_address_up_to_the_limit_are_served() {
    for (connections_per_address_max, is_served) in [(1, true), (0, false)] {
        tell(|seed| {
            let config = Config {
                connections_per_address_max,
                ..Config::default()
            };
            let mut stage = Stage::with_config(seed, config, Default::default(), &["/file"]);
            if is_served {
                stage.wait();
                assert_eq!(stage.client().got(), [ok(5000)]);
            } else {
                let code = weir_h3::Code::EXCESSIVE_LOAD.0;
                assert_eq!(stage.wait_for_close(), Some(code));
            }
            let counters = stage.counters();
            let counted = (counters.connections, counters.connections_refused);
            let expected = if is_served { (1, 0) } else { (0, 1) };
            assert_eq!(counted, expected);
            stage.sim.trace_hash()
        });
    }
}

#[test]
fn a_client_that_accepts_nothing_does_not_keep_its_responses() {
    tell(|seed| {
        let client_limits = Limits {
            stream_receive_bytes_max: 100,
            keep_alive: Some(Duration::from_secs(10)),
            ..Limits::default()
        };
        let paths = ["/64k", "/65k"];
        let mut stage = Stage::with(seed, Limits::default(), client_limits, &paths);
        let client = stage.client;
        stage
            .sim
            .with_app(client, |_, app: &mut FileClient, _| app.hold());
        // The client accepts 100 bytes of each at first.
        for (stalled, seconds) in [(0, 59), (2, 61)] {
            let end = Duration::from_secs(seconds);
            assert_eq!(stage.sim.run_until(end, |_| false), End::Deadline);
            assert_eq!(stage.counters().answers_stalled, stalled);
        }
        stage
            .sim
            .with_app(client, |now, app: &mut FileClient, endpoint| {
                app.read_on(now, endpoint);
                app.ask(now, endpoint, "/file");
            });
        let end = Duration::from_secs(80);
        let end = stage.sim.run_until(end, |sim| !sim.is_busy(client));
        assert_eq!(end, End::Finished);
        let given_up = Got::Reset(weir_h3::Code::REQUEST_CANCELLED.0);
        assert_eq!(stage.client().got(), [given_up, given_up, ok(5000)]);
        stage.sim.trace_hash()
    });
}

#[test]
fn a_client_that_breaks_a_rule_is_told_which() {
    tell(|seed| {
        let mut stage = Stage::new(seed, Limits::default(), &["/1k"]);
        let client = stage.client;
        stage.sim.at(Duration::from_secs(1), move |sim| {
            sim.with_app(client, |now, app: &mut FileClient, endpoint| {
                // DATA in place of a head.
                app.send(now, endpoint, &[0x00, 0x01, 0x07]);
            });
        });
        let code = weir_h3::Code::FRAME_UNEXPECTED.0;
        assert_eq!(stage.wait_for_close(), Some(code));
        assert_eq!(stage.counters().violations, 1);
        stage.sim.trace_hash()
    });
}
