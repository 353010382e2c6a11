//! Tracks that are fetched completely instead of subscribed to. [evens-00 §3.3]

use weir_moqt::data::{FetchEntry, ObjectHeader, ObjectStatus};
use weir_moqt::location::Location;
use weir_moqt::message::FetchKind;
use weir_moqt::parameter::Parameters;
use weir_transport::StreamId;

use super::SubscriberConfig;
use super::client::{SubscriberClient, insert_request};
use super::incoming::{Complete, carries};
use super::measurements::Measurements;
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

    /// Sends FETCH for every marked track.
    pub(super) fn fetch_all(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
    ) {
        let now = turn.now;
        let Some((session, mut connection)) = client.open(turn) else {
            return;
        };
        for (number, subscription) in self.subscriptions.iter_mut().enumerate() {
            if !std::mem::take(&mut subscription.is_fetched_later) {
                continue;
            }
            subscription.on_requested(now);
            let wanted = &self.wanted[number];
            let schedule = measured.config.plans[wanted.plan].schedule();
            let kind = FetchKind::Standalone {
                track: wanted.name.clone(),
                start: Location {
                    group: 0,
                    object: 0,
                },
                end: Location {
                    group: schedule.completion_group(),
                    object: 0,
                },
            };
            let parameters = Parameters {
                subscriber_priority: measured.config.request.priority,
                authorization_tokens: measured.config.request.tokens.clone(),
                ..Parameters::default()
            };
            match session.fetch(&mut connection, kind, parameters) {
                Ok(request) => insert_request(&mut self.requests, request, number),
                Err(refused) => {
                    let receiver = &mut measured.receivers[self.first + number];
                    subscription.failure = Some(format!("could not fetch: {refused}"));
                    receiver.fail(Failure::Refused);
                    receiver.end(End::Disconnected);
                    subscription.note_end(receiver, &mut measured.progress);
                }
            }
        }
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
