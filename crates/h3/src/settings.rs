//! SETTINGS: the properties and limits of an endpoint (RFC 9114 §7.2.4).

use bytes::BufMut;

use super::{
    Code, Violation,
    frame::{self, frame_type},
    varint,
};

/// Identifiers of settings.
pub mod setting {
    /// Bytes that the peer's QPACK encoder may use for its dynamic table (RFC 9204 §5).
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 0x01;
    /// Size of the largest field section that is accepted, in bytes (RFC 9114 §7.2.4.1).
    pub const MAX_FIELD_SECTION_SIZE: u64 = 0x06;
    /// Number of streams that may wait for the dynamic table (RFC 9204 §5).
    pub const QPACK_BLOCKED_STREAMS: u64 = 0x07;
    /// 1: the server supports extended CONNECT (RFC 9220 §5).
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 0x08;
    /// 1: HTTP datagrams are supported (RFC 9297 §5.1).
    pub const H3_DATAGRAM: u64 = 0x33;
    /// 1: HTTP datagrams are supported, as in draft-ietf-masque-h3-datagram-04, which Chromium still sends.
    pub const H3_DATAGRAM_DRAFT04: u64 = 0x00ff_d277;
    /// 1: WebTransport as in draft-ietf-webtrans-http3-02 up to -06.
    pub const ENABLE_WEBTRANSPORT: u64 = 0x2b60_3742;
    /// Largest number of simultaneous WebTransport sessions, in draft-ietf-webtrans-http3-07 up to -12.
    pub const WEBTRANSPORT_MAX_SESSIONS: u64 = 0xc671_706a;
    /// Largest number of simultaneous WebTransport sessions, in draft-ietf-webtrans-http3-13 and -14.
    pub const WT_MAX_SESSIONS: u64 = 0x14e9_cd29;
    /// 1: WebTransport as in draft-ietf-webtrans-http3-15 and later.
    pub const WT_ENABLED: u64 = 0x2c7c_f000;
}

/// The settings of one endpoint, known or not, in their order in the frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    entries: Vec<(u64, u64)>,
}

impl Settings {
    /// Creates settings with these identifiers and values.
    pub fn new(entries: &[(u64, u64)]) -> Self {
        Self {
            entries: entries.to_vec(),
        }
    }

    /// Returns the value of a setting, if it was sent.
    pub fn value(&self, identifier: u64) -> Option<u64> {
        let mut entries = self.entries.iter();
        entries.find_map(|&(known, value)| (known == identifier).then_some(value))
    }

    /// Returns whether a setting was sent with a value other than 0.
    pub fn has(&self, identifier: u64) -> bool {
        self.value(identifier).is_some_and(|value| value > 0)
    }

    /// Appends the whole frame.
    pub fn encode(&self, out: &mut impl BufMut) {
        let mut payload = Vec::with_capacity(self.entries.len() * 9);
        for &(identifier, value) in &self.entries {
            varint::encode(identifier, &mut payload);
            varint::encode(value, &mut payload);
        }
        frame::encode_head(frame_type::SETTINGS, payload.len(), out);
        out.put_slice(&payload);
    }

    /// Decodes the payload of a frame.
    pub fn decode(mut payload: &[u8]) -> Result<Self, Violation> {
        if payload.len() > SETTINGS_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let mut settings = Self::default();
        while !payload.is_empty() {
            let identifier = take(&mut payload)?;
            let value = take(&mut payload)?;
            check(identifier, value)?;
            if settings.value(identifier).is_some() {
                return Err(wrong("a setting stands in SETTINGS twice"));
            }
            settings.entries.push((identifier, value));
        }
        Ok(settings)
    }
}

fn take(payload: &mut &[u8]) -> Result<u64, Violation> {
    let (value, length) = varint::decode(payload).ok_or(Violation::new(
        Code::FRAME_ERROR,
        "SETTINGS end inside a setting",
    ))?;
    *payload = &payload[length..];
    Ok(value)
}

fn check(identifier: u64, value: u64) -> Result<(), Violation> {
    match identifier {
        0x00 | 0x02..=0x05 => Err(wrong("a setting of HTTP/2 stands in SETTINGS")),
        setting::ENABLE_CONNECT_PROTOCOL | setting::H3_DATAGRAM if value > 1 => {
            Err(wrong("a setting that is 0 or 1 has another value"))
        }
        _ => Ok(()),
    }
}

const fn wrong(reason: &'static str) -> Violation {
    Violation::new(Code::SETTINGS_ERROR, reason)
}

/// Largest payload accepted: some hundred settings, of which a dozen exist.
pub const SETTINGS_BYTES_MAX: usize = 1024;
/// The violation for a longer payload.
pub(crate) const TOO_LONG: Violation =
    Violation::new(Code::EXCESSIVE_LOAD, "SETTINGS are longer than 1024 bytes");

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of Chromium 156, which adds a reserved identifier.
    const CHROMIUM: [u8; 39] = [
        0x04, 0x25, 0x01, 0x80, 0x01, 0x00, 0x00, 0x06, 0x80, 0x00, 0x40, 0x00, 0x07, 0x40, 0x64,
        0x33, 0x01, 0x80, 0xff, 0xd2, 0x77, 0x01, 0xab, 0x60, 0x37, 0x42, 0x01, 0xc0, 0, 0, 0x01,
        0x08, 0xf9, 0x1d, 0x19, 0x9b, 0x19, 0x6d, 0xfb,
    ];

    #[test]
    fn what_a_browser_sends() {
        let settings = Settings::decode(&CHROMIUM[2..]).unwrap();
        assert_eq!(
            settings.value(setting::QPACK_MAX_TABLE_CAPACITY),
            Some(65_536)
        );
        assert_eq!(
            settings.value(setting::MAX_FIELD_SECTION_SIZE),
            Some(16_384)
        );
        assert_eq!(settings.value(setting::QPACK_BLOCKED_STREAMS), Some(100));
        assert!(settings.has(setting::H3_DATAGRAM));
        assert!(settings.has(setting::H3_DATAGRAM_DRAFT04));
        assert!(settings.has(setting::ENABLE_WEBTRANSPORT));
        assert!(!settings.has(setting::WT_ENABLED));
        let mut out = Vec::new();
        settings.encode(&mut out);
        assert_eq!(out, CHROMIUM);
    }

    #[test]
    fn each_rule_has_its_code() {
        for (payload, code) in [
            (&[0x06_u8][..], Code::FRAME_ERROR),
            (&[0x06, 0x40], Code::FRAME_ERROR),
            (&[0x06, 1, 0x06, 1], Code::SETTINGS_ERROR),
            (&[0x00, 1], Code::SETTINGS_ERROR),
            (&[0x02, 1], Code::SETTINGS_ERROR),
            (&[0x05, 1], Code::SETTINGS_ERROR),
            (&[0x08, 2], Code::SETTINGS_ERROR),
            (&[0x33, 2], Code::SETTINGS_ERROR),
        ] {
            let violation = Settings::decode(payload).unwrap_err();
            assert_eq!(violation.code, code, "{payload:x?}");
        }
        assert_eq!(Settings::decode(&[]), Ok(Settings::default()));
    }

    #[test]
    fn as_long_as_the_limit_and_one_past_it() {
        // Distinct identifiers of four bytes with values of four bytes, then a short one.
        let mut payload = Vec::new();
        for identifier in 0..u32::try_from(SETTINGS_BYTES_MAX / 8).unwrap() {
            payload.put_u32(0x8000_8000 + identifier);
            payload.put_u32(0x8000_0001);
        }
        assert_eq!(payload.len(), SETTINGS_BYTES_MAX);
        assert!(Settings::decode(&payload).is_ok());
        payload.push(0);
        assert_eq!(Settings::decode(&payload), Err(TOO_LONG));
    }
}
