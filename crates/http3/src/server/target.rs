//! Parses the target of a request.

use std::borrow::Cow;

/// Returns the path in a request's `:path`, decoded and without the query. `None` if no file can have it: no leading
/// slash, an invalid escape, a control byte, or a step to another folder (RFC 3986 §3.3).
pub(super) fn path(target: &[u8]) -> Option<Cow<'_, [u8]>> {
    let end = target.iter().position(|byte| *byte == b'?');
    let path = &target[..end.unwrap_or(target.len())];
    if path.first() != Some(&b'/') || path.contains(&b'#') {
        return None;
    }
    let path = if path.contains(&b'%') {
        Cow::Owned(decode(path)?)
    } else {
        Cow::Borrowed(path)
    };
    let is_plain = !path
        .iter()
        .any(|byte| byte.is_ascii_control() || *byte == b'\\');
    let steps_aside = path
        .split(|byte| *byte == b'/')
        .any(|segment| matches!(segment, b"." | b".."));
    (is_plain && !steps_aside).then_some(path)
}

fn decode(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let value = digit(digits[0])? << 4 | digit(digits[1])?;
        out.push(u8::try_from(value).ok()?);
        rest = after;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (target, expected) in [
            ("/", "/"),
            ("/a/b.html", "/a/b.html"),
            ("/a?b=/../c", "/a"),
            ("/%61%2Fb%20c", "/a/b c"),
            ("/..a/b..", "/..a/b.."),
            ("/%C3%A4", "/ä"),
        ] {
            let found = path(target.as_bytes());
            assert_eq!(found.as_deref(), Some(expected.as_bytes()), "{target}");
        }
    }

    #[test]
    fn nobody_leaves_the_folder() {
        for target in [
            "",
            "a",
            "*",
            "https://a/",
            "/..",
            "/../a",
            "/a/../../b",
            "/./a",
            "/a/.",
            "/%2e%2e/a",
            "/%2E./a",
            "/a%2f..%2f..%2fb",
            "/a\\..\\b",
            "/a%00",
            "/a%0ab",
            "/%",
            "/%4",
            "/%zz",
            "/a#b",
        ] {
            assert_eq!(path(target.as_bytes()), None, "{target}");
        }
    }
}
