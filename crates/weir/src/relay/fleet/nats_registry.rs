//! The registry in two key-value buckets of NATS.
//!
//! All of it runs on a thread of its own with a runtime of its own, which wakes the event loop of the relay when it has found
//! something. Each relay has a lease, and a registration for each namespace. A registration counts as long as its relay has a
//! lease. A lease ends by the `max_age` of its bucket: a relay writes its lease again before, and the servers tell everybody who
//! watches when it has expired. Registrations last longer, so that a relay with many namespaces writes little; those of relays that
//! died end by the `max_age` of their bucket, too. Keys contain a random number of the relay, so nobody else writes them, and a
//! plain write renews them.

mod buckets;
mod known;
mod wanted;

use std::{
    collections::BTreeSet,
    ops::Bound,
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
    jetstream::kv::{self, Operation},
};
use futures_util::{
    StreamExt as _,
    future::{Either, select},
};
use tokio::sync::{Notify, mpsc};
use weir_client::target::Target;
use weir_moqt::name::Namespace;
use weir_net::{Waker, clock};
use weir_relay::registry::{Member, RENEWAL, Registry, RegistryEvent, RelayId, STALE_AFTER};

use self::{
    buckets::{Both, Bucket, Buckets, MARKER_TIME},
    known::{Awaited, Known},
    wanted::{Changes, Wanted},
};
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
    /// When the registry was created: waiting events are due since then.
    since: Instant,
    /// Ends when the thread has withdrawn everything.
    left: threads::Receiver<()>,
}

/// What the event loop and the thread share.
#[derive(Debug, Default)]
struct Shared {
    /// The namespaces that this relay has.
    wanted: Mutex<Wanted>,
    changed: Notify,
    is_over: AtomicBool,
}

impl Shared {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
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
    /// NATS refuses the credentials, or a bucket is of another version.
    pub(super) fn join(
        servers: NatsServers,
        own: Own,
        targets: Targets,
        waker: Waker,
    ) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (events, received) = mpsc::channel(EVENTS_MAX);
        let (joined, wait) = threads::sync_channel(1);
        let (leaving, left) = threads::sync_channel(1);
        let thread = Worker {
            servers,
            own,
            targets,
            events,
            waker,
            shared: Arc::clone(&shared),
            written: BTreeSet::new(),
            renewed: None,
            known: Known::default(),
            confirmed: clock::now(),
            leased_at: clock::now(),
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
            since: clock::now(),
            left,
        })
    }
}

impl Registry for NatsRegistry {
    fn register(&mut self, _: Instant, namespace: &Namespace) {
        self.shared.wanted().register(namespace);
        self.shared.changed.notify_one();
    }

    fn withdraw(&mut self, _: Instant, namespace: &Namespace) {
        self.shared.wanted().withdraw(namespace);
        self.shared.changed.notify_one();
    }

    fn poll(&mut self, _: Instant) -> Option<RegistryEvent> {
        self.events.try_recv().ok()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.events.is_empty()).then_some(self.since)
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
    /// Wakes the event loop.
    waker: Waker,
    shared: Arc<Shared>,
    /// The namespaces whose registrations may be written: they were sent, and were not deleted.
    written: BTreeSet<Namespace>,
    /// The last of these whose registration was renewed in this round.
    renewed: Option<Namespace>,
    known: Known,
    /// When the servers last took a change.
    confirmed: Instant,
    /// When the lease was last written.
    leased_at: Instant,
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
                        Box::pin(self.use_client(&client)).await;
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

    /// Connects, and checks the buckets.
    async fn open(&self) -> Result<Client, NatsProblem> {
        let messages_max = WATCH_MAX;
        let client = self.servers.client("weir relay", messages_max).await?;
        Buckets::open(&client).await.map(|_| client)
    }

    /// Registers and watches over a connection, which NATS establishes again by itself, until the relay leaves.
    async fn use_client(&mut self, client: &Client) {
        while !self.shared.is_over() {
            match Buckets::open(client).await {
                Ok(buckets) => {
                    if let Err(error) = self.attend(&buckets).await {
                        tracing::debug!("the registry is interrupted: {error:#}");
                    }
                    if self.shared.is_over() {
                        self.leave(&buckets).await;
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
        let leaving = async {
            while !self.shared.is_over() {
                self.shared.changed.notified().await;
            }
        };
        let _is_over = tokio::time::timeout(RETRY_PAUSE, leaving).await.is_ok();
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
        self.waker.wake();
    }

    async fn report_all(&self, events: Vec<RegistryEvent>) {
        for event in events {
            self.report(event).await;
        }
    }

    /// Keeps this relay's lease and registrations, and reports those of others. Returns when the relay leaves, or when the
    /// servers do not answer.
    ///
    /// The servers may have lost what they had, and leases may have expired while no relay could renew them. So what the servers
    /// do not tell any more stays known for the time of a lease, in which its relay writes it again.
    async fn attend(&mut self, buckets: &Buckets) -> anyhow::Result<()> {
        self.write_all(buckets).await?;
        let mut watch = Both::new(buckets, &self.own.scope).await?;
        let mut awaited = Some(Awaited::default());
        let mut renew_at = clock::now() + RENEWAL;
        while !self.shared.is_over() {
            let patience = renew_at.saturating_duration_since(clock::now());
            match self.next(&mut watch, patience).await? {
                Some((bucket, entry)) => {
                    // A relay that leaves deletes its lease.
                    let has_expired =
                        (bucket, entry.operation) == (Bucket::Leases, Operation::Purge);
                    let awaits = awaited.as_mut();
                    if awaits.is_none_or(|awaits| awaits.note(&entry.key, has_expired)) {
                        self.on_entry(bucket, entry).await;
                    }
                    if let Some(awaits) = &mut awaited
                        && watch.is_complete()
                        && awaits.start(clock::now())
                    {
                        self.is_current = true;
                        self.report(RegistryEvent::Current).await;
                    }
                }
                None => self.write_changed(buckets).await?,
            }
            if let Some(over) = awaited.take_if(|awaits| awaits.is_over(clock::now())) {
                let lost = self.known.remove_all_but(over.told());
                self.report_all(lost).await;
            }
            if renew_at <= clock::now() {
                renew_at = clock::now() + RENEWAL;
                self.renew(buckets).await?;
            }
        }
        Ok(())
    }

    /// Returns the next entry of a watch; `None` if the relay's own registrations have changed, or after `patience`.
    async fn next(
        &self,
        watch: &mut Both,
        patience: Duration,
    ) -> anyhow::Result<Option<(Bucket, kv::Entry)>> {
        let changed = pin!(self.shared.changed.notified());
        let next = pin!(watch.next());
        match tokio::time::timeout(patience, select(next, changed)).await {
            Ok(Either::Left((entry, _))) => entry.map(Some),
            Ok(Either::Right(_)) | Err(_) => Ok(None),
        }
    }

    /// Writes the lease and all registrations of this relay.
    async fn write_all(&mut self, buckets: &Buckets) -> anyhow::Result<()> {
        let changes = self.shared.wanted().take_all(&self.written);
        self.write_lease(buckets).await?;
        self.write(buckets, &[None]).await?;
        self.apply(buckets, changes).await
    }

    /// Renews the lease, and those registrations whose turn it is.
    async fn renew(&mut self, buckets: &Buckets) -> anyhow::Result<()> {
        buckets.check().await?;
        self.write_lease(buckets).await?;
        let after = self.renewed.take();
        let after = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.written.range((after, Bound::Unbounded));
        let count = self.written.len().div_ceil(RENEWALS_PER_ROUND);
        let due: Vec<_> = rest.take(count).cloned().map(Some).collect();
        // A new round begins with the relay itself.
        self.renewed = due.last().cloned().flatten();
        let due = if due.is_empty() { vec![None] } else { due };
        self.write(buckets, &due).await
    }

    /// Writes and deletes the registrations of namespaces that have come or gone.
    async fn write_changed(&mut self, buckets: &Buckets) -> anyhow::Result<()> {
        let changes = self.shared.wanted().take_changes(&self.written);
        self.apply(buckets, changes).await
    }

    async fn apply(&mut self, buckets: &Buckets, changes: Changes) -> anyhow::Result<()> {
        let new: Vec<_> = changes.new.into_iter().map(Some).collect();
        self.write(buckets, &new).await?;
        self.delete(buckets, &changes.gone).await
    }

    async fn write_lease(&mut self, buckets: &Buckets) -> anyhow::Result<()> {
        let lease = Entry {
            relay: self.own.id,
            url: Some(self.own.url.clone()),
            namespace: None,
        };
        self.leased_at = clock::now();
        let key = self.own.scope.lease_key(self.own.id);
        buckets.leases.put(key, lease.write().into()).await?;
        self.confirmed = clock::now();
        Ok(())
    }

    /// Writes the lease if other writes have delayed it.
    async fn keep_lease(&mut self, buckets: &Buckets) -> anyhow::Result<()> {
        if clock::now().saturating_duration_since(self.leased_at) > RENEWAL + RETRY_PAUSE {
            self.write_lease(buckets).await?;
        }
        Ok(())
    }

    /// Writes registrations, and the lease meanwhile if it takes long.
    async fn write(
        &mut self,
        buckets: &Buckets,
        namespaces: &[Option<Namespace>],
    ) -> anyhow::Result<()> {
        for some in namespaces.chunks(WRITES_PER_TURN) {
            // Whether a write that fails has arrived is unknown.
            self.written.extend(some.iter().flatten().cloned());
            let own = &self.own;
            let writes = some.iter().map(|namespace| {
                let key = own.scope.key(namespace.as_ref(), own.id);
                let entry = Entry {
                    relay: own.id,
                    url: None,
                    namespace: namespace.clone(),
                };
                buckets.registrations.put(key, entry.write().into())
            });
            let mut written = futures_util::stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
            while let Some(outcome) = written.next().await {
                outcome?;
            }
            drop(written);
            self.confirmed = clock::now();
            self.keep_lease(buckets).await?;
        }
        Ok(())
    }

    /// Deletes registrations, and writes the lease meanwhile if it takes long.
    async fn delete(&mut self, buckets: &Buckets, gone: &[Namespace]) -> anyhow::Result<()> {
        for some in gone.chunks(WRITES_PER_TURN) {
            let own = &self.own;
            let deletions = some.iter().map(|namespace| {
                let key = own.scope.key(Some(namespace), own.id);
                let deletion = buckets.registrations.purge_with_ttl(key, MARKER_TIME);
                async move { deletion.await.map(|()| namespace) }
            });
            let mut deleted =
                futures_util::stream::iter(deletions).buffer_unordered(WRITES_AT_ONCE);
            while let Some(namespace) = deleted.next().await {
                self.written.remove(namespace?);
            }
            drop(deleted);
            self.confirmed = clock::now();
            self.keep_lease(buckets).await?;
        }
        Ok(())
    }

    /// Deletes all keys of this relay: the lease first, which ends all registrations.
    async fn leave(&mut self, buckets: &Buckets) {
        let lease = self.own.scope.lease_key(self.own.id);
        let itself = self.own.scope.key(None, self.own.id);
        let leaving = async {
            buckets.leases.delete(lease).await?;
            let store = &buckets.registrations;
            store.purge_with_ttl(itself, MARKER_TIME).await?;
            let all: Vec<_> = self.written.iter().cloned().collect();
            self.delete(buckets, &all).await
        };
        if !matches!(tokio::time::timeout(LEAVE_MAX, leaving).await, Ok(Ok(()))) {
            tracing::debug!("the registry did not take the end of this relay");
        }
    }

    async fn on_entry(&mut self, bucket: Bucket, entry: kv::Entry) {
        if matches!(entry.operation, Operation::Delete | Operation::Purge) {
            let lost = self.known.remove(&entry.key);
            return self.report_all(lost).await;
        }
        let is_ignored = self.known.ignores(&entry.key);
        // The host of a relay may be known to the name service at its next renewal.
        if self.known.has(&entry.key) || is_ignored && matches!(bucket, Bucket::Registrations) {
            return;
        }
        let key = entry.key.clone();
        let found = match bucket {
            Bucket::Leases => self.find_relay(entry).await,
            Bucket::Registrations => self.find(entry),
        };
        match found {
            Ok(found) => self.report_all(found).await,
            Err(error) => {
                if !is_ignored {
                    tracing::warn!("an entry of the registry is ignored: {key}: {error:#}");
                }
                self.known.ignore(key);
            }
        }
    }

    /// Notes the lease of another relay.
    async fn find_relay(&mut self, entry: kv::Entry) -> anyhow::Result<Vec<RegistryEvent>> {
        let Entry { relay, url, .. } = read(&entry)?;
        if relay == self.own.id {
            return Ok(Vec::new());
        }
        let (targets, url) = (Arc::clone(&self.targets), url.context("no url")?);
        let looking = tokio::task::spawn_blocking(move || targets(&url));
        let looked_up = tokio::time::timeout(LOOK_UP_MAX, looking).await;
        let looked_up = looked_up.context("the lookup of its host takes long")?;
        let (name, target) = looked_up.map_err(|error| anyhow!(error))??;
        let member = Arc::new(Member {
            id: relay,
            name,
            target: Arc::new(target),
        });
        Ok(self.known.add_relay(entry.key, &member))
    }

    /// Notes a registration of another relay.
    fn find(&mut self, entry: kv::Entry) -> anyhow::Result<Vec<RegistryEvent>> {
        let Entry {
            relay, namespace, ..
        } = read(&entry)?;
        let Some(namespace) = namespace.filter(|_| relay != self.own.id) else {
            return Ok(Vec::new());
        };
        let found = self.known.add(entry.key, namespace, relay);
        Ok(found.into_iter().collect())
    }
}

fn read(entry: &kv::Entry) -> anyhow::Result<Entry> {
    if entry.value.len() > VALUE_BYTES_MAX {
        bail!("more than {VALUE_BYTES_MAX} bytes");
    }
    Entry::read(&entry.value)
}

/// Renewals of the lease in which each registration is renewed once: three minutes.
const RENEWALS_PER_ROUND: usize = 60;
/// The pause before the next attempt after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long the lookup of a host may take. Meanwhile this relay does not renew its lease.
const LOOK_UP_MAX: Duration = Duration::from_secs(1);
/// How long a relay that leaves waits for the servers.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// Writes that wait for their answer at once.
const WRITES_AT_ONCE: usize = 32;
/// Writes between two looks at the time.
const WRITES_PER_TURN: usize = 512;
/// Bytes of an entry. Longer ones are ignored.
const VALUE_BYTES_MAX: usize = 32 << 10;
/// Events that wait for the event loop. Beyond this, the thread waits.
const EVENTS_MAX: usize = 4096;
/// Messages that wait for the thread.
const WATCH_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests;
