//! A client of the relay that follows commands of a test, and records the events of its session.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use weir_moqt::{
    draft::Draft,
    limits,
    message::Setup,
    name::{FullTrackName, Namespace, TrackName},
    parameter::Parameters,
    session::{self, Session, Side},
    token::Token,
};
use weir_net::{Host, HostConfig, SocketConfig, Stop, Telemetry, UdpSocket, clock};
use weir_quic::{
    App, ClientConfig, Endpoint, EndpointConfig, Event, Handle, Limits,
    tls::{ClientTls, Trust},
    web_transport::Request,
};

use crate::process::wait_for;

/// How a client connects.
pub(crate) struct Arrival {
    pub(crate) tls: ClientTls,
    pub(crate) tokens: Vec<String>,
    pub(crate) path: Option<String>,
    /// Path of WebTransport; `None` for raw QUIC.
    pub(crate) web_path: Option<String>,
}

impl Default for Arrival {
    /// Over raw QUIC, trusting any certificate, without credentials.
    fn default() -> Self {
        Self {
            tls: ClientTls::new(Trust::Anyone, &PROTOCOLS).unwrap(),
            tokens: Vec::new(),
            path: None,
            web_path: None,
        }
    }
}

/// Commands for a client, and the events that it recorded.
#[derive(Default)]
struct Notes {
    announce: Vec<String>,
    subscribe: Vec<(String, String)>,
    heard: Vec<String>,
}

/// A client on its own thread.
pub(crate) struct Client {
    notes: Arc<Mutex<Notes>>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// Connects to a relay.
    pub(crate) fn connect(relay: SocketAddr, arrival: Arrival) -> Self {
        // Equal seeds would give equal connection IDs, which the relay would take for one client.
        static CLIENTS: AtomicU8 = AtomicU8::new(0);
        let seed = [CLIENTS.fetch_add(1, Ordering::Relaxed); 32];
        let mut endpoint = Endpoint::new(EndpointConfig {
            limits: Limits::default(),
            server: None,
            seed,
            time_source: Arc::new(clock::SystemClock),
            qlog: None,
            packets: weir_quic::Packets::default(),
            segmentation_offload: false,
            handshake_counts: weir_quic::OriginCounts::default(),
        })
        .unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), SocketConfig::default());
        let config = ClientConfig {
            tls: arrival.tls,
            web_transport: arrival.web_path.map(|path| Request {
                authority: relay.to_string(),
                path,
                protocols: PROTOCOLS.map(str::to_owned).into(),
                origin: None,
            }),
        };
        let handle = endpoint
            .connect(clock::now(), &config, relay, "localhost", 0)
            .unwrap();
        let token = |value: String| Token::UseValue {
            token_type: 0,
            value: value.into(),
        };
        let session = Session::new(session::Config {
            draft: Draft::ALL[0],
            side: Side::Client,
            limits: limits::Limits::default(),
            setup: Setup {
                path: arrival.path,
                authorization_tokens: arrival.tokens.into_iter().map(token).collect(),
                ..Setup::default()
            },
        });
        let notes = Arc::new(Mutex::new(Notes::default()));
        let stop = Stop::new().unwrap();
        let mut role = Role {
            handle,
            session,
            notes: Arc::clone(&notes),
            next: clock::now(),
            is_over: false,
        };
        let asked = stop.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "a peer of the program under test"
        )]
        let thread = std::thread::spawn(move || {
            let (config, telemetry) = (HostConfig::default(), Arc::new(Telemetry::default()));
            let sockets = vec![socket.unwrap()];
            let mut host = Host::new(config, sockets, endpoint, telemetry, asked).unwrap();
            host.run(&mut role).unwrap();
        });
        Self {
            notes,
            stop,
            thread: Some(thread),
        }
    }

    /// Announces a namespace of fields with `/` between them.
    pub(crate) fn announce(&self, namespace: &str) {
        self.notes
            .lock()
            .unwrap()
            .announce
            .push(namespace.to_owned());
    }

    /// Subscribes to a track, and waits for its publisher.
    pub(crate) fn subscribe(&self, namespace: &str, name: &str) {
        let track = (namespace.to_owned(), name.to_owned());
        self.notes.lock().unwrap().subscribe.push(track);
    }

    /// Returns all events so far.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.notes.lock().unwrap().heard.clone()
    }

    /// Waits for an event whose text begins with `beginning`.
    #[track_caller]
    pub(crate) fn expect(&self, beginning: &str) -> String {
        let found = wait_for(|| {
            let heard = self.heard();
            heard.into_iter().find(|line| line.starts_with(beginning))
        });
        found.unwrap_or_else(|| panic!("{beginning:?} was not heard in {:?}", self.heard()))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Role {
    handle: Handle,
    session: Session,
    notes: Arc<Mutex<Notes>>,
    next: Instant,
    is_over: bool,
}

impl Role {
    fn hear(&self, line: String) {
        self.notes.lock().unwrap().heard.push(line);
    }

    fn settle(&mut self) {
        use session::Event as E;
        while let Some(event) = self.session.poll_event() {
            match event {
                E::Ready { .. } => self.hear("ready".to_owned()),
                E::Accepted { .. } => self.hear("accepted".to_owned()),
                E::Rejected { error, .. } => self.hear(format!("rejected {:#x}", error.code.0)),
                E::Closed { .. } => self.hear("closed".to_owned()),
                E::GoAway(_) => self.hear("goaway".to_owned()),
                E::Violated(violation) => self.hear(format!("violated: {violation}")),
                E::Request { .. }
                | E::Update { .. }
                | E::Updated { .. }
                | E::Done { .. }
                | E::Namespace { .. }
                | E::NamespaceDone { .. }
                | E::PublishBlocked { .. }
                | E::StateChanged { .. }
                | E::RequestGoAway { .. }
                | E::Subgroup { .. }
                | E::Object { .. }
                | E::Fetched { .. }
                | E::FetchObject { .. }
                | E::Payload { .. }
                | E::StreamEnd { .. }
                | E::Datagram { .. } => self.hear("something else".to_owned()),
            }
        }
    }

    fn ask(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if !self.session.is_ready() || self.session.is_closed() {
            return;
        }
        let tracks = std::mem::take(&mut self.notes.lock().unwrap().subscribe);
        for (namespace, name) in tracks {
            let fields: Vec<&str> = namespace.split('/').collect();
            let namespace = Namespace::new(&fields).unwrap();
            let track = FullTrackName::new(namespace, TrackName::new(name).unwrap()).unwrap();
            let parameters = Parameters {
                rendezvous_timeout: Some(Duration::from_mins(5)),
                ..Parameters::default()
            };
            if let Some(mut connection) = endpoint.connection(now, self.handle) {
                let asked = self.session.subscribe(&mut connection, track, parameters);
                asked.unwrap();
            }
        }
        let namespaces = std::mem::take(&mut self.notes.lock().unwrap().announce);
        for namespace in namespaces {
            let fields: Vec<&str> = namespace.split('/').collect();
            let namespace = Namespace::new(&fields).unwrap();
            if let Some(mut connection) = endpoint.connection(now, self.handle) {
                let parameters = Parameters::default();
                let asked = self
                    .session
                    .publish_namespace(&mut connection, namespace, parameters);
                asked.unwrap();
            }
        }
    }
}

impl App for Role {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if let Event::Lost { reason, .. } = &event {
            self.hear(format!("lost: {reason}"));
            self.is_over = true;
        }
        let Some(mut connection) = endpoint.connection(now, self.handle) else {
            return;
        };
        let (session, transport) = (&mut self.session, &mut connection);
        match event {
            Event::Connected { .. } => session.start(now, transport),
            Event::Opened {
                stream, direction, ..
            } => session.handle_opened(now, transport, stream, direction),
            Event::Readable { stream, .. } => session.handle_readable(now, transport, stream),
            Event::Writable { stream, .. } => {
                session.handle_writable(now, transport, stream);
            }
            Event::StreamsAvailable { direction, .. } => {
                session.handle_streams_available(now, transport, direction);
            }
            Event::Stopped { stream, code, .. } => {
                session.handle_stopped(now, transport, stream, code);
            }
            Event::Lost { .. } | Event::Finished { .. } | Event::Datagram { .. } => {}
        }
        self.settle();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(
            self.session
                .poll_timeout()
                .map_or(self.next, |at| at.min(self.next)),
        )
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.next = now + Duration::from_millis(20);
        if let Some(mut connection) = endpoint.connection(now, self.handle) {
            self.session.handle_timeout(now, &mut connection);
        }
        self.ask(now, endpoint);
        self.settle();
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
        self.is_over = true;
    }

    fn is_finished(&self) -> bool {
        self.is_over
    }
}

/// The ALPN of the client.
pub(crate) const PROTOCOLS: [&str; 1] = [Draft::ALL[0].alpn()];
