//! Measures the relay's memory per session (`make memory`): idle, and with a subscription to a track that is being sent.
//!
//! Many clients connect to a relay in another process, over loopback, and stay idle. The program reads the relay's resident
//! memory, then subscribes all clients to a track of 120-byte datagrams every 20 ms, and reads the memory again. Each growth,
//! divided by the number of sessions, is the cost of one. Memory of a relay without sessions does not count.
//!
//! The program prints a table, and fails if a session costs more than its limit.

use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{ObjectDatagram, ObjectStatus},
    draft::Draft,
    limits,
    message::Setup,
    name::FullTrackName,
    parameter::Parameters,
    property::Properties,
    session::{self, RequestId, Session, Side},
};
use weir_net::{Host, HostConfig, SocketConfig, Stop, Telemetry, UdpSocket, clock};
use weir_quic::{
    App, ClientConfig, Connection, Endpoint, EndpointConfig, Event, Handle, Limits, Packets,
    tls::{ClientTls, Trust},
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(weir), sessions) = (arguments.next(), arguments.next()) else {
        return Err("usage: memory PROGRAM [SESSIONS]".into());
    };
    let sessions: u64 = sessions.map_or(Ok(SESSIONS), |text| text.parse())?;
    let mut relay = Relay::start(&weir)?;
    let crowd = Arc::new(Crowd::default());
    let stop = Stop::new()?;
    let thread = start(relay.address, sessions, Arc::clone(&crowd), stop.clone())?;

    // The first session allocates what all sessions share.
    wait("a publisher", || crowd.ready.load(Ordering::Relaxed) > 0)?;
    rest(SETTLING);
    let before = relay.resident()?;
    crowd.comes.store(true, Ordering::Relaxed);
    wait("all sessions", || {
        crowd.ready.load(Ordering::Relaxed) > sessions
    })?;
    rest(SETTLING);
    let idle = relay.resident()?.saturating_sub(before) / sessions;
    crowd.subscribes.store(true, Ordering::Relaxed);
    wait("all subscriptions", || {
        crowd.subscribed.load(Ordering::Relaxed) == sessions
    })?;
    rest(SPEECH);
    let active = relay.resident()?.saturating_sub(before) / sessions;
    let received = crowd.received.load(Ordering::Relaxed);
    stop.request();
    drop(thread.join());

    let mut out = io::stdout();
    writeln!(out, "| sessions | idle | subscribed to a speech |")?;
    writeln!(out, "|---|---|---|")?;
    writeln!(
        out,
        "| {sessions} | {} kB | {} kB |",
        idle.div_ceil(KILOBYTE),
        active.div_ceil(KILOBYTE)
    )?;
    if received == 0 {
        return Err("nobody was sent anything".into());
    }
    if idle > IDLE_MAX || active > ACTIVE_MAX {
        return Err(format!("more than {IDLE_MAX} or {ACTIVE_MAX} bytes").into());
    }
    Ok(())
}

/// The relay's process.
struct Relay {
    process: Child,
    address: SocketAddr,
}

impl Relay {
    fn start(program: &str) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(program)
            .args(["relay", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = process.stdout.take().ok_or("the relay has no output")?;
        BufReader::new(out).read_line(&mut line)?;
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let address = ready["listening"]
            .as_str()
            .ok_or("the relay says no address")?;
        let address = address.parse()?;
        Ok(Self { process, address })
    }

    /// Returns the resident memory of the process, in bytes.
    fn resident(&mut self) -> Result<u64, Box<dyn Error>> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        Ok(number.ok_or("no VmRSS")?.parse::<u64>()? * 1024)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The task of the clients, and how many have completed it.
#[derive(Default)]
struct Crowd {
    comes: AtomicBool,
    subscribes: AtomicBool,
    ready: AtomicU64,
    subscribed: AtomicU64,
    received: AtomicU64,
}

fn start(
    relay: SocketAddr,
    sessions: u64,
    crowd: Arc<Crowd>,
    stop: Stop,
) -> Result<std::thread::JoinHandle<Result<(), io::Error>>, Box<dyn Error>> {
    let endpoint = Endpoint::new(EndpointConfig {
        limits: Limits::default(),
        server: None,
        seed: [7; 32],
        time_source: Arc::new(clock::SystemClock),
        qlog: None,
        packets: Packets::default(),
        segmentation_offload: false,
    })?;
    let socket = UdpSocket::bind(([127, 0, 0, 1], 0).into(), SocketConfig::default())?;
    let mut role = Clients {
        relay,
        config: ClientConfig {
            tls: ClientTls::new(Trust::Anyone, &[Draft::ALL[0].alpn()])?,
            web_transport: None,
        },
        track: "memory--speech".parse()?,
        sessions: BTreeMap::new(),
        publisher: None,
        publication: None,
        count: sessions + 1,
        waiting: Vec::new(),
        next: clock::now(),
        group: 0,
        crowd,
    };
    let run = move || {
        let telemetry = Arc::new(Telemetry::default());
        let sockets = vec![socket];
        let mut host = Host::new(HostConfig::default(), sockets, endpoint, telemetry, stop)?;
        host.run(&mut role)
    };
    Ok(std::thread::Builder::new().spawn(run)?)
}

/// The publisher and all subscribers.
struct Clients {
    relay: SocketAddr,
    config: ClientConfig,
    track: FullTrackName,
    sessions: BTreeMap<Handle, Session>,
    publisher: Option<Handle>,
    publication: Option<RequestId>,
    count: u64,
    /// Clients without a subscription.
    waiting: Vec<Handle>,
    next: Instant,
    group: u64,
    crowd: Arc<Crowd>,
}

impl Clients {
    fn with(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        act: impl FnOnce(&mut Session, &mut Connection<'_>),
    ) {
        if let (Some(session), Some(mut connection)) = (
            self.sessions.get_mut(&handle),
            endpoint.connection(now, handle),
        ) {
            act(session, &mut connection);
            while let Some(event) = session.poll_event() {
                if let session::Event::Ready { .. } = event {
                    self.crowd.ready.fetch_add(1, Ordering::Relaxed);
                    if self.publisher != Some(handle) {
                        self.waiting.push(handle);
                    }
                } else if let session::Event::Accepted { .. } = event
                    && self.publisher != Some(handle)
                {
                    self.crowd.subscribed.fetch_add(1, Ordering::Relaxed);
                } else if let session::Event::Rejected { .. } = event {
                    // The relay is overloaded at present: try again.
                    self.waiting.push(handle);
                }
            }
        }
    }

    fn connect(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let comes = self.crowd.comes.load(Ordering::Relaxed);
        let wanted = if comes { self.count } else { 1 };
        for _ in 0..EACH_TURN {
            if self.sessions.len() as u64 >= wanted {
                return;
            }
            let Ok(handle) = endpoint.connect(now, &self.config, self.relay, "localhost", 0) else {
                return;
            };
            let session = Session::new(session::Config {
                draft: Draft::ALL[0],
                side: Side::Client,
                limits: limits::Limits::default(),
                setup: Setup::default(),
            });
            self.sessions.insert(handle, session);
            self.publisher.get_or_insert(handle);
        }
    }

    fn subscribe(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if !self.crowd.subscribes.load(Ordering::Relaxed) {
            return;
        }
        let first = self.waiting.len().saturating_sub(EACH_TURN);
        for handle in self.waiting.split_off(first) {
            let track = self.track.clone();
            self.with(now, endpoint, handle, |session, connection| {
                // A request that is not sent shows: not all subscriptions are established.
                let _asked = session.subscribe(connection, track, Parameters::default());
            });
        }
    }

    fn publish(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some(publisher) = self.publisher else {
            return;
        };
        let (track, is_published) = (self.track.clone(), self.publication.is_some());
        let mut encoded = BytesMut::new();
        ObjectDatagram {
            track_alias: ALIAS,
            group: self.group,
            object: 0,
            priority: None,
            end_of_group: true,
            properties: Properties::EMPTY,
            status: ObjectStatus::Normal,
            payload: Bytes::from_static(&[7; 120]),
        }
        .encode(Draft::ALL[0], &mut encoded);
        let mut publication = None;
        self.with(now, endpoint, publisher, |session, connection| {
            if is_published {
                // Datagrams that do not fit are not sent.
                let _sent = connection.send_datagram(encoded.freeze(), None);
            } else if session.is_ready() {
                let none = Parameters::default();
                let asked = session.publish(connection, track, ALIAS, none, Properties::EMPTY);
                publication = asked.ok();
            }
        });
        self.group += u64::from(is_published);
        self.publication = self.publication.or(publication);
    }
}

impl App for Clients {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => {
                self.with(now, endpoint, handle, |session, connection| {
                    session.start(now, connection);
                });
            }
            Event::Opened {
                handle,
                stream,
                direction,
            } => self.with(now, endpoint, handle, |session, connection| {
                session.handle_opened(now, connection, stream, direction);
            }),
            Event::Readable { handle, stream } => {
                self.with(now, endpoint, handle, |session, connection| {
                    session.handle_readable(now, connection, stream);
                });
            }
            Event::StreamsAvailable { handle, direction } => {
                self.with(now, endpoint, handle, |session, connection| {
                    session.handle_streams_available(now, connection, direction);
                });
            }
            Event::Datagram { .. } => {
                self.crowd.received.fetch_add(1, Ordering::Relaxed);
            }
            Event::Lost { handle, .. } => drop(self.sessions.remove(&handle)),
            Event::Writable { .. } | Event::Stopped { .. } | Event::Finished { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.next = now + INTERVAL;
        self.connect(now, endpoint);
        self.subscribe(now, endpoint);
        self.publish(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
        self.sessions.clear();
    }

    fn is_finished(&self) -> bool {
        self.group > 0 && self.sessions.is_empty()
    }
}

fn rest(time: Duration) {
    let end = clock::now() + time;
    while clock::now() < end {
        std::thread::park_timeout(LOOK);
    }
}

fn wait(what: &str, is_there: impl Fn() -> bool) -> Result<(), Box<dyn Error>> {
    let end = clock::now() + TIME_MAX;
    while clock::now() < end {
        if is_there() {
            return Ok(());
        }
        std::thread::park_timeout(LOOK);
    }
    Err(format!("{what} did not come about").into())
}

const SESSIONS: u64 = 1000;
const KILOBYTE: u64 = 1000;
/// Most memory of an idle session.
const IDLE_MAX: u64 = 200 * KILOBYTE;
/// Most memory of a session with a subscription to a track that is being sent.
const ACTIVE_MAX: u64 = 256 * KILOBYTE;
const ALIAS: u64 = 1;
/// Clients that connect or subscribe at the same time.
const EACH_TURN: usize = 10;
/// Interval of the objects.
const INTERVAL: Duration = Duration::from_millis(20);
/// Idle time before memory is read.
const SETTLING: Duration = Duration::from_secs(5);
/// Time for which all subscribers are sent objects.
const SPEECH: Duration = Duration::from_secs(20);
const TIME_MAX: Duration = Duration::from_mins(3);
const LOOK: Duration = Duration::from_millis(50);
