//! A report as JSON.

use super::{Report, SCHEMA};
use crate::form::json::{ReadError, parse_with, pretty};

/// Writes `report`, with a line feed at its end.
pub fn render(report: &Report) -> String {
    pretty(report)
}

/// Reads a report that [`render`] wrote.
///
/// # Errors
/// The text is not a report, or has another schema.
pub fn parse(text: &str) -> Result<Report, ReadError> {
    parse_with(text, SCHEMA)
}
