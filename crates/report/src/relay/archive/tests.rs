use std::time::Duration;

use super::*;
use crate::relay::example_report;

/// A run with a slow second half: 2 ms, then 200 ms.
fn archive() -> Archive {
    let report = example_report(20);
    let mut series = Series::new(Duration::from_secs(1));
    for second in 6..36 {
        let ms = if second < 20 { 2 } else { 200 };
        for _ in 0..100 {
            series.record_ns(Duration::from_secs(second), ms * 1_000_000);
        }
    }
    Archive::new(report, [&series])
}

#[test]
fn an_archive_is_read_as_it_was_written() {
    let archive = archive();
    assert_eq!(archive.latency.len(), 30);
    let text = archive.to_text();
    let read = Archive::parse(&text).unwrap();
    assert_eq!(read.latency, archive.latency);
    assert_eq!(read.to_text(), text);
}

#[test]
fn latency_is_judged_over_a_window_and_the_verdict_says_so() {
    let archive = archive();
    let early = archive.between(6, 20).unwrap();
    let late = archive.between(20, 36).unwrap();
    let p99 = |report: &Report| report.tracks[0].latency.overall.unwrap().p99_ms;
    assert!((p99(&early) - 2.0).abs() < 0.1, "{}", p99(&early));
    assert!((p99(&late) - 200.0).abs() < 4.0, "{}", p99(&late));
    assert_eq!(early.tracks[0].latency.overall.unwrap().count, 1400);
    let clause = |report: &Report| {
        let mut clauses = report.slo.clauses.iter();
        clauses.find(|clause| clause.metric == "p99").unwrap().held == Some(true)
    };
    assert!(clause(&early) && !clause(&late));
    let window = |report: &Report| {
        let sentence = &report.verdict.sentence;
        sentence
            .rsplit_once("; latency is judged over ")
            .unwrap()
            .1
            .to_owned()
    };
    assert_eq!(
        window(&early),
        "seconds 6 to 20 only, everything else over the whole run"
    );
    let late = archive.between(20, u64::MAX).unwrap();
    assert_eq!(
        window(&late),
        "the run from second 20 only, everything else over the whole run"
    );
    let page = crate::relay::html::render(&early);
    assert!(page.contains("latency is judged over seconds 6 to 20 only"));
    assert_eq!(
        archive.between(100, 200).unwrap_err().to_string(),
        "no object arrived between second 100 and second 200 of the run"
    );
}

#[test]
fn errors_of_broken_archives_name_the_line() {
    let text = archive().to_text();
    let error = |text: &str| Archive::parse(text).unwrap_err().to_string();
    assert_eq!(error(""), "line 1: not an archive of weir bench");
    assert_eq!(
        error("{\"schema\": 1}\n"),
        "line 1: not an archive of weir bench"
    );
    assert_eq!(
        error(&text.replacen("\"version\":2", "\"version\":9", 1)),
        "line 1: the archive has version 9, and this program reads version 2"
    );
    let lines: Vec<&str> = text.lines().collect();
    let joined = |lines: &[&str]| lines.join("\n");
    assert_eq!(
        error(&joined(&lines[..5])),
        "the archive breaks off after line 5: its last line, with the number of lines, is missing"
    );
    assert_eq!(
        error(&text[..text.len() - 5]).split(':').next(),
        Some(format!("line {}", lines.len()).as_str())
    );
    let mut missing = lines.clone();
    missing.remove(7);
    assert!(error(&joined(&missing)).contains("some are missing"));
    let mut twice = lines.clone();
    twice.insert(2, lines[1]);
    assert_eq!(error(&joined(&twice)), "line 3: a second report");
    let mut none = lines.clone();
    none.remove(1);
    assert_eq!(
        error(&joined(&none)),
        "line 2: latency of a track that the report does not have"
    );
    let older = text.replacen("\"schema\":7", "\"schema\":6", 1);
    for older in [older.clone(), older.replacen("\"partial\":", "\"odd\":", 1)] {
        assert_eq!(
            error(&older),
            "line 2: the report has schema 6, and this version of weir reads schema 7"
        );
    }
    let odd = text.replacen("{\"latency\":", "{\"lateness\":", 1);
    assert!(error(&odd).starts_with("line 3: unknown variant `lateness`"));
    let forged = text.replacen("\"count\":100,", "\"count\":1,", 1);
    assert!(Archive::parse(&forged).is_err());
}
