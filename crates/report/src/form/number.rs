//! Numbers as text, independent of locale and time zone.

use crate::statistics::ratio;

/// The text of a missing value.
pub(crate) const NONE: &str = "–";

/// Formats a value, or returns [`NONE`].
pub(crate) fn or_none<T>(value: Option<T>, form: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), form)
}

/// Formats a count with separators: `300,000`.
pub(crate) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// Formats a quantity, rounded to a count: `1,235`.
pub(crate) fn count_of(value: f64) -> String {
    fixed(value, 0)
}

/// Formats a count with its noun: `1 subscriber`, `200 subscribers`.
pub(crate) fn counted(value: u64, noun: &str) -> String {
    format!(
        "{} {noun}{}",
        count(value),
        if value == 1 { "" } else { "s" }
    )
}

/// Formats a quantity with at least three digits, for columns: `1,234`, `12.3`, `1.23`, `0.123`.
pub(crate) fn decimal(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    fixed(value, digits)
}

/// Formats a quantity with at least two digits, for sentences: `1,234`, `12`, `1.2`, `0.12`.
pub(crate) fn brief(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 9.95 || size == 0.0 => 0,
        size if size >= 0.995 => 1,
        size if size >= 0.0995 => 2,
        _ => 3,
    };
    fixed(value, digits)
}

/// Formats a quantity as [`decimal`], or as a whole number, with its unit: `1.23 ms`.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    if unit.is_empty() {
        whole_or_decimal(value)
    } else {
        format!("{} {unit}", whole_or_decimal(value))
    }
}

/// Formats a tick of an axis: `0.2`, `5`, `2,000`, `150k`, `2M`.
pub(crate) fn tick(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", plain(value / 1e6)),
        size if size >= 1e4 => format!("{}k", plain(value / 1e3)),
        _ => plain(value),
    }
}

/// Formats a quantity with up to six decimals: `0.2`, `33.33`, `30,000`.
pub(crate) fn plain(value: f64) -> String {
    let text = fixed(value, 6);
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}

/// Formats a time in milliseconds.
pub(crate) fn milliseconds(value: f64) -> String {
    format!("{} ms", decimal(value))
}

/// Formats a bit rate in decimal units.
pub(crate) fn bits_per_second(value: f64) -> String {
    scaled(
        value,
        1000.0,
        &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
    )
}

/// Formats an amount of memory in binary units.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Formats lost objects with their share, which never rounds to 0: `0 lost`, `7 lost (0.002 %)`.
pub(crate) fn loss(lost: u64, of: u64) -> String {
    if lost == 0 {
        "0 lost".to_owned()
    } else {
        format!("{} lost ({})", count(lost), share(lost, of))
    }
}

/// Formats `part` of `whole` in per cent. A share between 0 and 100 % never rounds to either.
pub(crate) fn share(part: u64, whole: u64) -> String {
    match ratio(part, whole) {
        None => NONE.to_owned(),
        Some(_) if part == 0 => "0 %".to_owned(),
        Some(_) if part == whole => "100 %".to_owned(),
        Some(share) if share < 0.000_01 => "<0.001 %".to_owned(),
        Some(share) if share > 0.999_99 => ">99.999 %".to_owned(),
        Some(share) if share > 0.99 => format!("{} %", fixed((share * 1e5).floor() / 1e3, 3)),
        Some(share) => format!("{} %", decimal(share * 100.0)),
    }
}

/// Formats CPU cores as a list: `0, 1`; `any` for an empty one.
pub(crate) fn cores(cores: &[u32]) -> String {
    if cores.is_empty() {
        return "any".to_owned();
    }
    cores
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns `text` with control characters replaced.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if is_control(letter) {
                char::REPLACEMENT_CHARACTER
            } else {
                letter
            }
        })
        .collect()
}

/// Returns true for control characters, except line feed and tab, and for marks that change the direction of text.
pub(crate) fn is_control(letter: char) -> bool {
    (letter.is_control() && letter != '\n' && letter != '\t')
        || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn whole_or_decimal(value: f64) -> String {
    if value.fract() == 0.0 {
        fixed(value, 0)
    } else {
        decimal(value)
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let text = if unit == 0 {
        fixed(value, 0)
    } else {
        decimal(value)
    };
    format!("{text} {}", units[unit])
}

fn fixed(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let text = format!("{value:.digits$}");
    let negative = text.starts_with('-') && text.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    let text = text.trim_start_matches('-');
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let sign = if negative { "−" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", grouped(whole))
}

fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_and_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "subscriber"), "1 subscriber");
        let values = [
            0.0, 0.123_4, 0.999_6, 1.234, 9.996, 99.96, 1_234.5, -0.000_1, -2.5,
        ];
        let texts = [
            "0", "0.123", "1.00", "1.23", "10.0", "100", "1,234", "0.000", "−2.50",
        ];
        assert_eq!(values.map(decimal), texts);
        assert_eq!(
            [2.13, 18.3, 0.204, 0.0].map(brief),
            ["2.1", "18", "0.20", "0"]
        );
        assert_eq!(
            [0.5, 5_000.0, 150_000.0, 2.5e6].map(tick),
            ["0.5", "5,000", "150k", "2.5M"]
        );
        assert_eq!(plain(33.33), "33.33");
        assert_eq!([f64::NAN, f64::INFINITY].map(decimal), [NONE, NONE]);
    }

    #[test]
    fn units_fit_the_value() {
        assert_eq!(
            [0.0, 999.0, 48_000.0, 9.6e6].map(bits_per_second),
            ["0 bit/s", "999 bit/s", "48.0 kbit/s", "9.60 Mbit/s"]
        );
        assert_eq!(
            [61_440.0, 20.7 * 1024.0 * 1024.0].map(bytes),
            ["60.0 KiB", "20.7 MiB"]
        );
        assert_eq!(quantity(100.0, "ms"), "100 ms");
        assert_eq!(quantity(0.0, ""), "0");
    }

    #[test]
    fn a_share_never_rounds_to_0_or_100() {
        assert_eq!(loss(0, 300_000), "0 lost");
        assert_eq!(loss(7, 300_000), "7 lost (0.002 %)");
        assert_eq!(share(1, 1_000_000_000), "<0.001 %");
        assert_eq!(share(999_999_999, 1_000_000_000), ">99.999 %");
        assert_eq!(share(99_995, 100_000), "99.995 %");
        assert_eq!(share(3, 3), "100 %");
        assert_eq!(share(0, 0), NONE);
    }
}
