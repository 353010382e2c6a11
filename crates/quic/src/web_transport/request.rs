//! The request that opens a session, its answer, and the choice of a subprotocol
//! (draft-ietf-webtrans-http3-15 §3.2, §3.3).

use bytes::Bytes;
use sfv::{BareItem, Item, ItemSerializer, List, ListEntry, ListSerializer, Parser, StringRef};

use weir_h3::{
    frame,
    head::{RequestHead, ResponseHead},
};

/// The request of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Authority of the URL: `host` or `host:port`.
    pub authority: String,
    /// Path and query of the URL; begins with a slash.
    pub path: String,
    /// Subprotocols on offer, preferred first, such as `moqt-18`.
    pub protocols: Vec<String>,
    /// The origin of the page, if the client is a browser.
    pub origin: Option<String>,
}

/// The requests that a server accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Supported subprotocols, preferred first. A client has to offer one of them, unless the list is empty.
    pub protocols: Vec<String>,
    /// Accepted paths, compared without the query; empty for all.
    pub paths: Vec<String>,
    /// Accepted origins of pages, such as `https://example.org`; empty for all. A client without an origin is not a
    /// browser, and is always accepted.
    pub origins: Vec<String>,
}

/// Tokens of `:protocol`: of all drafts, and of those since draft-ietf-webtrans-http3-15.
pub(super) const TOKEN: &str = "webtransport";
pub(super) const TOKEN_DRAFT15: &str = "webtransport-h3";

const AVAILABLE: &str = "wt-available-protocols";
const CHOSEN: &str = "wt-protocol";
/// The header field by which draft-02 and a few later drafts announce their version.
const REQUEST_DRAFT: (&str, &str) = ("sec-webtransport-http3-draft02", "1");
const RESPONSE_DRAFT: (&str, &str) = ("sec-webtransport-http3-draft", "draft02");

/// A request that was accepted, with the chosen subprotocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) request: Request,
    pub(super) protocol: Option<String>,
    /// Whether the client uses draft-02 or one close to it, and expects the version in the answer.
    pub(super) is_draft02: bool,
}

impl Offer {
    /// Decides on a request: accepted, or refused with a status.
    pub(super) fn decide(&self, head: &RequestHead) -> Result<Accepted, u16> {
        if &head.method[..] != b"CONNECT" {
            return Err(405);
        }
        let Some(token) = &head.protocol else {
            return Err(405);
        };
        if token != TOKEN && token != TOKEN_DRAFT15 {
            // RFC 9220 §3.
            return Err(501);
        }
        if head.scheme.as_deref() != Some(b"https") {
            return Err(400);
        }
        let text = |value: &Bytes| String::from_utf8(value.to_vec()).map_err(|_| 400_u16);
        let path = head.path.as_ref().map_or(Err(400), text)?;
        let authority = head.authority.as_ref().map_or(Err(400), text)?;
        if !path.starts_with('/') {
            return Err(400);
        }
        let name = path.split('?').next().unwrap_or_default();
        if !self.paths.is_empty() && !self.paths.iter().any(|known| known == name) {
            return Err(404);
        }
        let origin = head.field("origin").map(text).transpose()?;
        if origin.as_ref().is_some_and(|origin| !self.admits(origin)) {
            return Err(403);
        }
        let offered = available_protocols(head);
        let protocol = self.protocols.iter().find(|known| offered.contains(known));
        if !self.protocols.is_empty() && protocol.is_none() {
            // Without a subprotocol there is no application protocol [moqt-18 §3.1].
            return Err(if offered.is_empty() { 400 } else { 406 });
        }
        Ok(Accepted {
            protocol: protocol.cloned(),
            is_draft02: head.field(REQUEST_DRAFT.0).is_some(),
            request: Request {
                authority,
                path,
                protocols: offered,
                origin,
            },
        })
    }
}

impl Offer {
    /// Returns whether a page from `origin` may open a session (RFC 6454 §5).
    fn admits(&self, origin: &str) -> bool {
        let mut origins = self.origins.iter();
        self.origins.is_empty() || origins.any(|known| known.eq_ignore_ascii_case(origin))
    }
}

impl Request {
    /// Returns the HEADERS frame of this request.
    pub(super) fn encode(&self, token: &str) -> Bytes {
        let mut fields = vec![
            (":method", "CONNECT"),
            (":scheme", "https"),
            (":authority", &self.authority),
            (":path", &self.path),
            (":protocol", token),
            REQUEST_DRAFT,
        ];
        if let Some(origin) = &self.origin {
            fields.push(("origin", origin));
        }
        let protocols = list(&self.protocols);
        if let Some(protocols) = &protocols {
            fields.push((AVAILABLE, protocols));
        }
        headers_frame(&fields)
    }

    /// Returns the subprotocol in an answer, if it was offered.
    pub(super) fn chosen(&self, head: &ResponseHead) -> Option<String> {
        let item: Item = Parser::new(&head.field(CHOSEN)?[..]).parse().ok()?;
        let BareItem::String(name) = item.bare_item else {
            return None;
        };
        let mut offered = self.protocols.iter();
        offered.find(|offered| *offered == name.as_str()).cloned()
    }
}

impl Accepted {
    /// Returns the HEADERS frame of the acceptance.
    pub(super) fn encode(&self) -> Bytes {
        let mut fields = vec![(":status", "200")];
        if self.is_draft02 {
            fields.push(RESPONSE_DRAFT);
        }
        let name = self.protocol.as_deref();
        let name = name.and_then(|name| StringRef::from_str(name).ok());
        let name = name.map(|name| ItemSerializer::new().bare_item(name).finish());
        if let Some(name) = &name {
            fields.push((CHOSEN, name));
        }
        headers_frame(&fields)
    }
}

/// Returns the HEADERS frame of an answer with only a status.
pub(super) fn encode_refusal(status: u16) -> Bytes {
    let text = status.to_string();
    let mut fields = vec![(":status", &text[..])];
    if status == 405 {
        fields.push(("allow", "CONNECT"));
    }
    headers_frame(&fields)
}

fn headers_frame(fields: &[(&str, &str)]) -> Bytes {
    let mut out = Vec::new();
    frame::encode_headers(fields, &mut out);
    out.into()
}

/// Returns the subprotocols that a client offers. A field with a value that is not a string counts as absent; several
/// fields form one list.
fn available_protocols(head: &RequestHead) -> Vec<String> {
    let fields = head.fields.iter().filter(|field| field.name == AVAILABLE);
    let mut text = Vec::new();
    for field in fields {
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(&field.value);
    }
    let Ok(list) = Parser::new(&text).parse::<List>() else {
        return Vec::new();
    };
    let names = list.iter().map(|entry| match entry {
        ListEntry::Item(Item {
            bare_item: BareItem::String(name),
            ..
        }) => Some(name.as_str().to_owned()),
        ListEntry::Item(_) | ListEntry::InnerList(_) => None,
    });
    names.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Returns a structured field with these strings; `None` if there are none.
fn list(names: &[String]) -> Option<String> {
    let mut serializer = ListSerializer::new();
    for name in names {
        let _parameters = serializer.bare_item(StringRef::from_str(name).ok()?);
    }
    serializer.finish()
}
