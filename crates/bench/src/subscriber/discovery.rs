//! Track discovery, for subscribers that do not request tracks by name (decision 33).

use weir_moqt::message::{Publish, RequestOk};
use weir_moqt::name::Namespace;
use weir_moqt::parameter::Parameters;
use weir_moqt::session::RequestId;

use super::SubscribeFlow;
use super::client::{SubscriberClient, insert_request, refuse};
use super::measurements::Measurements;
use crate::metrics::{End, Failure};
use weir_client::client::Client;
use weir_client::turn::Turn;

impl SubscriberClient {
    /// Requests the namespaces or tracks under the common prefix of all wanted tracks.
    pub(super) fn discover(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
    ) {
        let Some(prefix) = self.prefix() else { return };
        let tokens = client.tokens();
        let Some((session, mut connection)) = client.open(turn) else {
            return;
        };
        let parameters = Parameters {
            authorization_tokens: tokens,
            ..Parameters::default()
        };
        let asked = if measured.config.flow == SubscribeFlow::SubscribeTracks {
            session.subscribe_tracks(&mut connection, prefix, parameters)
        } else {
            session.subscribe_namespace(&mut connection, prefix, parameters)
        };
        match asked {
            Ok(request) => self.discovery = Some(request),
            Err(refused) => self.fail(measured, format!("could not ask for namespaces: {refused}")),
        }
    }

    /// Subscribes to the wanted tracks of a namespace that the relay has announced.
    pub(super) fn on_namespace(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
        (id, suffix): (RequestId, &Namespace),
    ) {
        let Some(prefix) = self.prefix().filter(|_| self.discovery == Some(id)) else {
            return;
        };
        let Ok(whole) = prefix.join(suffix) else {
            return;
        };
        let found = |number: &usize| self.wanted[*number].name.namespace == whole;
        let numbers: Vec<usize> = (0..self.wanted.len()).filter(found).collect();
        self.ask_for(turn, client, measured, numbers);
    }

    /// Answers a PUBLISH of the relay for a track under the prefix.
    pub(super) fn on_publish(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
        (id, publish): (RequestId, &Publish),
    ) {
        let wanted = self
            .wanted
            .iter()
            .position(|one| one.name == publish.track)
            .filter(|_| measured.config.flow == SubscribeFlow::SubscribeTracks);
        let Some(number) = wanted.filter(|number| !self.subscriptions[*number].is_requested())
        else {
            return refuse(turn, client, id);
        };
        self.subscriptions[number].on_requested(turn.now);
        insert_request(&mut self.requests, id, number);
        let plan = &measured.config.plans[self.wanted[number].plan];
        let mut parameters = measured.config.request.parameters(plan, client.tokens());
        // An offered track has a publisher, so there is no rendezvous to wait for.
        parameters.rendezvous_timeout = None;
        parameters.forward = Some(true);
        if let Some((session, mut connection)) = client.open(turn) {
            let ok = RequestOk {
                parameters,
                ..RequestOk::default()
            };
            session.request_ok(&mut connection, id, ok);
        }
        self.on_accepted(measured, id);
    }

    /// Fails the tracks that were not found.
    pub(super) fn give_up_search(&mut self, measured: &mut Measurements) {
        let receivers = &mut measured.receivers[self.first..];
        for (subscription, receiver) in self.subscriptions.iter_mut().zip(receivers) {
            if !subscription.is_requested() && !subscription.has_ended() {
                subscription.failure = Some("the relay never announced the track".to_owned());
                receiver.fail(Failure::Refused);
                receiver.end(End::Idle);
                subscription.note_end(receiver, &mut measured.progress);
            }
        }
    }

    /// Returns the longest common prefix of the namespaces of all wanted tracks.
    fn prefix(&self) -> Option<Namespace> {
        let mut namespaces = self.wanted.iter().map(|one| &one.name.namespace);
        let mut shared: Vec<&[u8]> = namespaces.next()?.fields().collect();
        for namespace in namespaces {
            let same = shared
                .iter()
                .zip(namespace.fields())
                .take_while(|(one, other)| **one == *other);
            let same = same.count();
            shared.truncate(same);
        }
        Namespace::new(shared).ok()
    }
}
