//! A publisher's offers to the relay, and its answers to the relay's requests.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use weir_moqt::data::{ObjectDatagram, ObjectStatus};
use weir_moqt::draft::Draft;
use weir_moqt::error::RequestErrorCode;
use weir_moqt::message::{Subscribe, SubscribeOk};
use weir_moqt::name::Namespace;
use weir_moqt::parameter::Parameters;
use weir_moqt::property::{self, Properties};
use weir_moqt::session::{Refused, RequestId, Session};
use weir_moqt::token::Token;
use weir_quic::Connection;

use super::PublisherConfig;
use super::publication::Publication;
use crate::metrics::TrackPlan;

/// An offer without a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum Offer {
    /// PUBLISH of the track of this number.
    Track(usize),
    /// `PUBLISH_NAMESPACE`.
    Namespace,
}

/// Why a request is refused: a code for programs and a text for people.
pub(super) type Reason = (RequestErrorCode, &'static str);

/// Sends PUBLISH for every track.
pub(super) fn offer_tracks(
    session: &mut Session,
    connection: &mut Connection<'_>,
    (config, tokens): (&PublisherConfig, &[Token]),
    tracks: &mut [Publication],
    pending: &mut BTreeMap<RequestId, Offer>,
) -> Result<(), Refused> {
    for (number, track) in tracks.iter_mut().enumerate() {
        let properties = track_properties(&config.plans[track.plan]);
        let (name, parameters) = (track.name.clone(), with_tokens(tokens));
        let id = session.publish(connection, name, track.alias, parameters, properties)?;
        track.on_offered(id);
        pending.insert(id, Offer::Track(number));
    }
    Ok(())
}

/// Sends `PUBLISH_NAMESPACE` for every namespace of the tracks.
pub(super) fn offer_namespaces(
    session: &mut Session,
    connection: &mut Connection<'_>,
    tokens: &[Token],
    tracks: &[Publication],
    pending: &mut BTreeMap<RequestId, Offer>,
) -> Result<(), Refused> {
    let mut namespaces: Vec<&Namespace> =
        tracks.iter().map(|track| &track.name.namespace).collect();
    namespaces.sort();
    namespaces.dedup();
    for namespace in namespaces {
        let parameters = with_tokens(tokens);
        let id = session.publish_namespace(connection, namespace.clone(), parameters)?;
        pending.insert(id, Offer::Namespace);
    }
    Ok(())
}

fn with_tokens(tokens: &[Token]) -> Parameters {
    Parameters {
        authorization_tokens: tokens.to_vec(),
        ..Parameters::default()
    }
}

/// Accepts the relay's SUBSCRIBE if it names a track without a subscription.
pub(super) fn accept(
    tracks: &mut [Publication],
    plans: &[TrackPlan],
    id: RequestId,
    subscribe: &Subscribe,
) -> Result<SubscribeOk, Reason> {
    let track = tracks
        .iter_mut()
        .find(|track| track.name == subscribe.track);
    let unknown = (
        RequestErrorCode::DOES_NOT_EXIST,
        "not a track of this publisher",
    );
    let track = track.ok_or(unknown)?;
    if track.request().is_some() {
        let code = RequestErrorCode::DUPLICATE_SUBSCRIPTION;
        return Err((code, "the track is subscribed to already"));
    }
    track.on_subscribed(id, subscribe.parameters.forward.unwrap_or(true));
    let largest_object = track.largest();
    Ok(SubscribeOk {
        track_alias: track.alias,
        parameters: Parameters {
            largest_object,
            ..Parameters::default()
        },
        properties: track_properties(&plans[track.plan]),
    })
}

/// Returns the properties of a track that tell relays its priority and time to live (decisions 28 and 29).
pub(super) fn track_properties(plan: &TrackPlan) -> Properties {
    let ttl_ms = u64::try_from(plan.ttl().as_millis()).unwrap_or(u64::MAX);
    Properties::builder()
        .int(
            property::DEFAULT_PUBLISHER_PRIORITY,
            u64::from(plan.priority()),
        )
        .int(property::OBJECT_DELIVERY_TIMEOUT, ttl_ms)
        .build()
}

/// Returns the most bytes of a datagram before its payload.
pub(super) fn datagram_overhead(draft: Draft, track: &Publication, plan: &TrackPlan) -> usize {
    let schedule = plan.schedule();
    let header = ObjectDatagram {
        track_alias: track.alias,
        group: schedule.completion_group(),
        object: schedule.objects_per_group(),
        priority: Some(plan.priority()),
        end_of_group: true,
        properties: plan.properties().clone(),
        status: ObjectStatus::Normal,
        payload: Bytes::new(),
    };
    let mut encoded = BytesMut::new();
    header.encode_header(draft, &mut encoded);
    encoded.len()
}
