//! The files of the repository, and what a rule finds in them.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
};

/// A text file of the repository.
pub(crate) struct SourceFile {
    /// From the root of the repository, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    /// Is this Rust or JavaScript?
    pub(crate) fn is_code(&self) -> bool {
        ["rs", "js", "mjs"].contains(&self.extension())
    }

    pub(crate) fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, end)| end)
    }

    /// The lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// The lines that are not comments.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines()
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// The code lines outside the items that are only compiled for tests.
    pub(crate) fn shipped_lines(&self) -> Vec<(usize, &str)> {
        let mut shipped = Vec::new();
        let mut is_in_test = false;
        for (number, line) in self.code_lines() {
            is_in_test |= line == TEST_ATTRIBUTE;
            if !is_in_test {
                shipped.push((number, line));
            }
            // As rustfmt lays out items, this ends one. Attributes between the two end in `]`.
            if line == "}" || (!line.starts_with(' ') && line.ends_with(';')) {
                is_in_test = false;
            }
        }
        shipped
    }

    /// Where the modules are that this file includes for tests only: paths without `.rs`.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let folder = self
            .path
            .strip_suffix("/mod.rs")
            .or_else(|| self.path.strip_suffix("/lib.rs"))
            .or_else(|| self.path.strip_suffix(".rs"))
            .unwrap_or(&self.path);
        let lines: Vec<&str> = self.text.lines().collect();
        lines
            .windows(2)
            .filter(|pair| pair[0] == TEST_ATTRIBUTE)
            .filter_map(|pair| pair[1].strip_suffix(';')?.split_once("mod "))
            .map(|(_, name)| format!("{folder}/{name}"))
            .collect()
    }

    pub(crate) fn finding(&self, line: usize, rule: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            rule: rule.into(),
        }
    }
}

/// A broken rule, and where.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    /// The rule, and what to do.
    pub(crate) rule: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.rule)
    }
}

/// The files that are not modules of others for tests only.
pub(crate) fn shipped(files: Vec<&SourceFile>) -> Vec<&SourceFile> {
    let test_modules: Vec<String> = files.iter().flat_map(|file| file.test_modules()).collect();
    let is_test = |file: &SourceFile| {
        test_modules.iter().any(|module| {
            let rest = file.path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
    };
    files.into_iter().filter(|file| !is_test(file)).collect()
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate is two folders below the root")
}

/// All text files of the repository, in order of their paths. What is built is not part of it.
pub(crate) fn read_tree() -> Vec<SourceFile> {
    let mut paths = BTreeSet::new();
    list(root(), &mut paths);
    assert!(paths.len() > 100, "this is the repository: {paths:?}");
    paths.iter().filter_map(|path| read(path)).collect()
}

fn list(folder: &Path, paths: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry of a folder").path();
        let name = path.file_name().expect("an entry has a name");
        // Links lead to files of the repository, which are read where they are.
        if path.is_symlink() || BUILT.iter().any(|built| name == *built) {
            continue;
        }
        if path.is_dir() {
            list(&path, paths);
        } else {
            paths.insert(path);
        }
    }
}

/// Nothing if the file is not text, or was removed meanwhile.
fn read(path: &Path) -> Option<SourceFile> {
    let text = fs::read_to_string(path).ok()?;
    let path = path.strip_prefix(root()).expect("below the root");
    Some(SourceFile::new(path.to_str()?, &text))
}

/// Does `text` contain `word`, not as a part of a longer one?
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let is_part = |character: Option<char>| {
        character.is_some_and(|character| character == '_' || character.is_alphanumeric())
    };
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let is_longer = is_part(before) || (is_part(after) && is_part(word.chars().next_back()));
        !is_longer
    })
}

const TEST_ATTRIBUTE: &str = "#[cfg(test)]";

/// Folders that hold what tools write.
const BUILT: [&str; 6] = [
    ".git",
    "target",
    "corpus",
    "artifacts",
    "coverage",
    "node_modules",
];

#[test]
fn code_for_tests_is_told_from_the_rest() {
    let file = SourceFile::new(
        "crates/moqt/src/reader.rs",
        "#[cfg(test)]\nmod tests;\nmod input;\n// comment\n#[cfg(test)]\n#[expect(x)]\nfn now() {\n    let a = 1;\n}\nfn shipped() {}\n",
    );
    assert_eq!(
        file.shipped_lines(),
        [(3, "mod input;"), (10, "fn shipped() {}")]
    );
    assert_eq!(file.test_modules(), ["crates/moqt/src/reader/tests"]);
}

#[test]
fn modules_for_tests_are_found_from_every_kind_of_file() {
    for (path, module) in [
        ("crates/moqt/src/lib.rs", "crates/moqt/src/story"),
        ("crates/moqt/src/name/mod.rs", "crates/moqt/src/name/story"),
        ("crates/moqt/src/name.rs", "crates/moqt/src/name/story"),
    ] {
        let file = SourceFile::new(path, "#[cfg(test)]\npub(crate) mod story;\n");
        assert_eq!(file.test_modules(), [module]);
    }
}

#[test]
fn words_are_whole() {
    assert!(has_word("a word here", "word"));
    assert!(has_word("word", "word"));
    assert!(has_word("std::env::var", "env::"));
    assert!(!has_word("words, sword, word_", "word"));
}
