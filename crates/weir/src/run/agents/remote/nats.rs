//! NATS as the message system of agents: <https://nats.io>.
//!
//! The client runs on a thread of its own with a runtime of its own. Nothing else of weir waits for it, and no other thread
//! has a runtime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use async_nats::Client;
use futures_util::StreamExt as _;
use tokio::sync::mpsc as commands;
use weir_net::clock;

use super::bus::{Bus, MESSAGES_MAX, Message};
use crate::nats::NatsServers;

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

impl NatsBus {
    /// Connects to one of the servers.
    ///
    /// # Errors
    /// No server can be reached, or none accepts the credentials. The error says which servers.
    pub(crate) fn connect(servers: &NatsServers, name: &str) -> anyhow::Result<Self> {
        let (commands, orders) = commands::channel(COMMANDS_MAX);
        let (sender, received) = mpsc::sync_channel(MESSAGES_MAX);
        let (connected, wait) = mpsc::sync_channel(1);
        let has_dropped = Arc::new(AtomicBool::new(false));
        let (shown, name) = (servers.to_string(), name.to_owned());
        let (servers, dropped) = (servers.clone(), Arc::clone(&has_dropped));
        let thread = thread::Builder::new().name("weir-nats".to_owned());
        let thread = thread.spawn(move || {
            let run = Connection { sender, dropped };
            run.run(&servers, &name, &connected, orders);
        });
        let thread = thread.context("cannot start the thread of NATS")?;
        let payload_bytes_max = wait
            .recv()
            .map_err(|_| anyhow!("the thread of NATS ended"))?
            .map_err(|problem| anyhow!("--fleet: {problem} ({shown})"))?;
        Ok(Self {
            commands,
            received,
            has_dropped,
            payload_bytes_max,
            shown,
            thread: Some(thread),
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
            let client = match servers.client(name, MESSAGES_MAX).await {
                Ok(client) => client,
                Err(problem) => return tell(Err(problem.to_string())),
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
        // A flush waits for the socket only. A server handles what a connection sends in order, so when this comes back, the
        // subscription is in force.
        let inbox = client.new_inbox();
        let mut echo = client.subscribe(inbox.clone()).await?;
        client.publish(inbox, Vec::new().into()).await?;
        tokio::time::timeout(FLUSH_TIMEOUT, echo.next()).await?;
        tokio::spawn(async move {
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
/// How long a server may take to confirm what was sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

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
        let servers =
            NatsServers::parse("--fleet", &format!("nats://127.0.0.1:{port}"), None).unwrap();
        let mut tries = 0..500;
        while tries.next().is_some() && NatsBus::connect(&servers, "test").is_err() {
            thread::park_timeout(Duration::from_millis(20));
        }
        super::super::bus::conformance::check("weir.test", || {
            Box::new(NatsBus::connect(&servers, "test").unwrap())
        });
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        // A port of this machine that nobody listens on.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let servers = NatsServers::parse("--fleet", &format!("nats://{address}"), None).unwrap();
        let error = NatsBus::connect(&servers, "test")
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("no NATS server can be reached"), "{error}");
        assert!(error.contains(&address.to_string()), "{error}");
    }
}
