//! Two endpoints under one virtual clock, with a link of 1 ms between them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use weir_quic::tls::{ClientTls, ServerTls, Trust};
use weir_quic::{App, ClientConfig, Endpoint, EndpointConfig, Limits, TimeSource};

use super::load::{Load, StartRule};
use crate::clock::{RunClock, any_instant};
use crate::measured::Measured;
use crate::metrics::TrackPlan;
use crate::null_relay::{Faults, NullRelay};
use crate::outcome::{self, Judged, Surroundings};
use crate::part::Part;
use crate::profile::Profile;
use crate::publisher::{PublishFlow, PublisherConfig};
use crate::qperf::Wire;
use crate::scenario::Scenario;
use crate::subscriber::{SubscribeFlow, SubscribeRequest, SubscriberConfig};
use weir_client::target::Target;
use weir_link::Bitrate;
use weir_moqt::draft::Draft;
use weir_report::relay::{Generator, Relay, Report, Run};
use weir_report::service_level::ServiceLevel;

pub(crate) const CLIENTS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
pub(crate) const RELAY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2);

/// The options of a run that a test can change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) subscribers: usize,
    pub(super) flow: PublishFlow,
    pub(super) subscribe_flow: SubscribeFlow,
    pub(super) start: StartRule,
    pub(super) wire: Wire,
    pub(super) faults: Faults,
    pub(super) protocol: &'static str,
    /// The rate of the path from the relay to the clients; `None` if it is unlimited.
    pub(super) rate: Option<Bitrate>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            subscribers: 3,
            flow: PublishFlow::PublishNamespace,
            subscribe_flow: SubscribeFlow::Subscribe,
            start: StartRule::WhenServed {
                limit: Duration::from_secs(10),
            },
            wire: Wire::Draft,
            faults: Faults::default(),
            protocol: Draft::ALL[0].alpn(),
            rate: None,
        }
    }
}

/// A load, a relay, and the time.
pub(super) struct World {
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) load: Load,
    profile: Profile,
    clients: Endpoint,
    relay: NullRelay,
    server: Endpoint,
    /// Packets on their way: arrival time, whether the relay is the destination, and bytes.
    wire: VecDeque<(Instant, bool, BytesMut)>,
    pub(super) cut: bool,
    rate: Option<Bitrate>,
    /// When the path to the clients has sent what it was given.
    path_free: Instant,
}

struct Midnight;

impl TimeSource for Midnight {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

fn endpoint(server: Option<ServerTls>, seed: u8) -> Endpoint {
    Endpoint::new(EndpointConfig {
        limits: Limits::default(),
        server,
        seed: [seed; 32],
        time_source: Arc::new(Midnight),
        qlog: None,
        packets: weir_quic::Packets::default(),
        segmentation_offload: false,
        handshake_counts: weir_quic::OriginCounts::default(),
    })
    .unwrap()
}

/// Returns the relay as a target for clients that speak `protocol`, their endpoint, and the relay's.
pub(crate) fn endpoints(protocol: &'static str) -> (Target, Endpoint, Endpoint) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let chain = vec![certified.cert.der().clone()];
    let server = ServerTls::new(chain, key.into(), &[Draft::ALL[0].alpn(), "other"]).unwrap();
    let client = ClientConfig {
        tls: ClientTls::new(Trust::Anyone, &[protocol]).unwrap(),
        web_transport: None,
    };
    let target = Target::new(RELAY, "localhost", client);
    (target, endpoint(None, 1), endpoint(Some(server), 2))
}

impl World {
    pub(super) fn new(profile: &str, options: Options) -> Self {
        let (target, clients, server) = endpoints(options.protocol);
        let start = any_instant();
        let profile = Profile::parse("test.ini", profile.as_bytes()).unwrap();
        let clock = RunClock::new(start, 5_000_000_000);
        let scenario = Scenario::fan_out(&profile, options.subscribers, 42).unwrap();
        let plans: Arc<[TrackPlan]> = (0u64..)
            .zip(&profile.tracks)
            .map(|(number, track)| TrackPlan::new(track, number, 42, clock).on(options.wire))
            .collect();
        let publishers = PublisherConfig {
            target: target.clone(),
            plans: Arc::clone(&plans),
            part: Part::whole(scenario.publishers.len()),
            publishers: scenario.publishers,
            flow: options.flow,
            ramp_per_second: 0,
            await_subscribers: None,
        };
        let subscribers = SubscriberConfig {
            target,
            plans,
            part: Part::whole(scenario.subscribers.len()),
            subscribers: scenario.subscribers,
            flow: options.subscribe_flow,
            request: SubscribeRequest {
                delivery_timeout: true,
                ..SubscribeRequest::default()
            },
            ramp_per_second: 100,
            audience: profile.audience,
            start_timeout: Duration::from_secs(20),
            verify_content: true,
            announce_as: None,
        };
        Self {
            start,
            now: start,
            load: Load::new(publishers, subscribers, options.start, start),
            profile,
            clients,
            relay: NullRelay::with_faults(options.faults),
            server,
            wire: VecDeque::new(),
            cut: false,
            rate: options.rate,
            path_free: start,
        }
    }

    /// Runs until the load is finished, for at most two minutes of virtual time.
    pub(super) fn run(&mut self) {
        self.run_while(|load| !load.is_finished());
        assert!(self.load.is_finished(), "the run came to no end");
    }

    /// Runs while `condition` holds, for at most two minutes of virtual time.
    pub(super) fn run_while(&mut self, condition: impl Fn(&Load) -> bool) {
        let limit = self.start + Duration::from_mins(2);
        while condition(&self.load) && self.now < limit {
            self.step();
        }
    }

    /// Returns the report of the run by the default service level, without the host's figures.
    pub(super) fn report(&self) -> Report {
        outcome::report(
            &self.profile,
            self.load.subscribers().plans(),
            &Measured::of(self.load.publishers(), self.load.subscribers()),
            &ServiceLevel::default(),
            Surroundings {
                run: Run::default(),
                relay: Relay::default(),
                generator: Generator {
                    healthy: true,
                    ..Generator::default()
                },
                judged: Judged::default(),
                clock_error: Some(Duration::ZERO),
            },
        )
    }

    /// Returns the number of streams that the relay forwarded.
    pub(super) fn streams_forwarded(&self) -> u64 {
        self.relay.forwarding().streams
    }

    /// Interrupts the run, as Ctrl-C does.
    pub(super) fn interrupt(&mut self) {
        self.load.handle_shutdown(self.now, &mut self.clients);
    }

    /// Closes all connections of the relay.
    pub(super) fn kill_relay(&mut self) {
        self.relay.handle_shutdown(self.now, &mut self.server);
    }

    fn step(&mut self) {
        turn(self.now, &mut self.clients, &mut self.load);
        turn(self.now, &mut self.server, &mut self.relay);
        for (to_relay, endpoint) in [(true, &mut self.clients), (false, &mut self.server)] {
            while endpoint.fill(self.now) | !endpoint.outbox().is_empty() {
                for packet in endpoint.outbox().iter() {
                    let sent = match self.rate {
                        Some(rate) if !to_relay => {
                            let ns = packet.data.len() as u64 * 8_000_000_000;
                            let ns = ns / rate.bits_per_second();
                            self.path_free =
                                self.path_free.max(self.now) + Duration::from_nanos(ns);
                            self.path_free
                        }
                        Some(_) | None => self.now,
                    };
                    let arrival = sent + Duration::from_millis(1);
                    let bytes = BytesMut::from(packet.data);
                    let place = self.wire.partition_point(|(at, ..)| *at <= arrival);
                    self.wire.insert(place, (arrival, to_relay, bytes));
                }
                endpoint.outbox().clear();
            }
        }
        self.now = self.next_time();
        while self
            .wire
            .front()
            .is_some_and(|(arrival, ..)| *arrival <= self.now)
        {
            let Some((_, to_relay, data)) = self.wire.pop_front() else {
                break;
            };
            if self.cut {
                continue;
            }
            let (endpoint, from) = if to_relay {
                (&mut self.server, CLIENTS)
            } else {
                (&mut self.clients, RELAY)
            };
            endpoint.handle_packet(self.now, 0, from, None, None, data);
        }
    }

    fn next_time(&self) -> Instant {
        let wire = self.wire.front().map(|(arrival, ..)| *arrival);
        let timeouts = [
            self.clients.poll_timeout(),
            self.server.poll_timeout(),
            self.load.poll_timeout(),
        ];
        let next = timeouts.into_iter().flatten().chain(wire).min();
        next.unwrap_or(self.now + Duration::from_secs(1))
            .max(self.now)
    }
}

/// Passes events and the time to `app`.
pub(crate) fn turn(now: Instant, endpoint: &mut Endpoint, app: &mut dyn App) {
    endpoint.handle_timeout(now);
    while let Some(event) = endpoint.poll_event() {
        app.handle_event(now, endpoint, event);
    }
    if app.poll_timeout().is_some_and(|at| at <= now) {
        app.handle_timeout(now, endpoint);
    }
}
