//! Arguments of benchmarks.

use std::{ops::RangeInclusive, time::Duration};

use clap::builder::RangedU64ValueParser;

/// Parses a number in this range.
pub(crate) fn within(range: RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

/// Parses a number of seconds above zero.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "expected a number")?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if time.is_zero() {
        return Err("expected more than zero".to_owned());
    }
    Ok(time)
}
