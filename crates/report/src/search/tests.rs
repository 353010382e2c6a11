//! Tests of the search against a model of a relay.

use proptest::prelude::*;

use super::*;
use crate::relay::Calibration;

/// A model of a relay with a limit, near which it holds with some probability, and of a generator with a limit.
#[derive(Clone, Copy, Debug)]
struct Formula {
    limit: f64,
    /// Width of the grey zone as a share of the limit; 0 is none.
    width: f64,
    generator: u64,
    random: u64,
}

impl Formula {
    fn exact(limit: f64) -> Self {
        Self {
            limit,
            width: 0.0,
            generator: u64::MAX,
            random: 0,
        }
    }

    /// Returns a random number between 0 and 1 (`SplitMix64`).
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        f64::from(u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap()) / f64::from(u32::MAX)
    }

    fn probe(&mut self, load: u64) -> Probe {
        let outcome = if load > self.generator {
            ProbeOutcome::Generator {
                reasons: vec!["it lagged".to_owned()],
                ended_early: false,
            }
        } else {
            let over = (float(load) / self.limit).ln();
            let holds = if self.width == 0.0 {
                over <= 0.0
            } else {
                self.chance() < 1.0 / (1.0 + (over / self.width).exp())
            };
            if holds {
                ProbeOutcome::Held
            } else {
                ProbeOutcome::Broke {
                    clauses: vec![clause("p99<100ms")],
                    ended_early: false,
                }
            }
        };
        Probe {
            load,
            outcome,
            figures: ProbeFigures::default(),
        }
    }
}

fn clause(text: &str) -> BrokenClause {
    BrokenClause {
        text: text.to_owned(),
        measured: Some(131.0),
        unit: "ms".to_owned(),
    }
}

fn float(load: u64) -> f64 {
    f64::from(u32::try_from(load).unwrap())
}

fn settings() -> Settings {
    Settings {
        from: 100,
        least: 1,
        most: 1_000_000,
        precision_percent: 5,
        repeats: 3,
        needed: 2,
        probes_max: 100,
    }
}

/// Searches to the end, and checks that every probe is in range.
fn search(settings: &Settings, relay: &mut Formula) -> (Answer, Vec<Probe>) {
    let mut probes = Vec::new();
    loop {
        match next(settings, &probes) {
            Step::Done(answer) => return (answer, probes),
            Step::Probe(load) => {
                assert!((settings.least..=settings.most).contains(&load), "{load}");
                probes.push(relay.probe(load));
            }
        }
    }
}

#[test]
fn doubles_bisects_and_repeats_both_sides() {
    let (answer, probes) = search(&settings(), &mut Formula::exact(1000.0));
    let loads: Vec<u64> = probes.iter().map(|probe| probe.load).collect();
    assert_eq!(
        loads,
        [100, 200, 400, 800, 1600, 1200, 1000, 1100, 1050, 1000, 1050]
    );
    let Answer::Found {
        held,
        broke,
        clause,
        interval,
    } = &answer
    else {
        panic!("{answer:?}");
    };
    assert_eq!((*held, *broke), (1000, 1050));
    assert_eq!(clause.text, "p99<100ms");
    let interval = interval.unwrap();
    assert!(interval.low < 1000 && interval.high > 1050, "{interval:?}");
    assert!(interval.low > 800 && interval.high < 1250, "{interval:?}");
    let sentence = answer.sentence("subscribers");
    assert!(
        sentence.starts_with(
            "the relay carries 1000 subscribers; at 1050, p99<100ms (measured 131 ms) broke;"
        ),
        "{sentence}"
    );
}

fn stolen(probe: Probe, percent: f64) -> Probe {
    Probe {
        figures: ProbeFigures {
            stolen_percent: Some(percent),
            ..probe.figures
        },
        ..probe
    }
}

#[test]
fn disturbed_probes_are_repeated() {
    let (undisturbed, plain) = search(&settings(), &mut Formula::exact(1000.0));
    // The first probes at each load are disturbed: the relay breaks, or the generator is the limit.
    let outcomes: [fn(u64) -> Probe; 2] = [
        |load| Formula::exact(0.5).probe(load),
        |load| {
            let mut none = Formula::exact(0.5);
            none.generator = 0;
            none.probe(load)
        },
    ];
    for outcome in outcomes {
        for (percent, times, is_same) in [
            (STOLEN_PERCENT_MAX, 1, true),
            (STOLEN_PERCENT_MAX, DISTURBED_PROBES_MAX, true),
            (STOLEN_PERCENT_MAX - 0.1, DISTURBED_PROBES_MAX, false),
            (STOLEN_PERCENT_MAX, DISTURBED_PROBES_MAX + 3, false),
        ] {
            let mut probes = Vec::new();
            let mut relay = Formula::exact(1000.0);
            let answer = loop {
                match next(&settings(), &probes) {
                    Step::Done(answer) => break answer,
                    Step::Probe(load) => {
                        let before = probes.iter().filter(|one: &&Probe| one.load == load);
                        probes.push(if before.count() < times {
                            stolen(outcome(load), percent)
                        } else {
                            stolen(relay.probe(load), 0.0)
                        });
                    }
                }
            };
            assert_eq!(
                answer == undisturbed,
                is_same,
                "{percent} {times} {answer:?}"
            );
            let (mut loads, mut expected): (Vec<u64>, Vec<u64>) = (
                probes.iter().map(|probe| probe.load).collect(),
                plain.iter().map(|probe| probe.load).collect(),
            );
            loads.dedup();
            expected.dedup();
            assert_eq!(loads == expected, is_same, "{loads:?}");
        }
    }
}

#[test]
fn a_search_ends_even_if_every_probe_is_disturbed() {
    let mut probes = Vec::new();
    let mut relay = Formula::exact(1000.0);
    let answer = loop {
        match next(&settings(), &probes) {
            Step::Done(answer) => break answer,
            Step::Probe(load) => probes.push(stolen(relay.probe(load), 50.0)),
        }
    };
    let (undisturbed, _) = search(&settings(), &mut Formula::exact(1000.0));
    assert_eq!(answer, undisturbed, "later disturbed probes count");
}

#[test]
fn relays_below_the_smallest_and_above_the_largest_load() {
    let (answer, _) = search(&settings(), &mut Formula::exact(0.5));
    assert!(
        matches!(answer, Answer::Nothing { broke: 1, .. }),
        "{answer:?}"
    );
    let (answer, _) = search(&settings(), &mut Formula::exact(1e9));
    assert_eq!(answer, Answer::AtLeast { held: 1_000_000 });
    assert_eq!(answer.limit(), None);
}

#[test]
fn no_limit_is_found_if_the_generator_is_the_limit() {
    let mut relay = Formula {
        generator: 500,
        ..Formula::exact(3000.0)
    };
    let (answer, probes) = search(&settings(), &mut relay);
    let Answer::Generator { held, at, .. } = &answer else {
        panic!("{answer:?}");
    };
    assert!(held.unwrap() <= 500 && *at > 500, "{answer:?}");
    assert_eq!(answer.limit(), None);
    let sentence = answer.sentence("subscribers");
    assert!(
        sentence.starts_with("no limit found for the relay: at "),
        "{sentence}"
    );
    assert!(sentence.contains("it lagged"), "{sentence}");
    // A load that the generator could not make is tried again once.
    let first = probes.iter().position(|probe| probe.load > 500).unwrap();
    assert_eq!(probes[first].load, probes[first + 1].load);
}

#[test]
fn a_generator_limit_above_the_relays_limit_does_not_hide_it() {
    let mut relay = Formula {
        generator: 700,
        ..Formula::exact(600.0)
    };
    let (answer, _) = search(&settings(), &mut relay);
    assert!(
        matches!(answer, Answer::Found { held, broke, .. } if held <= 600 && broke > 600),
        "{answer:?}"
    );
}

#[test]
fn a_single_failure_of_the_generator_does_not_end_the_search() {
    let mut relay = Formula::exact(1000.0);
    let mut probes = vec![Probe {
        outcome: ProbeOutcome::Generator {
            reasons: Vec::new(),
            ended_early: false,
        },
        ..relay.probe(100)
    }];
    while let Step::Probe(load) = next(&settings(), &probes) {
        probes.push(relay.probe(load));
    }
    let record = record(probes, None);
    assert!(
        matches!(record.answer, Answer::Found { held: 1000, .. }),
        "{:?}",
        record.answer
    );
}

#[test]
fn a_search_that_runs_out_of_probes_or_time_says_so() {
    let few = Settings {
        probes_max: 5,
        ..settings()
    };
    let (answer, probes) = search(&few, &mut Formula::exact(1000.0));
    assert_eq!(probes.len(), 5);
    assert!(
        matches!(
            answer,
            Answer::Open {
                held: Some(800),
                not_held: Some(1600),
                ..
            }
        ),
        "{answer:?}"
    );
    let record = record(probes, Some("the time was used up"));
    assert!(
        record.sentence.contains("the time was used up"),
        "{}",
        record.sentence
    );
}

#[test]
fn a_record_is_resumed_only_by_the_same_search() {
    let (_, probes) = search(&settings(), &mut Formula::exact(1000.0));
    let record = record(probes, None);
    let text = record.to_json();
    assert_eq!(Record::resume(&text, &record.search).unwrap(), record);
    let others = others_than(&record.search);
    assert!(others.len() > 8);
    for (other, differs) in others {
        let error = Record::resume(&text, &other).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the record is of another search: its {differs}")
        );
    }
    let newer = text.replace("\"find_max\": 6", "\"find_max\": 7");
    let error = Record::resume(&newer, &record.search).unwrap_err();
    assert!(matches!(error, ReadError::Version(7)), "{error}");
    let error = Record::resume("{}", &record.search).unwrap_err();
    assert!(error.to_string().contains("find_max"), "{error}");
    assert!(Record::resume(&text[..text.len() / 2], &record.search).is_err());
}

#[test]
fn a_probe_in_a_line() {
    let held = Probe {
        figures: ProbeFigures {
            latency_p99_ms: Some(1.23),
            cpu_percent: Some(41.4),
            ..ProbeFigures::default()
        },
        ..Formula::exact(1000.0).probe(100)
    };
    let broke = Formula::exact(10.0).probe(100);
    assert!(heading("subscribers").starts_with("subscribers  outcome"));
    assert!(
        row(&held).starts_with("        100  held          1.2 ms"),
        "{}",
        row(&held)
    );
    assert!(row(&broke).ends_with("p99<100ms"), "{}", row(&broke));
    let disturbed = stolen(broke, 7.4);
    assert!(
        row(&disturbed).ends_with("p99<100ms; the hypervisor gave 7 % of a core to others"),
        "{}",
        row(&disturbed)
    );
}

/// Searches that differ from `this` in one field each, with the text of the difference.
fn others_than(this: &RecordedSearch) -> Vec<(RecordedSearch, &'static str)> {
    let with = |change: fn(&mut RecordedSearch), differs| {
        let mut other = this.clone();
        change(&mut other);
        (other, differs)
    };
    vec![
        with(
            |one| one.dimension = Dimension::Meetings,
            "dimension is subscribers in the record, and meetings in this search",
        ),
        with(
            |one| one.slo = "loss=0".to_owned(),
            "service level is p99<100ms in the record, and loss=0 in this search",
        ),
        with(
            |one| one.relay = "moqt://127.0.0.1:4443".to_owned(),
            "relay is weir in the record, and moqt://127.0.0.1:4443 in this search",
        ),
        with(
            |one| one.flow = "PUBLISH".to_owned(),
            "publish flow is PUBLISH_NAMESPACE in the record, and PUBLISH in this search",
        ),
        with(
            |one| one.wire = "qperf".to_owned(),
            "encoding of messages (--wire) is draft in the record, and qperf in this search",
        ),
        with(
            |one| one.fixed.publishers = Some(4),
            "number of publishers is none in the record, and 4 in this search",
        ),
        with(
            |one| one.fixed.subscribers = Some(7),
            "number of subscribers is none in the record, and 7 in this search",
        ),
        with(
            |one| one.fixed.meetings = Some(3),
            "number of meetings is none in the record, and 3 in this search",
        ),
        with(
            |one| one.fixed.clients_per_meeting = Some(5),
            "number of clients in a meeting is none in the record, and 5 in this search",
        ),
        with(|one| one.profile.push('x'), "profile differs"),
    ]
}

#[test]
fn the_sentence_says_why_a_calibration_failed() {
    let (answer, probes) = search(&settings(), &mut Formula::exact(1000.0));
    let plain = record(probes, None);
    assert!(
        plain.sentence.ends_with("; not calibrated"),
        "{}",
        plain.sentence
    );
    let failed = plain.uncalibrated("the null relay did not start");
    assert_eq!(failed.answer, answer);
    assert!(
        failed
            .sentence
            .ends_with("; not calibrated: the null relay did not start"),
        "{}",
        failed.sentence
    );
    let again = Record::resume(&failed.to_json(), &failed.search).unwrap();
    assert_eq!(again, failed);
}

#[test]
fn latency_that_is_there_without_the_relay_is_not_the_relays_limit() {
    let null_relay = |held, p99| Calibration {
        held,
        reasons: vec!["its core was used up".to_owned(); usize::from(!held)],
        objects_per_second: 1.0,
        latency_p99_ms: p99,
        generator_cpu_percent: None,
        null_relay_cpu_us_per_object: None,
    };
    let (_, probes) = search(&settings(), &mut Formula::exact(1000.0));
    // The last search ran out of time, so that 1600 is the smallest load that broke, with a p99 of 131 ms.
    for (probes, broke) in [(&probes[..], 1050), (&probes[..5], 1600)] {
        let calibrated = |calibration| {
            let plain = record(probes.to_vec(), Some("the time was up"));
            assert_eq!(plain.answer.load_to_calibrate(), Some(broke));
            let (search, probes) = (plain.search, plain.probes);
            Record::new(search, probes, Some(calibration), Some("the time was up"))
        };
        for (calibration, reason) in [
            (
                null_relay(true, Some(99.6)),
                "(p99 is 99.6 ms without the relay, against a null relay)",
            ),
            (null_relay(false, Some(1.0)), "(its core was used up)"),
        ] {
            let record = calibrated(calibration);
            assert!(
                matches!(record.answer, Answer::Generator { held: Some(_), at, .. } if at == broke),
                "{:?}",
                record.answer
            );
            assert!(record.sentence.contains(reason), "{}", record.sentence);
        }
        for p99 in [None, Some(65.0)] {
            let answer = calibrated(null_relay(true, p99)).answer;
            assert!(!matches!(answer, Answer::Generator { .. }), "{answer:?}");
        }
    }
}

#[test]
fn a_search_that_was_broken_off_by_the_cpu_clause_needs_no_calibration() {
    let mut probe = Formula::exact(150.0).probe(200);
    let mut broken = clause("cpu<70%");
    "%".clone_into(&mut broken.unit);
    probe.outcome = ProbeOutcome::Broke {
        clauses: vec![broken],
        ended_early: false,
    };
    let answer = broken_off(
        &[Formula::exact(150.0).probe(100), probe],
        "the time was up",
    );
    assert!(
        matches!(
            answer,
            Answer::Open {
                not_held: Some(200),
                ..
            }
        ),
        "{answer:?}"
    );
    assert_eq!(answer.load_to_calibrate(), None);
}

fn record(probes: Vec<Probe>, broken_off: Option<&str>) -> Record {
    let search = RecordedSearch {
        dimension: Dimension::Subscribers,
        settings: settings(),
        profile: "[Audio]\n".to_owned(),
        slo: "p99<100ms".to_owned(),
        relay: "weir".to_owned(),
        fixed: FixedLoad::default(),
        flow: "PUBLISH_NAMESPACE".to_owned(),
        wire: "draft".to_owned(),
    };
    Record::new(search, probes, None, broken_off)
}

/// The interval contains the limit of a relay with a grey zone of 3 % in at least 180 of 200 searches.
#[test]
fn the_interval_contains_the_limit_as_often_as_it_claims() {
    let mut inside = 0;
    for seed in 0..200_u32 {
        let limit = 150.0 + 17.0 * f64::from(seed);
        let mut relay = Formula {
            width: 0.03,
            random: u64::from(seed),
            ..Formula::exact(limit)
        };
        let (answer, _) = search(&settings(), &mut relay);
        let Answer::Found {
            held,
            interval: Some(interval),
            ..
        } = answer
        else {
            panic!("{answer:?}");
        };
        inside += u32::from(float(interval.low) <= limit && limit <= float(interval.high));
        let off = (float(held) / limit).ln().abs();
        assert!(off < 0.3, "seed {seed}: {held} for {limit}");
    }
    assert!(inside >= 180, "{inside} of 200");
}

proptest! {
    #[test]
    fn finds_every_limit_within_its_precision(limit in 1.0f64..900_000.0, from in 1u64..5000) {
        let settings = Settings { from, ..settings() };
        let (answer, probes) = search(&settings, &mut Formula::exact(limit));
        let Answer::Found { held, broke, interval, .. } = answer else {
            return Err(TestCaseError::fail(format!("{answer:?}")));
        };
        prop_assert!(float(held) <= limit && limit < float(broke));
        prop_assert!(broke - held <= (held / 20).max(1));
        let interval = interval.unwrap();
        prop_assert!(interval.low <= held && broke <= interval.high + 1);
        prop_assert!(probes.len() < 40, "{}", probes.len());
    }

    #[test]
    fn ends_whatever_the_probes_say(outcomes in prop::collection::vec(0u8..3, 1..200)) {
        let mut probes: Vec<Probe> = Vec::new();
        let settings = Settings { probes_max: usize::MAX, most: 5000, ..settings() };
        let mut outcomes = outcomes.into_iter().cycle();
        while let Step::Probe(load) = next(&settings, &probes) {
            prop_assert!((1..=5000).contains(&load));
            let outcome = match outcomes.next() {
                Some(0) => ProbeOutcome::Held,
                Some(1) => ProbeOutcome::Broke { clauses: vec![clause("loss=0")], ended_early: false },
                _ => ProbeOutcome::Generator { reasons: Vec::new(), ended_early: false },
            };
            probes.push(Probe { load, outcome, figures: ProbeFigures::default() });
            let here = probes.iter().filter(|probe| probe.load == load).count();
            prop_assert!(here <= 4, "load {load} was probed {here} times");
            prop_assert!(probes.len() < 1000);
        }
    }

    #[test]
    fn the_generators_limit_is_never_reported_as_the_relays(
        limit in 200.0f64..100_000.0, share in 0.05f64..0.9
    ) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
        let generator = (limit * share) as u64;
        let mut relay = Formula { generator, ..Formula::exact(limit) };
        let (answer, _) = search(&settings(), &mut relay);
        prop_assert!(matches!(answer, Answer::Generator { .. }), "{answer:?}");
        prop_assert_eq!(answer.limit(), None);
    }
}

#[test]
fn a_load_that_the_generator_could_not_make_is_none_that_the_relay_did_not_carry() {
    let mut relay = Formula {
        generator: 50,
        ..Formula::exact(1000.0)
    };
    let mut probes: Vec<Probe> = [50, 100].map(|load| relay.probe(load)).into();
    let sentence = broken_off(&probes, "the time was up").sentence("subscribers");
    assert_eq!(
        sentence,
        "50 subscribers held; the limit was not found: the time was up, and the generator was the limit at a load of 100, \
         which says nothing about the relay"
    );
    // A larger load that broke is named all the same.
    probes.push(Formula::exact(150.0).probe(200));
    let sentence = broken_off(&probes, "the time was up").sentence("subscribers");
    assert!(
        sentence.contains("50 subscribers held; at 200, p99<100ms (measured 131 ms) broke;"),
        "{sentence}"
    );
}
