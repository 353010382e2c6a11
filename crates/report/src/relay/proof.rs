//! Figures that show whether the others can be trusted: headroom of the load generator, its calibration against a null
//! relay, and fairness among subscribers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Generator, Report, SubscriberReport, TrackReport};
use crate::statistics::float;

/// Headroom of the load generator: how much more load it could have made, extrapolated from this run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Headroom {
    /// Objects received per second, summed over all tracks. Mean of each track without its first and last second.
    pub objects_per_second: f64,
    /// Name of the generator's busiest thread.
    pub busiest_thread: String,
    /// Mean CPU load of that thread; 100 is one core.
    pub busiest_cpu_percent: f64,
    /// Objects per second at which that thread, with the threads on the same core, would use up the core, at this run's
    /// CPU time per object. A low estimate: batches grow with the load, so the cost per object falls.
    pub objects_per_second_max: f64,
}

impl Headroom {
    /// Computes the headroom of a run; none if the run was too short, or CPU times of threads are missing.
    pub fn of(tracks: &[TrackReport], generator: &Generator) -> Option<Self> {
        let busiest = generator
            .threads
            .iter()
            .max_by(|a, b| a.cpu_percent.total_cmp(&b.cpu_percent))?;
        // The first and the last second of a track are rarely complete.
        let rate = |track: &TrackReport| {
            let seconds = &track.latency.per_second;
            let whole = seconds.get(1..seconds.len().checked_sub(1)?)?;
            let span = whole.last()?.second + 1 - whole.first()?.second;
            let objects: u64 = whole.iter().map(|second| second.objects).sum();
            Some(float(objects) / float(span))
        };
        let objects_per_second: f64 = tracks.iter().filter_map(rate).sum();
        // If the generator runs on one core, all threads share it.
        let of_core = match generator.cores[..] {
            [_] => generator.threads.iter().map(|one| one.cpu_percent).sum(),
            _ => busiest.cpu_percent,
        };
        let is_known = objects_per_second > 0.0 && busiest.cpu_percent > 0.0;
        is_known.then(|| Self {
            objects_per_second,
            busiest_thread: busiest.name.clone(),
            busiest_cpu_percent: busiest.cpu_percent,
            objects_per_second_max: objects_per_second * 100.0 / of_core,
        })
    }

    /// Returns the multiple of this run's load that the generator could have made.
    pub fn times(&self) -> f64 {
        self.objects_per_second_max / self.objects_per_second
    }
}

/// Calibration: the same load against a null relay, which only forwards objects and keeps none. A load that the
/// generator cannot make against it, it cannot make against any relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// True if the generator kept up, and every clause of the service level held except those about the relay's CPU.
    pub held: bool,
    /// Why the calibration did not hold; empty if it held.
    pub reasons: Vec<String>,
    /// Objects received per second, summed over all tracks. Mean of each track without its first and last second; 0 if
    /// the run was too short.
    pub objects_per_second: f64,
    /// 99th percentile of latency of the slowest track; null if no latency was measured.
    pub latency_p99_ms: Option<f64>,
    /// Mean CPU load of the generator's busiest thread; 100 is one core. Null if it was not measured.
    pub generator_cpu_percent: Option<f64>,
    /// CPU time of the null relay per delivered object: the cost of the transport alone. Null if it was not measured.
    pub null_relay_cpu_us_per_object: Option<f64>,
}

/// The note of a report without a calibration.
pub(super) const NOT_CALIBRATED: &str = "not calibrated against a null relay (--calibrate)";

impl Calibration {
    /// Returns the result in one sentence.
    pub(crate) fn sentence(&self) -> String {
        if !self.held {
            return format!(
                "Against a null relay, the same load did not hold, so this machine may be the limit: {}.",
                self.reasons.join("; ")
            );
        }
        // A search calibrates the load that broke, but its page shows the load that held. So the sentence names the load.
        let load = if self.objects_per_second > 0.0 {
            format!(
                "{} objects per second",
                crate::form::number::decimal(self.objects_per_second)
            )
        } else {
            "the same load".to_owned()
        };
        let mut parts = vec![format!("Against a null relay, {load} held")];
        parts.extend(
            self.latency_p99_ms
                .map(|p99| format!("p99 {}", crate::form::number::milliseconds(p99))),
        );
        let cpu = self.generator_cpu_percent;
        parts.extend(cpu.map(|cpu| {
            let cpu = crate::form::number::decimal(cpu);
            format!("busiest generator thread {cpu} % of a core")
        }));
        let null = self.null_relay_cpu_us_per_object;
        parts.extend(null.map(|us| {
            format!(
                "null relay {} µs of CPU per object",
                crate::form::number::decimal(us)
            )
        }));
        parts.join(", ") + "."
    }

    /// Makes a calibration from the report of a run against the null relay.
    pub fn of(report: &Report) -> Self {
        let broken = report
            .slo
            .clauses
            .iter()
            .filter(|clause| clause.is_broken() && clause.metric != "cpu")
            .map(|clause| {
                let measured = clause.measured_in_words();
                format!("against a null relay, {} broke ({measured})", clause.text)
            });
        let mut reasons = report.generator.reasons.clone();
        reasons.extend(broken);
        if reasons.is_empty() && report.objects_delivered() == 0 {
            reasons.push("no object arrived from the null relay".to_owned());
        }
        let busiest = report
            .generator
            .threads
            .iter()
            .map(|thread| thread.cpu_percent);
        let p99 = |track: &TrackReport| Some(track.latency.overall?.p99_ms);
        let cost = report.relay.cost.as_ref();
        Self {
            held: reasons.is_empty(),
            reasons,
            objects_per_second: report
                .headroom
                .as_ref()
                .map_or(0.0, |headroom| headroom.objects_per_second),
            latency_p99_ms: report.tracks.iter().filter_map(p99).reduce(f64::max),
            generator_cpu_percent: busiest.reduce(f64::max),
            null_relay_cpu_us_per_object: cost.and_then(|cost| cost.cpu_us_per_delivered_object),
        }
    }
}

/// Fairness: how evenly the relay served the subscribers of a track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fairness {
    /// Jain's index of objects received: 1 if all n subscribers received the same number, 1/n if one received all. Null
    /// if no object was received.
    pub jain_objects: Option<f64>,
    /// 99th percentile of latency of the worst subscriber, divided by that of the median subscriber; null without
    /// latency.
    pub p99_worst_over_median: Option<f64>,
}

impl Fairness {
    pub(super) fn over(subscribers: &[SubscriberReport]) -> Self {
        let received = || {
            subscribers
                .iter()
                .map(|one| float(one.completion.objects_received))
        };
        let sum: f64 = received().sum();
        let squares: f64 = received().map(|one| one * one).sum();
        let mut p99: Vec<f64> = subscribers
            .iter()
            .filter_map(|one| Some(one.latency?.p99_ms))
            .collect();
        p99.sort_by(f64::total_cmp);
        let median = p99
            .get(p99.len() / 2)
            .copied()
            .filter(|median| *median > 0.0);
        Self {
            jain_objects: (squares > 0.0)
                .then(|| sum * sum / (float(subscribers.len() as u64) * squares)),
            p99_worst_over_median: median.and_then(|median| Some(p99.last()? / median)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::example_report;

    #[test]
    fn fairness_is_one_if_all_receive_the_same_and_one_nth_if_one_receives_all() {
        let mut report = example_report(10);
        let subscribers = &mut report.tracks[0].subscribers;
        for one in subscribers.iter_mut() {
            one.completion.objects_received = 100;
        }
        let even = Fairness::over(subscribers).jain_objects.unwrap();
        assert!((even - 1.0).abs() < 1e-12, "{even}");
        for one in subscribers.iter_mut().skip(1) {
            one.completion.objects_received = 0;
        }
        let one = Fairness::over(subscribers).jain_objects.unwrap();
        assert!((one - 0.1).abs() < 1e-12, "{one}");
        assert_eq!(Fairness::over(&[]), Fairness::default());
    }

    #[test]
    fn a_calibration_names_its_load() {
        let of = |objects_per_second| Calibration {
            held: true,
            reasons: Vec::new(),
            objects_per_second,
            latency_p99_ms: Some(1.5),
            generator_cpu_percent: None,
            null_relay_cpu_us_per_object: None,
        };
        let sentence = of(10_000.0).sentence();
        assert!(
            sentence.starts_with("Against a null relay, 10,000 objects per second held, p99 "),
            "{sentence}"
        );
        let sentence = of(0.0).sentence();
        assert!(
            sentence.starts_with("Against a null relay, the same load held, p99 "),
            "{sentence}"
        );
    }

    #[test]
    fn a_thread_at_half_its_core_has_room_for_twice_the_load() {
        let mut report = example_report(20);
        for thread in &mut report.generator.threads {
            thread.cpu_percent = 50.0;
        }
        report.generator.cores = vec![1, 2];
        let headroom = Headroom::of(&report.tracks, &report.generator).unwrap();
        // 50 objects a second to each of 20 subscribers.
        assert!(
            (headroom.objects_per_second - 1000.0).abs() < 1.0,
            "{headroom:?}"
        );
        assert!((headroom.times() - 2.0).abs() < 1e-9, "{headroom:?}");
        // Two threads at half of the same core have no headroom.
        report.generator.cores = vec![1];
        let headroom = Headroom::of(&report.tracks, &report.generator).unwrap();
        assert!((headroom.times() - 1.0).abs() < 1e-9, "{headroom:?}");
        report.generator.threads.clear();
        assert_eq!(Headroom::of(&report.tracks, &report.generator), None);
    }
}
