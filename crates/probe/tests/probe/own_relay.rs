//! All cases pass against the relay of this workspace, on both transports.

use std::collections::BTreeSet;

use weir_probe::{Kind, Level, Verdict};
use weir_relay::{Config, Relay};

use crate::stage::{of_kind, run, seed};

fn relay() -> Relay {
    Relay::new(Config::default())
}

#[test]
fn every_case_has_a_name_of_its_own_and_a_section() {
    let cases = weir_probe::cases(Some(1));
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len());
    for case in &cases {
        assert!(!case.requirement.is_empty(), "{}", case.name);
        assert_eq!(case.section.is_empty(), case.kind != Kind::Conformance);
    }
    let must =
        |case: &&weir_probe::Case| case.kind == Kind::Conformance && case.level == Level::Must;
    assert!(cases.iter().filter(must).count() >= 150);
}

#[test]
fn the_relay_conforms_over_raw_quic() {
    conforms(false);
}

#[test]
fn the_relay_conforms_over_web_transport() {
    conforms(true);
}

fn conforms(is_web_transport: bool) {
    let shown = run(
        seed(),
        relay(),
        of_kind(Kind::Conformance),
        is_web_transport,
    );
    assert_eq!(shown.failed(), [""; 0]);
    let (lost, planned) = shown.bystander_lost();
    assert!(planned > 500, "the bystander was there: {planned} objects");
    assert_eq!(lost, 0);
    let skipped = shown
        .outcomes()
        .filter(|(_, one)| matches!(one.verdict, Verdict::Skipped(_)));
    assert!(skipped.count() <= 3);
    assert!(shown.counters().sessions_violated > 100);
}

#[test]
fn the_relay_survives_hostile_peers() {
    for is_web_transport in [false, true] {
        let shown = run(seed(), relay(), of_kind(Kind::Robustness), is_web_transport);
        assert_eq!(shown.failed(), [""; 0]);
        assert_eq!(shown.bystander_lost().0, 0);
    }
}

#[test]
fn the_relay_survives_a_volume_of_hostile_messages() {
    let cases = weir_probe::cases(Some(20_000)).into_iter();
    let cases = cases.filter(|case| case.kind == Kind::Volume).collect();
    let shown = run(seed(), relay(), cases, false);
    assert_eq!(shown.failed(), [""; 0]);
    assert_eq!(shown.bystander_lost().0, 0);
    let sent: u64 = shown.outcomes().map(|(_, one)| one.messages).sum();
    assert!(sent >= 20_000, "{sent} messages");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let seed = seed();
    let hashes = [(); 2].map(|()| {
        let cases = weir_probe::cases(Some(2000)).into_iter();
        let cases = cases.filter(|case| case.kind == Kind::Volume).collect();
        run(seed, relay(), cases, false).sim.trace_hash()
    });
    assert_eq!(hashes[0], hashes[1]);
}
