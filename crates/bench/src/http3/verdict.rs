//! Whose limit a run found. A figure is the server's only where the server was the limit.

use serde::{Deserialize, Serialize};

use super::Report;
use crate::report::figures;

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
    /// The rate that was asked for, which was kept.
    Rate,
    /// Neither of the two was busy: the number of requests at once, or the way between them.
    Neither,
    /// The server was not watched.
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
        if server.is_some_and(|server| server.utilisation_percent() >= BUSY_PERCENT) {
            return Self::Server;
        }
        if report.client.busiest_thread_percent() >= BUSY_PERCENT {
            return Self::Client;
        }
        if report.run.rate_per_second.is_some() && requests.unsent <= report.run.threads {
            return Self::Rate;
        }
        match server {
            Some(_) => Self::Neither,
            None => Self::Unknown,
        }
    }
}

fn sentence(report: &Report, limit: Limit) -> String {
    let requests = &report.requests;
    let rate = figures::decimal(requests.per_second);
    let client = figures::brief(report.client.busiest_thread_percent());
    let server = report.server.as_ref();
    let busy = server.map_or_else(String::new, |server| {
        figures::brief(server.utilisation_percent())
    });
    let cost = server
        .and_then(|server| server.cpu_us_per_request)
        .map_or_else(String::new, |cost| {
            format!(
                " The server spent {} µs of CPU on each.",
                figures::decimal(cost)
            )
        });
    let died = server
        .and_then(|server| server.died.as_ref())
        .map_or_else(String::new, |died| format!(" {died}."));
    let text = match limit {
        Limit::Nothing => format!(
            "No request succeeded: {} failed, {} had no answer in time; {} could not be made, {} had no handshake in time.",
            figures::counted(requests.failed, "request"),
            figures::count(requests.unfinished),
            figures::counted(report.connections.refused, "connection"),
            figures::count(report.connections.unfinished),
        ),
        Limit::Server => format!(
            "The server was the limit ({busy} % busy): {rate} successful requests per second.{cost}"
        ),
        Limit::Client => format!(
            "The load client was the limit ({client} % busy): the server answered {rate} requests per second, and \
             could have done more."
        ),
        Limit::Rate => format!("The server kept up with {rate} requests per second.{cost}"),
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
