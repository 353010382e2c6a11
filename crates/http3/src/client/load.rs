//! The load of a client.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_h3::frame;
use weir_quic::Limits;

use super::limits::{
    CONNECTIONS_MAX, HANDSHAKE_TIMEOUT_MAX, PATHS_MAX, REQUESTS_AT_ONCE_MAX, SECONDS_MAX,
};

/// The requested resources and their server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server's address.
    pub address: SocketAddr,
    /// The name in the server's certificate.
    pub server_name: String,
    /// `:authority`: the name with the port.
    pub authority: String,
    /// `:path` of each resource, requested in turns: begins with a slash, and includes the query. 1 to [`PATHS_MAX`].
    ///
    /// [`PATHS_MAX`]: super::limits::PATHS_MAX
    pub paths: Vec<String>,
}

/// When the first requests of a connection are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// After the handshake. TLS resumption depends on the TLS configuration.
    Patient,
    /// With the first packet, once a session of an earlier connection allows early data (0-RTT, RFC 9001 §4.6).
    Early,
}

/// The load of one client.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The requested resources.
    pub target: Target,
    /// Connections at the same time.
    pub connections: usize,
    /// Requests of one connection before another replaces it; `None` means no limit.
    pub requests_per_connection: Option<u64>,
    /// Requests of one connection at the same time. The server may allow fewer.
    pub requests_at_once: usize,
    /// Requests in all; `None` means as many as the time allows.
    pub requests_max: Option<u64>,
    /// For an open loop: requests per second, whatever becomes of earlier ones. `None` is a closed loop, in which each
    /// response is followed by the next request.
    pub rate_per_second: Option<f64>,
    /// How long the client sends requests and waits for responses.
    pub duration: Duration,
    /// The timeout of a handshake.
    pub handshake_timeout: Duration,
    /// The exact length of every response's content, in bytes.
    pub expected_bytes: Option<u64>,
    /// When the first requests of a connection are sent.
    pub greeting: Greeting,
    /// The number of the host's sockets, which connections use in turn.
    pub sockets: u32,
}

/// An invalid load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}")]
pub struct LoadError {
    /// The invalid setting.
    pub what: &'static str,
    /// Its allowed values.
    pub expected: String,
}

impl Load {
    /// Checks that the load is consistent and within the limits.
    pub fn check(&self) -> Result<(), LoadError> {
        let wrong = |what, expected: String| Err(LoadError { what, expected });
        if !(1..=PATHS_MAX).contains(&self.target.paths.len()) {
            return wrong("paths", format!("1 to {PATHS_MAX}"));
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return wrong("connections", format!("1 to {CONNECTIONS_MAX}"));
        }
        if !(1..=REQUESTS_AT_ONCE_MAX).contains(&self.requests_at_once) {
            return wrong("requests at once", format!("1 to {REQUESTS_AT_ONCE_MAX}"));
        }
        if self.requests_per_connection == Some(0) || self.requests_max == Some(0) {
            return wrong("requests", "one at least".to_owned());
        }
        if self
            .rate_per_second
            .is_some_and(|rate| !(rate.is_finite() && (RATE_MIN..=RATE_MAX).contains(&rate)))
        {
            return wrong("rate", format!("{RATE_MIN} to {RATE_MAX} a second"));
        }
        let seconds_max = Duration::from_secs(SECONDS_MAX as u64);
        if self.duration.is_zero() || self.duration > seconds_max {
            return wrong(
                "duration",
                format!("more than 0 s and up to {SECONDS_MAX} s"),
            );
        }
        if self.handshake_timeout.is_zero() || self.handshake_timeout > HANDSHAKE_TIMEOUT_MAX {
            let seconds = HANDSHAKE_TIMEOUT_MAX.as_secs();
            return wrong(
                "handshake time-out",
                format!("more than 0 s and up to {seconds} s"),
            );
        }
        if self.sockets == 0 {
            return wrong("sockets", "one at least".to_owned());
        }
        Ok(())
    }

    /// Whether each connection has one request only.
    pub fn is_short(&self) -> bool {
        self.requests_per_connection == Some(1)
    }

    /// Encodes the requests, one for each path.
    pub(super) fn requests(&self) -> Vec<Bytes> {
        let paths = self.target.paths.iter();
        paths.map(|path| self.request(path)).collect()
    }

    /// Encodes a request: one frame with its head.
    fn request(&self, path: &str) -> Bytes {
        let target = &self.target;
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", &target.authority),
            (":path", path),
            ("user-agent", "weir"),
        ];
        let mut out = Vec::new();
        frame::encode_headers(&fields, &mut out);
        out.into()
    }
}

/// Returns the limits of an endpoint with load clients. The windows never block a server, and the server may open only
/// the streams that HTTP/3 needs. A connection is lost after `idle_timeout` without a packet.
pub fn transport_limits(idle_timeout: Duration) -> Limits {
    Limits {
        // Closed connections stay for some round trips.
        connections_max: 2 * CONNECTIONS_MAX,
        uni_streams_max: UNI_STREAMS_MAX,
        bidi_streams_max: 0,
        stream_receive_bytes_max: STREAM_RECEIVE_BYTES,
        receive_bytes_max: RECEIVE_BYTES,
        datagram_receive_bytes_max: 0,
        idle_timeout,
        ..Limits::default()
    }
}

/// The schedule of an open loop. It is absolute: a late request does not move it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    begin: Instant,
    rate_per_second: f64,
    taken: u64,
}

impl Plan {
    pub(super) fn new(begin: Instant, rate_per_second: f64) -> Self {
        Self {
            begin,
            rate_per_second,
            taken: 0,
        }
    }

    /// Returns when the next request is due.
    pub(super) fn next(&self) -> Instant {
        self.begin + Duration::from_secs_f64(float(self.taken) / self.rate_per_second)
    }

    /// Takes the next request.
    pub(super) fn take(&mut self) {
        self.taken += 1;
    }

    /// Counts the requests that were due before `end` and not taken.
    pub(super) fn overdue(&self, end: Instant) -> u64 {
        let seconds = end.saturating_duration_since(self.begin).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of requests, not negative and far below 2^53"
        )]
        let due = (seconds * self.rate_per_second).ceil() as u64;
        due.saturating_sub(self.taken)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of requests stay far below 2^53"
)]
fn float(count: u64) -> f64 {
    count as f64
}

/// The server's three streams, and some of unknown types.
const UNI_STREAMS_MAX: u32 = 16;
/// Several times the largest resource of a usual comparison.
const STREAM_RECEIVE_BYTES: u32 = 16 << 20;
/// Large enough that flow control updates are rare.
const RECEIVE_BYTES: u32 = 64 << 20;
/// Roughly one request in a quarter of an hour.
const RATE_MIN: f64 = 0.001;
/// More than one thread can send.
const RATE_MAX: f64 = 10_000_000.0;

#[cfg(test)]
mod tests {
    use weir_h3::head::RequestHead;

    use super::*;

    pub(crate) fn load() -> Load {
        Load {
            target: Target {
                address: SocketAddr::from(([127, 0, 0, 1], 443)),
                server_name: "localhost".to_owned(),
                authority: "localhost:443".to_owned(),
                paths: vec!["/15k?x".to_owned()],
            },
            connections: 1,
            requests_per_connection: None,
            requests_at_once: 1,
            requests_max: None,
            rate_per_second: None,
            duration: Duration::from_secs(1),
            handshake_timeout: Duration::from_secs(5),
            expected_bytes: None,
            greeting: Greeting::Patient,
            sockets: 1,
        }
    }

    #[test]
    fn a_request_is_one_that_a_server_takes() {
        let request = load().requests().remove(0);
        assert_eq!(request[0], 1, "a HEADERS frame");
        assert_eq!(usize::from(request[1]), request.len() - 2);
        let head = RequestHead::decode(request.slice(2..), 1000).unwrap();
        assert_eq!(&head.method[..], b"GET");
        assert_eq!(head.path.as_deref(), Some(&b"/15k?x"[..]));
        assert_eq!(head.authority.as_deref(), Some(&b"localhost:443"[..]));
    }

    #[test]
    fn limits_and_one_past_them() {
        let wrong = |change: fn(&mut Load)| {
            let mut load = load();
            change(&mut load);
            load.check().map_err(|error| error.what)
        };
        assert_eq!(wrong(|_| ()), Ok(()));
        let paths = |count: usize| {
            let mut load = load();
            load.target.paths = vec!["/".to_owned(); count];
            load.check().map_err(|error| error.what)
        };
        assert_eq!(paths(PATHS_MAX), Ok(()));
        assert_eq!(paths(PATHS_MAX + 1), Err("paths"));
        assert_eq!(paths(0), Err("paths"));
        assert_eq!(wrong(|load| load.connections = CONNECTIONS_MAX), Ok(()));
        let past = wrong(|load| load.connections = CONNECTIONS_MAX + 1);
        assert_eq!(past, Err("connections"));
        assert_eq!(wrong(|load| load.connections = 0), Err("connections"));
        let most = wrong(|load| load.requests_at_once = REQUESTS_AT_ONCE_MAX);
        assert_eq!(most, Ok(()));
        let past = wrong(|load| load.requests_at_once = REQUESTS_AT_ONCE_MAX + 1);
        assert_eq!(past, Err("requests at once"));
        assert_eq!(wrong(|load| load.requests_max = Some(0)), Err("requests"));
        let most = wrong(|load| load.duration = Duration::from_secs(SECONDS_MAX as u64));
        assert_eq!(most, Ok(()));
        let past = wrong(|load| load.duration = Duration::from_secs(SECONDS_MAX as u64 + 1));
        assert_eq!(past, Err("duration"));
        let most = wrong(|load| load.handshake_timeout = HANDSHAKE_TIMEOUT_MAX);
        assert_eq!(most, Ok(()));
        for timeout in [
            Duration::ZERO,
            HANDSHAKE_TIMEOUT_MAX + Duration::from_nanos(1),
        ] {
            let mut load = load();
            load.handshake_timeout = timeout;
            assert_eq!(load.check().unwrap_err().what, "handshake time-out");
        }
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, RATE_MAX * 2.0] {
            let mut load = load();
            load.rate_per_second = Some(rate);
            assert_eq!(load.check().unwrap_err().what, "rate");
        }
        assert_eq!(wrong(|load| load.sockets = 0), Err("sockets"));
    }

    #[test]
    fn the_plan_is_absolute() {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let begin = Instant::now();
        let mut plan = Plan::new(begin, 1000.0);
        for number in 0..5 {
            assert_eq!(plan.next(), begin + Duration::from_millis(number));
            plan.take();
        }
        assert_eq!(plan.overdue(begin + Duration::from_millis(10)), 5);
        assert_eq!(plan.overdue(begin), 0);
    }
}
