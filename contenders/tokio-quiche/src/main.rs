//! A minimal HTTP/3 server with Cloudflare's quiche and tokio-quiche on one thread: the files of a folder, kept in memory.
//!
//! tokio-quiche-h3 --listen ADDRESS --root FOLDER --cert FILE --key FILE
//!
//! It is as quick as a plain use of the two libraries is: a contender, not an example of tuning.

use std::{collections::HashMap, fs, net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::UdpSocket;
use tokio_quiche::{
    ConnectionParams, ServerH3Controller, ServerH3Driver,
    http3::{
        driver::{IncomingH3Headers, OutboundFrame, ServerH3Event},
        settings::Http3Settings,
    },
    metrics::DefaultMetrics,
    quiche::h3::{Header, NameValue as _},
    settings::{CertificateKind, Hooks, QuicSettings, TlsCertificatePaths},
};

type Files = Arc<HashMap<Vec<u8>, Bytes>>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--version"] {
        println!("tokio-quiche 0.20.1, quiche 0.30.0");
        return Ok(());
    }
    let value = |flag: &str| {
        let place = arguments.iter().position(|argument| argument == flag);
        let value = place.and_then(|place| arguments.get(place + 1));
        value.with_context(|| format!("{flag} is missing; see the head of main.rs"))
    };
    let address: SocketAddr = value("--listen")?.parse().context("--listen")?;
    let files = load(Path::new(value("--root")?)).context("--root")?;
    let certificate = TlsCertificatePaths {
        cert: value("--cert")?,
        private_key: value("--key")?,
        kind: CertificateKind::X509,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(address, certificate, files))
}

fn load(folder: &Path) -> anyhow::Result<Files> {
    let mut files = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.metadata()?.is_file() {
            let path = format!("/{}", entry.file_name().to_string_lossy());
            files.insert(path.into_bytes(), fs::read(entry.path())?.into());
        }
    }
    Ok(Arc::new(files))
}

async fn serve(
    address: SocketAddr,
    certificate: TlsCertificatePaths<'_>,
    files: Files,
) -> anyhow::Result<()> {
    let mut settings = QuicSettings::default();
    settings.initial_max_streams_bidi = 256;
    settings.enable_early_data = true;
    // No Retry packet, as with the other servers.
    settings.disable_client_ip_validation = true;
    let socket = UdpSocket::bind(address).await?;
    let parameters = ConnectionParams::new_server(settings, certificate, Hooks::default());
    let mut listeners = tokio_quiche::listen([socket], parameters, DefaultMetrics)?;
    let connections = listeners.first_mut().context("no listener")?;
    while let Some(connection) = connections.next().await {
        // A client that fails concerns nobody else.
        if let Ok(connection) = connection {
            let (driver, controller) = ServerH3Driver::new(Http3Settings::default());
            connection.start(driver);
            tokio::spawn(client(controller, Arc::clone(&files)));
        }
    }
    Err(anyhow!("the socket failed"))
}

async fn client(mut controller: ServerH3Controller, files: Files) {
    while let Some(event) = controller.event_receiver_mut().recv().await {
        if let ServerH3Event::Headers {
            incoming_headers, ..
        } = event
        {
            tokio::spawn(answer(incoming_headers, Arc::clone(&files)));
        }
    }
}

/// Answers a request. If the connection ends before that, nobody waits for the rest.
async fn answer(mut request: IncomingH3Headers, files: Files) -> Option<()> {
    let field = |name: &[u8]| {
        let mut headers = request.headers.iter();
        headers
            .find(|header| header.name() == name)
            .map(|header| header.value().to_vec())
    };
    let content = match field(b":method").as_deref() {
        Some(b"GET") => {
            let path = field(b":path").unwrap_or_default();
            files.get(&path).cloned().ok_or("404")
        }
        _ => Err("405"),
    };
    let mut length = None;
    let (status, body) = match content {
        Ok(content) => {
            length = Some(content.len().to_string());
            ("200", content)
        }
        Err(status) => (status, Bytes::new()),
    };
    let mut headers = vec![Header::new(b":status", status.as_bytes())];
    if let Some(length) = length {
        headers.push(Header::new(b"content-type", b"application/octet-stream"));
        headers.push(Header::new(b"content-length", length.as_bytes()));
    }
    let frames = &mut request.send;
    frames
        .feed(OutboundFrame::Headers(headers, None))
        .await
        .ok()?;
    frames.send(OutboundFrame::Body(body, true)).await.ok()
}
