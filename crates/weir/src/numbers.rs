//! Parsers of numbers and addresses in flags. Their errors name what is expected.

use std::{fmt::Display, net::SocketAddr, ops::RangeInclusive};

use weir_link::Bitrate;

/// Returns a parser of whole numbers in `range`.
pub(crate) fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64> + Display + PartialOrd + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse::<u64>().ok();
        let number = number.and_then(|number| T::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("expected a whole number from {least} to {most}")
        })
    }
}

/// Parses a number of a core: 0 is the first.
pub(crate) fn core(text: &str) -> Result<usize, String> {
    let core = text.parse().ok();
    core.ok_or_else(|| "expected the number of a core, such as 0".to_owned())
}

/// Parses the address of a socket: an IP address, not a name, and a port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().ok();
    address.ok_or_else(|| {
        "expected an IP address and a port, such as 127.0.0.1:4443 or [::1]:4443".to_owned()
    })
}

/// Parses numbers above 0, such as `0.5` or `2000`.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0, such as 0.5 or 2000".to_owned())
}

/// Parses bits per second, such as `500k`, `5M` or `1200`.
pub(crate) fn rate(text: &str) -> Result<Bitrate, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) => (digits, &text[digits.len()..]),
        None => (text, ""),
    };
    let factor = match unit {
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => 1,
    };
    let bits = digits.parse::<u64>().ok();
    let bits = bits.and_then(|number| number.checked_mul(factor));
    let bits = bits.filter(|bits| *bits > 0);
    bits.map(Bitrate::from_bits_per_second)
        .ok_or_else(|| "expected bits per second above 0, such as 500k or 5M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_their_limits_and_past_them() {
        let parse = whole(1..=65_535_u16);
        assert_eq!((parse("1"), parse("65535")), (Ok(1), Ok(65_535)));
        let error = "expected a whole number from 1 to 65535";
        for wrong in ["0", "65536", "-1", "1.5", "1k", "", "99999999999999999999"] {
            assert_eq!(parse(wrong), Err(error.to_owned()), "{wrong}");
        }
        assert_eq!(core("0"), Ok(0));
        assert!(core("first").is_err());
        assert_eq!(address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        for wrong in ["localhost:4443", "4443", ":4443", "127.0.0.1"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        assert_eq!(positive("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "nan", "inf", "fast"] {
            assert!(positive(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_have_units() {
        let bits = |text: &str| rate(text).map(Bitrate::bits_per_second);
        assert_eq!(bits("500k"), Ok(500_000));
        assert_eq!(bits("5M"), Ok(5_000_000));
        assert_eq!(bits("1G"), Ok(1_000_000_000));
        assert_eq!(bits("1200"), Ok(1200));
        for bad in [
            "",
            "k",
            "0",
            "0k",
            "1.5M",
            "-1",
            "5m",
            "99999999999999999999",
            "99999999999999999G",
        ] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
