//! The corpus of a fuzz target in the repository: a file with an input on each line, its name and its bytes in
//! hexadecimal. `scripts/fuzz-corpus.sh` converts between this file and the fuzzer's folder.

use std::{fs, panic, path::Path};

/// Runs every input of the corpus of `target`.
///
/// # Panics
/// If an input fails; the message names it.
pub fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let path = folder.join(format!("{target}.hex"));
    let text = fs::read_to_string(&path).expect("the corpus is in the repository");
    for line in text.lines() {
        let (name, digits) = line.split_once(' ').expect("a name and a blank");
        let input = bytes(digits);
        let outcome = panic::catch_unwind(|| run(&input));
        assert!(outcome.is_ok(), "the input {name} of {target} fails");
    }
    assert!(!text.is_empty(), "the corpus is not empty");
}

/// Decodes hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits are ASCII");
        u8::from_str_radix(pair, 16).expect("two digits for each byte")
    };
    pairs.map(byte).collect()
}
