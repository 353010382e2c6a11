//! NATS as the message system of agents: <https://nats.io>.
//!
//! The client runs on a thread of its own with a runtime of its own. Nothing else of weir waits for it, and no other thread
//! has a runtime.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr};
use tokio::sync::mpsc as commands;
use weir_net::clock;

use super::bus::{Bus, MESSAGES_MAX, Message};
use crate::urls::Redacted;

/// The servers of a fleet, and how to sign in.
#[derive(Clone, Debug)]
pub(crate) struct NatsServers {
    /// The URLs, with commas between, as the flag gives them.
    shown: String,
    addresses: Vec<ServerAddr>,
    /// A file with the credentials of a NATS account.
    credentials: Option<PathBuf>,
}

/// A connection to NATS.
pub(crate) struct NatsBus {
    commands: commands::Sender<Command>,
    received: Receiver<Message>,
    /// Whether messages were dropped because nobody received them.
    has_dropped: Arc<AtomicBool>,
    payload_bytes_max: usize,
    shown: String,
    thread: Option<JoinHandle<()>>,
}

enum Command {
    Subscribe(String, SyncSender<anyhow::Result<()>>),
    Publish(String, Vec<u8>),
}

impl NatsServers {
    /// Reads `nats://HOST[:PORT]`, or `tls://`, several with commas between. User and password may stand in front of the host.
    ///
    /// # Errors
    /// A part is not such a URL. The error shows no password.
    pub(crate) fn parse(urls: &str, credentials: Option<PathBuf>) -> anyhow::Result<Self> {
        let parse = |url: &str| -> anyhow::Result<ServerAddr> {
            let shown = Redacted(url).to_string();
            let is_known = url.starts_with("nats://") || url.starts_with("tls://");
            let parsed = url.parse::<ServerAddr>().ok().filter(|_| is_known);
            parsed.with_context(|| {
                format!("--fleet: expected nats://HOST[:PORT] or tls://HOST[:PORT], not {shown:?}")
            })
        };
        let urls: Vec<&str> = urls.split(',').map(str::trim).collect();
        let addresses = urls
            .iter()
            .copied()
            .map(parse)
            .collect::<anyhow::Result<_>>()?;
        let host = |address: &ServerAddr| format!("{}:{}", address.host(), address.port());
        let addresses: Vec<ServerAddr> = addresses;
        let shown: Vec<String> = addresses.iter().map(host).collect();
        Ok(Self {
            shown: shown.join(", "),
            addresses,
            credentials,
        })
    }

    /// Connects to one of the servers.
    ///
    /// # Errors
    /// No server can be reached, or none accepts the credentials. The error says which servers.
    pub(crate) fn connect(&self, name: &str) -> anyhow::Result<NatsBus> {
        let (commands, orders) = commands::channel(COMMANDS_MAX);
        let (sender, received) = mpsc::sync_channel(MESSAGES_MAX);
        let (connected, wait) = mpsc::sync_channel(1);
        let has_dropped = Arc::new(AtomicBool::new(false));
        let (servers, name) = (self.clone(), name.to_owned());
        let dropped = Arc::clone(&has_dropped);
        let thread = thread::Builder::new().name("weir-nats".to_owned());
        let thread = thread.spawn(move || {
            let run = Connection { sender, dropped };
            run.run(&servers, &name, &connected, orders);
        });
        let thread = thread.context("cannot start the thread of NATS")?;
        let payload_bytes_max = wait
            .recv()
            .map_err(|_| anyhow!("the thread of NATS ended"))?
            .map_err(|problem| anyhow!("--fleet: {problem} ({})", self.shown))?;
        Ok(NatsBus {
            commands,
            received,
            has_dropped,
            payload_bytes_max,
            shown: self.shown.clone(),
            thread: Some(thread),
        })
    }

    fn options(&self, name: &str) -> anyhow::Result<ConnectOptions> {
        let options = ConnectOptions::new()
            .name(name)
            .connection_timeout(CONNECT_TIMEOUT)
            .ping_interval(PING_PERIOD)
            .subscription_capacity(MESSAGES_MAX);
        let Some(file) = &self.credentials else {
            return Ok(options);
        };
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("--fleet-credentials: {shown}"))?;
        let options = options.credentials(&text);
        options.with_context(|| {
            format!("--fleet-credentials: {shown}: not a file of credentials of NATS")
        })
    }
}

/// What the thread of a connection has.
#[derive(Clone)]
struct Connection {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicBool>,
}

impl Connection {
    fn run(
        self,
        servers: &NatsServers,
        name: &str,
        connected: &SyncSender<Result<usize, String>>,
        mut orders: commands::Receiver<Command>,
    ) {
        let tell = |outcome| {
            // Who has given up does not listen.
            let _has_listener = connected.send(outcome).is_ok();
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return tell(Err(error.to_string())),
        };
        runtime.block_on(async move {
            let client = match connect(servers, name).await {
                Ok(client) => client,
                Err(problem) => return tell(Err(problem)),
            };
            tell(Ok(client.max_payload()));
            while let Some(order) = orders.recv().await {
                self.carry_out(&client, order).await;
            }
            // What was published must leave before the connection ends.
            let flushed = tokio::time::timeout(FLUSH_TIMEOUT, client.flush()).await;
            if !matches!(flushed, Ok(Ok(()))) {
                tracing::debug!("NATS did not take the last messages");
            }
        });
    }

    async fn carry_out(&self, client: &Client, order: Command) {
        match order {
            Command::Publish(subject, payload) => {
                if let Err(error) = client.publish(subject, payload.into()).await {
                    tracing::debug!(%error, "NATS did not take a message");
                }
            }
            Command::Subscribe(subject, done) => {
                let subscribed = self.clone().subscribe(client, subject).await;
                let _has_listener = done.send(subscribed).is_ok();
            }
        }
    }

    async fn subscribe(self, client: &Client, subject: String) -> anyhow::Result<()> {
        let mut messages = client.subscribe(subject).await?;
        // The subscription is in force when the server has answered.
        tokio::time::timeout(FLUSH_TIMEOUT, client.flush()).await??;
        tokio::spawn(async move {
            use futures_util::StreamExt as _;
            while let Some(message) = messages.next().await {
                let message = Message {
                    subject: message.subject.to_string(),
                    payload: message.payload.to_vec(),
                    at: clock::now(),
                };
                match self.sender.try_send(message) {
                    Ok(()) => {}
                    Err(TrySendError::Full(_)) => self.dropped.store(true, Ordering::Release),
                    Err(TrySendError::Disconnected(_)) => return,
                }
            }
        });
        Ok(())
    }
}

async fn connect(servers: &NatsServers, name: &str) -> Result<Client, String> {
    let options = servers
        .options(name)
        .map_err(|error| format!("{error:#}"))?;
    let connecting = options.connect(&servers.addresses[..]);
    let connected = tokio::time::timeout(CONNECT_TIMEOUT * 2, connecting).await;
    let error = match connected {
        Ok(Ok(client)) => return Ok(client),
        Ok(Err(error)) => error,
        Err(_) => {
            return Err(format!(
                "no NATS server answered within {} s",
                CONNECT_TIMEOUT.as_secs() * 2
            ));
        }
    };
    Err(match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            "the NATS server refuses these credentials".to_owned()
        }
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => format!("no NATS server can be reached: {error}"),
        ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => format!("NATS: {error}"),
    })
}

impl Bus for NatsBus {
    fn subscribe(&mut self, subject: &str) -> anyhow::Result<()> {
        let (done, wait) = mpsc::sync_channel(1);
        self.order(Command::Subscribe(subject.to_owned(), done))?;
        wait.recv_timeout(FLUSH_TIMEOUT * 2)
            .map_err(|_| anyhow!("the NATS server at {} does not answer", self.shown))?
    }

    fn publish(&mut self, subject: &str, payload: Vec<u8>) -> anyhow::Result<()> {
        if payload.len() > self.payload_bytes_max {
            bail!(
                "a message of {} bytes is larger than the {} that NATS takes",
                payload.len(),
                self.payload_bytes_max
            );
        }
        self.order(Command::Publish(subject.to_owned(), payload))
    }

    fn receive(&mut self, patience: Duration) -> anyhow::Result<Option<Message>> {
        if self.has_dropped.swap(false, Ordering::AcqRel) {
            bail!("more than {MESSAGES_MAX} messages of NATS waited to be read");
        }
        match self.received.recv_timeout(patience) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the connection to NATS has ended"),
        }
    }

    fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }
}

impl NatsBus {
    fn order(&self, order: Command) -> anyhow::Result<()> {
        let sent = self.commands.blocking_send(order);
        sent.map_err(|_| anyhow!("the connection to NATS has ended"))
    }
}

impl Drop for NatsBus {
    fn drop(&mut self) {
        let (closed, _) = commands::channel(1);
        // The thread ends when nobody can give it orders.
        drop(std::mem::replace(&mut self.commands, closed));
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::debug!("the thread of NATS panicked");
        }
    }
}

/// Messages that wait to be published. Beyond this, the sender waits.
const COMMANDS_MAX: usize = 1024;
/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between pings of the server, so that a dead connection is noticed.
const PING_PERIOD: Duration = Duration::from_secs(2);
/// How long a server may take to confirm what was sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_passwords_stay_secret() {
        let shown = |urls: &str| NatsServers::parse(urls, None).map(|one| one.shown);
        assert_eq!(
            shown("nats://a, tls://u:secret@b:4333").unwrap(),
            "a:4222, b:4333"
        );
        for bad in ["", "a", "http://a", "nats://a,", "nats://u:secret@"] {
            let error = shown(bad).unwrap_err().to_string();
            assert!(
                error.starts_with("--fleet: expected nats://HOST"),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    #[ignore = "needs nats-server: make test-fleet"]
    fn nats_does_what_a_message_system_has_to_do() {
        struct Server(std::process::Child);
        impl Drop for Server {
            fn drop(&mut self) {
                drop(self.0.kill());
                drop(self.0.wait());
            }
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut command = std::process::Command::new("nats-server");
        let command = command.args(["-a", "127.0.0.1", "-p", &port.to_string()]);
        let child = command.stderr(std::process::Stdio::null()).spawn();
        let _server = Server(child.expect("nats-server in PATH"));
        let servers = NatsServers::parse(&format!("nats://127.0.0.1:{port}"), None).unwrap();
        let mut tries = 0..500;
        while tries.next().is_some() && servers.connect("test").is_err() {
            thread::park_timeout(Duration::from_millis(20));
        }
        super::super::bus::conformance::check("weir.test", || {
            Box::new(servers.connect("test").unwrap())
        });
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        // A port of this machine that nobody listens on.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let servers = NatsServers::parse(&format!("nats://{address}"), None).unwrap();
        let error = servers.connect("test").err().unwrap().to_string();
        assert!(error.contains("no NATS server can be reached"), "{error}");
        assert!(error.contains(&address.to_string()), "{error}");
    }
}
