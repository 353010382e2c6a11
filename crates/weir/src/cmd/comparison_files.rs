//! The files that a comparison writes.

use std::path::PathBuf;

use clap::Args;

use crate::{
    harness::machine::Machine,
    output::{check_writable, write_named},
    results::{self, Section},
};

// The flags of both comparisons. No doc comment: clap would show it as the help of the commands.
#[derive(Debug, Args)]
pub(super) struct ComparisonFiles {
    /// Write all runs and the comparison to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write charts and tables to FILE, as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the tables to FILE, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Replace the section of this comparison in a Markdown file, and write its chart beside the file
    #[arg(long, value_name = "FILE")]
    pub(super) results: Option<PathBuf>,
}

impl ComparisonFiles {
    /// Checks that all files can be written, before the first run.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let files = [&self.json, &self.html, &self.markdown, &self.results];
        files
            .into_iter()
            .flatten()
            .try_for_each(|file| check_writable(file))
    }

    /// Writes the files that flags name.
    pub(super) fn write(&self, json: &str, html: &str, markdown: &str) -> anyhow::Result<()> {
        write_named(self.json.as_deref(), || json.to_owned())?;
        write_named(self.html.as_deref(), || html.to_owned())?;
        write_named(self.markdown.as_deref(), || markdown.to_owned())
    }

    /// Writes `markdown` into the section `name` of the results, with the machine in the line of the date and the command.
    pub(super) fn write_section(
        &self,
        name: &str,
        command: &str,
        heading: &str,
        markdown: &str,
    ) -> anyhow::Result<()> {
        if let Some(file) = &self.results {
            let machine = Machine::this().words();
            let section = Section {
                name,
                heading,
                place: &format!("on {machine}"),
                command,
                body: &markdown.replacen(&format!("{machine}\n\n"), "", 1),
            };
            results::write_section(file, &section)?;
        }
        Ok(())
    }

    /// Replaces the summary of the section `name` in the results, if they have one.
    pub(super) fn write_summary(
        &self,
        name: &str,
        command: &str,
        summary: &str,
    ) -> anyhow::Result<()> {
        if let Some(file) = &self.results {
            results::write_summary(file, name, command, summary)?;
        }
        Ok(())
    }
}
