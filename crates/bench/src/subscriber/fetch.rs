//! Objects that are fetched: whole tracks instead of a subscription, at once or in ranges [evens-00 §3.3], and what came
//! before a subscription (joining FETCH).

use weir_moqt::data::{FetchEntry, ObjectHeader, ObjectStatus, SubgroupId};
use weir_moqt::location::Location;
use weir_moqt::message::FetchKind;
use weir_moqt::parameter::Parameters;
use weir_moqt::session::{Accepted, RequestId};
use weir_moqt::token::Token;
use weir_transport::StreamId;

use super::SubscriberConfig;
use super::client::{SubscriberClient, insert_request};
use super::incoming::{Complete, Incoming, carries};
use super::measurements::Measurements;
use crate::limits::INCOMING_STREAMS_MAX;
use crate::metrics::{End, Failure};
use crate::profile::Pattern;
use weir_client::client::Client;
use weir_client::turn::Turn;

impl SubscriberClient {
    /// Marks the tracks that are fetched when the schedules begin.
    pub(super) fn wait_for_fetches(&mut self, config: &SubscriberConfig) {
        for (subscription, wanted) in self.subscriptions.iter_mut().zip(self.wanted.iter()) {
            subscription.is_fetched_later = config.plans[wanted.plan].pattern() == Pattern::Fetch;
        }
    }

    /// Sends FETCH for every marked track, or for its first range.
    pub(super) fn fetch_all(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
    ) {
        for number in 0..self.subscriptions.len() {
            if std::mem::take(&mut self.subscriptions[number].is_fetched_later) {
                self.fetch_from(turn, client, measured, (number, 0));
            }
        }
    }

    /// Sends FETCH for the range of a track that begins with group `first`, and notes where the next one begins.
    fn fetch_from(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
        (number, first): (usize, u64),
    ) {
        let now = turn.now;
        let tokens = client.tokens();
        let Some((session, mut connection)) = client.open(turn) else {
            return;
        };
        let (subscription, wanted) = (&mut self.subscriptions[number], &self.wanted[number]);
        let plan = &measured.config.plans[wanted.plan];
        let last = plan.schedule().completion_group();
        let next = plan
            .fetch_groups()
            .map(|groups| first.saturating_add(groups));
        let next = next.filter(|next| *next <= last);
        let (group, object) = next.map_or((last, 0), |next| (next - 1, u64::MAX));
        let kind = FetchKind::Standalone {
            track: wanted.name.clone(),
            start: Location {
                group: first,
                object: 0,
            },
            end: Location { group, object },
        };
        subscription.on_requested(now);
        match session.fetch(&mut connection, kind, parameters(&measured.config, tokens)) {
            Ok(request) => {
                subscription.next_range = next;
                insert_request(&mut self.requests, request, number);
            }
            Err(refused) => {
                let receiver = &mut measured.receivers[self.first + number];
                subscription.failure = Some(format!("could not fetch: {refused}"));
                receiver.fail(Failure::Refused);
                receiver.end(End::Disconnected);
                subscription.note_end(receiver, &mut measured.progress);
            }
        }
    }

    /// Handles the acceptance of a request. If it is a subscription to a track under way, and the profile says so, fetches
    /// the groups before the current one. [moqt-18 §10.12.2]
    pub(super) fn on_request_accepted(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
        (id, ok): (RequestId, &Accepted),
    ) {
        self.on_accepted(measured, id);
        let Accepted::Subscribe(ok) = ok else {
            return;
        };
        let Some(number) = self.number_of(id) else {
            return;
        };
        let plan = &measured.config.plans[self.wanted[number].plan];
        let wanted = plan.joining_fetch().zip(ok.parameters.largest_object);
        let Some((groups, _)) = wanted else {
            return;
        };
        let tokens = client.tokens();
        let Some((session, mut connection)) = client.open(turn) else {
            return;
        };
        let request_id = id.0;
        let kind = FetchKind::RelativeJoining { request_id, groups };
        match session.fetch(&mut connection, kind, parameters(&measured.config, tokens)) {
            Ok(request) => self.joins.push((request, number, turn.now)),
            Err(refused) => {
                let reason = format!("could not send a joining FETCH: {refused}");
                self.fail_join(measured, number, reason);
            }
        }
    }

    /// Returns the index of the subscription that a joining FETCH belongs to.
    pub(super) fn join_of(&self, request: RequestId) -> Option<usize> {
        let join = self.joins.iter().find(|(one, ..)| *one == request);
        join.map(|(_, number, _)| *number)
    }

    /// Handles the beginning of a stream that answers a FETCH.
    pub(super) fn on_fetch_stream(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        stream: StreamId,
        request: RequestId,
    ) {
        match self.join_of(request) {
            Some(number) if self.streams.len() < INCOMING_STREAMS_MAX => {
                let mut incoming = Incoming::new(stream, number, 0, SubgroupId::Zero);
                incoming.is_past = true;
                self.streams.push(incoming);
            }
            Some(_) | None => {
                let incoming = (0, SubgroupId::Zero);
                self.on_stream(turn, client, stream, request, incoming);
            }
        }
    }

    /// Handles the proper end of a stream: records how long a joining FETCH took, or fetches the next range.
    pub(super) fn on_fetch_end(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
        incoming: &Incoming,
    ) {
        let number = incoming.subscription;
        if incoming.is_past {
            let place = self.joins.iter().position(|(_, one, _)| *one == number);
            if let Some((.., sent)) = place.map(|place| self.joins.swap_remove(place)) {
                let took = turn.now.saturating_duration_since(sent);
                self.subscriptions[number].joining_fetch.get_or_insert(took);
            }
        } else if let Some(first) = self.subscriptions[number].next_range.take() {
            self.requests.retain(|(_, one)| *one != number);
            self.fetch_from(turn, client, measured, (number, first));
        }
    }

    /// Fails a track whose joining FETCH was not answered: what came before the subscription stays unknown.
    pub(super) fn fail_join(&mut self, measured: &mut Measurements, number: usize, reason: String) {
        self.joins.retain(|(_, one, _)| *one != number);
        self.subscriptions[number].failure.get_or_insert(reason);
        measured.receivers[self.first + number].fail(Failure::Refused);
    }

    /// Handles the beginning of an object in a fetch stream.
    pub(super) fn on_fetch_entry(
        &mut self,
        config: &SubscriberConfig,
        stream: StreamId,
        entry: &FetchEntry,
    ) -> Option<(usize, Complete)> {
        let FetchEntry::Object(object) = entry else {
            return None;
        };
        let incoming = self.streams.iter_mut().find(|one| one.stream == stream)?;
        let plan = &config.plans[self.wanted[incoming.subscription].plan];
        let intact = !config.verify_content || carries(&object.properties, plan.properties());
        incoming.enter_group(object.group);
        let header = ObjectHeader {
            id: object.object,
            properties: object.properties.clone(),
            status: ObjectStatus::Normal,
            payload_len: object.payload_len,
        };
        Some((incoming.subscription, incoming.on_object(&header, intact)?))
    }
}

/// Returns the parameters of a FETCH by a client with these tokens.
fn parameters(config: &SubscriberConfig, tokens: Vec<Token>) -> Parameters {
    Parameters {
        subscriber_priority: config.request.priority,
        authorization_tokens: tokens,
        ..Parameters::default()
    }
}
