//! Tests that generate pages of `docs/` from the program's definitions.

mod commands;
mod comparison_files;
mod fences;
mod metrics;

use std::path::{Path, PathBuf};

/// Asserts that `docs/NAME` holds `text`; writes the file if `UPDATE_DOCS` is set.
#[track_caller]
pub(crate) fn assert_kept(name: &str, text: &str) {
    let file = folder().join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        kept, text,
        "docs/{name}: UPDATE_DOCS=1 cargo test -p weir --bin weir"
    );
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Returns `text` as one cell of a table.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}
