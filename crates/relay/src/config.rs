//! Configuration of a relay.

use std::time::Duration;

use weir_moqt::draft::Draft;

use crate::LoadLimits;

/// Configuration of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The drafts that may be negotiated by ALPN.
    pub drafts: Vec<Draft>,
    /// Bounds of the relay's own tables.
    pub limits: Limits,
    /// Limits of each session.
    pub session_limits: weir_moqt::limits::Limits,
    /// The load from which the relay refuses new sessions and requests.
    pub load: LoadLimits,
    /// How long sessions may take to leave when the relay is asked to stop.
    pub drain_max: Duration,
    /// Where they are sent then; `None` for the same place.
    pub successor: Option<String>,
    /// Whether publishers are told to send nothing (FORWARD 0) while nobody wants a track of theirs. That saves
    /// their uplink, and costs the first subscriber a round trip. Not all publishers can be paused: those that
    /// know no update of their PUBLISH end the track, and the cache has nothing of what was not sent.
    pub pauses_publishers: bool,
    /// Name and version told to peers in SETUP; `None` to say nothing.
    pub implementation: Option<String>,
}

/// Bounds of the relay's tables and queues. What lies past one costs the one who caused it: a request is
/// refused, an object is dropped for one subscriber, and a counter says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions in all; newcomers beyond are closed with `INTERNAL_ERROR`.
    pub sessions_max: usize,
    /// Sessions from one address, or one 64-bit prefix of IPv6; newcomers beyond are closed with
    /// `INTERNAL_ERROR`. The machine's own addresses are not counted.
    pub sessions_per_address_max: usize,
    /// Updates of requests that one session may make in a second; refused with `EXCESSIVE_LOAD` beyond, which
    /// ends the request.
    pub updates_per_second_max: u32,
    /// Streams that one session may reset or stop in a second, requests and streams of unknown aliases included; closed
    /// with `INTERNAL_ERROR` beyond.
    pub resets_per_second_max: u32,
    /// Subscriptions of one session, waiting ones included; refused with `EXCESSIVE_LOAD` beyond.
    pub subscriptions_per_session_max: usize,
    /// Tracks that one session may publish; refused with `EXCESSIVE_LOAD` beyond.
    pub publications_per_session_max: usize,
    /// Namespaces that one session may announce; refused with `EXCESSIVE_LOAD` beyond.
    pub namespaces_per_session_max: usize,
    /// Prefixes that one session may ask to be told of, namespaces and tracks together; refused with
    /// `EXCESSIVE_LOAD` beyond.
    pub prefixes_per_session_max: usize,
    /// Namespaces or tracks under one such prefix. With more, the request is refused with `NAMESPACE_TOO_LARGE`, or
    /// reset with `EXCESSIVE_LOAD` once they have become more.
    pub matches_per_prefix_max: usize,
    /// Bytes of authorization tokens that one session may register, each with 16 more [moqt-18 §10.3.1.3]; the
    /// session is closed with `AUTH_TOKEN_CACHE_OVERFLOW` beyond.
    pub token_cache_bytes_max: u64,
    /// Tracks in all; refused with `EXCESSIVE_LOAD` beyond.
    pub tracks_max: usize,
    /// Tracks that nobody publishes or wants, but of which objects are kept; beyond it the oldest is forgotten.
    pub tracks_resting_max: usize,
    /// Sessions that one track may come from at once. Others that announced its namespace are not asked; a
    /// PUBLISH is refused with `EXCESSIVE_LOAD` beyond.
    pub publishers_per_track_max: usize,
    /// Sessions that are looked at to find out who may have a track by what they announced, the most specific announcements
    /// first, then those that came first. Others are asked neither for its objects nor for its state.
    pub announcers_per_track_max: usize,
    /// Bytes of subgroups that one subscription may be behind, all its streams together, not counting what
    /// its connection has taken. Beyond it, its oldest groups are given up with `TOO_FAR_BEHIND`; if the newest
    /// alone is too much, the subscription ends.
    pub lag_bytes_max: u64,
    /// The same for all subscriptions of a session together; the one that grows beyond it gives up groups.
    pub lag_bytes_per_session_max: u64,
    /// Subgroup streams of one subscription that may be open at once. For one more, the oldest that is behind
    /// is reset with `TOO_FAR_BEHIND`; if none is behind, the new one is skipped.
    pub streams_per_subscription_max: usize,
    /// Streams of one session that have all of their subgroup and are not known to have arrived, of those with a delivery
    /// time-out and of those whose publisher another one has displaced. For one more, the one opened first is reset.
    pub streams_timed_per_session_max: usize,
    /// Subgroups of one track that may be open upstream at once; further ones are stopped.
    pub subgroups_per_track_max: usize,
    /// Fetches of one session; refused with `EXCESSIVE_LOAD` beyond.
    pub fetches_per_session_max: usize,
    /// Fetches that the relay may have open with one publisher; beyond it that one is not asked.
    pub fetches_upstream_per_session_max: usize,
    /// Questions of one session how tracks stand that publishers were asked; refused with `EXCESSIVE_LOAD` beyond.
    pub inquiries_per_session_max: usize,
    /// How long a fetch may wait for publishers in all, whatever its `FILL_TIMEOUT` says [moqt-18 §10.2.5].
    pub fill_max: Duration,
    /// Longest time that a SUBSCRIBE may wait for a publisher, whatever it asks for.
    pub rendezvous_max: Duration,
    /// How long subscribers of a track are kept when its last publisher vanishes without a word.
    pub publisher_linger: Duration,
    /// How long after a publisher's PUBLISH_DONE its missing streams, and open ones on which nothing comes,
    /// are waited for.
    pub done_linger: Duration,
    /// Bytes of objects that are kept of one track, with what it costs to keep them; its oldest group makes room
    /// for what is newer. 0 to keep nothing.
    pub cache_track_bytes_max: u64,
    /// Bytes of objects that are kept of all tracks; the oldest group of all makes room.
    pub cache_bytes_max: u64,
    /// Bytes of one object that is kept; larger ones are passed on only, and are unknown to those who fetch them.
    pub cache_object_bytes_max: u64,
    /// Bytes of objects of all tracks that have arrived in part on streams of subgroups, those of one session half as many;
    /// one more is passed on only.
    pub cache_partial_bytes_max: u64,
    /// The same of objects that publishers send in answer to fetches of the relay; one more is dropped, and is unknown to
    /// those who fetch it.
    pub cache_fetched_partial_bytes_max: u64,
    /// How long an object is kept. A publisher's `MAX_CACHE_DURATION` may say less [moqt-18 §12.3].
    pub cache_age_max: Duration,
    /// Ranges of one track that are known not to exist, not counting an end for each group of which objects are kept;
    /// beyond it the one of the smallest locations is forgotten.
    pub cache_gaps_per_track_max: usize,
    /// Gaps of one track that its publishers told of, so that an object that lies in one is noticed; beyond it the one of
    /// the smallest locations is forgotten [moqt-18 §12.8, §12.9].
    pub gaps_told_per_track_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions_max: 20_000,
            sessions_per_address_max: 4096,
            updates_per_second_max: 100,
            resets_per_second_max: 1000,
            subscriptions_per_session_max: 1024,
            publications_per_session_max: 1024,
            namespaces_per_session_max: 1024,
            prefixes_per_session_max: 64,
            matches_per_prefix_max: 4096,
            token_cache_bytes_max: 16 << 10,
            tracks_max: 100_000,
            tracks_resting_max: 10_000,
            publishers_per_track_max: 16,
            announcers_per_track_max: 256,
            lag_bytes_max: 4 << 20,
            lag_bytes_per_session_max: 16 << 20,
            streams_per_subscription_max: 128,
            streams_timed_per_session_max: 1024,
            subgroups_per_track_max: 256,
            fetches_per_session_max: 64,
            fetches_upstream_per_session_max: 256,
            inquiries_per_session_max: 64,
            fill_max: Duration::from_secs(10),
            rendezvous_max: Duration::from_secs(30),
            publisher_linger: Duration::from_secs(5),
            done_linger: Duration::from_secs(2),
            cache_track_bytes_max: 16 << 20,
            cache_bytes_max: 512 << 20,
            cache_object_bytes_max: 8 << 20,
            cache_partial_bytes_max: 64 << 20,
            cache_fetched_partial_bytes_max: 64 << 20,
            cache_age_max: Duration::from_mins(1),
            cache_gaps_per_track_max: 1024,
            gaps_told_per_track_max: 256,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            drafts: Draft::ALL.to_vec(),
            limits: Limits::default(),
            session_limits: weir_moqt::limits::Limits::default(),
            load: LoadLimits::default(),
            drain_max: Duration::from_secs(10),
            successor: None,
            pauses_publishers: false,
            implementation: Some("weir".to_owned()),
        }
    }
}
