//! A report as one HTML file that needs no network: to be sent to a colleague, or printed.
//!
//! Plots are SVG drawn here, visible without a script; a little script shows figures under the pointer.
//! The file's size is bounded: curves are thinned, and tables of subscribers and tracks are cut with a note.

pub(crate) mod charts;
pub(crate) mod tables;

use self::charts::{heat, latency, relay as relay_charts, subscribers};
use super::proof::NOT_CALIBRATED;
use super::verdict::{GENERATOR_LIMIT, Judgement, judged};
use super::{Calibration, Clause, Outcome, Relay, RelaySource, Report, TrackReport};
use crate::form::markup::Markup;
use crate::form::number;
use crate::statistics::float;

/// Tracks shown at most; the JSON has them all.
const TRACKS_MAX: usize = 32;
/// Bytes of the profile's text, the command line, or a reason shown at most.
const TEXT_MAX: usize = 20_000;
/// Entries of a list of reasons, clauses, counters or threads shown at most.
const ENTRIES_MAX: usize = 200;

/// Renders `report` as a complete document.
pub fn render(report: &Report) -> String {
    let word = report.verdict.outcome.word();
    let title = format!("{word}: {} – weir bench", cut(&report.run.profile.name));
    document(&title, |markup| {
        header(markup, report);
        markup.element("main", &[], |markup| body(markup, report));
        footer(markup, report);
    })
}

/// A complete document in the looks of a report.
pub(crate) fn document(title: &str, body: impl FnOnce(&mut Markup)) -> String {
    let mut markup = Markup::default();
    markup.verbatim("<!DOCTYPE html>\n");
    markup.element("html", &[("lang", &"en")], |markup| {
        markup.element("head", &[], |markup| head(markup, title));
        markup.element("body", &[], |markup| {
            body(markup);
            markup.leaf("div", &[("id", &"tip"), ("hidden", &"")], &"");
            markup.element("script", &[], |markup| {
                markup.verbatim(include_str!("../form/page.js"));
            });
        });
    });
    markup.verbatim("\n");
    markup.finish()
}

/// Nothing may be fetched and nothing may be sent, whatever stands in the report.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

fn head(markup: &mut Markup, title: &str) {
    markup.empty("meta", &[("charset", &"utf-8")]);
    markup.empty(
        "meta",
        &[
            ("http-equiv", &"Content-Security-Policy"),
            ("content", &POLICY),
        ],
    );
    let viewport = "width=device-width, initial-scale=1";
    markup.empty("meta", &[("name", &"viewport"), ("content", &viewport)]);
    markup.empty(
        "meta",
        &[("name", &"color-scheme"), ("content", &"light dark")],
    );
    markup.leaf("title", &[], &title);
    markup.element("style", &[], |markup| {
        markup.verbatim(include_str!("../form/page.css"));
    });
}

/// The name of the program with its sign.
pub(crate) fn brand(markup: &mut Markup, name: &str) {
    markup.element("p", &[("class", &"brand")], |markup| {
        markup.element(
            "svg",
            &[
                ("viewBox", &"0 0 24 24"),
                ("class", &"glyph"),
                ("aria-hidden", &"true"),
            ],
            |markup| {
                markup.empty("path", &[("d", &"M2 8h9c4 0 3.5 9 7 9h4")]);
                markup.empty("path", &[("d", &"M2 13h5M2 18h9"), ("class", &"still")]);
            },
        );
        markup.text(&name);
    });
}

fn header(markup: &mut Markup, report: &Report) {
    let run = &report.run;
    markup.element("header", &[], |markup| {
        brand(markup, "weir bench");
        markup.leaf("h1", &[], &cut(&run.profile.name));
        let facts = [
            cut(&run.start_time),
            run.draft
                .as_deref()
                .map_or_else(|| "no session".to_owned(), cut),
            cut(&run.transport),
            cut(&run.relay_url),
        ];
        markup.leaf("p", &[("class", &"facts")], &facts.join(" · "));
    });
}

fn body(markup: &mut Markup, report: &Report) {
    verdict_panel(markup, report);
    cards(markup, report);
    service_level(markup, report);
    for (number, track) in report.tracks.iter().take(TRACKS_MAX).enumerate() {
        track_section(markup, track, number);
    }
    if report.tracks.len() > TRACKS_MAX {
        let hidden = report.tracks.len() - TRACKS_MAX;
        let note =
            format!("{hidden} more track definitions are left out here; the JSON has them all.");
        markup.leaf("p", &[("class", &"reading")], &note);
    }
    relay_section(markup, report);
    generator_section(markup, report);
    set_up_section(markup, report);
    run_section(markup, report);
}

fn verdict_panel(markup: &mut Markup, report: &Report) {
    let (class, sign, title) = match report.verdict.outcome {
        Outcome::Held => ("good", "✓", "The service level held"),
        Outcome::Broken => ("bad", "✕", "The service level broke"),
        Outcome::GeneratorLimit => ("warn", "!", "No statement about the relay"),
        Outcome::Partial => ("warn", "!", "A partial run"),
        Outcome::Empty => ("warn", "!", "Nothing was measured"),
    };
    panel(markup, (class, sign), title, |markup| {
        markup.leaf("p", &[], &cut(&report.verdict.sentence));
        if !report.slo.text.is_empty() {
            markup.element("p", &[("class", &"level-text")], |markup| {
                markup.text(&"Service level ");
                markup.leaf("code", &[], &cut(&report.slo.text));
            });
        }
    });
}

/// The conclusion in a box: its class with a sign, its title, and what is below that.
pub(crate) fn panel(
    markup: &mut Markup,
    (class, sign): (&str, &str),
    title: &str,
    body: impl FnOnce(&mut Markup),
) {
    let class = format!("verdict {class}");
    markup.element("section", &[("class", &class)], |markup| {
        let attributes = &[
            ("class", &"sign" as &dyn std::fmt::Display),
            ("aria-hidden", &"true"),
        ];
        markup.leaf("span", attributes, &sign);
        markup.element("div", &[], |markup| {
            markup.leaf("h2", &[], &title);
            body(markup);
        });
    });
}

fn cards(markup: &mut Markup, report: &Report) {
    let (delivered, lost) = (report.objects_delivered(), report.objects_lost());
    let due = delivered.saturating_add(lost);
    let status = report.tracks.iter().fold((0, 0), |(good, all), track| {
        let status = track.status;
        (
            good + status.good,
            all + status.good + status.incomplete + status.failed,
        )
    });
    markup.element(
        "section",
        &[("class", &"cards"), ("aria-label", &"Key figures")],
        |markup| {
            let subscriptions = format!(
                "{} of {} good",
                number::count(status.0),
                number::count(status.1)
            );
            let requested = number::count(report.run.subscribers_requested);
            card(
                markup,
                "Subscribers",
                &requested,
                "",
                &subscriptions,
                status.0 < status.1,
            );
            let planned = format!("of {} due", number::count(due));
            card(
                markup,
                "Delivered",
                &number::count(delivered),
                "",
                &planned,
                false,
            );
            let share = format!("{} of all due", number::share(lost, due));
            card(markup, "Lost", &number::count(lost), "", &share, lost > 0);
            let worst = report
                .tracks
                .iter()
                .filter_map(|track| track.latency.overall)
                .reduce(|a, b| if b.p99_ms > a.p99_ms { b } else { a });
            if let Some(worst) = worst {
                let beside = format!(
                    "p50 {}, slowest {}",
                    number::milliseconds(worst.p50_ms),
                    number::milliseconds(worst.max_ms)
                );
                card(
                    markup,
                    "Latency p99",
                    &number::decimal(worst.p99_ms),
                    "ms",
                    &beside,
                    false,
                );
            }
            if report.verdict.outcome != Outcome::GeneratorLimit {
                relay_cards(markup, &report.relay);
            }
        },
    );
}

fn relay_cards(markup: &mut Markup, relay: &Relay) {
    let Some(cost) = &relay.cost else { return };
    let seconds = (cost.window.to_ms - cost.window.from_ms) / 1e3;
    if let Some(cpu) = cost.cpu_us_per_delivered_object {
        let beside = format!(
            "{} s of CPU in {} s",
            number::decimal(cost.cpu_seconds),
            number::decimal(seconds)
        );
        card(
            markup,
            "CPU per object",
            &number::decimal(cpu),
            "µs",
            &beside,
            false,
        );
    }
    let beside = "of a core, steady window";
    card(
        markup,
        "Relay CPU",
        &number::decimal(cost.cpu_percent),
        "%",
        beside,
        false,
    );
    if let Some(each) = cost.bytes_per_session {
        let text = number::bytes(each);
        let (value, unit) = text.split_once(' ').unwrap_or((&text, ""));
        let beside = format!("peak {}", number::bytes(float(cost.rss_peak_bytes)));
        card(markup, "Session memory", value, unit, &beside, false);
    }
}

/// A key figure: `alarm` if it is a bad one.
pub(crate) fn card(
    markup: &mut Markup,
    name: &str,
    value: &str,
    unit: &str,
    beside: &str,
    alarm: bool,
) {
    let class = if alarm { "card alarm" } else { "card" };
    markup.element("div", &[("class", &class)], |markup| {
        markup.leaf("h3", &[], &name);
        let size = match value.len() {
            0..=8 => "figure",
            9..=10 => "figure long",
            _ => "figure longer",
        };
        markup.element("p", &[("class", &size)], |markup| {
            markup.text(&value);
            if !unit.is_empty() {
                markup.leaf("span", &[("class", &"unit")], &format!(" {unit}"));
            }
        });
        markup.leaf("p", &[("class", &"beside")], &beside);
    });
}

fn service_level(markup: &mut Markup, report: &Report) {
    let slo = &report.slo;
    if slo.clauses.is_empty() {
        return;
    }
    section(markup, "Service level", "", |markup| {
        let head = ["Clause", "Limit", "Measured", "Verdict"];
        markup.element("div", &[("class", &"scroll narrow")], |markup| {
            markup.element("table", &[], |markup| {
                tables::head(markup, &head);
                markup.element("tbody", &[], |markup| {
                    for clause in slo.clauses.iter().take(ENTRIES_MAX) {
                        clause_row(markup, clause, report);
                    }
                });
            });
        });
        if let Some(sentence) = judged(report) {
            markup.leaf(
                "p",
                &[("class", &"reading")],
                &format!("Judged: {sentence}."),
            );
        }
    });
}

fn clause_row(markup: &mut Markup, clause: &Clause, report: &Report) {
    let measured = clause
        .measured
        .map(|value| number::quantity(value, &clause.unit));
    let judgement = Judgement::of(clause, report.verdict.outcome);
    let class = match judgement {
        Judgement::Held => "good",
        Judgement::Broke => "bad",
        Judgement::HeldSoFar | Judgement::None => "",
    };
    markup.element("tr", &[], |markup| {
        markup.element("th", &[("scope", &"row")], |markup| {
            markup.leaf("code", &[], &cut(&clause.text));
        });
        markup.leaf("td", &[], &number::quantity(clause.limit, &clause.unit));
        markup.leaf(
            "td",
            &[],
            &measured.unwrap_or_else(|| "not measured".to_owned()),
        );
        let words = format!("{} {}", judgement.sign(), judgement.words());
        markup.leaf("td", &[("class", &class)], &words);
    });
}

fn track_section(markup: &mut Markup, track: &TrackReport, number: usize) {
    let definition = &track.definition;
    let title = format!("Track: {}", cut(&definition.section));
    section(
        markup,
        &title,
        &cut(&number::track_facts(definition)),
        |markup| {
            markup.element("div", &[("class", &"plots")], |markup| {
                latency::over_time(markup, &track.latency, "object");
                heat::latency(markup, track);
                heat::loss(markup, track);
                latency::histogram(markup, &track.latency, "object");
                subscribers::spread(markup, track);
                latency::objects_over_time(markup, track);
                subscribers::loss_by_place(markup, track);
                subscribers::loss(markup, track);
            });
            tables::completion(markup, track);
            tables::distributions(markup, track);
            tables::delivery(markup, track);
            tables::set_apart(markup, track);
            tables::progress(markup, track);
            tables::subscribers(markup, track, number);
        },
    );
}

fn relay_section(markup: &mut Markup, report: &Report) {
    let relay = &report.relay;
    let name = relay
        .implementation
        .as_deref()
        .map_or_else(String::new, |name| format!(" · {}", cut(name)));
    let source = match relay.source {
        RelaySource::ChildProcess { pid } => format!("Child process {pid}, sampled from outside"),
        RelaySource::PidGiven { pid } | RelaySource::ProcessNamed { pid } => {
            format!("Process {pid}, sampled from outside")
        }
        RelaySource::Simulated => "Simulated under virtual time: cost is not stated".to_owned(),
        RelaySource::NotObserved => "Not observed: cost is not stated".to_owned(),
    };
    section(markup, "Relay", &format!("{source}{name}"), |markup| {
        if report.verdict.outcome == Outcome::GeneratorLimit && relay.cost.is_some() {
            let note = "What follows was sampled, but the generator was the limit: it says nothing about the relay.";
            markup.leaf("p", &[("class", &"lead")], &note);
        }
        if let Some(cost) = &relay.cost {
            if !relay.per_second.is_empty() {
                markup.element("div", &[("class", &"plots")], |markup| {
                    relay_charts::cpu(markup, relay);
                    relay_charts::memory(markup, relay);
                    relay_charts::context_switches(markup, relay);
                });
            }
            tables::facts(markup, &tables::relay_cost(cost));
        }
        if !relay.metrics.is_empty() {
            markup.leaf(
                "h4",
                &[("class", &"table-title")],
                &"The relay’s own metrics, on the same clock",
            );
            markup.element("div", &[("class", &"plots")], |markup| {
                relay_charts::metrics(markup, relay);
            });
        }
        let counters: Vec<(&str, String)> = relay
            .counters
            .iter()
            .take(ENTRIES_MAX)
            .map(|(name, value)| (name.as_str(), number::count(*value)))
            .collect();
        if !counters.is_empty() {
            markup.leaf(
                "h4",
                &[("class", &"table-title")],
                &"The relay’s own counters",
            );
            tables::facts(markup, &counters);
        }
    });
}

fn generator_section(markup: &mut Markup, report: &Report) {
    let generator = &report.generator;
    let lead = if generator.healthy {
        "It kept up with its own schedule."
    } else {
        GENERATOR_LIMIT
    };
    section(markup, "Load generator", lead, |markup| {
        if !generator.reasons.is_empty() {
            markup.element("ul", &[("class", &"reasons")], |markup| {
                for reason in generator.reasons.iter().take(ENTRIES_MAX) {
                    markup.leaf("li", &[], &cut(reason));
                }
            });
        }
        if let Some(problem) = report.run.cores.problem() {
            markup.leaf("p", &[("class", &"lead")], &format!("Mind: {problem}."));
        }
        let proof = generator.calibration.as_ref();
        let proof = proof.map_or_else(
            || format!("This run was {NOT_CALIBRATED}."),
            Calibration::sentence,
        );
        markup.leaf("p", &[("class", &"lead")], &cut(&proof));
        if generator.per_second.len() > 1 {
            markup.element("div", &[("class", &"plots")], |markup| {
                relay_charts::generator(markup, generator);
            });
        }
        tables::threads(markup, generator);
        tables::facts(markup, &tables::generator_facts(report));
    });
}

fn set_up_section(markup: &mut Markup, report: &Report) {
    let set_up = &report.set_up;
    let rows = [
        ("Handshake", set_up.handshake),
        ("SETUP", set_up.setup),
        ("First object", set_up.first_object),
    ];
    if rows.iter().any(|(_, distribution)| distribution.is_some()) {
        let lead = "Transport handshake and SETUP per connection; first object per subscription.";
        section(markup, "Set-up", lead, |markup| {
            tables::quantiles(markup, &rows);
        });
    }
}

fn run_section(markup: &mut Markup, report: &Report) {
    let run = &report.run;
    section(markup, "Run", "", |markup| {
        let facts = tables::run_facts(run);
        let facts: Vec<(&str, String)> = facts
            .iter()
            .map(|(name, text)| (*name, cut(text)))
            .collect();
        tables::facts(markup, &facts);
        if !run.command_line.is_empty() {
            markup.leaf("h4", &[("class", &"table-title")], &"To repeat it");
            markup.leaf("pre", &[], &cut(&run.command_line));
        }
        if !run.profile.text.is_empty() {
            markup.element("details", &[], |markup| {
                markup.leaf("summary", &[], &"The profile");
                markup.leaf("pre", &[], &cut(&run.profile.text));
            });
        }
    });
}

fn footer(markup: &mut Markup, report: &Report) {
    markup.element("footer", &[], |markup| {
        markup.leaf(
            "p",
            &[],
            &"Latency counts from the planned send time, so a late publisher cannot hide its own lateness. \
              Metrics bear the names of draft-evens-moq-bench-00, section 5.5.",
        );
        markup.leaf("p", &[], &format!("weir {} · report schema {}", cut(&report.run.weir_version), report.schema));
    });
}

/// A part of the page under a title.
pub(crate) fn section(
    markup: &mut Markup,
    title: &str,
    lead: &str,
    body: impl FnOnce(&mut Markup),
) {
    markup.element("section", &[], |markup| {
        markup.leaf("h2", &[], &title);
        if !lead.is_empty() {
            markup.leaf("p", &[("class", &"lead")], &lead);
        }
        body(markup);
    });
}

/// `text`, or as much of it as fits, with a mark where it was cut.
pub(crate) fn cut(text: &str) -> String {
    if text.len() <= TEXT_MAX {
        return text.to_owned();
    }
    format!("{} […]", &text[..text.floor_char_boundary(TEXT_MAX)])
}
