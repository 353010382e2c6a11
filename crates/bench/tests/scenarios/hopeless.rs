//! Probes that are certain to fail their service level end early; others do not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, time::Duration};

use weir_bench::profile::{Profile, load};
use weir_link::{Bitrate, Config as LinkConfig, Queue, Rate};
use weir_report::{
    relay::{Outcome, Report},
    search::{self, Probe, ProbeOutcome},
};

use crate::world::{self, Clients, Crowd, Setting, World, seed};

const AUDIO: &str = include_str!("../../../../profiles/audio-short.ini");
const MEETING: &str = include_str!("../../../../profiles/meeting-short.ini");

/// As in a search: one second that is not judged, then ten that are.
const UNJUDGED: Duration = Duration::from_secs(1);
const STEADY: Duration = Duration::from_secs(10);

/// The result of a probe, and how long its schedules ran.
struct Probed {
    report: Report,
    probe: Probe,
    lasted: Duration,
}

/// A relay and its links.
struct Scene<'a> {
    profile: &'a str,
    crowd: Crowd,
    level: &'a str,
    /// The link to the subscribers from the release on, if it changes.
    link: Option<LinkConfig>,
    config: weir_relay::Config,
}

impl Default for Scene<'_> {
    fn default() -> Self {
        Self {
            profile: AUDIO,
            crowd: Crowd::Subscribers(40),
            level: "loss=0,failed=0,p99<100ms",
            link: None,
            config: weir_relay::Config::default(),
        }
    }
}

impl Scene<'_> {
    /// Runs the probe with early stop, or completely.
    fn probe(&self, ends_early: bool) -> Probed {
        let profile = Profile::parse("profile.ini", self.profile.as_bytes()).unwrap();
        let profile = load::with_windows(&profile, Duration::from_secs(1), UNJUDGED + STEADY);
        let profile = profile.to_ini();
        let setting = Setting::new(&profile, seed(23), self.crowd);
        let relay = weir_relay::Relay::new(self.config.clone());
        let mut world = World::new(&setting, relay);
        world.join();
        if let (Some(link), Clients::Apart { sink, .. }) = (&self.link, world.clients()) {
            world.sim.set_link(world.relay, sink, link.clone());
        }
        world.release();
        // A level that always holds never stops a run.
        let level = if ends_early { self.level } else { "loss<=100%" };
        let lasted = world.finish_under(&level.parse().unwrap(), UNJUDGED);
        let report = world.report(&self.level.parse().unwrap(), UNJUDGED, BTreeMap::new());
        let probe = Probe::of(40, &report);
        Probed {
            report,
            probe,
            lasted,
        }
    }

    /// Checks that the probe is stopped early for `clause` first, and that a complete run would have failed that clause
    /// too.
    fn expect_ended_early(&self, clause: &str) -> Probed {
        let early = self.probe(true);
        let ProbeOutcome::Broke {
            clauses,
            ended_early: true,
        } = &early.probe.outcome
        else {
            panic!("{:?}", early.report.verdict);
        };
        assert_eq!(clauses[0].text, clause, "{clauses:?}");
        assert!(clauses[0].measured.is_some(), "{clauses:?}");
        assert_eq!(early.report.verdict.outcome, Outcome::Partial);
        let sentence = &early.report.verdict.sentence;
        let reason = format!("ended early, because it could not hold: {clause}");
        assert!(sentence.starts_with(&reason), "{sentence}");
        let row = search::row(&early.probe);
        assert!(
            row.contains(&format!("{clause}; ended early, after ")) || clauses.len() > 1,
            "{row}"
        );
        assert!(row.contains("ended early"), "{row}");

        let whole = self.probe(false);
        let broken = whole
            .report
            .slo
            .clauses
            .iter()
            .find(|one| one.text == clause);
        assert!(
            broken.is_some_and(weir_report::service_level::JudgedClause::is_broken),
            "{:?}",
            whole.report.slo
        );
        assert!(!whole.probe.outcome.is_ended_early());
        // A complete run takes a second before the first object, eleven of objects, and five of drain.
        assert!(
            early.lasted * 3 < whole.lasted * 2,
            "{:?} of {:?}",
            early.lasted,
            whole.lasted
        );
        early
    }
}

/// Returns a link of `rate` bits per second with a queue of `bytes_max` bytes.
fn narrow(rate: u64, bytes_max: u64) -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(Bitrate::from_bits_per_second(rate)),
        queue: Queue {
            bytes_max,
            ..Queue::default()
        },
        ..world::delay(10)
    }
}

#[test]
fn a_probe_that_holds_is_measured_in_whole() {
    for (profile, crowd) in [
        (AUDIO, Crowd::Subscribers(40)),
        (MEETING, Crowd::Meetings(2, 3)),
    ] {
        let scene = Scene {
            profile,
            crowd,
            ..Scene::default()
        };
        let (early, whole) = (scene.probe(true), scene.probe(false));
        assert_eq!(early.probe.outcome, ProbeOutcome::Held);
        assert_eq!(early.lasted, whole.lasted);
        assert!(early.report.run.ended_early_by.is_empty());
    }
}

#[test]
fn objects_that_wait_too_long_end_a_probe() {
    // 40 subscribers need 2.8 Mbit/s. At half of that, a long queue delays for seconds and loses nothing until it is
    // full.
    let scene = Scene {
        link: Some(narrow(1_400_000, 50_000_000)),
        ..Scene::default()
    };
    let probed = scene.expect_ended_early("p99<100ms");
    // One second of START, one that is not judged, two of evidence, and a check each second.
    assert!(
        probed.lasted <= Duration::from_secs(6),
        "{:?}",
        probed.lasted
    );
}

#[test]
fn objects_that_never_come_end_a_probe() {
    // A third of what is needed, and almost no queue.
    let scene = Scene {
        level: "loss<=1%",
        link: Some(narrow(1_000_000, 20_000)),
        ..Scene::default()
    };
    // An object counts as lost only after its time to live, which is five seconds.
    let probed = scene.expect_ended_early("loss<=1%");
    assert!(
        probed.lasted <= Duration::from_secs(9),
        "{:?}",
        probed.lasted
    );
}

#[test]
fn subscribers_who_are_refused_end_a_probe() {
    let mut config = weir_relay::Config::default();
    // Room for the publisher and 15 of 40 subscribers.
    config.limits.sessions_max = 16;
    let scene = Scene {
        config,
        ..Scene::default()
    };
    let probed = scene.expect_ended_early("failed=0");
    assert!(
        probed.lasted <= Duration::from_secs(2),
        "{:?}",
        probed.lasted
    );
}

#[test]
fn a_few_who_are_refused_do_not() {
    let mut config = weir_relay::Config::default();
    config.limits.sessions_max = 31;
    let scene = Scene {
        config,
        // The objects of ten missing subscribers are a large share.
        level: "failed=0,p99<100ms",
        ..Scene::default()
    };
    let probed = scene.probe(true);
    let broke = matches!(&probed.probe.outcome, ProbeOutcome::Broke { ended_early: false, clauses } if clauses.len() == 1);
    assert!(broke, "{:?}", probed.probe);
    assert_eq!(probed.report.slo.first_broken.as_deref(), Some("failed=0"));
}

#[test]
fn a_probe_close_to_the_limit_is_measured_in_whole() {
    // Slightly slower than allowed.
    let scene = Scene {
        level: "failed=0,p99<100ms",
        link: Some(world::delay(130)),
        ..Scene::default()
    };
    let probed = scene.probe(true);
    let outcome = &probed.probe.outcome;
    assert!(
        matches!(
            outcome,
            ProbeOutcome::Broke {
                ended_early: false,
                ..
            }
        ),
        "{outcome:?}"
    );
}

#[test]
fn what_ends_a_probe_always_breaks_it() {
    let mut ended = 0;
    // 20 subscribers need 1.4 Mbit/s.
    for kilobits in [400, 1_200, 1_450, 2_000] {
        for queue in [20_000, 2_000_000] {
            let scene = Scene {
                crowd: Crowd::Subscribers(20),
                link: Some(narrow(kilobits * 1_000, queue)),
                ..Scene::default()
            };
            let (early, whole) = (scene.probe(true), scene.probe(false));
            let name = format!(
                "{kilobits} kbit/s, {queue} bytes, {:?}",
                early.report.verdict
            );
            if !early.probe.outcome.is_ended_early() {
                assert_eq!(early.probe.outcome, whole.probe.outcome, "{name}");
                continue;
            }
            ended += 1;
            let ProbeOutcome::Broke { clauses, .. } = &early.probe.outcome else {
                panic!("{name}");
            };
            for clause in clauses {
                let clause = whole
                    .report
                    .slo
                    .clauses
                    .iter()
                    .find(|one| one.text == clause.text);
                assert!(
                    clause.is_some_and(weir_report::service_level::JudgedClause::is_broken),
                    "{name}: {:?}",
                    whole.report.slo
                );
            }
        }
    }
    assert!((2..7).contains(&ended), "{ended} of 8");
}
