//! Properties of tracks and objects: key-value pairs that relays read and forward [moqt-18 §2.5, §12].

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::error::{DecodeError, Violation};
use crate::location::Location;
use crate::parameter::GroupOrder;
use crate::varint;

/// How long the delivery of an object may take, in milliseconds; 0 for no limit [moqt-18 §12.2].
pub const OBJECT_DELIVERY_TIMEOUT: u64 = 0x02;
/// How long an object may be served from a cache, in milliseconds [moqt-18 §12.3].
pub const MAX_CACHE_DURATION: u64 = 0x04;
/// How long the delivery of a subgroup may take after its end is known, in milliseconds; 0 for no limit
/// [moqt-18 §12.1].
pub const SUBGROUP_DELIVERY_TIMEOUT: u64 = 0x06;
/// Properties that only the original publisher may change [moqt-18 §12.7].
pub const IMMUTABLE: u64 = 0x0B;
/// The priority of subgroups and datagrams without their own [moqt-18 §12.4].
pub const DEFAULT_PUBLISHER_PRIORITY: u64 = 0x0E;
/// The order of groups that the publisher prefers [moqt-18 §12.5].
pub const DEFAULT_PUBLISHER_GROUP_ORDER: u64 = 0x22;
/// Whether a subscriber may ask for a new group [moqt-18 §12.6].
pub const DYNAMIC_GROUPS: u64 = 0x30;
/// How many groups before this object's group do not exist [moqt-18 §12.8].
pub const PRIOR_GROUP_ID_GAP: u64 = 0x3C;
/// How many objects before this object do not exist in its group [moqt-18 §12.9].
pub const PRIOR_OBJECT_ID_GAP: u64 = 0x3E;

/// The longest value of one key-value pair, in bytes [moqt-18 §1.4.3].
pub const VALUE_BYTES_MAX: usize = 65_535;

/// The default of `DEFAULT_PUBLISHER_PRIORITY` [moqt-18 §12.4].
pub const PUBLISHER_PRIORITY_DEFAULT: u8 = 128;

/// The types that a subscriber has to understand to process a track [moqt-18 §2.5.1].
const MANDATORY: std::ops::RangeInclusive<u64> = 0x4000..=0x7FFF;

/// The value of a property: an integer for even types, bytes for odd ones.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The value of an even type.
    Int(u64),
    /// The value of an odd type, at most 65535 bytes.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    const fn int(self) -> Option<u64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Bytes(_) => None,
        }
    }
}

/// Well-formed properties in their encoded form, kept byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Properties {
    encoded: Bytes,
}

/// A track breaks the object model; its subscriptions and fetches have to be cancelled [moqt-18 §2.4.2].
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the track is malformed: {0}")]
pub struct MalformedTrack(pub &'static str);

impl Properties {
    /// No properties.
    pub const EMPTY: Self = Self {
        encoded: Bytes::new(),
    };

    /// Takes encoded properties, sharing the buffer, after checking that they are well-formed.
    #[inline]
    pub fn decode(encoded: Bytes) -> Result<Self, DecodeError> {
        let mut pairs = Pairs::new(&encoded);
        while pairs.pair()?.is_some() {}
        Ok(Self { encoded })
    }

    /// Returns an empty builder.
    pub fn builder() -> PropertiesBuilder {
        PropertiesBuilder::default()
    }

    /// Returns the encoded form, without a length before it.
    pub fn as_bytes(&self) -> &Bytes {
        &self.encoded
    }

    /// Returns whether messages are to share these properties, and not to copy them.
    pub(crate) fn is_long(&self) -> bool {
        self.encoded.len() >= LONG_BYTES_MIN
    }

    /// Returns whether there are no properties.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    /// Returns the properties in ascending order of type. Those inside [`IMMUTABLE`] are returned only as its value.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Value<'_>)> {
        let mut pairs = Pairs::new(&self.encoded);
        std::iter::from_fn(move || pairs.pair().ok().flatten())
    }

    /// Returns the value of the first property of `property_type`, among the mutable ones first, then inside
    /// [`IMMUTABLE`] [moqt-18 §12.7].
    pub fn find(&self, property_type: u64) -> Option<Value<'_>> {
        if self.encoded.is_empty() {
            return None;
        }
        let mut immutable = None;
        for (found, value) in self.iter() {
            if found == property_type {
                return Some(value);
            }
            if let (IMMUTABLE, Value::Bytes(inner)) = (found, value) {
                immutable = Some(inner);
            }
        }
        let mut pairs = Pairs::new(immutable?);
        while let Ok(Some((found, value))) = pairs.pair() {
            if found == property_type {
                return Some(value);
            }
        }
        None
    }

    /// Returns the value of a property with an integer: an even type.
    pub fn find_int(&self, property_type: u64) -> Option<u64> {
        self.find(property_type)?.int()
    }

    /// Returns the first mandatory property type. The supported drafts define no such type, so this endpoint does not
    /// understand it and cannot process the track [moqt-18 §2.5.1].
    pub fn mandatory(&self) -> Option<u64> {
        let outer = self
            .iter()
            .map(|(found, _)| found)
            .find(|found| MANDATORY.contains(found));
        outer.or_else(|| {
            let Some(Value::Bytes(inner)) = self.find(IMMUTABLE) else {
                return None;
            };
            let mut pairs = Pairs::new(inner);
            std::iter::from_fn(move || pairs.pair().ok().flatten())
                .map(|(found, _)| found)
                .find(|found| MANDATORY.contains(found))
        })
    }

    /// Returns the priority of the track's subgroups and datagrams without their own: 128 if absent. Lower is sent
    /// first.
    pub fn publisher_priority(&self) -> u8 {
        self.find_int(DEFAULT_PUBLISHER_PRIORITY)
            .and_then(|value| u8::try_from(value).ok())
            .unwrap_or(PUBLISHER_PRIORITY_DEFAULT)
    }

    /// Returns the order of groups that the publisher prefers: ascending if absent.
    pub fn group_order(&self) -> GroupOrder {
        self.find_int(DEFAULT_PUBLISHER_GROUP_ORDER)
            .and_then(GroupOrder::from_code)
            .unwrap_or(GroupOrder::Ascending)
    }

    /// Returns how long the delivery of an object may take; zero for no limit.
    pub fn object_delivery_timeout(&self) -> Option<Duration> {
        self.find_int(OBJECT_DELIVERY_TIMEOUT)
            .map(Duration::from_millis)
    }

    /// Returns how long the delivery of a subgroup may take after its end is known; zero for no limit.
    pub fn subgroup_delivery_timeout(&self) -> Option<Duration> {
        self.find_int(SUBGROUP_DELIVERY_TIMEOUT)
            .map(Duration::from_millis)
    }

    /// Returns how long an object of the track may be served from a cache.
    pub fn max_cache_duration(&self) -> Option<Duration> {
        self.find_int(MAX_CACHE_DURATION).map(Duration::from_millis)
    }

    /// Returns whether a subscriber may ask for a new group.
    pub fn dynamic_groups(&self) -> bool {
        self.find_int(DYNAMIC_GROUPS) == Some(1)
    }

    /// Returns how many groups before the object's group do not exist.
    pub fn prior_group_id_gap(&self) -> Option<u64> {
        self.find_int(PRIOR_GROUP_ID_GAP)
    }

    /// Returns how many objects before the object do not exist in its group.
    pub fn prior_object_id_gap(&self) -> Option<u64> {
        self.find_int(PRIOR_OBJECT_ID_GAP)
    }

    /// Checks the values of Track Properties whose violation closes the session.
    ///
    /// The draft calls a priority above 255 "invalid" without naming a consequence [moqt-18 §12.4]; it is treated like
    /// the other two.
    pub(crate) fn check_track(&self) -> Result<(), Violation> {
        if self
            .find_int(DEFAULT_PUBLISHER_PRIORITY)
            .is_some_and(|value| value > 255)
        {
            return Err(Violation::protocol(
                "DEFAULT_PUBLISHER_PRIORITY is above 255",
            ));
        }
        if self
            .find_int(DEFAULT_PUBLISHER_GROUP_ORDER)
            .is_some_and(|value| GroupOrder::from_code(value).is_none())
        {
            return Err(Violation::protocol(
                "DEFAULT_PUBLISHER_GROUP_ORDER is neither 1 nor 2",
            ));
        }
        if self.find_int(DYNAMIC_GROUPS).is_some_and(|value| value > 1) {
            return Err(Violation::protocol("DYNAMIC_GROUPS is above 1"));
        }
        Ok(())
    }

    /// Checks the properties of the object at `location` against the object model.
    pub fn check_object(&self, location: Location) -> Result<(), MalformedTrack> {
        let mut seen = ObjectProperties::default();
        seen.read(Pairs::new(&self.encoded), false)?;
        if seen.group_gap.is_some_and(|gap| gap > location.group) {
            return Err(MalformedTrack(
                "the prior group ID gap is larger than the group ID",
            ));
        }
        if seen.object_gap.is_some_and(|gap| gap > location.object) {
            return Err(MalformedTrack(
                "the prior object ID gap is larger than the object ID",
            ));
        }
        Ok(())
    }
}

/// Properties that may occur at most once in an object.
#[derive(Default)]
struct ObjectProperties {
    group_gap: Option<u64>,
    object_gap: Option<u64>,
    immutable: bool,
}

impl ObjectProperties {
    fn read(&mut self, mut pairs: Pairs<'_>, inside: bool) -> Result<(), MalformedTrack> {
        const UNPARSED: MalformedTrack = MalformedTrack("an immutable property does not parse");
        while let Some((found, value)) = pairs.pair().map_err(|_| UNPARSED)? {
            let repeated = match (found, value) {
                (PRIOR_GROUP_ID_GAP, Value::Int(gap)) => self.group_gap.replace(gap).is_some(),
                (PRIOR_OBJECT_ID_GAP, Value::Int(gap)) => self.object_gap.replace(gap).is_some(),
                (IMMUTABLE, Value::Bytes(inner)) => {
                    if inside {
                        return Err(MalformedTrack("immutable properties inside immutable ones"));
                    }
                    let repeated = std::mem::replace(&mut self.immutable, true);
                    self.read(Pairs::new(inner), true)?;
                    repeated
                }
                (found, _) if MANDATORY.contains(&found) => {
                    return Err(MalformedTrack("an object has a mandatory track property"));
                }
                _ => false,
            };
            if repeated {
                return Err(MalformedTrack("a property that may stand once is repeated"));
            }
        }
        Ok(())
    }
}

/// From how many bytes on properties are shared.
const LONG_BYTES_MIN: usize = 1024;

/// A builder that collects properties in any order and encodes them in ascending order of type.
#[derive(Clone, Debug, Default)]
pub struct PropertiesBuilder {
    pairs: Vec<(u64, OwnedValue)>,
}

#[derive(Clone, Debug)]
enum OwnedValue {
    Int(u64),
    Bytes(Bytes),
}

impl PropertiesBuilder {
    /// Adds an integer.
    ///
    /// # Panics
    /// If `property_type` is odd: odd types contain bytes.
    #[must_use]
    pub fn int(mut self, property_type: u64, value: u64) -> Self {
        assert!(
            property_type.is_multiple_of(2),
            "odd property types carry bytes"
        );
        self.pairs.push((property_type, OwnedValue::Int(value)));
        self
    }

    /// Adds bytes.
    ///
    /// # Panics
    /// If `property_type` is even, since even types contain integers, or if `value` is longer than [`VALUE_BYTES_MAX`].
    #[must_use]
    pub fn bytes(mut self, property_type: u64, value: impl Into<Bytes>) -> Self {
        let value = value.into();
        assert!(
            !property_type.is_multiple_of(2),
            "even property types carry integers"
        );
        assert!(
            value.len() <= VALUE_BYTES_MAX,
            "a property value is at most 65535 bytes long"
        );
        self.pairs.push((property_type, OwnedValue::Bytes(value)));
        self
    }

    /// Encodes the added properties; those of equal type keep the order in which they were added.
    pub fn build(mut self) -> Properties {
        self.pairs.sort_by_key(|(property_type, _)| *property_type);
        let mut encoded = BytesMut::new();
        let mut writer = PairWriter::default();
        for (property_type, value) in &self.pairs {
            match value {
                OwnedValue::Int(value) => writer.int(*property_type, *value, &mut encoded),
                OwnedValue::Bytes(value) => writer.bytes(*property_type, value, &mut encoded),
            }
        }
        Properties {
            encoded: encoded.freeze(),
        }
    }
}

/// A reader of key-value pairs of known total length [moqt-18 §1.4.3].
pub(crate) struct Pairs<'a> {
    rest: &'a [u8],
    previous: u64,
}

impl<'a> Pairs<'a> {
    #[inline]
    pub(crate) const fn new(encoded: &'a [u8]) -> Self {
        Self {
            rest: encoded,
            previous: 0,
        }
    }

    /// Reads the next pair; `None` at the end.
    #[inline]
    pub(crate) fn pair(&mut self) -> Result<Option<(u64, Value<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let delta = self.varint()?;
        let found = self
            .previous
            .checked_add(delta)
            .ok_or(DecodeError::protocol(
                "the type of a key-value pair is above 2^64 - 1",
            ))?;
        self.previous = found;
        let value = self.varint()?;
        if found.is_multiple_of(2) {
            return Ok(Some((found, Value::Int(value))));
        }
        if value > VALUE_BYTES_MAX as u64 {
            return Err(DecodeError::protocol(
                "the value of a key-value pair is longer than 65535",
            ));
        }
        let (value, rest) = usize::try_from(value)
            .ok()
            .and_then(|len| self.rest.split_at_checked(len))
            .ok_or(CUT_PAIR)?;
        self.rest = rest;
        Ok(Some((found, Value::Bytes(value))))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, DecodeError> {
        let (value, len) = varint::decode(self.rest).ok_or(CUT_PAIR)?;
        self.rest = &self.rest[len..];
        Ok(value)
    }
}

const CUT_PAIR: DecodeError = DecodeError::key_value("a key-value pair is cut off");

/// A writer of key-value pairs, which are given in ascending order of type.
#[derive(Default)]
pub(crate) struct PairWriter {
    previous: u64,
}

impl PairWriter {
    pub(crate) fn int(&mut self, pair_type: u64, value: u64, out: &mut BytesMut) {
        self.delta(pair_type, out);
        varint::encode(value, out);
    }

    pub(crate) fn bytes(&mut self, pair_type: u64, value: &[u8], out: &mut BytesMut) {
        self.delta(pair_type, out);
        varint::encode(value.len() as u64, out);
        out.extend_from_slice(value);
    }

    fn delta(&mut self, pair_type: u64, out: &mut BytesMut) {
        assert!(
            pair_type >= self.previous,
            "pairs are written in ascending order of type"
        );
        varint::encode(pair_type - self.previous, out);
        self.previous = pair_type;
    }
}

#[cfg(test)]
mod tests;
