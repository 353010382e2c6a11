//! Parsers of numbers and addresses in flags. Their errors name what is expected.

use std::{fmt::Display, net::SocketAddr, ops::RangeInclusive};

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
}
