//! `weir h3 serve`: a server of files.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;
use weir_http3::server::{Site, SiteLimits};
use weir_net::{Stop, certificate::Certificate, raise_open_files_limit};
use weir_quic::{Limits, Packets, tls::ServerTls};

use crate::{
    h3::{folder, server::Plan},
    output::print_json,
    relay::certificates::hash_of,
    signals,
    time::{time, time_limit},
};

/// Serve files over HTTP/3
///
/// Files are read once, when the server starts, and are sent from memory; there are no logs of requests. What has no file is
/// made on demand if its name is a size: /1k, /15k, /2m. When the server is ready it prints one line of JSON with
/// its address, when it has stopped another one with its counters. SIGINT and SIGTERM stop it cleanly.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Address to listen on; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4433")]
    listen: SocketAddr,
    /// Folder whose files to serve; names that begin with a dot are left out
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Certificate chain, PEM; without it a certificate (P-256) is made for --name
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name or address that a self-made certificate is for [default: `localhost 127.0.0.1 ::1`]
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Threads that serve, each with connections of its own
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: u16,
    /// Run each thread on one core only; as many numbers as there are threads, with commas between
    #[arg(long, alias = "core", value_name = "CORES", value_delimiter = ',')]
    cores: Vec<usize>,
    /// Make each client prove its address before its handshake (Retry)
    #[arg(long)]
    retry: bool,
    /// Neither resume sessions nor take requests with the first packet (0-RTT)
    #[arg(long)]
    no_resumption: bool,
    /// Send packets one by one even where the kernel can take several at once
    #[arg(long, alias = "disable-gso")]
    no_gso: bool,
    /// Bytes of UDP payload of full packets, from 1200 to 65527; 0: find out what the path carries
    #[arg(long, value_name = "BYTES", default_value_t = 1350)]
    max_udp_payload_size: u16,
    /// Connections at most
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    connections_max: usize,
    /// Requests that a client may have open on a connection
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    requests_max: u32,
    /// A connection without a packet from its client for this long is lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time_limit)]
    idle_timeout: Duration,
    /// Pause after handling packets, so that more are handled together; adds up to this much latency
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    rest: Duration,
    /// Files at most
    #[arg(long, value_name = "COUNT", default_value_t = SiteLimits::default().files_max)]
    files_max: usize,
    /// Bytes of all files at most
    #[arg(long, value_name = "BYTES", default_value_t = SiteLimits::default().bytes_max)]
    bytes_max: u64,
}

pub(crate) fn run(arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    let threads = usize::from(arguments.threads);
    if threads == 0 {
        bail!("--threads: expected 1 or more");
    }
    if !arguments.cores.is_empty() && arguments.cores.len() != threads {
        let cores = arguments.cores.len();
        bail!("--cores: expected as many as --threads, {threads}, not {cores}");
    }
    let site = arguments.site()?;
    let (tls, hash) = arguments.tls()?;
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

impl ServeArguments {
    fn plan(&self, tls: ServerTls, site: Arc<Site>, stop: Stop) -> anyhow::Result<Plan> {
        Ok(Plan {
            listen: self.listen,
            threads: self.threads,
            cores: self.cores.clone(),
            tls,
            limits: self.limits(),
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
            bail!("--max-udp-payload-size: expected 0, or 1200 to 65527, not {size}");
        }
        let send_bytes_fixed = (size != 0).then_some(size);
        let bytes = usize::from(send_bytes_fixed.unwrap_or(1500));
        Ok(Packets {
            send_bytes_fixed,
            joined_max: (TRAIN_BYTES_MAX / bytes).clamp(1, TRAIN_PACKETS_MAX),
            unacknowledged_max: Some(UNACKNOWLEDGED_MAX),
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

    /// TLS, and the SHA-256 hash of the certificate.
    fn tls(&self) -> anyhow::Result<(ServerTls, String)> {
        let certificate = match (&self.cert, &self.key) {
            (Some(chain), Some(key)) => Certificate::load(chain, key).context("--cert, --key")?,
            _ if self.name.is_empty() => {
                let names = ["localhost", "127.0.0.1", "::1"];
                Certificate::self_made(&names.map(str::to_owned))?
            }
            _ => Certificate::self_made(&self.name).context("--name")?,
        };
        let hash = hash_of(&certificate.chain);
        let (chain, key) = (certificate.chain, certificate.key);
        let sessions_max = if self.no_resumption { 0 } else { SESSIONS_MAX };
        let tls = ServerTls::with_sessions(chain, key, &[weir_h3::ALPN], sessions_max);
        Ok((tls.context("--cert, --key")?, hash))
    }

    fn limits(&self) -> Limits {
        Limits {
            connections_max: self.connections_max,
            handshakes_max: self.connections_max,
            handshakes_before_retry_max: if self.retry { 0 } else { self.connections_max },
            uni_streams_max: 16,
            bidi_streams_max: self.requests_max,
            stream_receive_bytes_max: 64 << 10,
            receive_bytes_max: 1 << 20,
            // References to what is in memory anyway.
            send_bytes_max: 32 << 20,
            datagram_receive_bytes_max: 0,
            idle_timeout: self.idle_timeout,
            ..Limits::default()
        }
    }
}

/// TLS sessions that are kept for clients that come back.
const SESSIONS_MAX: usize = 16 << 10;
/// What the kernel takes as one train: an IP packet's worth, and so many segments.
const TRAIN_BYTES_MAX: usize = 65_000;
const TRAIN_PACKETS_MAX: usize = 64;
/// Packets that a client may leave without an acknowledgement, if it knows how to be told.
const UNACKNOWLEDGED_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weir_net::{SocketConfig, UdpSocket};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        serve: ServeArguments,
    }

    #[test]
    fn what_is_said_of_gso_reaches_the_sockets() {
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
            // Not every kernel has it.
            let expected = offload && plain.has_segmentation();
            let mut sockets = serving.sockets();
            assert!(
                sockets.all(|socket| socket.has_segmentation() == expected),
                "{flags:?}"
            );
        }
    }
}
