//! A connection with its SETUP.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, anyhow};
use moqtail::{
    model::{
        control::{
            constant::SUPPORTED_VERSIONS,
            control_message::{ControlMessage, ControlMessageTrait as _},
            setup::Setup,
        },
        error::TerminationCode,
        parameter::setup_option::SetupOption,
    },
    transport::{connection::TransportConnection, control_stream_handler::ControlStreamHandler},
};
use wtransport::{
    ClientConfig, Endpoint,
    endpoint::ConnectOptions,
    quinn::{self, crypto::rustls::QuicClientConfig},
    tls::{
        WEBTRANSPORT_ALPN,
        client::{NoServerVerification, build_default_tls_config},
        rustls::{self, RootCertStore},
    },
};

/// A connected session.
pub(crate) struct Session {
    pub(crate) connection: TransportConnection,
    /// Open as long as the session is.
    _control: ControlStreamHandler,
    next_request_id: u64,
}

impl Session {
    /// Connects to a relay with a URL that begins with `moqt:` or `https:`.
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let (scheme, rest) = url.split_once("://").context("a URL has a scheme")?;
        let authority = rest.trim_end_matches('/');
        let connection = match scheme {
            "https" => web_transport(url).await?,
            "moqt" => quic(authority.parse()?).await?,
            _ => {
                return Err(anyhow!(
                    "the scheme of a relay is moqt or https, not {scheme}"
                ));
            }
        };
        let mut options = vec![SetupOption::new_moqt_implementation(
            "moqtail-peer".to_owned(),
        )];
        if scheme == "moqt" {
            options.push(SetupOption::new_path("/".to_owned()));
            options.push(SetupOption::new_authority(authority.to_owned()));
        }
        let options: Result<Vec<_>, _> = options.into_iter().map(TryInto::try_into).collect();
        let mut send = connection.open_uni().await?;
        send.write_all(&Setup::new(options?).serialize()?).await?;
        let receive = connection.accept_uni().await?;
        let mut control = ControlStreamHandler::new(send, receive);
        control.read_setup().await.map_err(ended)?;
        Ok(Self {
            connection,
            _control: control,
            next_request_id: 0,
        })
    }

    pub(crate) fn request_id(&mut self) -> u64 {
        self.next_request_id += 2;
        self.next_request_id - 2
    }

    /// Sends a request, and returns its stream and the answer.
    pub(crate) async fn request(
        &self,
        request: ControlMessage,
    ) -> anyhow::Result<(ControlStreamHandler, ControlMessage)> {
        let (send, receive) = self.connection.open_bi().await?;
        let mut stream = ControlStreamHandler::new(send, receive);
        stream.send(&request).await.map_err(ended)?;
        let answer = stream.next_message().await.map_err(ended)?;
        Ok((stream, answer))
    }
}

/// An error for the end of a stream or session.
pub(crate) fn ended(code: TerminationCode) -> anyhow::Error {
    anyhow!("the library ends with {code:?}")
}

async fn web_transport(url: &str) -> anyhow::Result<TransportConnection> {
    let config = ClientConfig::builder()
        .with_bind_default()
        .with_custom_tls(tls(WEBTRANSPORT_ALPN))
        .build();
    let options = ConnectOptions::builder(url)
        .add_header(
            "wt-available-protocols",
            format!("\"{SUPPORTED_VERSIONS}\""),
        )
        .build();
    let connection = Endpoint::client(config)?.connect(options).await?;
    Ok(TransportConnection::WebTransport(connection))
}

async fn quic(address: SocketAddr) -> anyhow::Result<TransportConnection> {
    let tls = QuicClientConfig::try_from(tls(SUPPORTED_VERSIONS.as_bytes()))?;
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse()?)?;
    let config = quinn::ClientConfig::new(Arc::new(tls));
    let connection = endpoint.connect_with(config, address, "localhost")?.await?;
    Ok(TransportConnection::Quic(connection))
}

/// Returns a configuration that accepts every certificate.
fn tls(alpn: &[u8]) -> rustls::ClientConfig {
    let verifier = Arc::new(NoServerVerification::new());
    let roots = Arc::new(RootCertStore::empty());
    let mut tls = build_default_tls_config(roots, Some(verifier));
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls
}
