//! A report as JSON; `docs/h3-report.schema.json` describes the form.

use super::{Report, SCHEMA};
use crate::report::json::{ReadError, pretty};

/// Writes `report`, with a line feed at its end.
pub fn render(report: &Report) -> String {
    pretty(report)
}

/// Reads what [`render`] wrote.
pub fn parse(text: &str) -> Result<Report, ReadError> {
    let value: serde_json::Value = serde_json::from_str(text)?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(schema) if schema != u64::from(SCHEMA) => Err(ReadError::Schema(schema)),
        Some(_) | None => Ok(serde_json::from_str(text)?),
    }
}
