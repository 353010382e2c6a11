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

/// Tracks with init segments that are asked for on account of one catalog; further ones are not.
pub const INIT_TRACKS_MAX: usize = 8;

/// Tracks that are played together as layers of one picture; further ones are not asked for.
pub const LAYERS_MAX: usize = 8;

/// Bytes of a catalog or an init segment that a player takes; a larger one is none.
pub const HELD_BYTES_MAX: usize = 1 << 20;

/// Bytes of an object that a player has to look into; a larger one is passed over.
pub const OBJECT_BYTES_MAX: u64 = 16 << 20;
