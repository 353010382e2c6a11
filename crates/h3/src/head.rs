//! Headers of requests and responses, decoded from field sections (RFC 9114 §4.3).

use bytes::Bytes;

use super::qpack::{Field, Fields, SectionError};

/// The header section of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// `:method`.
    pub method: Bytes,
    /// `:scheme`.
    pub scheme: Option<Bytes>,
    /// `:authority`.
    pub authority: Option<Bytes>,
    /// `:path`, with the query.
    pub path: Option<Bytes>,
    /// `:protocol` of an extended CONNECT (RFC 9220).
    pub protocol: Option<Bytes>,
    /// All other fields, in order.
    pub fields: Vec<Field>,
}

/// The header section of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// `:status`, from 100 to 999.
    pub status: u16,
    /// All other fields, in order.
    pub fields: Vec<Field>,
}

/// Why a header section was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The field section was not accepted.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// The message is malformed: its stream ends with `H3_MESSAGE_ERROR` (RFC 9114 §4.1.2).
    #[error("malformed: {0}")]
    Malformed(&'static str),
}

impl RequestHead {
    /// Decodes the payload of a HEADERS frame whose fields have at most `bytes_max` bytes.
    pub fn decode(section: Bytes, bytes_max: usize) -> Result<Self, HeadError> {
        let mut head = Self::default();
        let mut method = None;
        for field in Fields::new(section, bytes_max) {
            let Field { name, value } = field?;
            let slot = match &name[..] {
                b":method" => &mut method,
                b":scheme" => &mut head.scheme,
                b":authority" => &mut head.authority,
                b":path" => &mut head.path,
                b":protocol" => &mut head.protocol,
                _ => {
                    head.fields.push(checked(Field { name, value })?);
                    continue;
                }
            };
            set(slot, value, &head.fields)?;
        }
        head.method = method.ok_or(HeadError::Malformed("no :method"))?;
        head.check()?;
        Ok(head)
    }

    /// Returns the value of the first field called `name`.
    pub fn field(&self, name: &str) -> Option<&Bytes> {
        find(&self.fields, name)
    }

    fn check(&self) -> Result<(), HeadError> {
        let is_connect = &self.method[..] == b"CONNECT";
        if is_connect && self.protocol.is_none() {
            // RFC 9114 §4.4.
            if self.scheme.is_some() || self.path.is_some() || self.authority.is_none() {
                return Err(HeadError::Malformed(
                    "CONNECT names an authority and nothing else",
                ));
            }
            return Ok(());
        }
        if self.protocol.is_some() && !is_connect {
            return Err(HeadError::Malformed(":protocol without CONNECT"));
        }
        if self.scheme.is_none() {
            return Err(HeadError::Malformed("no :scheme"));
        }
        if self.path.as_ref().is_none_or(Bytes::is_empty) {
            return Err(HeadError::Malformed("no :path"));
        }
        if is_connect && self.authority.as_ref().is_none_or(Bytes::is_empty) {
            return Err(HeadError::Malformed("no :authority"));
        }
        Ok(())
    }
}

impl ResponseHead {
    /// Decodes the payload of a HEADERS frame whose fields have at most `bytes_max` bytes.
    pub fn decode(section: Bytes, bytes_max: usize) -> Result<Self, HeadError> {
        let mut status = None;
        let mut fields = Vec::new();
        for field in Fields::new(section, bytes_max) {
            let Field { name, value } = field?;
            if &name[..] == b":status" {
                set(&mut status, value, &fields)?;
            } else {
                fields.push(checked(Field { name, value })?);
            }
        }
        let status = status.ok_or(HeadError::Malformed("no :status"))?;
        let digits: Option<u16> = std::str::from_utf8(&status)
            .ok()
            .filter(|text| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok());
        let status = digits
            .filter(|status| *status >= 100)
            .ok_or(HeadError::Malformed(":status is no status"))?;
        Ok(Self { status, fields })
    }

    /// Returns the value of the first field called `name`.
    pub fn field(&self, name: &str) -> Option<&Bytes> {
        find(&self.fields, name)
    }
}

/// Returns the content length of a message, if its fields have one. Repeated equal values count once (RFC 9110 §8.6).
pub fn content_length(fields: &[Field]) -> Result<Option<u64>, HeadError> {
    const MALFORMED: HeadError = HeadError::Malformed("content-length is no length");
    let mut announced = None;
    for field in fields.iter().filter(|field| field.name == "content-length") {
        let is_number = !field.value.is_empty() && field.value.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(&field.value).ok().filter(|_| is_number);
        let length: u64 = text.and_then(|text| text.parse().ok()).ok_or(MALFORMED)?;
        if announced.replace(length).is_some_and(|one| one != length) {
            return Err(MALFORMED);
        }
    }
    Ok(announced)
}

fn find<'a>(fields: &'a [Field], name: &str) -> Option<&'a Bytes> {
    let mut fields = fields.iter();
    fields.find_map(|field| (field.name == name).then_some(&field.value))
}

fn set(slot: &mut Option<Bytes>, value: Bytes, fields: &[Field]) -> Result<(), HeadError> {
    if !fields.is_empty() {
        return Err(HeadError::Malformed("a pseudo-field after other fields"));
    }
    if !is_value(&value) {
        return Err(HeadError::Malformed("a control character in a value"));
    }
    if slot.replace(value).is_some() {
        return Err(HeadError::Malformed("a pseudo-field twice"));
    }
    Ok(())
}

/// Checks a field against RFC 9114 §4.2.
fn checked(field: Field) -> Result<Field, HeadError> {
    let is_token = |byte: &u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte)
    };
    if field.name.is_empty() || !field.name.iter().all(is_token) {
        return Err(HeadError::Malformed("a field name that is none"));
    }
    if !is_value(&field.value) {
        return Err(HeadError::Malformed("a control character in a value"));
    }
    match &field.name[..] {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            Err(HeadError::Malformed("a field about connections of HTTP/1"))
        }
        b"te" if &field.value[..] != b"trailers" => {
            Err(HeadError::Malformed("te with something else than trailers"))
        }
        _ => Ok(field),
    }
}

fn is_value(value: &[u8]) -> bool {
    !value.iter().any(|byte| matches!(byte, 0 | b'\n' | b'\r'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qpack;

    fn section(fields: &[(&str, &str)]) -> Bytes {
        let mut out = Vec::new();
        qpack::encode_prefix(&mut out);
        for (name, value) in fields {
            qpack::encode_field(name.as_bytes(), value.as_bytes(), &mut out);
        }
        out.into()
    }

    const GET: [(&str, &str); 4] = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/x?y"),
    ];

    #[test]
    fn a_request() {
        let mut fields = GET.to_vec();
        fields.push(("accept", "*/*"));
        let head = RequestHead::decode(section(&fields), 1000).unwrap();
        assert_eq!(&head.method[..], b"GET");
        assert_eq!(head.path.as_deref(), Some(&b"/x?y"[..]));
        assert_eq!(head.field("accept").unwrap(), "*/*");
        assert_eq!(head.field("host"), None);
        let connect = section(&[(":method", "CONNECT"), (":authority", "a:1")]);
        assert!(RequestHead::decode(connect, 1000).is_ok());
    }

    #[test]
    fn malformed_requests() {
        let with = |more: &[(&'static str, &'static str)]| {
            let mut fields = GET.to_vec();
            fields.extend(more);
            section(&fields)
        };
        for (bad, reason) in [
            (section(&GET[1..]), "no :method"),
            (section(&[GET[0], GET[2], GET[3]]), "no :scheme"),
            (section(&GET[..3]), "no :path"),
            (with(&[(":path", "/")]), "a pseudo-field twice"),
            (
                with(&[("a", "b"), (":protocol", "x")]),
                "a pseudo-field after other fields",
            ),
            (with(&[(":protocol", "x")]), ":protocol without CONNECT"),
            (with(&[(":status", "200")]), "a field name that is none"),
            (with(&[("Accept", "x")]), "a field name that is none"),
            (with(&[("", "x")]), "a field name that is none"),
            (with(&[("a", "b\nc")]), "a control character in a value"),
            (
                with(&[("upgrade", "x")]),
                "a field about connections of HTTP/1",
            ),
            (
                with(&[("te", "gzip")]),
                "te with something else than trailers",
            ),
            (
                section(&[(":method", "CONNECT"), (":scheme", "https")]),
                "CONNECT names an authority and nothing else",
            ),
            (
                section(&[
                    (":method", "CONNECT"),
                    (":protocol", "webtransport"),
                    (":scheme", "https"),
                    (":path", "/"),
                ]),
                "no :authority",
            ),
        ] {
            assert_eq!(
                RequestHead::decode(bad, 1000),
                Err(HeadError::Malformed(reason))
            );
        }
    }

    #[test]
    fn answers() {
        let head = ResponseHead::decode(section(&[(":status", "404"), ("a", "b")]), 1000).unwrap();
        assert_eq!((head.status, head.field("a").unwrap()), (404, &"b".into()));
        for bad in [
            &[][..],
            &[(":status", "")],
            &[(":status", "20")],
            &[(":status", "099")],
            &[(":status", "+20")],
            &[(":status", "200"), (":status", "200")],
            &[("a", "b"), (":status", "200")],
            &[(":status", "200"), (":path", "/")],
        ] {
            let error = ResponseHead::decode(section(bad), 1000).unwrap_err();
            assert!(matches!(error, HeadError::Malformed(_)), "{bad:?}");
        }
    }
}
