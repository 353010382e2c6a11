//! What is done beside serving: looking after files, answering operators, ending in good order.

use std::{
    io::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use weir_net::{Stop, Telemetry, clock};

use crate::{
    harness::process,
    relay::{
        authority::Gate,
        certificates::{Certificates, Watch},
        config::{Configured, RelayConfig},
        http::{self, HttpLimits, Page},
        lifecycle::{Lifecycle, Phase},
        metrics::{self, Numbers, Reloads},
        qlog::Logs,
        snapshot::Slot,
        systemd::Manager,
    },
    signals::{self, Request},
};

/// What the threads beside the event loops share.
pub(crate) struct Operations {
    lifecycle: Lifecycle,
    certificates: Certificates,
    gate: Arc<Gate>,
    logs: Arc<Logs>,
    /// One for each event loop.
    threads: Vec<(Arc<Slot>, Arc<Telemetry>)>,
    /// Tracks that /tracks may list; 0 for no such page.
    tracks_max: usize,
    manager: Manager,
    /// Memory of the process in bytes.
    memory: Arc<AtomicU64>,
    started: Instant,
    reloads_done: AtomicU64,
    reloads_failed: AtomicU64,
}

impl Operations {
    pub(crate) fn new(
        certificates: Certificates,
        gate: Arc<Gate>,
        logs: Arc<Logs>,
        threads: Vec<(Arc<Slot>, Arc<Telemetry>)>,
        tracks_max: usize,
    ) -> Self {
        Self {
            lifecycle: Lifecycle::default(),
            certificates,
            gate,
            logs,
            threads,
            tracks_max,
            manager: Manager::find(|name| std::env::var(name).ok()),
            memory: Arc::default(),
            started: clock::now(),
            reloads_done: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
        }
    }

    /// The page for operators at `path`.
    pub(crate) fn page(&self, path: &str) -> Page {
        match path {
            "/healthz" if self.is_alive() => Page::text(200, "alive"),
            "/healthz" => Page::text(503, "an event loop stands still"),
            "/readyz" => match self.lifecycle.phase() {
                Phase::Serving => Page::text(200, "ready"),
                Phase::Starting => Page::text(503, "starting"),
                Phase::Draining => Page::text(503, "draining"),
            },
            "/metrics" => Page {
                status: 200,
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: metrics::render(&self.numbers()).into_bytes().into(),
            },
            "/tracks" if self.tracks_max > 0 => self.tracks(),
            _ => Page::text(404, "there are /metrics, /healthz and /readyz"),
        }
    }

    /// Memory of the process in bytes, kept up to date from now on.
    pub(crate) fn memory(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.memory)
    }

    /// The event loops are about to run: clients are welcome.
    pub(crate) fn ready(&self) {
        self.lifecycle.serve();
        self.manager.tell("READY=1");
        tracing::info!("serving");
    }

    /// Every track, as JSON; an error instead of a part of them.
    fn tracks(&self) -> Page {
        let mut all = Vec::new();
        for (slot, _) in &self.threads {
            match slot.tracks(TRACKS_TIMEOUT) {
                Some(Ok(tracks)) => all.extend(tracks),
                Some(Err(count)) => return too_many(count),
                None => return Page::text(503, "an event loop does not answer"),
            }
        }
        if all.len() > self.tracks_max {
            return too_many(all.len());
        }
        Page {
            status: 200,
            content_type: "application/json",
            body: format!("{}\n", serde_json::Value::from(all))
                .into_bytes()
                .into(),
        }
    }

    fn numbers(&self) -> Numbers {
        let threads = self.threads.iter().map(|(slot, telemetry)| {
            let snapshot = slot.latest();
            (snapshot, telemetry.snapshot(), self.age(snapshot.at))
        });
        let expiry = self.certificates.expiry();
        Numbers {
            threads: threads.collect(),
            process: process::usage(std::process::id()).unwrap_or_default(),
            open_files: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64,
            phase: self.lifecycle.phase(),
            certificate_seconds: expiry
                .map(|expiry| expiry.as_secs_f64() - clock::since_epoch().as_secs_f64()),
            reloads: Reloads {
                done: self.reloads_done.load(Ordering::Relaxed),
                failed: self.reloads_failed.load(Ordering::Relaxed),
            },
            keys: self.gate.keys(),
            qlog: self.logs.numbers(),
            uptime: clock::now() - self.started,
        }
    }

    fn age(&self, at: Option<Instant>) -> Duration {
        clock::now().saturating_duration_since(at.unwrap_or(self.started))
    }

    /// Whether every event loop has shown up of late.
    fn is_alive(&self) -> bool {
        let mut slots = self.threads.iter();
        slots.all(|(slot, _)| self.age(slot.latest().at) < STANDSTILL)
    }

    /// Loads certificates and keys again. What is bad leaves all as it was.
    fn reload(&self) {
        // Each by itself: a bad key of an issuer must not keep a new certificate out.
        let results = [
            ("certificates", self.certificates.reload()),
            ("keys", self.gate.reload()),
        ];
        for (what, result) in results {
            match result {
                Ok(()) => {
                    self.reloads_done.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(what, "reloaded");
                }
                Err(error) => {
                    self.reloads_failed.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(what, "not reloaded, all stays as it was: {error:#}");
                }
            }
        }
    }

    /// Looks after everything until the end of the process: what signals ask for, files that change, the service
    /// manager. `stop` is requested when clients are to be told to go.
    fn keep(&self, config: &RelayConfig, requests: &Receiver<Request>, stop: &Stop) {
        let manager = &self.manager;
        let files = || self.certificates.files().chain(self.gate.files());
        let mut watch = Watch::new(files());
        let mut look_at = clock::now() + config.tls.watch;
        let mut warned = None;
        let mut leave_at = None;
        let mut feed_at = clock::now();
        loop {
            let now = clock::now();
            let next = [
                leave_at,
                Some(now + TICK),
                manager.watchdog.map(|_| feed_at),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(now);
            match requests.recv_timeout(next.saturating_duration_since(now)) {
                Ok(Request::Reload) => {
                    manager.tell("RELOADING=1");
                    self.reload();
                    watch = Watch::new(files());
                    manager.tell("READY=1");
                }
                Ok(Request::Stop) => {
                    self.lifecycle.drain();
                    manager.tell("STOPPING=1");
                    tracing::info!(delay = ?config.drain.delay, "draining");
                    leave_at = Some(clock::now() + config.drain.delay);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Nobody can ask any more; the rest is still to be looked after.
                Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(TICK),
            }
            let now = clock::now();
            if leave_at.is_some_and(|at| at <= now) {
                stop.request();
                leave_at = None;
            }
            if !config.tls.watch.is_zero() && look_at <= now {
                look_at = now + config.tls.watch;
                if watch.has_changed() {
                    self.reload();
                }
            }
            if manager.watchdog.is_some() && feed_at <= now && self.is_alive() {
                feed_at = now + manager.watchdog.unwrap_or(TICK);
                manager.tell("WATCHDOG=1");
            }
            self.renew_certificate();
            self.warn_of_expiry(&mut warned);
            let memory = process::usage(std::process::id()).map(|usage| usage.resident_bytes);
            self.memory.store(memory.unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Makes another certificate before a self-made one ends, and says its hash as when the relay was ready.
    fn renew_certificate(&self) {
        match self.certificates.renew(clock::since_epoch()) {
            Ok(true) => {
                let hash = self.certificates.hash();
                tracing::info!(sha256 = hash, "the certificate was made anew");
                let line = serde_json::json!({ "certificate_sha256": hash });
                // Nobody may be there to read it.
                let _written = writeln!(std::io::stdout(), "{line}");
            }
            Ok(false) => {}
            Err(error) => tracing::error!("the certificate could not be made anew: {error:#}"),
        }
    }

    /// Warns once a day of a certificate that ends soon.
    fn warn_of_expiry(&self, warned: &mut Option<SystemTime>) {
        let now = clock::wall();
        let is_due = warned.is_none_or(|last| {
            now.duration_since(last)
                .is_ok_and(|since| since >= EXPIRY_WARNING_EVERY)
        });
        let is_due = is_due && !self.certificates.is_self_made();
        let Some(expiry) = self.certificates.expiry().filter(|_| is_due) else {
            return;
        };
        *warned = Some(now);
        let left = (UNIX_EPOCH + expiry)
            .duration_since(now)
            .unwrap_or_default();
        if left < EXPIRY_WARNING {
            tracing::warn!(seconds = left.as_secs(), "the certificate ends soon");
        }
    }
}

/// Starts the threads beside the event loops. Returns the address for operators, if there is one, and the request to
/// stop that the event loops are to heed.
pub(crate) fn start(
    operations: &Arc<Operations>,
    configured: &Configured,
) -> anyhow::Result<(Option<SocketAddr>, Stop)> {
    let config = &configured.config;
    warn(operations, config);
    operations.gate.start()?;
    let admin = &config.admin;
    let limits = HttpLimits {
        connections_max: admin.connections_max,
        header_bytes_max: admin.header_bytes_max,
        timeout: admin.timeout,
    };
    let address = admin.listen.map(|address| {
        let pages = Arc::clone(operations);
        let served = http::serve(
            address,
            limits,
            Arc::new(move |path: &str| pages.page(path)),
        );
        served.with_context(|| configured.place("admin.listen"))
    });
    let address = address.transpose()?;
    let stop = Stop::new().context("cannot make an event descriptor")?;
    let requests = signals::requests()?;
    let (keeper, asked, config) = (Arc::clone(operations), stop.clone(), config.clone());
    std::thread::Builder::new()
        .name("keeper".to_owned())
        .spawn(move || keeper.keep(&config, &requests, &asked))
        .context("cannot start the thread that looks after files")?;
    Ok((address, stop))
}

fn too_many(count: usize) -> Page {
    Page::text(
        503,
        &format!("{count} tracks are more than admin.tracks_max"),
    )
}

/// Says what an operator may not have meant.
fn warn(operations: &Operations, config: &RelayConfig) {
    if operations.gate.is_open() && !config.listen.ip().is_loopback() {
        tracing::warn!("everybody may publish and subscribe: nothing is set in [auth]");
    }
    if let Some(admin) = config
        .admin
        .listen
        .filter(|admin| !admin.ip().is_loopback())
    {
        tracing::warn!(%admin, "metrics are readable for everybody who reaches this address");
    }
    if let Err(error) = operations.certificates.check_validity() {
        tracing::warn!("{error:#}");
    }
}

/// How long an event loop may say nothing before it counts as hung.
const STANDSTILL: Duration = Duration::from_secs(10);
/// How long an event loop may take to list its tracks: it looks whether it is to four times a second.
const TRACKS_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the keeper looks around.
const TICK: Duration = Duration::from_secs(1);
/// How long before its end a certificate is warned of.
const EXPIRY_WARNING: Duration = Duration::from_hours(7 * 24);
/// How often.
const EXPIRY_WARNING_EVERY: Duration = Duration::from_hours(24);
