//! Reads the files of a folder.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use weir_http3::server::{Site, SiteLimits};

/// Reads all files below `root`, except names that begin with a dot. Links are followed if their target is below `root`.
///
/// # Errors
/// A file cannot be read, a link leaves `root`, or a limit is exceeded.
pub(crate) fn load(root: &Path, limits: SiteLimits) -> anyhow::Result<Site> {
    let place = || root.display().to_string();
    let real = fs::canonicalize(root).with_context(place)?;
    if !real.is_dir() {
        bail!("{}: is not a folder", root.display());
    }
    let mut site = Site::new(limits);
    let mut folders = vec![(real.clone(), String::new(), 0)];
    let mut read_folders = 0;
    while let Some((folder, url, depth)) = folders.pop() {
        read_folders += 1;
        if depth > DEPTH_MAX || read_folders > limits.files_max {
            bail!(
                "{}: expected at most {DEPTH_MAX} nested folders, and {} in all; is there a circle of links?",
                folder.display(),
                limits.files_max
            );
        }
        for (name, path) in entries(&folder)? {
            let shown = || path.display().to_string();
            let target = fs::canonicalize(&path).with_context(shown)?;
            if !target.starts_with(&real) {
                bail!(
                    "{}: the link leads out of {}; copy the file instead",
                    path.display(),
                    root.display()
                );
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

/// Returns the entries of a folder, by name.
fn entries(folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let place = || folder.display().to_string();
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).with_context(place)? {
        let path = entry.with_context(place)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name else {
            bail!("{}: expected a name in UTF-8", path.display());
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
    // One byte above the limit shows that the file is too large.
    fs::File::open(path)?
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Nested folders; deeper ones are a mistake.
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of one test; deleted when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("root/sub")).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, content: &str) {
            fs::write(self.0.join(name), content).unwrap();
        }

        fn link(&self, target: &str, name: &str) {
            std::os::unix::fs::symlink(self.0.join(target), self.0.join(name)).unwrap();
        }

        fn load(&self, limits: SiteLimits) -> Result<usize, String> {
            let site = load(&self.0.join("root"), limits);
            site.map(|site| site.len())
                .map_err(|error| format!("{error:#}"))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            // A folder that stays is among the system's temporary files.
            let _left = fs::remove_dir_all(&self.0);
        }
    }

    fn limits() -> SiteLimits {
        SiteLimits {
            made_bytes_max: 0,
            ..SiteLimits::default()
        }
    }

    #[test]
    fn files_of_a_folder_and_those_below() {
        let scratch = Scratch::new("folder-files");
        scratch.write("root/a.txt", "a");
        scratch.write("root/sub/b.txt", "b");
        scratch.write("root/.secret", "c");
        scratch.link("root/a.txt", "root/sub/link.txt");
        assert_eq!(scratch.load(limits()), Ok(3));
        let few = SiteLimits {
            files_max: 2,
            ..limits()
        };
        let error = scratch.load(few).unwrap_err();
        assert!(error.ends_with("more than files_max, 2"), "{error}");
        let small = SiteLimits {
            bytes_max: 2,
            ..limits()
        };
        let error = scratch.load(small).unwrap_err();
        assert!(error.ends_with("exceed bytes_max, 2 bytes"), "{error}");
    }

    #[test]
    fn no_link_leads_out() {
        let scratch = Scratch::new("folder-links");
        scratch.write("outside", "x");
        scratch.link("outside", "root/inside");
        let error = scratch.load(limits()).unwrap_err();
        assert!(
            error.contains("root/inside: the link leads out of"),
            "{error}"
        );
    }

    #[test]
    fn no_link_leads_in_a_circle() {
        let scratch = Scratch::new("folder-circle");
        scratch.link("root", "root/sub/again");
        let error = scratch.load(limits()).unwrap_err();
        assert!(error.contains("at most 32 nested folders"), "{error}");
    }

    #[test]
    fn what_is_no_folder() {
        let scratch = Scratch::new("folder-none");
        scratch.write("file", "x");
        let error = load(&scratch.0.join("file"), limits()).unwrap_err();
        assert!(format!("{error:#}").contains("is not a folder"));
        assert!(load(&scratch.0.join("none"), limits()).is_err());
    }
}
