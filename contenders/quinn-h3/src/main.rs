//! A minimal HTTP/3 server with quinn and h3 on one thread: the files of a folder, kept in memory.
//!
//! quinn-h3 --listen ADDRESS --root FOLDER --cert FILE --key FILE
//!
//! It is as quick as a plain use of the two libraries is, with GSO, P-256 and tickets: a contender, not an example of tuning.

use std::{collections::HashMap, fs, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use h3::server::RequestStream;
use http::{Method, Request, Response, StatusCode};
use quinn::crypto::rustls::QuicServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

type Files = Arc<HashMap<String, Bytes>>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--version"] {
        println!(
            "quinn-h3 {}: quinn 0.11, h3 0.0.8",
            env!("CARGO_PKG_VERSION")
        );
        return Ok(());
    }
    let value = |flag: &str| {
        let place = arguments.iter().position(|argument| argument == flag);
        let value = place.and_then(|place| arguments.get(place + 1));
        value.with_context(|| format!("{flag} is missing; see the head of main.rs"))
    };
    let address: SocketAddr = value("--listen")?.parse().context("--listen")?;
    let files = load(Path::new(value("--root")?)).context("--root")?;
    let config = config(value("--cert")?, value("--key")?)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(address, config, files))
}

fn load(folder: &Path) -> anyhow::Result<Files> {
    let mut files = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.metadata()?.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            files.insert(format!("/{name}"), fs::read(entry.path())?.into());
        }
    }
    Ok(Arc::new(files))
}

fn config(certificate: &str, key: &str) -> anyhow::Result<quinn::ServerConfig> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .context("--cert")?;
    let key = PrivateKeyDer::from_pem_file(key).context("--key")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.max_early_data_size = u32::MAX;
    let mut transport = quinn::TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(256_u32.into())
        .max_idle_timeout(Some(Duration::from_secs(30).try_into()?))
        // The path's limit is known, as it is to the other servers.
        .initial_mtu(1350)
        .mtu_discovery_config(None)
        .send_window(32 << 20);
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

async fn serve(
    address: SocketAddr,
    config: quinn::ServerConfig,
    files: Files,
) -> anyhow::Result<()> {
    let endpoint = quinn::Endpoint::server(config, address)?;
    println!("listening on {}", endpoint.local_addr()?);
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => {
                    let files = Arc::clone(&files);
                    tokio::spawn(async move {
                        // A client that fails concerns nobody else.
                        let _failed = client(incoming, files).await;
                    });
                }
                None => return Ok(()),
            },
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    endpoint.close(0x100_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

async fn client(incoming: quinn::Incoming, files: Files) -> anyhow::Result<()> {
    let connection = h3_quinn::Connection::new(incoming.await?);
    let mut connection = h3::server::Connection::new(connection).await?;
    while let Some(resolver) = connection.accept().await? {
        let files = Arc::clone(&files);
        tokio::spawn(async move {
            let (request, stream) = resolver.resolve_request().await?;
            answer(&request, stream, &files).await
        });
    }
    Ok(())
}

async fn answer(
    request: &Request<()>,
    mut stream: RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>,
    files: &Files,
) -> anyhow::Result<()> {
    // To its end, or clients would be told to stop.
    while stream.recv_data().await?.is_some() {}
    let content = match *request.method() {
        Method::GET => files.get(request.uri().path()).ok_or(StatusCode::NOT_FOUND),
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    };
    let content = match content {
        Ok(content) => content.clone(),
        Err(status) => {
            let response = Response::builder().status(status).body(())?;
            stream.send_response(response).await?;
            return Ok(stream.finish().await?);
        }
    };
    let response = Response::builder()
        .header("content-type", "application/octet-stream")
        .header("content-length", content.len())
        .body(())?;
    stream.send_response(response).await?;
    stream.send_data(content).await?;
    Ok(stream.finish().await?)
}
