//! A report with hostile text in every field.

use super::{Shape, Story};
use crate::relay::{Agent, AgentSecond, Report};

/// Text that tries to break out of HTML, JSON and the terminal.
pub(in crate::relay) const HOSTILE: &str = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;\u{1b}[31m\u{0}\u{202e}";

/// Returns a report with [`HOSTILE`] in every text field.
pub(in crate::relay) fn report() -> Report {
    let mut report = super::report(Shape::audio(3).story(Story::Overloaded));
    let text = || HOSTILE.to_owned();
    let run = &mut report.run;
    for field in [
        &mut run.weir_version,
        &mut run.command_line,
        &mut run.profile.name,
        &mut run.profile.text,
        &mut run.run_id,
        &mut run.start_time,
        &mut run.relay_url,
        &mut run.transport,
        &mut run.publish_flow,
        &mut run.latency_clock,
        &mut run.audience.acknowledgements,
        &mut run.kernel,
        &mut run.cpu_model,
        &mut report.slo.text,
        &mut report.verdict.sentence,
    ] {
        *field = text();
    }
    run.draft = Some(text());
    run.interrupted = Some(text());
    for clause in &mut report.slo.clauses {
        (clause.text, clause.unit, clause.metric) = (text(), text(), text());
    }
    for track in &mut report.tracks {
        let definition = &mut track.definition;
        (definition.section, definition.namespace, definition.name) = (text(), text(), text());
        (definition.track_mode, definition.stream_mapping) = (text(), Some(text()));
        for subscriber in &mut track.subscribers {
            (subscriber.track_name, subscriber.reason) = (text(), Some(text()));
        }
    }
    report.relay.implementation = Some(text());
    report.relay.counters.insert(text(), 7);
    report.generator.reasons.push(text());
    for thread in &mut report.generator.threads {
        thread.name = text();
    }
    report.generator.agents.push(Agent {
        name: text(),
        kernel: text(),
        cpu_model: text(),
        per_second: vec![AgentSecond::default(); 2],
        ..Agent::default()
    });
    report
}
