//! SETUP and its options [moqt-18 §10.3], whose code points are the same in all drafts.

use bytes::{Bytes, BytesMut};

use super::Setup;
use super::fields::Field;
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::{DecodeError, SessionError};
use crate::parameter::{AUTHORIZATION_TOKENS_MAX, TOO_MANY_TOKENS};
use crate::property::{PairWriter, Pairs, Value};
use crate::scope::Scopes;
use crate::token::Token;

const PATH: u64 = 0x01;
const AUTHORIZATION_TOKEN: u64 = 0x03;
const MAX_AUTH_TOKEN_CACHE_SIZE: u64 = 0x04;
const AUTHORITY: u64 = 0x05;
const MAX_FILTER_RANGES: u64 = 0x06;
const MOQT_IMPLEMENTATION: u64 = 0x07;
const MAX_REQUEST_UPDATES: u64 = 0x08;
/// "weir" in ASCII, an even number, whose value is an integer.
const FLEET_RELAY: u64 = 0x7765_6972;

const REPEATED: DecodeError = DecodeError::protocol("a setup option is repeated");

impl Field for Setup {
    fn read(draft: Draft, _: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let encoded = cursor.rest();
        let mut setup = Self::default();
        let mut pairs = Pairs::new(&encoded);
        while let Some((option, value)) = pairs.pair()? {
            setup.read_option(draft, option, value)?;
        }
        Ok(setup)
    }

    fn write(&self, draft: Draft, out: &mut BytesMut) {
        let mut writer = PairWriter::default();
        write_text(&mut writer, PATH, self.path.as_deref(), out);
        for token in &self.authorization_tokens {
            let mut encoded = BytesMut::new();
            token.encode(&mut encoded);
            writer.bytes(AUTHORIZATION_TOKEN, &encoded, out);
        }
        if let Some(bytes) = self.max_auth_token_cache_size {
            writer.int(MAX_AUTH_TOKEN_CACHE_SIZE, bytes, out);
        }
        write_text(&mut writer, AUTHORITY, self.authority.as_deref(), out);
        let has_limits = draft.setup_has_limits();
        if let Some(ranges) = self.max_filter_ranges.filter(|_| has_limits) {
            writer.int(MAX_FILTER_RANGES, ranges, out);
        }
        write_text(
            &mut writer,
            MOQT_IMPLEMENTATION,
            self.implementation.as_deref(),
            out,
        );
        if let Some(updates) = self.max_request_updates.filter(|_| has_limits) {
            writer.int(MAX_REQUEST_UPDATES, updates, out);
        }
        if let Some(relay) = self.fleet_relay {
            writer.int(FLEET_RELAY, relay, out);
        }
    }
}

impl Setup {
    fn read_option(
        &mut self,
        draft: Draft,
        option: u64,
        value: Value<'_>,
    ) -> Result<(), DecodeError> {
        match (option, value) {
            (PATH, Value::Bytes(path)) => set(&mut self.path, read_path(path)?),
            (AUTHORITY, Value::Bytes(authority)) => {
                set(&mut self.authority, read_authority(authority)?)
            }
            (MOQT_IMPLEMENTATION, Value::Bytes(name)) => set(
                &mut self.implementation,
                String::from_utf8_lossy(name).into_owned(),
            ),
            (MAX_AUTH_TOKEN_CACHE_SIZE, Value::Int(bytes)) => {
                set(&mut self.max_auth_token_cache_size, bytes)
            }
            (AUTHORIZATION_TOKEN, Value::Bytes(token)) => self.read_token(token),
            (MAX_FILTER_RANGES, Value::Int(ranges)) if draft.setup_has_limits() => {
                set(&mut self.max_filter_ranges, ranges)
            }
            (MAX_REQUEST_UPDATES, Value::Int(updates)) if draft.setup_has_limits() => {
                set(&mut self.max_request_updates, updates)
            }
            (FLEET_RELAY, Value::Int(relay)) => set(&mut self.fleet_relay, relay),
            // "Receivers MUST ignore unrecognized Setup Options", repeated or not.
            (_, Value::Int(_) | Value::Bytes(_)) => Ok(()),
        }
    }

    fn read_token(&mut self, encoded: &[u8]) -> Result<(), DecodeError> {
        if self.authorization_tokens.len() == AUTHORIZATION_TOKENS_MAX {
            return Err(TOO_MANY_TOKENS.into());
        }
        let token = Token::decode(&Bytes::copy_from_slice(encoded))?;
        // The draft says so of servers only. A client cannot use them either, since no alias exists before SETUP.
        if matches!(token, Token::Delete { .. } | Token::UseAlias { .. }) {
            return Err(DecodeError::protocol("a token in SETUP refers to an alias"));
        }
        self.authorization_tokens.push(token);
        Ok(())
    }
}

/// Sets an option that may occur once.
fn set<T>(option: &mut Option<T>, value: T) -> Result<(), DecodeError> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(REPEATED),
    }
}

fn write_text(writer: &mut PairWriter, option: u64, text: Option<&str>, out: &mut BytesMut) {
    let Some(text) = text else { return };
    writer.bytes(option, text.as_bytes(), out);
}

/// Reads `path-abempty [ "?" query ]` of RFC 3986 [moqt-18 §10.3.1.2].
fn read_path(path: &[u8]) -> Result<String, DecodeError> {
    const MALFORMED: DecodeError = DecodeError::Invalid {
        code: SessionError::MALFORMED_PATH,
        reason: "PATH is not the path of a URI",
        number: None,
    };
    let starts_well = matches!(path.first(), None | Some(b'/' | b'?'));
    if !starts_well {
        return Err(MALFORMED);
    }
    read_uri_text(path, b":@/?").ok_or(MALFORMED)
}

/// Reads `[ userinfo "@" ] host [ ":" port ]` of RFC 3986 with a host that is not empty [moqt-18 §10.3.1.1].
fn read_authority(authority: &[u8]) -> Result<String, DecodeError> {
    const MALFORMED: DecodeError = DecodeError::Invalid {
        code: SessionError::MALFORMED_AUTHORITY,
        reason: "AUTHORITY is not the authority of a URI",
        number: None,
    };
    let text = read_uri_text(authority, b":@[]").ok_or(MALFORMED)?;
    let behind_user = text
        .rsplit_once('@')
        .map_or(text.as_str(), |(_, rest)| rest);
    let is_well_formed = if let Some(literal) = behind_user.strip_prefix('[') {
        literal
            .split_once(']')
            .is_some_and(|(address, rest)| !address.is_empty() && is_port_or_nothing(rest))
    } else {
        let host_end = behind_user.find(':').unwrap_or(behind_user.len());
        let (host, rest) = behind_user.split_at(host_end);
        !host.is_empty() && !host.contains([']', '[']) && is_port_or_nothing(rest)
    };
    if is_well_formed {
        Ok(text)
    } else {
        Err(MALFORMED)
    }
}

fn is_port_or_nothing(rest: &str) -> bool {
    rest.is_empty()
        || rest
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the text if each byte is unreserved, a sub-delimiter, one of `also`, or part of a percent-encoding.
fn read_uri_text(bytes: &[u8], also: &[u8]) -> Option<String> {
    let mut rest = bytes;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_first_chunk::<2>()?;
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            rest = behind;
        } else if !first.is_ascii_alphanumeric()
            && !b"-._~!$&'()*+,;=".contains(first)
            && !also.contains(first)
        {
            return None;
        }
    }
    String::from_utf8(bytes.to_vec()).ok()
}
