//! Every limit of reports, in one place, each with its reason.

/// Clauses of a service level.
pub const CLAUSES_MAX: usize = 32;

/// Lines of an archive: 64 tracks with a histogram for each window, twice over.
pub const ARCHIVE_LINES_MAX: usize = 100_000;
