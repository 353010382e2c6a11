//! `weir relay`: runs the relay.

use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;
use weir_net::{
    SocketConfig, Telemetry, UdpSocket, certificate::load_chain, raise_open_files_limit,
};

use crate::{
    certificate_check::ca_warning,
    cmd::{LogFormat, start_log},
    event_loop,
    harness::machine::{Machine, check_cores},
    output::{print_json, print_line, print_out},
    relay::{
        authority::Gate,
        certificates::Certificates,
        config::{Configured, RelayConfig},
        credentials::RelayCredentials,
        fleet,
        operations::{self, Operations},
        qlog::Logs,
        settings::{Place, Raw},
        snapshot::Slot,
        sources::Sources,
        threads::Plan,
        upstreams,
    },
};

/// Run a relay
///
/// Every setting has a key in the TOML file of --config, a variable `WEIR_RELAY_KEY`, and --set KEY=VALUE; common settings
/// have a flag. Flags override variables, and variables override the file; --print-config shows the result, with a comment
/// on each setting. The relay prints a line of JSON with its address when it is ready, and another with its counters when
/// it has stopped. SIGINT and SIGTERM stop it cleanly.
#[derive(Debug, Args)]
pub(crate) struct RelayArguments {
    /// File of settings, TOML
    #[arg(long, value_name = "FILE", env = "WEIR_RELAY_CONFIG")]
    config: Option<PathBuf>,
    /// Check all settings, files and addresses, print what was read, and exit: code 0 if the relay could start, otherwise 2.
    /// Ports may be in use, so that the settings of a running relay can be checked
    #[arg(long)]
    check: bool,
    /// Print all settings as TOML, and exit
    #[arg(long)]
    print_config: bool,
    /// Any setting, such as `limits.relay.tracks_max=1000`; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Address to listen on; port 0: a free port [default: 127.0.0.1:4443]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Certificate chain, PEM [default: a self-signed certificate for --name]
    #[arg(long, value_name = "FILE")]
    cert: Option<String>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    key: Option<String>,
    /// Name or address for the self-signed certificate; can be repeated [default: `localhost`, `127.0.0.1` and `::1`]
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Print the SHA-256 hash of the certificate, for --certificate-hash of clients and `serverCertificateHashes` of browsers
    #[arg(long)]
    show_hash: bool,
    /// Threads that serve, 1 to 64; each has its own connections [default: 1]
    #[arg(long, value_name = "COUNT")]
    threads: Option<String>,
    /// Cores of the threads, one for each, with commas between [default: any]
    #[arg(long, alias = "core", value_name = "CORES")]
    cores: Option<String>,
    /// Largest number of connections, all threads together [default: 20000]
    #[arg(long, value_name = "COUNT")]
    connections_max: Option<String>,
    /// Pause between two reads of the socket, so that more packets are handled together; adds up to this much latency
    /// [default: 500us]
    #[arg(long, value_name = "TIME")]
    rest: Option<String>,
    /// Send and receive packets one by one, without GSO and GRO
    #[arg(long)]
    no_offload: bool,
    /// Folder for qlog files, one per connection [default: none are written]
    #[arg(long, value_name = "FOLDER")]
    qlog: Option<String>,
    /// Address of metrics and health, such as 127.0.0.1:9443 [default: none]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// Relay to ask for tracks that no client of this relay publishes: `moqt://HOST:PORT` or `https://HOST:PORT`; can be repeated
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,
    /// File with a token for the relays of --upstream
    #[arg(long, value_name = "FILE")]
    upstream_token: Option<String>,
    /// CA certificates of the relays of --upstream, PEM [default: those of the system]
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<String>,
    /// NATS servers through which the relays of a fleet find each other: nats://USER:PASSWORD@HOST:PORT or tls://, several with
    /// commas between
    #[arg(long, value_name = "URLS")]
    fleet: Option<String>,
    /// File with the credentials of a NATS account
    #[arg(long, value_name = "FILE")]
    fleet_credentials: Option<String>,
    /// URL by which other relays of the fleet reach this one [default: moqt:// and the address of --listen]
    #[arg(long, value_name = "URL")]
    fleet_url: Option<String>,
    /// Format of the log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl RelayArguments {
    /// Returns the flags as a layer of settings: --set first, so that the other flags override it.
    fn layer(&self, log: Option<&str>) -> anyhow::Result<Vec<(String, Raw, Place)>> {
        let mut layer = Vec::new();
        let mut add = |flag: &str, key: &str, raw| {
            layer.push((key.to_owned(), raw, Place::Flag(flag.to_owned())));
        };
        for pair in &self.set {
            let Some((key, value)) = pair.split_once('=') else {
                bail!("--set: expected KEY=VALUE, not `{}`", pair.escape_debug());
            };
            add("--set", key.trim(), Raw::Text(value.trim().to_owned()));
        }
        for (flag, key, value) in [
            ("--listen", "listen", &self.listen),
            ("--cert", "tls.certificate", &self.cert),
            ("--key", "tls.key", &self.key),
            ("--threads", "threads", &self.threads),
            ("--cores", "cores", &self.cores),
            (
                "--connections-max",
                "limits.quic.connections_max",
                &self.connections_max,
            ),
            ("--rest", "rest", &self.rest),
            ("--qlog", "qlog.folder", &self.qlog),
            ("--admin", "admin.listen", &self.admin),
            (
                "--upstream-token",
                "upstream.token_file",
                &self.upstream_token,
            ),
            ("--upstream-ca", "upstream.ca", &self.upstream_ca),
            ("--fleet", "fleet.nats", &self.fleet),
            (
                "--fleet-credentials",
                "fleet.credentials",
                &self.fleet_credentials,
            ),
            ("--fleet-url", "fleet.url", &self.fleet_url),
            ("--log-format", "log.format", &self.log_format),
        ] {
            if let Some(value) = value {
                add(flag, key, Raw::Text(value.clone()));
            }
        }
        if !self.name.is_empty() {
            let names = self.name.iter().cloned().map(Raw::Text).collect();
            add("--name", "tls.names", Raw::List(names));
        }
        if !self.upstream.is_empty() {
            let urls = self.upstream.iter().cloned().map(Raw::Text).collect();
            add("--upstream", "upstream.urls", Raw::List(urls));
        }
        if self.no_offload {
            add("--no-offload", "offload", Raw::Boolean(false));
        }
        if let Some(log) = log {
            add("--log", "log.filter", Raw::Text(log.to_owned()));
        }
        Ok(layer)
    }
}

/// Runs the relay, or what --check or --print-config ask for. `log` is the value of --log.
pub(crate) fn run(arguments: &RelayArguments, log: Option<&str>) -> anyhow::Result<ExitCode> {
    let sources = Sources {
        file: arguments.config.clone(),
        flags: arguments.layer(log)?,
    };
    let configured = match sources.read() {
        Ok(configured) => configured,
        Err(problems) => {
            for problem in problems {
                print_line(&format!("weir: {problem}"));
            }
            return Ok(ExitCode::from(crate::cmd::EXIT_ERROR));
        }
    };
    if arguments.print_config {
        print_out(&configured.print())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (place, cores) = (configured.place("cores"), Machine::this().cores);
    check_cores(&place, &configured.config.cores, &cores)?;
    if arguments.check {
        check(&configured)?;
        return Ok(ExitCode::SUCCESS);
    }
    let format = match configured.config.log.format.as_str() {
        "json" => LogFormat::Json,
        _ => LogFormat::Text,
    };
    start_log(&configured.config.log.filter, format);
    serve(&configured, sources, arguments.show_hash)
}

/// Checks whether the relay could start with these settings, and prints what was read. The check works beside a relay that
/// runs with the same settings.
fn check(configured: &Configured) -> anyhow::Result<()> {
    let config = &configured.config;
    let certificates = Certificates::load(configured)?;
    certificates.tls(&protocols(config))?;
    certificates
        .check_validity()
        .with_context(|| configured.place("tls.certificate"))?;
    Gate::load(configured)?;
    upstreams::load(configured, RelayCredentials::load(configured)?.as_ref())?;
    fleet::check(configured)?;
    // A free port of the address, since a running relay may have the other one.
    let at = |address: SocketAddr| SocketAddr::new(address.ip(), 0);
    let problem = |key, address| format!("{}: cannot bind to {address}", configured.place(key));
    UdpSocket::bind(at(config.listen), SocketConfig::default())
        .with_context(|| problem("listen", config.listen))?;
    if let Some(address) = config.admin.listen {
        TcpListener::bind(at(address)).with_context(|| problem("admin.listen", address))?;
    }
    if let Some(warning) = warning_of_certificate(config) {
        print_line(&format!("weir: warning: {warning}"));
    }
    let certificate = match &config.tls.certificate {
        Some(file) => format!("certificate {}", file.display()),
        None => "self-signed certificate".to_owned(),
    };
    let keys = config
        .auth
        .jwt
        .keys
        .iter()
        .map(|file| format!(", token keys {}", file.display()));
    let admin = config
        .admin
        .listen
        .map(|address| format!(", admin address {address}"));
    print_line(&format!(
        "weir: ok: {certificate}{}, address {}{}",
        keys.collect::<String>(),
        config.listen,
        admin.unwrap_or_default()
    ));
    Ok(())
}

/// Returns the ALPN protocols of the relay, preferred ones first. A client that offers raw QUIC and HTTP/3 gets raw QUIC,
/// which has less overhead.
fn protocols(config: &RelayConfig) -> Vec<&'static str> {
    let mut protocols = config.protocols();
    protocols.push(weir_h3::ALPN);
    protocols
}

/// Returns what clients will not accept about the certificate of the settings.
fn warning_of_certificate(config: &RelayConfig) -> Option<String> {
    let file = config.tls.certificate.as_deref()?;
    ca_warning(file, &load_chain(file).ok()?)
}

fn serve(configured: &Configured, sources: Sources, shows_hash: bool) -> anyhow::Result<ExitCode> {
    let config = &configured.config;
    let certificates = Certificates::load(configured)?;
    if let Some(warning) = warning_of_certificate(config) {
        tracing::warn!("{warning}");
    }
    let hash = certificates.hash();
    if shows_hash {
        print_line(&format!("certificate SHA-256: {hash}"));
    }
    let tls = certificates.tls(&protocols(config))?;
    let gate = Arc::new(Gate::load(configured)?);
    let credentials = RelayCredentials::load(configured)?;
    let upstreams = upstreams::load(configured, credentials.as_ref())?;
    let socket_config = SocketConfig {
        offload: config.offload,
        ..SocketConfig::default()
    };
    let sockets = event_loop::bind_group(config.listen, socket_config, config.threads)
        .with_context(|| configured.place("listen"))?;
    raise_open_files_limit().context("cannot raise the limit of open files")?;
    let address = sockets[0]
        .local_address()
        .context("the socket has no address")?;
    let fleet = fleet::join(configured, credentials.as_ref(), address)?;
    let logs = Arc::new(Logs::default());
    let threads: Vec<(Arc<Slot>, Arc<Telemetry>)> =
        sockets.iter().map(|_| Default::default()).collect();
    let operations = Operations::new(
        certificates,
        Arc::clone(&gate),
        credentials.clone(),
        Arc::clone(&logs),
        threads.clone(),
        config.admin.tracks_max,
        sources,
    );
    let operations = Arc::new(operations);
    let (admin, stop) = operations::start(&operations, configured)?;
    let plan = Plan {
        configured,
        tls,
        gate,
        logs,
        memory: operations.memory(),
        upstreams,
        credentials,
        fleet,
        stop,
    };
    let crew = plan.crew(sockets, threads)?;
    let mut ready = json!({
        "listening": address.to_string(),
        "protocols": protocols(config),
        "certificate_sha256": hash,
        "threads": config.threads,
    });
    if let Some(admin) = admin {
        ready["admin"] = admin.to_string().into();
    }
    operations.ready();
    print_json(&ready)?;
    let done = crew.serve()?;
    tracing::info!("stopped");
    let counters = by_name(done.counters.iter().chain(done.datagrams.iter()));
    let sessions = by_name(done.sessions.iter());
    print_json(&json!({ "counters": counters, "session_counters": sessions }))?;
    Ok(ExitCode::SUCCESS)
}

fn by_name(
    numbers: impl Iterator<Item = (&'static str, u64)>,
) -> serde_json::Map<String, serde_json::Value> {
    let named = numbers.map(|(name, value)| (name.to_owned(), value.into()));
    named.collect()
}
