//! `weir null-relay`: the relay that load generators are calibrated against.

use std::{io::Write as _, net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use weir_bench::null_relay::NullRelay;
use weir_net::{Host, HostConfig, SocketConfig, Telemetry, pin_to_core, raise_open_files_limit};
use weir_quic::{Limits, tls::ServerTls};

use crate::{endpoints, run, signals};

/// Run a relay that does nothing but forward
///
/// It keeps nothing and asks nobody who may do what. `weir bench --calibrate` starts it by itself.
#[derive(Debug, Args)]
pub(super) struct NullRelayArguments {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Core to run on
    #[arg(long, value_name = "CORE")]
    cores: Option<usize>,
}

pub(super) fn run(arguments: &NullRelayArguments) -> anyhow::Result<ExitCode> {
    let stop = signals::stop_on_signals()?;
    if let Some(core) = arguments.cores {
        pin_to_core(core).with_context(|| format!("--cores: cannot run on core {core}"))?;
    }
    raise_open_files_limit().context("cannot raise the limit of open files")?;
    let socket = endpoints::bind(arguments.listen, SocketConfig::default())?;
    let address = socket
        .local_address()
        .context("the socket has no address")?;
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        ..Limits::default()
    };
    let offload = socket.has_segmentation();
    let endpoint = endpoints::endpoint(limits, Some(tls()?), offload, None)?;
    let telemetry = Arc::new(Telemetry::default());
    let host_config = HostConfig::default();
    let mut host = Host::new(host_config, vec![socket], endpoint, telemetry, stop)
        .context("cannot set up the event loop")?;
    say(&json!({ "listening": address.to_string() }))?;
    let mut relay = NullRelay::new();
    host.run(&mut relay).context("the event loop failed")?;
    let done = relay.forwarding();
    say(&json!({ "counters": {
        "streams_forwarded": done.streams,
        "copies_given_up": done.copies_given_up,
    } }))?;
    Ok(ExitCode::SUCCESS)
}

/// A certificate of its own, for as long as it runs.
fn tls() -> anyhow::Result<ServerTls> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names).context("cannot make a certificate")?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut protocols = run::protocols();
    protocols.push(weir_h3::ALPN);
    ServerTls::new(vec![made.cert.der().clone()], key.into(), &protocols).context("TLS")
}

fn say(value: &serde_json::Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// As many as a load generator opens.
const CONNECTIONS_MAX: usize = 1 << 16;
