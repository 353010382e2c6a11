//! The testbed's report: a table, and the thesis's figures, in one page that needs no network.

use std::fmt::Write as _;

use weir_live::figures::{Figures, FrameRecord};

/// One strategy over one profile.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) profile: String,
    pub(crate) strategy: String,
    /// Medians over all seeds.
    pub(crate) median: Figures,
    /// Of the first seed.
    pub(crate) records: Vec<FrameRecord>,
    pub(crate) duration_s: f64,
}

/// Lines of one colour.
struct Curve {
    name: String,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

/// The whole page.
pub(crate) fn page(cells: &[Cell], command: &str) -> String {
    let mut out = String::from(HEAD);
    put(
        &mut out,
        format_args!("<p>Made by <code>{}</code></p>", escaped(command)),
    );
    out.push_str(&table(cells));
    let mut profiles: Vec<&str> = cells.iter().map(|cell| &*cell.profile).collect();
    profiles.dedup();
    for profile in profiles {
        let cells: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.profile == profile)
            .collect();
        put(&mut out, format_args!("<h2>{}</h2>", escaped(profile)));
        let duration = cells.first().map_or(1.0, |cell| cell.duration_s);
        let curves = |points: fn(&Cell) -> Vec<(f64, f64)>| -> Vec<Curve> {
            let curve = |(cell, colour): (&&Cell, _)| Curve {
                name: cell.strategy.clone(),
                colour,
                points: points(cell),
            };
            cells.iter().zip(COLOURS).map(curve).collect()
        };
        out.push_str(&plot(
            "Latency of each frame shown (s)",
            duration,
            &curves(latency),
        ));
        out.push_str(&plot(
            "Age of what is on the screen (s)",
            duration,
            &curves(age),
        ));
        out.push_str(&plot(
            "Presentation time of frames received (s)",
            duration,
            &curves(presentation),
        ));
        for cell in &cells {
            let title = format!("Received by kind, {} (kbit/s)", cell.strategy);
            out.push_str(&plot(&title, duration, &rates(cell)));
        }
    }
    out.push_str("</body></html>\n");
    out
}

fn table(cells: &[Cell]) -> String {
    let mut out = String::from("<table><tr><th>profile<th>strategy");
    for column in COLUMNS {
        put(&mut out, format_args!("<th>{column}"));
    }
    out.push_str("</tr>");
    for cell in cells {
        let (profile, strategy) = (escaped(&cell.profile), escaped(&cell.strategy));
        put(&mut out, format_args!("<tr><td>{profile}<td>{strategy}"));
        for value in row(&cell.median) {
            put(&mut out, format_args!("<td class=n>{value}"));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
    out
}

/// What the columns of the table show.
pub(crate) const COLUMNS: [&str; 8] = [
    "shown", "on time", "latency", "p95", "age", "freezes", "longest", "queueing",
];

/// The values of the columns: shares in per cent, times in seconds.
pub(crate) fn row(figures: &Figures) -> [String; 8] {
    [
        format!("{:.0} %", figures.shown * 100.0),
        format!("{:.0} %", figures.on_time * 100.0),
        format!("{:.2}", figures.latency_mean),
        format!("{:.2}", figures.latency_p95),
        format!("{:.2}", figures.age_mean),
        figures.freezes.to_string(),
        format!("{:.2}", figures.freeze_longest),
        format!("{:.2}", figures.queueing_mean),
    ]
}

/// The figures of one run, for people.
pub(crate) fn summary(figures: &Figures) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: std::fmt::Arguments<'_>| {
        put(&mut out, format_args!("{name:<24}{value}\n"));
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

/// The frames that were shown, in that order, with the times in seconds.
fn shown(cell: &Cell) -> Vec<(f64, f64)> {
    let mut shown: Vec<(i64, i64)> = cell
        .records
        .iter()
        .filter_map(|record| Some((record.shown_us?, record.available_us)))
        .collect();
    shown.sort_unstable();
    shown
        .into_iter()
        .map(|(at, available)| (seconds(at), seconds(available)))
        .collect()
}

fn latency(cell: &Cell) -> Vec<(f64, f64)> {
    shown(cell)
        .into_iter()
        .map(|(at, available)| (at, at - available))
        .collect()
}

/// Falls when a frame is shown, and rises until the next.
fn age(cell: &Cell) -> Vec<(f64, f64)> {
    let shown = shown(cell);
    let ends = shown
        .iter()
        .skip(1)
        .map(|(at, _)| *at)
        .chain([cell.duration_s]);
    let sides = shown.iter().zip(ends);
    sides
        .flat_map(|((at, available), end)| [(*at, at - available), (end, end - available)])
        .collect()
}

fn presentation(cell: &Cell) -> Vec<(f64, f64)> {
    let times = cell.records.iter();
    times
        .map(|record| (seconds(record.arrived_us), seconds(record.available_us)))
        .collect()
}

/// Kilobits of each kind in each second.
fn rates(cell: &Cell) -> Vec<Curve> {
    let kinds = [('I', "#b2182b"), ('P', "#2166ac"), ('B', "#1b7837")];
    let curve = |(kind, colour)| {
        let mut points = Vec::new();
        let mut second = 0.0;
        while second < cell.duration_s {
            let is_within = |record: &&FrameRecord| {
                let at = seconds(record.arrived_us);
                record.kind == kind && at >= second && at < second + 1.0
            };
            let bytes = cell
                .records
                .iter()
                .filter(is_within)
                .map(|record| record.bytes);
            let bytes = u32::try_from(bytes.sum::<u64>()).unwrap_or(u32::MAX);
            points.push((second + 0.5, f64::from(bytes) * 8.0 / 1000.0));
            second += 1.0;
        }
        Curve {
            name: kind.to_string(),
            colour,
            points,
        }
    };
    kinds.map(curve).into()
}

/// Curves over time, in a figure of their own.
fn plot(title: &str, duration_s: f64, curves: &[Curve]) -> String {
    let values = curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|(_, value)| *value));
    let high = values.fold(0.1, f64::max) * 1.05;
    let across = |at: f64| LEFT + at / duration_s * (WIDTH - LEFT - 10.0);
    let down = |value: f64| HEIGHT - 20.0 - value / high * (HEIGHT - 45.0);
    let mut out = format!(
        "<figure><figcaption>{}</figcaption><svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>",
        escaped(title)
    );
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let (y, x) = (down(high * part), across(duration_s * part));
        put(
            &mut out,
            format_args!(
                "<path class=g d='M{LEFT} {y:.1}H{WIDTH}'/><text x='{LEFT}' dx='-4' y='{y:.1}' class=e>{:.1}</text>\
             <text x='{x:.1}' y='{HEIGHT}' class=m>{:.0}</text>",
                high * part,
                duration_s * part
            ),
        );
    }
    for (number, curve) in (0_u8..).zip(curves) {
        let mut path = String::new();
        for (place, (at, value)) in curve.points.iter().enumerate() {
            let letter = if place == 0 { 'M' } else { 'L' };
            put(
                &mut path,
                format_args!("{letter}{:.1} {:.1}", across(*at), down(*value)),
            );
        }
        let (colour, name) = (curve.colour, escaped(&curve.name));
        let x = LEFT + 8.0 + f64::from(number) * 130.0;
        put(
            &mut out,
            format_args!(
                "<path fill='none' stroke='{colour}' d='{path}'/><text x='{x}' y='12' fill='{colour}'>{name}</text>"
            ),
        );
    }
    out.push_str("</svg></figure>");
    out
}

fn seconds(microseconds: i64) -> f64 {
    std::time::Duration::from_micros(microseconds.unsigned_abs()).as_secs_f64()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&#39;")
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes all");
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 40.0;
const COLOURS: [&str; 5] = ["#777777", "#b8860b", "#2166ac", "#762a83", "#b2182b"];
const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>weir live lab</title><style>\
body{font:14px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse}td,th{padding:.1rem .6rem;text-align:left;border-bottom:1px solid #ddd}\
.n{text-align:right;font-variant-numeric:tabular-nums}figure{margin:1rem 0}svg{width:100%;height:auto}\
text{font-size:11px}.e{text-anchor:end}.m{text-anchor:middle}.g{stroke:#ddd}</style><body>\
<h1>Live streaming over links that are too slow</h1>\
<p>Times are in seconds. The latency is that of the frames that were shown, and rewards showing few; the age is that of what \
was on the screen, over time.</p>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_and_nothing_in_it_is_taken_for_markup() {
        let record = FrameRecord {
            number: 0,
            group: 0,
            kind: 'I',
            bytes: 1000,
            presentation_us: 0,
            available_us: 1_000_000,
            arrived_us: 1_100_000,
            shown_us: Some(1_200_000),
        };
        let cell = Cell {
            profile: "<script>".to_owned(),
            strategy: "weir".to_owned(),
            median: Figures::default(),
            records: vec![record],
            duration_s: 3.0,
        };
        let page = page(&[cell], "weir live lab");
        assert!(page.ends_with("</body></html>\n"));
        assert!(!page.contains("<script>") && page.contains("&lt;script>"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert_eq!(page.matches("<figure>").count(), 4);
    }
}
