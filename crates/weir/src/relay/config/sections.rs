//! The sections of the settings: each value with its type, its default, its bounds and what it means, in the order in which
//! they are printed. (The limits stand in the crates that keep them.)

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::RelayConfig;
use crate::relay::settings::{SecretUrl, Setting, setting};

/// A struct for a section, with its defaults, and its part of the table of settings.
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
    /// Certificates.
    TlsConfig at [tls] {
        certificate: Option<PathBuf> = None, "Certificate chain, PEM; without it a certificate is made for tls.names.";
        key: Option<PathBuf> = None, "Private key of the certificate, PEM.";
        names: Vec<String> = words(&["localhost", "127.0.0.1", "::1"]), "Names and addresses that a self-made certificate is for.";
        watch: Duration = Duration::from_secs(10), in 0..=DAY,
            "How often the files are checked for changes; 0: only on SIGHUP. If one file cannot be loaded, all stay as they were.";
    }
}

section! {
    /// Sessions over WebTransport.
    WebTransportConfig at [web_transport] {
        allowed_origins: Vec<String> = Vec::new(),
            "Origins whose pages may open sessions, such as `https://example.org`; empty: all. Clients that name none are no browsers.";
    }
}

section! {
    /// The listener for operators.
    AdminConfig at [admin] {
        listen: Option<SocketAddr> = None,
            "TCP address for metrics and health; not set: none. It has no access control.";
        tracks_max: usize = 0, in 0..=100_000,
            "Tracks that /tracks lists, an error beyond; 0: no such page, as it shows names.";
        connections_max: usize = 16, in 1..=1024, "Connections to it at once; answered with 503 beyond.";
        header_bytes_max: usize = 8 << 10, in 256..=1 << 20, "Bytes of a request; answered with 431 beyond.";
        timeout: Duration = Duration::from_secs(5), in MILLISECOND..=MINUTE, "How long a request and its answer may take.";
    }
}

section! {
    /// How the relay shuts down.
    DrainConfig at [drain] {
        delay: Duration = Duration::ZERO, in 0..=HOUR, "On SIGTERM, how long /readyz answers 503 before clients receive GOAWAY.";
        time: Duration = Duration::from_secs(10), in 0..=DAY, "How long clients may take to leave after GOAWAY, before the relay ends.";
        successor: Option<String> = None, "URL that GOAWAY sends clients to; not set: the same one.";
    }
}

section! {
    /// What is logged, and how.
    LogConfig at [log] {
        filter: String = "warn".to_owned(), "What to log on standard error, e.g. `info` or `weir_relay=debug`.";
        format: String = "text".to_owned(), "How: `text` or `json`, one line each.";
    }
}

section! {
    /// Logs of connections.
    QlogConfig at [qlog] {
        folder: Option<PathBuf> = None, "Folder for qlog files; not set: none are written.";
        sample: u64 = 1, in 1..=u64::MAX, "One connection in this many is logged.";
        file_bytes_max: u64 = 64 << 20, in 4096..=u64::MAX, "Bytes of one file; its log ends there.";
        total_bytes_max: u64 = 1 << 30, in 4096..=u64::MAX,
            "Bytes of all files of this run; beyond it no file is started.";
    }
}

section! {
    /// Rights of clients without credentials.
    AnonymousConfig at [auth anonymous] {
        publish: Option<Vec<String>> = None,
            "Namespaces that clients without credentials may publish in; not set: all if no authentication is configured, otherwise none.";
        subscribe: Option<Vec<String>> = None,
            "Namespaces that clients without credentials may subscribe to; not set: as for `publish`.";
    }
}

section! {
    /// Rights of clients with a certificate.
    ClientsConfig at [auth clients] {
        ca: Option<PathBuf> = None,
            "Trust clients with a certificate from a CA in this file (PEM), such as other relays. It turns session resumption off.";
        publish: Vec<String> = words(&[""]), "Namespaces in which those clients may publish; \"\" is all.";
        subscribe: Vec<String> = words(&[""]), "Namespaces that those clients may subscribe to; \"\" is all.";
    }
}

section! {
    /// Which tokens are accepted.
    JwtConfig at [auth jwt] {
        keys: Vec<PathBuf> = Vec::new(), "Files with issuers' keys (PEM, JWK or JWKS).";
        jwks_url: Option<SecretUrl> = None, "https URL of a JWKS with issuers' keys, without redirects and proxies. An unknown key in a token causes a fetch, at most one a second.";
        jwks_ca: Option<PathBuf> = None,
            "CA certificates (PEM) for that URL; not set: the system's.";
        jwks_refresh: Duration = Duration::from_mins(5), in SECOND..=DAY, "How often the JWKS is fetched.";
        jwks_timeout: Duration = Duration::from_secs(10), in 100 * MILLISECOND..=MINUTE, "How long one fetch may take.";
        algorithms: Vec<String> = words(&["ES256", "ES384", "EdDSA", "RS256", "PS256"]),
            "Signature algorithms that are accepted.";
        issuer: Option<String> = None, "The `iss` that a token must have; not set: any.";
        audience: Option<String> = None,
            "The `aud` that a token must have; not set: only tokens without one are accepted.";
        clock_difference: Duration = Duration::from_secs(10), in 0..=5 * MINUTE,
            "How far an issuer's clock may be ahead, for `nbf`.";
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Bounds of durations are in microseconds.
pub(super) const MILLISECOND: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000 * MILLISECOND;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
