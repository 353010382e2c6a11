//! Decides how to answer a request's head. The decision on equal heads is cached.

use bytes::Bytes;
use weir_h3::{
    Violation,
    head::{HeadError, RequestHead, content_length},
    qpack::SectionError,
};

use super::{
    site::{Answer, Site},
    target,
};

/// How to answer a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Answer when the request is complete.
    Answer {
        answer: Answer,
        /// The announced bytes of content.
        content_length: Option<u64>,
    },
    /// Answer at once, since the head is too large.
    TooLarge,
    /// Reset the stream, since the request violates HTTP (RFC 9114 §4.1.2).
    Malformed,
}

/// A cache of decisions by the bytes of a head. Without a dynamic table, equal bytes have equal meaning, and a client
/// that requests one file a million times sends the same bytes each time.
#[derive(Debug, Default)]
pub(super) struct Plans {
    known: Vec<(Bytes, Plan)>,
    /// The entry that the next one replaces.
    oldest: usize,
}

impl Plans {
    /// Decides on a head, in a field section of up to `bytes_max`.
    pub(super) fn decide(
        &mut self,
        section: &Bytes,
        site: &Site,
        bytes_max: usize,
    ) -> Result<Plan, Violation> {
        if let Some((_, plan)) = self.known.iter().find(|(known, _)| known == section) {
            return Ok(plan.clone());
        }
        let plan = decide(section.clone(), site, bytes_max)?;
        if section.len() <= SECTION_BYTES_MAX {
            // A copy, since the section may be part of a larger allocation.
            let entry = (Bytes::copy_from_slice(section), plan.clone());
            if self.known.len() < PLANS_MAX {
                self.known.push(entry);
            } else {
                self.known[self.oldest] = entry;
                self.oldest = (self.oldest + 1) % PLANS_MAX;
            }
        }
        Ok(plan)
    }
}

fn decide(section: Bytes, site: &Site, bytes_max: usize) -> Result<Plan, Violation> {
    let head = match RequestHead::decode(section, bytes_max) {
        Ok(head) => head,
        Err(HeadError::Section(SectionError::Broken(violation))) => return Err(violation),
        Err(HeadError::Section(SectionError::TooLarge)) => return Ok(Plan::TooLarge),
        Err(HeadError::Malformed(_)) => return Ok(Plan::Malformed),
    };
    let Ok(content_length) = content_length(&head.fields) else {
        return Ok(Plan::Malformed);
    };
    let has_authority = |value: Option<&Bytes>| value.is_some_and(|value| !value.is_empty());
    // One of the two is required, and both must be equal (RFC 9114 §4.3.1).
    let (authority, host) = (head.authority.as_ref(), head.field("host"));
    let is_ambiguous = host.is_some() && authority.is_some() && host != authority;
    if is_ambiguous || !(has_authority(authority) || has_authority(host)) {
        return Ok(Plan::Malformed);
    }
    let answer = match answer(&head, site) {
        Ok(answer) => answer,
        Err(status) => Answer::refusal(status),
    };
    Ok(Plan::Answer {
        answer,
        content_length,
    })
}

/// Returns the response, or the status of a refusal.
fn answer(head: &RequestHead, site: &Site) -> Result<Answer, u16> {
    let is_head = match &head.method[..] {
        b"GET" => false,
        b"HEAD" => true,
        _ => return Err(405),
    };
    if head.scheme.as_deref() != Some(b"https") {
        return Err(400);
    }
    let path = head.path.as_deref().and_then(target::path).ok_or(400_u16)?;
    site.answer(&path, is_head).ok_or(404)
}

/// Cached heads: a benchmark has one, a page with its parts a few.
const PLANS_MAX: usize = 8;
/// The longest head that is cached. Those of browsers have about 400 bytes.
const SECTION_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::SiteLimits;
    use weir_h3::{Code, qpack};

    const GET: [(&str, &str); 4] = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/1k"),
    ];

    fn section(fields: &[(&str, &str)]) -> Bytes {
        let mut out = Vec::new();
        qpack::encode_prefix(&mut out);
        for (name, value) in fields {
            qpack::encode_field(name.as_bytes(), value.as_bytes(), &mut out);
        }
        out.into()
    }

    fn site() -> Site {
        Site::new(SiteLimits {
            made_bytes_max: 4096,
            ..SiteLimits::default()
        })
    }

    /// Returns the status of the response; 0 for a stream that is reset.
    fn status(fields: &[(&str, &str)]) -> u16 {
        match decide(section(fields), &site(), 1000).unwrap() {
            Plan::Answer { answer, .. } => answer.status,
            Plan::Malformed => MALFORMED,
            Plan::TooLarge => 431,
        }
    }

    const MALFORMED: u16 = 0;

    #[test]
    fn each_request_has_its_status() {
        let with = |index: usize, value: &'static str| {
            let mut fields = GET;
            fields[index].1 = value;
            status(&fields)
        };
        assert_eq!(with(0, "GET"), 200);
        assert_eq!(with(0, "HEAD"), 200);
        assert_eq!(with(0, "POST"), 405);
        assert_eq!(with(0, "get"), 405);
        assert_eq!(with(1, "http"), 400);
        assert_eq!(with(2, ""), MALFORMED);
        assert_eq!(with(3, "/none"), 404);
        assert_eq!(with(3, "/../1k"), 400);
        assert_eq!(with(3, "/8k"), 404);
        assert_eq!(with(3, ""), MALFORMED);
        let connect = [(":method", "CONNECT"), (":authority", "a:1")];
        assert_eq!(status(&connect), 405);
    }

    #[test]
    fn fields_that_contradict_each_other() {
        let with = |more: &[(&'static str, &'static str)]| {
            let mut fields = GET.to_vec();
            fields.extend(more);
            status(&fields)
        };
        assert_eq!(with(&[("host", "a")]), 200);
        assert_eq!(with(&[("host", "b")]), MALFORMED);
        assert_eq!(status(&[GET[0], GET[1], GET[3], ("host", "b")]), 200);
        assert_eq!(status(&[GET[0], GET[1], GET[3]]), MALFORMED);
        assert_eq!(with(&[("content-length", "0")]), 200);
        let twice = [("content-length", "7"), ("content-length", "7")];
        assert_eq!(with(&twice), 200);
        for bad in ["", "+1", "-1", "1x", "99999999999999999999"] {
            assert_eq!(with(&[("content-length", bad)]), MALFORMED);
        }
        let two = [("content-length", "7"), ("content-length", "8")];
        assert_eq!(with(&two), MALFORMED);
    }

    #[test]
    fn what_is_known_is_decided_as_before() {
        let (site, mut plans) = (site(), Plans::default());
        let paths: Vec<String> = (0..3 * PLANS_MAX).map(|n| format!("/{n}k")).collect();
        for _ in 0..2 {
            for path in &paths {
                let mut fields = GET;
                fields[3].1 = path;
                let section = section(&fields);
                let plan = decide(section.clone(), &site, 1000);
                assert_eq!(plans.decide(&section, &site, 1000), plan);
                assert_eq!(plans.decide(&section, &site, 1000), plan);
                assert!(plans.known.len() <= PLANS_MAX);
            }
        }
        let mut plans = Plans::default();
        let value = "@".repeat(SECTION_BYTES_MAX);
        let mut fields = GET.to_vec();
        fields.push(("x", &value));
        plans.decide(&section(&fields), &site, 5000).unwrap();
        assert!(plans.known.is_empty(), "too long to be remembered");
    }

    #[test]
    fn a_section_that_cannot_be_read_is_a_violation_each_time() {
        let (site, mut plans) = (site(), Plans::default());
        for _ in 0..2 {
            // Refers to the dynamic table.
            let section = Bytes::from_static(&[0, 0, 0x80]);
            let violation = plans.decide(&section, &site, 1000).unwrap_err();
            assert_eq!(violation.code, Code::DECOMPRESSION_FAILED);
        }
        assert_eq!(decide(section(&GET), &site, 100), Ok(Plan::TooLarge));
    }
}
