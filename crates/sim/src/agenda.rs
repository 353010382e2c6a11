//! The agenda: one heap of everything that has a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// A task for its time, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// A step of the story.
    Step(usize),
    /// A link that may have a packet to deliver.
    Link(usize),
    /// A node whose timer is due.
    Node(usize),
    /// A node with messages from its peer threads.
    Messages(usize),
}

/// Tasks in order of time. Tasks of equal time are in order of entry.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    entries: BinaryHeap<Reverse<(Instant, u64, Task)>>,
    sequence: u64,
}

impl Agenda {
    pub(crate) fn enter(&mut self, at: Instant, task: Task) {
        self.sequence += 1;
        self.entries.push(Reverse((at, self.sequence, task)));
    }

    /// Returns the time of the next task.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Returns the next task if it is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, Task)> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop().map(|Reverse((at, _, task))| (at, task))
    }
}

/// The current entry of one link or node in the agenda.
///
/// Timeouts mostly move to later times. Such an entry stays where it is, and its owner checks again when the entry is
/// due. Only a move to an earlier time adds an entry, and the old one is then ignored.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Instant>);

impl Alarm {
    /// Ensures that `task` is due no later than `at`.
    pub(crate) fn set(&mut self, agenda: &mut Agenda, task: Task, at: Option<Instant>) {
        let Some(at) = at else { return };
        if self.0.is_none_or(|live| live > at) {
            self.0 = Some(at);
            agenda.enter(at, task);
        }
    }

    /// Whether the entry that is due is the current one, and clears it if so.
    pub(crate) fn rings(&mut self, at: Instant) -> bool {
        let is_live = self.0 == Some(at);
        if is_live {
            self.0 = None;
        }
        is_live
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn tasks_come_in_the_order_of_their_times_and_then_of_their_entry() {
        let (start, mut agenda) = (Clock::new().now(), Agenda::default());
        let later = start + Duration::from_millis(1);
        agenda.enter(later, Task::Node(1));
        agenda.enter(later, Task::Link(2));
        agenda.enter(start, Task::Step(3));
        assert_eq!(agenda.pop(start), Some((start, Task::Step(3))));
        assert_eq!(agenda.pop(start), None);
        assert_eq!(agenda.next(), Some(later));
        assert_eq!(agenda.pop(later), Some((later, Task::Node(1))));
        assert_eq!(agenda.pop(later), Some((later, Task::Link(2))));
        assert_eq!(agenda.next(), None);
    }

    #[test]
    fn an_alarm_rings_at_its_earliest_time_only() {
        let (start, mut agenda, mut alarm) =
            (Clock::new().now(), Agenda::default(), Alarm::default());
        let at = |millis| start + Duration::from_millis(millis);
        for millis in [5, 9, 2, 2] {
            alarm.set(&mut agenda, Task::Link(0), Some(at(millis)));
        }
        alarm.set(&mut agenda, Task::Link(0), None);
        let entries: Vec<Instant> = std::iter::from_fn(|| agenda.pop(at(10)))
            .map(|(at, _)| at)
            .collect();
        assert_eq!(entries, [at(2), at(5)]);
        assert!(alarm.rings(at(2)));
        assert!(!alarm.rings(at(5)));
    }
}
