//! Times as the flags of `weir h3` take them.

use std::time::Duration;

use weir_http3::client::limits::HANDSHAKE_TIMEOUT_MAX;

/// `1.5s`, `200ms`, or a plain number of seconds, up to a day: no clock overflows with it.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let plain = text.parse().ok().map(Duration::try_from_secs_f64);
    let time = match plain {
        Some(Ok(time)) => time,
        Some(Err(error)) => return Err(error.to_string()),
        None => humantime::parse_duration(text).map_err(|error| error.to_string())?,
    };
    if time > TIME_MAX {
        return Err("expected a day at most".to_owned());
    }
    Ok(time)
}

/// The same for how long something is waited for: a millisecond at least.
pub(super) fn time_limit(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time < TIME_LIMIT_MIN {
        return Err("expected a millisecond at least".to_owned());
    }
    Ok(time)
}

const TIME_MAX: Duration = HANDSHAKE_TIMEOUT_MAX;
/// What QUIC can tell of an idle time-out (RFC 9000 §18.2).
const TIME_LIMIT_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_a_unit_and_without() {
        assert_eq!(time("5"), Ok(Duration::from_secs(5)));
        assert_eq!(time("0.2"), Ok(Duration::from_millis(200)));
        assert_eq!(time("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("0"), Ok(Duration::ZERO));
        for wrong in ["-1", "nan", "inf", "1e30", "5 parsecs", ""] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_at_their_limits_and_past_them() {
        assert_eq!(time("86400"), Ok(TIME_MAX));
        assert_eq!(time("1day"), Ok(TIME_MAX));
        for long in ["86400.1", "1e19", "1day 1ns", "1000000years"] {
            assert_eq!(time(long), Err("expected a day at most".to_owned()));
        }
        assert_eq!(time_limit("1ms"), Ok(TIME_LIMIT_MIN));
        for short in ["0", "0s", "0.0009", "999us"] {
            let error = Err("expected a millisecond at least".to_owned());
            assert_eq!(time_limit(short), error);
        }
        assert!(time_limit("2days").is_err());
    }
}
