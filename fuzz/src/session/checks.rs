//! Checks after every operation.

use weir_moqt::message::RequestKind;
use weir_moqt::session::{Event, RequestId};

use super::{Known, World, limits};

impl World {
    /// Takes the events, and checks them and the limits.
    pub(super) fn hear(&mut self) {
        while let Some(event) = self.session.poll_event() {
            assert!(!self.is_over, "{event:?} after the end");
            self.hear_one(event);
        }
        let limits = limits();
        let requests_max =
            limits.requests_max + limits.requests_local_max + limits.requests_draining_max;
        assert!(self.session.requests_len() <= requests_max);
        if let Some(due) = self.session.poll_timeout() {
            assert!(
                due > self.now || !self.session.is_ready(),
                "what is due was done"
            );
        }
        assert_eq!(self.session.is_closed(), self.peer.is_closed);
        for (stream, channel) in &self.peer.channels {
            let reads = self.session.is_ready() && !channel.is_stopped_here;
            let waits = channel.incoming.len();
            // Only a subgroup with an unknown alias may stay unread, and streams that nobody knows.
            assert!(
                !reads || waits == 0 || stream.0 & 2 != 0 || channel.is_sent,
                "{stream:?}"
            );
        }
    }

    /// Reports the streams that the session has left for later.
    pub(super) fn read_on(&mut self) {
        while let Some(stream) = self.peer.later.pop_front() {
            self.session
                .handle_readable(self.now, &mut self.peer, stream);
            self.hear();
        }
    }

    fn hear_one(&mut self, event: Event) {
        match event {
            Event::Request { id, request } => {
                let previous = self
                    .requests
                    .insert(id, (false, request.kind(), Known::Pending));
                assert_eq!(previous, None);
            }
            Event::Update { id, .. } => {
                assert!(self.known(id) != Known::Ending);
                *self.updates_due.entry(id).or_default() += 1;
            }
            Event::Accepted { id, .. } => self.accepted(id),
            Event::Updated { id, result } => {
                assert_eq!(self.known(id), Known::Established);
                let (own, kind, _) = self.requests[&id];
                let is_namespace = !matches!(kind, RequestKind::Subscribe | RequestKind::Publish);
                if result.is_err() && is_namespace {
                    self.requests.insert(id, (own, kind, Known::Ending));
                }
            }
            Event::Rejected { id, .. } => {
                self.known(id);
                self.forget(id);
            }
            Event::Done { id, .. } => {
                assert!(self.known(id) != Known::Ending);
                self.ending(id);
            }
            Event::Closed { id, .. } => {
                assert!(self.closed.insert(id), "a request closes once");
                // Objects may still come, so the role keeps the request until it forgets it.
                self.ending(id);
            }
            Event::Namespace { id, .. }
            | Event::NamespaceDone { id, .. }
            | Event::PublishBlocked { id, .. }
            | Event::StateChanged { id, .. } => {
                assert_eq!(self.known(id), Known::Established);
            }
            Event::RequestGoAway { id, .. } => assert!(self.known(id) != Known::Ending),
            Event::Subgroup {
                stream, request, ..
            }
            | Event::Fetched { stream, request } => {
                self.known(request);
                assert!(self.data.insert(stream));
            }
            Event::StreamEnd { stream, .. } => assert!(self.data.remove(&stream)),
            Event::Datagram { request, .. } => {
                self.known(request);
            }
            Event::Object { stream, .. }
            | Event::FetchObject { stream, .. }
            | Event::Payload { stream, .. } => assert!(self.data.contains(&stream)),
            Event::Ready { .. } | Event::GoAway(_) => {}
            Event::Violated(_) => self.is_over = true,
        }
    }

    fn accepted(&mut self, id: RequestId) {
        assert_eq!(self.known(id), Known::Pending);
        let kind = self.requests[&id].1;
        let is_last = kind == RequestKind::TrackStatus;
        let known = if is_last {
            Known::Ending
        } else {
            Known::Established
        };
        self.requests.insert(id, (true, kind, known));
    }

    /// Records that only objects may come for a request.
    fn ending(&mut self, id: RequestId) {
        let (own, kind, _) = self.requests[&id];
        self.requests.insert(id, (own, kind, Known::Ending));
        self.updates_due.remove(&id);
    }

    fn known(&self, id: RequestId) -> Known {
        self.requests
            .get(&id)
            .unwrap_or_else(|| panic!("{id:?} is unknown or over"))
            .2
    }
}
