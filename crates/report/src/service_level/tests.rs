use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn latency(ms: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for ms in ms {
        histogram.record(Duration::from_millis(*ms));
    }
    histogram
}

fn measured(latency: &Histogram) -> Measured<'_> {
    Measured {
        altered_objects: Some(0),
        lost_objects: 0,
        judged_objects: 1_000,
        expected_objects: 1_000,
        late_objects: 0,
        failed: 0,
        subscriptions: 10,
        latency,
        cpu_percent: Some(50.0),
        clock_error: Some(Duration::ZERO),
    }
}

fn evaluate(text: &str, measured: &Measured<'_>) -> JudgedLevel {
    text.parse::<ServiceLevel>().unwrap().evaluate(measured)
}

#[test]
fn latency_between_two_clocks_decides_nothing() {
    for ms in [5, 500] {
        let latency = latency(&[ms; 100]);
        let apart = Measured {
            clock_error: None,
            ..measured(&latency)
        };
        let judged = evaluate("loss=0,p99<100ms", &apart);
        let [loss, p99, altered] = &judged.clauses[..] else {
            panic!("{judged:?}")
        };
        assert_eq!(
            (loss.held, p99.held, altered.held),
            (Some(true), None, Some(true))
        );
        assert!(p99.measured.is_some() && !p99.is_broken());
        assert!(judged.held && judged.first_broken.is_none());
    }
}

#[test]
fn a_clock_error_leaves_open_what_it_could_change() {
    let latency = latency(&[90; 100]);
    let held = |text: &str, error_ms| {
        let known = Measured {
            clock_error: Some(Duration::from_millis(error_ms)),
            ..measured(&latency)
        };
        evaluate(text, &known).clauses[0].held
    };
    assert_eq!(held("max<100ms", 0), Some(true));
    assert_eq!(held("max<100ms", 9), Some(true));
    assert_eq!(held("max<100ms", 11), None);
    assert_eq!(held("max<80ms", 9), Some(false));
    assert_eq!(held("max<80ms", 11), None);
    assert_eq!(held("max=90ms", 0), Some(true));
    assert_eq!(held("max=90ms", 1), None);
    // Clocks do not change what arrives.
    assert_eq!(held("loss=0", 1_000), Some(true));
}

#[test]
fn the_default_is_complete_delivery_within_100_ms() {
    let level = ServiceLevel::default();
    assert_eq!(level.to_string(), "loss=0,failed=0,p99<100ms");
    let quick = latency(&[5; 100]);
    assert!(level.evaluate(&measured(&quick)).held);
}

#[test]
fn a_level_is_reduced_to_measurable_clauses() {
    let level: ServiceLevel = "late=0,p99<1s,max<2s,cpu<95%,failed=0".parse().unwrap();
    let kept = |seen: &[Subject]| {
        let kept = level.clone().about(|subject| seen.contains(&subject));
        kept.map(|level| level.to_string())
    };
    assert_eq!(
        kept(&[Subject::Late, Subject::Failures]).as_deref(),
        Some("late=0,failed=0")
    );
    assert_eq!(
        kept(&[Subject::Latency, Subject::Cpu]).as_deref(),
        Some("p99<1000ms,max<2000ms,cpu<95%")
    );
    assert_eq!(kept(&[]), None);
}

#[test]
fn names_the_first_clause_that_broke() {
    let slow = latency(&[5, 250]);
    let lossy = Measured {
        lost_objects: 1,
        cpu_percent: Some(99.0),
        ..measured(&slow)
    };
    let verdict = evaluate("failed=0,p99<100ms,loss=0,cpu<95%", &lossy);
    assert_eq!(verdict.first_broken.as_deref(), Some("p99<100ms"));
    let held: Vec<bool> = verdict
        .clauses
        .iter()
        .map(|clause| clause.held == Some(true))
        .collect();
    assert_eq!(held, [true, false, false, false, true]);
    assert_eq!(verdict.clauses[2].measured, Some(1.0));
    assert_eq!(verdict.clauses[3].unit, "%");
}

#[test]
fn altered_objects_break_every_service_level() {
    let quick = latency(&[5]);
    let altered = |altered_objects| {
        let measured = Measured {
            altered_objects,
            ..measured(&quick)
        };
        evaluate("loss=0", &measured)
    };
    let texts = |level: &JudgedLevel| -> Vec<String> {
        level.clauses.iter().map(|one| one.text.clone()).collect()
    };
    let whole = altered(Some(0));
    assert!(whole.held);
    assert_eq!(texts(&whole), ["loss=0", "altered=0"]);
    let broken = altered(Some(3));
    assert_eq!(broken.first_broken.as_deref(), Some("altered=0"));
    assert_eq!(broken.clauses[1].measured, Some(3.0));
    // The text stays as requested, so that an archive is judged by the same clauses again.
    assert_eq!((broken.held, &*broken.text), (false, "loss=0"));
    // Without subscriptions, nothing is compared.
    let nobody = altered(None);
    assert!(nobody.held);
    assert_eq!(texts(&nobody), ["loss=0"]);
}

#[test]
fn shares_counts_and_times_have_units() {
    let quick = latency(&[5]);
    let lossy = Measured {
        lost_objects: 1,
        late_objects: 2,
        failed: 1,
        ..measured(&quick)
    };
    for (text, held) in [
        ("loss<=0.1%", true),
        ("loss<0.1%", false),
        ("loss<=1", true),
        ("late<2", false),
        ("failed<=10%", true),
        ("p50>=4900us", true),
        ("max=5ms", true),
        ("max>0.005s", false),
        ("p99.9<6ms", true),
        ("p90 <= 6 ms", true),
    ] {
        assert_eq!(evaluate(text, &lossy).held, held, "{text}");
    }
}

#[test]
fn a_clause_that_was_not_measured_breaks() {
    let nothing = latency(&[]);
    let blind = Measured {
        cpu_percent: None,
        judged_objects: 0,
        expected_objects: 0,
        subscriptions: 0,
        ..measured(&nothing)
    };
    for text in ["cpu<95%", "p99<100ms", "max<1s", "loss=0", "failed=0"] {
        let verdict = evaluate(text, &blind);
        assert!(
            !verdict.held && verdict.clauses[0].measured.is_none(),
            "{text}"
        );
        let words = verdict.clauses[0].measured_in_words();
        assert!(words.starts_with("not measured: "), "{words}");
    }
}

#[test]
fn errors_say_what_was_expected() {
    let texts = [
        "",
        "loss",
        "loss=0,",
        "speed=1",
        "=5",
        "loss=none",
        "loss=1ms",
        "p99<100",
        "p99<100%",
        "cpu<95",
        "loss==0",
        "p99<-1ms",
        "loss<1e400",
        "max<1..5s",
    ];
    let errors = texts.map(|text| text.parse::<ServiceLevel>().unwrap_err().to_string());
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn the_number_of_clauses_is_limited() {
    let clauses = |count| vec!["loss=0"; count].join(",").parse::<ServiceLevel>();
    assert_eq!(clauses(CLAUSES_MAX).unwrap().clauses().len(), CLAUSES_MAX);
    assert_eq!(clauses(CLAUSES_MAX + 1), Err(ServiceLevelError::TooMany));
}

proptest! {
    #[test]
    fn a_level_is_printed_as_it_is_read(text in r"((loss|late|failed|cpu|p50|p99\.9|max)(<|<=|=|>|>=)[0-9]{1,3}(\.[0-9])?(ms|s|us|%|)?,?){1,4}") {
        if let Ok(level) = text.parse::<ServiceLevel>() {
            prop_assert_eq!(level.to_string().parse::<ServiceLevel>(), Ok(level));
        }
    }
}
