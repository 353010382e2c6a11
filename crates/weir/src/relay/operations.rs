//! Operation beside the event loops: pages for operators, reloads, certificates, the service manager, shutdown.

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
use weir_relay::{LinkState, Overload};

use crate::{
    harness::process,
    relay::{
        authority::Gate,
        certificates::{Certificates, Watch},
        config::{self, Configured, RelayConfig},
        credentials::RelayCredentials,
        http::{self, HttpLimits, Page},
        lifecycle::{Lifecycle, Phase},
        metrics::{self, Numbers, Reloads},
        qlog::Logs,
        snapshot::Slot,
        sources::Sources,
        systemd::Manager,
    },
    signals::{self, Request},
};

/// State that the threads beside the event loops share.
pub(crate) struct Operations {
    lifecycle: Lifecycle,
    certificates: Certificates,
    gate: Arc<Gate>,
    credentials: Option<Arc<RelayCredentials>>,
    logs: Arc<Logs>,
    /// For each event loop, its published metrics and its telemetry.
    threads: Vec<(Arc<Slot>, Arc<Telemetry>)>,
    /// `admin.tracks_max`: longest list of /tracks; 0 for no such page.
    tracks_max: usize,
    manager: Manager,
    /// Memory of the process in bytes.
    memory: Arc<AtomicU64>,
    started: Instant,
    reloads_done: AtomicU64,
    reloads_failed: AtomicU64,
    sources: Sources,
}

/// Files that are read again together. A bad file of one kind does not keep another kind from being read.
#[derive(Clone, Copy)]
enum Reloaded {
    Certificates,
    /// Keys of issuers and revoked tokens.
    Keys,
    /// Credentials for other relays.
    Credentials,
}

impl Reloaded {
    const ALL: [Self; 3] = [Self::Certificates, Self::Keys, Self::Credentials];

    fn name(self) -> &'static str {
        match self {
            Self::Certificates => "certificates",
            Self::Keys => "keys and revoked tokens",
            Self::Credentials => "credentials for other relays",
        }
    }
}

impl Operations {
    pub(crate) fn new(
        certificates: Certificates,
        gate: Arc<Gate>,
        credentials: Option<Arc<RelayCredentials>>,
        logs: Arc<Logs>,
        threads: Vec<(Arc<Slot>, Arc<Telemetry>)>,
        tracks_max: usize,
        sources: Sources,
    ) -> Self {
        Self {
            lifecycle: Lifecycle::default(),
            certificates,
            gate,
            credentials,
            logs,
            threads,
            tracks_max,
            manager: Manager::find(|name| std::env::var(name).ok()),
            memory: Arc::default(),
            started: clock::now(),
            reloads_done: AtomicU64::new(0),
            reloads_failed: AtomicU64::new(0),
            sources,
        }
    }

    /// Returns the page for operators at `path`.
    pub(crate) fn page(&self, path: &str) -> Page {
        match path {
            "/healthz" if self.is_alive() => Page::text(200, "alive"),
            "/healthz" => Page::text(503, "an event loop has not reported for 10 s"),
            "/readyz" => match self.lifecycle.phase() {
                Phase::Serving => self.readiness(),
                Phase::Starting => Page::text(503, "starting"),
                Phase::Draining => Page::text(503, "draining"),
            },
            "/metrics" => Page {
                status: 200,
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: metrics::render(&self.numbers()).into_bytes().into(),
                report_port: None,
            },
            "/links" => self.links(),
            "/fleet" => self.fleet(),
            "/tracks" if self.tracks_max > 0 => self.tracks(),
            "/tracks" => Page::text(404, "not found: set admin.tracks_max to list tracks"),
            _ => Page::text(
                404,
                "not found: try /metrics, /links, /fleet, /healthz or /readyz",
            ),
        }
    }

    /// Returns the answer of a serving relay: 503 with the reason while an event loop refuses new sessions and requests.
    fn readiness(&self) -> Page {
        let mut threads = self.threads.iter();
        match threads.find_map(|(slot, _)| slot.latest().overload) {
            None if self.is_stale() => Page::text(
                200,
                "ready, but the registry of the fleet is stale: see /fleet",
            ),
            None => Page::text(200, "ready"),
            Some(Overload::Memory) => Page::text(
                503,
                "overload: memory is above limits.load.memory_bytes_max",
            ),
            Some(Overload::Delay) => Page::text(
                503,
                "overload: an event loop lags more than limits.load.queue_delay_max",
            ),
        }
    }

    /// Returns the memory of the process in bytes, which [`start`] keeps up to date.
    pub(crate) fn memory(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.memory)
    }

    /// Marks the relay as serving, just before the event loops run.
    pub(crate) fn ready(&self) {
        self.lifecycle.serve();
        self.manager.notify("READY=1");
        tracing::info!("serving");
    }

    /// Returns all tracks as JSON; an error if there are too many.
    fn tracks(&self) -> Page {
        let mut all = Vec::new();
        for (slot, _) in &self.threads {
            match slot.tracks(TRACKS_TIMEOUT) {
                Some(Ok(tracks)) => all.extend(tracks),
                Some(Err(count)) => return self.too_many(count),
                None => return Page::text(503, "an event loop did not answer within 2 s"),
            }
        }
        if all.len() > self.tracks_max {
            return self.too_many(all.len());
        }
        Page::json(&all.into())
    }

    /// Returns the links to upstream relays as JSON, in order of preference.
    fn links(&self) -> Page {
        let links = self.threads.iter().flat_map(|(slot, _)| slot.links());
        let links = links.map(|link| {
            serde_json::json!({
                "upstream": link.name,
                "fleet": link.relay.is_some(),
                "up": link.is_ready,
                "established": link.connects,
                "failures": link.failures,
                "subscriptions": link.subscriptions,
                "objects": link.objects,
                "round_trip_ms": link.round_trip.map(|time| time.as_secs_f64() * 1e3),
                "problem": link.problem,
            })
        });
        Page::json(&serde_json::Value::Array(links.collect()))
    }

    /// Returns whether the registry of the fleet cannot be reached. What it said before still counts, so the relay serves.
    fn is_stale(&self) -> bool {
        let mut fleets = self.threads.iter().filter_map(|(slot, _)| slot.fleet());
        fleets.any(|fleet| fleet.stale_for.is_some())
    }

    /// Returns the other relays of the fleet as JSON, with what they have registered.
    fn fleet(&self) -> Page {
        let mut fleets = self.threads.iter().filter_map(|(slot, _)| slot.fleet());
        let Some(fleet) = fleets.next() else {
            return Page::text(404, "not found: fleet.nats is not set");
        };
        let links: Vec<_> = self
            .threads
            .iter()
            .flat_map(|(slot, _)| slot.links())
            .collect();
        let relays = fleet.relays.iter().map(|relay| {
            let is_up = |link: &LinkState| link.relay == Some(relay.id) && link.is_ready;
            let namespaces = relay.namespaces.iter().map(ToString::to_string);
            serde_json::json!({
                "relay": relay.id.to_string(),
                "url": relay.name,
                "registered": relay.registered,
                "namespaces": namespaces.collect::<Vec<_>>(),
                "linked": links.iter().any(is_up),
            })
        });
        Page::json(&serde_json::json!({
            "stale_seconds": fleet.stale_for.map(|time| time.as_secs_f64()),
            "relays": relays.collect::<Vec<_>>(),
        }))
    }

    fn too_many(&self, count: usize) -> Page {
        let max = self.tracks_max;
        Page::text(
            503,
            &format!("{count} tracks, but admin.tracks_max is {max}"),
        )
    }

    fn numbers(&self) -> Numbers {
        let threads = self.threads.iter().map(|(slot, telemetry)| {
            let snapshot = slot.latest();
            (snapshot, telemetry.snapshot(), self.age(snapshot.at))
        });
        let expiry = self.certificates.expiry();
        Numbers {
            threads: threads.collect(),
            links: self
                .threads
                .iter()
                .flat_map(|(slot, _)| slot.links())
                .collect(),
            process: process::usage(std::process::id()).unwrap_or_default(),
            heap_bytes: weir_net::heap_bytes(),
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

    /// Returns whether every event loop has published metrics within [`HANGS_AFTER`].
    fn is_alive(&self) -> bool {
        let mut slots = self.threads.iter();
        slots.all(|(slot, _)| self.age(slot.latest().at) < HANGS_AFTER)
    }

    /// Reads these files again. If one is bad, what was loaded stays.
    fn reload(&self, files: Reloaded) {
        let result = match files {
            Reloaded::Certificates => self.certificates.reload(),
            Reloaded::Keys => self.gate.reload(),
            Reloaded::Credentials => match &self.credentials {
                Some(credentials) => credentials.reload(),
                None => return,
            },
        };
        let what = files.name();
        match result {
            Ok(()) => {
                self.reloads_done.fetch_add(1, Ordering::Relaxed);
                tracing::info!(what, "reloaded");
            }
            Err(error) => {
                self.reloads_failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(what, "not reloaded, the loaded {what} stay: {error:#}");
            }
        }
    }

    fn watch(&self, files: Reloaded) -> Watch {
        match files {
            Reloaded::Certificates => Watch::new(self.certificates.files()),
            Reloaded::Keys => Watch::new(self.gate.files()),
            Reloaded::Credentials => Watch::new(self.credentials.iter().flat_map(|it| it.files())),
        }
    }

    /// Handles signals, changed files, the service manager and the certificate, until the process ends. Requests `stop`
    /// `drain.delay` after SIGTERM; the relays then send GOAWAY.
    fn maintain(&self, config: &RelayConfig, requests: &Receiver<Request>, stop: &Stop) {
        let manager = &self.manager;
        let mut watches = Reloaded::ALL.map(|files| (files, self.watch(files)));
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
                    manager.notify("RELOADING=1");
                    for (files, watch) in &mut watches {
                        *watch = self.watch(*files);
                        self.reload(*files);
                    }
                    self.warn_of_settings(config);
                    manager.notify("READY=1");
                }
                Ok(Request::Stop) => {
                    self.lifecycle.drain();
                    manager.notify("STOPPING=1");
                    let delay = humantime::format_duration(config.drain.delay);
                    tracing::info!(%delay, "draining");
                    leave_at = Some(clock::now() + config.drain.delay);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The thread that reads signals has ended; the other work continues.
                Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(TICK),
            }
            let now = clock::now();
            if leave_at.is_some_and(|at| at <= now) {
                stop.request();
                leave_at = None;
            }
            if !config.tls.watch.is_zero() && look_at <= now {
                look_at = now + config.tls.watch;
                for (files, watch) in &mut watches {
                    if watch.look() {
                        self.reload(*files);
                    }
                    if watch.is_changing() {
                        look_at = look_at.min(now + TICK);
                    }
                }
            }
            if manager.watchdog.is_some() && feed_at <= now && self.is_alive() {
                feed_at = now + manager.watchdog.unwrap_or(TICK);
                manager.notify("WATCHDOG=1");
            }
            self.renew_certificate();
            self.warn_of_expiry(&mut warned);
            let memory = process::usage(std::process::id()).map(|usage| usage.resident_bytes);
            self.memory.store(memory.unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Reads the settings again, and warns of those that differ from `running`: they need a restart.
    fn warn_of_settings(&self, running: &RelayConfig) {
        match self.sources.read() {
            Ok(read) => {
                let changed = config::differences(running, &read.config);
                if !changed.is_empty() {
                    let changed = changed.join(", ");
                    tracing::warn!(
                        changed,
                        "these settings need a restart: a reload reads only certificates, keys, revoked tokens, and the token for other relays"
                    );
                }
            }
            Err(problems) => {
                let problems = problems.join("; ");
                tracing::warn!("the settings are wrong, and a restart would fail: {problems}");
            }
        }
    }

    /// Renews a self-signed certificate before it expires, and prints the hash of the new one.
    fn renew_certificate(&self) {
        match self.certificates.renew(clock::since_epoch()) {
            Ok(true) => {
                let hash = self.certificates.hash();
                tracing::info!(sha256 = hash, "self-signed certificate renewed");
                let line = serde_json::json!({ "certificate_sha256": hash });
                // Standard output may be closed.
                let _written = writeln!(std::io::stdout(), "{line}");
            }
            Ok(false) => {}
            Err(error) => tracing::error!("self-signed certificate not renewed: {error:#}"),
        }
    }

    /// Warns once a day of a certificate that expires soon.
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
            tracing::warn!(
                seconds = left.as_secs(),
                "the certificate expires soon: install a new one"
            );
        }
    }
}

/// Starts the threads beside the event loops. Returns the address of the HTTP listener, if `admin.listen` is set, and the
/// stop request for the event loops.
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
        connections_per_address_max: ADMIN_CONNECTIONS_PER_ADDRESS_MAX,
        header_bytes_max: admin.header_bytes_max,
        timeout: admin.timeout,
    };
    let address = admin.listen.map(|address| {
        let pages = Arc::clone(operations);
        let served = http::serve(
            address,
            limits,
            admin.hosts.clone(),
            Arc::new(move |path: &str| pages.page(path)),
        );
        served.with_context(|| {
            let place = configured.place("admin.listen");
            format!("{place}: cannot bind to {address}")
        })
    });
    let address = address.transpose()?;
    let stop = Stop::new().context("cannot create an eventfd")?;
    let requests = signals::requests()?;
    let (operations, requested, config) = (Arc::clone(operations), stop.clone(), config.clone());
    std::thread::Builder::new()
        .name("maintenance".to_owned())
        .spawn(move || operations.maintain(&config, &requests, &requested))
        .context("cannot start the maintenance thread")?;
    Ok((address, stop))
}

/// Warns of what an operator may not have intended.
fn warn(operations: &Operations, config: &RelayConfig) {
    for warning in warnings(&operations.gate, config) {
        tracing::warn!("{warning}");
    }
    if let Err(error) = operations.certificates.check_validity() {
        tracing::warn!("{error:#}");
    }
}

/// Returns warnings of settings that an operator may not have intended.
fn warnings(gate: &Gate, config: &RelayConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    if gate.is_open() && !config.listen.ip().is_loopback() {
        let open = "anyone may publish and subscribe: set auth.jwt.keys or auth.clients.ca to require credentials";
        warnings.push(open.to_owned());
    }
    let admin = config.admin.listen;
    if let Some(admin) = admin.filter(|admin| !admin.ip().is_loopback()) {
        warnings.push(format!(
            "anyone who reaches admin.listen ({admin}) can read metrics: use a private address"
        ));
    }
    warnings
}

/// Connections of the HTTP listener at once from one address, except this machine's own.
const ADMIN_CONNECTIONS_PER_ADDRESS_MAX: usize = 8;
/// Time without published metrics after which an event loop counts as hung.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// Time that an event loop may take to list its tracks. Event loops check for a request four times a second.
const TRACKS_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the maintenance thread.
const TICK: Duration = Duration::from_secs(1);
/// Time before the certificate's end at which warnings begin.
const EXPIRY_WARNING: Duration = Duration::from_hours(7 * 24);
/// Interval of these warnings.
const EXPIRY_WARNING_EVERY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(settings: &str) -> Vec<String> {
        let configured = Configured::read(Some(("relay.toml", settings)), |_| None, Vec::new());
        let configured = configured.expect("these are settings");
        let gate = Gate::load(&configured).expect("they name no files");
        warnings(&gate, &configured.config)
    }

    #[test]
    fn a_relay_beyond_loopback_that_lets_everybody_in_warns() {
        for address in [
            "0.0.0.0:4443",
            "[::]:4443",
            "192.0.2.1:4443",
            "[2001:db8::1]:4443",
        ] {
            let [warning] = &warned(&format!("listen = {address:?}"))[..] else {
                panic!("{address}: one warning");
            };
            assert!(
                warning.starts_with("anyone may publish and subscribe"),
                "{warning}"
            );
            let anonymous = format!(
                "listen = {address:?}\nauth.anonymous.publish = [\"a\"]\nauth.anonymous.subscribe = []"
            );
            assert_eq!(warned(&anonymous), Vec::<String>::new(), "not everything");
        }
        for address in ["127.0.0.1:4443", "[::1]:4443", "127.9.9.9:0"] {
            assert_eq!(
                warned(&format!("listen = {address:?}")),
                Vec::<String>::new()
            );
        }
    }

    #[test]
    fn metrics_beyond_loopback_are_warned_of() {
        let settings = "listen = \"127.0.0.1:4443\"\nadmin.listen = ";
        assert_eq!(warned(&format!("{settings}\"127.0.0.1:9090\"")).len(), 0);
        let [warning] = &warned(&format!("{settings}\"192.0.2.1:9090\""))[..] else {
            panic!("one warning");
        };
        assert!(warning.contains("192.0.2.1:9090"), "{warning}");
    }
}
