//! Tests of comparisons of HTTP/3 servers in all their forms.

use super::*;

#[test]
fn the_lowest_cost_per_request_comes_first() {
    let comparison = example();
    let names = |scenario: &Scenario| -> Vec<String> {
        let standings = scenario.standings.iter();
        standings.map(|one| one.entry.server.clone()).collect()
    };
    let first = &comparison.contenders.scenarios[0];
    assert_eq!(names(first), ["weir", "slow|er<b>", "absent"]);
    let weir = &first.standings[0];
    assert!((weir.cpu_us_per_request.unwrap().median - 15.0).abs() < 1e-9);
    assert_eq!(weir.limit_words(), "the server");
    assert_eq!(
        first.standings[1].limit_words(),
        "the server in 2 of 3, else the client"
    );
    assert_eq!(first.standings[2].limit_words(), "not measured");
    let text = comparison.to_json();
    assert_eq!(
        serde_json::from_str::<Comparison>(&text)
            .unwrap()
            .contenders
            .servers,
        comparison.contenders.servers
    );
}

#[test]
fn a_comparison_with_missing_runs_is_incomplete() {
    let mut comparison = example();
    assert!(comparison.is_measured());
    assert!(!comparison.has_all_runs(3), "one server was absent");
    comparison.contenders.scenarios.truncate(1);
    comparison.contenders.scenarios[0].standings.truncate(2);
    assert!(comparison.has_all_runs(3) && !comparison.has_all_runs(4));
    comparison.broken_off = Some("it was interrupted".to_owned());
    assert!(!comparison.has_all_runs(3));
    comparison.broken_off = None;
    let standings = &mut comparison.contenders.scenarios[0].standings;
    standings[1].entry.runs[2].successes = 0;
    assert!(!comparison.has_all_runs(3));
    let standings = &mut comparison.contenders.scenarios[0].standings;
    for run in standings.iter_mut().flat_map(|one| &mut one.entry.runs) {
        run.successes = 0;
    }
    assert!(!comparison.is_measured(), "runs without any success");
}

#[test]
#[ignore = "writes a file to look at, into the folder that WEIR_REPORTS names"]
fn write_examples() {
    let folder = std::path::PathBuf::from(std::env::var("WEIR_REPORTS").expect("WEIR_REPORTS"));
    std::fs::write(folder.join("h3-compare.html"), page(&example())).unwrap();
}

#[test]
fn unequal_rates_and_lost_packets_are_explained() {
    let mut comparison = example();
    assert!(table(&comparison).contains(text::EQUAL_RATES));
    let scenario = &mut comparison.contenders.scenarios[0];
    for one in scenario.standings.iter_mut().take(2) {
        one.requests_per_second = Median::of([2_000.0].into_iter());
    }
    scenario.standings[0].receive_errors = 1_461;
    let text = table(&comparison);
    assert!(!text.contains(text::EQUAL_RATES), "{text}");
    let lost = "0; 1,461 packets dropped";
    assert!(text.contains(lost), "{text}");
    assert!(text.contains("Packets dropped: a receive buffer"), "{text}");
}

#[test]
fn runs_that_the_hypervisor_disturbed_are_counted() {
    let mut comparison = example();
    assert_eq!(comparison.disturbed_words(), None);
    let runs = &mut comparison.contenders.scenarios[0].standings[0].entry.runs;
    runs[0].stolen_percent = Some(2.0);
    runs[1].stolen_percent = Some(1.9);
    let expected = "In 1 of 7 runs, the hypervisor gave 2 % of a core or more to others.";
    for text in [table(&comparison), markdown(&comparison), page(&comparison)] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_summary_has_the_cost_of_all_and_the_rate_of_full_servers() {
    let mut comparison = example();
    let expected = "CPU time of the server per response (15k): weir 15.0 µs, slow\\|er&lt;b> 55.0 µs. Requests per second with a \
                    full core, where the server was the limit in every run: weir 66,667. The limit of others: \
                    slow\\|er&lt;b> (the server in 2 of 3, else the client).";
    assert_eq!(summary(&comparison), expected);
    comparison.contenders.scenarios.clear();
    assert_eq!(summary(&comparison), "");
}

#[test]
fn comparisons_as_text_and_as_a_page() {
    let comparison = example();
    insta::assert_snapshot!(table(&comparison));
    insta::assert_snapshot!(markdown(&comparison));
    let page = page(&comparison);
    assert!(page.contains("slow|er&lt;b&gt;") && !page.contains("er<b>"));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(
        page.matches("bar pale").count(),
        1,
        "the server was not the limit in one run"
    );
    assert!(page.contains("absent: did not answer within 10 s"));
}

/// Three servers in two scenarios. One has failures in a run, one was never measured.
fn example() -> Comparison {
    let figures = |cost: f64, rate: f64| RunFigures {
        cpu_us_per_request: Some(cost),
        requests_per_second: rate,
        server_percent: Some(99.0),
        client_percent: 60.0,
        client_us_per_request: Some(9.0),
        limit: Limit::Server,
        connections: 20,
        latency_p99_ms: Some(4.0),
        handshake_p50_ms: Some(1.0),
        successes: 30_000,
        failed: 0,
        receive_errors: 0,
        stolen_percent: Some(0.5),
    };
    let entry = |server: &str, costs: &[f64]| Entry {
        server: server.to_owned(),
        runs: costs
            .iter()
            .map(|cost| figures(*cost, 1e6 / cost))
            .collect(),
        problems: Vec::new(),
    };
    let mut slow = entry("slow|er<b>", &[50.0, 60.0, 55.0]);
    slow.runs[1].limit = Limit::Client;
    slow.runs[1].failed = 7;
    let mut absent = entry("absent", &[]);
    absent
        .problems
        .push("did not answer within 10 s".to_owned());
    let contender = |name: &str, version: &str| Contender {
        name: name.to_owned(),
        version: version.to_owned(),
        note: None,
    };
    Comparison::new(
        vec!["Two servers on core 0, the client on core 1.".to_owned()],
        [("memory", "8.2 GB"), ("disk", "ext4 on vda")]
            .map(|(part, what)| (part.to_owned(), what.to_owned()))
            .to_vec(),
        vec![
            contender("weir", "weir 0.1.0"),
            contender("slow|er<b>", "1.2"),
            contender("absent", ""),
        ],
        vec![
            (
                "15k".to_owned(),
                "10 connections with 10 requests at once".to_owned(),
                vec![absent, slow, entry("weir", &[15.0, 16.0, 14.0])],
            ),
            (
                "1k-short".to_owned(),
                "100 connections with one request each".to_owned(),
                vec![entry("weir", &[200.0])],
            ),
        ],
        None,
    )
}
