//! The live view of a run: a plain line each second, or a few lines that are redrawn.

use crate::form::number;
use crate::statistics::ratio;

/// The state of a run at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// Name of the run among several, such as `800 subscribers`; empty for a single run.
    pub label: String,
    /// Stage of the run.
    pub stage: Stage,
    /// Seconds since the run began.
    pub second: u64,
    /// Seconds since the schedules began, and their total number, drain included; none before the schedules begin.
    pub progress: Option<(u64, u64)>,
    /// Subscribers of other processes that are there, and that are awaited; none if the run waits for none.
    pub awaited: Option<(u64, u64)>,
    /// Subscriptions that the relay has accepted.
    pub accepted: u64,
    /// All subscriptions.
    pub subscriptions: u64,
    /// Connections that failed.
    pub failed: u64,
    /// Objects that publishers have sent.
    pub sent: u64,
    /// Objects that subscribers have received.
    pub delivered: u64,
    /// Objects that subscribers received in the last second.
    pub delivered_per_second: u64,
    /// Objects that are due to subscribers and have not arrived: lost, or on their way.
    pub outstanding: u64,
    /// Median and 99th percentile of latency of objects that arrived in the last whole second, in milliseconds.
    pub latency_ms: Option<(f64, f64)>,
    /// CPU load of the relay in the last second; 100 is one core.
    pub relay_cpu_percent: Option<f64>,
    /// CPU load of all threads of the generator in the last second; 100 is one core.
    pub generator_cpu_percent: Option<f64>,
}

/// The stage of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Publishers offer their tracks, and subscribers join.
    #[default]
    Joining,
    /// Publishers send START, and no object yet.
    Starting,
    /// Publishers send objects.
    Sending,
    /// All objects are sent; those on their way may still arrive.
    Draining,
}

impl Stage {
    fn word(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Starting => "starting",
            Self::Sending => "sending",
            Self::Draining => "draining",
        }
    }
}

/// Returns the number of objects that are due to subscribers and have not arrived. With several tracks, each sent object
/// is due to the mean number of subscriptions of a track.
pub fn outstanding(sent: u64, accepted: u64, tracks: u64, delivered: u64) -> u64 {
    let due = sent.saturating_mul(accepted).checked_div(tracks);
    due.unwrap_or(0).saturating_sub(delivered)
}

impl Moment {
    /// Says how many of the awaited subscribers are there, until all are. Ends with a comma and a space, or is empty.
    fn awaited_words(&self) -> String {
        let awaited = self.awaited.filter(|(present, all)| present < all);
        // Afterwards they leave.
        let awaited = awaited.filter(|_| self.stage == Stage::Joining);
        awaited.map_or_else(String::new, |(present, all)| {
            format!(
                "{} of {} awaited subscribers are there, ",
                number::count(present),
                number::count(all)
            )
        })
    }

    /// Returns the state as one plain line, without a line feed.
    pub fn line(&self) -> String {
        let label = if self.label.is_empty() {
            String::new()
        } else {
            format!("{}: ", number::printable(&self.label))
        };
        let awaited = self.awaited_words();
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", {} failed", number::counted(failed, "connection")),
        };
        let p99 = self.latency_ms.map_or_else(String::new, |(_, p99)| {
            format!(", p99 {}", number::milliseconds(p99))
        });
        let cpu = self.relay_cpu_percent.map_or_else(String::new, |cpu| {
            format!(", relay CPU {cpu:.0} % of a core")
        });
        format!(
            "{label}{:>4} s  {}: {awaited}{} of {} subscriptions accepted{failed}, objects: {} sent, {} received{p99}{cpu}",
            self.second,
            self.stage.word(),
            number::count(self.accepted),
            number::count(self.subscriptions),
            number::count(self.sent),
            number::count(self.delivered),
        )
    }
}

/// The history of a run, as it is redrawn on a terminal.
#[derive(Clone, Debug, Default)]
pub struct LiveView {
    delivered: Vec<f64>,
    p99_ms: Vec<f64>,
    relay_cpu: Vec<f64>,
    generator_cpu: Vec<f64>,
}

impl LiveView {
    /// Adds the next moment.
    pub fn push(&mut self, moment: &Moment) {
        for (series, value) in [
            (
                &mut self.delivered,
                Some(count(moment.delivered_per_second)),
            ),
            (&mut self.p99_ms, moment.latency_ms.map(|(_, p99)| p99)),
            (&mut self.relay_cpu, moment.relay_cpu_percent),
            (&mut self.generator_cpu, moment.generator_cpu_percent),
        ] {
            series.extend(value);
            if series.len() > HISTORY_MAX {
                series.remove(0);
            }
        }
    }

    /// Renders the moment and its history for a terminal of `width` columns. Every line ends with a line feed and fits the
    /// width, so that the caller can overwrite the lines.
    pub fn render(&self, moment: &Moment, width: usize, colour: bool) -> String {
        let width = width.saturating_sub(1).max(1);
        let mut lines = vec![title(moment, width)];
        let failed = match moment.failed {
            0 => String::new(),
            failed => format!("   {} failed", number::counted(failed, "connection")),
        };
        lines.push(format!(
            "accepted    {} of {} subscriptions{failed}",
            number::count(moment.accepted),
            number::count(moment.subscriptions)
        ));
        let outstanding = match moment.outstanding {
            0 => "none missing".to_owned(),
            some => format!("{} lost or on their way", number::count(some)),
        };
        let delivered = format!(
            "{:>9}/s   {} objects, {outstanding}",
            number::count(moment.delivered_per_second),
            number::count(moment.delivered)
        );
        lines.push(with_history("received", &delivered, &self.delivered, width));
        let latency = moment.latency_ms.map_or_else(
            || format!("{:>11}", number::NONE),
            |(p50, p99)| {
                let (p50, p99) = (number::milliseconds(p50), number::milliseconds(p99));
                format!("{p99:>11}   p99 of the last second, p50 {p50}")
            },
        );
        lines.push(with_history("latency", &latency, &self.p99_ms, width));
        for (name, cpu, history) in [
            ("relay CPU", moment.relay_cpu_percent, &self.relay_cpu),
            (
                "load CPU",
                moment.generator_cpu_percent,
                &self.generator_cpu,
            ),
        ] {
            if let Some(cpu) = cpu {
                let text = format!("{cpu:>9.0} %   of a core");
                lines.push(with_history(name, &text, history, width));
            }
        }
        let mut text = String::new();
        for (number, line) in lines.iter().enumerate() {
            let line: String = line.chars().take(width).collect();
            let (on, off) = match (colour, number) {
                (true, 0) => ("\x1b[1m", "\x1b[0m"),
                (true | false, _) => ("", ""),
            };
            for part in [on, &line, off, "\n"] {
                text.push_str(part);
            }
        }
        text
    }
}

/// Returns the first line: stage, time and a progress bar.
fn title(moment: &Moment, width: usize) -> String {
    let label = if moment.label.is_empty() {
        String::new()
    } else {
        format!("{}   ", number::printable(&moment.label))
    };
    let Some((gone, all)) = moment.progress else {
        let awaited = moment.awaited_words();
        return format!(
            "{label}{}   {awaited}{} s",
            moment.stage.word(),
            moment.second
        );
    };
    let gone = gone.min(all);
    let head = format!("{label}{}   {gone} of {all} s   ", moment.stage.word());
    let cells = width.saturating_sub(head.chars().count()).min(BAR_CELLS);
    let filled = cells * usize::try_from(gone).unwrap_or(0)
        / usize::try_from(all.max(1)).unwrap_or(usize::MAX).max(1);
    format!("{head}{}{}", "━".repeat(filled), "─".repeat(cells - filled))
}

/// Returns a labelled text with as much of its history as fits.
fn with_history(name: &str, text: &str, history: &[f64], width: usize) -> String {
    let head = format!("{name:<11}{text:<58}");
    let room = width.saturating_sub(head.chars().count());
    let shown = &history[history.len().saturating_sub(room)..];
    format!("{head}{}", sparkline(shown)).trim_end().to_owned()
}

/// Returns a row of bars. The largest value has the tallest bar.
fn sparkline(values: &[f64]) -> String {
    let largest = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| {
        let share = if largest > 0.0 { value / largest } else { 0.0 };
        // The tallest bar whose threshold the value reaches.
        let reached = BARS.iter().skip(1).zip(1_u8..);
        let highest = reached
            .filter(|(_, step)| share * STEPS >= f64::from(*step) - 0.5)
            .last();
        highest.map_or(BARS[0], |(bar, _)| *bar)
    };
    values.iter().map(bar).collect()
}

fn count(value: u64) -> f64 {
    ratio(value, 1).unwrap_or(0.0)
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Steps from the lowest bar to the highest.
const STEPS: f64 = 7.0;
/// Most columns of the progress bar.
const BAR_CELLS: usize = 40;
/// Seconds of history.
const HISTORY_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(second: u64) -> Moment {
        Moment {
            label: "audio".to_owned(),
            stage: Stage::Sending,
            second: second + 6,
            progress: Some((second, 35)),
            awaited: Some((1000, 1000)),
            accepted: 1000,
            subscriptions: 1000,
            failed: 0,
            sent: second * 50,
            delivered: second * 50_000,
            delivered_per_second: 50_000,
            outstanding: 12,
            latency_ms: Some((0.8, 4.1 + 0.3 * count(second % 4))),
            relay_cpu_percent: Some(21.0),
            generator_cpu_percent: Some(40.0 + count(second)),
        }
    }

    #[test]
    fn outstanding_objects_count_once_for_each_subscription() {
        // Two tracks with three subscriptions each: each of ten objects is due three times.
        assert_eq!(outstanding(10, 6, 2, 25), 5);
        assert_eq!(outstanding(10, 6, 2, 31), 0);
        assert_eq!(outstanding(0, 0, 0, 0), 0);
    }

    #[test]
    fn a_run_that_sends() {
        let mut view = LiveView::default();
        for second in 0..12 {
            view.push(&moment(second));
        }
        insta::assert_snapshot!(view.render(&moment(11), 100, false));
    }

    #[test]
    fn a_run_whose_subscribers_join() {
        let moment = Moment {
            accepted: 3,
            subscriptions: 200,
            failed: 1,
            second: 1,
            ..Moment::default()
        };
        let mut view = LiveView::default();
        view.push(&moment);
        insta::assert_snapshot!(view.render(&moment, 80, false));
    }

    #[test]
    fn a_run_that_waits_says_for_how_many() {
        let moment = Moment {
            awaited: Some((3, 1000)),
            second: 7,
            ..Moment::default()
        };
        let line = "   7 s  joining: 3 of 1,000 awaited subscribers are there, 0 of 0 subscriptions accepted, objects: 0 sent, \
                    0 received";
        assert_eq!(moment.line(), line);
        let view = LiveView::default().render(&moment, 80, false);
        assert!(
            view.starts_with("joining   3 of 1,000 awaited subscribers are there, 7 s"),
            "{view}"
        );
    }

    #[test]
    fn lines_fit_the_terminal_and_hold_no_control_characters() {
        let mut view = LiveView::default();
        let hostile = Moment {
            label: "\x1b[2J\u{202e}evil".to_owned(),
            ..moment(40)
        };
        for _ in 0..=HISTORY_MAX {
            view.push(&hostile);
        }
        assert_eq!(view.delivered.len(), HISTORY_MAX);
        for width in [2, 3, 11, 30, 60, 79, 200] {
            let text = view.render(&hostile, width, false);
            assert!(
                text.lines().all(|line| line.chars().count() < width),
                "{width}: {text}"
            );
            assert!(!text.contains(['\x1b', '\u{202e}']), "{text:?}");
            assert_eq!(text.lines().count(), 6);
        }
        assert!(!hostile.line().contains('\x1b'));
        assert!(view.render(&hostile, 80, true).starts_with("\x1b[1m"));
    }

    #[test]
    fn a_plain_line() {
        assert_eq!(
            moment(3).line(),
            "audio:    9 s  sending: 1,000 of 1,000 subscriptions accepted, objects: 150 sent, 150,000 received, \
             p99 5.00 ms, relay CPU 21 % of a core"
        );
    }
}
