//! Log lines about overload, refused sessions and refused requests, with a limit of their rate.

use std::time::{Duration, Instant};

use tracing::Level;
use weir_moqt::{
    error::{RequestErrorCode, SessionError},
    message::Setup,
    session::Request,
};
use weir_quic::Handle;

use crate::{
    Denial,
    authority::Subject,
    ids::RequestKey,
    load::{Load, LoadLimits, Overload},
    turn::Turn,
};

/// A limit on lines of one kind: so many in each [`WINDOW`]. Further ones are counted, and the next line says how many.
#[derive(Debug)]
struct LineLimit {
    lines_max: u32,
    window_start: Option<Instant>,
    lines: u32,
    unlogged: u64,
}

impl LineLimit {
    fn new(lines_max: u32) -> Self {
        Self {
            lines_max,
            window_start: None,
            lines: 0,
            unlogged: 0,
        }
    }

    /// Returns how many lines were left out since the last one, if another line may be written now.
    fn permit(&mut self, now: Instant) -> Option<u64> {
        let is_over = |start| now.saturating_duration_since(start) >= WINDOW;
        if self.window_start.is_none_or(is_over) {
            (self.window_start, self.lines) = (Some(now), 0);
        }
        if self.lines >= self.lines_max {
            self.unlogged += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// The state of the relay's log.
#[derive(Debug)]
pub(crate) struct Log {
    refusals: LineLimit,
    overloads: LineLimit,
    /// When the overload began whose beginning was logged.
    overload_since: Option<Instant>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            refusals: LineLimit::new(REFUSALS_MAX),
            overloads: LineLimit::new(1),
            overload_since: None,
        }
    }
}

impl Log {
    /// Logs that the relay begins to shed load.
    pub(super) fn overload_begins(
        &mut self,
        now: Instant,
        overload: Overload,
        load: Load,
        limits: &LoadLimits,
    ) {
        if let Some(unlogged) = self.overloads.permit(now) {
            self.overload_since = Some(now);
            tracing::warn!("{}", beginning(overload, load, limits, unlogged));
        }
    }

    /// Logs that the relay sheds load no more, if the beginning was logged.
    pub(super) fn overload_ends(&mut self, now: Instant) {
        if let Some(since) = self.overload_since.take() {
            let seconds = now.saturating_duration_since(since).as_secs_f64();
            tracing::warn!(
                "the overload is over after {seconds:.1} s: new sessions and requests are accepted again"
            );
        }
    }
}

/// Returns the line about an overload that begins, in plain words.
fn beginning(overload: Overload, load: Load, limits: &LoadLimits, unlogged: u64) -> String {
    let cause = match overload {
        Overload::Memory => {
            let [used, most, enough] = [
                load.memory_bytes,
                limits.memory_bytes_max,
                limits.memory_bytes_max / 10 * 9,
            ]
            .map(mebibytes);
            format!(
                "the process uses {used} MiB of memory, and limits.load.memory_bytes_max is {most} MiB; until it uses \
                 less than {enough} MiB"
            )
        }
        Overload::Delay => {
            let [delay, most] =
                [load.queue_delay, limits.queue_delay_max].map(|time| time.as_millis());
            format!(
                "packets wait {delay} ms for an event loop, and limits.load.queue_delay_max is {most} ms; until they wait \
                 less than {} ms",
                most / 2
            )
        }
    };
    let more = if unlogged == 0 {
        String::new()
    } else {
        format!(" ({unlogged} more overloads since the last line)")
    };
    format!("overload: {cause}, new sessions and requests are refused{more}")
}

fn mebibytes(bytes: u64) -> String {
    let tenths = u128::from(bytes) * 10 / (1 << 20);
    format!("{}.{}", tenths / 10, tenths % 10)
}

impl Turn<'_> {
    /// Logs the refusal of a request, at level info. If its sender may not make it, the line has the reason, and at level
    /// debug another one has the namespace and the bearer of the session's token.
    pub(crate) fn log_refusal(
        &mut self,
        (handle, id): RequestKey,
        code: RequestErrorCode,
        denied: Option<(Denial, Option<&Subject>)>,
    ) {
        if !tracing::enabled!(Level::INFO) || self.is_link(handle) {
            return;
        }
        let Some(unlogged) = self.sessions.log.refusals.permit(self.now) else {
            return;
        };
        let Some(connection) = self.endpoint.connection(self.now, handle) else {
            return;
        };
        let address = connection.remote_address();
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let kind = peer.session().request_kind(id);
        let request = kind.map_or("request", |kind| kind.name());
        let Some((denial, subject)) = denied else {
            return tracing::info!(peer = %address, id = id.0, %code, unlogged, "{request} refused");
        };
        tracing::info!(peer = %address, id = id.0, %code, unlogged, "{request} refused: {denial}");
        // The log has names at level debug only.
        if tracing::enabled!(Level::DEBUG) {
            let namespace = subject.map(|subject| subject.namespace.to_string());
            let (namespace, bearer) = (namespace.unwrap_or_default(), peer.access.bearer());
            tracing::debug!(peer = %address, id = id.0, namespace, bearer, "not permitted");
        }
    }

    /// Logs that a session is established, with its draft, at level debug.
    pub(crate) fn log_session(&mut self, handle: Handle, setup: &Setup) {
        if !tracing::enabled!(Level::DEBUG) {
            return;
        }
        let session = self.sessions.get(handle).map(|peer| peer.session());
        let draft = session.map(|session| session.draft().alpn());
        if let Some(connection) = self.endpoint.connection(self.now, handle) {
            let peer = connection.remote_address();
            let implementation = setup.implementation.as_deref();
            tracing::debug!(%peer, draft, implementation, "session established");
        }
    }

    /// Logs whose token a session has shown, at level debug.
    pub(super) fn log_bearer(&mut self, handle: Handle) {
        if !tracing::enabled!(Level::DEBUG) {
            return;
        }
        let session = self.sessions.get(handle);
        let bearer = session.and_then(|peer| peer.access.bearer());
        if let Some(bearer) = bearer.map(str::to_owned)
            && let Some(connection) = self.endpoint.connection(self.now, handle)
        {
            let peer = connection.remote_address();
            tracing::debug!(%peer, bearer, "token accepted");
        }
    }

    /// Logs the refusal of a session, at level info.
    pub(crate) fn log_refused_session(&mut self, handle: Handle, code: SessionError, why: &str) {
        self.log_closing(handle, code, "session refused", why);
    }

    /// Logs that a session loses its rights, at level info.
    pub(crate) fn log_ended_session(&mut self, handle: Handle, code: SessionError, why: &str) {
        self.log_closing(handle, code, "session ended", why);
    }

    fn log_closing(&mut self, handle: Handle, code: SessionError, what: &str, why: &str) {
        if !tracing::enabled!(Level::INFO) {
            return;
        }
        let Some(unlogged) = self.sessions.log.refusals.permit(self.now) else {
            return;
        };
        if let Some(connection) = self.endpoint.connection(self.now, handle) {
            let peer = connection.remote_address();
            tracing::info!(%peer, %code, unlogged, "{what}: {why}");
        }
    }

    /// Logs a request with its namespace, at level debug. A line about its refusal has the same peer and ID.
    pub(crate) fn log_request(&mut self, (handle, id): RequestKey, request: &Request) {
        if !tracing::enabled!(Level::DEBUG) || self.is_link(handle) {
            return;
        }
        if let Some(connection) = self.endpoint.connection(self.now, handle) {
            let peer = connection.remote_address();
            let namespace = request.namespace().map(ToString::to_string);
            let namespace = namespace.unwrap_or_default();
            let name = request.kind().name();
            tracing::debug!(%peer, id = id.0, namespace, "{name}");
        }
    }
}

/// The time over which lines are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// Lines about refused sessions and requests in each [`WINDOW`].
const REFUSALS_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::epoch;

    #[test]
    fn so_many_lines_in_a_window_and_the_rest_is_counted() {
        let mut limit = LineLimit::new(2);
        let start = epoch();
        assert_eq!(limit.permit(start), Some(0));
        let last = start + (WINDOW / 2);
        assert_eq!(limit.permit(last), Some(0));
        assert_eq!(limit.permit(last), None);
        assert_eq!(limit.permit(last), None);
        assert_eq!(limit.permit(start + WINDOW), Some(2));
        assert_eq!(limit.permit(start + WINDOW), Some(0));
        assert_eq!(limit.permit(start + WINDOW), None);
    }

    #[test]
    fn an_overload_is_described_in_plain_words() {
        let load = Load {
            queue_delay: Duration::from_millis(312),
            memory_bytes: 35 << 20,
            heap_bytes: 0,
        };
        let limits = LoadLimits {
            queue_delay_max: Duration::from_millis(250),
            memory_bytes_max: 10 << 20,
        };
        assert_eq!(
            beginning(Overload::Memory, load, &limits, 0),
            "overload: the process uses 35.0 MiB of memory, and limits.load.memory_bytes_max is 10.0 MiB; until it uses less \
             than 9.0 MiB, new sessions and requests are refused"
        );
        assert_eq!(
            beginning(Overload::Delay, load, &limits, 3),
            "overload: packets wait 312 ms for an event loop, and limits.load.queue_delay_max is 250 ms; until they wait less \
             than 125 ms, new sessions and requests are refused (3 more overloads since the last line)"
        );
    }
}
