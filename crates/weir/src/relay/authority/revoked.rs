//! Revoked tokens: a file that names tokens, and bearers of tokens, that are refused from now on.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, bail};

use crate::relay::{authority::jwt::Claims, config::Configured};

/// What is revoked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Revoked {
    token_ids: BTreeSet<String>,
    subjects: BTreeSet<String>,
}

impl Revoked {
    /// Returns whether a token with these claims is revoked.
    pub(crate) fn covers(&self, claims: &Claims) -> bool {
        let names = |names: &BTreeSet<String>, name: &Option<String>| {
            name.as_ref().is_some_and(|name| names.contains(name))
        };
        names(&self.token_ids, &claims.jti) || names(&self.subjects, &claims.sub)
    }

    /// Reads a text with one `jti ID` or `sub SUBJECT` in a line. Empty lines and lines that begin with `#` are ignored.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let mut revoked = Self::default();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let set = match line.split_once(' ') {
                Some(("jti", id)) => (&mut revoked.token_ids, id),
                Some(("sub", subject)) => (&mut revoked.subjects, subject),
                Some(_) | None => bail!(
                    "line {number}: expected `jti ID` or `sub SUBJECT`, not `{}`",
                    line.escape_debug()
                ),
            };
            set.0.insert(set.1.trim().to_owned());
            if revoked.token_ids.len() + revoked.subjects.len() > REVOKED_MAX {
                bail!("more than {REVOKED_MAX} entries: drop the tokens that have expired");
            }
        }
        Ok(revoked)
    }
}

/// The file `auth.revoked`, and what it holds.
#[derive(Debug, Default)]
pub(crate) struct RevokedFile {
    path: Option<PathBuf>,
    current: RwLock<Arc<Revoked>>,
    /// How often the contents have changed.
    revision: AtomicU64,
}

impl RevokedFile {
    /// Loads the file, if one is configured. The error names it.
    pub(crate) fn load(configured: &Configured) -> anyhow::Result<Self> {
        let file = Self {
            path: configured.config.auth.revoked.clone(),
            ..Self::default()
        };
        file.reload()
            .with_context(|| configured.place("auth.revoked"))?;
        Ok(file)
    }

    /// Loads the file again. If it is bad, what was loaded stays.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(name)?;
        let revoked = Arc::new(Revoked::read(&text).with_context(name)?);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if *current != revoked {
            *current = revoked;
            self.revision.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn current(&self) -> Arc<Revoked> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }
}

/// Most entries of the file.
const REVOKED_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn tokens_are_revoked_by_id_and_by_subject() {
        let revoked = Revoked::read("# stolen\n\njti 7f\n  sub mallory smith \n").unwrap();
        let covers = |jti: Option<&str>, sub: Option<&str>| {
            revoked.covers(&Claims {
                jti: jti.map(str::to_owned),
                sub: sub.map(str::to_owned),
                ..Claims::default()
            })
        };
        assert!(covers(Some("7f"), None) && covers(Some("8"), Some("mallory smith")));
        assert!(!covers(None, None) && !covers(Some("mallory smith"), Some("7f")));
    }

    #[test]
    fn a_line_that_says_something_else_is_named() {
        let error = Revoked::read("jti 1\nkid 2").unwrap_err().to_string();
        assert_eq!(
            error,
            "line 2: expected `jti ID` or `sub SUBJECT`, not `kid 2`"
        );
        let mut many = String::new();
        for number in 0..=REVOKED_MAX {
            writeln!(many, "jti {number}").unwrap();
        }
        assert!(Revoked::read(&many).is_err());
        let all = many.trim_end().rsplit_once('\n').unwrap().0;
        assert_eq!(Revoked::read(all).unwrap().token_ids.len(), REVOKED_MAX);
    }
}
