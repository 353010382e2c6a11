//! qlog files: logs of a sample of connections, within limits of bytes.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Context as _;
use weir_net::clock;
use weir_quic::Qlog;

use crate::relay::{
    config::{Configured, QlogConfig},
    metrics::QlogNumbers,
};

/// Counts of files and bytes that all logs have written.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    files: AtomicU64,
    bytes: AtomicU64,
    cut: AtomicU64,
}

impl Logs {
    pub(crate) fn numbers(&self) -> QlogNumbers {
        QlogNumbers {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            cut: self.cut.load(Ordering::Relaxed),
        }
    }

    /// Returns the logs of one thread; `None` if `qlog.folder` is not set. File names contain `thread`.
    pub(crate) fn open(
        self: &Arc<Self>,
        configured: &Configured,
        thread: usize,
    ) -> anyhow::Result<Option<Qlog>> {
        let config = configured.config.qlog.clone();
        let Some(folder) = config.folder.clone() else {
            return Ok(None);
        };
        let logs = self.in_folder(&folder, config, thread);
        let logs = logs.with_context(|| {
            let place = configured.place("qlog.folder");
            format!("{place}: cannot make the folder {}", folder.display())
        })?;
        Ok(Some(logs))
    }

    /// Returns the logs of one thread in `folder`, within the limits of `config`. File names contain `thread`.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn in_folder(
        self: &Arc<Self>,
        folder: &Path,
        config: QlogConfig,
        thread: usize,
    ) -> io::Result<Qlog> {
        std::fs::create_dir_all(folder)?;
        let folder = folder.to_owned();
        let prefix = clock::since_epoch().as_millis();
        let logs = Arc::clone(self);
        let open = move |number: u64| {
            if !number.is_multiple_of(config.sample) {
                return None;
            }
            let left = config
                .total_bytes_max
                .saturating_sub(logs.bytes.load(Ordering::Relaxed));
            if left < FILE_BYTES_MIN {
                logs.cut.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let name = format!("{prefix}-{thread}-{number}.sqlog");
            let file = File::create(folder.join(name)).ok()?;
            logs.files.fetch_add(1, Ordering::Relaxed);
            Some(Box::new(Capped::new(
                BufWriter::new(file),
                Arc::clone(&logs),
                &config,
            )) as Box<_>)
        };
        Ok(Qlog {
            open: Arc::new(open),
            start: clock::now(),
        })
    }
}

/// A log that ends at a limit, after a whole record.
struct Capped<W> {
    inner: W,
    /// The record that is being written, up to its line feed.
    record: Vec<u8>,
    logs: Arc<Logs>,
    left: u64,
    total_bytes_max: u64,
    is_cut: bool,
}

impl<W: Write> Capped<W> {
    fn new(inner: W, logs: Arc<Logs>, config: &QlogConfig) -> Self {
        Self {
            inner,
            record: Vec::new(),
            logs,
            left: config.file_bytes_max,
            total_bytes_max: config.total_bytes_max,
            is_cut: false,
        }
    }
}

impl<W: Write> Write for Capped<W> {
    /// Accepts all bytes, and writes the records that the limits permit: a log must not make a connection fail.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_cut {
            return Ok(bytes.len());
        }
        self.record.extend_from_slice(bytes);
        let length = self.record.len() as u64;
        let total = self.logs.bytes.load(Ordering::Relaxed);
        if length > self.left || total + length > self.total_bytes_max {
            self.is_cut = true;
            self.logs.cut.fetch_add(1, Ordering::Relaxed);
        } else if self.record.ends_with(b"\n") {
            self.left -= length;
            self.logs.bytes.fetch_add(length, Ordering::Relaxed);
            // The disk may be full. Records after a missing one would be of no use.
            self.is_cut = self.inner.write_all(&self.record).is_err();
            self.record.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Smallest rest of the total at which a new file starts.
const FILE_BYTES_MIN: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> QlogConfig {
        QlogConfig {
            folder: None,
            sample: 1,
            file_bytes_max: 10,
            total_bytes_max: 15,
        }
    }

    #[test]
    fn a_log_ends_at_its_limit_and_at_that_of_all() {
        let logs = Arc::new(Logs::default());
        let capped = || Capped::new(Vec::new(), Arc::clone(&logs), &config());
        let (mut first, mut second) = (capped(), capped());
        for part in [&b"0123\n"[..], b"56", b"78\n"] {
            first.write_all(part).unwrap();
        }
        assert_eq!(logs.numbers().cut, 0, "at the limit");
        first.write_all(b"a").unwrap();
        first.write_all(b"\n").unwrap();
        assert_eq!(first.inner, b"0123\n5678\n");
        assert_eq!(logs.numbers().cut, 1, "one past it");

        second.write_all(b"0123\n").unwrap();
        assert_eq!(logs.numbers().cut, 1, "at the limit of all");
        second.write_all(b"5").unwrap();
        second.write_all(b"\n").unwrap();
        assert_eq!(second.inner, b"0123\n");
        assert_eq!((logs.numbers().cut, logs.numbers().bytes), (2, 15));
    }

    #[test]
    fn a_sample_is_logged_until_the_total_is_reached() {
        let folder = std::env::temp_dir().join(format!("weir-qlog-{}", std::process::id()));
        let file = format!(
            "[qlog]\nfolder = {:?}\nsample = 3\ntotal_bytes_max = 4096\n",
            folder.display().to_string()
        );
        let configured = Configured::read(Some(("a.toml", &file)), |_| None, Vec::new()).unwrap();
        let logs = Arc::new(Logs::default());
        let qlog = logs.open(&configured, 0).unwrap().unwrap();
        let opened: Vec<bool> = (0..7).map(|number| (qlog.open)(number).is_some()).collect();
        assert_eq!(opened, [true, false, false, true, false, false, true]);
        (qlog.open)(9).unwrap().write_all(&[b'\n'; 4000]).unwrap();
        assert!((qlog.open)(12).is_none());
        let numbers = logs.numbers();
        assert_eq!((numbers.files, numbers.cut), (4, 1));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
