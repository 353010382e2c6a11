//! Tokens that clients show to a relay.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, bail, ensure};
use weir_client::tokens::Tokens;
use weir_moqt::token::Token;
use weir_net::clock;

use crate::relay::authority::{Claims, Prefix, Prefixes, Signer};

/// The tokens of a run's clients. Clients of meetings, which publish and subscribe, have those of subscribers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientTokens {
    pub(crate) of_publishers: Tokens,
    pub(crate) of_subscribers: Tokens,
}

impl ClientTokens {
    /// Returns `given` for all clients; subscribers take those of `file` instead, if there is one: one in each line.
    ///
    /// # Errors
    /// The file cannot be read, or a line is too long; the error names the line, and does not contain a token.
    pub(crate) fn given(given: Option<Token>, file: Option<&Path>) -> anyhow::Result<Self> {
        let of_publishers = Tokens::new(given.into_iter().collect());
        let Some(file) = file else {
            return Ok(Self {
                of_subscribers: of_publishers.clone(),
                of_publishers,
            });
        };
        let name = file.display();
        let text = fs::read(file).with_context(|| format!("--tokens: {name}"))?;
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let read = checked(line).with_context(|| format!("--tokens: {name}: line {number}"));
            tokens.push(read?);
            ensure!(
                tokens.len() <= TOKENS_MAX,
                "--tokens: {name}: expected at most {TOKENS_MAX} tokens"
            );
        }
        ensure!(
            !tokens.is_empty(),
            "--tokens: {name}: expected a token in each line"
        );
        Ok(Self {
            of_publishers,
            of_subscribers: Tokens::new(tokens),
        })
    }

    /// Returns a token for each client, signed with the private key in `key`. They permit all namespaces for a day.
    pub(crate) fn signed(
        key: &Path,
        publishers: usize,
        subscribers: usize,
    ) -> anyhow::Result<Self> {
        let all = || Prefixes::Several(vec![Prefix::Path(String::new())]);
        let signer = Signer::read(key).context("--sign-tokens")?;
        let claims = Claims {
            root: Prefix::Path(String::new()),
            put: all(),
            get: all(),
            exp: (clock::since_epoch() + SIGNED_LAST).as_secs(),
            nbf: None,
            aud: None,
            iss: None,
            ..Claims::default()
        };
        let sign = |count: usize| -> anyhow::Result<Tokens> {
            let tokens = (0..count).map(|_| checked(signer.sign(&claims)?.as_bytes()));
            Ok(Tokens::new(tokens.collect::<Result<_, _>>()?))
        };
        Ok(Self {
            of_publishers: sign(publishers)?,
            of_subscribers: sign(subscribers)?,
        })
    }
}

/// Returns the token that --token or `WEIR_TOKEN` gives: the text itself, or with `@` in front the file that contains it. Its
/// type is 0: client and relay have agreed on its form elsewhere. [moqt-18 §10.2.2]
///
/// # Errors
/// The file cannot be read, the text is the name of a file without `@`, or the token has no byte or more than 16384. The error
/// does not contain the token.
pub(crate) fn token(text: &str) -> anyhow::Result<Token> {
    let token = match text.strip_prefix('@') {
        Some(file) => token_in(Path::new(file)),
        None if text.len() < FILE_NAME_BYTES_MAX && Path::new(text).is_file() => {
            bail!("--token: {text} is a file; --token @{text} reads the token in it")
        }
        None => checked(text.as_bytes().trim_ascii()),
    };
    token.context("--token")
}

/// Returns the token that a file contains.
///
/// # Errors
/// The file cannot be read, or the token has no byte or more than 16384. The error does not contain the token.
pub(crate) fn token_in(file: &Path) -> anyhow::Result<Token> {
    let name = || file.display().to_string();
    let value = fs::read(file).with_context(name)?;
    checked(value.trim_ascii()).with_context(name)
}

/// Returns a token of a length that requests can carry.
fn checked(value: &[u8]) -> anyhow::Result<Token> {
    if value.is_empty() || value.len() > TOKEN_BYTES_MAX {
        bail!("expected 1 to {TOKEN_BYTES_MAX} bytes, not {}", value.len());
    }
    Ok(Token::UseValue {
        token_type: 0,
        value: value.to_vec().into(),
    })
}

/// Longer texts are tokens, and no names of files.
const FILE_NAME_BYTES_MAX: usize = 255;
/// Longest token, in bytes: parameters have at most 64 KiB.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Most tokens in a file: as many as a run has subscribers.
const TOKENS_MAX: usize = 50_000;
/// How long tokens that are signed for a run permit what they permit: the longest run.
const SIGNED_LAST: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_its_sign_is_named_and_not_sent() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let error = token(file).unwrap_err().to_string();
        assert!(error.contains(&format!("--token @{file}")), "{error}");
        assert!(token(&format!("@{file}")).is_ok());
        assert!(token("no.such.file").is_ok());
    }
}
