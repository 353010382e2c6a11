//! The files of a folder, read once.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use weir_http3::server::{Site, SiteLimits};

/// Reads all files below `root`, whose names begin with no dot. Links are followed as long as they stay below it.
pub(crate) fn load(root: &Path, limits: SiteLimits) -> anyhow::Result<Site> {
    let place = || root.display().to_string();
    let real = fs::canonicalize(root).with_context(place)?;
    if !real.is_dir() {
        bail!("{}: is no folder", root.display());
    }
    let mut site = Site::new(limits);
    let mut folders = vec![(real.clone(), String::new(), 0)];
    while let Some((folder, url, depth)) = folders.pop() {
        if depth > DEPTH_MAX {
            bail!(
                "{}: deeper than {DEPTH_MAX} folders; does a link lead in a circle?",
                folder.display()
            );
        }
        for (name, path) in entries(&folder)? {
            let shown = || path.display().to_string();
            let target = fs::canonicalize(&path).with_context(shown)?;
            if !target.starts_with(&real) {
                bail!("{}: leads out of {}", path.display(), root.display());
            }
            let url = format!("{url}/{name}");
            let metadata = fs::metadata(&target).with_context(shown)?;
            if metadata.is_dir() {
                folders.push((path, url, depth + 1));
            } else if metadata.is_file() {
                let content = read(&target, limits.bytes_max).with_context(shown)?;
                site.add(&url, &content).with_context(shown)?;
            }
        }
    }
    Ok(site)
}

/// What is in a folder, in the order of the names.
fn entries(folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let place = || folder.display().to_string();
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).with_context(place)? {
        let path = entry.with_context(place)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name else {
            bail!("{}: a name that is not UTF-8", path.display());
        };
        if !name.starts_with('.') {
            entries.push((name.to_owned(), path));
        }
    }
    entries.sort();
    Ok(entries)
}

fn read(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // One byte more, so that what is too large is seen to be.
    fs::File::open(path)?
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Deeper folders are a mistake.
const DEPTH_MAX: usize = 32;
