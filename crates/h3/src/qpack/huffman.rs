//! The Huffman code of HPACK and QPACK (RFC 7541 §B).
//!
//! The code is canonical, so the lengths determine it: shorter codes are smaller, and codes of equal length ascend with
//! their symbols.

use bytes::BufMut;

/// Returns the encoded length of `text` in bytes.
pub fn encoded_length(text: &[u8]) -> usize {
    let bits = |byte: &u8| usize::from(LENGTHS[usize::from(*byte)]);
    text.iter().map(bits).sum::<usize>().div_ceil(8)
}

/// Appends the code of `text`.
pub fn encode(text: &[u8], out: &mut impl BufMut) {
    let (mut bits, mut count) = (0_u64, 0_u32);
    for byte in text {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(CODE.codes[usize::from(*byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.put_u8((bits >> count & 0xff) as u8);
        }
    }
    if count > 0 {
        // Padded with the first bits of the end symbol, which are all ones (RFC 7541 §5.2).
        out.put_u8(((bits << (8 - count) | 0xff >> count) & 0xff) as u8);
    }
}

/// Appends the text of `code` to `out`; returns false if the code is invalid.
#[must_use]
pub fn decode(code: &[u8], out: &mut Vec<u8>) -> bool {
    // The next bits are at the top of the window.
    let (mut window, mut count) = (0_u64, 0_u32);
    let mut input = code.iter();
    loop {
        while count <= 56
            && let Some(byte) = input.next()
        {
            window |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        if count == 0 {
            return true;
        }
        let top = (window >> 32) as u32;
        let (symbol, length) = symbol_of(top);
        if length > count {
            // The rest is padding: fewer than eight ones (RFC 7541 §5.2).
            return count < 8 && window >> (64 - count) == (1 << count) - 1;
        }
        let Ok(byte) = u8::try_from(symbol) else {
            return false;
        };
        out.push(byte);
        window <<= length;
        count -= length;
    }
}

/// Returns the symbol whose code begins at the top of `bits`, and the length of the code.
fn symbol_of(bits: u32) -> (u16, u32) {
    let short = SHORT[(bits >> 24) as usize];
    if short.1 > 0 {
        return (short.0, u32::from(short.1));
    }
    let mut length = 9;
    while length < LENGTH_MAX && bits >> (32 - length) >= CODE.ends[length as usize] {
        length += 1;
    }
    let number = (bits >> (32 - length)).wrapping_sub(CODE.firsts[length as usize]);
    let place = u32::from(CODE.places[length as usize]).wrapping_add(number);
    (CODE.symbols[place as usize % SYMBOLS], length)
}

/// Tables derived from the lengths.
struct Code {
    /// Codes by symbol.
    codes: [u32; SYMBOLS],
    /// Symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// By length: the first code, the code after the last, and the index of the first symbol.
    firsts: [u32; LENGTH_MAX as usize + 1],
    ends: [u32; LENGTH_MAX as usize + 1],
    places: [u16; LENGTH_MAX as usize + 1],
}

const CODE: Code = {
    let mut code = Code {
        codes: [0; SYMBOLS],
        symbols: [0; SYMBOLS],
        firsts: [0; LENGTH_MAX as usize + 1],
        ends: [0; LENGTH_MAX as usize + 1],
        places: [0; LENGTH_MAX as usize + 1],
    };
    let (mut next, mut place, mut length) = (0_u32, 0_u16, 1_usize);
    while length <= LENGTH_MAX as usize {
        next <<= 1;
        code.firsts[length] = next;
        code.places[length] = place;
        let mut symbol = 0_u16;
        while (symbol as usize) < SYMBOLS {
            if LENGTHS[symbol as usize] as usize == length {
                code.codes[symbol as usize] = next;
                code.symbols[place as usize] = symbol;
                next += 1;
                place += 1;
            }
            symbol += 1;
        }
        code.ends[length] = next;
        length += 1;
    }
    code
};

/// By the first eight bits: the symbol and the length of its code; a length of 0 if the code is longer.
static SHORT: [(u16, u8); 256] = {
    let mut short = [(0, 0); 256];
    let mut symbol = 0_u16;
    while (symbol as usize) < SYMBOLS {
        let length = LENGTHS[symbol as usize];
        if length <= 8 {
            let first = (CODE.codes[symbol as usize] as usize) << (8 - length);
            let mut place = first;
            while place < first + (1 << (8 - length)) {
                short[place] = (symbol, length);
                place += 1;
            }
        }
        symbol += 1;
    }
    short
};

/// The byte values, and the end symbol.
const SYMBOLS: usize = 257;
const LENGTH_MAX: u32 = 30;

/// The length of each symbol's code in bits.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7541 §C.4 and §C.6.
    const EXAMPLES: [(&str, &str); 8] = [
        ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
        ("no-cache", "a8eb10649cbf"),
        ("custom-key", "25a849e95ba97d7f"),
        ("custom-value", "25a849e95bb8e8b4bf"),
        ("302", "6402"),
        ("private", "aec3771a4b"),
        (
            "Mon, 21 Oct 2013 20:13:21 GMT",
            "d07abe941054d444a8200595040b8166e082a62d1bff",
        ),
        (
            "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ),
    ];

    fn bytes(hexadecimal: &str) -> Vec<u8> {
        let digits = hexadecimal.as_bytes().chunks(2);
        digits
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn the_examples_of_the_specification() {
        for (text, code) in EXAMPLES {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!(out, bytes(code), "{text}");
            assert_eq!(encoded_length(text.as_bytes()), out.len());
            let mut back = Vec::new();
            assert!(decode(&out, &mut back), "{text}");
            assert_eq!(back, text.as_bytes());
        }
    }

    #[test]
    fn every_byte_comes_back() {
        let text: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        let mut out = Vec::new();
        encode(&text, &mut out);
        let mut back = Vec::new();
        assert!(decode(&out, &mut back));
        assert_eq!(back, text);
    }

    #[test]
    fn what_is_no_code_is_refused() {
        for bad in [
            // A whole byte of padding, padding with a zero, the end symbol.
            "ff",
            "1fff",
            "64",
            "00",
            "fffffffc",
            "ffffffffff",
        ] {
            assert!(!decode(&bytes(bad), &mut Vec::new()), "{bad}");
        }
        assert!(decode(&[], &mut Vec::new()));
    }
}
