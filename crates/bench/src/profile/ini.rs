//! Parses a profile: lines, sections, tracks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::audience::Contradiction;
use super::error::{Problem, ProfileError};
use super::key::Key;
use super::value::{PatternName, Value, print_milliseconds};
use super::{
    Audience, ExtensionHeaders, ObjectSize, Pattern, Profile, StreamMapping, TrackMode,
    TrackProfile,
};
use crate::interpolate::TrackTemplate;
use crate::limits::{
    CYCLE_OBJECTS_MAX, LINE_BYTES_MAX, PROFILE_BYTES_MAX, SECTION_NAME_BYTES_MAX, TRACKS_MAX,
};

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
        audience = section.audience(&audience)?;
    }
    let tracks = sections
        .iter()
        .map(Section::track)
        .collect::<Result<_, _>>()?;
    Ok(Profile { tracks, audience })
}

/// Returns `base` with the settings of `pairs`: `KEY=VALUE`, with commas between. Errors name no line.
pub(super) fn audience_with(base: &Audience, pairs: &str) -> Result<Audience, ProfileError> {
    let mut section = Section {
        name: AUDIENCE,
        line: 0,
        values: BTreeMap::new(),
    };
    let mut read = || {
        for pair in pairs.split(',') {
            let Ok(Line::Pair(value)) = parse_line(0, pair.as_bytes()) else {
                return Err(ProfileError::of_file(Problem::NotAPair(pair.to_owned())));
            };
            section.insert(value)?;
        }
        section.audience(base)
    };
    read().map_err(|mut error| {
        error.line = None;
        if let Problem::DuplicateKey { .. } = error.problem {
            error.problem = Problem::Contradiction("it is given twice; remove one");
        }
        error
    })
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

/// Returns the part of a line before its comment. A `;` begins one anywhere; a `#` at the beginning of a line, of a value, and
/// behind a blank.
fn without_comment(text: &str) -> &str {
    let text = text.split(';').next().unwrap_or_default();
    let begins = |(place, _): &(usize, &str)| {
        let before = &text[..*place];
        let begins_value = before.find('=').is_some_and(|equals| equals + 1 == *place);
        before.is_empty() || begins_value || before.ends_with(char::is_whitespace)
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

    /// Returns the settings of `[audience]`, with those of `base` where the section says nothing.
    fn audience(&self, base: &Audience) -> Result<Audience, ProfileError> {
        let mut audience = *base;
        if let Some(rate) = self.optional(Key::JoinsPerSecond) {
            audience.joins_per_second = Some(rate.per_second()?);
        }
        self.set(
            Key::SlowSubscribers,
            Value::share,
            &mut audience.slow_subscribers,
        )?;
        self.set(
            Key::SlowReadPause,
            Value::pause,
            &mut audience.slow_read_pause,
        )?;
        let churning = &mut audience.churning_subscribers;
        self.set(Key::ChurningSubscribers, Value::share, churning)?;
        self.set(
            Key::ChurnPerSecond,
            Value::per_second,
            &mut audience.churn_per_second,
        )?;
        self.set(
            Key::Sockets,
            Value::own_sockets,
            &mut audience.has_own_sockets,
        )?;
        self.set(
            Key::Threads,
            |value| value.threads().map(Some),
            &mut audience.threads,
        )?;
        let acknowledgements = &mut audience.acknowledgements;
        self.set(
            Key::Acknowledgements,
            Value::acknowledgements,
            acknowledgements,
        )?;
        self.set(
            Key::ReceivePause,
            Value::receive_pause,
            &mut audience.receive_pause,
        )?;
        self.set(
            Key::ReplySpread,
            Value::reply_spread,
            &mut audience.reply_spread,
        )?;
        if audience.slow_subscribers > 0 && audience.slow_read_pause.is_zero() {
            self.required(Key::SlowReadPause)?;
        }
        if audience.churning_subscribers > 0 && base.churning_subscribers == 0 {
            self.required(Key::ChurnPerSecond)?;
        }
        if let Some(Contradiction { key, reason }) = audience.contradiction() {
            let line = self.optional(key).map_or(self.line, |value| value.line);
            let problem = Problem::Contradiction(reason);
            return Err(ProfileError::of_key(line, key.name(), problem));
        }
        Ok(audience)
    }

    /// Puts the value of a key into its place, if the section has the key.
    fn set<T>(
        &self,
        key: Key,
        parse: impl Fn(&Value<'a>) -> Result<T, ProfileError>,
        place: &mut T,
    ) -> Result<(), ProfileError> {
        if let Some(value) = self.optional(key) {
            *place = parse(value)?;
        }
        Ok(())
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
            object_size_max: self.object_size_max()?,
            start_delay: self.required(Key::StartDelay)?.start_delay()?,
            duration: self.duration()?,
            has_total_transmit_time: self.optional(Key::TotalTransmitTime).is_some(),
            late_join: self.flag(Key::LateJoin)?,
            stream_mapping: self.stream_mapping()?,
            extension_headers: self.extension_headers()?,
            pattern: self.pattern()?,
            fetch_groups: self
                .optional(Key::FetchGroups)
                .map(Value::fetch_groups)
                .transpose()?,
            joining_fetch: self.joining_fetch()?,
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
        let kind = name.map(Value::pattern).transpose()?;
        let kind = kind.unwrap_or(PatternName::Interval);
        let pattern = match kind {
            PatternName::Interval => Pattern::Interval,
            PatternName::Random => Pattern::Random,
            PatternName::HeavyTail => Pattern::HeavyTail,
            PatternName::Fetch => Pattern::Fetch,
            PatternName::Pauses => self.pauses()?,
            PatternName::Bursts => Pattern::Bursts {
                objects: self.required(Key::BurstObjects)?.burst_objects()?,
            },
        };
        for (key, of, reason) in KEYS_OF_PATTERNS {
            if let Some(value) = self.optional(key).filter(|_| kind != of) {
                return Err(match name {
                    Some(name) => {
                        let (first, second) = in_order(name, value);
                        second.conflict(first, reason.to_owned())
                    }
                    None => self.missing(Key::Pattern),
                });
            }
        }
        if let (Pattern::Fetch, Some(name)) = (pattern, name)
            && self.track_mode()? == TrackMode::Datagram
        {
            let reason = "FETCH needs track_mode = stream";
            return Err(self.contradiction(name, &[Key::TrackMode, Key::Reliable], reason));
        }
        Ok(pattern)
    }

    /// Returns the times of a publisher that pauses. They hold at most [`CYCLE_OBJECTS_MAX`] objects between two pauses.
    fn pauses(&self) -> Result<Pattern, ProfileError> {
        let (active, pause) = (
            self.required(Key::ActiveTime)?,
            self.required(Key::PauseTime)?,
        );
        let interval = self.required(Key::TimeInterval)?;
        let pattern = Pattern::Pauses {
            active: active.pause()?,
            pause: pause.pause()?,
        };
        let objects = active
            .pause()?
            .as_nanos()
            .div_ceil(interval.interval()?.ns().into());
        if objects > CYCLE_OBJECTS_MAX.into() {
            let reason =
                format!("{objects} objects between two pauses; at most {CYCLE_OBJECTS_MAX}");
            let (first, second) = in_order(interval, active);
            return Err(second.conflict(first, reason));
        }
        Ok(pattern)
    }

    /// Returns the size of the largest object but the first of a group, if sizes vary.
    fn object_size_max(&self) -> Result<Option<ObjectSize>, ProfileError> {
        let Some(value) = self.optional(Key::ObjectSizeMax) else {
            return Ok(None);
        };
        let (most, least) = (value.object_size()?, self.required(Key::ObjectSize)?);
        if most < least.object_size()? {
            let reason = "it is the larger of the two";
            return Err(self.contradiction(value, &[Key::ObjectSize], reason));
        }
        if self
            .required(Key::ObjectsPerGroup)?
            .objects_per_group()?
            .count()
            == 1
        {
            let reason = "every object is the first of its group, and has first_object_size";
            return Err(self.contradiction(value, &[Key::ObjectsPerGroup], reason));
        }
        Ok(Some(most))
    }

    /// Returns the groups that a subscriber fetches when it joins. Live stream tracks alone can be joined so.
    fn joining_fetch(&self) -> Result<Option<u32>, ProfileError> {
        let Some(value) = self.optional(Key::JoiningFetch) else {
            return Ok(None);
        };
        let groups = value.joining_fetch()?;
        if self.track_mode()? == TrackMode::Datagram {
            let reason = "FETCH needs track_mode = stream";
            return Err(self.contradiction(value, &[Key::TrackMode, Key::Reliable], reason));
        }
        if self.pattern()? == Pattern::Fetch {
            let reason = "a track that is fetched is not joined";
            return Err(self.contradiction(value, &[Key::Pattern], reason));
        }
        Ok(Some(groups))
    }

    /// Returns an error: `value` contradicts the first of `others` that is present.
    fn contradiction(&self, value: &Value<'a>, others: &[Key], reason: &str) -> ProfileError {
        let other = others.iter().find_map(|key| self.optional(*key));
        let (first, second) = in_order(value, other.unwrap_or(value));
        second.conflict(first, reason.to_owned())
    }

    /// Returns the data phase: `duration`, or `total_transmit_time` or `total_test_time` minus the start delay, or two of
    /// them if they agree (decision 7).
    fn duration(&self) -> Result<Duration, ProfileError> {
        let duration = self.optional(Key::Duration);
        let totals = [Key::TotalTransmitTime, Key::TotalTestTime].map(|key| self.optional(key));
        if let [Some(transmit), Some(test)] = totals {
            test.total_transmit_time()?;
            let reason = "both say how long the track sends; remove one";
            let (first, second) = in_order(transmit, test);
            return Err(second.conflict(first, reason.to_owned()));
        }
        let Some(total) = totals.into_iter().flatten().next() else {
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

/// Keys that belong to one pattern alone, and why they contradict any other.
const KEYS_OF_PATTERNS: [(Key, PatternName, &str); 4] = [
    (
        Key::BurstObjects,
        PatternName::Bursts,
        "it needs pattern = bursts",
    ),
    (
        Key::ActiveTime,
        PatternName::Pauses,
        "it needs pattern = pauses",
    ),
    (
        Key::PauseTime,
        PatternName::Pauses,
        "it needs pattern = pauses",
    ),
    (
        Key::FetchGroups,
        PatternName::Fetch,
        "it needs pattern = fetch",
    ),
];
/// The name of the section that is not a track.
pub(super) const AUDIENCE: &str = "audience";
/// A byte order mark, which some editors write before UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
