//! The servers of NATS, <https://nats.io>, and how weir connects to them.

use std::{fmt, path::PathBuf, time::Duration};

use anyhow::Context as _;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr};

use crate::urls::Redacted;

/// The servers of a fleet, and how to sign in. Shown as their hosts and ports.
#[derive(Clone, Debug)]
pub(crate) struct NatsServers {
    addresses: Vec<ServerAddr>,
    /// The setting that names the file with the credentials of a NATS account, and the file.
    credentials: Option<(String, PathBuf)>,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NatsProblem {
    /// Another attempt may succeed.
    #[error("{0}")]
    Unreachable(String),
    /// No attempt will succeed with these settings.
    #[error("{0}")]
    Refused(String),
}

impl NatsServers {
    /// Reads `nats://HOST[:PORT]`, or `tls://`, several with commas between. User and password, or a token, may stand in front of a
    /// host; the first ones count for all servers. `place` names the setting in errors.
    ///
    /// # Errors
    /// A part is not such a URL. The error shows no password.
    pub(crate) fn parse(
        place: &str,
        urls: &str,
        credentials: Option<(String, PathBuf)>,
    ) -> anyhow::Result<Self> {
        let parse = |url: &str| -> anyhow::Result<ServerAddr> {
            let shown = Redacted(url).to_string();
            let is_known = url.starts_with("nats://") || url.starts_with("tls://");
            let parsed = url.parse::<ServerAddr>().ok().filter(|_| is_known);
            parsed.with_context(|| {
                format!("{place}: expected nats://HOST[:PORT] or tls://HOST[:PORT], not {shown:?}")
            })
        };
        let addresses = urls.split(',').map(|url| parse(url.trim()));
        Ok(Self {
            addresses: addresses.collect::<anyhow::Result<_>>()?,
            credentials,
        })
    }

    /// Connects to one of the servers. A subscription holds so many messages that were not read.
    ///
    /// # Errors
    /// No server can be reached, or none accepts the credentials.
    pub(crate) async fn client(
        &self,
        name: &str,
        messages_max: usize,
    ) -> Result<Client, NatsProblem> {
        let options = self
            .options(name)
            .map_err(|error| NatsProblem::Refused(format!("{error:#}")))?
            .subscription_capacity(messages_max);
        let connecting = options.connect(&self.addresses[..]);
        let connected = tokio::time::timeout(SEARCH_MAX, connecting).await;
        let error = match connected {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => error,
            Err(_) => {
                let seconds = SEARCH_MAX.as_secs();
                let problem = format!("no NATS server answered within {seconds} s");
                return Err(NatsProblem::Unreachable(problem));
            }
        };
        Err(match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                NatsProblem::Refused("the NATS server refuses these credentials".to_owned())
            }
            ConnectErrorKind::Dns
            | ConnectErrorKind::TimedOut
            | ConnectErrorKind::Io
            | ConnectErrorKind::MaxReconnects => {
                NatsProblem::Unreachable(format!("no NATS server can be reached: {error}"))
            }
            ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => {
                NatsProblem::Refused(format!("NATS: {error}"))
            }
        })
    }

    fn options(&self, name: &str) -> anyhow::Result<ConnectOptions> {
        let options = ConnectOptions::new()
            .name(name)
            .connection_timeout(CONNECT_TIMEOUT)
            .reconnect_delay_callback(reconnect_pause)
            .ping_interval(PING_PERIOD);
        let users = self.addresses.iter();
        let mut users = users.filter_map(|one| Some((one.username()?.to_owned(), one.password())));
        let options = match users.next() {
            Some((user, Some(password))) => options.user_and_password(user, password.to_owned()),
            Some((token, None)) => options.token(token),
            None => options,
        };
        let Some((place, file)) = &self.credentials else {
            return Ok(options);
        };
        let shown = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("{place}: {shown}"))?;
        let options = options.credentials(&text);
        options.with_context(|| format!("{place}: {shown}: not a file of credentials of NATS"))
    }
}

impl fmt::Display for NatsServers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, address) in self.addresses.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(formatter, "{comma}{}:{}", address.host(), address.port())?;
        }
        Ok(())
    }
}

/// Returns the pause before an attempt to connect again, of which each goes to the next server. The library's own pauses grow to
/// 4 s: with three servers, one that is back would be tried after 12 s.
fn reconnect_pause(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts).unwrap_or(u32::MAX);
    let pause = Duration::from_millis(1).saturating_mul(2_u32.saturating_pow(doublings));
    pause.min(RECONNECT_PAUSE_MAX)
}

/// How long a server may take to accept a connection. Then the next one is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long all servers together may take, when the program connects first.
const SEARCH_MAX: Duration = Duration::from_secs(10);
/// The longest pause before an attempt to connect again.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Time between pings of the server, so that a dead connection is noticed.
const PING_PERIOD: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_three_servers_is_tried_again_within_two_seconds() {
        assert!(reconnect_pause(1) < Duration::from_millis(10));
        for attempts in [10, 100, usize::MAX - 3] {
            let round: Duration = (0..3).map(|next| reconnect_pause(attempts + next)).sum();
            assert!(round <= Duration::from_secs(2), "{round:?}");
        }
    }

    #[test]
    fn urls_are_read_and_passwords_stay_secret() {
        let shown = |urls: &str| NatsServers::parse("--fleet", urls, None).map(|it| it.to_string());
        assert_eq!(
            shown("nats://a, tls://u:secret@b:4333").unwrap(),
            "a:4222, b:4333"
        );
        for bad in ["", "a", "http://a", "nats://a,", "nats://u:secret@"] {
            let error = shown(bad).unwrap_err().to_string();
            assert!(
                error.starts_with("--fleet: expected nats://HOST"),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
