//! Parses a profile: lines, sections, tracks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::{Problem, ProfileError};
use super::key::Key;
use super::value::{PatternName, Value, print_milliseconds};
use super::{Audience, ExtensionHeaders, Pattern, Profile, StreamMapping, TrackMode, TrackProfile};
use crate::interpolate::TrackTemplate;
use crate::limits::{LINE_BYTES_MAX, PROFILE_BYTES_MAX, SECTION_NAME_BYTES_MAX, TRACKS_MAX};

/// Reads a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<Profile, ProfileError> {
    if bytes.len() > PROFILE_BYTES_MAX {
        return Err(ProfileError::of_file(Problem::FileTooLarge));
    }
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut sections: Vec<Section<'_>> = Vec::new();
    for (line, bytes) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        match parse_line(line, bytes)? {
            Line::Empty => {}
            Line::Section(name) => open_section(&mut sections, line, name)?,
            Line::Pair(value) => {
                let outside = || ProfileError::of_key(line, value.name, Problem::OutsideSection);
                sections.last_mut().ok_or_else(outside)?.insert(value)?;
            }
        }
    }
    let (audiences, sections): (Vec<_>, Vec<_>) =
        sections.into_iter().partition(Section::is_of_audience);
    if sections.is_empty() {
        return Err(ProfileError::of_file(Problem::NoTrack));
    }
    let mut audience = Audience::default();
    for section in &audiences {
        audience = section.audience()?;
    }
    let tracks = sections
        .iter()
        .map(Section::track)
        .collect::<Result<_, _>>()?;
    Ok(Profile { tracks, audience })
}

enum Line<'a> {
    Empty,
    Section(&'a str),
    Pair(Value<'a>),
}

fn parse_line(line: usize, bytes: &[u8]) -> Result<Line<'_>, ProfileError> {
    if bytes.len() > LINE_BYTES_MAX {
        return Err(ProfileError::at(line, Problem::LineTooLong));
    }
    let text = str::from_utf8(bytes).map_err(|_| ProfileError::at(line, Problem::NotText))?;
    let text = without_comment(text).trim();
    if text.is_empty() {
        return Ok(Line::Empty);
    }
    if let Some(name) = text.strip_prefix('[') {
        let name = name.strip_suffix(']').map(str::trim).unwrap_or_default();
        if name.is_empty() || name.len() > SECTION_NAME_BYTES_MAX {
            return Err(ProfileError::at(line, Problem::SectionName));
        }
        return Ok(Line::Section(name));
    }
    match text.split_once('=') {
        Some((name, text)) if !name.trim().is_empty() => Ok(Line::Pair(Value {
            line,
            name: name.trim(),
            text: text.trim(),
        })),
        Some(_) | None => Err(ProfileError::at(line, Problem::NotALine(text.to_owned()))),
    }
}

/// Returns what stands before a comment. A `;` begins one anywhere; a `#` at the beginning of a line and behind a blank.
fn without_comment(text: &str) -> &str {
    let text = text.split(';').next().unwrap_or_default();
    let begins = |(place, _): &(usize, &str)| {
        let before = &text[..*place];
        before.is_empty() || before.ends_with([' ', '\t'])
    };
    let comment = text.match_indices('#').find(begins);
    comment.map_or(text, |(place, _)| &text[..place])
}

fn open_section<'a>(
    sections: &mut Vec<Section<'a>>,
    line: usize,
    name: &'a str,
) -> Result<(), ProfileError> {
    if let Some(first) = sections.iter().find(|section| section.name == name) {
        let (section, first_line) = (name.to_owned(), first.line);
        return Err(ProfileError::at(
            line,
            Problem::DuplicateSection {
                section,
                first_line,
            },
        ));
    }
    let tracks = sections.iter().filter(|section| !section.is_of_audience());
    if name != AUDIENCE && tracks.count() == TRACKS_MAX {
        return Err(ProfileError::at(line, Problem::TooManyTracks));
    }
    sections.push(Section {
        name,
        line,
        values: BTreeMap::new(),
    });
    Ok(())
}

/// The values of one section, not yet parsed.
struct Section<'a> {
    name: &'a str,
    line: usize,
    values: BTreeMap<Key, Value<'a>>,
}

impl<'a> Section<'a> {
    fn insert(&mut self, value: Value<'a>) -> Result<(), ProfileError> {
        let of_audience = self.is_of_audience();
        let key = Key::find(value.name).filter(|key| key.is_of_audience() == of_audience);
        let key = key.ok_or_else(|| value.fault(Problem::UnknownKey { of_audience }))?;
        if let Some(first) = self.values.get(&key) {
            let (first_line, first_name) = (first.line, first.name.to_owned());
            return Err(value.fault(Problem::DuplicateKey {
                first_line,
                first_name,
            }));
        }
        self.values.insert(key, value);
        Ok(())
    }

    fn is_of_audience(&self) -> bool {
        self.name == AUDIENCE
    }

    fn audience(&self) -> Result<Audience, ProfileError> {
        let joins_per_second = self.optional(Key::JoinsPerSecond).map(Value::per_second);
        let share = |key| self.optional(key).map_or(Ok(0), Value::share);
        let pause = self.optional(Key::SlowReadPause).map(Value::pause);
        let churn_per_second = self.optional(Key::ChurnPerSecond).map(Value::per_second);
        let audience = Audience {
            joins_per_second: joins_per_second.transpose()?,
            slow_subscribers: share(Key::SlowSubscribers)?,
            slow_read_pause: pause.transpose()?.unwrap_or_default(),
            churning_subscribers: share(Key::ChurningSubscribers)?,
            churn_per_second: churn_per_second.transpose()?.unwrap_or_default(),
        };
        if audience.slow_subscribers > 0 {
            self.required(Key::SlowReadPause)?;
        }
        if audience.churning_subscribers > 0 {
            self.required(Key::ChurnPerSecond)?;
        }
        Ok(audience)
    }

    fn track(&self) -> Result<TrackProfile, ProfileError> {
        Ok(TrackProfile {
            section: self.name.to_owned(),
            template: self.template()?,
            mode: self.optional(Key::Mode).map(Value::mode).transpose()?,
            track_mode: self.track_mode()?,
            priority: self.required(Key::Priority)?.priority()?,
            ttl: self.required(Key::Ttl)?.ttl()?,
            interval: self.required(Key::TimeInterval)?.interval()?,
            objects_per_group: self.required(Key::ObjectsPerGroup)?.objects_per_group()?,
            first_object_size: self.required(Key::FirstObjectSize)?.object_size()?,
            object_size: self.required(Key::ObjectSize)?.object_size()?,
            start_delay: self.required(Key::StartDelay)?.start_delay()?,
            duration: self.duration()?,
            late_join: self.flag(Key::LateJoin)?,
            stream_mapping: self.stream_mapping()?,
            extension_headers: self.extension_headers()?,
            pattern: self.pattern()?,
        })
    }

    fn template(&self) -> Result<TrackTemplate, ProfileError> {
        let namespace = self.required(Key::Namespace)?;
        let name = self.required(Key::Name)?.template()?;
        TrackTemplate::new(namespace.template()?, self.flag(Key::NamespaceRaw)?, name)
            .map_err(|error| namespace.template_fault(error))
    }

    /// Returns `track_mode`, or `reliable`, or both if they agree (decision 2).
    fn track_mode(&self) -> Result<TrackMode, ProfileError> {
        let Some(reliable) = self.optional(Key::Reliable) else {
            return self.required(Key::TrackMode)?.track_mode();
        };
        let mode = if reliable.boolean()? {
            TrackMode::Stream
        } else {
            TrackMode::Datagram
        };
        if let Some(named) = self.optional(Key::TrackMode)
            && named.track_mode()? != mode
        {
            let reason = "reliable = true means stream, reliable = false means datagram";
            let (first, second) = in_order(reliable, named);
            return Err(second.conflict(first, reason.to_owned()));
        }
        Ok(mode)
    }

    /// Returns how objects map to streams. Datagram tracks must not set it.
    fn stream_mapping(&self) -> Result<StreamMapping, ProfileError> {
        let Some(value) = self.optional(Key::StreamMapping) else {
            return Ok(StreamMapping::default());
        };
        let mapping = value.stream_mapping()?;
        if self.track_mode()? == TrackMode::Datagram {
            let reason = "a datagram track has no streams";
            return Err(self.contradiction(value, &[Key::TrackMode, Key::Reliable], reason));
        }
        Ok(mapping)
    }

    fn extension_headers(&self) -> Result<ExtensionHeaders, ProfileError> {
        let mut headers = ExtensionHeaders::NONE;
        if let Some(count) = self.optional(Key::ExtensionHeaders) {
            headers.count = count.extension_headers()?;
        }
        if let Some(size) = self.optional(Key::ExtensionHeaderSize) {
            headers.size = size.extension_header_size()?;
        }
        Ok(headers)
    }

    fn pattern(&self) -> Result<Pattern, ProfileError> {
        let name = self.optional(Key::Pattern);
        let objects = self.optional(Key::BurstObjects);
        let pattern = match name.map(Value::pattern).transpose()? {
            None | Some(PatternName::Interval) => Pattern::Interval,
            Some(PatternName::Random) => Pattern::Random,
            Some(PatternName::Fetch) => Pattern::Fetch,
            Some(PatternName::Bursts) => {
                let objects = self.required(Key::BurstObjects)?.burst_objects()?;
                return Ok(Pattern::Bursts { objects });
            }
        };
        if let Some(objects) = objects {
            objects.burst_objects()?;
            let reason = "it needs pattern = bursts";
            return Err(match name {
                Some(name) => {
                    let (first, second) = in_order(name, objects);
                    second.conflict(first, reason.to_owned())
                }
                None => self.missing(Key::Pattern),
            });
        }
        if let (Pattern::Fetch, Some(name)) = (pattern, name)
            && self.track_mode()? == TrackMode::Datagram
        {
            let reason = "FETCH needs track_mode = stream";
            return Err(self.contradiction(name, &[Key::TrackMode, Key::Reliable], reason));
        }
        Ok(pattern)
    }

    /// Returns an error: `value` contradicts the first of `others` that is present.
    fn contradiction(&self, value: &Value<'a>, others: &[Key], reason: &str) -> ProfileError {
        let other = others.iter().find_map(|key| self.optional(*key));
        let (first, second) = in_order(value, other.unwrap_or(value));
        second.conflict(first, reason.to_owned())
    }

    /// Returns the data phase: `duration`, or `total_transmit_time` minus the start delay, or both if they agree
    /// (decision 7).
    fn duration(&self) -> Result<Duration, ProfileError> {
        let duration = self.optional(Key::Duration);
        let Some(total) = self.optional(Key::TotalTransmitTime) else {
            return match duration {
                Some(duration) => duration.data_phase(),
                None => Err(self.missing(Key::TotalTransmitTime)),
            };
        };
        let start_delay = self.required(Key::StartDelay)?;
        let data_phase = total
            .total_transmit_time()?
            .checked_sub(start_delay.start_delay()?);
        let Some(data_phase) = data_phase.filter(|left| !left.is_zero()) else {
            let reason = "the total includes the start delay, so nothing is left for objects";
            return Err(total.conflict(start_delay, reason.to_owned()));
        };
        if let Some(duration) = duration
            && duration.data_phase()? != data_phase
        {
            let left = print_milliseconds(data_phase);
            let reason = format!("the total less the start delay leaves {left} ms for objects");
            let (first, second) = in_order(duration, total);
            return Err(second.conflict(first, reason));
        }
        Ok(data_phase)
    }

    fn flag(&self, key: Key) -> Result<bool, ProfileError> {
        self.optional(key).map_or(Ok(false), Value::boolean)
    }

    fn optional(&self, key: Key) -> Option<&Value<'a>> {
        self.values.get(&key)
    }

    fn required(&self, key: Key) -> Result<&Value<'a>, ProfileError> {
        self.values.get(&key).ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: Key) -> ProfileError {
        let section = self.name.to_owned();
        ProfileError::of_key(self.line, key.name(), Problem::MissingKey { section })
    }
}

fn in_order<'v, 'a>(left: &'v Value<'a>, right: &'v Value<'a>) -> (&'v Value<'a>, &'v Value<'a>) {
    if left.line < right.line {
        (left, right)
    } else {
        (right, left)
    }
}

/// The name of the section that is not a track.
pub(super) const AUDIENCE: &str = "audience";
/// A byte order mark, which some editors write before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
