//! `weir h3 serve`: serves files over HTTP/3.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use rustls::pki_types::CertificateDer;
use serde_json::json;
use weir_http3::server::{Site, SiteLimits};
use weir_net::{SocketConfig, Stop, certificate::Certificate, raise_open_files_limit};
use weir_quic::{Limits, Packets, UNACKNOWLEDGED_UNNOTICED, tls::ServerTls};

use crate::{
    certificate_check::ca_warning,
    event_loop,
    h3::{folder, server::Plan},
    harness::machine::{Machine, check_cores},
    numbers::{address, core, whole},
    output::{print_json, print_line},
    relay::certificates::hash_of,
    signals,
    time::{time, time_limit},
};

/// Serve files over HTTP/3
///
/// The server reads all files when it starts, and sends them from memory. It keeps no log of requests. A path that is a size
/// and no file, such as /1k, /15k or /2m, has a made-up response of that size. The server prints a line of JSON with its
/// address when it is ready, and another with its counters when it has stopped. SIGINT and SIGTERM stop it cleanly.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Address to listen on; port 0: a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4433", value_parser = address)]
    listen: SocketAddr,
    /// Folder of the files to serve, except names that begin with a dot [default: none, only sizes such as /15k]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Certificate chain, PEM [default: a self-signed P-256 certificate for --name]
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name or address for the self-signed certificate; can be repeated [default: `localhost`, `127.0.0.1` and `::1`]
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Check the files, the certificate and the address, print what was read, and exit
    #[arg(long)]
    check: bool,
    /// Threads that serve, 1 to 255; each has its own connections
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole(1..=THREADS_MAX))]
    threads: u16,
    /// Cores of the threads, one for each, with commas between [default: any]
    #[arg(long, alias = "core", value_name = "CORES", value_delimiter = ',', value_parser = core)]
    cores: Vec<usize>,
    /// Require that each client proves its address before the handshake (Retry)
    #[arg(long)]
    retry: bool,
    /// Disable session resumption and 0-RTT
    #[arg(long)]
    no_resumption: bool,
    /// Send and receive packets one by one, without GSO and GRO
    #[arg(long, alias = "disable-gso")]
    no_gso: bool,
    /// UDP payload of full packets, in bytes, 1200 to 65527; 0: path MTU discovery
    #[arg(long, value_name = "BYTES", default_value_t = 1350, value_parser = whole(0..=65_527_u16))]
    max_udp_payload_size: u16,
    /// Largest number of connections, all threads together
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = whole(1..=usize::MAX))]
    connections_max: usize,
    /// Largest number of connections from one IPv4 address or IPv6 /64, except this machine's own; by default a quarter of all
    #[arg(long, value_name = "COUNT", value_parser = whole(1..=usize::MAX))]
    connections_per_address_max: Option<usize>,
    /// Largest number of open requests on a connection
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = whole(0..=u32::MAX))]
    requests_max: u32,
    /// Time without a packet from the client after which a connection is lost, 1ms to 1day
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time_limit)]
    idle_timeout: Duration,
    /// Pause between two reads of the socket, so that more packets are handled together; adds up to this much latency
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    rest: Duration,
    /// Largest number of files in --root
    #[arg(long, value_name = "COUNT", default_value_t = SiteLimits::default().files_max, value_parser = whole(0..=usize::MAX))]
    files_max: usize,
    /// Largest size of all files in --root together, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = SiteLimits::default().bytes_max, value_parser = whole(0..=u64::MAX))]
    bytes_max: u64,
}

pub(crate) fn run(arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    let threads = usize::from(arguments.threads);
    if !arguments.cores.is_empty() && arguments.cores.len() != threads {
        let cores = arguments.cores.len();
        bail!("--cores: expected one core for each of --threads {threads}, not {cores}");
    }
    check_cores("--cores", &arguments.cores, &Machine::this().cores)?;
    let site = arguments.site()?;
    let (tls, certificate) = arguments.tls()?;
    if arguments.check {
        return check(arguments, &site, &certificate);
    }
    let hash = hash_of(&certificate);
    raise_open_files_limit().context("cannot raise the limit of open files")?;
    let plan = arguments.plan(tls, Arc::clone(&site), signals::stop_on_signals()?)?;
    let serving = plan.bind().context("--listen")?;
    let ready = json!({
        "listening": serving.address().to_string(),
        "files": site.len(),
        "certificate_sha256": hash,
        "threads": threads,
    });
    print_json(&ready)?;
    let counters: serde_json::Map<String, serde_json::Value> = serving
        .serve()?
        .iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    print_json(&json!({ "counters": counters }))?;
    Ok(ExitCode::SUCCESS)
}

/// Checks certificate and address, and prints what was read. The check works beside a server that runs with the same flags.
fn check(
    arguments: &ServeArguments,
    site: &Site,
    chain: &[CertificateDer<'_>],
) -> anyhow::Result<ExitCode> {
    arguments.packets()?;
    let mut address = arguments.listen;
    address.set_port(0);
    event_loop::bind(address, SocketConfig::default()).context("--listen")?;
    let certificate = arguments.cert.as_ref().map_or_else(
        || "self-signed certificate".to_owned(),
        |file| format!("certificate {}", file.display()),
    );
    if let Some(warning) = arguments
        .cert
        .as_ref()
        .and_then(|file| ca_warning(file, chain))
    {
        print_line(&format!("weir: warning: {warning}"));
    }
    print_line(&format!(
        "weir: ok: {} files, {certificate}, address {}",
        site.len(),
        arguments.listen
    ));
    Ok(ExitCode::SUCCESS)
}

impl ServeArguments {
    fn plan(&self, tls: ServerTls, site: Arc<Site>, stop: Stop) -> anyhow::Result<Plan> {
        Ok(Plan {
            listen: self.listen,
            threads: self.threads,
            cores: self.cores.clone(),
            tls,
            limits: self.limits(),
            connections_per_address_max: self
                .connections_per_address_max
                .unwrap_or_else(|| self.connections_max.div_ceil(ADDRESS_SHARE)),
            packets: self.packets()?,
            offload: !self.no_gso,
            rest: self.rest,
            site,
            stop,
        })
    }

    fn packets(&self) -> anyhow::Result<Packets> {
        let size = self.max_udp_payload_size;
        if size != 0 && !(1200..=65_527).contains(&size) {
            bail!("--max-udp-payload-size: expected 0 or 1200 to 65527 bytes, not {size}");
        }
        let send_bytes_fixed = (size != 0).then_some(size);
        let bytes = usize::from(send_bytes_fixed.unwrap_or(1500));
        Ok(Packets {
            send_bytes_fixed,
            joined_max: (TRAIN_BYTES_MAX / bytes).clamp(1, TRAIN_PACKETS_MAX),
            unacknowledged_max: Some(UNACKNOWLEDGED_UNNOTICED),
            ..Packets::default()
        })
    }

    fn site(&self) -> anyhow::Result<Arc<Site>> {
        let limits = SiteLimits {
            files_max: self.files_max,
            bytes_max: self.bytes_max,
            ..SiteLimits::default()
        };
        let site = match &self.root {
            Some(root) => folder::load(root, limits).context("--root")?,
            None => Site::new(limits),
        };
        Ok(Arc::new(site))
    }

    /// Returns TLS, and the certificate chain.
    fn tls(&self) -> anyhow::Result<(ServerTls, Vec<CertificateDer<'static>>)> {
        let certificate = match (&self.cert, &self.key) {
            (Some(chain), Some(key)) => Certificate::load(chain, key).context("--cert, --key")?,
            _ if self.name.is_empty() => {
                let names = ["localhost", "127.0.0.1", "::1"];
                Certificate::self_made(&names.map(str::to_owned))?
            }
            _ => Certificate::self_made(&self.name).context("--name")?,
        };
        let (chain, key) = (certificate.chain, certificate.key);
        let sessions_max = if self.no_resumption { 0 } else { SESSIONS_MAX };
        let tls = ServerTls::with_sessions(chain.clone(), key, &[weir_h3::ALPN], sessions_max);
        Ok((tls.context("--cert, --key")?, chain))
    }

    fn limits(&self) -> Limits {
        Limits {
            connections_max: self.connections_max,
            handshakes_max: self.connections_max,
            handshakes_before_retry_max: if self.retry { 0 } else { UNPROVEN_MAX },
            uni_streams_max: 16,
            bidi_streams_max: self.requests_max,
            stream_receive_bytes_max: 64 << 10,
            receive_bytes_max: 1 << 20,
            // The files are in memory already; this counts references.
            send_bytes_max: 32 << 20,
            datagram_receive_bytes_max: 0,
            idle_timeout: self.idle_timeout,
            ..Limits::default()
        }
    }
}

/// One address may have this fraction of the connections.
const ADDRESS_SHARE: usize = 4;
/// Most threads that can share a port.
const THREADS_MAX: u16 = 255;
/// Handshakes in flight on a thread above which clients have to prove their address (Retry). Benchmarks have up to 100.
const UNPROVEN_MAX: usize = 1024;
/// TLS sessions that are kept for resumption.
const SESSIONS_MAX: usize = 16 << 10;
/// Limits of one GSO send: bytes, and packets.
const TRAIN_BYTES_MAX: usize = 65_000;
const TRAIN_PACKETS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weir_net::UdpSocket;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        serve: ServeArguments,
    }

    #[test]
    fn clients_prove_their_address_when_many_handshakes_are_in_flight() {
        for (flags, expected) in [(&[][..], UNPROVEN_MAX), (&["--retry"], 0)] {
            let Line { serve } = Line::try_parse_from(flags).unwrap();
            assert_eq!(serve.limits().handshakes_before_retry_max, expected);
        }
    }

    #[test]
    fn no_gso_reaches_the_sockets() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let plain = UdpSocket::bind(any, SocketConfig::default()).unwrap();
        for (flags, offload) in [
            (&[][..], true),
            (&["--threads=2"], true),
            (&["--no-gso"], false),
            (&["--disable-gso", "--threads=2"], false),
        ] {
            let line = ["--listen=127.0.0.1:0"].iter().chain(flags);
            let Line { serve } = Line::try_parse_from(line).unwrap();
            let (tls, _) = serve.tls().unwrap();
            let plan = serve.plan(tls, serve.site().unwrap(), Stop::new().unwrap());
            let serving = plan.unwrap().bind().unwrap();
            assert_eq!(serving.sockets().count(), usize::from(serve.threads));
            // Some kernels have no GSO.
            let expected = offload && plain.has_segmentation();
            let mut sockets = serving.sockets();
            assert!(
                sockets.all(|socket| socket.has_segmentation() == expected),
                "{flags:?}"
            );
        }
    }
}
