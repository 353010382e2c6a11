//! `weir null-relay`: a relay that only forwards. The load generator is calibrated against it.

use std::{net::SocketAddr, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use weir_bench::null_relay::NullRelay;
use weir_net::{SocketConfig, pin_to_core, raise_open_files_limit};
use weir_quic::{EndpointConfig, Limits, tls::ServerTls};

use crate::{
    event_loop::{self, EventLoop},
    numbers::core,
    output::print_json,
    run, signals,
};

/// Run a relay that only forwards, to calibrate the load generator
///
/// This relay has no cache and no authorization. `weir bench --calibrate` starts it.
#[derive(Debug, Args)]
pub(super) struct NullRelayArguments {
    /// Address to listen on; port 0: a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Core to run on
    #[arg(long, value_name = "CORE", value_parser = core)]
    cores: Option<usize>,
}

pub(super) fn run(arguments: &NullRelayArguments) -> anyhow::Result<ExitCode> {
    let stop = signals::stop_on_signals()?;
    raise_open_files_limit().context("cannot raise the limit of open files")?;
    let socket = event_loop::bind(arguments.listen, SocketConfig::default())?;
    let address = socket
        .local_address()
        .context("the socket has no address")?;
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        ..Limits::default()
    };
    let endpoint = EndpointConfig {
        server: Some(tls()?),
        ..event_loop::endpoint(limits)?
    };
    if let Some(core) = arguments.cores {
        pin_to_core(core).with_context(|| format!("--cores: cannot run on core {core}"))?;
    }
    let event_loop = EventLoop::new(vec![socket], endpoint, stop)?;
    print_json(&json!({ "listening": address.to_string() }))?;
    let mut relay = NullRelay::new();
    event_loop.run(&mut relay)?;
    let done = relay.forwarding();
    print_json(&json!({ "counters": {
        "streams_forwarded": done.streams,
        "copies_given_up": done.copies_given_up,
    } }))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns TLS with a certificate that is made for this process.
fn tls() -> anyhow::Result<ServerTls> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names).context("cannot make a certificate")?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut protocols = run::protocols();
    protocols.push(weir_h3::ALPN);
    ServerTls::new(vec![made.cert.der().clone()], key.into(), &protocols).context("TLS")
}

/// A load generator opens fewer connections.
const CONNECTIONS_MAX: usize = 1 << 16;
