//! `weir relay`: the relay on real sockets.

use std::{
    io::Write as _, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use weir_moqt::draft::Draft;
use weir_net::{
    Host, HostConfig, SocketConfig, Telemetry, certificate::Certificate, pin_to_core,
    raise_open_files_limit,
};
use weir_quic::{Limits, tls::ServerTls};
use weir_relay::{Config, Relay};

use crate::{endpoints, signals};

/// Run a relay
///
/// When it is ready it prints one line of JSON with its address, when it has stopped another one with its
/// counters. SIGINT and SIGTERM stop it cleanly.
#[derive(Debug, Args)]
pub(crate) struct RelayArguments {
    /// Address to listen on; port 0 lets the system choose
    #[arg(long, default_value = "127.0.0.1:4443", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Certificate chain, PEM; without it a certificate is made for `--name`
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name or address that a self-made certificate is for
    #[arg(long, value_name = "NAME", default_values = ["localhost", "127.0.0.1", "::1"])]
    name: Vec<String>,
    /// Run on this core only
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Connections at most
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    connections_max: usize,
    /// Rest after packets were handled, in microseconds, so that more are handled together
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 500)]
    rest: u64,
    /// Send packets one by one even where the kernel can take several at once
    #[arg(long)]
    no_offload: bool,
    /// Write a qlog file for every connection into this folder
    #[arg(long, value_name = "FOLDER")]
    qlog: Option<PathBuf>,
}

pub(crate) fn run(arguments: &RelayArguments) -> anyhow::Result<ExitCode> {
    let certificate = match (&arguments.cert, &arguments.key) {
        (Some(chain), Some(key)) => Certificate::load(chain, key)?,
        _ => Certificate::self_made(&arguments.name)?,
    };
    let protocols: Vec<&str> = Draft::ALL.iter().map(|draft| draft.alpn()).collect();
    let tls = ServerTls::new(certificate.chain, certificate.key, &protocols)?;
    let socket_config = SocketConfig {
        offload: !arguments.no_offload,
        ..SocketConfig::default()
    };
    let socket = endpoints::bind(arguments.listen, socket_config)?;
    if let Some(core) = arguments.core {
        pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
    }
    raise_open_files_limit().context("cannot raise the limit of open files")?;
    let limits = Limits {
        connections_max: arguments.connections_max,
        ..Limits::default()
    };
    let qlog = arguments.qlog.as_deref();
    let endpoint = endpoints::endpoint(limits, Some(tls), socket.has_segmentation(), qlog)?;
    let address = socket
        .local_address()
        .context("the socket has no address")?;
    let stop = signals::stop_on_signals()?;
    let telemetry = Arc::new(Telemetry::default());
    let config = HostConfig {
        rest: Duration::from_micros(arguments.rest),
        ..HostConfig::default()
    };
    let mut host = Host::new(config, vec![socket], endpoint, telemetry, stop)
        .context("cannot set up the event loop")?;
    let mut relay = Relay::new(Config {
        implementation: Some(concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned()),
        ..Config::default()
    });
    print_json(&json!({ "listening": address.to_string(), "protocols": protocols }))?;
    host.run(&mut relay).context("the event loop failed")?;
    let counters: serde_json::Map<String, serde_json::Value> = relay
        .counters()
        .iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    print_json(&json!({ "counters": counters }))?;
    Ok(ExitCode::SUCCESS)
}

fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}
