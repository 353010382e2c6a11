//! The figures of one run as text.

use std::fmt::Write as _;

use weir_live::figures::Figures;

/// The figures of one run, for people.
pub(crate) fn summary(figures: &Figures) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: std::fmt::Arguments<'_>| {
        out.write_fmt(format_args!("{name:<24}{value}\n"))
            .expect("a String takes all");
    };
    let [key, predicted, bidirectional] = figures.bit_rates.map(|rate| rate / 1000.0);
    line("frames", format_args!("{}", figures.frames));
    line("shown", format_args!("{:.1} %", figures.shown * 100.0));
    line(
        "shown within 0.5 s",
        format_args!("{:.1} %", figures.on_time * 100.0),
    );
    line(
        "latency",
        format_args!(
            "mean {:.3} s, p95 {:.3} s, longest {:.3} s",
            figures.latency_mean, figures.latency_p95, figures.latency_max
        ),
    );
    line(
        "age of the picture",
        format_args!(
            "mean {:.3} s, longest {:.3} s",
            figures.age_mean, figures.age_max
        ),
    );
    line(
        "freezes over 0.5 s",
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
        "queueing",
        format_args!("mean {:.3} s", figures.queueing_mean),
    );
    line(
        "bit rate of I, P, B",
        format_args!("{key:.0}, {predicted:.0}, {bidirectional:.0} kbit/s"),
    );
    out
}
