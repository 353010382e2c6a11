//! The entries of the registry: keys, and values in JSON.
//!
//! A relay has the lease `v2.SCOPE.RELAY`, and among the registrations the key `v2.SCOPE.HASH.RELAY` for each namespace, and
//! `v2.SCOPE.relay.RELAY`, so that every scope with a relay has a registration.

use anyhow::{Context as _, bail};
use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use weir_moqt::name::Namespace;
use weir_relay::registry::RelayId;

/// The part of a bucket that a fleet uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope(String);

impl Scope {
    pub(crate) fn new(text: &str) -> anyhow::Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if text.is_empty() || text.len() > SCOPE_BYTES_MAX || !text.bytes().all(is_plain) {
            bail!(
                "expected 1 to {SCOPE_BYTES_MAX} letters, digits, `-` and `_`, not `{}`",
                text.escape_debug()
            );
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the keys of the scope, as a filter.
    pub(crate) fn keys(&self) -> String {
        format!("{VERSION}.{}.>", self.0)
    }

    /// Returns the key of a relay's lease.
    pub(crate) fn lease_key(&self, relay: RelayId) -> String {
        format!("{VERSION}.{}.{relay}", self.0)
    }

    /// Returns the key of a relay's registration of a namespace; `None` for the relay itself.
    pub(crate) fn key(&self, namespace: Option<&Namespace>, relay: RelayId) -> String {
        let what = namespace.map_or_else(|| "relay".to_owned(), hash);
        format!("{VERSION}.{}.{what}.{relay}", self.0)
    }
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) relay: RelayId,
    /// The URL of the relay. Only leases have it.
    pub(crate) url: Option<String>,
    /// The namespace. Leases have none, and neither has the registration of the relay itself.
    pub(crate) namespace: Option<Namespace>,
}

/// An entry in JSON. The fields of a namespace are in hexadecimal digits, since they may be any bytes.
#[derive(Serialize, Deserialize)]
struct Written {
    relay: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Vec<String>>,
}

impl Entry {
    pub(crate) fn write(&self) -> Vec<u8> {
        let namespace = self.namespace.as_ref();
        let written = Written {
            relay: self.relay.to_string(),
            url: self.url.clone(),
            namespace: namespace.map(|namespace| namespace.fields().map(digits).collect()),
        };
        serde_json::to_vec(&written).unwrap_or_default()
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// It is of another form.
    pub(crate) fn read(value: &[u8]) -> anyhow::Result<Self> {
        let written: Written = serde_json::from_slice(value)?;
        let relay = u64::from_str_radix(&written.relay, 16).context("relay")?;
        let fields = written.namespace.map(|fields| {
            let fields = fields.iter().map(|field| bytes(field));
            fields.collect::<Option<Vec<_>>>().context("namespace")
        });
        let namespace = fields.transpose()?.map(Namespace::new).transpose()?;
        Ok(Self {
            relay: RelayId(relay),
            url: written.url,
            namespace,
        })
    }
}

/// Returns the hash of a namespace in keys: 64 bits, which tell the namespaces of one relay apart.
fn hash(namespace: &Namespace) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for field in namespace.fields() {
        context.update(&(field.len() as u64).to_be_bytes());
        context.update(field);
    }
    digits(&context.finish().as_ref()[..16])
}

fn digits(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok().filter(|it| it.len() == 2)?;
        u8::from_str_radix(text, 16).ok()
    };
    pairs.map(byte).collect()
}

/// The version of keys and values.
const VERSION: &str = "v2";
/// The longest scope.
const SCOPE_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written() {
        let namespaces = [
            None,
            Some(Namespace::EMPTY),
            Namespace::new([&b"live"[..], &[0, 255, b'"']]).ok(),
        ];
        for namespace in namespaces {
            for url in [None, Some("moqt://relay.example:4443".to_owned())] {
                let entry = Entry {
                    relay: RelayId(0xabc),
                    url,
                    namespace: namespace.clone(),
                };
                assert_eq!(Entry::read(&entry.write()).unwrap(), entry);
            }
        }
        for bad in [
            "",
            "{}",
            r#"{"relay":"x","url":"moqt://a:1"}"#,
            r#"{"relay":"1","url":"moqt://a:1","namespace":["6"]}"#,
            r#"{"relay":"1","url":"moqt://a:1","namespace":["zz"]}"#,
            r#"{"relay":"1","url":"moqt://a:1","namespace":[""]}"#,
        ] {
            assert!(Entry::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_tell_namespaces_relays_and_scopes_apart() {
        let scope = Scope::new("eu-1").unwrap();
        let spaces = [&["a", "b"][..], &["ab"], &["a"], &[]];
        let spaces = spaces.map(|fields| Namespace::new(fields).unwrap());
        let mut keys: Vec<String> = spaces
            .iter()
            .map(|namespace| scope.key(Some(namespace), RelayId(1)))
            .collect();
        keys.push(scope.key(None, RelayId(1)));
        keys.push(scope.key(Some(&spaces[0]), RelayId(2)));
        keys.push(Scope::new("eu-2").unwrap().key(None, RelayId(1)));
        keys.push(scope.lease_key(RelayId(1)));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 8);
        assert_eq!(
            scope.key(None, RelayId(1)),
            "v2.eu-1.relay.0000000000000001"
        );
        for bad in ["", "a.b", "a>", "*", "ä"] {
            assert!(Scope::new(bad).is_err(), "{bad}");
        }
    }
}
