//! All cases pass against the relay of this workspace, in both drafts and on both transports.

use std::{collections::BTreeSet, time::Duration};

use weir_probe::{Case, Edition, Kind, Level, Verdict};
use weir_relay::{Config, Relay};

use crate::stage::{of_kind, preferred, run, run_and_leave, seed};

fn relay() -> Relay {
    Relay::new(Config::default())
}

#[test]
fn every_case_has_a_name_of_its_own_and_a_section() {
    for edition in Edition::ALL {
        let cases = weir_probe::cases(edition, Some(1));
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            assert!(!case.requirement.is_empty(), "{}", case.name);
            assert_eq!(case.section.is_empty(), case.kind != Kind::Conformance);
        }
        let must = |case: &&Case| case.kind == Kind::Conformance && case.level == Level::Must;
        let count = cases.iter().filter(must).count();
        println!("{count} required cases of {}", edition.alpn());
        assert!(count >= 300, "{count}");
    }
}

#[test]
fn a_case_that_one_draft_has_is_not_in_the_table_of_the_other() {
    let has = |edition, name: &str| {
        let cases = weir_probe::cases(edition, None);
        let found = cases.iter().find(|case| case.name == name);
        found.map(|case| case.section)
    };
    let sections = |name| [Edition::Eighteen, Edition::TwentyTwo].map(|one| has(one, name));
    assert_eq!(sections("goaway.repeated"), [Some("10.4"), Some("9.2")]);
    assert_eq!(
        sections("joining-fetch.absolute"),
        [Some("10.12.2.1"), None]
    );
    assert_eq!(sections("fill.current-group"), [None, Some("3.4")]);
    // A range in the past is refused in draft-18, and valid in draft-22.
    assert_eq!(sections("filter.range-in-the-past"), [Some("5.1.2"), None]);
    assert_eq!(
        sections("filter.valid-range-in-the-past"),
        [None, Some("3.3.1")]
    );
}

#[test]
fn a_scout_tells_the_newest_draft_that_a_relay_offers() {
    for is_web_transport in [false, true] {
        let preferred = |protocols: &[&'static str]| preferred(protocols, is_web_transport);
        assert_eq!(preferred(&["moqt-22", "moqt-18"]), Ok(Edition::TwentyTwo));
        assert_eq!(preferred(&["moqt-18"]), Ok(Edition::Eighteen));
        assert!(preferred(&["moqt-20"]).is_err());
    }
}

#[test]
fn the_relay_conforms_to_draft_22_over_raw_quic() {
    conforms(Edition::TwentyTwo, false);
}

#[test]
fn the_relay_conforms_to_draft_22_over_web_transport() {
    conforms(Edition::TwentyTwo, true);
}

#[test]
fn the_relay_conforms_to_draft_18_over_raw_quic() {
    conforms(Edition::Eighteen, false);
}

#[test]
fn the_relay_conforms_to_draft_18_over_web_transport() {
    conforms(Edition::Eighteen, true);
}

fn conforms(edition: Edition, is_web_transport: bool) {
    let cases = of_kind(edition, Kind::Conformance);
    let shown = run(seed(), relay(), edition, cases, is_web_transport);
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
    survives(Edition::TwentyTwo, false);
}

#[test]
fn the_relay_survives_hostile_peers_over_web_transport() {
    survives(Edition::TwentyTwo, true);
}

#[test]
fn the_relay_survives_hostile_peers_of_draft_18() {
    survives(Edition::Eighteen, false);
}

#[test]
fn the_relay_survives_hostile_peers_of_draft_18_over_web_transport() {
    survives(Edition::Eighteen, true);
}

fn survives(edition: Edition, is_web_transport: bool) {
    let cases = of_kind(edition, Kind::Robustness);
    let shown = run(seed(), relay(), edition, cases, is_web_transport);
    assert_eq!(shown.failed(), [""; 0]);
    assert_eq!(shown.bystander_lost().0, 0);
}

#[test]
fn hostile_clients_answer_what_the_relay_asks() {
    // What makes the relay ask is valid: only the answers and their data break rules.
    for asks in [
        "subscribe",
        "fetch",
        "track-status",
        "publish",
        "request-update",
    ] {
        let name = format!("mutated.answer-to-{asks}");
        let cases = of_kind(Edition::default(), Kind::Robustness).into_iter();
        let cases = cases.filter(|case| case.name == name).collect();
        let shown = run(seed(), relay(), Edition::default(), cases, false);
        assert_eq!(shown.passed(), [&name[..]]);
        let violated = shown.counters().sessions_violated;
        assert!(violated > 20, "{name}: {violated} sessions");
    }
}

#[test]
fn hostile_clients_do_not_keep_a_relay_that_leaves() {
    for edition in Edition::ALL {
        let drain_max = Duration::from_millis(500);
        let relay = Relay::new(Config {
            drain_max,
            ..Config::default()
        });
        let (ended, counters) = run_and_leave(seed(), relay, edition, volume(edition, 20_000));
        assert!(
            ended >= drain_max,
            "the bystander stays after GOAWAY: {ended:?}"
        );
        assert!(ended <= drain_max + Duration::from_secs(2), "{ended:?}");
        assert!(counters.sessions_violated > 0);
    }
}

/// Returns the case that sends so many hostile messages.
fn volume(edition: Edition, messages: u64) -> Vec<Case> {
    let cases = weir_probe::cases(edition, Some(messages)).into_iter();
    cases.filter(|case| case.kind == Kind::Volume).collect()
}

#[test]
fn the_relay_survives_a_volume_of_hostile_messages() {
    for edition in Edition::ALL {
        let shown = run(seed(), relay(), edition, volume(edition, 20_000), false);
        assert_eq!(shown.failed(), [""; 0]);
        assert_eq!(shown.bystander_lost().0, 0);
        let sent: u64 = shown.outcomes().map(|(_, one)| one.messages).sum();
        assert!(sent >= 20_000, "{sent} messages");
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let (seed, edition) = (seed(), Edition::default());
    let hashes = [(); 2].map(|()| {
        let shown = run(seed, relay(), edition, volume(edition, 2000), false);
        shown.sim.trace_hash()
    });
    assert_eq!(hashes[0], hashes[1]);
}
