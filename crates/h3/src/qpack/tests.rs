use super::*;

fn decode(section: &[u8], bytes_max: usize) -> Result<Vec<(String, String)>, SectionError> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    Fields::new(Bytes::copy_from_slice(section), bytes_max)
        .map(|field| field.map(|field| (text(&field.name), text(&field.value))))
        .collect()
}

fn encode(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_prefix(&mut out);
    for (name, value) in fields {
        encode_field(name.as_bytes(), value.as_bytes(), &mut out);
    }
    out
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn the_example_of_the_specification() {
    // RFC 9204 §B.1: a literal with the name of a static entry.
    let section = b"\x00\x00\x51\x0b/index.html";
    assert_eq!(decode(section, 100), Ok(vec![pair(":path", "/index.html")]));
}

#[test]
fn the_request_of_a_session_by_hand() {
    let section = [
        0x00, 0x00, 0xcf, // :method CONNECT, entry 15
        0xd7, // :scheme https, entry 23
        0xc1, // :path /, entry 1
        0x50, 0x01, b'h', // :authority h, name of entry 0
        0x27, 0x02, b':', b'p', b'r', b'o', b't', b'o', b'c', b'o',
        b'l', // a literal name of 9
        0x01, b'w', // its value
    ];
    let fields = [
        pair(":method", "CONNECT"),
        pair(":scheme", "https"),
        pair(":path", "/"),
        pair(":authority", "h"),
        pair(":protocol", "w"),
    ];
    assert_eq!(decode(&section, 1000), Ok(fields.to_vec()));
}

#[test]
fn all_that_is_written_is_read() {
    let long = "v".repeat(5000);
    for fields in [
        &[][..],
        &[(":status", "200"), ("server", "weir")],
        &[
            (":method", "CONNECT"),
            (":protocol", "webtransport"),
            ("x-frame-options", "sameorigin"),
        ],
        &[
            ("wt-available-protocols", "\"moqt-18\", \"moqt-22\""),
            ("a", ""),
        ],
        &[("cookie", &long), ("unknown-name", &long)],
        &[("x", "\u{1}\u{2}\u{3}"), (":status", "999")],
    ] {
        let read = decode(&encode(fields), 100_000).unwrap();
        let expected: Vec<_> = fields
            .iter()
            .map(|(name, value)| pair(name, value))
            .collect();
        assert_eq!(read, expected);
    }
    assert_eq!(
        encode(&[(":status", "404")]),
        [0, 0, 0xdb],
        "static entries are one byte"
    );
}

#[test]
fn every_static_entry_is_found() {
    for (number, (name, value)) in TABLE.iter().enumerate() {
        let section = encode(&[(name, value)]);
        assert!(section.len() <= 4, "{number}");
        assert_eq!(decode(&section, 1000), Ok(vec![pair(name, value)]));
    }
}

#[test]
fn a_section_as_large_as_the_limit_and_one_byte_less_room() {
    let section = encode(&[("ab", "cdefg"), ("h", "")]);
    let size = 7 + 32 + 1 + 32;
    assert_eq!(decode(&section, size).unwrap().len(), 2);
    assert_eq!(decode(&section, size - 1), Err(SectionError::TooLarge));
    // A long code for little remaining space is not decoded.
    let text = "\u{1}".repeat(1000);
    let mut coded = vec![0, 0, 0x23, b'a', b'b', b'c'];
    put_integer(
        huffman::encoded_length(text.as_bytes()) as u64,
        7,
        0x80,
        &mut coded,
    );
    huffman::encode(text.as_bytes(), &mut coded);
    assert_eq!(decode(&coded, 100), Err(SectionError::TooLarge));
}

#[test]
fn what_cannot_be_read_ends_the_connection() {
    for (bad, place) in [
        (&[0x01, 0x00][..], "an insertion is needed"),
        (&[0x00], "the base is missing"),
        (&[0x00, 0x00, 0x80], "indexed, dynamic"),
        (&[0x00, 0x00, 0x10], "indexed, after the base"),
        (&[0x00, 0x00, 0x40, 0x00], "a dynamic name"),
        (&[0x00, 0x00, 0x00, 0x00], "a name after the base"),
        (&[0x00, 0x00, 0xff, 0x24], "entry 99"),
        (&[0x00, 0x00, 0xff], "an integer that stops"),
        (&[0x00, 0x00, 0x51], "no value"),
        (&[0x00, 0x00, 0x51, 0x02, b'/'], "a short value"),
        (&[0x00, 0x00, 0x51, 0x81, 0xff], "no Huffman code"),
        (
            &[
                0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
            ],
            "a huge integer",
        ),
    ] {
        let error = decode(bad, 1000).unwrap_err();
        let SectionError::Broken(violation) = error else {
            panic!("{place}: {error}");
        };
        assert_eq!(violation.code, Code::DECOMPRESSION_FAILED, "{place}");
    }
}

#[test]
fn integers_of_the_specification() {
    // RFC 7541 §C.1: 10 and 1337 with a prefix of five bits, 42 with one of eight.
    for (value, bits, bytes) in [
        (10, 5, &[0x0a][..]),
        (1337, 5, &[0x1f, 0x9a, 0x0a]),
        (42, 8, &[0x2a]),
    ] {
        let mut out = Vec::new();
        put_integer(value, bits, 0, &mut out);
        assert_eq!(out, bytes);
        assert_eq!(integer(&mut Bytes::from_static(bytes), bits), Ok(value));
    }
    let mut out = Vec::new();
    put_integer(crate::varint::MAX, 3, 0, &mut out);
    assert_eq!(integer(&mut out.into(), 3), Ok(crate::varint::MAX));
}
