//! Authorization tokens, sent as a value or as a registered alias [moqt-18 §10.2.2].

use bytes::{Bytes, BytesMut};

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::varint;

/// Size of a registered token in the cache in addition to its value, in bytes [moqt-18 §10.3.1.3].
pub const CACHE_ENTRY_BYTES: u64 = 16;

/// An AUTHORIZATION TOKEN of a message or of SETUP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// Delete the alias and its token.
    Delete {
        /// An alias of the sender.
        alias: u64,
    },
    /// Use the token, and register it under the alias.
    Register {
        /// A new alias of the sender.
        alias: u64,
        /// The token type; 0 for a type agreed out of band.
        token_type: u64,
        /// The token value.
        value: Bytes,
    },
    /// Use the token registered under the alias.
    UseAlias {
        /// An alias of the sender.
        alias: u64,
    },
    /// Use the token without registration.
    UseValue {
        /// The token type; 0 for a type agreed out of band.
        token_type: u64,
        /// The token value.
        value: Bytes,
    },
}

const DELETE: u64 = 0;
const REGISTER: u64 = 1;
const USE_ALIAS: u64 = 2;
const USE_VALUE: u64 = 3;

impl Token {
    /// Decodes a token that fills `encoded`.
    pub(crate) fn decode(encoded: &Bytes) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(encoded);
        let token = Self::read(&mut cursor).map_err(|error| match error {
            DecodeError::Short => DecodeError::key_value("an authorization token is cut off"),
            DecodeError::Invalid { .. } => error,
        })?;
        if !cursor.is_empty() {
            return Err(DecodeError::key_value(
                "an authorization token is followed by more bytes",
            ));
        }
        Ok(token)
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        match cursor.varint()? {
            DELETE => Ok(Self::Delete {
                alias: cursor.varint()?,
            }),
            REGISTER => Ok(Self::Register {
                alias: cursor.varint()?,
                token_type: cursor.varint()?,
                value: cursor.rest(),
            }),
            USE_ALIAS => Ok(Self::UseAlias {
                alias: cursor.varint()?,
            }),
            USE_VALUE => Ok(Self::UseValue {
                token_type: cursor.varint()?,
                value: cursor.rest(),
            }),
            _ => Err(DecodeError::key_value(
                "an authorization token has an unknown alias type",
            )),
        }
    }

    /// Appends the token without a length before it.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Delete { alias } => {
                varint::encode(DELETE, out);
                varint::encode(*alias, out);
            }
            Self::Register {
                alias,
                token_type,
                value,
            } => {
                varint::encode(REGISTER, out);
                varint::encode(*alias, out);
                varint::encode(*token_type, out);
                out.extend_from_slice(value);
            }
            Self::UseAlias { alias } => {
                varint::encode(USE_ALIAS, out);
                varint::encode(*alias, out);
            }
            Self::UseValue { token_type, value } => {
                varint::encode(USE_VALUE, out);
                varint::encode(*token_type, out);
                out.extend_from_slice(value);
            }
        }
    }
}
