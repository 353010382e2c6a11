//! The draft's scenario 1 in virtual time. The real relay, publisher and subscribers exchange real QUIC packets over
//! emulated links. Equal seeds give reports that are equal to the byte.

use std::time::Duration;

use weir_bench::publisher::PublishFlow;
use weir_link::{Config as LinkConfig, Loss, Probability};
use weir_report::{
    relay::{Outcome, Report, html, json},
    service_level::ServiceLevel,
};

use crate::world::{self, Crowd, Setting, World, seed};

/// The draft's own profile.
const AUDIO: &str = include_str!("../../../../profiles/audio.ini");
const AUDIO_SHORT: &str = include_str!("../../../../profiles/audio-short.ini");

#[test]
fn two_hundred_subscribers_get_every_object_and_the_report_repeats() {
    let seed = seed(1);
    let first = run(AUDIO, 200, PublishFlow::PublishNamespace, clean(), seed);
    let again = run(AUDIO, 200, PublishFlow::PublishNamespace, clean(), seed);
    assert_eq!(
        json::render(&first.report),
        json::render(&again.report),
        "WEIR_SEED={seed}"
    );
    assert_eq!(first.trace, again.trace, "WEIR_SEED={seed}");
    let report = first.report;
    assert_eq!(
        report.verdict.outcome,
        Outcome::Held,
        "{:?}",
        report.verdict
    );
    // 30 s of an object every 20 ms, to 200 subscribers without loss.
    assert_eq!(report.objects_delivered(), 1500 * 200);
    assert_eq!(report.objects_lost(), 0);
    let latency = report.tracks[0].latency.overall.unwrap();
    // Two links of 10 ms, plus at most the granularity of timers.
    assert!(
        latency.p50_ms >= 20.0 && latency.max_ms < 22.0,
        "{latency:?}"
    );
    assert_eq!(report.relay.counters["datagrams_sent"] % 200, 0);
}

#[test]
fn another_seed_gives_another_run() {
    let report = |seed| run(AUDIO_SHORT, 5, PublishFlow::Publish, lossy(), seed).report;
    assert_ne!(
        json::render(&report(seed(1))),
        json::render(&report(seed(1) + 1))
    );
}

#[test]
fn a_published_track_reaches_everybody_too() {
    let seed = seed(2);
    let report = run(AUDIO_SHORT, 20, PublishFlow::Publish, clean(), seed).report;
    assert_eq!(
        report.verdict.outcome,
        Outcome::Held,
        "WEIR_SEED={seed} {:?}",
        report.verdict
    );
    assert_eq!(report.objects_delivered(), 150 * 20);
}

#[test]
fn losses_are_counted_and_break_the_service_level() {
    let seed = seed(3);
    let report = run(
        AUDIO_SHORT,
        20,
        PublishFlow::PublishNamespace,
        lossy(),
        seed,
    )
    .report;
    assert_eq!(
        report.verdict.outcome,
        Outcome::Broken,
        "WEIR_SEED={seed} {:?}",
        report.verdict
    );
    let (lost, due) = (report.objects_lost(), 150 * 20);
    assert_eq!(report.objects_delivered() + lost, due, "WEIR_SEED={seed}");
    // Each of two links loses 2 %.
    assert!(
        (due / 50..due / 12).contains(&lost),
        "WEIR_SEED={seed}: {lost} of {due} lost"
    );
    let delivery = report.tracks[0].delivery;
    assert_eq!(
        delivery.lost_join + delivery.lost_middle + delivery.lost_tail,
        lost
    );
}

/// The outcomes of a simulated run.
struct Outcomes {
    report: Report,
    trace: u64,
}

fn run(
    profile: &str,
    subscribers: usize,
    flow: PublishFlow,
    link: LinkConfig,
    seed: u64,
) -> Outcomes {
    let setting = Setting {
        link,
        publish: flow,
        ..Setting::new(profile, seed, Crowd::Subscribers(subscribers))
    };
    let mut world = World::new(&setting, world::relay());
    world.run();
    let counters = world.sim.app::<weir_relay::Relay>(world.relay).counters();
    let counters = counters
        .iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    Outcomes {
        report: world.report(&ServiceLevel::default(), Duration::ZERO, counters),
        trace: world.sim.trace_hash(),
    }
}

fn clean() -> LinkConfig {
    world::delay(10)
}

fn lossy() -> LinkConfig {
    let share = Probability::new(0.02).expect("a share");
    let loss = Loss::Independent(share);
    LinkConfig { loss, ..clean() }
}

#[test]
fn a_page_of_a_thousand_subscribers_stays_small_and_is_cut_in_words() {
    // Of a thousand subscribers, some lose objects on the link.
    let seed = seed(4);
    let flow = PublishFlow::PublishNamespace;
    let report = run(AUDIO_SHORT, 1000, flow, lossy(), seed).report;
    assert_eq!(report.tracks[0].subscribers.len(), 1000, "WEIR_SEED={seed}");
    let page = html::render(&report);
    // The worst quarter is listed, the others are summarized, and each drawing fits on a screen.
    assert!(page.len() < 250_000, "{} bytes", page.len());
    assert!(page.contains("(250 of 1,000; the JSON has them all)"));
    let drawings = page.split("<svg").skip(1);
    let elements = drawings.map(|rest| {
        let drawing = rest.split("</svg>").next().unwrap_or(rest);
        drawing.matches('<').count()
    });
    assert!(elements.clone().all(|count| count < 3_000), "{elements:?}");
    assert!(json::render(&report).contains("\"index\": 999,"));
    // A copy for people to look at.
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/thousand.html");
    std::fs::write(file, page).expect("the folder is for tests");
}
