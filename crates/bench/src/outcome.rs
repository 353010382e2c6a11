//! Makes a report from what the roles measured. Real and simulated runs share it.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_histogram::Histogram;

use crate::{
    clock::milliseconds,
    measured::{Measured, PublishersMeasured, SubscribersMeasured},
    metrics::TrackPlan,
    profile::{Profile, TrackMode, TrackProfile},
    publisher::PublicationResult,
    schedule::Schedule,
    subscriber::SubscriptionResult,
};
use weir_report::{
    latency,
    relay::{
        Altered, Conduct, Generator, HeatMap, HeatMapRow, Published, Relay, Report, Run, Status,
        SubscriberReport, TrackDefinition, TrackReport, archive::Archive,
    },
    service_level::{Measured as Figures, ServiceLevel},
};

/// A host's knowledge of a run, beyond the measurements of its roles.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The run itself.
    pub run: Run,
    /// The relay, as observed from outside.
    pub relay: Relay,
    /// The generator's own figures, to which [`report()`] adds the publishers' lateness.
    pub generator: Generator,
    /// The part of the run that is judged.
    pub judged: Judged,
    /// The largest error of latency because publishers and subscribers have different clocks (decision 34): zero for one
    /// clock, `None` if it is unknown. A clause about latency is decided only if this error cannot change the answer.
    pub clock_error: Option<Duration>,
}

/// The times from which loss and latency are judged; all else is judged over the whole run. By default the whole run
/// counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Loss: objects planned at or after this time of the data phase, rounded up to a whole column of
    /// [`Heat`](crate::metrics::Heat).
    pub planned_from: Duration,
    /// Latency: objects that arrive at or after this time of the run, rounded up to a whole second.
    pub arrived_from: Duration,
}

/// Returns the archive of a run that has ended or was interrupted: its report and the data behind the report.
pub fn archive(
    profile: &Profile,
    plans: &[TrackPlan],
    measured: &Measured,
    level: &ServiceLevel,
    surroundings: Surroundings,
) -> Archive {
    let report = report(profile, plans, measured, level, surroundings);
    Archive::new(report, &measured.subscribers.latency)
}

/// Returns the report of a run that has ended or was interrupted.
pub fn report(
    profile: &Profile,
    plans: &[TrackPlan],
    measured: &Measured,
    level: &ServiceLevel,
    surroundings: Surroundings,
) -> Report {
    let Surroundings {
        run,
        relay,
        mut generator,
        judged,
        clock_error,
    } = surroundings;
    let Measured {
        publishers,
        subscribers,
    } = measured;
    let run = with_sessions(run, measured);
    let (publications, subscriptions) = (&publishers.results, &subscribers.results);
    let mut tracks = Vec::with_capacity(plans.len());
    let mut latency = Histogram::new();
    let mut lateness = Histogram::new();
    let mut loss = Loss::default();
    for (number, track) in profile.tracks.iter().enumerate() {
        let rows = rows(subscriptions, number);
        let published = published(publishers, number);
        let variance = latency::distribution(&subscribers.receive_variance[number]);
        let series = &subscribers.latency[number];
        latency.merge(&series.total_between(judged.arrived_from, Duration::MAX));
        let of_plan = loss_of(subscribers, &plans[number], number, judged);
        loss.lost += of_plan.lost;
        loss.judged += of_plan.judged;
        lateness.merge(&publishers.lateness[number]);
        let latency = latency::over_time(series);
        tracks.push(TrackReport::new(
            definition(track, plans[number].schedule()),
            published,
            variance,
            latency,
            subscribers.over_time[number].seconds(),
            heat_map(subscribers, &plans[number], number),
            rows,
        ));
    }
    generator.publisher_lateness = latency::distribution(&lateness);
    if let Some(late) = generator.publisher_lateness
        && late.p99_ms > LATENESS_P99_MAX_MS
    {
        generator.healthy = false;
        generator
            .reasons
            .push(format!("publishers were {:.0} ms late at p99", late.p99_ms));
    }
    blame_for_drops(&mut generator, publications);
    let mut slo = level.evaluate(&judged_figures(
        &tracks,
        failures(measured),
        &latency,
        loss,
        (&relay, clock_error),
    ));
    slo.judged_from_ms = judged.planned_from.as_secs_f64() * 1e3;
    Report::new(run, slo, tracks, relay, generator)
}

/// Returns the run with what its sessions negotiated: the draft, and how packets were acknowledged.
fn with_sessions(mut run: Run, measured: &Measured) -> Run {
    let (publishers, subscribers) = (&measured.publishers, &measured.subscribers);
    if let Some(draft) = subscribers.draft.or(publishers.draft) {
        run.draft = Some(draft.alpn().to_owned());
    }
    run.audience.acknowledged = subscribers.acknowledged;
    run
}

/// Decides who caused the objects that publishers dropped. If the publishers were late, it is the generator. Otherwise
/// the path to the relay did not accept the objects, and the loss counts as the relay's.
fn blame_for_drops(generator: &mut Generator, publications: &[PublicationResult]) {
    let dropped: u64 = publications
        .iter()
        .map(|result| result.sender.refusals.expired + result.sender.refusals.queue_full)
        .sum();
    let is_late = |late: &weir_report::statistics::Distribution| late.max_ms > LATENESS_P99_MAX_MS;
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

/// Returns the steady subscriptions of a plan, each with the number of objects it was due.
fn due(subscriptions: &[SubscriptionResult], plan: usize) -> impl Iterator<Item = (usize, u64)> {
    let of_plan = subscriptions
        .iter()
        .filter(move |one| one.plan == plan && one.conduct == Conduct::Steady);
    of_plan.map(|one| {
        let completion = &one.track.completion;
        (
            one.subscriber,
            completion.objects_received + completion.lost_objects,
        )
    })
}

/// Judged objects that were lost.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    lost: u64,
    judged: u64,
}

/// Counts the judged objects of a plan that were lost.
fn loss_of(
    subscribers: &SubscribersMeasured,
    plan: &TrackPlan,
    number: usize,
    judged: Judged,
) -> Loss {
    let (heat, subscriptions) = (&subscribers.heat[number], &subscribers.results[..]);
    let column = heat.column_from(crate::clock::nanoseconds(judged.planned_from));
    if column == 0 {
        let steady = subscriptions
            .iter()
            .filter(|one| one.plan == number && one.conduct == Conduct::Steady);
        return Loss {
            lost: steady.map(|one| one.track.completion.lost_objects).sum(),
            judged: due(subscriptions, number).map(|(_, due)| due).sum(),
        };
    }
    let mut planned: BTreeMap<u64, u64> = BTreeMap::new();
    let judged: u64 = due(subscriptions, number)
        .map(|(_, sent)| {
            let of_all = || heat.planned(plan.schedule(), sent).into_iter().skip(column);
            *planned.entry(sent).or_insert_with(|| of_all().sum())
        })
        .sum();
    Loss {
        lost: judged.saturating_sub(heat.received_from(column)),
        judged,
    }
}

/// Returns loss and latency of a plan by subscriber and time; `None` without subscribers.
fn heat_map(subscribers: &SubscribersMeasured, plan: &TrackPlan, number: usize) -> Option<HeatMap> {
    let heat = &subscribers.heat[number];
    let due: Vec<(usize, u64)> = due(&subscribers.results, number).collect();
    let most = due.iter().map(|(_, sent)| *sent).max()?;
    // Publishers of one plan send the same, unless one of them was interrupted.
    let planned = heat.planned(plan.schedule(), most);
    let row = |row: crate::metrics::HeatRow| {
        let of_row = || due.iter().filter(|(one, _)| row.subscribers.contains(one));
        let subscriptions = of_row().count() as u64;
        let expected = planned.iter().map(|planned| planned * subscriptions);
        let micros = |us: &u64| Duration::from_micros(*us).as_secs_f64() * 1e3;
        HeatMapRow {
            first_subscriber: row.subscribers.start as u64,
            subscriptions,
            lost: expected
                .zip(&row.received)
                .map(|(expected, received)| expected.saturating_sub(*received))
                .collect(),
            latency_max_ms: row.latency_max_us.iter().map(micros).collect(),
        }
    };
    Some(HeatMap {
        column_ms: Duration::from_nanos(heat.column_ns()).as_secs_f64() * 1e3,
        rows: heat.rows().map(row).collect(),
        planned,
    })
}

fn published(publishers: &PublishersMeasured, plan: usize) -> Published {
    let mut published = Published::default();
    for result in publishers
        .results
        .iter()
        .filter(|result| result.plan == plan)
    {
        published.publishers += 1;
        published.objects += result.totals.objects;
        published.groups += result.totals.groups;
        let (refusals, dropped) = (&result.sender.refusals, &result.sender.dropped);
        published.expired_objects += refusals.expired + dropped.expired;
        published.crowded_out_objects += refusals.queue_full + dropped.crowded_out;
    }
    published.lateness = latency::distribution(&publishers.lateness[plan]);
    published
}

/// Counts the failed subscriptions, and all that are judged. Without subscribers, counts tracks that were not published
/// to their end.
fn failures(measured: &Measured) -> (u64, u64) {
    let subscriptions = &measured.subscribers.results;
    if subscriptions.is_empty() {
        let progress = measured.publishers.progress;
        return (
            progress.tracks - progress.done.min(progress.tracks),
            progress.tracks,
        );
    }
    let steady = || {
        subscriptions
            .iter()
            .filter(|one| one.conduct == Conduct::Steady)
    };
    let is_failed = |result: &&SubscriptionResult| result.track.status != Status::Good;
    (
        steady().filter(is_failed).count() as u64,
        steady().count() as u64,
    )
}

fn judged_figures<'a>(
    tracks: &[TrackReport],
    (failed, subscriptions): (u64, u64),
    latency: &'a Histogram,
    loss: Loss,
    (relay, clock_error): (&Relay, Option<Duration>),
) -> Figures<'a> {
    let sum = |pick: fn(&TrackReport) -> u64| tracks.iter().map(pick).sum();
    Figures {
        lost_objects: loss.lost,
        judged_objects: loss.judged,
        expected_objects: sum(|track| {
            track.completion.objects_received.sum + track.completion.lost_objects.sum
        }),
        late_objects: sum(|track| track.delivery.late),
        altered_objects: Altered::over(tracks).map(|altered| altered.objects()),
        failed,
        subscriptions,
        latency,
        cpu_percent: relay.cost.as_ref().map(|cost| cost.cpu_percent),
        clock_error,
    }
}

/// Describes a track. In the form of qperf, its times are not those of the profile.
fn definition(track: &TrackProfile, schedule: &Schedule) -> TrackDefinition {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let interval_ns = i64::try_from(track.interval.ns()).unwrap_or(i64::MAX);
    let start_delay = schedule.start_delay();
    let duration = Duration::from_nanos(schedule.data_phase_ns());
    TrackDefinition {
        section: track.section.clone(),
        namespace: track.template.namespace().to_string(),
        name: track.template.name().to_string(),
        track_mode: track.track_mode.name().to_owned(),
        stream_mapping: (track.track_mode == TrackMode::Stream)
            .then(|| track.stream_mapping.name().to_owned()),
        priority: track.priority,
        ttl_ms: ms(track.ttl),
        time_interval_ms: milliseconds(interval_ns),
        objects_per_group: u64::from(track.objects_per_group.count()),
        first_object_size_bytes: u64::from(track.first_object_size.bytes()),
        object_size_bytes: u64::from(track.object_size.bytes()),
        start_delay_ms: ms(start_delay),
        total_transmit_time_ms: ms(start_delay + duration),
        duration_ms: ms(duration),
    }
}

/// If publishers are later than this at p99, the pattern is not the profile's: an audio object every 20 ms would leave
/// together with the next.
const LATENESS_P99_MAX_MS: f64 = 20.0;
