//! Settings in layers: flags over environment over file over default. Each problem is reported with its place.
//!
//! This module knows how values are written and where they come from. What they mean is in the table of `config.rs`.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf, time::Duration};

use toml::de::{DeTable, DeValue};
use weir_moqt::draft::Draft;
use weir_quic::Congestion;

use crate::urls::Redacted;

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// The text of a flag or variable. Its type depends on the setting.
    Text(String),
    /// A string in a file.
    String(String),
    /// An integer in a file.
    Integer(i64),
    /// A boolean in a file.
    Boolean(bool),
    /// An array in a file.
    List(Vec<Self>),
    /// A kind of value that no setting has, in words.
    Other(&'static str),
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A line of a file.
    File {
        /// The file's name, as in `--config`.
        name: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag, with its dashes.
    Flag(String),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line } => write!(formatter, "{name}:{line}"),
            Self::Environment(name) | Self::Flag(name) => formatter.write_str(name),
        }
    }
}

impl Place {
    /// Returns the place and the key, as the beginning of an error text. A flag with the name of its key says it once.
    pub(crate) fn with(&self, key: &str) -> String {
        match self {
            Self::Flag(flag) if flag.trim_start_matches('-') == key => flag.clone(),
            Self::File { .. } | Self::Environment(_) | Self::Flag(_) => format!("{self}: {key}"),
        }
    }
}

/// The range of a number or duration, and how it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Whether the number counts bytes, which may have a unit: `4MiB`.
    pub(crate) is_bytes: bool,
    /// Smallest value; for durations in microseconds.
    pub(crate) minimum: u64,
    /// Largest value; for durations in microseconds. `u64::MAX` stands for no limit.
    pub(crate) maximum: u64,
}

/// One setting of a configuration `C`.
pub(crate) struct Setting<C> {
    /// The key with its sections: `drain.time`.
    pub(crate) key: &'static str,
    /// The description in `--print-config` and `docs/relay-settings.md`.
    pub(crate) about: &'static str,
    pub(crate) shape: Shape,
    /// Sets the value in a configuration. The error says what was expected and found.
    pub(crate) read: fn(&mut C, &Raw, Shape) -> Result<(), String>,
    /// Returns the value as TOML; `None` if it is not set.
    pub(crate) show: fn(&C, Shape) -> Option<toml::Value>,
}

/// Makes a [`Setting`] whose key is the path of its field.
macro_rules! setting {
    ([$($section:ident)+] $field:ident $(in $range:expr)?, $about:literal) => {
        setting!($($section .)+ $field $(in $range)?, $about)
    };
    ($first:ident $(. $rest:ident)*, $about:literal) => {
        setting!($first $(. $rest)* in 0..=u64::MAX, $about)
    };
    ($first:ident $(. $rest:ident)* in $range:expr, $about:literal) => {{
        let key = concat!(stringify!($first) $(, ".", stringify!($rest))*);
        $crate::relay::settings::Setting {
            key,
            about: $about,
            shape: $crate::relay::settings::Shape {
                is_bytes: key.contains("_bytes"),
                minimum: *$range.start(),
                maximum: *$range.end(),
            },
            read: |config, raw, shape| {
                config.$first $(. $rest)* = $crate::relay::settings::Form::read(raw, shape)?;
                Ok(())
            },
            show: |config, shape| {
                $crate::relay::settings::Form::show(&config.$first $(. $rest)*, shape)
            },
        }
    }};
}
pub(crate) use setting;

/// The places of all values that are not defaults, by key.
pub(crate) type Places = BTreeMap<&'static str, Place>;

/// A problem with its place, as one line of text.
pub(crate) type Problem = String;

/// Returns the environment variable of `key`.
pub(crate) fn variable(prefix: &str, key: &str) -> String {
    format!("{prefix}{}", key.replace('.', "_").to_uppercase())
}

/// Applies one layer to `config`; later layers win.
pub(crate) fn apply<C>(
    table: &[Setting<C>],
    config: &mut C,
    places: &mut Places,
    layer: Vec<(String, Raw, Place)>,
    problems: &mut Vec<Problem>,
) {
    for (key, raw, place) in layer {
        let Some(setting) = table.iter().find(|setting| setting.key == key) else {
            problems.push(format!("{place}: {}", unknown(table, &key)));
            continue;
        };
        match (setting.read)(config, &raw, setting.shape) {
            Ok(()) => drop(places.insert(setting.key, place)),
            Err(problem) => problems.push(format!("{}: {problem}", place.with(&key))),
        }
    }
}

/// Returns the values of a TOML file with their lines, in the order of the file.
pub(crate) fn parse_file(name: &str, text: &str) -> Result<Vec<(String, Raw, Place)>, Problem> {
    let parsed = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        format!("{name}:{line}: {}", error.message().replace('\n', ", "))
    })?;
    let mut values = Vec::new();
    flatten(name, text, "", parsed.get_ref(), &mut values);
    Ok(values)
}

/// Returns all settings with their values in `config`, as a TOML file. A setting without a value becomes a comment.
pub(crate) fn print<C>(table: &[Setting<C>], config: &C) -> String {
    let mut text = String::new();
    let mut section = "";
    for setting in table {
        let (of, name) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
        if of != section {
            text.extend(["\n[", of, "]\n"]);
            section = of;
        }
        let line = match (setting.show)(config, setting.shape) {
            Some(value) => format!("{name} = {value}\n"),
            None => format!("# {name} is not set\n"),
        };
        text.extend(["# ", setting.about, "\n", &line]);
    }
    text
}

fn unknown<C>(table: &[Setting<C>], key: &str) -> String {
    let section = key.rsplit_once('.').map_or("", |(section, _)| section);
    let of = |key: &'static str| key.rsplit_once('.').unwrap_or(("", key));
    let siblings: Vec<&str> = table
        .iter()
        .map(|setting| of(setting.key))
        .filter(|(of, _)| *of == section)
        .map(|(_, name)| name)
        .collect();
    if siblings.is_empty() {
        return format!("unknown section of `{key}`; see `weir relay --print-config`");
    }
    let (prefix, name) = key
        .rfind('.')
        .map_or(("", key), |dot| key.split_at(dot + 1));
    let likeness = |sibling: &&&str| strsim::normalized_levenshtein(sibling, name);
    let near = siblings.iter().filter(|one| likeness(one) >= LIKENESS_MIN);
    let nearest = near.max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    match nearest {
        Some(nearest) => format!("unknown key `{key}`; did you mean `{prefix}{nearest}`?"),
        None => format!(
            "unknown key `{key}`; expected one of: {}",
            siblings.join(", ")
        ),
    }
}

/// Least share of letters in common at which a key is taken for a misspelt one.
const LIKENESS_MIN: f64 = 0.6;

fn flatten(
    name: &str,
    text: &str,
    prefix: &str,
    table: &DeTable<'_>,
    out: &mut Vec<(String, Raw, Place)>,
) {
    let before = out.len();
    for (key, value) in table {
        let full = format!("{prefix}{}", key.get_ref());
        if let DeValue::Table(inner) = value.get_ref() {
            flatten(name, text, &format!("{full}."), inner, out);
        } else {
            let line = line_at(text, key.span().start);
            let name = name.to_owned();
            out.push((full, raw(value.get_ref()), Place::File { name, line }));
        }
    }
    // Problems are reported in the order of the file.
    out[before..].sort_by_key(|(_, _, place)| match place {
        Place::File { line, .. } => *line,
        Place::Environment(_) | Place::Flag(_) => 0,
    });
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::String(text.to_string()),
        DeValue::Boolean(value) => Raw::Boolean(*value),
        DeValue::Integer(value) => {
            let digits = value.as_str().replace('_', "");
            i64::from_str_radix(&digits, value.radix()).map_or(
                Raw::Other("a number above 9223372036854775807"),
                Raw::Integer,
            )
        }
        DeValue::Array(items) => Raw::List(items.iter().map(|item| raw(item.get_ref())).collect()),
        DeValue::Float(_) => Raw::Other("a decimal number"),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Table(_) => Raw::Other("a table"),
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

impl fmt::Display for Raw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::String(text) => write!(formatter, "`{}`", text.escape_debug()),
            Self::Integer(number) => write!(formatter, "{number}"),
            Self::Boolean(value) => write!(formatter, "{value}"),
            Self::List(_) => formatter.write_str("a list"),
            Self::Other(what) => formatter.write_str(what),
        }
    }
}

impl Raw {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::String(text) => Some(text),
            Self::Integer(_) | Self::Boolean(_) | Self::List(_) | Self::Other(_) => None,
        }
    }

    fn expected(&self, what: &str) -> String {
        format!("expected {what}, not {self}")
    }
}

/// A type that a setting's value can have.
pub(crate) trait Form: Sized {
    /// Reads a written value. The error says what was expected and found.
    fn read(raw: &Raw, shape: Shape) -> Result<Self, String>;

    /// Returns the value as TOML; `None` if it is not set.
    fn show(&self, shape: Shape) -> Option<toml::Value>;
}

fn read_number(raw: &Raw, shape: Shape) -> Result<u64, String> {
    let number = match raw {
        Raw::Integer(number) => u64::try_from(*number).ok(),
        Raw::Text(text) | Raw::String(text) if shape.is_bytes => bytes_of(text),
        Raw::Text(text) => text.trim().parse().ok(),
        Raw::String(_) | Raw::Boolean(_) | Raw::List(_) | Raw::Other(_) => None,
    };
    let is_in_range = |number: &u64| (shape.minimum..=shape.maximum).contains(number);
    number.filter(is_in_range).ok_or_else(|| {
        let what = if shape.is_bytes {
            "a number of bytes such as \"4MiB\","
        } else {
            "a whole number"
        };
        let show = |number| {
            show_number(number, shape)
                .as_ref()
                .map_or_else(String::new, plain)
        };
        let range = range(shape, show);
        raw.expected(&format!("{what} {range}"))
    })
}

/// Returns the range of a setting, in words.
fn range(shape: Shape, show: impl Fn(u64) -> String) -> String {
    let from = show(shape.minimum);
    if shape.maximum == u64::MAX {
        return format!("of {from} or more");
    }
    format!("from {from} to {}", show(shape.maximum))
}

/// Returns a value without quotes.
fn plain(value: &toml::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a number of bytes such as `4MiB`, `64 KiB` or `1500`.
fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim();
    for (unit, factor) in UNITS {
        if let Some(number) = text.strip_suffix(unit) {
            return number.trim().parse::<u64>().ok()?.checked_mul(factor);
        }
    }
    text.parse().ok()
}

fn show_number(number: u64, shape: Shape) -> Option<toml::Value> {
    if shape.is_bytes && number > 0 {
        for (unit, factor) in UNITS {
            if number.is_multiple_of(factor) {
                return Some(format!("{}{unit}", number / factor).into());
            }
        }
    }
    i64::try_from(number).ok().map(Into::into)
}

const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Form for $number {
            fn read(raw: &Raw, shape: Shape) -> Result<Self, String> {
                let largest = u64::try_from(Self::MAX).unwrap_or(u64::MAX);
                let shape = Shape { maximum: shape.maximum.min(largest), ..shape };
                let number = read_number(raw, shape)?;
                Self::try_from(number).map_err(|_| raw.expected("a smaller number"))
            }

            fn show(&self, shape: Shape) -> Option<toml::Value> {
                show_number(u64::try_from(*self).unwrap_or(u64::MAX), shape)
            }
        }
    )+};
}

numbers!(u16, u32, u64, usize);

impl Form for bool {
    fn read(raw: &Raw, _: Shape) -> Result<Self, String> {
        match raw {
            Raw::Boolean(value) => Ok(*value),
            Raw::Text(text) if text == "true" => Ok(true),
            Raw::Text(text) if text == "false" => Ok(false),
            Raw::Text(_) | Raw::String(_) | Raw::Integer(_) | Raw::List(_) | Raw::Other(_) => {
                Err(raw.expected("true or false"))
            }
        }
    }

    fn show(&self, _: Shape) -> Option<toml::Value> {
        Some((*self).into())
    }
}

impl Form for Duration {
    fn read(raw: &Raw, shape: Shape) -> Result<Self, String> {
        let duration = raw.text().and_then(|text| match text.trim() {
            "0" => Some(Self::ZERO),
            text => humantime::parse_duration(text).ok(),
        });
        let micros = |duration: &Self| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let is_in_range =
            |duration: &Self| (shape.minimum..=shape.maximum).contains(&micros(duration));
        duration.filter(is_in_range).ok_or_else(|| {
            let show = |micros| humantime::format_duration(Self::from_micros(micros)).to_string();
            let range = range(shape, show);
            raw.expected(&format!("a time such as \"30s\" or \"250ms\", {range}"))
        })
    }

    fn show(&self, _: Shape) -> Option<toml::Value> {
        Some(humantime::format_duration(*self).to_string().into())
    }
}

impl Form for SocketAddr {
    fn read(raw: &Raw, _: Shape) -> Result<Self, String> {
        let address = raw.text().and_then(|text| text.trim().parse().ok());
        address.ok_or_else(|| raw.expected("an IP address and port such as \"127.0.0.1:4443\""))
    }

    fn show(&self, _: Shape) -> Option<toml::Value> {
        Some(self.to_string().into())
    }
}

impl Form for String {
    fn read(raw: &Raw, _: Shape) -> Result<Self, String> {
        let text = raw.text().ok_or_else(|| raw.expected("a string"))?;
        Ok(text.to_owned())
    }

    fn show(&self, _: Shape) -> Option<toml::Value> {
        Some(self.clone().into())
    }
}

impl Form for Congestion {
    fn read(raw: &Raw, _: Shape) -> Result<Self, String> {
        let words: Vec<&str> = raw.text().unwrap_or_default().split_whitespace().collect();
        let read = match words[..] {
            ["cubic"] => Some(Self::Cubic),
            ["delay"] => Some(Self::LOW_LATENCY),
            ["delay", target] => {
                let target = humantime::parse_duration(target).ok();
                let target = target.filter(|one| !one.is_zero() && *one <= QUEUE_TARGET_MAX);
                target.map(|queue_target| Self::Delay { queue_target })
            }
            _ => None,
        };
        read.ok_or_else(|| raw.expected("\"cubic\", \"delay\" or \"delay 25ms\" (at most 10s)"))
    }

    fn show(&self, _: Shape) -> Option<toml::Value> {
        let text = match self {
            Self::Cubic => "cubic".to_owned(),
            Self::Delay { queue_target } => {
                format!("delay {}", humantime::format_duration(*queue_target)).replace("s ", "s")
            }
        };
        Some(text.into())
    }
}

impl Form for Draft {
    /// Reads the name of a draft, or its number.
    fn read(raw: &Raw, _: Shape) -> Result<Self, String> {
        let draft = match raw {
            Raw::Integer(number) => Self::by_name(&number.to_string()),
            Raw::Text(name) | Raw::String(name) => Self::by_name(name.trim()),
            Raw::Boolean(_) | Raw::List(_) | Raw::Other(_) => None,
        };
        draft.ok_or_else(|| format!("{}, not {raw}", Self::expected()))
    }

    fn show(&self, _: Shape) -> Option<toml::Value> {
        Some(self.alpn().into())
    }
}

/// A URL that may hold a password or a token. Its text leaves them out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SecretUrl(pub(crate) String);

impl Form for SecretUrl {
    fn read(raw: &Raw, shape: Shape) -> Result<Self, String> {
        String::read(raw, shape).map(Self)
    }

    fn show(&self, _: Shape) -> Option<toml::Value> {
        Some(self.to_string().into())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Redacted(&self.0).fmt(formatter)
    }
}

impl Form for PathBuf {
    fn read(raw: &Raw, _: Shape) -> Result<Self, String> {
        let text = raw.text().filter(|text| !text.is_empty());
        text.map(Self::from).ok_or_else(|| raw.expected("a path"))
    }

    fn show(&self, _: Shape) -> Option<toml::Value> {
        Some(self.display().to_string().into())
    }
}

impl<T: Form> Form for Vec<T> {
    /// Reads a list. In flags and variables, commas separate its items.
    fn read(raw: &Raw, shape: Shape) -> Result<Self, String> {
        match raw {
            Raw::List(items) => items.iter().map(|item| T::read(item, shape)).collect(),
            // The form of a file would be read as one strange item.
            Raw::Text(text) if text.starts_with('[') => {
                Err(raw.expected("items with commas between, without brackets and quotes"))
            }
            Raw::Text(text) => {
                let words = text.split(',').map(str::trim);
                let words = words.filter(|word| !word.is_empty());
                words
                    .map(|word| T::read(&Raw::Text(word.to_owned()), shape))
                    .collect()
            }
            Raw::String(_) | Raw::Integer(_) | Raw::Boolean(_) | Raw::Other(_) => {
                Err(raw.expected("a list such as [\"a\", \"b\"]"))
            }
        }
    }

    fn show(&self, shape: Shape) -> Option<toml::Value> {
        let items = self.iter().filter_map(|item| item.show(shape));
        Some(items.collect::<Vec<_>>().into())
    }
}

/// A setting that may be left out.
impl<T: Form> Form for Option<T> {
    fn read(raw: &Raw, shape: Shape) -> Result<Self, String> {
        T::read(raw, shape).map(Some)
    }

    fn show(&self, shape: Shape) -> Option<toml::Value> {
        self.as_ref()?.show(shape)
    }
}

/// Largest target of the congestion controller `delay`.
const QUEUE_TARGET_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
