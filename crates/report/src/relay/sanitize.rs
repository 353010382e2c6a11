//! Sanitizes a report for publication: removes hosts, addresses, namespaces and tokens.
//!
//! Fields that hold such names are replaced. The same names, and anything that looks like an address, are removed from
//! all other texts. Labels are removed from the relay's counters and metrics, because a relay may put any name there.
//! Section names, figures, versions and the CPU model stay.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use super::Report;
use crate::service_level::ServiceLevel;

/// The error of a report that is not valid after its names were removed.
#[derive(Debug, thiserror::Error)]
#[error("the report cannot be sanitized: {0}")]
pub struct SanitizeError(#[from] serde_json::Error);

/// Returns the report without names of hosts, addresses, namespaces and tokens.
///
/// # Errors
/// The report holds a number that JSON cannot express.
pub fn sanitize(report: &Report) -> Result<Report, SanitizeError> {
    let mut names = BTreeSet::new();
    for track in &report.tracks {
        let definition = &track.definition;
        collect(&mut names, &definition.namespace);
        collect(&mut names, &definition.name);
        for one in &track.subscribers {
            collect(&mut names, &one.track_name);
        }
    }
    collect(&mut names, &report.run.relay_url);
    for agent in &report.generator.agents {
        collect(&mut names, &agent.name);
    }
    for word in report.run.command_line.split_whitespace() {
        if word.contains([':', '/', '.', '=', '@']) && !is_service_level(word) {
            collect(&mut names, word);
        }
    }
    collect_from_profile(&report.run.profile.text, &mut names);
    let mut value = serde_json::to_value(report)?;
    walk(&mut value, "", &names);
    let mut clean: Report = serde_json::from_value(value)?;
    clean.run.profile.text = profile_text(&report.run.profile.text, &names);
    for (number, track) in clean.tracks.iter_mut().enumerate() {
        track.definition.namespace = format!("namespace-{}", number + 1);
        track.definition.name = format!("track-{}", number + 1);
    }
    for (number, agent) in clean.generator.agents.iter_mut().enumerate() {
        agent.name = format!("agent-{}", number + 1);
    }
    let (counters, metrics) = (&report.relay.counters, &report.relay.metrics);
    let known = metrics.iter().map(|one| &one.metric).chain(counters.keys());
    let unlabelled = unlabelled(known, &names);
    let renamed = |name: &String| unlabelled.get(name).cloned().unwrap_or_default();
    clean.relay.counters = counters
        .iter()
        .map(|(name, value)| (renamed(name), *value))
        .collect();
    for (metric, original) in clean.relay.metrics.iter_mut().zip(metrics) {
        metric.metric = renamed(&original.metric);
    }
    Ok(clean)
}

/// Returns the new name of each counter and metric: its family, with a number in place of the labels. Names stay
/// distinct, and a counter keeps the name of its metric.
fn unlabelled<'a>(
    known: impl Iterator<Item = &'a String>,
    names: &BTreeSet<String>,
) -> BTreeMap<String, String> {
    let known: BTreeSet<&String> = known.collect();
    let mut members: BTreeMap<String, u64> = BTreeMap::new();
    known
        .into_iter()
        .map(|name| {
            let (family, labels) = match name.split_once('{') {
                Some((family, _)) => (family, true),
                None => (name.as_str(), false),
            };
            let family = scrub(family, names);
            let member = members.entry(family.clone()).or_default();
            *member += 1;
            let clean = if labels || *member > 1 {
                format!("{family}{{{member}}}")
            } else {
                family
            };
            (name.clone(), clean)
        })
        .collect()
}

/// Returns any JSON that weir writes without names of hosts, addresses, namespaces and tokens. The names of relays and
/// servers in a comparison's file stay.
///
/// # Errors
/// The text is not JSON, or is a report of another version.
pub fn sanitize_record(text: &str) -> Result<String, SanitizeError> {
    let mut record: Value = serde_json::from_str(text)?;
    if record.get("verdict").is_some() && record.get("tracks").is_some() {
        let report: Report = serde_json::from_value(record)?;
        return Ok(super::json::render(&sanitize(&report)?));
    }
    let mut names = BTreeSet::new();
    collect_from_record(&record, "", &mut names);
    clean_record(&mut record, "", &names);
    Ok(serde_json::to_string_pretty(&record)? + "\n")
}

/// Adds the names in a record: of the relay's URL, and of the tracks in the profile.
fn collect_from_record(value: &Value, key: &str, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if key == "relay" && text.contains("://") => collect(names, text),
        // The path of an HTTP/3 request says which file; it stays.
        Value::String(text) if key == "url" => collect(names, host_of(text)),
        Value::String(text) if key == "profile" => collect_from_profile(text, names),
        Value::Array(items) => {
            for item in items {
                collect_from_record(item, key, names);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                collect_from_record(field, key, names);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn clean_record(value: &mut Value, key: &str, names: &BTreeSet<String>) {
    match value {
        Value::String(text) => {
            *text = match key {
                "relay" if text.contains("://") => "relay".to_owned(),
                "command_line" => "weir".to_owned(),
                "url" => without_host(text),
                "profile" if text.contains('\n') => profile_text(text, names),
                _ => scrub(text, names),
            };
        }
        Value::Array(items) => {
            for item in items {
                clean_record(item, key, names);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                if !OWN_FIELDS.contains(&key.as_str())
                    && !OWN_FIELDS_OF_RECORDS.contains(&key.as_str())
                {
                    clean_record(field, key, names);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns host and port of a URL; the whole text if it is none.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// Returns a URL without host and query.
fn without_host(url: &str) -> String {
    let (_, path) = url.split_once(host_of(url)).unwrap_or(("", url));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    format!("{REMOVED}{path}")
}

fn collect_from_profile(text: &str, names: &mut BTreeSet<String>) {
    for line in text.lines() {
        if let Some((key, value)) = line.split_once('=')
            && matches!(key.trim(), "namespace" | "name")
        {
            collect(names, value.trim());
        }
    }
}

/// Returns true if a word of a command line is a service level or a clause of one, whose metrics the report names.
fn is_service_level(word: &str) -> bool {
    let text = word.strip_prefix("--slo=").unwrap_or(word);
    let text = text.trim_matches(['\'', '"', ',']);
    text.parse::<ServiceLevel>().is_ok()
}

/// Adds a name and its parts to `names`, except short and common ones.
fn collect(names: &mut BTreeSet<String>, name: &str) {
    let parts =
        name.split(|letter: char| !letter.is_alphanumeric() && letter != '.' && letter != '-');
    for part in parts.chain([name]) {
        let is_number = part.chars().all(|letter| letter.is_ascii_digit());
        if part.chars().count() >= NAME_CHARS_MIN && !is_number && !PLAIN.contains(&part) {
            names.insert(part.to_owned());
        }
    }
}

fn walk(value: &mut Value, key: &str, names: &BTreeSet<String>) {
    match value {
        Value::String(text) => {
            *text = match key {
                "command_line" => "weir bench".to_owned(),
                "relay_url" => "relay".to_owned(),
                "run_id" => "run".to_owned(),
                "namespace" | "name" | "track_name" => REMOVED.to_owned(),
                _ => scrub(text, names),
            };
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, key, names)),
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                if !OWN_FIELDS.contains(&key.as_str()) {
                    walk(field, key, names);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

/// Returns `text` without `names` and addresses.
fn scrub(text: &str, names: &BTreeSet<String>) -> String {
    let mut text = text.to_owned();
    let mut longest: Vec<&String> = names.iter().collect();
    longest.sort_by_key(|name| std::cmp::Reverse(name.len()));
    for name in longest {
        text = text.replace(name.as_str(), REMOVED);
    }
    let is_apart = |letter: char| letter.is_whitespace() || "\"'(),;<>=".contains(letter);
    let words: Vec<&str> = text
        .split_inclusive(is_apart)
        .flat_map(|word| {
            let end = word.trim_end_matches(is_apart).len();
            <[&str; 2]>::from(word.split_at(end))
        })
        .collect();
    let clean = |word: &&str| {
        if is_address(word) {
            REMOVED.to_owned()
        } else {
            (*word).to_owned()
        }
    };
    words.iter().map(clean).collect()
}

/// Returns true for a URL, and for an IP address with or without a port or prefix length.
fn is_address(word: &str) -> bool {
    let bare = word.trim_end_matches('.').trim_matches(['[', ']']);
    word.contains("://")
        || bare.parse::<IpAddr>().is_ok()
        || bare.trim_end_matches(':').parse::<IpAddr>().is_ok()
        || word
            .trim_end_matches(['.', ':'])
            .parse::<SocketAddr>()
            .is_ok()
        || bare
            .split_once('/')
            .is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok())
}

/// Returns the profile with its names replaced.
fn profile_text(text: &str, names: &BTreeSet<String>) -> String {
    let line = |line: &str| match line.split_once('=') {
        Some((key, _)) if matches!(key.trim(), "namespace" | "name") => format!("{key}= {REMOVED}"),
        Some(_) => line.to_owned(),
        None => scrub(line, names),
    };
    text.lines().map(|one| line(one) + "\n").collect()
}

/// Replacement of removed names.
const REMOVED: &str = "…";
/// Shortest name that is removed. Shorter ones identify nobody, and occur in many words of a report.
const NAME_CHARS_MIN: usize = 3;
/// Words of command lines and names that identify nobody.
const PLAIN: [&str; 5] = ["weir", "bench", "moqt", "https", "audio"];
/// Fields whose values weir itself defines. Programs depend on them.
const OWN_FIELDS: [&str; 9] = [
    "schema",
    "slo",
    "status",
    "outcome",
    "kind",
    "conduct",
    "track_mode",
    "stream_mapping",
    "acknowledgements",
];

/// Fields of searches and comparisons whose words are weir's own.
const OWN_FIELDS_OF_RECORDS: [&str; 6] = ["dimension", "flow", "wire", "draft", "metric", "unit"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{
        Conduct, MetricSecond, Outcome, Relay, RelayMetric, RelaySource, Status, csv,
        example_report, html, json, prometheus, terminal,
    };

    /// Secrets of [`report_with_secrets`], which no sanitized form may contain.
    const SECRETS: [&str; 9] = [
        "relay-7.internal.example",
        "198.51.100.23",
        "2001:db8::77",
        "customer-acme",
        "s3cr3t-t0ken",
        "boardroom",
        // Only in labels of the relay's metrics.
        "acme-eu-west",
        "10.1.2.3",
        "edge-9.acme.example",
    ];

    /// Returns a report with secrets in every field that may hold one.
    fn report_with_secrets() -> Report {
        let [host, ipv4, ipv6, customer, token, room, ..] = SECRETS;
        let mut report = example_report(5);
        report.run.relay_url = format!("moqt://{host}:4443/live?token={token}");
        report.run.command_line = format!(
            "weir bench profiles/{customer}.ini --relay {} --token {token}=",
            report.run.relay_url
        );
        report.run.interrupted = Some(format!("{ipv4}: refused by [{ipv6}]:4443"));
        report.run.profile.name = format!("profiles/{customer}.ini");
        report.run.profile.text =
            format!("[Audio]\nnamespace = {customer}/{{}}\nname = {room}\nttl = 5000\n");
        report.tracks[0].definition.namespace = format!("{customer}/{{}}");
        report.tracks[0].definition.name = room.to_owned();
        for one in &mut report.tracks[0].subscribers {
            one.track_name = format!("{customer}-1--{room}");
            one.reason = Some(format!("{ipv4}:4443 refused {}", one.track_name));
        }
        report.relay.implementation = Some(format!("relay/1.0 on {host}"));
        label_metrics(&mut report.relay);
        report
    }

    /// Gives a relay metrics with secrets in their labels.
    fn label_metrics(relay: &mut Relay) {
        let [.., customer, _, _, region, peer, edge] = SECRETS;
        let labelled = format!("x_total{{namespace=\"{region}\",peer=\"{peer}:4443\"}}");
        let other = format!("x_total{{namespace=\"{customer}\",peer=\"{edge}\"}}");
        relay.counters = [(labelled.clone(), 7), (other, 8), ("y_total".to_owned(), 9)].into();
        let second = |at_ms, value| MetricSecond { at_ms, value };
        relay.metrics = vec![RelayMetric {
            metric: labelled,
            is_counter: true,
            per_second: vec![second(1.0, 1.0), second(2.0, 8.0)],
        }];
    }

    #[test]
    fn json_of_every_command_can_be_published() {
        let http3 = r#"{"schema": 3, "command_line": "weir h3 bench https://edge-9.acme.example:4433/15k",
            "url": "https://edge-9.acme.example:4433/15k?token=s3cr3t-t0ken",
            "urls": [{"url": "https://edge-9.acme.example:4433/15k", "requests": 7}],
            "failures": ["edge-9.acme.example refused it", "198.51.100.23:4433: lost"]}"#;
        let lab = r#"[{"link": "500k", "controller": "of https://edge-9.acme.example:4443/", "strategy": "weir", "seed": 1,
            "figures": {"frames": 7}}]"#;
        let report = json::render(&report_with_secrets());
        for text in [http3, lab, &report] {
            let clean = sanitize_record(text).unwrap();
            for secret in SECRETS {
                assert!(!clean.contains(secret), "{secret}: {clean}");
            }
        }
        let clean: Value = serde_json::from_str(&sanitize_record(http3).unwrap()).unwrap();
        assert_eq!(clean["urls"][0]["url"], "…/15k");
        assert_eq!(clean["urls"][0]["requests"], 7);
        let clean: Value = serde_json::from_str(&sanitize_record(lab).unwrap()).unwrap();
        assert_eq!(clean[0]["link"], "500k");
        let clean: Report = serde_json::from_str(&sanitize_record(&report).unwrap()).unwrap();
        assert_eq!(clean.run, sanitize(&report_with_secrets()).unwrap().run);
    }

    #[test]
    fn no_record_of_a_search_names_anybody() {
        let [host, ipv4, _, customer, token, room, ..] = SECRETS;
        let record = serde_json::json!({
            "find_max": 6,
            "search": {
                "dimension": "subscribers",
                "profile": format!("[Audio]\nnamespace = {customer}/{{}}\nname = {room}\nttl = 5000\n"),
                "relay": format!("moqt://{host}:4443/live?token={token}"),
                "slo": "loss=0,p99<100ms",
            },
            "probes": [
                { "load": 100, "reason": format!("{host}: {ipv4}:4443 refused {customer}-1--{room}") },
            ],
            "sentence": format!("held 90 subscribers; {host} broke at 100: p99<100ms"),
        });
        let clean = sanitize_record(&record.to_string()).unwrap();
        for secret in SECRETS {
            assert!(!clean.contains(secret), "{secret}: {clean}");
        }
        for kept in [
            "subscribers",
            "loss=0,p99<100ms",
            "ttl = 5000",
            "broke at 100: p99<100ms",
        ] {
            assert!(clean.contains(kept), "{kept}: {clean}");
        }
        assert!(sanitize_record("no JSON").is_err());
    }

    #[test]
    fn the_names_of_metrics_stay() {
        let mut report = example_report(5);
        for slo in ["--slo 'loss=0,failed=0,p99<50ms'", "--slo=loss=0, p99<50ms"] {
            report.run.command_line = format!("weir bench profiles/acme.ini {slo}");
            let clean = sanitize(&report.clone().judged_again()).unwrap();
            assert_eq!(clean.verdict.sentence, report.verdict.sentence);
            assert!(
                clean.verdict.sentence.contains("lost"),
                "{:?}",
                clean.verdict
            );
            assert!(
                clean.verdict.sentence.contains("p99 "),
                "{:?}",
                clean.verdict
            );
        }
    }

    #[test]
    fn no_form_names_a_host_an_address_a_namespace_or_a_token() {
        let report = report_with_secrets();
        let clean = sanitize(&report.clone().judged_again()).unwrap();
        for text in [
            json::render(&clean),
            html::render(&clean),
            terminal::render(&clean, 200, false),
            csv::subscriptions(&clean),
            csv::seconds(&clean),
            prometheus::render(&clean),
        ] {
            for secret in SECRETS {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
        let counters: Vec<(&str, u64)> = clean
            .relay
            .counters
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        assert_eq!(
            counters,
            [("x_total{1}", 7), ("x_total{2}", 8), ("y_total", 9)]
        );
        assert_eq!(clean.relay.metrics[0].metric, "x_total{1}");
        assert_eq!(clean.objects_delivered(), report.objects_delivered());
        assert_eq!(clean.slo, report.slo);
        assert!(clean.run.profile.text.contains("ttl = 5000"));
        assert_eq!(
            clean.relay.implementation.as_deref(),
            Some("relay/1.0 on …")
        );
    }

    #[test]
    fn names_of_metrics_stay() {
        let plain = example_report(5).judged_again();
        let told = terminal::render(&sanitize(&plain).unwrap(), 200, false);
        assert!(told.contains("p99") && told.contains(" lost"), "{told}");
        for level in [
            "--slo loss=0,failed=0,p99<50ms",
            "--slo=loss=0,p99.9<50.5ms",
            "--slo loss=0, p99.9<50ms",
        ] {
            let mut report = plain.clone();
            report.run.command_line = format!("weir bench {level}");
            let clean = sanitize(&report).unwrap();
            assert_eq!(terminal::render(&clean, 200, false), told, "{level}");
        }
    }

    /// Returns all texts in a value.
    fn texts(value: &Value) -> Vec<&str> {
        match value {
            Value::String(text) => vec![text],
            Value::Array(items) => items.iter().flat_map(texts).collect(),
            Value::Object(fields) => fields.values().flat_map(texts).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
        }
    }

    #[test]
    fn values_that_weir_defines_are_kept() {
        let pid = 4711;
        let sources = [
            RelaySource::ChildProcess { pid },
            RelaySource::PidGiven { pid },
            RelaySource::ProcessNamed { pid },
            RelaySource::Simulated,
            RelaySource::NotObserved,
        ];
        let outcomes = [
            Outcome::Held,
            Outcome::Broken,
            Outcome::GeneratorLimit,
            Outcome::Partial,
            Outcome::Empty,
        ];
        let conducts = [Conduct::Steady, Conduct::SlowReader, Conduct::Churning];
        let statuses = [Status::Good, Status::Incomplete, Status::Failed];
        for (source, outcome) in sources.into_iter().zip(outcomes) {
            let mut report = example_report(3);
            report.relay.source = source;
            report.verdict.outcome = outcome;
            let subscribers = report.tracks[0].subscribers.iter_mut();
            for (one, (conduct, status)) in subscribers.zip(conducts.into_iter().zip(statuses)) {
                one.conduct = conduct;
                one.status = status;
            }
            // Every text of the report is also the name of a track, as a whole and in parts.
            let value = serde_json::to_value(&report).unwrap();
            let names = texts(&value).into_iter().flat_map(str::lines);
            let names = names.flat_map(|text| [text.to_owned(), text.replace('_', "/")]);
            let names: Vec<String> = names.map(|name| format!("name = {name}")).collect();
            report.run.profile.text = names.join("\n");
            let clean = sanitize(&report).unwrap();
            assert_eq!(
                (clean.relay.source, clean.verdict.outcome),
                (source, outcome)
            );
            let shown = clean.tracks[0].subscribers.iter();
            let shown: Vec<_> = shown.map(|one| (one.conduct, one.status)).collect();
            let expected: Vec<_> = conducts.into_iter().zip(statuses).collect();
            assert_eq!(shown, expected);
            assert_ne!(clean.verdict.sentence, report.verdict.sentence);
        }
    }

    #[test]
    fn a_report_with_an_invalid_number_is_refused() {
        let mut report = example_report(1);
        report.run.duration_ms = f64::NAN;
        let error = sanitize(&report).unwrap_err().to_string();
        assert!(
            error.starts_with("the report cannot be sanitized: "),
            "{error}"
        );
    }

    #[test]
    fn addresses_are_recognised() {
        for address in [
            "10.1.2.3",
            "10.1.2.3:443",
            "[::1]:99",
            "::1",
            "moqt://a",
            "10.0.0.0/8",
        ] {
            assert!(is_address(address), "{address}");
        }
        for word in ["1.25", "12:30", "a/b", "…", "p99<100ms", "0.5.1", ""] {
            assert!(!is_address(word), "{word}");
        }
    }
}
