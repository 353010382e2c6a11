//! Limits of several relays under several profiles, each found by a search, in one table.

use serde::{Deserialize, Serialize};

use super::{
    Median,
    column::{self, Column},
    incomplete, json,
    page::page,
    with_version,
};
use crate::form::{
    number::{NONE, or_none},
    table::Table,
};
use crate::search::{
    Answer, DISTURBED_PROBES_MAX, Probe, ProbeFigures, ProbeOutcome, Record, STOLEN_PERCENT_MAX,
};

/// Version of the form of [`Limits`]. It grows whenever a field is changed or removed.
pub const LIMITS: u32 = 4;

/// A comparison of limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Version of this form: [`LIMITS`].
    pub limits: u32,
    /// The setting in words: how the limits were searched, and on what machine.
    pub setting: Vec<String>,
    /// One search for each profile and relay.
    pub searches: Vec<RelayLimit>,
    /// Why searches are missing; none if all were made.
    pub broken_off: Option<String>,
}

/// The limit of one relay under one profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayLimit {
    /// Name of the profile.
    pub profile: String,
    /// Name of the relay in the file.
    pub relay: String,
    /// Version, from its version command or its SETUP.
    pub version: String,
    /// The negotiated draft, by its ALPN.
    pub draft: Option<String>,
    /// The record of the search.
    pub record: Record,
}

impl Limits {
    /// Orders the searches: by profile in the given order, then the largest limit first.
    pub fn new(
        setting: Vec<String>,
        mut searches: Vec<RelayLimit>,
        broken_off: Option<String>,
    ) -> Self {
        let mut profiles: Vec<String> = Vec::new();
        for search in &searches {
            if !profiles.contains(&search.profile) {
                profiles.push(search.profile.clone());
            }
        }
        searches.sort_by_key(|search| {
            let profile = profiles.iter().position(|one| *one == search.profile);
            let most = search.held().unwrap_or(0);
            (profile, std::cmp::Reverse(most), search.relay.clone())
        });
        Self {
            limits: LIMITS,
            setting,
            searches,
            broken_off,
        }
    }

    /// Writes the comparison as JSON, with a line feed at its end.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// Renders the table for a terminal; every line ends with a line feed.
    pub fn terminal(&self) -> String {
        self.table().terminal()
    }

    /// Renders the table as Markdown.
    pub fn markdown(&self) -> String {
        self.table().markdown(false)
    }

    /// Renders the table as one HTML file that needs no network.
    pub fn html(&self) -> String {
        page("Largest load of each relay", &self.table())
    }

    /// Returns a note about disturbed probes, if there were any.
    fn disturbed(&self) -> Option<String> {
        let probes = || self.searches.iter().flat_map(|one| &one.record.probes);
        let disturbed = probes().filter(|probe| probe.is_disturbed()).count();
        (disturbed > 0).then(|| {
            format!(
                "In {disturbed} of {} probes, the relay failed while the hypervisor gave {STOLEN_PERCENT_MAX} % of a core or \
                 more to others. Up to {DISTURBED_PROBES_MAX} of them at each load were repeated and do not count.",
                probes().count()
            )
        })
    }

    fn table(&self) -> Table {
        let mut notes = self.setting.clone();
        notes.push(
            "The largest load is the most that held the service level, with its 95 % interval. `broke` \
             is the first clause of the service level that broke at the next load. µs/object (CPU time), p99 (latency) \
             and KiB/session (memory) are medians of the probes at the largest load that held. `null relay`: a relay \
             that only forwards got the load at which the relay broke; if it held, the generator was not the limit."
                .to_owned(),
        );
        notes.extend(self.disturbed());
        notes.extend(incomplete("searches", self.broken_off.as_deref()));
        column::table(&COLUMNS, self.searches.iter()).with_notes(notes)
    }
}

impl RelayLimit {
    /// Returns the largest load that held.
    pub fn held(&self) -> Option<u64> {
        match &self.record.answer {
            Answer::Found { held, .. } | Answer::AtLeast { held } => Some(*held),
            Answer::Nothing { .. } => None,
            Answer::Generator { held, .. } | Answer::Open { held, .. } => *held,
        }
    }

    /// Returns the largest load that held, with its unit.
    fn load(&self) -> String {
        match self.answer().0 {
            none if none == NONE => none,
            load => format!("{load} {}", self.record.search.dimension.unit()),
        }
    }

    fn interval(&self) -> String {
        let Answer::Found {
            interval: Some(interval),
            ..
        } = &self.record.answer
        else {
            return NONE.to_owned();
        };
        format!("{} to {}", interval.low, interval.high)
    }

    /// Returns the median of a figure over the probes at the largest load that held.
    fn median(&self, pick: fn(&ProbeFigures) -> Option<f64>, scale: f64) -> String {
        let held = self.held();
        let probes = self.record.probes.iter();
        let at_limit = probes.filter(|probe: &&Probe| {
            Some(probe.load) == held && probe.outcome == ProbeOutcome::Held
        });
        let median = Median::of(at_limit.filter_map(|probe| Some(pick(&probe.figures)? * scale)));
        or_none(median, |median| format!("{:.1}", median.median))
    }

    /// Returns the largest load that held, and which clause broke above it.
    fn answer(&self) -> (String, String) {
        match &self.record.answer {
            Answer::Found {
                held,
                broke,
                clause,
                ..
            } => (
                held.to_string(),
                format!("{} at {broke}", clause.sentence()),
            ),
            Answer::AtLeast { held } => (format!("at least {held}"), "nothing".to_owned()),
            Answer::Nothing { broke, clause } => (format!("less than {broke}"), clause.sentence()),
            Answer::Generator { held, at, .. } => (
                or_none(*held, |held| format!("at least {held}")),
                format!("not known: the generator was the limit at {at}"),
            ),
            Answer::Open { held, reason, .. } => (
                or_none(*held, |held| format!("at least {held}")),
                format!("not found: {reason}"),
            ),
        }
    }

    fn proof(&self) -> String {
        if let Some(problem) = &self.record.calibration_problem {
            return format!("not tried: {problem}");
        }
        let Some(calibration) = &self.record.calibration else {
            return NONE.to_owned();
        };
        if !calibration.held {
            return "broke too".to_owned();
        }
        let cpu = calibration
            .generator_cpu_percent
            .map_or_else(String::new, |cpu| {
                format!(", generator {cpu:.0} % of a core")
            });
        format!("held{cpu}")
    }
}

/// The columns of the table.
const COLUMNS: [Column<RelayLimit>; 10] = [
    Column::words("profile", |one| one.profile.clone()),
    Column::words("relay", |one| with_version(&one.relay, &one.version)),
    Column::words("draft", |one| {
        one.draft.as_deref().unwrap_or(NONE).to_owned()
    }),
    Column::figures("largest load", RelayLimit::load),
    Column::figures("95 % interval", RelayLimit::interval),
    Column::words("broke", |one| one.answer().1),
    Column::figures("CPU µs/object", |one| {
        one.median(|figures| figures.cpu_us_per_delivered_object, 1.0)
    }),
    Column::figures("latency p99 ms", |one| {
        one.median(|figures| figures.latency_p99_ms, 1.0)
    }),
    Column::figures("KiB/session", |one| {
        one.median(|figures| figures.bytes_per_session, 1.0 / 1024.0)
    }),
    Column::words("null relay", RelayLimit::proof),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts;
    use crate::relay::Calibration;
    use crate::search::{BrokenClause, Dimension, FixedLoad, RecordedSearch, Settings};

    fn search(profile: &str, relay: &str, held: u64) -> RelayLimit {
        let settings = Settings {
            from: held,
            least: 1,
            most: 10_000,
            precision_percent: 10,
            repeats: 1,
            needed: 1,
            probes_max: 9,
        };
        let probe = |load, outcome| Probe {
            load,
            outcome,
            figures: ProbeFigures {
                cpu_us_per_delivered_object: Some(7.5),
                bytes_per_session: Some(20_480.0),
                latency_p99_ms: Some(12.0),
                ..ProbeFigures::default()
            },
        };
        let broke = ProbeOutcome::Broke {
            clauses: vec![BrokenClause {
                text: "cpu<95%".to_owned(),
                measured: Some(97.0),
                unit: "%".to_owned(),
            }],
            ended_early: false,
        };
        let calibration = Calibration {
            held: true,
            reasons: Vec::new(),
            objects_per_second: 1.0,
            latency_p99_ms: Some(1.0),
            generator_cpu_percent: Some(61.0),
            null_relay_cpu_us_per_object: None,
        };
        let recorded = RecordedSearch {
            dimension: Dimension::Subscribers,
            settings,
            profile: String::new(),
            slo: "cpu<95%".to_owned(),
            relay: relay.to_owned(),
            fixed: FixedLoad::default(),
            flow: "PUBLISH_NAMESPACE".to_owned(),
            wire: "draft".to_owned(),
        };
        let probes = vec![probe(held, ProbeOutcome::Held), probe(held + 1, broke)];
        RelayLimit {
            profile: profile.to_owned(),
            relay: relay.to_owned(),
            version: "1.0".to_owned(),
            draft: Some("moqt-18".to_owned()),
            record: Record::new(recorded, probes, Some(calibration), None),
        }
    }

    #[test]
    #[ignore = "writes a file to look at, into the folder that WEIR_REPORTS names"]
    fn write_examples() {
        let folder = std::path::PathBuf::from(std::env::var("WEIR_REPORTS").expect("WEIR_REPORTS"));
        let searches = vec![
            search("audio.ini", "slow", 100),
            search("audio.ini", "fast", 900),
        ];
        let limits = Limits::new(vec!["two cores".to_owned()], searches, None);
        std::fs::write(folder.join("limits.html"), limits.html()).unwrap();
    }

    #[test]
    fn the_largest_limit_of_a_profile_comes_first() {
        let limits = Limits::new(
            vec!["two cores".to_owned()],
            vec![
                search("b.ini", "slow|er", 100),
                search("b.ini", "fast", 900),
                search("a.ini", "fast", 50),
            ],
            None,
        );
        let order: Vec<(&str, &str)> = limits
            .searches
            .iter()
            .map(|one| (one.profile.as_str(), one.relay.as_str()))
            .collect();
        assert_eq!(
            order,
            [("b.ini", "fast"), ("b.ini", "slow|er"), ("a.ini", "fast")]
        );
        let text = limits.markdown();
        assert!(
            text.contains("| b.ini | fast (1.0) | moqt-18 | 900 subscribers |"),
            "{text}"
        );
        let chart = charts::chart("relay-limits", &text).expect("the table has its columns");
        assert!(
            chart.svg.contains("fast (1.0) 900; slow|er (1.0) 100"),
            "{}",
            chart.svg
        );
        assert!(text.contains("cpu<95% (measured 97 %) at 901"), "{text}");
        assert!(text.contains("held, generator 61 % of a core"), "{text}");
        assert!(text.contains("slow\\|er"), "{text}");
        assert!(limits.terminal().contains("7.5"), "{}", limits.terminal());
        assert!(limits.html().contains("KiB/session"));
        assert!(!text.contains("hypervisor"), "{text}");
        let mut disturbed = limits.clone();
        disturbed.searches[0].record.probes[1]
            .figures
            .stolen_percent = Some(2.0);
        let text = disturbed.markdown();
        assert!(
            text.contains("In 1 of 6 probes, the relay failed while"),
            "{text}"
        );
        let mut unproved = search("a.ini", "fast", 50);
        unproved.record = unproved.record.uncalibrated("no memory");
        assert_eq!(unproved.proof(), "not tried: no memory");
        let again: Limits = serde_json::from_str(&limits.to_json()).unwrap();
        assert_eq!(again, limits);
    }
}
