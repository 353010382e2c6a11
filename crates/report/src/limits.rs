//! All limits of reports, with their reasons.

/// Most clauses of a service level.
pub const CLAUSES_MAX: usize = 32;

/// Most lines of an archive: twice as many as 64 tracks with a histogram for each window need.
pub const ARCHIVE_LINES_MAX: usize = 100_000;
