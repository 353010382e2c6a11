//! The search for the number of connections at which a server, or the client, is the limit.

use weir_report::http3::{BUSY_PERCENT, Limit};

/// A search that doubles the connections until one side is busy. Each step is a short run.
#[derive(Clone, Debug)]
pub(super) struct Search {
    least: usize,
    steps: Vec<Step>,
}

/// The result of a run with some connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    /// Connections of all threads together.
    pub(super) connections: usize,
    pub(super) limit: Limit,
    /// CPU load of the server, in per cent of its cores.
    pub(super) server_percent: f64,
    pub(super) requests_per_second: f64,
    /// Whether requests or connections failed.
    pub(super) has_failures: bool,
}

impl Step {
    /// Whether longer runs with as many connections will also find one side to be the limit.
    fn is_full(&self) -> bool {
        let has_margin = self.server_percent >= BUSY_PERCENT + MARGIN_PERCENT;
        self.limit == Limit::Client || (self.limit == Limit::Server && has_margin)
    }

    fn is_busy(&self) -> bool {
        matches!(self.limit, Limit::Server | Limit::Client)
    }
}

impl Search {
    /// Begins with `least` connections.
    pub(super) fn new(least: usize) -> Self {
        Self {
            least,
            steps: Vec::new(),
        }
    }

    /// Returns the connections of the next step; `None` if the search is over: one side was the limit, something failed, or
    /// more connections did not help.
    pub(super) fn next(&self) -> Option<usize> {
        let Some(last) = self.steps.last() else {
            return Some(self.least);
        };
        let is_over = last.is_full() || self.why_no_more().is_some();
        (!is_over).then_some(2 * last.connections)
    }

    pub(super) fn add(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Returns the connections of the first step in which one side was the limit with a margin, otherwise of the one in which
    /// the server was busiest, if it was the limit, otherwise of the one with most requests per second. Steps with failures do
    /// not count.
    pub(super) fn connections(&self) -> usize {
        let sound = || self.steps.iter().filter(|step| !step.has_failures);
        let full = sound().find(|step| step.is_full());
        let busiest = sound()
            .filter(|step| step.limit == Limit::Server)
            .max_by(|a, b| a.server_percent.total_cmp(&b.server_percent));
        let most = sound().max_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
        full.or(busiest)
            .or(most)
            .map_or(self.least, |step| step.connections)
    }

    /// Returns why no side was the limit with as many connections as the search tried; `None` if one was.
    pub(super) fn why_neither(&self) -> Option<String> {
        let has_limit = self.steps.iter().any(Step::is_busy);
        if has_limit { None } else { self.why_no_more() }
    }

    /// Returns why more connections are not tried, whatever the limit was; `None` if they are.
    fn why_no_more(&self) -> Option<String> {
        let last = self.steps.last()?;
        let Step {
            connections,
            requests_per_second: rate,
            ..
        } = *last;
        if last.has_failures {
            return Some(format!("requests failed with {connections} connections"));
        }
        let before = self.steps.iter().rev().nth(1);
        if let Some(before) = before.filter(|before| rate < WORSE * before.requests_per_second) {
            return Some(format!(
                "the rate fell from {:.0} to {rate:.0} requests per second with {connections} connections",
                before.requests_per_second
            ));
        }
        (self.steps.len() == STEPS_MAX)
            .then(|| format!("more than {connections} connections are not tried"))
    }
}

/// Steps of a search: up to 64 times the connections of the first one.
const STEPS_MAX: usize = 7;
/// A step with less than this part of the requests per second of the one before ends the search.
const WORSE: f64 = 0.7;
/// How much busier than [`BUSY_PERCENT`] a short step has to be, so that longer runs are not below that.
const MARGIN_PERCENT: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a server that behaves like `server`. Returns the connections of the steps, the choice, and why no side was
    /// the limit.
    fn search(server: impl Fn(usize) -> Step) -> (Vec<usize>, usize, Option<String>) {
        let mut search = Search::new(10);
        while let Some(connections) = search.next() {
            search.add(server(connections));
        }
        let steps = search.steps.iter().map(|step| step.connections);
        (steps.collect(), search.connections(), search.why_neither())
    }

    /// A step in which the server is 99 % busy if it is the limit, otherwise 80 %.
    fn step(connections: usize, limit: Limit, requests_per_second: f64) -> Step {
        let server_percent = if limit == Limit::Server { 99.0 } else { 80.0 };
        Step {
            connections,
            limit,
            server_percent,
            requests_per_second,
            has_failures: false,
        }
    }

    #[test]
    fn connections_double_until_one_side_is_the_limit() {
        for side in [Limit::Server, Limit::Client] {
            let (steps, choice, why) = search(|connections| {
                let limit = if connections < 40 {
                    Limit::Neither
                } else {
                    side
                };
                step(connections, limit, 1000.0)
            });
            assert_eq!((steps, choice, why), (vec![10, 20, 40], 40, None));
        }
        let (steps, choice, _) = search(|connections| step(connections, Limit::Server, 1.0));
        assert_eq!((steps, choice), (vec![10], 10));
    }

    #[test]
    fn a_server_that_is_just_busy_enough_gets_more_connections() {
        let busy = |most: f64| {
            search(move |connections| Step {
                server_percent: [95.5, most][usize::from(connections > 10)],
                ..step(connections, Limit::Server, 1.0)
            })
        };
        let (steps, choice, why) = busy(97.5);
        assert_eq!((steps, choice, why), (vec![10, 20], 20, None));
        // No step has the margin: the busiest one is taken.
        let (steps, choice, why) = busy(96.5);
        assert_eq!(steps.len(), STEPS_MAX);
        assert!(choice > 10);
        assert_eq!(why, None, "the server was the limit");
    }

    #[test]
    fn a_search_without_an_end_stops_and_takes_the_best() {
        let (steps, choice, why) = search(|connections| {
            let rate = if connections == 80 { 900.0 } else { 800.0 };
            step(connections, Limit::Neither, rate)
        });
        assert_eq!(steps, [10, 20, 40, 80, 160, 320, 640]);
        assert_eq!(choice, 80);
        assert_eq!(why.unwrap(), "more than 640 connections are not tried");
    }

    #[test]
    fn failures_and_lower_rates_end_the_search() {
        let (steps, choice, why) = search(|connections| Step {
            has_failures: connections == 20,
            ..step(connections, Limit::Neither, 1.0)
        });
        assert_eq!((steps, choice), (vec![10, 20], 10));
        assert_eq!(why.unwrap(), "requests failed with 20 connections");
        let (steps, choice, why) = search(|connections| {
            let rate = if connections > 10 { 1.0 } else { 2.0 };
            step(connections, Limit::Neither, rate)
        });
        assert_eq!((steps, choice), (vec![10, 20], 10));
        assert_eq!(
            why.unwrap(),
            "the rate fell from 2 to 1 requests per second with 20 connections"
        );
        let (steps, choice, _) = search(|connections| Step {
            has_failures: true,
            ..step(connections, Limit::Nothing, 0.0)
        });
        assert_eq!((steps, choice), (vec![10], 10), "nothing succeeded");
    }
}
