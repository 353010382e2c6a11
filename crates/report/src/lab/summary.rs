//! The figures of one run as text for a terminal.

use std::fmt::Display;

use crate::lab::{Figures, Thresholds};

/// Returns the figures of one run, one a line.
pub fn summary(figures: &Figures) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: std::fmt::Arguments<'_>| out.push_str(&line(name, &value));
    let [key, predicted, bidirectional] = figures.bit_rates.map(|rate| rate / 1000.0);
    let Thresholds { freeze, deadline } = figures.thresholds;
    line("frames", format_args!("{}", figures.frames));
    line("shown", format_args!("{:.1} %", figures.shown * 100.0));
    match &figures.delays {
        Some(delays) => {
            line(
                &format!("shown within {deadline} s"),
                format_args!("{:.1} %", delays.on_time * 100.0),
            );
            line(
                "latency",
                format_args!(
                    "mean {:.3} s, p95 {:.3} s, longest {:.3} s",
                    delays.latency_mean, delays.latency_p95, delays.latency_max
                ),
            );
            line(
                "age of the picture",
                format_args!(
                    "mean {:.3} s, longest {:.3} s",
                    delays.age_mean, delays.age_max
                ),
            );
            line(
                "queueing",
                format_args!("mean {:.3} s", delays.queueing_mean),
            );
        }
        None => line(
            "latency, age, queueing",
            format_args!("not known: the publisher sends no capture times"),
        ),
    }
    line(
        &format!("freezes over {freeze} s"),
        format_args!(
            "{}, together {:.2} s",
            figures.freezes, figures.freeze_total
        ),
    );
    line(
        "longest pause",
        format_args!("{:.3} s", figures.freeze_longest),
    );
    if let Some(first) = figures.time_to_first_frame {
        line("first picture after", format_args!("{first:.3} s"));
    }
    line(
        "bit rate of I, P, B",
        format_args!("{key:.0}, {predicted:.0}, {bidirectional:.0} kbit/s"),
    );
    out
}

/// Returns a line of [`summary`]: a name, padded, and a value.
pub fn line(name: &str, value: &dyn Display) -> String {
    format!("{name:<24}{value}\n")
}
