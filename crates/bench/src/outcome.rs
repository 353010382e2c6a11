//! From what the roles measured to a report, the same for real and for simulated runs.

use std::collections::BTreeMap;

use weir_histogram::Histogram;
use weir_moqt::name::FullTrackName;

use crate::{
    archive::Archive,
    clock::milliseconds,
    metrics::{SentTotals, TrackPlan, figures},
    profile::{Profile, TrackMode, TrackProfile},
    publisher::{PublicationResult, PublisherRole},
    report::{
        Generator, Published, Relay, Report, Run, Status, SubscriberReport, TrackDefinition,
        TrackReport,
    },
    service_level::{Measured, ServiceLevel},
    subscriber::{SubscriberRole, SubscriptionResult},
};

/// What a host knows of a run beside what its roles measured.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The run itself.
    pub run: Run,
    /// What was seen of the relay.
    pub relay: Relay,
    /// What was seen of the generator; the publishers' lateness is filled in here.
    pub generator: Generator,
}

/// Everything of a run that is over, or that was broken off: its report and what the report sums up.
pub fn archive(
    profile: &Profile,
    plans: &[TrackPlan],
    publishers: &PublisherRole,
    subscribers: &SubscriberRole,
    level: &ServiceLevel,
    surroundings: Surroundings,
) -> Archive {
    let report = report(profile, plans, publishers, subscribers, level, surroundings);
    Archive::new(
        report,
        (0..plans.len()).map(|plan| subscribers.latency(plan)),
    )
}

/// The report of a run that is over, or that was broken off.
pub fn report(
    profile: &Profile,
    plans: &[TrackPlan],
    publishers: &PublisherRole,
    subscribers: &SubscriberRole,
    level: &ServiceLevel,
    surroundings: Surroundings,
) -> Report {
    let Surroundings {
        mut run,
        relay,
        mut generator,
    } = surroundings;
    if let Some((draft, _)) = subscribers.relay() {
        run.draft = Some(draft.alpn().to_owned());
    }
    let publications = publishers.results();
    let sent: BTreeMap<&FullTrackName, SentTotals> = publications
        .iter()
        .map(|result| (&result.name, result.totals))
        .collect();
    let subscriptions = subscribers.results(|name| sent.get(name).copied());
    let mut tracks = Vec::with_capacity(plans.len());
    let mut latency = Histogram::new();
    let mut lateness = Histogram::new();
    for (number, track) in profile.tracks.iter().enumerate() {
        let rows = rows(&subscriptions, number);
        let published = published(&publications, publishers, number);
        let variance = figures::distribution(&subscribers.receive_variance(number));
        let series = subscribers.latency(number);
        latency.merge(&series.total());
        lateness.merge(&publishers.lateness(number));
        let latency = figures::latency(series);
        tracks.push(TrackReport::new(
            definition(track),
            published,
            variance,
            latency,
            rows,
        ));
    }
    generator.publisher_lateness = figures::distribution(&lateness);
    if let Some(late) = generator.publisher_lateness
        && late.p99_ms > LATENESS_P99_MAX_MS
    {
        generator.healthy = false;
        generator
            .reasons
            .push(format!("publishers were {:.0} ms late at p99", late.p99_ms));
    }
    blame_for_drops(&mut generator, &publications);
    let slo = level.evaluate(&measured(&tracks, &subscriptions, &latency, &relay));
    Report::new(run, slo, tracks, relay, generator)
}

/// Objects that publishers dropped before they were sent are the generator's fault if its publishers were slow. If they
/// were in time, the path to the relay did not take the objects, and the loss is the relay's.
fn blame_for_drops(generator: &mut Generator, publications: &[PublicationResult]) {
    let dropped: u64 = publications
        .iter()
        .map(|result| result.sender.refusals.expired + result.sender.refusals.queue_full)
        .sum();
    let is_late = |late: &crate::report::Distribution| late.max_ms > LATENESS_P99_MAX_MS;
    if dropped > 0 && generator.publisher_lateness.as_ref().is_some_and(is_late) {
        generator.healthy = false;
        generator.reasons.push(format!(
            "publishers that were late dropped {dropped} objects before they were sent"
        ));
    }
}

fn rows(subscriptions: &[SubscriptionResult], plan: usize) -> Vec<SubscriberReport> {
    let of_plan = subscriptions.iter().filter(|result| result.plan == plan);
    of_plan.map(|result| result.to_report(0)).collect()
}

fn published(
    publications: &[PublicationResult],
    publishers: &PublisherRole,
    plan: usize,
) -> Published {
    let mut published = Published::default();
    for result in publications.iter().filter(|result| result.plan == plan) {
        published.publishers += 1;
        published.objects += result.totals.objects;
        published.groups += result.totals.groups;
        published.expired_objects += result.sender.refusals.expired;
    }
    published.lateness = figures::distribution(&publishers.lateness(plan));
    published
}

fn measured<'a>(
    tracks: &[TrackReport],
    subscriptions: &[SubscriptionResult],
    latency: &'a Histogram,
    relay: &Relay,
) -> Measured<'a> {
    let sum = |pick: fn(&TrackReport) -> u64| tracks.iter().map(pick).sum();
    let lost_objects: u64 = sum(|track| track.completion.lost_objects.sum);
    let received: u64 = sum(|track| track.completion.objects_received.sum);
    let is_failed = |result: &&SubscriptionResult| result.track.status != Status::Good;
    Measured {
        lost_objects,
        expected_objects: lost_objects + received,
        late_objects: sum(|track| track.delivery.late),
        failed: subscriptions.iter().filter(is_failed).count() as u64,
        subscriptions: subscriptions.len() as u64,
        latency,
        cpu_percent: relay.cost.as_ref().map(|cost| cost.cpu_percent),
    }
}

fn definition(track: &TrackProfile) -> TrackDefinition {
    let ms =
        |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let interval_ns = i64::try_from(track.interval.ns()).unwrap_or(i64::MAX);
    TrackDefinition {
        section: track.section.clone(),
        namespace: track.template.namespace().to_string(),
        name: track.template.name().to_string(),
        track_mode: match track.track_mode {
            TrackMode::Datagram => "datagram".to_owned(),
            TrackMode::Stream => "stream".to_owned(),
        },
        stream_mapping: match track.track_mode {
            TrackMode::Datagram => None,
            TrackMode::Stream => Some(track.stream_mapping.name().to_owned()),
        },
        priority: track.priority,
        ttl_ms: ms(track.ttl),
        time_interval_ms: milliseconds(interval_ns),
        objects_per_group: u64::from(track.objects_per_group.count()),
        first_object_size_bytes: u64::from(track.first_object_size.bytes()),
        object_size_bytes: u64::from(track.object_size.bytes()),
        start_delay_ms: ms(track.start_delay),
        total_transmit_time_ms: ms(track.total_transmit_time()),
        duration_ms: ms(track.duration),
    }
}

/// Publishers that are later than this at p99 send another pattern than the profile's: one object of an audio
/// track each 20 ms would come with the next.
const LATENESS_P99_MAX_MS: f64 = 20.0;
