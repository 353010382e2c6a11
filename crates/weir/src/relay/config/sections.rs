//! The sections of the settings: each value with its type, default, range and description.
//!
//! The order is that of `--print-config`. Limits are defined in the crates that enforce them.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::RelayConfig;
use crate::relay::settings::{SecretUrl, Setting, setting};

/// Declares a section: a struct with its defaults, and its rows of the table of settings.
macro_rules! section {
    (
        $(#[$doc:meta])*
        $name:ident at $section:tt {
            $($field:ident: $type:ty = $default:expr, $(in $range:expr,)? $about:literal;)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            $(#[doc = $about] pub(crate) $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $name {
            pub(super) fn table() -> Vec<Setting<RelayConfig>> {
                vec![$(setting!($section $field $(in $range)?, $about),)+]
            }
        }
    };
}

section! {
    /// The relay's certificate.
    TlsConfig at [tls] {
        certificate: Option<PathBuf> = None, "Certificate chain of the relay (PEM file), with `tls.key`. Not set: the relay makes a self-signed certificate for `tls.names`.";
        key: Option<PathBuf> = None, "Private key of the certificate (PEM file).";
        names: Vec<String> = words(&["localhost", "127.0.0.1", "::1"]), "Host names and IP addresses in the self-signed certificate.";
        watch: Duration = Duration::from_secs(10), in 0..=DAY,
            "Interval at which the files with certificates, keys, revoked tokens and the token for other relays are checked for changes; 0: only on SIGHUP. If a file is bad, what was loaded stays.";
    }
}

section! {
    /// WebTransport sessions.
    WebTransportConfig at [web_transport] {
        allowed_origins: Vec<String> = Vec::new(),
            "Origins of web pages that may open sessions, such as `https://example.org`; others get status 403. Empty: all. Clients without an Origin header, which are not browsers, are always accepted.";
    }
}

section! {
    /// The HTTP listener for operators.
    AdminConfig at [admin] {
        listen: Option<SocketAddr> = None,
            "TCP address of the HTTP listener for metrics and health checks, without access control. Not set: no listener.";
        hosts: Vec<String> = Vec::new(),
            "Host names by which the listener may be reached. IP addresses and localhost always work; requests for another host get status 421, so that web pages cannot read metrics by DNS rebinding.";
        tracks_max: usize = 0, in 0..=100_000,
            "Tracks that the page /tracks may list; with more, it answers 503. 0: no such page, since it shows names of tracks.";
        connections_max: usize = 16, in 1..=1024, "Connections of the listener at once. Further ones get status 503. From one address 8; this machine's own are not counted.";
        header_bytes_max: usize = 8 << 10, in 256..=1 << 20, "Bytes of a request. A longer one gets status 431.";
        timeout: Duration = Duration::from_secs(5), in MILLISECOND..=MINUTE, "Time that a connection may take, from its request to the end of the answer. Then it is closed.";
    }
}

section! {
    /// How the relay shuts down.
    DrainConfig at [drain] {
        delay: Duration = Duration::ZERO, in 0..=HOUR, "Time from SIGTERM, when /readyz begins to answer 503, until clients receive GOAWAY.";
        time: Duration = Duration::from_secs(10), in 0..=DAY, "Time that clients have to leave after GOAWAY. Then the relay closes their sessions with `GOAWAY_TIMEOUT`, and ends.";
        successor: Option<String> = None, "URI in GOAWAY that clients should connect to, at most 8192 bytes. Not set: the URI of this relay.";
    }
}

section! {
    /// Relays that this one asks for what it does not have.
    UpstreamConfig at [upstream] {
        urls: Vec<String> = Vec::new(), "URLs of the relays that are asked, in this order, for tracks that no client of this relay publishes: `moqt://host:port` (raw QUIC) or `https://host:port` (WebTransport). Each is looked up at the start, and again at each attempt to connect. Empty: none.";
        token_file: Option<PathBuf> = None, "File with a token for these relays. When the file changes, each link is replaced by one with the new token, and nothing is lost: put the new one there before the old one expires. Not set: no token.";
        ca: Option<PathBuf> = None, "CA certificates (PEM file) of these relays. Not set: those of the system.";
        insecure: bool = false, "Whether any certificate of these relays is accepted: for tests.";
        certificate: Option<PathBuf> = None, "Client certificate chain for these relays (PEM file), with `upstream.key`. Read again when it changes, like the token. Not set: no client certificate.";
        key: Option<PathBuf> = None, "Private key of the client certificate (PEM file).";
    }
}

section! {
    /// The fleet: relays that find each other through NATS.
    FleetConfig at [fleet] {
        nats: Vec<SecretUrl> = Vec::new(), "URLs of the NATS servers of the fleet: `nats://user:password@host:port` or `tls://`. Links to other relays use `ca`, `certificate`, `key`, `token_file` and `insecure` of `upstream`. Empty: no fleet.";
        credentials: Option<PathBuf> = None, "File with the credentials of a NATS account. Not set: those in `fleet.nats`.";
        scope: String = "default".to_owned(), "Name of the fleet, up to 64 letters, digits, `-` and `_`. Relays find only those of the same name.";
        url: Option<String> = None, "URL by which other relays reach this one. Not set: `moqt://` and the address of `listen`.";
    }
}

section! {
    /// The log on standard error.
    LogConfig at [log] {
        filter: String = "warn".to_owned(), "What is logged to standard error: a level (`error`, `warn`, `info`, `debug`, `trace`), or one for each module, such as `info,weir_relay=debug`.";
        format: String = "text".to_owned(), "Format of the log: `text` or `json`, one line for each event.";
    }
}

section! {
    /// Logs of connections in the qlog format.
    QlogConfig at [qlog] {
        folder: Option<PathBuf> = None, "Folder of the qlog files; it is created if missing. Not set: no qlog.";
        sample: u64 = 1, in 1..=u64::MAX, "One connection in this many gets a qlog file; 1: each.";
        file_bytes_max: u64 = 64 << 20, in 4096..=u64::MAX, "Bytes of one qlog file. Beyond it, the file ends early.";
        total_bytes_max: u64 = 1 << 30, in 4096..=u64::MAX,
            "Bytes of all qlog files since the start. Beyond it, files end early and none is started.";
    }
}

section! {
    /// Rights of clients without credentials.
    AnonymousConfig at [auth anonymous] {
        publish: Option<Vec<String>> = None,
            "Namespaces that clients without credentials may publish in. Not set: all if neither tokens nor client certificates are configured, otherwise none.";
        subscribe: Option<Vec<String>> = None,
            "Namespaces that clients without credentials may subscribe to. Not set: the same default as `publish`.";
    }
}

section! {
    /// Rights of clients with a certificate.
    ClientsConfig at [auth clients] {
        ca: Option<PathBuf> = None,
            "CA certificates (PEM file): clients with a certificate of these CAs are trusted, such as other relays; with a certificate of other CAs, no client can connect. Turns session resumption off. Not set: no client certificates.";
        publish: Vec<String> = words(&[""]), "Namespaces that clients with such a certificate may publish in; \"\" is all.";
        subscribe: Vec<String> = words(&[""]), "Namespaces that clients with such a certificate may subscribe to; \"\" is all.";
    }
}

section! {
    /// Acceptance of tokens (JWT).
    JwtConfig at [auth jwt] {
        keys: Vec<PathBuf> = Vec::new(), "Files with issuers' keys (PEM public key, JWK or JWKS); `weir token key` makes a pair. Empty, without `jwks_url`: no tokens are read.";
        jwks_url: Option<SecretUrl> = None, "URL of a JWKS with issuers' keys: https, fetched without redirects and proxies. A token with an unknown key causes a fetch, at most one in a second.";
        jwks_ca: Option<PathBuf> = None,
            "CA certificates (PEM file) for `auth.jwt.jwks_url`. Not set: those of the system.";
        jwks_refresh: Duration = Duration::from_mins(5), in SECOND..=DAY, "Interval at which the JWKS is fetched.";
        jwks_age_max: Duration = Duration::from_hours(24), in SECOND..=30 * DAY, "Age from which the keys of a JWKS that can no longer be fetched are dropped, with the sessions that they permitted.";
        jwks_timeout: Duration = Duration::from_secs(10), in 100 * MILLISECOND..=MINUTE, "Time that one fetch of the JWKS may take. Then it has failed, and known keys stay.";
        algorithms: Vec<String> = words(&["ES256", "ES384", "EdDSA", "RS256", "PS256"]),
            "Signature algorithms that tokens may use. Tokens with another one are refused.";
        issuer: Option<String> = None, "`iss` claim that a token must have. Not set: any, or none.";
        audience: Option<String> = None,
            "`aud` claim that a token must have. Not set: only tokens without `aud` are accepted.";
        clock_difference: Duration = Duration::from_secs(10), in 0..=5 * MINUTE,
            "Time before its `nbf` that a token is accepted, because the issuer's clock may be ahead. `exp` has no such tolerance.";
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

// Ranges of durations are in microseconds.
pub(super) const MILLISECOND: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000 * MILLISECOND;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
