//! Every bound of this crate in one place.

/// Bytes of one `mdat` box; a larger one ends the ingest. A keyframe of an 8K stream fits.
pub const MDAT_BYTES_MAX: u64 = 64 << 20;

/// Bytes of one box of any other kind; a larger one ends the ingest.
pub const BOX_BYTES_MAX: u64 = 1 << 20;

/// Tracks that a `moov` box may describe; more end the ingest.
pub const TRACKS_MAX: usize = 16;

/// Samples in a fragment of a track that is not video; more end the ingest.
pub const SAMPLES_PER_FRAGMENT_MAX: usize = 4096;

/// Frames of one group of pictures; one more ends the ingest, as nobody could join.
pub const FRAMES_PER_GROUP_MAX: u64 = 10_000;
