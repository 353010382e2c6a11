//! What limited a run: a relay behind a link that is too slow, the null relay under the same load, and parts of a run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, time::Duration};

use weir_bench::null_relay::NullRelay;
use weir_link::{Bitrate, Config as LinkConfig, Queue, Rate};
use weir_quic::App;
use weir_report::{
    relay::{Calibration, Outcome, Report, html, prometheus, terminal},
    search::{self, Answer, Probe, Settings, Step},
    service_level::ServiceLevel,
};

use crate::world::{self, Clients, Crowd, Setting, World, seed};

const AUDIO: &str = include_str!("../../../../profiles/audio-short.ini");

/// The first second is not judged.
const UNJUDGED: Duration = Duration::from_secs(1);

/// Returns the report of a run whose relay can send at most `rate` to its subscribers.
fn run(subscribers: u64, relay: impl App + 'static, rate: Option<u64>) -> Report {
    let crowd = Crowd::Subscribers(usize::try_from(subscribers).unwrap());
    let mut world = World::new(&Setting::new(AUDIO, seed(21), crowd), relay);
    if let (Some(rate), Clients::Apart { sink, .. }) = (rate, world.clients()) {
        let slow = LinkConfig {
            rate: Rate::Fixed(Bitrate::from_bits_per_second(rate)),
            queue: Queue {
                bytes_max: 200_000,
                ..Queue::default()
            },
            ..world::delay(10)
        };
        world.sim.set_link(world.relay, sink, slow);
    }
    world.run();
    let level: ServiceLevel = "loss=0,failed=0,p99<100ms".parse().unwrap();
    world.report(&level, UNJUDGED, BTreeMap::new())
}

#[test]
fn a_relay_that_is_slow_on_purpose_is_the_limit_and_the_clause_is_named() {
    let report = run(100, world::relay(), Some(3_000_000));
    assert_eq!(
        report.verdict.outcome,
        Outcome::Broken,
        "{:?}",
        report.verdict
    );
    // 100 subscribers need 50 packets of about 160 bytes per second each: 6.4 Mbit/s.
    assert_eq!(report.slo.first_broken.as_deref(), Some("loss=0"));
    let calibration = Calibration::of(&run(100, NullRelay::new(), None));
    assert!(calibration.held, "{calibration:?}");
    let report = report.calibrated(calibration);
    assert_eq!(
        report.verdict.outcome,
        Outcome::Broken,
        "the relay stays the limit"
    );
}

#[test]
fn a_limit_that_holds_for_the_null_relay_too_is_not_the_relays() {
    let slow = Some(3_000_000);
    let report = run(100, world::relay(), slow);
    let calibration = Calibration::of(&run(100, NullRelay::new(), slow));
    assert!(!calibration.held);
    assert!(
        calibration.reasons[0].contains("against a null relay, loss=0 broke"),
        "{calibration:?}"
    );
    let report = report.calibrated(calibration);
    assert_eq!(
        report.verdict.outcome,
        Outcome::GeneratorLimit,
        "{:?}",
        report.verdict
    );
    assert!(!report.generator.healthy);
}

#[test]
fn the_search_finds_what_a_link_carries() {
    let settings = Settings {
        from: 10,
        least: 1,
        most: 1000,
        precision_percent: 10,
        repeats: 1,
        needed: 1,
        probes_max: 20,
    };
    let mut probes = Vec::new();
    let answer = loop {
        match search::next(&settings, &probes) {
            Step::Probe(load) => {
                let report = run(load, world::relay(), Some(3_000_000));
                probes.push(Probe::of(load, &report));
            }
            Step::Done(answer) => break answer,
        }
    };
    let Answer::Found {
        held,
        broke,
        clause,
        ..
    } = answer
    else {
        panic!("{answer:?}");
    };
    // A subscriber needs 64 to 70 kbit/s: 50 packets of 160 bytes per second, and the overhead of QUIC.
    assert!((35..=48).contains(&held) && held < broke, "{held} {broke}");
    assert!(
        ["loss=0", "p99<100ms"].contains(&clause.text.as_str()),
        "{clause:?}"
    );
}

#[test]
fn what_happens_before_the_steady_window_is_not_judged() {
    let mut world = World::new(
        &Setting::new(AUDIO, seed(22), Crowd::Subscribers(5)),
        world::relay(),
    );
    world.join();
    world.release();
    let Clients::Apart { sink, .. } = world.clients() else {
        panic!("a fan-out has two nodes of clients");
    };
    // The data phase begins a second after the release. Its first 300 ms are lost.
    let begin = world.sim.elapsed() + Duration::from_secs(1);
    let (relay, end) = (world.relay, begin + Duration::from_millis(300));
    world.sim.blackhole(relay, sink, begin, end);
    world.finish();
    let level = ServiceLevel::default();
    let judged = world.report(&level, UNJUDGED, BTreeMap::new());
    assert_eq!(
        judged.verdict.outcome,
        Outcome::Held,
        "{:?}",
        judged.verdict
    );
    assert!(judged.slo.judged_from_ms > 0.0);
    let whole = world.report(&level, Duration::ZERO, BTreeMap::new());
    assert_eq!(whole.verdict.outcome, Outcome::Broken);
    let heat = whole.tracks[0].heat.as_ref().unwrap();
    let lost_in = |column: usize| heat.rows.iter().map(|row| row.lost[column]).sum::<u64>();
    assert!(lost_in(0) >= 5 * 10, "{heat:?}");
    assert_eq!((1..heat.planned.len()).map(lost_in).sum::<u64>(), 0);
    // A probe's row says what its clauses judge, and names what they exclude.
    let lost = whole.objects_lost();
    assert_eq!(judged.objects_lost(), lost, "tracks count the whole run");
    let figures = Probe::of(5, &judged).figures;
    assert_eq!(
        (figures.objects_lost, figures.objects_lost_before),
        (0, lost)
    );
    let row = search::row(&Probe::of(5, &judged));
    let named = format!("{lost} lost before the judged part");
    assert!(row.ends_with(&named), "{row}");
    let sentence = format!("0 of them lost, and {lost} before");
    let text = terminal::render(&judged, 200, false);
    assert!(text.contains(&sentence), "{text}");
    assert!(html::render(&judged).contains(&sentence));
    assert!(prometheus::render(&judged).contains("objects_lost_judged 0\n"));
    let figures = Probe::of(5, &whole).figures;
    assert_eq!(
        (figures.objects_lost, figures.objects_lost_before),
        (lost, 0)
    );
    assert_eq!(figures.latency_p99_ms, whole.slo.latency_p99_ms);
    assert!(!html::render(&whole).contains("Judged:"));
}

#[test]
fn loss_in_per_cent_is_of_what_is_judged() {
    let mut world = World::new(
        &Setting::new(AUDIO, seed(23), Crowd::Subscribers(5)),
        world::relay(),
    );
    world.join();
    world.release();
    let Clients::Apart { sink, .. } = world.clients() else {
        panic!("a fan-out has two nodes of clients");
    };
    // After the part that is not judged, all objects are lost for a while.
    let begin = world.sim.elapsed() + Duration::from_secs(1) + UNJUDGED * 2;
    let (relay, end) = (world.relay, begin + Duration::from_millis(300));
    world.sim.blackhole(relay, sink, begin, end);
    world.finish();
    let level: ServiceLevel = "loss<100%".parse().unwrap();
    let per_cent = |unjudged| {
        let report = world.report(&level, unjudged, BTreeMap::new());
        let whole = report.tracks[0].heat.clone().unwrap();
        let from = (unjudged.as_secs_f64() * 1e3 / whole.column_ms).ceil();
        let columns = whole.planned.iter().zip(0_u32..);
        let judged = columns.filter(|(_, column)| f64::from(*column) >= from);
        let judged: u64 = judged.map(|(planned, _)| planned * 5).sum();
        let lost = report.slo.lost_objects;
        assert!(lost >= 5 * 10, "{lost}");
        let measured = report.slo.clauses[0].measured.unwrap();
        let [lost, judged] = [lost, judged].map(|count| f64::from(u32::try_from(count).unwrap()));
        let expected = lost / judged * 100.0;
        assert!((measured - expected).abs() < 1e-6, "{measured} {expected}");
        measured
    };
    assert!(per_cent(UNJUDGED) > per_cent(Duration::ZERO));
}
