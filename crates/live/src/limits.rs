//! Every bound of this crate in one place.

/// Bytes of one `mdat` box; a larger one ends the ingest. A keyframe of an 8K stream fits.
pub const MDAT_BYTES_MAX: u64 = 64 << 20;

/// Bytes of one box of any other kind; a larger one ends the ingest.
pub const BOX_BYTES_MAX: u64 = 1 << 20;

/// Boxes that lie in each other in a `moov` or `moof` box, where these may hold any others; one more ends the ingest. Real ones
/// have 8.
pub const BOX_DEPTH_MAX: usize = 12;

/// Boxes in a `moov` or `moof` box that do not give their size, but reach as far as what they lie in; one more ends the ingest.
pub const BOXES_WITHOUT_SIZE_MAX: usize = 8;

/// Boxes with descriptors of sound (`esds`) in a `moov` or `moof` box; one more ends the ingest.
pub const DESCRIPTION_BOXES_MAX: usize = 2 * TRACKS_MAX;

/// Descriptors that lie in each other in such a box, where these may hold any others; one more ends the ingest. Real ones have 2.
pub const DESCRIPTOR_DEPTH_MAX: usize = 4;

/// Bytes of an `avcC` box without its header; more end the ingest. Real ones have less than 300.
pub const CONFIGURATION_BYTES_MAX: usize = 4096;

/// Tracks that a `moov` box may describe; more end the ingest.
pub const TRACKS_MAX: usize = 16;

/// Samples in a fragment of a track that is not video; more end the ingest.
pub const SAMPLES_PER_FRAGMENT_MAX: usize = 4096;

/// Frames of one group of pictures; one more ends the ingest, as nobody could join.
pub const FRAMES_PER_GROUP_MAX: u64 = 10_000;

/// Tracks that a catalog may list; one with more is of no use.
pub const CATALOG_TRACKS_MAX: usize = 256;

/// Tracks of a catalog that an error tells of; further ones are counted.
pub const TOLD_TRACKS_MAX: usize = 8;

/// Characters of a name or another text of a catalog that an error repeats; what follows is left out.
pub const TOLD_CHARACTERS_MAX: usize = 100;

/// Tracks with init segments that are asked for on account of one catalog; further ones are not.
pub const INIT_TRACKS_MAX: usize = 8;

/// Tracks that are played together as layers of one picture; further ones are not asked for.
pub const LAYERS_MAX: usize = 8;

/// Bytes of a catalog or an init segment that a player takes; a larger object is passed over.
pub const METADATA_BYTES_MAX: usize = 1 << 20;

/// Frames of one object, over all fragments in it; one with more is passed over.
pub const FRAMES_PER_OBJECT_MAX: usize = 4096;

/// Frames of which a player keeps what became of them: 18 hours at 60 per second. Later ones are counted.
pub const RECORDS_MAX: usize = 4_000_000;

/// Bytes of all objects together that a player has to look into and that are here in part. The stream that brings more is stopped.
pub const PARTIAL_BYTES_MAX: usize = 64 << 20;

/// Frames of two layers that wait to be put in order; beyond them the oldest one passes on. A minute at 60 frames per second.
pub const REORDERED_FRAMES_MAX: usize = 3600;

/// Frames of later groups that wait for the end of the present one; beyond them the oldest group passes on.
pub const SEQUENCE_FRAMES_MAX: usize = 65_536;

/// Bytes of an object that a player has to look into; a larger one is passed over.
pub const OBJECT_BYTES_MAX: u64 = 16 << 20;
