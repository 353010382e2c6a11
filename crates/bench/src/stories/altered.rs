//! Stories of relays that alter what they forward, from the packets to the verdict.

use super::AUDIO;
use super::world::{Options, World};
use crate::null_relay::Faults;
use weir_report::comparison::relays::{Comparison, Entry};
use weir_report::relay::{Delivery, Outcome, Report, terminal};
use weir_report::search::{Probe, ProbeOutcome};

/// Returns the report of fifty objects to each of three subscribers through a relay with these faults.
fn report(profile: &str, faults: Faults) -> Report {
    let options = Options {
        faults,
        ..Options::default()
    };
    let mut world = World::new(profile, options);
    world.run();
    assert_eq!(world.load.failure(), None);
    let report = world.report();
    assert_eq!(
        (report.objects_lost(), report.objects_delivered()),
        (0, 150)
    );
    report
}

fn delivery(report: &Report) -> Delivery {
    report.tracks[0].delivery
}

/// Checks that everything arrived in time and the run failed for this clause alone, in these words.
fn expect_broken(report: &Report, words: &str) {
    assert_eq!(report.verdict.outcome, Outcome::Broken);
    let sentence = &report.verdict.sentence;
    assert!(
        sentence.starts_with("altered=0 broke, measured "),
        "{sentence}"
    );
    assert!(sentence.contains(words), "{sentence}");
    let text = terminal::render(report, 200, false);
    assert!(text.contains(&format!("not as sent    {words}")), "{text}");
    // A search and a comparison give the same verdict as a run.
    let probe = Probe::of(100, report);
    let ProbeOutcome::Broke { clauses, .. } = &probe.outcome else {
        panic!("{probe:?}");
    };
    let broken: Vec<&str> = clauses.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(broken, ["altered=0"]);
    let entry = Entry {
        name: "vandal".to_owned(),
        version: String::new(),
        draft: None,
        audience: None,
        runs: vec![probe],
    };
    let comparison = Comparison::new(Vec::new(), vec![entry], None);
    let standing = &comparison.contenders.relays[0];
    assert_eq!(
        (standing.held, standing.broke.as_deref()),
        (0, Some("altered=0"))
    );
}

#[test]
fn a_relay_that_does_its_work_alters_nothing() {
    let report = report(AUDIO, Faults::default());
    assert_eq!(
        report.verdict.outcome,
        Outcome::Held,
        "{}",
        report.verdict.sentence
    );
    let clause = report.slo.clauses.last().unwrap();
    assert_eq!(
        (&*clause.text, clause.measured, clause.held),
        ("altered=0", Some(0.0), Some(true))
    );
    assert!(!terminal::render(&report, 200, false).contains("not as sent"));
}

#[test]
fn a_relay_that_changes_content_has_not_delivered_it() {
    let faults = Faults {
        corrupt: true,
        ..Faults::default()
    };
    // The same for objects without room for a tag, which have no latency.
    for size in ["120", "60", "26"] {
        let profile = AUDIO.replace("size = 120", &format!("size = {size}"));
        let report = report(&profile, faults);
        assert_eq!(delivery(&report).corrupt, 150, "{size}");
        assert!(report.slo.clauses.last().unwrap().is_broken(), "{size}");
        if size == "120" {
            expect_broken(&report, "150 objects with other content than was sent");
        }
    }
}

#[test]
fn a_relay_that_moves_objects_has_not_delivered_them() {
    // Ten groups that follow the five of START and the first ten of data.
    let faults = Faults {
        move_groups: Some((15, 24)),
        ..Faults::default()
    };
    let report = report(AUDIO, faults);
    assert_eq!(delivery(&report).misplaced, 30);
    expect_broken(&report, "30 objects under another number");
}

#[test]
fn objects_of_another_run_are_named_and_break_nothing() {
    let faults = Faults {
        echo_another_run: true,
        ..Faults::default()
    };
    let report = report(AUDIO, faults);
    assert_eq!(delivery(&report).foreign, 150);
    assert_eq!(report.verdict.outcome, Outcome::Held);
    let sentence = &report.verdict.sentence;
    assert!(sentence.contains("150 objects of other runs"), "{sentence}");
}

#[test]
fn a_relay_that_says_itself_how_much_was_sent_is_not_believed() {
    // The relay loses five objects, and its COMPLETION leaves them out.
    let faults = Faults {
        lose_groups: Some((15, 19)),
        forge_completion: Some(45),
        ..Faults::default()
    };
    let options = Options {
        faults,
        ..Options::default()
    };
    let mut world = World::new(AUDIO, options);
    world.run();
    let report = world.report();
    assert_eq!(report.tracks[0].completion.objects_sent.max, 45);
    let objects = (report.objects_lost(), report.objects_delivered());
    assert_eq!(objects, (15, 135));
    assert_eq!(delivery(&report).corrupt, 3);
    assert_eq!(report.verdict.outcome, Outcome::Broken);
    let clause = report.slo.clauses.last().unwrap();
    assert_eq!((&*clause.text, clause.held), ("altered=0", Some(false)));
}
