//! Tokens that clients show to a relay.

use anyhow::{Context as _, bail};
use weir_moqt::token::Token;

/// Returns the token that --token or `WEIR_TOKEN` gives: the text itself, or with `@` in front the file that contains it. Its
/// type is 0: client and relay have agreed on its form elsewhere. [moqt-18 §10.2.2]
///
/// # Errors
/// The file cannot be read, or the token has no byte or more than 16384. The error does not contain the token.
pub(crate) fn token(text: &str) -> anyhow::Result<Token> {
    let value = match text.strip_prefix('@') {
        Some(file) => std::fs::read(file).with_context(|| format!("--token: {file}"))?,
        None => text.as_bytes().to_vec(),
    };
    let value = value.trim_ascii().to_vec();
    if value.is_empty() || value.len() > TOKEN_BYTES_MAX {
        bail!(
            "--token: expected 1 to {TOKEN_BYTES_MAX} bytes, not {}",
            value.len()
        );
    }
    Ok(Token::UseValue {
        token_type: 0,
        value: value.into(),
    })
}

/// Longest token, in bytes: parameters have at most 64 KiB.
const TOKEN_BYTES_MAX: usize = 16 << 10;
