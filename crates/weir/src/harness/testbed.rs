//! The machine as a table: processor, cores, memory, disk, kernel.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::machine::Machine;

/// The file system that holds a folder, from `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// Major and minor number of the device, such as `254:0`.
    device: String,
    point: PathBuf,
    kind: String,
}

impl Machine {
    /// Returns the parts of the machine, each with its name. The disk is the one that holds `folder`.
    pub(crate) fn testbed(&self, folder: &Path) -> Vec<(String, String)> {
        let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let unknown = || "unknown".to_owned();
        let rows = [
            ("processor", self.cpu_model.clone()),
            ("cores", self.cores.len().to_string()),
            ("memory", memory(&info).unwrap_or_else(unknown)),
            (
                "disk",
                mount_of(&mounts, &folder).map_or_else(unknown, |mount| mount.words()),
            ),
            ("kernel", format!("Linux {}", self.kernel)),
        ];
        rows.map(|(part, what)| (part.to_owned(), what)).to_vec()
    }
}

impl Mount {
    /// Parses a line: ID, parent, device, root, mount point, options, optional fields, `-`, file system, source, options.
    fn read(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(2);
        Some(Self {
            device: fields.next()?.to_owned(),
            point: fields.nth(1)?.into(),
            kind: after.split(' ').next()?.to_owned(),
        })
    }

    /// Returns the file system, and the disk below it if the kernel shows one.
    fn words(&self) -> String {
        let block = Path::new("/sys/dev/block").join(&self.device);
        let Some(block) = block.canonicalize().ok().filter(|_| self.is_of_a_disk()) else {
            return self.kind.clone();
        };
        let name = block.file_name().unwrap_or_default().to_string_lossy();
        let read = |file: &str| fs::read_to_string(block.join(file)).ok();
        // In units of 512 bytes, whatever the disk's own sectors are.
        let size = read("size").and_then(|sectors| sectors.trim().parse::<u64>().ok());
        let size = size.map_or_else(String::new, |sectors| {
            format!(", {}", gigabytes(512 * sectors))
        });
        // A partition lies in the folder of its disk.
        let model = read("device/model").or_else(|| read("../device/model"));
        let model = model.map_or_else(String::new, |model| format!(", {}", model.trim()));
        format!("{} on {name}{size}{model}", self.kind)
    }

    /// Returns true if the device is a disk. Device 0 stands for file systems without one, such as overlays.
    fn is_of_a_disk(&self) -> bool {
        !self.device.starts_with("0:")
    }
}

/// Returns the mount that holds `folder`: the one with the longest path, and the last of those.
fn mount_of(mounts: &str, folder: &Path) -> Option<Mount> {
    let mounts = mounts.lines().filter_map(Mount::read);
    mounts
        .filter(|mount| folder.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count())
}

/// Returns the memory in words, from `/proc/meminfo`.
fn memory(info: &str) -> Option<String> {
    let total = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(gigabytes(1024 * kibibytes))
}

fn gigabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000_000;
    format!("{}.{} GB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_kernel_says() {
        let text = "MemTotal:        8129548 kB\nMemFree:  1 kB\n";
        assert_eq!(memory(text).as_deref(), Some("8.3 GB"));
        assert_eq!(memory("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_disk_is_the_one_below_the_deepest_mount() {
        let mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      30 22 0:25 / /tmp rw,nosuid - tmpfs tmpfs rw\n\
                      31 22 0:26 / /tmp/other rw - overlay overlay rw\nodd\n";
        let mount = |folder: &str| mount_of(mounts, Path::new(folder)).unwrap();
        assert_eq!(
            (mount("/var/a").device, mount("/var/a").kind),
            ("254:0".into(), "ext4".into())
        );
        assert_eq!(mount("/tmp/weir").words(), "tmpfs");
        assert_eq!(
            mount("/tmp/others").kind,
            "tmpfs",
            "no parent of that folder"
        );
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn this_machine_has_every_part() {
        let rows = Machine::this().testbed(&std::env::temp_dir());
        let names: Vec<&str> = rows.iter().map(|(part, _)| part.as_str()).collect();
        assert_eq!(names, ["processor", "cores", "memory", "disk", "kernel"]);
        assert!(rows.iter().all(|(_, what)| !what.is_empty()), "{rows:?}");
    }
}
