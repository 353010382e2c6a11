//! How a client's connections end, and what replaces them.

use std::time::{Duration, Instant};

use weir_h3::{Code, Violation};
use weir_quic::{Endpoint, Handle, Lost};
use weir_transport::{StreamId, Transport as _};

use super::{
    Client, Greeting,
    connection::Stage,
    figures::{Failure, Refusal},
    limits::RETRY_PAUSE,
};

impl Client {
    /// Handles a connection that could not be made: its place stays empty for a while, or its request fails.
    pub(super) fn on_no_connection(&mut self, now: Instant, is_short: bool) {
        if is_short {
            self.figures.failure(now, Failure::NoConnection, 0, "");
            if self.plan.is_some() {
                return;
            }
        }
        self.retries.push_back(now + RETRY_PAUSE);
    }

    /// Replaces a finished connection, unless an open loop begins connections when requests are due.
    pub(super) fn replace(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.plan.is_none() || !self.load.is_short() {
            self.connect(now, endpoint, now);
        }
    }

    /// Closes a finished connection. With early data, its response arrives before the server has seen the end of the
    /// handshake. Such a connection stays open for another two round trips, so that the ticket for the next one
    /// arrives.
    pub(super) fn leave(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        if self.load.greeting == Greeting::Patient {
            return self.close(now, endpoint, handle, Code::NO_ERROR, b"");
        }
        if let Some(connection) = endpoint.connection(now, handle) {
            let round_trip = connection.stats().round_trip;
            let until = now + 2 * round_trip + LINGER_MIN;
            self.lingering.push_back((until, handle));
        }
        self.connections.remove(handle);
    }

    pub(super) fn end_lingering(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some((until, handle)) = self.lingering.front().copied()
            && until <= now
        {
            self.lingering.pop_front();
            if let Some(mut connection) = endpoint.connection(now, handle) {
                connection.close(Code::NO_ERROR.0, b"");
            }
        }
    }

    pub(super) fn close(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        code: Code,
        reason: &[u8],
    ) {
        if let Some(mut connection) = endpoint.connection(now, handle) {
            connection.close(code.0, reason);
        }
        self.connections.remove(handle);
    }

    /// Handles GOAWAY: the server accepts no more requests on this connection (RFC 9114 §5.2).
    pub(super) fn look_for_goaway(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
    ) {
        let Some(entry) = self.connections.find(handle) else {
            return;
        };
        let Some(number) = entry.session.goaway() else {
            return;
        };
        if !std::mem::replace(&mut entry.is_leaving, true) {
            self.figures.goaways += 1;
        }
        let refused = entry.refuse_from(StreamId(number));
        let is_done = entry.is_done(&self.load);
        let was_unusable = entry.is_stuck() && entry.is_unused();
        for bytes in &refused {
            self.figures.failure(now, Failure::GoAway, *bytes, "");
        }
        self.in_flight -= refused.len() as u64;
        if is_done {
            let had_success = self.had_success(handle);
            self.close(now, endpoint, handle, Code::NO_ERROR, b"");
            if was_unusable {
                self.on_no_use(now, Refusal::Unusable, "GOAWAY");
            }
            self.replace_later(now, endpoint, had_success);
        }
        self.look_for_end(now, endpoint);
    }

    pub(super) fn on_violation(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        violation: Violation,
    ) {
        let words = violation.to_string();
        if self.fail_all(now, handle, Failure::Violation, &words) == 0 {
            self.on_no_use(now, Refusal::Violation, &words);
        }
        let had_success = self.had_success(handle);
        self.close(
            now,
            endpoint,
            handle,
            violation.code,
            violation.reason.as_bytes(),
        );
        self.replace_later(now, endpoint, had_success);
        self.look_for_end(now, endpoint);
    }

    pub(super) fn on_lost(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        lost: &Lost,
    ) {
        let Some(entry) = self.connections.find(handle) else {
            return;
        };
        if entry.stage == Stage::Open {
            let kind = Failure::of_lost(lost);
            // A server may close a connection on which it accepts no requests, but must not leave it unusable.
            let is_unusable = entry.is_stuck() && (entry.is_unused() || *lost == Lost::TimedOut);
            let words = lost.to_string();
            let failed = self.fail_all(now, handle, kind, &words);
            if failed == 0 && is_unusable && (self.load.is_short() || self.has_quota()) {
                self.on_no_use(now, Refusal::Unusable, &words);
            }
            let had_success = self.had_success(handle);
            self.connections.remove(handle);
            self.replace_later(now, endpoint, had_success);
        } else {
            self.on_no_handshake(now, handle, Refusal::of_lost(lost), &lost.to_string());
        }
        self.look_for_end(now, endpoint);
    }

    /// Handles a connection that ended before its handshake was complete.
    pub(super) fn on_no_handshake(
        &mut self,
        now: Instant,
        handle: Handle,
        kind: Refusal,
        words: &str,
    ) {
        let is_short = self.load.is_short();
        self.figures.refusal(now, kind, words);
        if !is_short {
            self.fail_all(now, handle, Failure::NoConnection, "");
        } else if let Some(entry) = self.connections.find(handle) {
            // The request of a short connection is counted below, whether it was sent early or not.
            self.in_flight -= entry.fail_all().len() as u64;
        }
        self.connections.remove(handle);
        self.on_no_connection(now, is_short);
    }

    /// Counts a connection that ended because of the server, without a request that could fail.
    fn on_no_use(&mut self, now: Instant, kind: Refusal, words: &str) {
        self.figures.refusal(now, kind, words);
        if self.load.is_short() {
            self.figures.failure(now, Failure::NoConnection, 0, "");
        }
    }

    /// At the end of the run, counts the connections on which no request could ever be sent.
    pub(super) fn count_unusable(&mut self, now: Instant) {
        let Some(since) = now.checked_sub(UNUSABLE_AFTER) else {
            return;
        };
        for _ in 0..self.connections.unusable(since) {
            self.on_no_use(now, Refusal::Unusable, "no request could be sent");
        }
    }

    /// Fails all requests of a connection for the same reason. Returns their number.
    pub(super) fn fail_all(
        &mut self,
        now: Instant,
        handle: Handle,
        kind: Failure,
        words: &str,
    ) -> usize {
        let Some(entry) = self.connections.find(handle) else {
            return 0;
        };
        let failed = entry.fail_all();
        for bytes in &failed {
            self.figures.failure(now, kind, *bytes, words);
            self.in_flight -= 1;
        }
        failed.len()
    }

    pub(super) fn had_success(&mut self, handle: Handle) -> bool {
        self.connections
            .find(handle)
            .is_some_and(|entry| entry.successes > 0)
    }

    /// Replaces a connection that the server ended: immediately if it had been useful, otherwise after a pause.
    pub(super) fn replace_later(&mut self, now: Instant, endpoint: &mut Endpoint, at_once: bool) {
        if at_once {
            self.replace(now, endpoint);
        } else if self.plan.is_none() || !self.load.is_short() {
            self.retries.push_back(now + RETRY_PAUSE);
        }
    }

    /// Gives up handshakes that take too long.
    pub(super) fn expire_handshakes(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some((deadline, handle)) = self.handshakes.front().copied()
            && deadline <= now
        {
            self.handshakes.pop_front();
            if self
                .connections
                .find(handle)
                .is_none_or(|entry| entry.stage == Stage::Open)
            {
                continue;
            }
            let seconds = self.load.handshake_timeout.as_secs_f64();
            let words = format!("no handshake within {seconds} s");
            self.on_no_handshake(now, handle, Refusal::TimedOut, &words);
            if let Some(mut connection) = endpoint.connection(now, handle) {
                connection.close(Code::NO_ERROR.0, b"");
            }
        }
    }
}

/// How old a connection without any request must be at the end of the run to count as unusable. It is longer than the
/// round trips after which a slow server allows requests.
const UNUSABLE_AFTER: Duration = Duration::from_secs(1);
/// How long connections with early data stay open, beside their round trips.
const LINGER_MIN: Duration = Duration::from_millis(2);
