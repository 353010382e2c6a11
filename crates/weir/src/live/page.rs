//! The testbed's report: a table, the thesis's figures and ours, in one page that needs no network.

use weir_live::figures::FrameRecord;

use super::plot::{BarGroup, Curve, bars, escaped, plot, put};

/// One run of a strategy over a link.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) link: String,
    pub(crate) strategy: String,
    /// In seconds.
    pub(crate) latency_mean: f64,
    pub(crate) records: Vec<FrameRecord>,
    pub(crate) duration_s: f64,
}

/// The whole page. `table` has a line for each row, the first of them with the names of the columns.
pub(crate) fn page(cells: &[Cell], table: &[Vec<String>], command: &str) -> String {
    let mut out = String::from(HEAD);
    put(
        &mut out,
        format_args!("<p>Made by <code>{}</code></p>", escaped(command)),
    );
    add_table(&mut out, table);
    add_figures_of_the_thesis(&mut out, cells);
    let mut links: Vec<&str> = cells.iter().map(|cell| &*cell.link).collect();
    links.dedup();
    for link in links {
        let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.link == link).collect();
        put(&mut out, format_args!("<h2>{}</h2>", escaped(link)));
        for (title, points) in [
            ("Latency of each frame shown (s)", latency as Points),
            ("Age of what is on the screen (s)", age),
            ("Presentation time of frames received (s)", presentation),
        ] {
            out.push_str(&compared(title, &cells, points));
        }
        if let Some(ours) = cells.iter().find(|cell| cell.strategy == "weir") {
            out.push_str(&received(ours, "Received by kind, weir (kbit/s)"));
        }
    }
    out.push_str("</body></html>\n");
    out
}

/// What a curve is made of.
type Points = fn(&Cell) -> Vec<(f64, f64)>;

/// Those of figures 6.1 to 6.8 for which there are runs.
fn add_figures_of_the_thesis(out: &mut String, cells: &[Cell]) {
    let find = |link: &str, names: &[&str]| -> Option<Vec<&Cell>> {
        let found = names.iter().map(|name| {
            let mut cells = cells.iter();
            cells.find(|cell| cell.link == link && cell.strategy == *name)
        });
        found.collect()
    };
    let (steady, falling) = ("500k", "INTRA_CASCADE");
    let (base, layers, skip) = ("baseline", "deprioritize-b", "skip");
    let mut figures = String::new();
    for (latencies, bit_rates, link) in [("6.1", "6.2", steady), ("6.3", "6.4", falling)] {
        let Some(pair) = find(link, &[base, layers]) else {
            continue;
        };
        let title = format!("Figure {latencies}: latency, {link} (s)");
        figures.push_str(&compared(&title, &pair, latency));
        for cell in pair {
            let title = format!(
                "Figure {bit_rates}: bit rate received, {link}, {} (kbit/s)",
                cell.strategy
            );
            figures.push_str(&received(cell, &title));
        }
    }
    if let Some(pair) = find(falling, &[base, skip]) {
        let title = format!("Figure 6.5: latency, {falling} (s)");
        figures.push_str(&compared(&title, &pair, latency));
        let marked = Curve {
            marks: keyframes(pair[1]),
            ..curve(pair[1], latency)
        };
        let title = format!("Figure 6.6: latency with keyframes marked, {falling} (s)");
        figures.push_str(&plot(&title, pair[1].duration_s, &[marked]));
        let title = format!("Figure 6.7: presentation time of frames received, {falling} (s)");
        figures.push_str(&compared(&title, &pair, presentation));
    }
    let mut groups: Vec<BarGroup> = Vec::new();
    for cell in cells {
        let bar = (
            cell.strategy.clone(),
            colour(&cell.strategy),
            cell.latency_mean,
        );
        match groups.last_mut() {
            Some(group) if group.name == cell.link => group.bars.push(bar),
            _ => groups.push(BarGroup {
                name: cell.link.clone(),
                bars: vec![bar],
            }),
        }
    }
    if groups.len() > 1 {
        let title = "Figure 6.8: mean latency of the frames shown (s)";
        figures.push_str(&bars(title, &groups));
    }
    if !figures.is_empty() {
        out.push_str("<h2>The figures of the thesis</h2>");
        out.push_str(&figures);
    }
}

fn add_table(out: &mut String, table: &[Vec<String>]) {
    out.push_str("<table>");
    for (number, line) in table.iter().enumerate() {
        out.push_str("<tr>");
        for (column, cell) in line.iter().enumerate() {
            let tag = match (number, column) {
                (0, _) => "th",
                (_, 0 | 1) => "td",
                _ => "td class=n",
            };
            put(out, format_args!("<{tag}>{}", escaped(cell)));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
}

/// The curves of several strategies in one figure.
fn compared(title: &str, cells: &[&Cell], points: Points) -> String {
    let curves: Vec<Curve> = cells.iter().map(|cell| curve(cell, points)).collect();
    let duration = cells.first().map_or(1.0, |cell| cell.duration_s);
    plot(title, duration, &curves)
}

fn curve(cell: &Cell, points: Points) -> Curve {
    Curve {
        name: cell.strategy.clone(),
        colour: colour(&cell.strategy),
        points: points(cell),
        marks: Vec::new(),
    }
}

fn received(cell: &Cell, title: &str) -> String {
    plot(title, cell.duration_s, &rates(cell))
}

/// Each strategy has its colour wherever it is drawn.
fn colour(strategy: &str) -> &'static str {
    let place = weir_live::strategy::NAMES
        .iter()
        .position(|name| *name == strategy);
    place.map_or(COLOURS[0], |place| COLOURS[place])
}

/// Where in the latency the keyframes are.
fn keyframes(cell: &Cell) -> Vec<(f64, f64)> {
    let keyframes = cell.records.iter().filter(|record| record.kind == 'I');
    let shown = keyframes.filter_map(|record| Some((record.shown_us?, record.available_us?)));
    let points = shown.map(|(at, available)| (seconds(at), seconds(at - available)));
    points.collect()
}

/// The frames that were shown, in that order, with the times in seconds.
fn shown(cell: &Cell) -> Vec<(f64, f64)> {
    let mut shown: Vec<(i64, i64)> = cell
        .records
        .iter()
        .filter_map(|record| Some((record.shown_us?, record.available_us?)))
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

/// Of what came, in the order in which it came, when it is to be shown in media time.
fn presentation(cell: &Cell) -> Vec<(f64, f64)> {
    let times = cell.records.iter();
    let times = times.map(|record| (seconds(record.arrived_us), seconds(record.presentation_us)));
    times.collect()
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
            marks: Vec::new(),
        }
    };
    kinds.map(curve).into()
}

fn seconds(microseconds: i64) -> f64 {
    let size = std::time::Duration::from_micros(microseconds.unsigned_abs()).as_secs_f64();
    if microseconds < 0 { -size } else { size }
}

const COLOURS: [&str; 5] = ["#777777", "#b8860b", "#2166ac", "#762a83", "#b2182b"];
const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>weir live lab</title><style>\
body{font:14px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse}td,th{padding:.1rem .6rem;text-align:left;border-bottom:1px solid #ddd}\
.n{text-align:right;font-variant-numeric:tabular-nums}figure{margin:1rem 0}svg{width:100%;height:auto}\
text{font-size:11px}.s{font-size:7px}.e{text-anchor:end}.m{text-anchor:middle}.g{stroke:#ddd}</style><body>\
<h1>Live streaming over links that are too slow</h1>\
<p>Times are in seconds. The latency is that of the frames that were shown, and rewards showing few; the age is that of what \
was on the screen, over time.</p>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_drawn_of_the_times_that_they_are_named_after() {
        let record = |number: i64| FrameRecord {
            number: number.unsigned_abs(),
            group: 0,
            kind: if number == 0 { 'I' } else { 'B' },
            bytes: 1000,
            presentation_us: 30_000_000 - number * 40_000,
            available_us: Some(1_000_000 + number * 40_000),
            arrived_us: 1_100_000 + number * 50_000,
            shown_us: Some(1_500_000 + number * 60_000),
        };
        let cell = Cell {
            link: "SPIKE".to_owned(),
            strategy: "weir".to_owned(),
            latency_mean: 0.5,
            records: vec![record(0), record(1)],
            duration_s: 3.0,
        };
        let near = |points: Vec<(f64, f64)>, expected: &[(f64, f64)]| {
            assert_eq!(points.len(), expected.len(), "{points:?}");
            for (point, expected) in points.iter().zip(expected) {
                let off = (point.0 - expected.0).abs() + (point.1 - expected.1).abs();
                assert!(off < 1e-9, "{point:?} {expected:?}");
            }
        };
        near(presentation(&cell), &[(1.1, 30.0), (1.15, 29.96)]);
        near(latency(&cell), &[(1.5, 0.5), (1.56, 0.52)]);
        let sides = [(1.5, 0.5), (1.56, 0.56), (1.56, 0.52), (3.0, 1.96)];
        near(age(&cell), &sides);
        near(keyframes(&cell), &[(1.5, 0.5)]);
        assert!((seconds(-1_500_000) + 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_page_is_whole_and_nothing_in_it_is_taken_for_markup() {
        let record = FrameRecord {
            number: 0,
            group: 0,
            kind: 'I',
            bytes: 1000,
            presentation_us: 0,
            available_us: Some(1_000_000),
            arrived_us: 1_100_000,
            shown_us: Some(1_200_000),
        };
        let cell = Cell {
            link: "<script>".to_owned(),
            strategy: "weir".to_owned(),
            latency_mean: 0.2,
            records: vec![record],
            duration_s: 3.0,
        };
        let table = [vec!["link".to_owned()], vec!["<script>".to_owned()]];
        let whole = page(std::slice::from_ref(&cell), &table, "weir live lab");
        assert!(whole.ends_with("</body></html>\n"));
        assert!(!whole.contains("<script>") && whole.contains("&lt;script>"));
        let svgs = |text: &str| (text.matches("<svg").count(), text.matches("</svg>").count());
        assert_eq!(svgs(&whole), (4, 4));
        let cells: Vec<Cell> = ["500k", "INTRA_CASCADE"]
            .into_iter()
            .flat_map(|link| {
                let strategies = weir_live::strategy::NAMES.into_iter();
                strategies.map(move |strategy| (link, strategy))
            })
            .map(|(link, strategy)| Cell {
                link: link.to_owned(),
                strategy: strategy.to_owned(),
                ..cell.clone()
            })
            .collect();
        let whole = page(&cells, &table, "weir live lab");
        for number in 1..=8 {
            let title = format!("Figure 6.{number}:");
            assert!(whole.contains(&title), "{title}");
        }
        assert!(whole.contains("<circle"), "keyframes are marked");
        assert_eq!(svgs(&whole).0, svgs(&whole).1);
    }
}
