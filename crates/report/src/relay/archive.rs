//! All of one run in one text: its report, and what a report sums up, second by second.
//!
//! The form: one JSON object per line. The first says what this is and in which version, the last that it is whole;
//! between them stand the report and the histograms of latency, one per track and window of time, so that any stretch
//! of the run can be judged afterwards. Compression and files are the caller's business.

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

/// Version of the archive's form; it grows whenever a line changes or goes. The report in it has a version of its own.
pub const ARCHIVE: u32 = 2;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Archive {
    /// What the run said.
    pub report: Report,
    /// Latency of each track over time, by track, then by time.
    pub latency: Vec<LatencyWindow>,
}

/// Latency of the objects of one track that arrived within one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyWindow {
    /// Position of the track in the profile.
    pub track: usize,
    /// Beginning of the window, in milliseconds since the start of the run.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
    /// The latencies.
    pub histogram: Histogram,
}

/// Why a text is no archive.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The first line says something else.
    #[error("line 1: not an archive of weir bench")]
    Foreign,
    /// An archive in another form than this version reads.
    #[error("line 1: the archive has version {0}, and this program reads version {ARCHIVE}")]
    Version(u64),
    /// A report in another form than this version reads.
    #[error("line {line}: {error}")]
    Report {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        error: json::ReadError,
    },
    /// A line that is none of the archive's.
    #[error("line {line}: {error}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// A line that does not fit to the others.
    #[error("line {line}: {problem}")]
    Misfit {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The last line is missing.
    #[error("it breaks off after line {0}: the last line of an archive says that it is whole")]
    BrokenOff(usize),
}

/// Why a window of a run cannot be shown.
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
    /// The archive of a run: its report, and the latency of each of its tracks over time.
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

    /// The archive as text; every line ends with a line feed.
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
        // Rounded as a report's own form is, so that what is read and written again is the same to the byte.
        let rounded = json::parse(&json::render(&self.report));
        let report = rounded.unwrap_or_else(|_| self.report.clone());
        let mut lines = add(&Line::Report(Box::new(report)));
        for window in &self.latency {
            lines = add(&Line::Latency(Box::new(window.clone())));
        }
        add(&Line::End { lines: lines + 1 });
        text
    }

    /// Reads what [`Archive::to_text`] wrote.
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
                return misfit("more lines than any run has");
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
                    return misfit("the number of lines is another one: some are missing");
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

    /// The report with latency, and the clauses about it, over the seconds `from..to` of the run alone. Everything
    /// else is still about the whole run.
    ///
    /// # Errors
    /// Nothing arrived in that time.
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
            has_common_clock: report.slo.clauses.iter().all(|one| one.held.is_some()),
        };
        if let Ok(level) = report.slo.text.parse::<ServiceLevel>() {
            report.slo = level.evaluate(&measured);
        }
        Ok(report.judged_again())
    }
}

/// A report of a version that is not read is refused by its version, not by the first of the fields in which it differs.
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
