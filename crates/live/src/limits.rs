//! Every limit of the crate.

/// Bytes of one `mdat` box; a larger one ends the ingest. Large enough for a keyframe of 8K video.
pub const MDAT_BYTES_MAX: u64 = 64 << 20;

/// Bytes of one box of any other kind; a larger one ends the ingest.
pub const BOX_BYTES_MAX: u64 = 1 << 20;

/// Nesting depth of boxes in a `moov` or `moof` box, counting boxes that can hold any other box. A deeper box ends the
/// ingest. Real files have 8 levels.
pub const BOX_DEPTH_MAX: usize = 12;

/// Boxes in a `moov` or `moof` box that extend to the end of their parent instead of giving a size. One more ends the
/// ingest.
pub const BOXES_WITHOUT_SIZE_MAX: usize = 8;

/// Boxes with audio descriptors (`esds`) in a `moov` or `moof` box; one more ends the ingest.
pub const DESCRIPTION_BOXES_MAX: usize = 2 * TRACKS_MAX;

/// Nesting depth of descriptors in such a box, counting descriptors that can hold any other. A deeper one ends the
/// ingest. Real files have 2 levels.
pub const DESCRIPTOR_DEPTH_MAX: usize = 4;

/// Bytes of an `avcC` box without its header; a larger one ends the ingest. Real files have less than 300.
pub const CONFIGURATION_BYTES_MAX: usize = 4096;

/// Tracks in a `moov` box; more end the ingest.
pub const TRACKS_MAX: usize = 16;

/// Samples in a fragment of an audio track; more end the ingest.
pub const SAMPLES_PER_FRAGMENT_MAX: usize = 4096;

/// Frames of one group of pictures; one more ends the ingest, since no player could join. A player keeps the numbers of as
/// many frames after a lost one.
pub const FRAMES_PER_GROUP_MAX: u64 = 10_000;

/// Tracks in a catalog; a catalog with more is rejected.
pub const CATALOG_TRACKS_MAX: usize = 256;

/// Tracks of a catalog that an error names. It gives the number of the others.
pub const DESCRIBED_TRACKS_MAX: usize = 8;

/// Characters of a text of the catalog that an error repeats. The rest is omitted.
pub const DESCRIBED_CHARACTERS_MAX: usize = 100;

/// Tracks with init segments that are requested because of one catalog. Further ones are not requested.
pub const INIT_TRACKS_MAX: usize = 8;

/// Tracks that are played together as layers of one picture. Further ones are not requested.
pub const LAYERS_MAX: usize = 8;

/// Bytes of a catalog in a player; a larger one is ignored.
pub const CATALOG_BYTES_MAX: usize = 128 << 10;

/// Bytes of an init segment in a player; a larger one is ignored.
pub const INIT_SEGMENT_BYTES_MAX: usize = 1 << 20;

/// Frames of one object, over all fragments in it; an object with more is ignored.
pub const FRAMES_PER_OBJECT_MAX: usize = 4096;

/// Bytes of all boxes of an object except `mdat`; an object with more is ignored. Real fragments have some 100 for each frame.
pub const HEAD_BYTES_PER_OBJECT_MAX: usize = 128 * FRAMES_PER_OBJECT_MAX;

/// Frames whose records a player keeps: 18 hours at 60 per second. Later frames are counted.
pub const RECORDS_MAX: usize = 4_000_000;

/// Bytes of all incomplete objects that a player has to parse. A stream that exceeds this is stopped.
pub const PARTIAL_BYTES_MAX: usize = 64 << 20;

/// Frames of two layers that wait for reordering: a minute at 60 per second. Beyond this, the oldest leaves.
pub const REORDERED_FRAMES_MAX: usize = 3600;

/// Frames of later groups that wait for the end of the current one. Beyond this, the oldest group is released.
pub const SEQUENCE_FRAMES_MAX: usize = 65_536;

/// Bytes of an object that a player has to parse; a larger one is ignored.
pub const OBJECT_BYTES_MAX: u64 = 16 << 20;
