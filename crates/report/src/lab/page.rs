//! The lab's page: key figures, tables, the thesis's figures, and curves for each link.

use maud::{Markup, html};

use super::figures::FrameRecord;
use super::table::{OURS, Row, Spread, delays, figures, requirements};
use crate::form::number;
use crate::form::page::{Card, Page, Tone, cards, command_line, plots, section, verdict};
use crate::form::plot::{Plot, Strip};
use crate::form::scale::Scale;
use crate::statistics::float;

/// One run of a strategy over a link, to be drawn.
#[derive(Clone, Debug)]
pub struct DrawnRun {
    /// The link's profile, with the conditions that differ from the defaults.
    pub link: String,
    /// The strategy's name.
    pub strategy: String,
    /// Mean latency of the frames shown, in seconds.
    pub latency_mean: f64,
    /// The frames received.
    pub records: Vec<FrameRecord>,
    /// Length of the run, in seconds.
    pub duration_s: f64,
}

/// Returns the page: tables of all rows, and curves of the runs in `runs`.
pub fn page(rows: &[Row], runs: &[DrawnRun], command: &str) -> String {
    let strategies = strategies(runs);
    let curves = Curves {
        strategies: &strategies,
    };
    let mut links: Vec<&str> = runs.iter().map(|run| &*run.link).collect();
    links.dedup();
    let requirements = requirements(rows);
    let page = Page {
        title: "Live streaming over slow links – weir live lab".to_owned(),
        program: "weir live lab",
        heading: "Live streaming over links that are too slow".to_owned(),
        facts: vec![format!(
            "{} over {}",
            strategies.join(", "),
            number::counted(links.len() as u64, "link")
        )],
        main: html! {
            @if let Some((_, holds)) = &requirements { (conclusion(*holds)) }
            (cards(&key_figures(rows)))
            (section("Medians over seeds", "", &html! { div.dense { (figures(rows)) } }))
            @if let Some((table, _)) = requirements {
                (section("weir against skip", "Medians, in seconds and per cent.", &html! { div.dense { (table) } }))
            }
            (curves.figures_of_the_thesis(runs))
            @for link in links {
                (curves.link_section(link, &runs.iter().filter(|run| run.link == link).collect::<Vec<_>>()))
            }
            (section("Run", "", &command_line(command)))
        },
        footer: vec![
            "Times are in seconds. Latency counts only the frames shown, so it improves if fewer are shown; age is the mean \
             age of the picture on the screen. Plots show the first seed."
                .to_owned(),
        ],
    };
    page.render()
}

fn conclusion(holds: bool) -> Markup {
    let (tone, title) = if holds {
        (Tone::Good, "weir meets its requirements against skip")
    } else {
        (
            Tone::Bad,
            "weir does not meet its requirements against skip",
        )
    };
    let words = "On every link, one target of weir has to have a lower age, a longest freeze that is not longer, and 99 % of the \
                 frames that skip shows. The table says what failed.";
    verdict(tone, title, &html! { p { (words) } })
}

/// Returns the number of runs, and the key figures of `weir`, or of the last strategy if `weir` is not among them.
fn key_figures(rows: &[Row]) -> Vec<Card> {
    let count: usize = rows.iter().map(|row| row.runs.len()).sum();
    let runs = Card {
        name: "Runs",
        value: number::count(count as u64),
        beside: number::counted(rows.len() as u64, "row"),
        ..Card::default()
    };
    let ours = rows
        .iter()
        .find(|row| row.strategy == OURS)
        .or_else(|| rows.last());
    let Some(strategy) = ours.map(|row| &*row.strategy) else {
        return vec![runs];
    };
    let of_strategy = rows.iter().filter(|row| row.strategy == strategy);
    let all: Vec<_> = of_strategy.flat_map(|row| row.runs.clone()).collect();
    let beside = |spread: Spread| {
        if spread.median.is_nan() {
            return format!("{strategy}, without capture times");
        }
        let [least, most] = [spread.least, spread.most].map(|value| format!("{value:.2}"));
        format!("{strategy}, {least} to {most}")
    };
    let card = |name, spread: Spread, unit: &str| Card {
        name,
        value: if spread.median.is_nan() {
            number::NONE.to_owned()
        } else {
            format!("{:.2}", spread.median)
        },
        unit: unit.to_owned(),
        beside: beside(spread),
        is_alarm: false,
    };
    let [latency, age, freeze, shown] = [
        Spread::of(&all, |run| delays(run).latency_mean),
        Spread::of(&all, |run| delays(run).age_mean),
        Spread::of(&all, |run| run.freeze_longest),
        Spread::of(&all, |run| run.shown * 100.0),
    ];
    vec![
        runs,
        card("Mean latency", latency, "s"),
        card("Mean age", age, "s"),
        card("Longest freeze", freeze, "s"),
        card("Frames shown", shown, "%"),
    ]
}

/// The strategies in the order in which they first come.
fn strategies(runs: &[DrawnRun]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&&*run.strategy) {
            names.push(&run.strategy);
        }
    }
    names
}

/// A function that returns the points of a run's curve.
type Points = fn(&DrawnRun) -> Vec<(f64, f64)>;

/// Draws runs; each strategy has its colour wherever it is drawn.
struct Curves<'a> {
    strategies: &'a [&'a str],
}

impl Curves<'_> {
    fn link_section(&self, link: &str, runs: &[&DrawnRun]) -> Markup {
        let ours = runs.iter().find(|run| run.strategy == OURS);
        let body = plots(
            [
                self.compared("Latency of each frame shown", "s", runs, latency),
                self.compared("Age of what is on the screen", "s", runs, age),
                self.compared(
                    "Presentation time of frames received",
                    "s",
                    runs,
                    presentation,
                ),
            ]
            .into_iter()
            .chain(ours.map(|ours| received("Received by kind, weir", ours))),
        );
        section(link, "", &body)
    }

    /// Figures 6.1 to 6.8 of the thesis, as far as there are runs for them.
    fn figures_of_the_thesis(&self, runs: &[DrawnRun]) -> Markup {
        let find = |link: &str, name: &str| {
            let mut runs = runs.iter();
            runs.find(|run| run.link == link && run.strategy == name)
        };
        let pair = |link, other| Some([find(link, BASELINE)?, find(link, other)?]);
        let mut figures = Vec::new();
        for (latencies, bit_rates, link) in [("6.1", "6.2", STEADY), ("6.3", "6.4", FALLING)] {
            let Some(pair) = pair(link, "deprioritize-b") else {
                continue;
            };
            let title = format!("Figure {latencies}: latency, {link}");
            figures.push(self.compared(&title, "s", &pair, latency));
            for run in pair {
                let (rates, strategy) = (format!("Figure {bit_rates}"), &run.strategy);
                let title = format!("{rates}: bit rate received, {link}, {strategy}");
                figures.push(received(&title, run));
            }
        }
        if let Some(pair) = pair(FALLING, "skip") {
            let title = format!("Figure 6.5: latency, {FALLING}");
            figures.push(self.compared(&title, "s", &pair, latency));
            let title = format!("Figure 6.6: latency with keyframes marked, {FALLING}");
            let mut plot = self.plot(&title, "s", &pair[1..], latency);
            plot.dots("s5", &keyframes(pair[1]), 1.8);
            plot.key("s5", "keyframes");
            figures.push(plot.figure());
            let title = format!("Figure 6.7: presentation time of frames received, {FALLING}");
            figures.push(self.compared(&title, "s", &pair, presentation));
        }
        figures.extend(self.mean_latencies(runs));
        if figures.is_empty() {
            return html! {};
        }
        section("The figures of the thesis", "", &plots(figures))
    }

    /// A group of bars for each link, if there are several.
    fn mean_latencies(&self, runs: &[DrawnRun]) -> Option<Markup> {
        let groups: Vec<&[DrawnRun]> = runs.chunk_by(|a, b| a.link == b.link).collect();
        if groups.len() < 2 {
            return None;
        }
        let high = runs.iter().map(|run| run.latency_mean).fold(0.1, f64::max);
        let places = (0_u32..).map(f64::from);
        let count = float(groups.len() as u64);
        let x = Scale::up_to(count);
        let links = groups.iter().filter_map(|group| group.first());
        let names = places.clone().zip(links.map(|run| run.link.clone()));
        let names = names.map(|(left, link)| (left + 0.5, link));
        let title = "Figure 6.8: mean latency of the frames shown";
        let mut plot =
            Plot::new(title, ("links", x), ("s", Scale::from_zero(high))).names(names.collect());
        let mut strips: Vec<Strip> = Vec::new();
        for (left, group) in places.zip(&groups) {
            let step = 0.85 / float(group.len() as u64);
            for (place, run) in (0_u32..).zip(*group) {
                let from = left + 0.075 + step * f64::from(place);
                let class = self.class(&run.strategy);
                plot.bar(class, (from, from + step), (0.0, run.latency_mean));
                let text = format!("{}\n{} {:.2} s", run.link, run.strategy, run.latency_mean);
                strips.push((from, from + step, text));
            }
        }
        plot.strips(&strips);
        for name in self.strategies {
            plot.key(self.class(name), *name);
        }
        Some(plot.figure())
    }

    /// The curves of several strategies in one figure.
    fn compared(&self, title: &str, unit: &str, runs: &[&DrawnRun], points: Points) -> Markup {
        self.plot(title, unit, runs, points).figure()
    }

    fn plot<'u>(&self, title: &str, unit: &'u str, runs: &[&DrawnRun], points: Points) -> Plot<'u> {
        let curves = runs.iter().map(|run| {
            let class = self.class(&run.strategy);
            (class, run.strategy.clone(), points(run))
        });
        let duration = runs.first().map_or(1.0, |run| run.duration_s);
        plot(title, unit, duration, &curves.collect::<Vec<_>>())
    }

    fn class(&self, strategy: &str) -> &'static str {
        let place = self.strategies.iter().position(|name| *name == strategy);
        CLASSES[place.unwrap_or(0) % CLASSES.len()]
    }
}

const BASELINE: &str = "baseline";
/// The link of figures 6.1 and 6.2, and that of the others.
const STEADY: &str = "500k";
const FALLING: &str = "INTRA_CASCADE";
/// The classes of strategies, in their order.
const CLASSES: [&str; 5] = ["s0", "s1", "s2", "s3", "s4"];

/// A curve: its class, its name, and its points.
type Curve = (&'static str, String, Vec<(f64, f64)>);

/// Curves over time.
fn plot<'a>(title: &str, unit: &'a str, duration_s: f64, curves: &[Curve]) -> Plot<'a> {
    let values = curves.iter().flat_map(|(.., points)| points);
    let high = values.map(|(_, value)| *value).fold(0.1, f64::max);
    let x = Scale::up_to(duration_s);
    let y = (unit, Scale::from_zero(high));
    let mut plot = Plot::new(title, ("seconds since the start of the run", x), y);
    for (class, name, points) in curves {
        plot.curve(class, points, f64::INFINITY);
        plot.key(class, name.clone());
    }
    plot
}

fn received(title: &str, run: &DrawnRun) -> Markup {
    plot(title, "kbit/s", run.duration_s, &rates(run)).figure()
}

/// The keyframes shown: time and latency, in seconds.
fn keyframes(run: &DrawnRun) -> Vec<(f64, f64)> {
    let keyframes = run.records.iter().filter(|record| record.kind == 'I');
    let shown = keyframes.filter_map(|record| Some((record.shown_us?, record.available_us?)));
    let points = shown.map(|(at, available)| (seconds(at), seconds(at - available)));
    points.collect()
}

/// The frames shown, in order: the times at which they were shown and available, in seconds.
fn shown(run: &DrawnRun) -> Vec<(f64, f64)> {
    let mut shown: Vec<(i64, i64)> = run
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

fn latency(run: &DrawnRun) -> Vec<(f64, f64)> {
    shown(run)
        .into_iter()
        .map(|(at, available)| (at, at - available))
        .collect()
}

/// The age of the picture over time: it falls when a frame is shown, and rises until the next one.
fn age(run: &DrawnRun) -> Vec<(f64, f64)> {
    let shown = shown(run);
    let ends = shown
        .iter()
        .skip(1)
        .map(|(at, _)| *at)
        .chain([run.duration_s]);
    let sides = shown.iter().zip(ends);
    sides
        .flat_map(|((at, available), end)| [(*at, at - available), (end, end - available)])
        .collect()
}

/// The arrival time and the presentation time of each frame, in order of arrival.
fn presentation(run: &DrawnRun) -> Vec<(f64, f64)> {
    let times = run.records.iter();
    let times = times.map(|record| (seconds(record.arrived_us), seconds(record.presentation_us)));
    times.collect()
}

/// The bit rate of each kind of frame, in kbit/s, second by second.
fn rates(run: &DrawnRun) -> Vec<Curve> {
    let kinds = [('I', "s4"), ('P', "s2"), ('B', "s5")];
    let curve = |(kind, class): (char, _)| {
        let mut points = Vec::new();
        let mut second = 0.0;
        while second < run.duration_s {
            let is_within = |record: &&FrameRecord| {
                let at = seconds(record.arrived_us);
                record.kind == kind && at >= second && at < second + 1.0
            };
            let records = run.records.iter().filter(is_within);
            let bytes: u64 = records.map(|record| record.bytes).sum();
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            points.push((second + 0.5, f64::from(bytes) * 8.0 / 1000.0));
            second += 1.0;
        }
        (class, kind.to_string(), points)
    };
    kinds.map(curve).into()
}

fn seconds(microseconds: i64) -> f64 {
    let size = std::time::Duration::from_micros(microseconds.unsigned_abs()).as_secs_f64();
    if microseconds < 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Figures;

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
        let run = DrawnRun {
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
        near(presentation(&run), &[(1.1, 30.0), (1.15, 29.96)]);
        near(latency(&run), &[(1.5, 0.5), (1.56, 0.52)]);
        let sides = [(1.5, 0.5), (1.56, 0.56), (1.56, 0.52), (3.0, 1.96)];
        near(age(&run), &sides);
        near(keyframes(&run), &[(1.5, 0.5)]);
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
        let run = DrawnRun {
            link: "<script>".to_owned(),
            strategy: "weir".to_owned(),
            latency_mean: 0.2,
            records: vec![record],
            duration_s: 3.0,
        };
        let row = Row {
            link: "<script>".to_owned(),
            controller: "delay".to_owned(),
            strategy: "weir".to_owned(),
            runs: vec![Figures::default()],
        };
        let rows = std::slice::from_ref(&row);
        let whole = page(rows, std::slice::from_ref(&run), "weir live lab");
        assert!(whole.ends_with("</body></html>\n"));
        assert_eq!(whole.matches("<script>").count(), 1, "our own");
        assert!(whole.contains("&lt;script&gt;"));
        let svgs = |text: &str| (text.matches("<svg").count(), text.matches("</svg>").count());
        // The sign of the program, three plots of all, and what was received of ours.
        assert_eq!(svgs(&whole), (5, 5));
        let runs: Vec<DrawnRun> = ["500k", "INTRA_CASCADE"]
            .into_iter()
            .flat_map(|link| {
                let strategies = ["baseline", "deprioritize-b", "skip", "combined", "weir"];
                strategies.map(move |strategy| (link, strategy))
            })
            .map(|(link, strategy)| DrawnRun {
                link: link.to_owned(),
                strategy: strategy.to_owned(),
                ..run.clone()
            })
            .collect();
        let whole = page(rows, &runs, "weir live lab");
        for number in 1..=8 {
            let title = format!("Figure 6.{number}:");
            assert!(whole.contains(&title), "{title}");
        }
        assert!(whole.contains("<circle"), "keyframes are marked");
        assert_eq!(svgs(&whole).0, svgs(&whole).1);
    }
}
