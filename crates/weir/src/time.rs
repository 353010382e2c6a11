//! Times as flags take them: with a unit or in seconds, and small enough to be added to any time.

use std::time::Duration;

/// Parses `1.5s`, `200ms`, or a number of seconds, up to a day.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    up_to(text, TIME_MAX, "a day")
}

/// Parses a timeout: as [`time`], at least a millisecond.
pub(crate) fn time_limit(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time < TIME_LIMIT_MIN {
        return Err("expected a millisecond at least".to_owned());
    }
    Ok(time)
}

/// Parses a time as [`time`], up to a week.
pub(crate) fn long_time(text: &str) -> Result<Duration, String> {
    up_to(text, LONG_TIME_MAX, "a week")
}

/// Parses a time as [`time`], up to a century.
pub(crate) fn validity(text: &str) -> Result<Duration, String> {
    up_to(text, VALIDITY_MAX, "100 years of 365 days")
}

fn up_to(text: &str, most: Duration, words: &str) -> Result<Duration, String> {
    let plain = text.parse().ok().map(Duration::try_from_secs_f64);
    let time = match plain {
        Some(Ok(time)) => time,
        Some(Err(error)) => return Err(error.to_string()),
        None => humantime::parse_duration(text)
            .map_err(|_| format!("expected a time such as 250ms, 5s or 1m, {words} at most"))?,
    };
    if time > most {
        return Err(format!("expected {words} at most"));
    }
    Ok(time)
}

/// The HTTP/3 client has the same limit for handshakes.
const TIME_MAX: Duration = Duration::from_hours(24);
/// QUIC expresses idle timeouts in milliseconds (RFC 9000 §18.2).
const TIME_LIMIT_MIN: Duration = Duration::from_millis(1);
/// The operating system waits at most 25 days at once.
const LONG_TIME_MAX: Duration = Duration::from_hours(7 * 24);
const VALIDITY_MAX: Duration = Duration::from_hours(100 * 365 * 24);

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use weir_http3::client::limits::HANDSHAKE_TIMEOUT_MAX;

    use super::*;
    use crate::cmd::Arguments;

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
        assert_eq!(TIME_MAX, HANDSHAKE_TIMEOUT_MAX);
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
        assert_eq!(long_time("7days"), Ok(LONG_TIME_MAX));
        let error = Err("expected a week at most".to_owned());
        assert_eq!(long_time("7days 1ns"), error);
        assert_eq!(validity("36500days"), Ok(VALIDITY_MAX));
        assert!(validity("36500days 1ns").is_err());
    }

    #[test]
    fn no_flag_takes_a_time_that_no_clock_can_add() {
        let play = "live play moqt://127.0.0.1:4443";
        let sign = "token sign --key key.pem --put live";
        for (command, flag, good) in [
            (play, "--patience", "1h"),
            (play, "--patience-again", "1day"),
            (play, "--time", "7days"),
            ("live lab", "--trace-time", "2m"),
            (sign, "--lasts", "10years"),
        ] {
            let words = |time| {
                ["weir"]
                    .into_iter()
                    .chain(command.split(' '))
                    .chain([flag, time])
            };
            let parsed = Arguments::try_parse_from(words(good));
            assert!(parsed.is_ok(), "{flag} {good}: {parsed:?}");
            for long in ["584000000000y", "300000000000y", "101years"] {
                let error = Arguments::try_parse_from(words(long)).expect_err(long);
                let error = error.to_string();
                let is_named = error.contains(flag) && error.contains("at most");
                assert!(is_named, "{error}");
            }
        }
    }
}
