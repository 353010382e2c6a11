//! What a client is asked to do.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_h3::frame;
use weir_quic::Limits;

use super::limits::{CONNECTIONS_MAX, HANDSHAKE_TIMEOUT_MAX, REQUESTS_AT_ONCE_MAX, SECONDS_MAX};

/// The resource that is asked for, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where the server is.
    pub address: SocketAddr,
    /// The name that its certificate is for.
    pub server_name: String,
    /// `:authority`: the name with the port.
    pub authority: String,
    /// `:path`: with the query, and a slash in front.
    pub path: String,
}

/// How connections begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// With whatever the TLS configuration allows; requests wait for the end of the handshake.
    Patient,
    /// As soon as a session of an earlier connection allows it, requests leave with the first packet (0-RTT,
    /// RFC 9001 §4.6).
    Early,
}

/// The load of one client.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// What is asked for.
    pub target: Target,
    /// Connections at once.
    pub connections: usize,
    /// Requests of one connection before another one takes its place; `None`: no limit.
    pub requests_per_connection: Option<u64>,
    /// Requests of one connection at once. A server may allow less.
    pub requests_at_once: usize,
    /// Requests in all; `None`: as many as there is time for.
    pub requests_max: Option<u64>,
    /// An open loop: so many requests a second, whatever becomes of those before. `None`: a closed loop, in which each
    /// answer is followed by the next request.
    pub rate_per_second: Option<f64>,
    /// How long requests are sent and answers waited for.
    pub duration: Duration,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// Bytes that the content of every answer has to have.
    pub expected_bytes: Option<u64>,
    /// How connections begin.
    pub greeting: Greeting,
    /// Sockets of the host, over which connections are spread.
    pub sockets: u32,
}

/// What cannot be asked of a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}")]
pub struct LoadError {
    /// Which part.
    pub what: &'static str,
    /// What it may be.
    pub expected: String,
}

impl Load {
    /// Refuses what makes no sense or is beyond a limit.
    pub fn check(&self) -> Result<(), LoadError> {
        let wrong = |what, expected: String| Err(LoadError { what, expected });
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

    /// The stream of a request: one frame with its head.
    pub(super) fn request(&self) -> Bytes {
        let target = &self.target;
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", &target.authority),
            (":path", &target.path),
            ("user-agent", "weir"),
        ];
        let mut out = Vec::new();
        frame::encode_headers(&fields, &mut out);
        out.into()
    }
}

/// Limits of an endpoint with load clients: windows that never keep a server waiting, and nothing for the server to open
/// but the streams that HTTP/3 needs. A connection that is silent for `idle_timeout` is lost.
pub fn transport_limits(idle_timeout: Duration) -> Limits {
    Limits {
        // Closed ones stay for some round trips.
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

/// When the requests of an open loop are due: an absolute plan, which a late one does not move.
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

    /// When the next request is due.
    pub(super) fn next(&self) -> Instant {
        self.begin + Duration::from_secs_f64(float(self.taken) / self.rate_per_second)
    }

    /// The next request is sent.
    pub(super) fn take(&mut self) {
        self.taken += 1;
    }

    /// Requests that were due before `end` and have not been taken.
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

/// The server's three, and some of kinds that are not known.
const UNI_STREAMS_MAX: u32 = 16;
/// The largest resource of a usual comparison, several times.
const STREAM_RECEIVE_BYTES: u32 = 16 << 20;
/// So much that it is topped up rarely.
const RECEIVE_BYTES: u32 = 64 << 20;
/// One request in a quarter of an hour.
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
                path: "/15k?x".to_owned(),
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
        let request = load().request();
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
