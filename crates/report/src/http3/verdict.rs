//! Whose limit a run found. A figure is the server's only where the server was the limit.

use serde::{Deserialize, Serialize};

use super::Report;
use crate::form::number;

/// The conclusion of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Who was the limit.
    pub limit: Limit,
    /// The same in a sentence, with the figures.
    pub sentence: String,
}

/// Who or what kept the requests per second from being more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Nothing succeeded: nothing can be said.
    #[default]
    Nothing,
    /// The server: its figures are its own.
    Server,
    /// The load client: the server could have done more.
    Client,
    /// The rate that was asked for, all of which succeeded.
    Rate,
    /// Neither of the two was busy: the number of requests at once, or the way between them.
    Neither,
    /// The server was not watched, or has ended in mid-run.
    Unknown,
}

impl Limit {
    /// In a word or two.
    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing succeeded",
            Self::Server => "the server",
            Self::Client => "the client",
            Self::Rate => "the rate asked for",
            Self::Neither => "neither side",
            Self::Unknown => "not known",
        }
    }
}

impl Verdict {
    /// Draws the conclusion of `report`.
    pub(super) fn of(report: &Report) -> Self {
        let limit = Limit::of(report);
        Self {
            limit,
            sentence: sentence(report, limit),
        }
    }
}

impl Limit {
    fn of(report: &Report) -> Self {
        let requests = &report.requests;
        if requests.successes == 0 {
            return Self::Nothing;
        }
        let server = report.server.as_ref();
        // Its load over the whole run says nothing of what it could have done.
        if report.has_lost_server() {
            return Self::Unknown;
        }
        if server.is_some_and(|server| server.utilisation_percent() >= BUSY_PERCENT) {
            return Self::Server;
        }
        if report.client.busiest_thread_percent() >= BUSY_PERCENT {
            return Self::Client;
        }
        let is_sent = requests.unsent <= report.run.threads;
        if report.run.rate_per_second.is_some() && is_sent && !report.is_behind() {
            return Self::Rate;
        }
        match server {
            Some(_) => Self::Neither,
            None => Self::Unknown,
        }
    }
}

impl Report {
    /// Whether requests of an open loop failed: what succeeded is less than what was asked for.
    pub(super) fn is_behind(&self) -> bool {
        self.run.rate_per_second.is_some() && self.requests.failed > 0
    }

    /// Whether a process of the server ended in mid-run.
    pub(super) fn has_lost_server(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.died.is_some())
    }
}

fn sentence(report: &Report, limit: Limit) -> String {
    let requests = &report.requests;
    let rate = number::decimal(requests.per_second);
    let client = number::brief(report.client.busiest_thread_percent());
    let server = report.server.as_ref();
    let busy = server.map_or_else(String::new, |server| {
        number::brief(server.utilisation_percent())
    });
    let cost = server
        .and_then(|server| server.cpu_us_per_request)
        .map_or_else(String::new, |cost| {
            format!(
                " The server spent {} µs of CPU on each.",
                number::decimal(cost)
            )
        });
    let died = server
        .and_then(|server| server.died.as_ref())
        .map_or_else(String::new, |died| format!(" {died}."));
    let failed = number::counted(requests.failed, "request");
    let text = match limit {
        Limit::Nothing => format!(
            "No request succeeded: {failed} failed, {} had no answer in time; {} could not be made, {} had no handshake in time.",
            number::count(requests.unfinished),
            number::counted(report.connections.refused, "connection"),
            number::count(report.connections.unfinished),
        ),
        Limit::Server => format!(
            "The server was the limit ({busy} % busy): {rate} successful requests per second.{cost}"
        ),
        Limit::Client => format!(
            "The load client was the limit ({client} % busy): the server answered {rate} requests per second, and \
             could have done more."
        ),
        Limit::Rate => format!("The server kept up with {rate} requests per second.{cost}"),
        Limit::Unknown if report.has_lost_server() => format!(
            "{rate} successful requests per second of the whole run; whose limit that was is not known."
        ),
        Limit::Neither | Limit::Unknown if report.is_behind() => format!(
            "The server did not keep up with the rate asked for: {rate} successful requests per second, and {failed} \
             failed.{cost}"
        ),
        Limit::Neither => format!(
            "Neither side was the limit (server {busy} %, client {client} % busy): {rate} requests per second are \
             those of so many requests at once.{cost}"
        ),
        Limit::Unknown => format!(
            "{rate} successful requests per second. The client was not the limit ({client} % busy); whether the \
             server was is not known, since it was not watched."
        ),
    };
    text + &died
}

/// From this load on a side counts as busy.
pub const BUSY_PERCENT: f64 = 95.0;
