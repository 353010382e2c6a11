//! Reports as indented JSON.
//!
//! The order of fields is fixed, and numbers are rounded to three decimals, so equal reports give equal files. Schemas
//! in `docs/` describe the forms.

use std::io;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// An error in reading a report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is not a report.
    #[error("not a report: {0}")]
    Invalid(#[from] serde_json::Error),
    /// The report has a schema that this version does not read.
    #[error("the report has schema {found}, and this version of weir reads schema {read}")]
    Schema {
        /// Schema of the report.
        found: u64,
        /// Schema that this version reads.
        read: u32,
    },
}

/// Writes a report of any kind, with rounded numbers and a line feed at its end.
pub(crate) fn pretty(report: &impl Serialize) -> String {
    let mut out = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut out, Rounding(PrettyFormatter::new()));
    report
        .serialize(&mut serializer)
        .expect("a report has string keys only, and memory takes all");
    out.push(b'\n');
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Reads a report of any kind. A wrong schema is reported before missing fields.
pub(crate) fn parse_with<T: DeserializeOwned>(text: &str, read: u32) -> Result<T, ReadError> {
    check_schema(&serde_json::from_str(text)?, read)?;
    Ok(serde_json::from_str(text)?)
}

/// Checks the schema of `report`. A report without one passes: reading its fields will fail.
pub(crate) fn check_schema(report: &Value, read: u32) -> Result<(), ReadError> {
    match report.get("schema").and_then(Value::as_u64) {
        Some(found) if found != u64::from(read) => Err(ReadError::Schema { found, read }),
        Some(_) | None => Ok(()),
    }
}

/// Defines methods that call those of the inner formatter.
macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty)?),)*) => {
        $(fn $method<W: ?Sized + io::Write>(
            &mut self,
            writer: &mut W,
            $($argument: $type)?
        ) -> io::Result<()> {
            self.0.$method(writer, $($argument)?)
        })*
    };
}

/// A formatter of indented JSON with rounded numbers.
struct Rounding(PrettyFormatter<'static>);

impl Formatter for Rounding {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let rounded = (value * 1000.0).round() / 1000.0;
        let rounded = if rounded.is_finite() {
            rounded + 0.0
        } else {
            value
        };
        self.0.write_f64(writer, rounded)
    }

    forward! {
        begin_array(),
        end_array(),
        begin_array_value(first: bool),
        end_array_value(),
        begin_object(),
        end_object(),
        begin_object_key(first: bool),
        begin_object_value(),
        end_object_value(),
    }
}
