//! A report as JSON; `docs/report.schema.json` describes the form.

use super::{Report, SCHEMA};
pub use crate::form::json::ReadError;
use crate::form::json::{parse_with, pretty};

/// Writes `report`, with a line feed at its end.
pub fn render(report: &Report) -> String {
    pretty(report)
}

/// Reads what [`render`] wrote.
pub fn parse(text: &str) -> Result<Report, ReadError> {
    parse_with(text, SCHEMA)
}
