//! Answers of publishers to SUBSCRIBE that do not come in time.

use std::time::Duration;

use super::{Publisher, Tracks};
use crate::{
    ids::{PublisherId, TrackId},
    sessions::deadlines::ANSWER_TIME,
    timers::Timer,
    turn::Turn,
};

impl Tracks {
    /// Sets by when a publisher that was sent SUBSCRIBE has to answer: in [`ANSWER_TIME`], and `patience` if it may wait
    /// that long itself. An unresponsive session is not waited for.
    pub(super) fn await_answer(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        sender: PublisherId,
        patience: Duration,
    ) {
        let by = turn.now + ANSWER_TIME + patience;
        let Some(track) = self.table.get(id) else {
            return;
        };
        if turn.is_unresponsive(sender.0) {
            return;
        }
        if let Some(publisher) = track.publisher(sender) {
            publisher.answer_by = Some(by);
        }
        if track.answers_due.is_none_or(|due| by < due) {
            if let Some(due) = track.answers_due.replace(by) {
                turn.timers.cancel(due, Timer::Unanswered(id));
            }
            turn.timers.set(by, Timer::Unanswered(id));
        }
    }

    /// Returns the publishers whose answers are overdue since the last call.
    pub(crate) fn take_overdue(&mut self, turn: &mut Turn<'_>, id: TrackId) -> Vec<Publisher> {
        let Some(track) = self.table.get(id) else {
            return Vec::new();
        };
        let mut overdue = Vec::new();
        let mut next = None;
        for publisher in track.publishers.iter_mut().filter(|it| it.is_asked()) {
            if publisher.answer_by.take_if(|by| *by <= turn.now).is_some() {
                overdue.push(publisher.clone());
            }
            next = next.into_iter().chain(publisher.answer_by).min();
        }
        track.answers_due = next;
        if let Some(at) = next {
            turn.timers.set(at, Timer::Unanswered(id));
        }
        overdue
    }
}
