//! The registry in a key-value bucket of NATS.
//!
//! All of it runs on a thread of its own with a runtime of its own; the event loop of the relay only looks at what that thread
//! has found. A lease is the `max_age` of the bucket: a relay writes its keys again before they expire, and the servers tell
//! everybody who watches when a key has expired. Keys contain a random number of the relay, so nobody else writes them, and a
//! plain write renews a lease.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc as threads,
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use async_nats::{
    Client,
    jetstream::{
        context::ContextBuilder,
        kv::{self, Operation, Store, Watch},
        stream::StorageType,
    },
};
use futures_util::{
    StreamExt as _,
    future::{Either, select},
};
use tokio::sync::{Notify, mpsc};
use weir_client::target::Target;
use weir_moqt::name::Namespace;
use weir_net::clock;
use weir_relay::registry::{LEASE, Member, RENEWAL, Registry, RegistryEvent, RelayId, STALE_AFTER};

use super::entry::{Entry, Scope};
use crate::nats::{NatsProblem, NatsServers};

/// Returns the name of a relay without secrets, and how to connect to it. May look up a host.
pub(super) type Targets = Arc<dyn Fn(&str) -> anyhow::Result<(String, Target)> + Send + Sync>;

/// What this relay says of itself.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) id: RelayId,
    pub(super) url: String,
    pub(super) scope: Scope,
}

/// The registry, as the event loop of a relay uses it.
#[derive(Debug)]
pub(super) struct NatsRegistry {
    shared: Arc<Shared>,
    events: mpsc::Receiver<RegistryEvent>,
    /// Ends when the thread has withdrawn everything.
    left: threads::Receiver<()>,
}

/// What the event loop and the thread share.
#[derive(Debug, Default)]
struct Shared {
    /// The namespaces that this relay has.
    wanted: Mutex<BTreeSet<Namespace>>,
    changed: Notify,
    is_over: AtomicBool,
}

impl Shared {
    fn wanted(&self) -> MutexGuard<'_, BTreeSet<Namespace>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

impl NatsRegistry {
    /// Joins a fleet. Waits for the first attempt to connect; if no server can be reached, further attempts follow.
    ///
    /// # Errors
    /// NATS refuses the credentials, or the bucket is of another version.
    pub(super) fn join(servers: NatsServers, own: Own, targets: Targets) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (events, received) = mpsc::channel(EVENTS_MAX);
        let (joined, wait) = threads::sync_channel(1);
        let (leaving, left) = threads::sync_channel(1);
        let thread = Worker {
            servers,
            own,
            targets,
            events,
            shared: Arc::clone(&shared),
            written: BTreeSet::new(),
            known: BTreeMap::new(),
            members: BTreeMap::new(),
            confirmed: clock::now(),
            is_current: false,
        };
        std::thread::Builder::new()
            .name("weir-fleet".to_owned())
            .spawn(move || {
                thread.run(&joined);
                // The event loop may have given up waiting.
                let _is_awaited = leaving.send(()).is_ok();
            })
            .context("cannot start the thread of the registry")?;
        match wait.recv().context("the thread of the registry ended")? {
            Ok(()) => {}
            Err(NatsProblem::Refused(problem)) => bail!(problem),
            Err(NatsProblem::Unreachable(problem)) => {
                tracing::warn!("{problem}; the relay serves without its fleet, and tries again");
            }
        }
        Ok(Self {
            shared,
            events: received,
            left,
        })
    }
}

impl Registry for NatsRegistry {
    fn register(&mut self, _: Instant, namespace: &Namespace) {
        self.shared.wanted().insert(namespace.clone());
        self.shared.changed.notify_one();
    }

    fn withdraw(&mut self, _: Instant, namespace: &Namespace) {
        self.shared.wanted().remove(namespace);
        self.shared.changed.notify_one();
    }

    fn poll(&mut self, _: Instant) -> Option<RegistryEvent> {
        self.events.try_recv().ok()
    }
}

impl Drop for NatsRegistry {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.changed.notify_one();
        self.events.close();
        // What is not withdrawn in time ends with its lease.
        let _has_left = self.left.recv_timeout(LEAVE_MAX).is_ok();
    }
}

/// What the thread of the registry has.
struct Worker {
    servers: NatsServers,
    own: Own,
    targets: Targets,
    events: mpsc::Sender<RegistryEvent>,
    shared: Arc<Shared>,
    /// The namespaces whose keys were written and not deleted.
    written: BTreeSet<Namespace>,
    /// The reported registrations of other relays, by key.
    known: BTreeMap<String, (Namespace, RelayId)>,
    /// The other relays, by their URL and number.
    members: BTreeMap<(String, RelayId), Arc<Member>>,
    /// When the servers last took a change.
    confirmed: Instant,
    is_current: bool,
}

impl Worker {
    fn run(mut self, joined: &threads::SyncSender<Result<(), NatsProblem>>) {
        // Only the first outcome is waited for.
        let tell = |outcome| drop(joined.try_send(outcome));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return tell(Err(NatsProblem::Refused(error.to_string()))),
        };
        runtime.block_on(async {
            while !self.shared.is_over() {
                match self.open().await {
                    Ok(client) => {
                        tell(Ok(()));
                        self.use_client(&client).await;
                    }
                    Err(problem) => {
                        tracing::debug!("no registry: {problem}");
                        let is_first = joined.try_send(Err(problem.clone())).is_ok();
                        if is_first && matches!(problem, NatsProblem::Refused(_)) {
                            return;
                        }
                        self.pause().await;
                    }
                }
            }
        });
    }

    /// Connects, and checks the bucket.
    async fn open(&self) -> Result<Client, NatsProblem> {
        let messages_max = WATCH_MAX;
        let client = self.servers.client("weir relay", messages_max).await?;
        bucket(&client).await.map(|_| client)
    }

    /// Registers and watches over a connection, which NATS establishes again by itself, until the relay leaves.
    async fn use_client(&mut self, client: &Client) {
        let mut is_first = true;
        while !self.shared.is_over() {
            match bucket(client).await {
                Ok(store) => {
                    if let Err(error) = self.attend(&store, is_first).await {
                        tracing::debug!("the registry is interrupted: {error:#}");
                    }
                    is_first = false;
                    if self.shared.is_over() {
                        self.leave(&store).await;
                        return;
                    }
                }
                Err(problem) => tracing::debug!("no bucket: {problem}"),
            }
            self.note_staleness().await;
            self.pause().await;
        }
    }

    async fn pause(&self) {
        // Ends early if the relay leaves.
        let changed = self.shared.changed.notified();
        let _is_over = tokio::time::timeout(RETRY_PAUSE, changed).await.is_ok();
    }

    /// Reports that the registry is stale, if the servers have not taken changes for long enough.
    async fn note_staleness(&mut self) {
        let silence = clock::now().saturating_duration_since(self.confirmed);
        if self.is_current && silence >= STALE_AFTER {
            self.is_current = false;
            self.report(RegistryEvent::Stale).await;
        }
    }

    async fn report(&self, event: RegistryEvent) {
        // The relay may have left.
        let _is_heard = self.events.send(event).await.is_ok();
    }

    /// Keeps this relay's registrations, and reports those of others. Returns when the relay leaves, or when the servers do
    /// not answer.
    async fn attend(&mut self, store: &Store, is_first: bool) -> anyhow::Result<()> {
        self.renew(store).await?;
        if !is_first {
            // Everybody gets the time to write again what the servers may have lost.
            let until = clock::now() + RENEWAL + RETRY_PAUSE * 2;
            while clock::now() < until && !self.shared.is_over() {
                self.pause().await;
                self.renew_changed(store).await?;
            }
        }
        let keys = self.own.scope.keys();
        let mut watch = store.watch_with_history(keys).await?;
        let mut seen = Some(BTreeSet::new());
        let mut renew_at = clock::now() + RENEWAL;
        while !self.shared.is_over() {
            let patience = renew_at.saturating_duration_since(clock::now());
            let next = self.next(&mut watch, patience).await?;
            match next {
                Some(entry) => {
                    if let Some(seen) = &mut seen {
                        seen.insert(entry.key.clone());
                    }
                    let is_all = entry.seen_current;
                    self.on_entry(entry).await;
                    if is_all && let Some(seen) = seen.take() {
                        self.forget_all_but(&seen).await;
                        self.is_current = true;
                        self.report(RegistryEvent::Current).await;
                    }
                }
                None => self.renew_changed(store).await?,
            }
            if renew_at <= clock::now() {
                renew_at = clock::now() + RENEWAL;
                self.renew(store).await?;
            }
        }
        Ok(())
    }

    /// Returns the next entry of a watch; `None` if the relay's own registrations have changed, or after `patience`.
    async fn next(
        &self,
        watch: &mut Watch,
        patience: Duration,
    ) -> anyhow::Result<Option<kv::Entry>> {
        let changed = pin!(self.shared.changed.notified());
        let next = select(watch.next(), changed);
        match tokio::time::timeout(patience, next).await {
            Ok(Either::Left((entry, _))) => {
                let entry = entry.context("the watch has ended")?;
                entry.map(Some).context("the watch failed")
            }
            Ok(Either::Right(_)) | Err(_) => Ok(None),
        }
    }

    /// Writes all keys of this relay.
    async fn renew(&mut self, store: &Store) -> anyhow::Result<()> {
        let wanted = self.shared.wanted().clone();
        let alive = std::iter::once(None);
        let all = alive.chain(wanted.iter().map(Some));
        self.write(store, all.map(Option::<&Namespace>::cloned).collect())
            .await?;
        self.delete(store, &wanted).await
    }

    /// Writes and deletes the keys of namespaces that have come or gone.
    async fn renew_changed(&mut self, store: &Store) -> anyhow::Result<()> {
        let wanted = self.shared.wanted().clone();
        let new = wanted.difference(&self.written).cloned().map(Some);
        let new: Vec<_> = new.collect();
        if !new.is_empty() {
            self.write(store, new).await?;
        }
        self.delete(store, &wanted).await
    }

    async fn write(
        &mut self,
        store: &Store,
        namespaces: Vec<Option<Namespace>>,
    ) -> anyhow::Result<()> {
        let writes = namespaces.into_iter().map(|namespace| {
            let key = self.own.scope.key(namespace.as_ref(), self.own.id);
            let entry = Entry {
                relay: self.own.id,
                url: self.own.url.clone(),
                namespace,
            };
            async move {
                let value = entry.write().into();
                store.put(key, value).await.map(|_| entry.namespace)
            }
        });
        let written: Vec<_> = futures_util::stream::iter(writes)
            .buffer_unordered(WRITES_AT_ONCE)
            .collect()
            .await;
        for namespace in written {
            self.written.extend(namespace?);
        }
        self.confirmed = clock::now();
        Ok(())
    }

    /// Deletes the keys of namespaces that are not in `wanted`.
    async fn delete(&mut self, store: &Store, wanted: &BTreeSet<Namespace>) -> anyhow::Result<()> {
        let gone: Vec<_> = self.written.difference(wanted).cloned().collect();
        for namespace in gone {
            let key = self.own.scope.key(Some(&namespace), self.own.id);
            store.delete(key).await?;
            self.written.remove(&namespace);
        }
        Ok(())
    }

    /// Deletes all keys of this relay.
    async fn leave(&mut self, store: &Store) {
        let alive = self.own.scope.key(None, self.own.id);
        let leaving = async {
            self.delete(store, &BTreeSet::new()).await?;
            anyhow::Ok(store.delete(alive).await?)
        };
        if !matches!(tokio::time::timeout(LEAVE_MAX, leaving).await, Ok(Ok(()))) {
            tracing::debug!("the registry did not take the end of this relay");
        }
    }

    async fn on_entry(&mut self, entry: kv::Entry) {
        match entry.operation {
            Operation::Put => {
                if self.known.contains_key(&entry.key) {
                    return;
                }
                match self.found(&entry).await {
                    Ok(Some((namespace, member))) => {
                        let named = (namespace.clone(), member.id);
                        self.known.insert(entry.key, named);
                        let found = RegistryEvent::Found { namespace, member };
                        self.report(found).await;
                    }
                    Ok(None) => {}
                    Err(error) => {
                        let key = entry.key;
                        tracing::warn!("an entry of the registry is ignored: {key}: {error:#}");
                    }
                }
            }
            Operation::Delete | Operation::Purge => self.lose(&entry.key).await,
        }
    }

    /// Returns the registration of another relay; `None` if the entry is none.
    async fn found(
        &mut self,
        entry: &kv::Entry,
    ) -> anyhow::Result<Option<(Namespace, Arc<Member>)>> {
        if entry.value.len() > VALUE_BYTES_MAX {
            bail!("more than {VALUE_BYTES_MAX} bytes");
        }
        let read = Entry::read(&entry.value)?;
        let Some(namespace) = read.namespace.filter(|_| read.relay != self.own.id) else {
            return Ok(None);
        };
        let id = read.relay;
        let name = (read.url, id);
        if let Some(member) = self.members.get(&name) {
            return Ok(Some((namespace, Arc::clone(member))));
        }
        let (targets, url) = (Arc::clone(&self.targets), name.0.clone());
        let looked_up = tokio::task::spawn_blocking(move || targets(&url)).await;
        let (shown, target) = looked_up.map_err(|error| anyhow!(error))??;
        let target = Arc::new(target);
        let member = Arc::new(Member {
            id,
            name: shown,
            target,
        });
        self.members.insert(name, Arc::clone(&member));
        Ok(Some((namespace, member)))
    }

    async fn lose(&mut self, key: &str) {
        let Some((namespace, relay)) = self.known.remove(key) else {
            return;
        };
        let mut left = self.known.values();
        if !left.any(|(_, other)| *other == relay) {
            self.members.retain(|_, member| member.id != relay);
        }
        self.report(RegistryEvent::Lost { namespace, relay }).await;
    }

    async fn forget_all_but(&mut self, seen: &BTreeSet<String>) {
        let gone: Vec<_> = self
            .known
            .keys()
            .filter(|key| !seen.contains(*key))
            .cloned()
            .collect();
        for key in gone {
            self.lose(&key).await;
        }
    }
}

/// Opens the bucket; creates it if there is none.
async fn bucket(client: &Client) -> Result<Store, NatsProblem> {
    let context = ContextBuilder::new()
        .timeout(ANSWER_MAX)
        .ack_timeout(ANSWER_MAX)
        .build(client.clone());
    let store = if let Ok(store) = context.get_key_value(BUCKET).await {
        store
    } else {
        let config = |num_replicas| kv::Config {
            bucket: BUCKET.to_owned(),
            description: DESCRIPTION.to_owned(),
            max_age: LEASE,
            storage: StorageType::Memory,
            num_replicas,
            limit_markers: Some(MARKER_TIME),
            ..kv::Config::default()
        };
        match context.create_key_value(config(REPLICAS)).await {
            Ok(store) => Ok(store),
            // A single server.
            Err(error) if chain(&error).contains("replicas > 1 not supported") => {
                context.create_key_value(config(1)).await
            }
            Err(error) => Err(error),
        }
        .map_err(|error| {
            let problem = chain(&error);
            NatsProblem::Unreachable(format!(
                "NATS has no bucket for the fleet, and makes none: {problem}; the servers need JetStream"
            ))
        })?
    };
    let found = &store.stream.cached_info().config;
    let description = found.description.as_deref().unwrap_or_default();
    if description != DESCRIPTION || found.max_age != LEASE {
        return Err(NatsProblem::Refused(format!(
            "the bucket {BUCKET} of NATS is of another version: expected {DESCRIPTION:?} with an age of {} s, found {description:?} with {} s",
            LEASE.as_secs(),
            found.max_age.as_secs()
        )));
    }
    Ok(store)
}

/// Returns the text of an error with its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// The bucket of all fleets of an account. A scope is a part of it.
const BUCKET: &str = "weir-fleet";
/// What the bucket says of itself.
const DESCRIPTION: &str = "weir fleet, version 1";
/// Copies of the bucket in a cluster of NATS, so that it survives the loss of a server.
const REPLICAS: usize = 3;
/// How long the servers tell of an expired key.
const MARKER_TIME: Duration = Duration::from_mins(1);
/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The pause before the next attempt after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long a relay that leaves waits for the servers.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// Writes that wait for their answer at once.
const WRITES_AT_ONCE: usize = 32;
/// Bytes of an entry. Longer ones are ignored.
const VALUE_BYTES_MAX: usize = 32 << 10;
/// Events that wait for the event loop. Beyond this, the thread waits.
const EVENTS_MAX: usize = 4096;
/// Messages that wait for the thread.
const WATCH_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
