//! The content of a server: files, and generated content of any size. All of it is stored in encoded form.

use std::sync::OnceLock;

use bytes::{BufMut as _, Bytes, BytesMut};
use rustc_hash::FxHashMap;
use weir_h3::frame::{self, frame_type};

/// The limits of a [`Site`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteLimits {
    /// Files.
    pub files_max: usize,
    /// Bytes of all files.
    pub bytes_max: u64,
    /// The largest generated content in bytes; 0 disables it.
    pub made_bytes_max: usize,
}

impl Default for SiteLimits {
    fn default() -> Self {
        Self {
            files_max: 10_000,
            bytes_max: 1 << 30,
            made_bytes_max: 64 << 20,
        }
    }
}

/// Why a file cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// More files than [`SiteLimits::files_max`].
    #[error("with this file, there are more than files_max, {0}")]
    TooMany(usize),
    /// More bytes than [`SiteLimits::bytes_max`].
    #[error("with this file, all files together exceed bytes_max, {0} bytes")]
    TooLarge(u64),
}

/// Files by path, and one block of memory that generated content of any size is taken from.
#[derive(Debug)]
pub struct Site {
    limits: SiteLimits,
    /// Files by URL path, as bytes, with the leading slash.
    files: FxHashMap<Vec<u8>, File>,
    bytes: u64,
    shared: Bytes,
    /// Generated content of up to [`ONE_PIECE_BYTES_MAX`] by its KiB. Each is encoded when it is first requested.
    small: [OnceLock<File>; 1 + ONE_PIECE_BYTES_MAX / UNIT_BYTES],
}

/// A file, preceded by the frames of its response, so that a request copies and encodes nothing.
#[derive(Debug)]
struct File {
    answer: Bytes,
    /// Bytes of the head alone.
    head_bytes: usize,
}

/// An encoded response, in at most two pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) first: Bytes,
    pub(super) rest: Bytes,
}

impl Site {
    /// Returns a site without files.
    pub fn new(limits: SiteLimits) -> Self {
        let pattern = b"weir ".iter().copied().cycle();
        Self {
            limits,
            files: FxHashMap::default(),
            bytes: 0,
            shared: pattern.take(limits.made_bytes_max).collect(),
            small: [const { OnceLock::new() }; _],
        }
    }

    /// Adds the file for this URL path, such as `/index.html`. Replaces a file of the same path.
    pub fn add(&mut self, path: &str, content: &[u8]) -> Result<(), SiteError> {
        if self.files.len() >= self.limits.files_max {
            return Err(SiteError::TooMany(self.limits.files_max));
        }
        let bytes = self.bytes + content.len() as u64;
        if bytes > self.limits.bytes_max {
            return Err(SiteError::TooLarge(self.limits.bytes_max));
        }
        self.bytes = bytes;
        let file = File::new(content_type(path), content);
        self.files.insert(path.as_bytes().to_vec(), file);
        Ok(())
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the response for a decoded path without its query; `None` if there is no such file.
    pub(super) fn answer(&self, path: &[u8], is_head: bool) -> Option<Answer> {
        let found = self.files.get(path).or_else(|| {
            // The path of a folder means its index.
            let folder = path.strip_suffix(b"/")?;
            self.files.get(&[folder, b"/index.html"].concat())
        });
        match found {
            Some(file) => Some(file.answer(is_head)),
            None => self.made(path, is_head),
        }
    }

    /// Returns the response for a path that names a size: `/15k`, `/2m`.
    fn made(&self, path: &[u8], is_head: bool) -> Option<Answer> {
        let length = size(path)?;
        let content = self.shared.get(..length)?;
        // Small content is cheaper in one piece, which all requests share.
        if let Some(small) = self.small.get(length / UNIT_BYTES) {
            let file = small.get_or_init(|| File::new(DEFAULT_TYPE, content));
            return Some(file.answer(is_head));
        }
        let (mut first, head_bytes) = success(DEFAULT_TYPE, length, 0);
        let rest = if is_head {
            first.truncate(head_bytes);
            Bytes::new()
        } else {
            self.shared.slice(..length)
        };
        Some(Answer {
            status: 200,
            first: first.freeze(),
            rest,
        })
    }
}

impl File {
    fn new(content_type: &str, content: &[u8]) -> Self {
        let (mut answer, head_bytes) = success(content_type, content.len(), content.len());
        answer.put_slice(content);
        Self {
            answer: answer.freeze(),
            head_bytes,
        }
    }

    fn answer(&self, is_head: bool) -> Answer {
        let length = if is_head {
            self.head_bytes
        } else {
            self.answer.len()
        };
        Answer {
            status: 200,
            first: self.answer.slice(..length),
            rest: Bytes::new(),
        }
    }
}

impl Answer {
    /// Returns a response with a status and no content.
    pub(super) fn refusal(status: u16) -> Self {
        let text = status.to_string();
        let mut fields = vec![(":status", &text[..]), ("content-length", "0")];
        if status == 405 {
            fields.push(("allow", "GET, HEAD"));
        }
        Self {
            status,
            first: headers(&fields, 0).freeze(),
            rest: Bytes::new(),
        }
    }
}

/// Encodes the frames before a content of `length` bytes, with room for `room` bytes more. Returns them and the bytes of
/// the head.
fn success(content_type: &str, length: usize, room: usize) -> (BytesMut, usize) {
    let size = length.to_string();
    let fields = [
        (":status", "200"),
        ("content-type", content_type),
        ("content-length", &size),
    ];
    let mut out = headers(&fields, room);
    let head_bytes = out.len();
    if length > 0 {
        frame::encode_head(frame_type::DATA, length, &mut out);
    }
    (out, head_bytes)
}

/// Encodes a HEADERS frame, with room for `room` bytes more.
fn headers(fields: &[(&str, &str)], room: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(HEADERS_BYTES + room);
    frame::encode_headers(fields, &mut out);
    out
}

/// Parses the size in `/15k` or `/2m`.
fn size(path: &[u8]) -> Option<usize> {
    let (unit, digits) = path.strip_prefix(b"/")?.split_last()?;
    let unit = match unit {
        b'k' => UNIT_BYTES,
        b'm' => UNIT_BYTES << 10,
        _ => return None,
    };
    // No sign and no leading zero, so that each size has one name.
    if !digits.first()?.is_ascii_digit() || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    let count: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    count.checked_mul(unit)
}

/// Returns the media type of a file, by its extension.
fn content_type(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    match end.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css",
        "js" | "mjs" => "text/javascript",
        "txt" | "md" => "text/plain;charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "mp4" | "m4s" => "video/mp4",
        "webm" => "video/webm",
        "pdf" => "application/pdf",
        _ => DEFAULT_TYPE,
    }
}

const DEFAULT_TYPE: &str = "application/octet-stream";
/// Generated content up to this size is copied behind its head, so that the engine stores one piece.
const ONE_PIECE_BYTES_MAX: usize = 64 << 10;
/// The smallest size that has a name. All sizes are multiples of it.
const UNIT_BYTES: usize = 1 << 10;
/// An upper bound of a HEADERS frame and the header of a DATA frame.
const HEADERS_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Site {
        Site::new(SiteLimits {
            files_max: 2,
            bytes_max: 10,
            made_bytes_max: 100 << 10,
        })
    }

    #[test]
    fn a_file_as_it_leaves() {
        let mut site = small();
        site.add("/a/index.html", b"hello").unwrap();
        // HEADERS: in the static table (RFC 9204 §A), `:status: 200` is number 25, `content-type: text/html;
        // charset=utf-8` is 52 and `content-length` is 4; the value "5" is a literal. Then DATA.
        let expected = [
            0x01, 0x07, 0, 0, 0xd9, 0xf4, 0x54, 0x01, b'5', 0x00, 0x05, b'h', b'e', b'l', b'l',
            b'o',
        ];
        for path in ["/a/index.html", "/a/"] {
            let answer = site.answer(path.as_bytes(), false).unwrap();
            assert_eq!((answer.status, &answer.first[..]), (200, &expected[..]));
            assert!(answer.rest.is_empty());
            let head = site.answer(path.as_bytes(), true).unwrap();
            assert_eq!(head.first[..], expected[..9]);
        }
        assert_eq!(site.answer(b"/a", false), None);
        assert_eq!(site.answer(b"/", false), None);
    }

    #[test]
    fn as_much_as_the_limits_and_one_more() {
        let mut site = small();
        site.add("/a", &[0; 4]).unwrap();
        assert_eq!(site.add("/b", &[0; 7]), Err(SiteError::TooLarge(10)));
        site.add("/b", &[0; 6]).unwrap();
        assert_eq!(site.add("/c", &[]), Err(SiteError::TooMany(2)));
        assert_eq!(site.len(), 2);
        assert!(site.answer(b"/100k", false).is_some());
        assert!(site.answer(b"/101k", false).is_none());
    }

    #[test]
    fn requests_for_generated_content_share_its_memory() {
        let site = small();
        for (path, length) in [(&b"/0k"[..], 0), (b"/64k", 64 << 10), (b"/65k", 65 << 10)] {
            let content = || {
                let answer = site.answer(path, false).unwrap();
                let joined = if answer.rest.is_empty() {
                    answer.first
                } else {
                    answer.rest
                };
                joined.slice(joined.len() - length..)
            };
            assert_eq!(content(), site.shared[..length]);
            assert_eq!(content().as_ptr(), content().as_ptr(), "{length}");
        }
        let heads = [b"/64k", b"/65k"].map(|path| site.answer(path, true).unwrap());
        assert!(heads.iter().all(|head| head.first.len() < 40));
        assert!(heads.iter().all(|head| head.rest.is_empty()));
    }

    #[test]
    fn contents_made_on_demand() {
        let site = small();
        let small = site.answer(b"/1k", false).unwrap();
        assert!(small.rest.is_empty() && small.first.ends_with(&site.shared[..1024]));
        let head = site.answer(b"/1k", true).unwrap();
        // The header of a DATA frame with 1024 bytes has three bytes.
        assert_eq!(head.first.len() + 3 + 1024, small.first.len());
        let large = site.answer(b"/100k", false).unwrap();
        assert_eq!(large.rest.len(), 100 << 10);
        assert!(large.first.len() < 40);
        for none in [
            "",
            "/",
            "k",
            "/k",
            "/01k",
            "/+1k",
            "/1",
            "/1g",
            "/x1k",
            "/99999999999999999999k",
            "/1k/",
        ] {
            assert_eq!(site.answer(none.as_bytes(), false), None, "{none}");
        }
    }

    #[test]
    fn a_refusal() {
        let answer = Answer::refusal(404);
        // `:status: 404` is number 27, `content-length: 0` is 4.
        assert_eq!(answer.first[..], [0x01, 0x04, 0, 0, 0xdb, 0xc4]);
        assert!(Answer::refusal(405).first.len() > 6);
    }
}
