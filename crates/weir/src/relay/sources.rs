//! The sources of the relay's settings: the file of `--config`, the environment, and the flags.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::{
    file_kind::{self, Kind, explained},
    relay::{
        config::Configured,
        settings::{Place, Problem, Raw},
    },
};

/// Where the settings of one relay come from. They can be read again while the relay runs.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    /// The file of `--config`.
    pub(crate) file: Option<PathBuf>,
    /// Keys and values of the flags.
    pub(crate) flags: Vec<(String, Raw, Place)>,
}

impl Sources {
    /// Reads all settings.
    ///
    /// # Errors
    /// Returns all problems, each with its place.
    pub(crate) fn read(&self) -> Result<Configured, Vec<Problem>> {
        let file = self.file.as_deref().map(read_file).transpose();
        let file = file.map_err(|error| vec![format!("{error:#}")])?;
        let file = file
            .as_ref()
            .map(|(name, text)| (name.as_str(), text.as_str()));
        let environment = |name: &str| std::env::var(name).ok();
        let read = Configured::read(file, environment, self.flags.clone());
        read.map_err(|problems| {
            let path = self.file.as_deref();
            let other = path.and_then(|path| file_kind::other(path, Kind::Settings));
            other.map_or(problems, |other| vec![other])
        })
    }
}

fn read_file(path: &Path) -> anyhow::Result<(String, String)> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("{name}: cannot be opened"))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .with_context(|| format!("{name}: cannot be read"))
        .map_err(|error| explained(path, Kind::Settings, error))?;
    if text.len() as u64 == FILE_BYTES_MAX {
        bail!("{name}: expected a file of less than {FILE_BYTES_MAX} bytes");
    }
    Ok((name, text))
}

/// Limit of the settings' file, which has some hundred lines.
const FILE_BYTES_MAX: u64 = 1 << 20;
