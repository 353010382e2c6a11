//! Judges whether the load generator kept up: each thread by itself, and threads that share a core together.

use std::{collections::BTreeMap, time::Duration};

use super::{Generator, GeneratorThread};
use crate::form::number;
use crate::process::percent;

/// A thread of the generator: its load over the steady window, and its core.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSeen {
    /// Load and event-loop lag.
    pub thread: GeneratorThread,
    /// The core that the thread is bound to; none if it is not bound.
    pub core: Option<usize>,
    /// Number of the agent that the thread belongs to: equal cores of two agents are different ones.
    pub agent: usize,
}

impl ThreadSeen {
    /// Creates a thread that used `cpu` in `elapsed`, and whose timers fired late by `lag`: 99th percentile and largest
    /// value.
    pub fn new(
        name: &str,
        core: Option<usize>,
        (cpu, elapsed): (Duration, Duration),
        lag: [Duration; 2],
    ) -> Self {
        let [lag_p99_ms, lag_max_ms] = lag.map(|lag| lag.as_secs_f64() * 1e3);
        let thread = GeneratorThread {
            name: name.to_owned(),
            cpu_percent: percent(cpu, elapsed),
            event_loop_lag_p99_ms: lag_p99_ms,
            event_loop_lag_max_ms: lag_max_ms,
        };
        Self {
            thread,
            core,
            agent: 0,
        }
    }

    /// Adds a thread of the same role on the same core: their loads add up, and the larger lag counts. Returns the other
    /// thread if it is of another role or on another core, or bound to none.
    pub fn absorb(&mut self, other: Self) -> Option<Self> {
        let is_alike = self.core.is_some()
            && self.core == other.core
            && self.agent == other.agent
            && self.thread.name == other.thread.name;
        if !is_alike {
            return Some(other);
        }
        let (own, other) = (&mut self.thread, other.thread);
        own.cpu_percent += other.cpu_percent;
        own.event_loop_lag_p99_ms = own.event_loop_lag_p99_ms.max(other.event_loop_lag_p99_ms);
        own.event_loop_lag_max_ms = own.event_loop_lag_max_ms.max(other.event_loop_lag_max_ms);
        None
    }
}

impl Generator {
    /// Creates a generator with these threads, and judges whether it kept up. All other fields are empty.
    pub fn of(threads: Vec<ThreadSeen>, packets_dropped: u64) -> Self {
        let reasons = reasons(&threads, packets_dropped);
        Self {
            healthy: reasons.is_empty(),
            reasons,
            threads: threads.into_iter().map(|one| one.thread).collect(),
            socket_receive_buffer_drops: packets_dropped,
            ..Self::default()
        }
    }
}

/// Returns what the generator did not keep up with, with the names of the threads; empty if it kept up.
fn reasons(threads: &[ThreadSeen], packets_dropped: u64) -> Vec<String> {
    let mut reasons = Vec::new();
    for ThreadSeen { thread, .. } in threads {
        if thread.event_loop_lag_p99_ms > LAG_P99_MAX_MS {
            reasons.push(format!(
                "the event loop of the {} lagged {:.0} ms at p99 (at most {LAG_P99_MAX_MS} ms allowed)",
                thread.name, thread.event_loop_lag_p99_ms
            ));
        }
    }
    reasons.extend(saturated(threads));
    if packets_dropped > 0 {
        reasons.push(format!(
            "the kernel dropped {} packets because the generator's receive buffers were full",
            number::count(packets_dropped)
        ));
    }
    reasons
}

/// Returns a reason for each core that was used up. A thread that is not bound counts as if it had a core of its own.
fn saturated(threads: &[ThreadSeen]) -> Vec<String> {
    let mut by_core: BTreeMap<(usize, usize), Vec<&GeneratorThread>> = BTreeMap::new();
    let mut reasons = Vec::new();
    for seen in threads {
        match seen.core {
            Some(core) => {
                let place = (seen.agent, core);
                by_core.entry(place).or_default().push(&seen.thread);
            }
            None if seen.thread.cpu_percent > CPU_PERCENT_MAX => reasons.push(format!(
                "the thread of the {} used {:.0} % of a core",
                seen.thread.name, seen.thread.cpu_percent
            )),
            None => {}
        }
    }
    for ((_, core), threads) in by_core {
        let cpu: f64 = threads.iter().map(|thread| thread.cpu_percent).sum();
        if cpu <= CPU_PERCENT_MAX {
            continue;
        }
        let reason = if let [only] = threads[..] {
            format!(
                "the thread of the {} used {cpu:.0} % of core {core}",
                only.name
            )
        } else {
            let each = threads.iter();
            let each = each.map(|thread| format!("{} {:.0} %", thread.name, thread.cpu_percent));
            format!(
                "the threads on core {core} used {cpu:.0} % of it together ({})",
                each.collect::<Vec<_>>().join(", ")
            )
        };
        reasons.push(reason);
    }
    reasons
}

/// Largest CPU load of a healthy generator's core, in per cent. Above it, the generator may cause the latency.
const CPU_PERCENT_MAX: f64 = 95.0;
/// Largest 99th percentile of event-loop lag of a healthy generator. Above it, arrivals are recorded so late that
/// latency says more about the generator than about the relay.
const LAG_P99_MAX_MS: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, core: Option<usize>, cpu_percent: f64) -> ThreadSeen {
        ThreadSeen {
            thread: GeneratorThread {
                name: name.to_owned(),
                cpu_percent,
                event_loop_lag_p99_ms: LAG_P99_MAX_MS,
                event_loop_lag_max_ms: 80.0,
            },
            core,
            agent: 0,
        }
    }

    #[test]
    fn equal_cores_of_two_agents_are_different_ones() {
        let here = seen("subscribers of a", Some(1), 60.0);
        let there = ThreadSeen {
            agent: 1,
            ..seen("subscribers of b", Some(1), 60.0)
        };
        assert_eq!(reasons(&[here, there.clone()], 0), [""; 0]);
        let full = ThreadSeen {
            agent: 1,
            ..seen("subscribers of b", Some(1), 99.0)
        };
        assert_eq!(
            reasons(&[there, full], 0),
            [
                "the threads on core 1 used 159 % of it together (subscribers of b 60 %, subscribers of b 99 %)"
            ]
        );
    }

    #[test]
    fn a_thread_that_uses_up_its_core_is_named() {
        let apart = [
            seen("publishers", Some(1), 5.0),
            seen("subscribers", Some(2), 99.6),
        ];
        assert_eq!(
            reasons(&apart, 0),
            ["the thread of the subscribers used 100 % of core 2"]
        );
        // Meetings, and processes that only subscribe, have one thread.
        assert_eq!(
            reasons(&[seen("clients", Some(1), 95.1)], 0),
            ["the thread of the clients used 95 % of core 1"]
        );
        assert_eq!(
            reasons(&[seen("subscribers", None, 97.0)], 0),
            ["the thread of the subscribers used 97 % of a core"]
        );
    }

    #[test]
    fn threads_that_share_a_core_are_judged_by_their_sum() {
        let together = |cpu| {
            let threads = [
                seen("publishers", Some(1), 15.0),
                seen("subscribers", Some(1), cpu),
            ];
            reasons(&threads, 0)
        };
        assert_eq!(together(80.0), [""; 0]);
        assert_eq!(
            together(81.0),
            ["the threads on core 1 used 96 % of it together (publishers 15 %, subscribers 81 %)"]
        );
        // On cores of their own, neither thread is overloaded.
        let apart = [
            seen("publishers", Some(1), 60.0),
            seen("subscribers", Some(2), 95.0),
        ];
        assert_eq!(reasons(&apart, 0), [""; 0]);
        let unbound = [
            seen("publishers", None, 60.0),
            seen("subscribers", None, 60.0),
        ];
        assert_eq!(reasons(&unbound, 0), [""; 0]);
    }

    #[test]
    fn threads_of_one_role_on_one_core_add_up() {
        let mut all = seen("subscribers", Some(1), 20.0);
        let mut lagging = seen("subscribers", Some(1), 30.0);
        lagging.thread.event_loop_lag_p99_ms = 60.0;
        assert_eq!(all.absorb(lagging), None);
        let GeneratorThread {
            cpu_percent,
            event_loop_lag_p99_ms,
            event_loop_lag_max_ms,
            ..
        } = all.thread;
        assert!((cpu_percent - 50.0).abs() < 1e-9);
        assert!((event_loop_lag_p99_ms - 60.0).abs() < 1e-9);
        assert!((event_loop_lag_max_ms - 80.0).abs() < 1e-9);
        for (name, core) in [
            ("publishers", Some(1)),
            ("subscribers", Some(2)),
            ("subscribers", None),
        ] {
            let other = seen(name, core, 1.0);
            assert_eq!(all.absorb(other.clone()), Some(other));
        }
    }

    #[test]
    fn event_loop_lag_and_dropped_packets_are_reasons() {
        let mut late = seen("subscribers", Some(1), 10.0);
        assert_eq!(reasons(&[late.clone()], 0), [""; 0]);
        late.thread.event_loop_lag_p99_ms = LAG_P99_MAX_MS + 1.0;
        assert_eq!(
            reasons(&[late], 3),
            [
                "the event loop of the subscribers lagged 51 ms at p99 (at most 50 ms allowed)",
                "the kernel dropped 3 packets because the generator's receive buffers were full"
            ]
        );
    }

    #[test]
    fn a_generator_is_healthy_if_there_is_no_reason_against_it() {
        let [half, second] = [500, 1_000].map(Duration::from_millis);
        let thread = |lag| ThreadSeen::new("clients", Some(1), (half, second), [lag, second]);
        let healthy = Generator::of(vec![thread(half / 10)], 0);
        assert!(healthy.healthy && healthy.reasons.is_empty());
        let expected = GeneratorThread {
            name: "clients".to_owned(),
            cpu_percent: 50.0,
            event_loop_lag_p99_ms: 50.0,
            event_loop_lag_max_ms: 1_000.0,
        };
        assert_eq!(healthy.threads, [expected]);
        let slow = Generator::of(vec![thread(half)], 2);
        assert_eq!((slow.healthy, slow.reasons.len()), (false, 2));
        assert_eq!(slow.socket_receive_buffer_drops, 2);
    }
}
