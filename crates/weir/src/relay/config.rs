//! The configuration of `weir relay`: every setting with its key, range and default.

mod sections;
mod table;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use weir_moqt::{draft::Draft, message::URI_BYTES_MAX};
use weir_quic::Congestion;

use crate::relay::settings::{self, Place, Places, Problem, Raw, Setting};

pub(crate) use sections::{
    AdminConfig, AnonymousConfig, ClientsConfig, DrainConfig, FleetConfig, JwtConfig, LogConfig,
    QlogConfig, TlsConfig, UpstreamConfig, WebTransportConfig,
};
pub(crate) use table::table;

/// The values of all settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RelayConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) threads: u16,
    pub(crate) cores: Vec<usize>,
    pub(crate) rest: Duration,
    pub(crate) offload: bool,
    pub(crate) pauses_publishers: bool,
    pub(crate) drafts: Vec<Draft>,
    pub(crate) tls: TlsConfig,
    pub(crate) web_transport: WebTransportConfig,
    pub(crate) admin: AdminConfig,
    pub(crate) drain: DrainConfig,
    pub(crate) upstream: UpstreamConfig,
    pub(crate) fleet: FleetConfig,
    pub(crate) log: LogConfig,
    pub(crate) qlog: QlogConfig,
    pub(crate) auth: AuthConfig,
    pub(crate) limits: Limits,
}

/// Authentication and rights.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AuthConfig {
    pub(crate) anonymous: AnonymousConfig,
    pub(crate) clients: ClientsConfig,
    pub(crate) jwt: JwtConfig,
    pub(crate) revoked: Option<PathBuf>,
}

/// The limits of all layers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) load: weir_relay::LoadLimits,
    pub(crate) relay: weir_relay::Limits,
    pub(crate) quic: weir_quic::Limits,
    pub(crate) session: weir_moqt::limits::Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            load: weir_relay::LoadLimits::default(),
            relay: weir_relay::Limits::default(),
            quic: weir_quic::Limits {
                // CUBIC fills the queue of a slow link, which delays every frame of live media. No player in a browser can
                // prevent that.
                congestion: Congestion::LOW_LATENCY,
                ..weir_quic::Limits::default()
            },
            session: weir_moqt::limits::Limits::for_servers(),
        }
    }
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            listen: ([127, 0, 0, 1], 4443).into(),
            threads: 1,
            cores: Vec::new(),
            rest: Duration::from_micros(500),
            offload: true,
            pauses_publishers: false,
            drafts: Draft::ALL.to_vec(),
            tls: TlsConfig::default(),
            web_transport: WebTransportConfig::default(),
            admin: AdminConfig::default(),
            drain: DrainConfig::default(),
            upstream: UpstreamConfig::default(),
            fleet: FleetConfig::default(),
            log: LogConfig::default(),
            qlog: QlogConfig::default(),
            auth: AuthConfig::default(),
            limits: Limits::default(),
        }
    }
}

impl RelayConfig {
    /// Returns the drafts of the relay, as ALPN names, the preferred one first.
    pub(crate) fn protocols(&self) -> Vec<&'static str> {
        self.drafts.iter().map(|draft| draft.alpn()).collect()
    }
}

/// A configuration, with the places of the values that are not defaults.
#[derive(Clone, Debug)]
pub(crate) struct Configured {
    pub(crate) config: RelayConfig,
    places: Places,
}

impl Configured {
    /// Applies the layers to the defaults: the file, then the environment, then the flags.
    ///
    /// # Errors
    /// Returns all problems, each with its place.
    pub(crate) fn read(
        file: Option<(&str, &str)>,
        environment: impl Fn(&str) -> Option<String>,
        flags: Vec<(String, Raw, Place)>,
    ) -> Result<Self, Vec<Problem>> {
        let table = table();
        let mut problems = Vec::new();
        let mut config = RelayConfig::default();
        let mut places = Places::new();
        let file = file.map_or_else(
            || Ok(Vec::new()),
            |(name, text)| settings::parse_file(name, text),
        );
        let variables = table.iter().filter_map(|setting| {
            let name = settings::variable(VARIABLE_PREFIX, setting.key);
            let value = environment(&name)?;
            Some((
                setting.key.to_owned(),
                Raw::Text(value),
                Place::Environment(name),
            ))
        });
        let layers = [
            file.map_err(|problem| vec![problem])?,
            variables.collect(),
            flags,
        ];
        for layer in layers {
            settings::apply(&table, &mut config, &mut places, layer, &mut problems);
        }
        let configured = Self { config, places };
        configured.check(&mut problems);
        if problems.is_empty() {
            Ok(configured)
        } else {
            Err(problems)
        }
    }

    /// Returns the setting `key` with the place of its value, as the beginning of an error text.
    pub(crate) fn place(&self, key: &str) -> String {
        match self.places.get(key) {
            Some(place) => place.with(key),
            None => format!("{key} (its default)"),
        }
    }

    /// Returns a TOML file of this configuration.
    pub(crate) fn print(&self) -> String {
        settings::print(&table(), &self.config)
    }

    /// Adds the problems of values that do not fit together.
    fn check(&self, problems: &mut Vec<Problem>) {
        let config = &self.config;
        self.check_upstream(problems);
        let mut add = |key: &str, problem: &str| {
            problems.push(format!("{}: {problem}", self.place(key)));
        };
        let (cores, threads) = (config.cores.len(), usize::from(config.threads));
        if cores != 0 && cores != threads {
            let problem =
                format!("expected {threads} cores, one for each of `threads`, not {cores}");
            add("cores", &problem);
        }
        if config.drafts.is_empty() {
            add("drafts", "expected at least one draft");
        }
        match (&config.tls.certificate, &config.tls.key) {
            (Some(_), None) => add("tls.certificate", "needs tls.key (--key) too"),
            (None, Some(_)) => add("tls.key", "needs tls.certificate (--cert) too"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let format = config.log.format.as_str();
        if !["text", "json"].contains(&format) {
            let format = format.escape_debug();
            add(
                "log.format",
                &format!("expected text or json, not `{format}`"),
            );
        }
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&config.log.filter) {
            let problem =
                format!("expected a filter such as info or info,weir_relay=debug: {error}");
            add("log.filter", &problem);
        }
        let successor = config.drain.successor.as_ref().map_or(0, String::len);
        if successor > URI_BYTES_MAX {
            let problem = format!("expected at most {URI_BYTES_MAX} bytes, not {successor}");
            add("drain.successor", &problem);
        }
        let quic = &config.limits.quic;
        if quic
            .keep_alive
            .is_some_and(|every| every >= quic.idle_timeout)
        {
            let problem = format!(
                "must be less than limits.quic.idle_timeout, which is {}",
                humantime::format_duration(quic.idle_timeout)
            );
            add("limits.quic.keep_alive", &problem);
        }
        if (1..DATAGRAM_BYTES_MIN).contains(&quic.datagram_receive_bytes_max) {
            let found = quic.datagram_receive_bytes_max;
            let problem = format!("expected 0, or at least {DATAGRAM_BYTES_MIN}, not {found}");
            add("limits.quic.datagram_receive_bytes_max", &problem);
        }
    }

    /// Adds the problems of the settings of upstream relays.
    fn check_upstream(&self, problems: &mut Vec<Problem>) {
        let config = &self.config;
        let mut add = |key: &str, problem: &str| {
            problems.push(format!("{}: {problem}", self.place(key)));
        };
        match (&config.upstream.certificate, &config.upstream.key) {
            (Some(_), None) => add(
                "upstream.certificate",
                "needs upstream.key too: set both or neither",
            ),
            (None, Some(_)) => add(
                "upstream.key",
                "needs upstream.certificate too: set both or neither",
            ),
            (Some(_), Some(_)) if config.upstream.insecure => add(
                "upstream.insecure",
                "a client certificate is not sent to relays whose certificate is not checked",
            ),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

/// Returns the keys whose values differ.
pub(crate) fn differences(one: &RelayConfig, other: &RelayConfig) -> Vec<&'static str> {
    let differs = |setting: &Setting<RelayConfig>| {
        (setting.show)(one, setting.shape) != (setting.show)(other, setting.shape)
    };
    let table = table();
    let differing = table.iter().filter(|setting| differs(setting));
    let mut keys: Vec<&str> = differing.map(|setting| setting.key).collect();
    // The shown texts of these URLs leave out their secrets.
    for (url, is_changed) in [
        (
            "auth.jwt.jwks_url",
            one.auth.jwt.jwks_url != other.auth.jwt.jwks_url,
        ),
        ("fleet.nats", one.fleet.nats != other.fleet.nats),
    ] {
        if is_changed && !keys.contains(&url) {
            keys.push(url);
        }
    }
    keys
}

/// Prefix of the settings' environment variables.
pub(crate) const VARIABLE_PREFIX: &str = "WEIR_RELAY_";
/// Smallest buffer for received datagrams, if datagrams are accepted.
const DATAGRAM_BYTES_MIN: usize = 2048;

#[cfg(test)]
mod tests;
