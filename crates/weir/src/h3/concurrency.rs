//! The search for the number of connections at which a server, or the client, is the limit.

use weir_report::http3::Limit;

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
    pub(super) requests_per_second: f64,
    /// Whether requests or connections failed.
    pub(super) has_failures: bool,
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
        let is_busy = matches!(last.limit, Limit::Server | Limit::Client);
        let before = self.steps.iter().rev().nth(1);
        let is_worse = before
            .is_some_and(|before| last.requests_per_second < WORSE * before.requests_per_second);
        let is_over = is_busy || is_worse || last.has_failures || self.steps.len() == STEPS_MAX;
        (!is_over).then_some(2 * last.connections)
    }

    pub(super) fn add(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Returns the connections of the step in which the server was the limit, otherwise those of the step with most requests
    /// per second, without steps with failures.
    pub(super) fn connections(&self) -> usize {
        let sound = || self.steps.iter().filter(|step| !step.has_failures);
        let full = sound().find(|step| step.limit == Limit::Server);
        let most = sound().max_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
        full.or(most).map_or(self.least, |step| step.connections)
    }
}

/// Steps of a search: up to 32 times the connections of the first one.
const STEPS_MAX: usize = 6;
/// A step with less than this part of the requests per second of the one before ends the search.
const WORSE: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a server that behaves like `server`. Returns the connections of the steps, and the choice.
    fn search(server: impl Fn(usize) -> Step) -> (Vec<usize>, usize) {
        let mut search = Search::new(10);
        while let Some(connections) = search.next() {
            search.add(server(connections));
        }
        let steps = search.steps.iter().map(|step| step.connections);
        (steps.collect(), search.connections())
    }

    fn step(connections: usize, limit: Limit, requests_per_second: f64) -> Step {
        Step {
            connections,
            limit,
            requests_per_second,
            has_failures: false,
        }
    }

    #[test]
    fn connections_double_until_one_side_is_the_limit() {
        for side in [Limit::Server, Limit::Client] {
            let (steps, choice) = search(|connections| {
                let limit = if connections < 40 {
                    Limit::Neither
                } else {
                    side
                };
                step(connections, limit, 1000.0)
            });
            assert_eq!(steps, [10, 20, 40]);
            let expected = if side == Limit::Server { 40 } else { choice };
            assert_eq!(choice, expected);
        }
        let (steps, choice) = search(|connections| step(connections, Limit::Server, 1.0));
        assert_eq!((steps, choice), (vec![10], 10));
    }

    #[test]
    fn a_search_without_an_end_stops_and_takes_the_best() {
        let (steps, choice) = search(|connections| {
            let rate = if connections == 80 { 900.0 } else { 800.0 };
            step(connections, Limit::Neither, rate)
        });
        assert_eq!(steps, [10, 20, 40, 80, 160, 320]);
        assert_eq!(choice, 80);
    }

    #[test]
    fn failures_and_lower_rates_end_the_search() {
        let (steps, choice) = search(|connections| Step {
            has_failures: connections == 20,
            ..step(connections, Limit::Server, 1.0).with_limit(connections)
        });
        assert_eq!((steps, choice), (vec![10, 20], 10));
        let (steps, choice) = search(|connections| {
            step(
                connections,
                Limit::Neither,
                if connections > 10 { 1.0 } else { 2.0 },
            )
        });
        assert_eq!((steps, choice), (vec![10, 20], 10));
        let (steps, choice) = search(|connections| Step {
            has_failures: true,
            ..step(connections, Limit::Nothing, 0.0)
        });
        assert_eq!((steps, choice), (vec![10], 10), "nothing succeeded");
    }

    impl Step {
        /// The server becomes the limit beyond 10 connections.
        fn with_limit(self, connections: usize) -> Self {
            let limit = if connections > 10 {
                self.limit
            } else {
                Limit::Neither
            };
            Self { limit, ..self }
        }
    }
}
