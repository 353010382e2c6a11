//! Comparisons of relays under one load: the figures of every run, medians, and a test of their differences.

mod table;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

pub use self::table::{html, markdown, terminal};
use super::{Median, Row, Test, by_cost, json, most_frequent, rank_sum, ranked};
use crate::{
    relay::Audience,
    search::{Probe, ProbeFigures, ProbeOutcome},
};

/// Version of the comparison's form. It grows whenever a field is changed or removed.
pub const COMPARISON: u32 = 3;

/// A comparison of relays under one load.
pub type Comparison = super::Comparison<Relays>;

/// The relays of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relays {
    /// The relays, best first.
    pub relays: Vec<Standing>,
}

/// The runs of one relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name in the file.
    pub name: String,
    /// Version, from its version command or its SETUP.
    pub version: String,
    /// The negotiated draft, by its ALPN.
    pub draft: Option<String>,
    /// The subscribers as the relay met them in its last run; none if it had no run.
    pub audience: Option<Audience>,
    /// The runs, without warm-up runs.
    pub runs: Vec<Probe>,
}

/// The figures of one relay: medians over its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// The runs.
    pub entry: Entry,
    /// Runs in which the service level held.
    pub held: usize,
    /// Runs in which the generator was the limit. The figures leave them out.
    pub generator_limited: usize,
    /// The clause that broke most often; none if none broke.
    pub broke: Option<String>,
    /// CPU time per delivered object, in µs.
    pub cpu_us_per_object: Option<Median>,
    /// Mean CPU load of the relay; 100 is one core.
    pub cpu_percent: Option<Median>,
    /// 99th percentile of latency.
    pub p99_ms: Option<Median>,
    /// Memory per session.
    pub bytes_per_session: Option<Median>,
    /// Lost objects, over all runs.
    pub lost: u64,
    /// Test of the difference in CPU time per object to the first relay of the table; none for the first one.
    pub against_first: Option<Test>,
}

impl Comparison {
    /// Orders the relays: those that held more often first, then by CPU time per object.
    pub fn new(setting: Vec<String>, entries: Vec<Entry>, broken_off: Option<String>) -> Self {
        let mut relays: Vec<Standing> = ranked(entries);
        let first: Vec<f64> = relays.first().map_or_else(Vec::new, Standing::costs);
        for other in relays.iter_mut().skip(1) {
            other.against_first = rank_sum(&first, &other.costs());
        }
        Self {
            comparison: COMPARISON,
            setting,
            contenders: Relays { relays },
            broken_off,
        }
    }

    /// Writes the comparison as JSON, with a line feed at its end.
    pub fn to_json(&self) -> String {
        json(self)
    }
}

impl Row for Standing {
    type Entry = Entry;

    fn of(entry: Entry) -> Self {
        let judged = || entry.judged_runs();
        let median = |pick: fn(&ProbeFigures) -> Option<f64>| {
            Median::of(judged().filter_map(|run| pick(&run.figures)))
        };
        let broke = most_frequent(judged().filter_map(|run| match &run.outcome {
            ProbeOutcome::Broke { clauses, .. } => clauses.first().map(|one| one.text.as_str()),
            ProbeOutcome::Held | ProbeOutcome::Generator { .. } => None,
        }));
        Self {
            held: judged()
                .filter(|run| run.outcome == ProbeOutcome::Held)
                .count(),
            generator_limited: entry.runs.len() - judged().count(),
            broke: broke.map(str::to_owned),
            cpu_us_per_object: median(|figures| figures.cpu_us_per_delivered_object),
            cpu_percent: median(|figures| figures.cpu_percent),
            p99_ms: median(|figures| figures.latency_p99_ms),
            bytes_per_session: median(|figures| figures.bytes_per_session),
            lost: judged().map(|run| run.figures.objects_lost).sum(),
            against_first: None,
            entry,
        }
    }

    /// More held runs first, then lower CPU time per object.
    fn order(&self, other: &Self) -> Ordering {
        let share = |one: &Self| (one.held * 1000).checked_div(one.judged()).unwrap_or(0);
        share(other)
            .cmp(&share(self))
            .then(by_cost(self.cpu_us_per_object, other.cpu_us_per_object))
            .then_with(|| self.entry.name.cmp(&other.entry.name))
    }
}

impl Standing {
    /// Returns the number of runs in which the generator was not the limit.
    fn judged(&self) -> usize {
        self.entry.runs.len() - self.generator_limited
    }

    fn costs(&self) -> Vec<f64> {
        let judged = self.entry.judged_runs();
        judged
            .filter_map(|run| run.figures.cpu_us_per_delivered_object)
            .collect()
    }
}

impl Entry {
    /// Returns the runs in which the generator was not the limit.
    fn judged_runs(&self) -> impl Iterator<Item = &Probe> {
        let is_generator = |run: &Probe| matches!(run.outcome, ProbeOutcome::Generator { .. });
        self.runs.iter().filter(move |run| !is_generator(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{charts, relay::Acknowledged, search::BrokenClause};

    fn run(cost: f64, outcome: ProbeOutcome) -> Probe {
        Probe {
            load: 100,
            outcome,
            figures: ProbeFigures {
                cpu_us_per_delivered_object: Some(cost),
                latency_p99_ms: Some(cost / 2.0),
                bytes_per_session: Some(20_480.0),
                ..ProbeFigures::default()
            },
        }
    }

    fn entry(name: &str, costs: &[f64]) -> Entry {
        Entry {
            name: name.to_owned(),
            version: format!("{name} 1.0"),
            draft: Some("moqt-18".to_owned()),
            audience: Some(audience()),
            runs: costs
                .iter()
                .map(|cost| run(*cost, ProbeOutcome::Held))
                .collect(),
        }
    }

    /// One socket and one thread; every second packet is acknowledged.
    fn audience() -> Audience {
        Audience {
            sockets: 1,
            threads: 1,
            acknowledgements: "delayed".to_owned(),
            receive_pause_ms: 0.5,
            reply_spread_ms: 0.0,
            acknowledged: Some(Acknowledged {
                connections: 100,
                connections_asked: 0,
                packets_received: 1_000,
                acknowledgements_sent: 500,
            }),
        }
    }

    fn broken() -> ProbeOutcome {
        ProbeOutcome::Broke {
            clauses: vec![BrokenClause {
                text: "loss=0".to_owned(),
                measured: Some(7.0),
                unit: String::new(),
            }],
            ended_early: false,
        }
    }

    #[test]
    fn relays_that_hold_come_before_relays_that_cost_less() {
        let mut cheap = entry("cheap", &[1.0, 1.0, 1.0]);
        cheap.runs[0].outcome = broken();
        let dear = entry("dear", &[30.0, 31.0, 32.0]);
        let middle = entry("middle", &[10.0, 11.0, 12.0, 13.0]);
        let comparison = Comparison::new(Vec::new(), vec![cheap, dear, middle], None);
        let names: Vec<&str> = comparison
            .contenders
            .relays
            .iter()
            .map(|relay| relay.entry.name.as_str())
            .collect();
        assert_eq!(names, ["middle", "dear", "cheap"]);
        assert_eq!(
            comparison.contenders.relays[2].broke.as_deref(),
            Some("loss=0")
        );
        let cost = comparison.contenders.relays[0].cpu_us_per_object.unwrap();
        assert_eq!((cost.median, cost.min, cost.max), (11.5, 10.0, 13.0));
        assert_eq!(comparison.contenders.relays[0].against_first, None);
        assert!(comparison.contenders.relays[1].against_first.is_some());
        let text = comparison.to_json();
        let fields: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("  \""))
            .filter_map(|line| line.split('"').nth(1))
            .collect();
        let expected = ["comparison", "setting", "relays", "broken_off"];
        assert_eq!(fields, expected);
        assert_eq!(
            serde_json::from_str::<Comparison>(&text).unwrap(),
            comparison
        );
    }

    #[test]
    fn runs_in_which_the_generator_was_the_limit_do_not_count() {
        let mut slow = entry("slow", &[10.0, 500.0]);
        slow.runs[1].outcome = ProbeOutcome::Generator {
            reasons: Vec::new(),
            ended_early: false,
        };
        let comparison = Comparison::new(Vec::new(), vec![slow], None);
        let relay = &comparison.contenders.relays[0];
        assert_eq!((relay.held, relay.generator_limited), (1, 1));
        assert!(relay.cpu_us_per_object.is_some_and(|cost| cost.max < 11.0));
        let nothing = Comparison::new(Vec::new(), vec![entry("none", &[])], None);
        assert_eq!(nothing.contenders.relays[0].cpu_us_per_object, None);
        assert!(terminal(&nothing).contains("none"));
    }

    #[test]
    fn every_form_names_the_audience_and_its_acknowledgements() {
        let all = |comparison: &Comparison| {
            [terminal(comparison), markdown(comparison), html(comparison)]
        };
        let entries = || vec![entry("one", &[10.0]), entry("other", &[11.0])];
        let same = Comparison::new(Vec::new(), entries(), None);
        for text in all(&same) {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let named =
                "Audience: 1 socket, 1 thread, 0.500 ms between reads, delayed acknowledgements.";
            assert!(text.contains(named), "{text}");
            assert!(text.contains("0.50, no ACK_FREQUENCY"), "{text}");
        }
        let mut apart = entries();
        let other = apart[1].audience.as_mut().unwrap();
        other.sockets = 50;
        let found = other.acknowledged.as_mut().unwrap();
        found.connections_asked = 100;
        let apart = Comparison::new(Vec::new(), apart, None);
        for text in all(&apart) {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                text.contains("Audience of other: 50 sockets, 1 thread"),
                "{text}"
            );
            assert!(
                text.contains("0.50, ACK_FREQUENCY on 100 of 100 connections"),
                "{text}"
            );
        }
        let json = apart.to_json();
        assert!(json.contains("\"connections_asked\": 100"), "{json}");
    }

    #[test]
    #[ignore = "writes a file to look at, into the folder that WEIR_REPORTS names"]
    fn write_examples() {
        let folder = std::path::PathBuf::from(std::env::var("WEIR_REPORTS").expect("WEIR_REPORTS"));
        let mut slow = entry("slow", &[30.0, 31.0, 32.0, 33.0]);
        slow.runs[1].outcome = broken();
        let fast = entry("fast", &[10.0, 11.0, 12.0, 13.0]);
        let setting = vec!["audio.ini, 100 subscribers".to_owned()];
        let comparison = Comparison::new(setting, vec![slow, fast], None);
        std::fs::write(folder.join("relays.html"), html(&comparison)).unwrap();
    }

    #[test]
    fn the_table_in_every_form() {
        let mut comparison = Comparison::new(
            vec!["audio.ini, 100 subscribers".to_owned()],
            vec![
                entry("a<b>|c", &[10.0, 11.0, 12.0]),
                entry("b", &[30.0, 31.0, 32.0]),
            ],
            None,
        );
        comparison.contenders.relays[1].lost = 3;
        let text = terminal(&comparison);
        assert!(text.contains("3 of 3"), "{text}");
        assert!(text.contains("11.0"), "{text}");
        assert!(text.contains("too few runs"), "{text}");
        let text = markdown(&comparison);
        assert!(text.contains("a&lt;b>\\|c"), "{text}");
        for section in ["relays-compared", "audiences", "drafts"] {
            let chart = charts::chart(section, &text).expect("the table has its columns");
            let cost = "a&lt;b&gt;|c 1.0 11.0 µs";
            assert!(chart.svg.contains(cost), "{section}: {}", chart.svg);
        }
        let text = html(&comparison);
        assert!(text.contains("a&lt;b&gt;|c"), "{text}");
        assert!(!text.contains("<b>|c"), "{text}");
    }
}
