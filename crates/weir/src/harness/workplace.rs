//! The temporary folder of a comparison, and the start of contenders.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context as _;
use weir_net::clock;

use super::{child::ChildGroup, contender::Contender};

/// A temporary folder with a certificate, for the start commands of contenders.
#[derive(Debug)]
pub(crate) struct Workplace {
    folder: PathBuf,
}

impl Workplace {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let number = format!(
            "weir-{}-{}",
            std::process::id(),
            clock::since_epoch().as_nanos()
        );
        let place = Self {
            folder: std::env::temp_dir().join(number),
        };
        fs::create_dir(&place.folder)
            .and_then(|()| fs::create_dir(place.tls()))
            .context("cannot make a folder for certificates")?;
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let made =
            rcgen::generate_simple_self_signed(names).context("cannot make a certificate")?;
        let [certificate, key] = place.certificate();
        fs::write(certificate, made.cert.pem())
            .and_then(|()| fs::write(key, made.signing_key.serialize_pem()))
            .context("cannot write a certificate")?;
        Ok(place)
    }

    /// Returns the folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder of the certificate, without other files: a relay that watches this folder for changes must not see
    /// its own log there.
    fn tls(&self) -> PathBuf {
        self.folder.join("tls")
    }

    /// Returns the files of certificate chain and private key.
    fn certificate(&self) -> [PathBuf; 2] {
        ["certificate.pem", "key.pem"].map(|name| self.tls().join(name))
    }

    fn log(&self) -> PathBuf {
        self.folder.join("contender.log")
    }

    /// Returns the first line that a contender's version command prints, shortened for a table.
    pub(crate) fn version(&self, contender: &Contender) -> anyhow::Result<Option<String>> {
        let Some(program) = contender.version.first() else {
            return Ok(contender.version_text.clone());
        };
        let output = self
            .command(&contender.version, &Contender::default(), &[])?
            .output()
            .with_context(|| format!("{program:?} cannot be run"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().next().unwrap_or_default().trim();
        let line: String = line.chars().take(VERSION_CHARACTERS_MAX).collect();
        Ok((!line.is_empty()).then_some(line))
    }

    /// Starts a contender on its core. `more` are values of further placeholders.
    pub(crate) fn start(
        &self,
        contender: &Contender,
        more: &[(&str, String)],
    ) -> anyhow::Result<ChildGroup> {
        let start = || {
            let mut command = self.command(&contender.start, contender, more)?;
            let log = File::create(self.log()).context("cannot write its log")?;
            command.stdout(Stdio::null()).stderr(log);
            ChildGroup::start(command, contender.core)
        };
        start().with_context(|| {
            let program = contender.start.first().map_or("", String::as_str);
            format!("{program:?} cannot be started")
        })
    }

    /// Returns how the last started contender ended, with its last line of output or, if it ended without an error, what it has
    /// to do; `None` if it runs.
    pub(crate) fn end_of(&self, started: &mut ChildGroup) -> Option<String> {
        let status = started.exit_status()?;
        if status.success() {
            return Some(format!("({status}): `start` has to stay in the foreground"));
        }
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map_or_else(String::new, |last| format!(": {last}"));
        Some(format!("({status}){last}"))
    }

    /// Returns a command with values in place of its placeholders.
    fn command(
        &self,
        words: &[String],
        contender: &Contender,
        more: &[(&str, String)],
    ) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let certificate = contender.certificate.clone();
        let [certificate, key] = certificate.unwrap_or_else(|| self.certificate());
        let core = contender.core;
        let usual = [
            ("{weir}", program.to_string_lossy().into_owned()),
            ("{cert}", certificate.to_string_lossy().into_owned()),
            ("{key}", key.to_string_lossy().into_owned()),
            (
                "{core}",
                core.map_or_else(String::new, |core| core.to_string()),
            ),
        ];
        let fill = |word: &String| {
            let places = more.iter().chain(&usual);
            places.fold(word.clone(), |word, (place, value)| {
                word.replace(place, value)
            })
        };
        let mut words = words.iter().map(fill);
        let mut command = Command::new(words.next().context("an empty command")?);
        command.args(words).stdin(Stdio::null());
        Ok(command)
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // The system clears its folder for such files anyway.
        drop(fs::remove_dir_all(&self.folder));
    }
}

const VERSION_CHARACTERS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_that_cannot_be_started_is_named_with_its_program() {
        let place = Workplace::new().unwrap();
        let contender = Contender {
            start: vec!["no-such-program-here".to_owned()],
            version: vec!["no-such-program-here".to_owned()],
            ..Contender::default()
        };
        let error = format!("{:#}", place.start(&contender, &[]).unwrap_err());
        assert!(
            error.contains("\"no-such-program-here\" cannot be started"),
            "{error}"
        );
        let error = format!("{:#}", place.version(&contender).unwrap_err());
        assert!(
            error.contains("\"no-such-program-here\" cannot be run"),
            "{error}"
        );
    }

    #[test]
    fn a_contender_ends_with_all_that_it_started() {
        let place = Workplace::new().unwrap();
        let contender = Contender {
            start: ["sh", "-c", "sleep 60 & sleep 60"]
                .map(str::to_owned)
                .to_vec(),
            ..Contender::default()
        };
        let mut started = place.start(&contender, &[]).unwrap();
        let pid = started.pid();
        assert_eq!(place.end_of(&mut started), None);
        drop(started);
        assert!(super::super::process::usage(pid).is_err());
    }
}
