//! Range filters: ranges of integers that fields and properties of objects have to be in [moqt-19 §5.1.3].

use bytes::{BufMut, Bytes, BytesMut};

use super::Parameters;
use crate::cursor::Cursor;
use crate::error::{DecodeError, RequestErrorCode};
pub use crate::kinds::RangeFilterKind;
use crate::message::RequestError;
use crate::varint;

/// One range filter. Its value is checked by [`RangeFilter::condition`], since a wrong value fails the request and not
/// the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeFilter {
    /// What is compared.
    pub kind: RangeFilterKind,
    /// The encoded condition; empty in an update that removes the filters of this kind.
    pub value: Bytes,
}

/// The condition of a range filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeCondition {
    /// The set of conditions that it belongs to. An object has to pass all conditions of at least one set.
    pub set: u8,
    /// The property to compare, for filters of properties.
    pub property: Option<u64>,
    /// The first and last value of each range, inclusive, in ascending order; `u64::MAX` for a range without an end.
    pub ranges: Vec<(u64, u64)>,
}

/// A range filter that does not parse, or has values that cannot be.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a range filter {0}")]
pub struct InvalidRangeFilter(pub &'static str);

impl RangeFilter {
    /// Creates a filter.
    ///
    /// # Panics
    /// If the ranges are not in ascending order, or the kind and the presence of a property do not fit.
    pub fn new(kind: RangeFilterKind, condition: &RangeCondition) -> Self {
        let mut out = BytesMut::new();
        out.put_u8(condition.set);
        assert_eq!(
            condition.property.is_some(),
            has_property(kind),
            "the kind tells whether there is a property"
        );
        if let Some(property) = condition.property {
            varint::encode(property, &mut out);
        }
        let mut previous = 0;
        for (index, (start, end)) in condition.ranges.iter().enumerate() {
            assert!(
                previous <= *start && start <= end,
                "ranges are in ascending order"
            );
            varint::encode(start - previous, &mut out);
            let is_last = index + 1 == condition.ranges.len();
            if !(is_last && *end == u64::MAX) {
                varint::encode(end - start, &mut out);
            }
            previous = *end;
        }
        let value = out.freeze();
        Self { kind, value }
    }

    /// Returns the condition; `None` if the filter removes others.
    pub fn condition(&self) -> Result<Option<RangeCondition>, InvalidRangeFilter> {
        if self.value.is_empty() {
            return Ok(None);
        }
        let mut cursor = Cursor::new(&self.value);
        let condition = self.read(&mut cursor).map_err(|error| match error {
            DecodeError::Short => InvalidRangeFilter("is cut off"),
            DecodeError::Invalid { reason, .. } => InvalidRangeFilter(reason),
        })?;
        Ok(Some(condition))
    }

    fn read(&self, cursor: &mut Cursor<'_>) -> Result<RangeCondition, DecodeError> {
        let set = cursor.uint8()?;
        let property = if has_property(self.kind) {
            Some(cursor.varint()?)
        } else {
            None
        };
        if property.is_some_and(|property| !property.is_multiple_of(2)) {
            return Err(DecodeError::protocol(
                "compares a property without integers",
            ));
        }
        let mut ranges = Vec::new();
        let mut previous = 0_u64;
        while !cursor.is_empty() {
            let start = previous.checked_add(cursor.varint()?).ok_or(ABOVE)?;
            previous = if cursor.is_empty() {
                u64::MAX
            } else {
                start.checked_add(cursor.varint()?).ok_or(ABOVE)?
            };
            let is_byte = self.kind == RangeFilterKind::Priority;
            let last_named = if previous == u64::MAX {
                start
            } else {
                previous
            };
            if is_byte && last_named > u64::from(u8::MAX) {
                return Err(DecodeError::protocol("has a priority above 255"));
            }
            ranges.push((start, previous));
        }
        Ok(RangeCondition {
            set,
            property,
            ranges,
        })
    }
}

impl Parameters {
    /// Returns the error for a request whose range filters, including those of its fill, are invalid, occur twice, or
    /// have more than `ranges_max` ranges in total [moqt-19 §5.1.3].
    pub(crate) fn range_filter_error(&self, ranges_max: u64) -> Option<RequestError> {
        let of_fill = self.fill.iter().flat_map(|fill| &fill.range_filters);
        let scopes = [Vec::from_iter(&self.range_filters), of_fill.collect()];
        let error = scopes
            .into_iter()
            .find_map(|filters| check(&filters, ranges_max).err())?;
        let code = RequestErrorCode::INVALID_FILTER;
        Some(RequestError::new(code, error.to_string()))
    }
}

const ABOVE: DecodeError = DecodeError::protocol("has a value above 2^64 - 1");

fn check(filters: &[&RangeFilter], ranges_max: u64) -> Result<(), InvalidRangeFilter> {
    let mut keys = Vec::new();
    let mut ranges = 0;
    for filter in filters {
        let Some(condition) = filter.condition()? else {
            continue;
        };
        let key = (filter.kind, condition.set, condition.property);
        if keys.contains(&key) {
            return Err(InvalidRangeFilter("occurs twice"));
        }
        keys.push(key);
        ranges += condition.ranges.len() as u64;
    }
    if ranges > ranges_max {
        return Err(InvalidRangeFilter("has more ranges than are accepted"));
    }
    Ok(())
}

fn has_property(kind: RangeFilterKind) -> bool {
    matches!(
        kind,
        RangeFilterKind::ObjectProperty | RangeFilterKind::TrackProperty
    )
}
