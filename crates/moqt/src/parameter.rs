//! Message parameters, which apply to one request or answer and one hop [moqt-18 §10.2].

mod filter;
mod range_filter;

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

pub use self::filter::Filter;
pub use self::range_filter::{InvalidRangeFilter, RangeCondition, RangeFilter, RangeFilterKind};
use crate::cursor::Cursor;
use crate::draft::{Draft, ParameterEncoding, ParameterKind, ParameterRow};
use crate::error::{DecodeError, Violation};
use crate::kinds::RequestKind;
use crate::location::Location;
use crate::name::Namespace;
use crate::scope::Scopes;
pub use crate::scope::Step;
use crate::token::Token;
use crate::varint;

/// The largest number of authorization tokens accepted in one message; the draft sets no limit.
pub const AUTHORIZATION_TOKENS_MAX: usize = 64;

/// The largest number of range filters accepted in one message, or in one fill; the draft sets no limit.
pub const RANGE_FILTERS_MAX: usize = 64;

/// All parameters of one message. Decoding checks which of them may occur in the message. [`Parameters::check`] does so
/// where this depends on the request that an answer or update belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// How long the delivery of an object may take; zero for no limit. Encoded in milliseconds.
    pub object_delivery_timeout: Option<Duration>,
    /// The tokens that authorize the request, in the order sent; at most [`AUTHORIZATION_TOKENS_MAX`].
    pub authorization_tokens: Vec<Token>,
    /// How long the subscriber waits for a publisher to appear; `None` for not at all. Encoded in milliseconds.
    pub rendezvous_timeout: Option<Duration>,
    /// How long the delivery of a subgroup may take after its end is known; zero for no limit. Encoded in milliseconds.
    pub subgroup_delivery_timeout: Option<Duration>,
    /// When the sender will end the subscription; zero and `None` for an unknown time. Encoded in milliseconds.
    pub expires: Option<Duration>,
    /// The largest location of the track that the sender knows; `None` if it knows of no object.
    pub largest_object: Option<Location>,
    /// How long a relay may wait in total for objects that it has to fetch. Encoded in milliseconds.
    pub fill_timeout: Option<Duration>,
    /// Whether objects are to be sent; `None` means yes, except in an update.
    pub forward: Option<bool>,
    /// The subscriber priority, 128 if absent. Lower is sent first.
    pub subscriber_priority: Option<u8>,
    /// The location filter; `None` for all objects, except in an update. FETCH has it as part of its
    /// [`FetchKind`](crate::message::FetchKind).
    pub filter: Option<Filter>,
    /// The requested order of groups. If absent, the track's default in SUBSCRIBE, and ascending in FETCH.
    pub group_order: Option<GroupOrder>,
    /// Requests the past objects of a subscription, with the parameters of the stream that carries them; from draft-20
    /// on. Parameters that are absent are those of the subscription. The session turns it into a FETCH that joins the
    /// subscription, as in earlier drafts.
    pub fill: Option<Box<Self>>,
    /// The range filters; from draft-19 on, and at most [`RANGE_FILTERS_MAX`].
    pub range_filters: Vec<RangeFilter>,
    /// In a request for a new group, the largest group that the subscriber knows, plus one; 0 if it knows none.
    pub new_group_request: Option<u64>,
    /// The new prefix of a namespace subscription.
    pub track_namespace_prefix: Option<Namespace>,
    /// Whether the answer is to have the Track Properties; `None` means yes. From draft-20 on.
    pub include_properties: Option<bool>,
}

/// The order in which groups are to be sent.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum GroupOrder {
    /// Smaller group IDs first.
    #[default]
    Ascending,
    /// Larger group IDs first.
    Descending,
}

impl GroupOrder {
    /// Returns the order with code 1 or 2.
    pub(crate) const fn from_code(code: u64) -> Option<Self> {
        match code {
            1 => Some(Self::Ascending),
            2 => Some(Self::Descending),
            _ => None,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Ascending => 1,
            Self::Descending => 2,
        }
    }
}

impl Parameters {
    /// Returns an empty set of parameters.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns what a draft lacks to express the parameters, if it does.
    pub(crate) fn missing_in(&self, draft: Draft) -> Option<&'static str> {
        if self.fill.is_some() && draft.has_joining_fetches() {
            return Some("fill of a subscription");
        }
        if !self.range_filters.is_empty() && !draft.setup_has_limits() {
            return Some("range filter");
        }
        let fill = self.fill.as_ref();
        let filter = self.filter.and_then(|filter| filter.missing_in(draft));
        filter.or_else(|| fill.and_then(|fill| fill.missing_in(draft)))
    }

    /// Applies a REQUEST_UPDATE to the parameters of a subscription that is not answered; parameters absent from the
    /// update stay [moqt-18 §10.9].
    pub fn change(&mut self, update: &Self) {
        self.forward = update.forward.or(self.forward);
        self.filter = update.filter.or(self.filter);
        self.subscriber_priority = update.subscriber_priority.or(self.subscriber_priority);
        self.object_delivery_timeout = update
            .object_delivery_timeout
            .or(self.object_delivery_timeout);
        self.subgroup_delivery_timeout = update
            .subgroup_delivery_timeout
            .or(self.subgroup_delivery_timeout);
    }

    /// Returns which of the parameters of a `SUBSCRIBE_TRACKS` the PUBLISH of each track repeats: until draft-18 FORWARD,
    /// in draft-19 `GROUP_ORDER` too [moqt-19 §10.19.1], later all that PUBLISH may have [moqt-21 §9.18.1].
    #[must_use]
    pub fn repeated_in_publish(&self, draft: Draft) -> Self {
        let mut repeated = Self {
            forward: Some(self.forward.unwrap_or(true)),
            ..Self::none()
        };
        if draft >= Draft::Draft19 {
            repeated.group_order = self.group_order;
        }
        if draft >= Draft::Draft20 {
            repeated.filter = self.filter;
            repeated.subscriber_priority = self.subscriber_priority;
            repeated.object_delivery_timeout = self.object_delivery_timeout;
            repeated.subgroup_delivery_timeout = self.subgroup_delivery_timeout;
        }
        repeated
    }

    /// Checks that every parameter may occur at this step of a request of this kind [moqt-18 §10.2.1].
    ///
    /// Decoding checks this too, except in `REQUEST_OK` and `REQUEST_UPDATE`, whose request it does not know.
    pub fn check(&self, draft: Draft, kind: RequestKind, step: Step) -> Result<(), Violation> {
        let scope = Scopes::of(kind, step);
        let misplaced = draft
            .parameters()
            .iter()
            .any(|row| self.count(row.kind) > 0 && !row.scopes.overlaps(scope));
        if misplaced { Err(MISPLACED) } else { Ok(()) }
    }

    /// Reads a count and that many parameters.
    pub(crate) fn decode(
        draft: Draft,
        scopes: Scopes,
        cursor: &mut Cursor<'_>,
    ) -> Result<Self, DecodeError> {
        let mut parameters = Self::default();
        let mut previous = 0_u64;
        for _ in 0..cursor.varint()? {
            let code = previous
                .checked_add(cursor.varint()?)
                .ok_or(DecodeError::protocol(
                    "the type of a parameter is above 2^64 - 1",
                ))?;
            previous = code;
            let row = draft
                .parameter(code)
                .ok_or(DecodeError::protocol("unknown parameter"))?;
            if !row.scopes.overlaps(scopes) {
                return Err(MISPLACED.into());
            }
            if parameters.count(row.kind) > 0 && !row.kind.may_repeat() {
                return Err(DecodeError::protocol("a parameter is repeated"));
            }
            parameters.read(draft, row, cursor)?;
        }
        Ok(parameters)
    }

    /// Appends a count and the parameters, in ascending order of type. Parameters that the draft does not have are left
    /// out.
    pub(crate) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        let rows = || draft.parameters().iter();
        let count: usize = rows().map(|row| self.count(row.kind)).sum();
        varint::encode(count as u64, out);
        let mut previous = 0;
        for row in rows().filter(|row| self.count(row.kind) > 0) {
            varint::encode(row.code - previous, out);
            previous = row.code;
            self.write(draft, row, out);
        }
    }

    /// Returns how often a parameter occurs.
    fn count(&self, kind: ParameterKind) -> usize {
        let is_present = match kind {
            ParameterKind::AuthorizationToken => return self.authorization_tokens.len(),
            ParameterKind::Range(kind) => return self.range_filters_of(kind).count(),
            ParameterKind::ObjectDeliveryTimeout => self.object_delivery_timeout.is_some(),
            ParameterKind::RendezvousTimeout => self.rendezvous_timeout.is_some(),
            ParameterKind::SubgroupDeliveryTimeout => self.subgroup_delivery_timeout.is_some(),
            ParameterKind::Expires => self.expires.is_some(),
            ParameterKind::LargestObject => self.largest_object.is_some(),
            ParameterKind::FillTimeout => self.fill_timeout.is_some(),
            ParameterKind::Forward => self.forward.is_some(),
            ParameterKind::SubscriberPriority => self.subscriber_priority.is_some(),
            ParameterKind::LocationFilter => self.filter.is_some(),
            ParameterKind::GroupOrder => self.group_order.is_some(),
            ParameterKind::FillParameters => self.fill.is_some(),
            ParameterKind::NewGroupRequest => self.new_group_request.is_some(),
            ParameterKind::TrackNamespacePrefix => self.track_namespace_prefix.is_some(),
            ParameterKind::IncludeProperties => self.include_properties.is_some(),
        };
        usize::from(is_present)
    }

    fn range_filters_of(&self, kind: RangeFilterKind) -> impl Iterator<Item = &RangeFilter> {
        let filters = self.range_filters.iter();
        filters.filter(move |filter| filter.kind == kind)
    }

    fn read(
        &mut self,
        draft: Draft,
        row: &ParameterRow,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), DecodeError> {
        match row.kind {
            ParameterKind::ObjectDeliveryTimeout => {
                self.object_delivery_timeout = Some(read_duration(cursor)?);
            }
            ParameterKind::AuthorizationToken => self.read_token(cursor)?,
            ParameterKind::RendezvousTimeout => {
                self.rendezvous_timeout = Some(read_duration(cursor)?);
            }
            ParameterKind::SubgroupDeliveryTimeout => {
                self.subgroup_delivery_timeout = Some(read_duration(cursor)?);
            }
            ParameterKind::Expires => self.expires = Some(read_duration(cursor)?),
            ParameterKind::LargestObject => self.largest_object = Some(read_location(cursor)?),
            ParameterKind::FillTimeout => self.fill_timeout = Some(read_duration(cursor)?),
            ParameterKind::Forward => {
                self.forward = Some(read_flag(row, cursor, "FORWARD is neither 0 nor 1")?);
            }
            ParameterKind::SubscriberPriority => {
                let priority = u8::try_from(read_small(row, cursor)?)
                    .map_err(|_| DecodeError::protocol("SUBSCRIBER_PRIORITY is above 255"))?;
                self.subscriber_priority = Some(priority);
            }
            ParameterKind::LocationFilter => self.filter = Some(Filter::read(draft, cursor)?),
            ParameterKind::GroupOrder => {
                let order = GroupOrder::from_code(read_small(row, cursor)?)
                    .ok_or(DecodeError::protocol("GROUP_ORDER is neither 1 nor 2"))?;
                self.group_order = Some(order);
            }
            ParameterKind::FillParameters => self.fill = Some(read_fill(draft, cursor)?),
            ParameterKind::Range(kind) => self.read_range_filter(kind, cursor)?,
            ParameterKind::NewGroupRequest => self.new_group_request = Some(cursor.varint()?),
            ParameterKind::TrackNamespacePrefix => {
                self.track_namespace_prefix = Some(Namespace::decode(cursor)?);
            }
            ParameterKind::IncludeProperties => {
                const NEITHER: &str = "INCLUDE_PROPERTIES is neither 0 nor 1";
                self.include_properties = Some(read_flag(row, cursor, NEITHER)?);
            }
        }
        Ok(())
    }

    fn read_token(&mut self, cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
        if self.authorization_tokens.len() == AUTHORIZATION_TOKENS_MAX {
            return Err(TOO_MANY_TOKENS.into());
        }
        self.authorization_tokens
            .push(Token::decode(&read_prefixed(cursor)?)?);
        Ok(())
    }

    fn read_range_filter(
        &mut self,
        kind: RangeFilterKind,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), DecodeError> {
        if self.range_filters.len() == RANGE_FILTERS_MAX {
            return Err(TOO_MANY_RANGE_FILTERS.into());
        }
        let value = read_prefixed(cursor)?;
        self.range_filters.push(RangeFilter { kind, value });
        Ok(())
    }

    fn write(&self, draft: Draft, row: &ParameterRow, out: &mut BytesMut) {
        match row.kind {
            ParameterKind::ObjectDeliveryTimeout => {
                write_duration(self.object_delivery_timeout, out);
            }
            ParameterKind::AuthorizationToken => {
                write_each(&self.authorization_tokens, out, Token::encode);
            }
            ParameterKind::RendezvousTimeout => write_duration(self.rendezvous_timeout, out),
            ParameterKind::SubgroupDeliveryTimeout => {
                write_duration(self.subgroup_delivery_timeout, out);
            }
            ParameterKind::Expires => write_duration(self.expires, out),
            ParameterKind::LargestObject => {
                if let Some(location) = self.largest_object {
                    write_location(location, out);
                }
            }
            ParameterKind::FillTimeout => write_duration(self.fill_timeout, out),
            ParameterKind::Forward => write_small(row, self.forward.map(u8::from), out),
            ParameterKind::SubscriberPriority => write_small(row, self.subscriber_priority, out),
            ParameterKind::LocationFilter => {
                if let Some(filter) = self.filter {
                    filter.write(draft, out);
                }
            }
            ParameterKind::GroupOrder => {
                write_small(row, self.group_order.map(GroupOrder::code), out);
            }
            ParameterKind::FillParameters => {
                if let Some(fill) = &self.fill {
                    write_prefixed(out, |out| fill.encode(draft, out));
                }
            }
            ParameterKind::Range(kind) => {
                let values = self.range_filters_of(kind).map(|filter| &filter.value);
                write_each(values, out, |value, out| out.extend_from_slice(value));
            }
            ParameterKind::NewGroupRequest => {
                if let Some(group) = self.new_group_request {
                    varint::encode(group, out);
                }
            }
            ParameterKind::TrackNamespacePrefix => {
                if let Some(prefix) = &self.track_namespace_prefix {
                    prefix.encode(out);
                }
            }
            ParameterKind::IncludeProperties => {
                write_small(row, self.include_properties.map(u8::from), out);
            }
        }
    }
}

const MISPLACED: Violation = Violation::protocol("a parameter is not permitted in this message");

/// More tokens than [`AUTHORIZATION_TOKENS_MAX`].
pub(crate) const TOO_MANY_TOKENS: Violation =
    Violation::beyond_limit("more authorization tokens in a message than this endpoint accepts");

const TOO_MANY_RANGE_FILTERS: Violation =
    Violation::beyond_limit("more range filters in a message than this endpoint accepts");

/// Reads a location of two integers [moqt-18 §1.4.2].
pub(crate) fn read_location(cursor: &mut Cursor<'_>) -> Result<Location, DecodeError> {
    Ok(Location {
        group: cursor.varint()?,
        object: cursor.varint()?,
    })
}

/// Writes a location as two integers.
pub(crate) fn write_location(location: Location, out: &mut BytesMut) {
    varint::encode(location.group, out);
    varint::encode(location.object, out);
}

/// Reads milliseconds.
pub(crate) fn read_duration(cursor: &mut Cursor<'_>) -> Result<Duration, DecodeError> {
    Ok(Duration::from_millis(cursor.varint()?))
}

/// Returns the whole milliseconds of `duration`, limited to the largest number that has an encoding.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn write_duration(duration: Option<Duration>, out: &mut BytesMut) {
    if let Some(duration) = duration {
        varint::encode(millis(duration), out);
    }
}

/// Reads a value that fits in a byte, in the parameter's encoding.
fn read_small(row: &ParameterRow, cursor: &mut Cursor<'_>) -> Result<u64, DecodeError> {
    match row.encoding {
        ParameterEncoding::Uint8 => Ok(u64::from(cursor.uint8()?)),
        ParameterEncoding::Varint => cursor.varint(),
        ParameterEncoding::Structure | ParameterEncoding::LengthPrefixed => {
            unreachable!("no draft gives a structure to a small integer")
        }
    }
}

fn write_small(row: &ParameterRow, value: Option<u8>, out: &mut BytesMut) {
    let Some(value) = value else { return };
    match row.encoding {
        ParameterEncoding::Uint8 => out.put_u8(value),
        ParameterEncoding::Varint => varint::encode(u64::from(value), out),
        ParameterEncoding::Structure | ParameterEncoding::LengthPrefixed => {
            unreachable!("no draft gives a structure to a small integer")
        }
    }
}

fn read_flag(
    row: &ParameterRow,
    cursor: &mut Cursor<'_>,
    neither: &'static str,
) -> Result<bool, DecodeError> {
    match read_small(row, cursor)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::protocol(neither)),
    }
}

/// Reads the parameters of a fill. They begin with their number, like those of a message: the draft says that they are
/// "encoded as if they were Parameters for a separate message" [moqt-22 §9.20.15].
fn read_fill(draft: Draft, cursor: &mut Cursor<'_>) -> Result<Box<Parameters>, DecodeError> {
    let encoded = read_prefixed(cursor)?;
    let mut inner = Cursor::new(&encoded);
    let fill = Parameters::decode(draft, Scopes::FILL, &mut inner);
    let fill = fill.map_err(DecodeError::into_violation)?;
    if !inner.is_empty() {
        return Err(DecodeError::protocol(
            "the parameters of a fill are followed by more bytes",
        ));
    }
    Ok(Box::new(fill))
}

/// Appends the values of a repeated parameter, each with its length; all but the first have a type delta of 0.
fn write_each<T>(
    values: impl IntoIterator<Item = T>,
    out: &mut BytesMut,
    write: impl Fn(T, &mut BytesMut),
) {
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            varint::encode(0, out);
        }
        write_prefixed(out, |out| write(value, out));
    }
}

fn read_prefixed(cursor: &mut Cursor<'_>) -> Result<Bytes, DecodeError> {
    let len = cursor.varint()?;
    cursor.take(len)
}

/// Appends the output of `write`, with its length before it.
fn write_prefixed(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let mut value = BytesMut::new();
    write(&mut value);
    varint::encode(value.len() as u64, out);
    out.extend_from_slice(&value);
}

#[cfg(test)]
mod tests;
