//! Message parameters, which apply to one request or answer and one hop [moqt-18 §10.2].

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

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
    /// The subscription filter; `None` for all objects.
    pub filter: Option<Filter>,
    /// The requested order of groups. If absent, the track's default in SUBSCRIBE, and ascending in FETCH.
    pub group_order: Option<GroupOrder>,
    /// In a request for a new group, the largest group that the subscriber knows, plus one; 0 if it knows none.
    pub new_group_request: Option<u64>,
    /// The new prefix of a namespace subscription.
    pub track_namespace_prefix: Option<Namespace>,
}

/// The objects of a track that a subscription covers [moqt-18 §5.1.2].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// From the group after the largest one.
    NextGroupStart,
    /// From the object after the largest one.
    LargestObject,
    /// From this location.
    AbsoluteStart(Location),
    /// From `start` to the end of `end_group`.
    AbsoluteRange {
        /// The first location.
        start: Location,
        /// The last group, inclusive; not smaller than the group of `start`.
        end_group: u64,
    },
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

impl Filter {
    const NEXT_GROUP_START: u64 = 1;
    const LARGEST_OBJECT: u64 = 2;
    const ABSOLUTE_START: u64 = 3;
    const ABSOLUTE_RANGE: u64 = 4;

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        match cursor.varint()? {
            Self::NEXT_GROUP_START => Ok(Self::NextGroupStart),
            Self::LARGEST_OBJECT => Ok(Self::LargestObject),
            Self::ABSOLUTE_START => Ok(Self::AbsoluteStart(read_location(cursor)?)),
            Self::ABSOLUTE_RANGE => {
                let start = read_location(cursor)?;
                let end_group =
                    start
                        .group
                        .checked_add(cursor.varint()?)
                        .ok_or(DecodeError::protocol(
                            "the end group of a filter is above 2^64 - 1",
                        ))?;
                Ok(Self::AbsoluteRange { start, end_group })
            }
            _ => Err(DecodeError::protocol(
                "a subscription filter has an unknown type",
            )),
        }
    }

    fn encode(self, out: &mut BytesMut) {
        match self {
            Self::NextGroupStart => varint::encode(Self::NEXT_GROUP_START, out),
            Self::LargestObject => varint::encode(Self::LARGEST_OBJECT, out),
            Self::AbsoluteStart(start) => {
                varint::encode(Self::ABSOLUTE_START, out);
                write_location(start, out);
            }
            Self::AbsoluteRange { start, end_group } => {
                assert!(
                    end_group >= start.group,
                    "a filter ends in or behind its first group"
                );
                varint::encode(Self::ABSOLUTE_RANGE, out);
                write_location(start, out);
                varint::encode(end_group - start.group, out);
            }
        }
    }
}

impl Parameters {
    /// Returns an empty set of parameters.
    pub fn none() -> Self {
        Self::default()
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

    /// Checks that every parameter may occur at this step of a request of this kind [moqt-18 §10.2.1].
    ///
    /// Decoding checks this too, except in `REQUEST_OK` and `REQUEST_UPDATE`, whose request it does not know.
    pub fn check(&self, draft: Draft, kind: RequestKind, step: Step) -> Result<(), Violation> {
        let scope = Scopes::of(kind, step);
        let misplaced = draft
            .parameters()
            .iter()
            .any(|row| self.has(row.kind) && !row.scopes.overlaps(scope));
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
            if parameters.has(row.kind) && row.kind != ParameterKind::AuthorizationToken {
                return Err(DecodeError::protocol("a parameter is repeated"));
            }
            parameters.read(row, cursor)?;
        }
        Ok(parameters)
    }

    /// Appends a count and the parameters, in ascending order of type.
    pub(crate) fn encode(&self, draft: Draft, out: &mut BytesMut) {
        let rows = || draft.parameters().iter().filter(|row| self.has(row.kind));
        let repeats = self.authorization_tokens.len().saturating_sub(1);
        varint::encode((rows().count() + repeats) as u64, out);
        let mut previous = 0;
        for row in rows() {
            varint::encode(row.code - previous, out);
            previous = row.code;
            self.write(row, out);
        }
    }

    fn has(&self, kind: ParameterKind) -> bool {
        match kind {
            ParameterKind::ObjectDeliveryTimeout => self.object_delivery_timeout.is_some(),
            ParameterKind::AuthorizationToken => !self.authorization_tokens.is_empty(),
            ParameterKind::RendezvousTimeout => self.rendezvous_timeout.is_some(),
            ParameterKind::SubgroupDeliveryTimeout => self.subgroup_delivery_timeout.is_some(),
            ParameterKind::Expires => self.expires.is_some(),
            ParameterKind::LargestObject => self.largest_object.is_some(),
            ParameterKind::FillTimeout => self.fill_timeout.is_some(),
            ParameterKind::Forward => self.forward.is_some(),
            ParameterKind::SubscriberPriority => self.subscriber_priority.is_some(),
            ParameterKind::SubscriptionFilter => self.filter.is_some(),
            ParameterKind::GroupOrder => self.group_order.is_some(),
            ParameterKind::NewGroupRequest => self.new_group_request.is_some(),
            ParameterKind::TrackNamespacePrefix => self.track_namespace_prefix.is_some(),
        }
    }

    fn read(&mut self, row: &ParameterRow, cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
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
                self.forward = Some(match read_small(row, cursor)? {
                    0 => false,
                    1 => true,
                    _ => return Err(DecodeError::protocol("FORWARD is neither 0 nor 1")),
                });
            }
            ParameterKind::SubscriberPriority => {
                let priority = u8::try_from(read_small(row, cursor)?)
                    .map_err(|_| DecodeError::protocol("SUBSCRIBER_PRIORITY is above 255"))?;
                self.subscriber_priority = Some(priority);
            }
            ParameterKind::SubscriptionFilter => self.filter = Some(read_filter(row, cursor)?),
            ParameterKind::GroupOrder => {
                let order = GroupOrder::from_code(read_small(row, cursor)?)
                    .ok_or(DecodeError::protocol("GROUP_ORDER is neither 1 nor 2"))?;
                self.group_order = Some(order);
            }
            ParameterKind::NewGroupRequest => self.new_group_request = Some(cursor.varint()?),
            ParameterKind::TrackNamespacePrefix => {
                self.track_namespace_prefix = Some(Namespace::decode(cursor)?);
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

    fn write(&self, row: &ParameterRow, out: &mut BytesMut) {
        match row.kind {
            ParameterKind::ObjectDeliveryTimeout => {
                write_duration(self.object_delivery_timeout, out);
            }
            ParameterKind::AuthorizationToken => self.write_tokens(out),
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
            ParameterKind::SubscriptionFilter => write_filter(row, self.filter, out),
            ParameterKind::GroupOrder => {
                write_small(row, self.group_order.map(GroupOrder::code), out);
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
        }
    }

    fn write_tokens(&self, out: &mut BytesMut) {
        for (index, token) in self.authorization_tokens.iter().enumerate() {
            if index > 0 {
                varint::encode(0, out);
            }
            write_prefixed(out, |out| token.encode(out));
        }
    }
}

const MISPLACED: Violation = Violation::protocol("a parameter is not permitted in this message");

/// More tokens than [`AUTHORIZATION_TOKENS_MAX`].
pub(crate) const TOO_MANY_TOKENS: Violation =
    Violation::beyond_limit("more authorization tokens in a message than this endpoint accepts");

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

fn read_filter(row: &ParameterRow, cursor: &mut Cursor<'_>) -> Result<Filter, DecodeError> {
    if row.encoding != ParameterEncoding::LengthPrefixed {
        return Filter::decode(cursor);
    }
    let encoded = read_prefixed(cursor)?;
    let mut inner = Cursor::new(&encoded);
    let filter = Filter::decode(&mut inner).map_err(DecodeError::into_violation)?;
    if !inner.is_empty() {
        return Err(DecodeError::protocol(
            "a subscription filter is followed by more bytes",
        ));
    }
    Ok(filter)
}

fn write_filter(row: &ParameterRow, filter: Option<Filter>, out: &mut BytesMut) {
    let Some(filter) = filter else { return };
    if row.encoding == ParameterEncoding::LengthPrefixed {
        write_prefixed(out, |out| filter.encode(out));
    } else {
        filter.encode(out);
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
