//! The archive of a run: its report, and a latency histogram for each track and window of time.
//!
//! The form is one JSON object per line. The first line names the form and its version, the second is the report, then
//! come the histograms. The last line holds the number of lines, so a truncated archive is noticed. With the histograms,
//! latency can be judged over any part of the run. The caller compresses the text and writes the file.

#[cfg(test)]
pub(crate) mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::form::json::check_schema;
use crate::latency::{self, LatencySecond};
use crate::limits::ARCHIVE_LINES_MAX;
use crate::relay::{Altered, Report, SCHEMA, json};
use crate::service_level::{Measured, ServiceLevel};
use weir_histogram::{Histogram, Series};

/// Version of the archive's form. It grows whenever a line is changed or removed. The report has its own version.
pub const ARCHIVE: u32 = 2;

/// The archive of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Archive {
    /// The report of the run.
    pub report: Report,
    /// Latency of each track over time, ordered by track, then by time.
    pub latency: Vec<LatencyWindow>,
}

/// Latency of the objects of one track that arrived within one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyWindow {
    /// Position of the track in the profile.
    pub track: usize,
    /// Start of the window, in milliseconds since the start of the run.
    pub from_ms: u64,
    /// End of the window, in milliseconds since the start of the run.
    pub to_ms: u64,
    /// Histogram of latency.
    pub histogram: Histogram,
}

/// An error in reading an archive.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The first line does not name an archive.
    #[error("line 1: not an archive of weir bench")]
    Foreign,
    /// The archive has a version that this program does not read.
    #[error("line 1: the archive has version {0}, and this program reads version {ARCHIVE}")]
    Version(u64),
    /// The report has a schema that this program does not read.
    #[error("line {line}: {error}")]
    Report {
        /// Number of the line, from 1.
        line: usize,
        /// The error.
        error: json::ReadError,
    },
    /// A line is not valid.
    #[error("line {line}: {error}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The error.
        error: serde_json::Error,
    },
    /// A line contradicts the others.
    #[error("line {line}: {problem}")]
    Misfit {
        /// Number of the line, from 1.
        line: usize,
        /// The contradiction.
        problem: &'static str,
    },
    /// The last line is missing.
    #[error(
        "the archive breaks off after line {0}: its last line, with the number of lines, is missing"
    )]
    BrokenOff(usize),
}

/// The error of a window in which no object arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no object arrived between second {from} and second {to} of the run")]
pub struct EmptyWindow {
    from: u64,
    to: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    WeirArchive { version: u64, weir: String },
    Report(Box<Report>),
    Latency(Box<LatencyWindow>),
    End { lines: usize },
}

impl Archive {
    /// Makes the archive of a run from its report and the latency of each track over time.
    pub fn new<'a>(report: Report, latency: impl IntoIterator<Item = &'a Series>) -> Self {
        let mut windows = Vec::new();
        for (track, series) in latency.into_iter().enumerate() {
            let window_ms = u64::try_from(series.window().as_millis()).unwrap_or(u64::MAX);
            let filled = (0_u64..)
                .zip(series.windows())
                .filter(|(_, one)| !one.is_empty());
            windows.extend(filled.map(|(number, histogram)| LatencyWindow {
                track,
                from_ms: number * window_ms,
                to_ms: (number + 1) * window_ms,
                histogram: histogram.clone(),
            }));
        }
        Self {
            report,
            latency: windows,
        }
    }

    /// Writes the archive as text; every line ends with a line feed.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut lines = 0;
        let mut add = |line: &Line| {
            let line = serde_json::to_string(line);
            text.push_str(&line.expect("an archive has string keys only, and memory takes all"));
            text.push('\n');
            lines += 1;
            lines
        };
        add(&Line::WeirArchive {
            version: u64::from(ARCHIVE),
            weir: self.report.run.weir_version.clone(),
        });
        // Numbers are rounded as in a JSON report, so that reading and writing again gives the same bytes.
        let rounded = json::parse(&json::render(&self.report));
        let report = rounded.unwrap_or_else(|_| self.report.clone());
        let mut lines = add(&Line::Report(Box::new(report)));
        for window in &self.latency {
            lines = add(&Line::Latency(Box::new(window.clone())));
        }
        add(&Line::End { lines: lines + 1 });
        text
    }

    /// Reads an archive that [`Archive::to_text`] wrote.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        let mut lines = (1..).zip(text.lines());
        check_first(lines.next().map(|(_, line)| line))?;
        let mut report = None;
        let mut latency = Vec::new();
        let mut last = 1;
        for (line, content) in lines {
            let misfit = |problem| Err(ReadError::Misfit { line, problem });
            last = line;
            if line > ARCHIVE_LINES_MAX {
                return misfit("more lines than an archive can have");
            }
            match read_line(line, content)? {
                Line::WeirArchive { .. } => return misfit("a second archive begins here"),
                Line::Report(_) if report.is_some() => return misfit("a second report"),
                Line::Report(read) => report = Some(*read),
                Line::Latency(window) => {
                    let tracks = report.as_ref().map_or(0, |report| report.tracks.len());
                    if window.track >= tracks {
                        return misfit("latency of a track that the report does not have");
                    }
                    if window.from_ms >= window.to_ms {
                        return misfit("a window that ends before it begins");
                    }
                    latency.push(*window);
                }
                Line::End { lines } if lines != line => {
                    return misfit("wrong number of lines: some are missing");
                }
                Line::End { .. } => {
                    let Some(report) = report else {
                        return misfit("the archive holds no report");
                    };
                    return Ok(Self { report, latency });
                }
            }
        }
        Err(ReadError::BrokenOff(last))
    }

    /// Returns the report with latency, and the clauses about latency, over seconds `from..to` of the run only. All other
    /// figures and clauses cover the whole run. The verdict says so.
    ///
    /// # Errors
    /// No object arrived in that time.
    pub fn between(&self, from: u64, to: u64) -> Result<Report, EmptyWindow> {
        let mut report = self.report.clone();
        let mut all = Histogram::new();
        let inside = |window: &&LatencyWindow| {
            window.from_ms >= from.saturating_mul(1000) && window.from_ms < to.saturating_mul(1000)
        };
        for (number, track) in report.tracks.iter_mut().enumerate() {
            let mut total = Histogram::new();
            let windows = self.latency.iter().filter(|window| window.track == number);
            for window in windows.filter(inside) {
                total.merge(&window.histogram);
            }
            all.merge(&total);
            track.latency.overall = latency::distribution(&total);
            track.latency.histogram = latency::buckets(&total);
            let is_inside = |one: &LatencySecond| (from..to).contains(&one.second);
            track.latency.per_second.retain(is_inside);
        }
        if all.is_empty() {
            return Err(EmptyWindow { from, to });
        }
        let lost_objects = report.objects_lost();
        let sum = |pick: fn(&crate::relay::TrackReport) -> u64| {
            report.tracks.iter().map(pick).sum::<u64>()
        };
        let failed = sum(|track| track.status.incomplete + track.status.failed);
        let measured = Measured {
            lost_objects,
            judged_objects: lost_objects + report.objects_delivered(),
            expected_objects: lost_objects + report.objects_delivered(),
            late_objects: sum(|track| track.delivery.late),
            altered_objects: Altered::over(&report.tracks).map(|altered| altered.objects()),
            failed,
            subscriptions: failed + sum(|track| track.status.good),
            latency: &all,
            cpu_percent: report.relay.cost.as_ref().map(|cost| cost.cpu_percent),
            clock_error: report.run.clock_error(),
        };
        if let Ok(level) = report.slo.text.parse::<ServiceLevel>() {
            report.slo = level.evaluate(&measured);
        }
        let mut report = report.judged_again();
        let window = match to {
            u64::MAX => format!("the run from second {from}"),
            to => format!("seconds {from} to {to}"),
        };
        report.verdict.sentence = format!(
            "{}; latency is judged over {window} only, everything else over the whole run",
            report.verdict.sentence
        );
        Ok(report)
    }
}

/// Reads a line. A report with another schema is refused by its schema, not by the first field that differs.
fn read_line(line: usize, content: &str) -> Result<Line, ReadError> {
    let read = serde_json::from_str(content);
    if !matches!(read, Ok(Line::Latency(_) | Line::End { .. })) {
        let value: Value = serde_json::from_str(content).unwrap_or(Value::Null);
        let report = value.get("report").unwrap_or(&Value::Null);
        check_schema(report, SCHEMA).map_err(|error| ReadError::Report { line, error })?;
    }
    read.map_err(|error| ReadError::Line { line, error })
}

fn check_first(line: Option<&str>) -> Result<(), ReadError> {
    let value: Value = line
        .and_then(|line| serde_json::from_str(line).ok())
        .ok_or(ReadError::Foreign)?;
    let version = value
        .get("weir_archive")
        .and_then(|line| line.get("version"));
    match version.and_then(Value::as_u64) {
        None => Err(ReadError::Foreign),
        Some(version) if version != u64::from(ARCHIVE) => Err(ReadError::Version(version)),
        Some(_) => Ok(()),
    }
}
