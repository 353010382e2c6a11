//! Single tracks, for operators who look for one.

use weir_moqt::{location::Location, name::FullTrackName};

/// How a track stands.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackState<'a> {
    /// Its name.
    pub name: &'a FullTrackName,
    /// Sessions that it comes from.
    pub publishers: usize,
    /// Subscriptions that get its objects.
    pub subscribers: usize,
    /// Requests that wait for a publisher.
    pub waiting: usize,
    /// The largest location that is known.
    pub largest: Option<Location>,
    /// Bytes of subgroups that some subscriber has not taken yet.
    pub log_bytes: u64,
}
