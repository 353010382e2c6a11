//! The figures that a client counts.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_histogram::Histogram;
use weir_quic::Lost;

use super::limits::{REASON_CHARACTERS_MAX, SECONDS_MAX};

/// Declares the kinds of an enum with their names in reports.
macro_rules! kinds {
    ($(#[$about:meta])* $kind:ident { $($(#[$words:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $kind { $($(#[$words])* $variant,)+ }

        impl $kind {
            /// All kinds, in the order of reports.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

kinds! {
    /// Why a request was not a success.
    Failure {
        /// Status 2xx, but not 200.
        Status2xx = "status_2xx",
        /// Status 3xx.
        Status3xx = "status_3xx",
        /// Status 4xx.
        Status4xx = "status_4xx",
        /// Status 5xx.
        Status5xx = "status_5xx",
        /// Another status.
        StatusOther = "status_other",
        /// Less content than announced or expected.
        BodyShort = "body_short",
        /// More content than announced or expected.
        BodyLong = "body_long",
        /// The stream ended within the response.
        Incomplete = "incomplete",
        /// The response violates HTTP.
        Malformed = "malformed",
        /// The server reset the stream.
        StreamReset = "stream_reset",
        /// The connection was closed because the server violated HTTP/3.
        Violation = "violation",
        /// Nothing arrived for the idle timeout.
        TimedOut = "timed_out",
        /// The server lost its state and sent a stateless reset.
        ConnectionReset = "connection_reset",
        /// The server closed the connection.
        ConnectionClosed = "connection_closed",
        /// The connection was lost in another way.
        ConnectionLost = "connection_lost",
        /// The server rejected the request with GOAWAY.
        GoAway = "goaway",
        /// The connection for this one request could not be established.
        NoConnection = "no_connection",
    }
}

kinds! {
    /// Why a connection could not be established, or was unusable.
    Refusal {
        /// The server refused the connection.
        Refused = "refused",
        /// The handshake did not complete in time.
        TimedOut = "timed_out",
        /// The TLS handshake failed: an untrusted certificate, or an alert of the server.
        Tls = "tls",
        /// The server does not support HTTP/3, or QUIC version 1.
        Protocol = "protocol",
        /// The connection was lost during the handshake in another way.
        Lost = "lost",
        /// The client could not begin the connection.
        Local = "local",
        /// The connection was established, but the server allowed no request until it ended.
        Unusable = "unusable",
        /// The connection was established, and closed because the server violated HTTP/3 without a request to answer.
        Violation = "violation",
    }
}

/// The figures of a client. Their moments are times after its beginning, so that clients of several hosts add up.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// When counting began.
    #[serde(skip)]
    begin: Option<Instant>,
    /// The maximum length of the run, in seconds.
    seconds_max: usize,
    /// Successful requests: status 200 and the exact length.
    pub successes: u64,
    /// Successful requests for each path of the load.
    pub path_successes: Vec<u64>,
    /// Time from the beginning to the end of the last successful response.
    last_success: Option<Duration>,
    /// Requests that were not successes, by kind.
    failures: [u64; Failure::ALL.len()],
    /// Connections that could not be established, by kind.
    refusals: [u64; Refusal::ALL.len()],
    /// The text of the first failure of each kind, if there is one.
    failure_words: [Option<String>; Failure::ALL.len()],
    /// The text of the first refusal of each kind, if there is one.
    refusal_words: [Option<String>; Refusal::ALL.len()],
    /// Bytes of content, of all responses.
    pub content_bytes: u64,
    /// Requests sent.
    pub requests_sent: u64,
    /// Requests without a complete response at the end of the run: neither successes nor failures.
    pub unfinished: u64,
    /// Requests of an open loop that were due and could not be sent.
    pub unsent: u64,
    /// Connections begun.
    pub connections_begun: u64,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Handshakes in progress at the end of the run.
    pub handshakes_unfinished: u64,
    /// Connections that sent requests before the handshake was complete (0-RTT).
    pub early_used: u64,
    /// Connections with early data that the server rejected, so that requests were sent again.
    pub early_rejected: u64,
    /// GOAWAY frames received.
    pub goaways: u64,
    /// From the planned time of a successful request to the end of its response.
    pub latency: Histogram,
    /// From the first packet of a connection to the end of its handshake.
    pub handshake_time: Histogram,
    /// Figures by second.
    pub seconds: Vec<Second>,
    /// Time from the beginning until the last response was complete, or the run ended.
    end: Option<Duration>,
}

/// The figures of one second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Second {
    /// Latency of the second's successes.
    pub latency: Histogram,
    /// Requests and connections that failed.
    pub failed: u64,
    /// Bytes of content.
    pub content_bytes: u64,
}

impl std::fmt::Debug for Figures {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let failures: Vec<_> = Failure::ALL
            .iter()
            .filter(|kind| self.failures(**kind) > 0)
            .map(|kind| (kind.name(), self.failures(*kind)))
            .collect();
        let refusals: Vec<_> = Refusal::ALL
            .iter()
            .filter(|kind| self.refusals(**kind) > 0)
            .map(|kind| (kind.name(), self.refusals(*kind)))
            .collect();
        formatter
            .debug_struct("Figures")
            .field("successes", &self.successes)
            .field("failures", &failures)
            .field("refusals", &refusals)
            .field("requests_sent", &self.requests_sent)
            .field("unfinished", &self.unfinished)
            .field("unsent", &self.unsent)
            .field("connections_begun", &self.connections_begun)
            .field("handshakes", &self.handshakes)
            .finish_non_exhaustive()
    }
}

impl Figures {
    /// Returns empty figures of a run of this length, with so many paths.
    pub(super) fn new(duration: Duration, paths: usize) -> Self {
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        let seconds = usize::try_from(seconds).unwrap_or(SECONDS_MAX);
        Self {
            begin: None,
            seconds_max: seconds.clamp(1, SECONDS_MAX),
            successes: 0,
            path_successes: vec![0; paths],
            last_success: None,
            failures: [0; Failure::ALL.len()],
            refusals: [0; Refusal::ALL.len()],
            failure_words: [const { None }; Failure::ALL.len()],
            refusal_words: [const { None }; Refusal::ALL.len()],
            content_bytes: 0,
            requests_sent: 0,
            unfinished: 0,
            unsent: 0,
            connections_begun: 0,
            handshakes: 0,
            handshakes_unfinished: 0,
            early_used: 0,
            early_rejected: 0,
            goaways: 0,
            latency: Histogram::new(),
            handshake_time: Histogram::new(),
            seconds: Vec::new(),
            end: None,
        }
    }

    /// Returns the number of requests that failed for this reason.
    pub fn failures(&self, kind: Failure) -> u64 {
        self.failures[kind as usize]
    }

    /// Returns the number of connections that failed for this reason.
    pub fn refusals(&self, kind: Refusal) -> u64 {
        self.refusals[kind as usize]
    }

    /// Returns the text of the first failure of a kind.
    pub fn failure_words(&self, kind: Failure) -> Option<&str> {
        self.failure_words[kind as usize].as_deref()
    }

    /// Returns the text of the first refusal of a kind.
    pub fn refusal_words(&self, kind: Refusal) -> Option<&str> {
        self.refusal_words[kind as usize].as_deref()
    }

    /// Returns the number of requests that failed.
    pub fn failed(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// Returns the number of connections that could not be established.
    pub fn refused(&self) -> u64 {
        self.refusals.iter().sum()
    }

    /// Returns the time from the first connection to the end of the run.
    pub fn elapsed(&self) -> Duration {
        self.end.unwrap_or_default()
    }

    /// Returns the time from the last successful response to the end of the run; `None` without either.
    pub fn silence(&self) -> Option<Duration> {
        Some(self.end?.saturating_sub(self.last_success?))
    }

    /// Adds the figures of another client in the same run.
    pub fn merge(&mut self, other: &Self) {
        self.end = self.end.max(other.end);
        self.last_success = self.last_success.max(other.last_success);
        let paths = self.path_successes.iter_mut().zip(&other.path_successes);
        for (ours, theirs) in paths {
            *ours = ours.saturating_add(*theirs);
        }
        for (ours, theirs) in [
            (&mut self.successes, other.successes),
            (&mut self.content_bytes, other.content_bytes),
            (&mut self.requests_sent, other.requests_sent),
            (&mut self.unfinished, other.unfinished),
            (&mut self.unsent, other.unsent),
            (&mut self.connections_begun, other.connections_begun),
            (&mut self.handshakes, other.handshakes),
            (&mut self.handshakes_unfinished, other.handshakes_unfinished),
            (&mut self.early_used, other.early_used),
            (&mut self.early_rejected, other.early_rejected),
            (&mut self.goaways, other.goaways),
        ] {
            *ours = ours.saturating_add(theirs);
        }
        for (ours, theirs) in self.failures.iter_mut().zip(other.failures) {
            *ours = ours.saturating_add(theirs);
        }
        for (ours, theirs) in self.refusals.iter_mut().zip(other.refusals) {
            *ours = ours.saturating_add(theirs);
        }
        let words = self.failure_words.iter_mut().zip(&other.failure_words);
        for (ours, theirs) in words {
            *ours = ours.take().or_else(|| theirs.clone());
        }
        let words = self.refusal_words.iter_mut().zip(&other.refusal_words);
        for (ours, theirs) in words {
            *ours = ours.take().or_else(|| theirs.clone());
        }
        self.latency.merge(&other.latency);
        self.handshake_time.merge(&other.handshake_time);
        let seconds = self.seconds.len().max(other.seconds.len());
        self.seconds.resize_with(seconds, Second::default);
        for (ours, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            ours.latency.merge(&theirs.latency);
            ours.failed = ours.failed.saturating_add(theirs.failed);
            ours.content_bytes = ours.content_bytes.saturating_add(theirs.content_bytes);
        }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.begin = Some(now);
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.end = self.since_begin(now);
    }

    /// Returns the time from the beginning to `now`; `None` before the beginning.
    fn since_begin(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.begin?))
    }

    pub(super) fn success(
        &mut self,
        now: Instant,
        path: usize,
        planned: Instant,
        content_bytes: u64,
    ) {
        let latency = now.saturating_duration_since(planned);
        self.successes += 1;
        self.path_successes[path] += 1;
        self.last_success = self.since_begin(now);
        self.content_bytes += content_bytes;
        self.latency.record(latency);
        if let Some(second) = self.second(now) {
            second.latency.record(latency);
            second.content_bytes += content_bytes;
        }
    }

    pub(super) fn failure(&mut self, now: Instant, kind: Failure, content_bytes: u64, words: &str) {
        self.failures[kind as usize] += 1;
        self.content_bytes += content_bytes;
        keep(&mut self.failure_words[kind as usize], words);
        if let Some(second) = self.second(now) {
            second.failed += 1;
            second.content_bytes += content_bytes;
        }
    }

    pub(super) fn refusal(&mut self, now: Instant, kind: Refusal, words: &str) {
        self.refusals[kind as usize] += 1;
        keep(&mut self.refusal_words[kind as usize], words);
        if let Some(second) = self.second(now) {
            second.failed += 1;
        }
    }

    fn second(&mut self, now: Instant) -> Option<&mut Second> {
        let elapsed = self.since_begin(now)?;
        let number = usize::try_from(elapsed.as_secs()).unwrap_or(usize::MAX);
        // The very end belongs to the last second.
        let number = number.min(self.seconds_max - 1);
        while self.seconds.len() <= number {
            self.seconds.push(Second::default());
        }
        self.seconds.get_mut(number)
    }
}

/// Keeps the first text only.
fn keep(kept: &mut Option<String>, words: &str) {
    if kept.is_none() && !words.is_empty() {
        *kept = Some(words.chars().take(REASON_CHARACTERS_MAX).collect());
    }
}

impl Failure {
    /// Whether the request failed because of the status of its response.
    pub(super) fn is_of_status(self) -> bool {
        [
            Self::Status2xx,
            Self::Status3xx,
            Self::Status4xx,
            Self::Status5xx,
            Self::StatusOther,
        ]
        .contains(&self)
    }

    /// Returns how a request fails if its connection is lost.
    pub(super) fn of_lost(lost: &Lost) -> Self {
        match lost {
            Lost::TimedOut => Self::TimedOut,
            Lost::Reset => Self::ConnectionReset,
            Lost::Application { .. } => Self::ConnectionClosed,
            Lost::NoApplicationProtocol
            | Lost::Tls(_)
            | Lost::Transport(_)
            | Lost::WebTransport(_)
            | Lost::Version
            | Lost::ConnectionIdsExhausted => Self::ConnectionLost,
        }
    }
}

impl Refusal {
    /// Returns why a connection was lost during its handshake.
    pub(super) fn of_lost(lost: &Lost) -> Self {
        match lost {
            Lost::TimedOut => Self::TimedOut,
            Lost::Tls(_) => Self::Tls,
            Lost::NoApplicationProtocol | Lost::Version => Self::Protocol,
            Lost::Application { .. } | Lost::Reset => Self::Refused,
            Lost::Transport(words) if words.contains(REFUSED) => Self::Refused,
            Lost::Transport(_) | Lost::WebTransport(_) | Lost::ConnectionIdsExhausted => Self::Lost,
        }
    }
}

/// The engine's text for `CONNECTION_REFUSED` (RFC 9000 §20.1).
const REFUSED: &str = "refused to accept a new connection";

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        Instant::now()
    }

    #[test]
    fn kinds_have_different_names() {
        for (number, kind) in Failure::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert!(
                !Failure::ALL[..number]
                    .iter()
                    .any(|one| one.name() == kind.name())
            );
        }
        for (number, kind) in Refusal::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
        }
    }

    #[test]
    fn seconds_are_kept_up_to_the_limit_and_no_further() {
        let begin = origin();
        for (asked, kept) in [
            (3, 3),
            (SECONDS_MAX, SECONDS_MAX),
            (SECONDS_MAX + 1, SECONDS_MAX),
        ] {
            let mut figures = Figures::new(Duration::from_secs(asked as u64), 1);
            figures.begin(begin);
            let last = Duration::from_secs(kept as u64 - 1);
            figures.success(begin + last, 0, begin + last, 5);
            assert_eq!(figures.seconds.len(), kept);
            figures.success(begin + last + Duration::from_secs(1), 0, begin + last, 5);
            assert_eq!((figures.seconds.len(), figures.successes), (kept, 2));
        }
    }

    #[test]
    fn two_clients_add_up() {
        let begin = origin();
        let at = |ms| begin + Duration::from_millis(ms);
        let duration = Duration::from_secs(3);
        let (mut one, mut other) = (Figures::new(duration, 2), Figures::new(duration, 2));
        one.begin(at(0));
        other.begin(at(10));
        one.success(at(500), 0, at(400), 100);
        other.success(at(2_600), 1, at(2_500), 100);
        other.failure(at(20), Failure::Status4xx, 3, "");
        other.refusal(at(20), Refusal::Tls, "bad certificate");
        one.end(at(3_000));
        other.end(at(3_010));
        one.merge(&other);
        assert_eq!((one.successes, one.failed(), one.refused()), (2, 1, 1));
        assert_eq!(one.failures(Failure::Status4xx), 1);
        assert_eq!(one.refusal_words(Refusal::Tls), Some("bad certificate"));
        assert_eq!(one.elapsed(), Duration::from_secs(3));
        assert_eq!((one.seconds.len(), one.content_bytes), (3, 203));
        assert_eq!(one.seconds[0].failed, 2);
        assert_eq!(one.path_successes, [1, 1]);
        assert_eq!(one.silence(), Some(Duration::from_millis(410)));
        assert_eq!(Figures::new(duration, 1).silence(), None);
    }
}
