//! The fields of messages, and messages that are a sequence of fields.

use bytes::BytesMut;

use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::DecodeError;
use crate::name::{FullTrackName, Namespace};
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::scope::Scopes;
use crate::varint;

/// A field of a message, or a whole message.
pub(super) trait Field: Sized {
    /// Reads the field. Parameters are checked to be permitted in one of `scopes`.
    fn read(draft: Draft, scopes: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError>;

    /// Appends the field.
    fn write(&self, draft: Draft, out: &mut BytesMut);
}

/// Declares messages whose fields are written in the order in which they are listed.
macro_rules! in_order {
    ($(
        $(#[$doc:meta])*
        pub struct $message:ident {
            $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $message {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Field for $message {
            fn read(
                draft: Draft,
                scopes: Scopes,
                cursor: &mut Cursor<'_>,
            ) -> Result<Self, DecodeError> {
                Ok(Self {
                    $($field: Field::read(draft, scopes, cursor)?,)*
                })
            }

            fn write(&self, draft: Draft, out: &mut BytesMut) {
                $(self.$field.write(draft, out);)*
            }
        }
    )*};
}
pub(super) use in_order;

impl Field for u64 {
    fn read(_: Draft, _: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        cursor.varint()
    }

    fn write(&self, _: Draft, out: &mut BytesMut) {
        varint::encode(*self, out);
    }
}

impl Field for Namespace {
    fn read(_: Draft, _: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Self::decode(cursor)
    }

    fn write(&self, _: Draft, out: &mut BytesMut) {
        self.encode(out);
    }
}

impl Field for FullTrackName {
    fn read(_: Draft, _: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Self::decode(cursor)
    }

    fn write(&self, _: Draft, out: &mut BytesMut) {
        self.encode(out);
    }
}

impl Field for Parameters {
    fn read(draft: Draft, scopes: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Self::decode(draft, scopes, cursor)
    }

    fn write(&self, draft: Draft, out: &mut BytesMut) {
        self.encode(draft, out);
    }
}

/// Track Properties, which fill the rest of a message [moqt-18 §2.5].
impl Field for Properties {
    fn read(_: Draft, _: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let properties = Self::decode(cursor.rest())?;
        properties.check_track()?;
        Ok(properties)
    }

    fn write(&self, _: Draft, out: &mut BytesMut) {
        out.extend_from_slice(self.as_bytes());
    }
}
