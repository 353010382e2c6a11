//! Plots that set a track's subscribers side by side, and of what was lost on the way to them.

use super::{figure, labels, ms};
use crate::form::markup::Markup;
use crate::form::number;
use crate::form::plot::{Plot, STRIPS_MAX, Scale};
use crate::relay::{Delivery, Distribution, Status, SubscriberReport, TrackReport};
use crate::statistics::{self, float};

/// Columns of a plot over subscribers at most; beyond, one stands for several and shows the worst.
const COLUMNS_MAX: usize = STRIPS_MAX;

/// Every subscriber's latency, the steadiest first.
pub(in crate::relay::html) fn spread(markup: &mut Markup, track: &TrackReport) {
    let mut latencies: Vec<Distribution> = track
        .subscribers
        .iter()
        .filter_map(|one| one.latency)
        .collect();
    latencies.sort_by(|a, b| {
        a.p99_ms
            .total_cmp(&b.p99_ms)
            .then(a.max_ms.total_cmp(&b.max_ms))
    });
    let (Some(best), Some(worst)) = (latencies.first(), latencies.last()) else {
        return;
    };
    if latencies.len() < 2 {
        return;
    }
    let median = latencies[latencies.len() / 2];
    let largest = latencies.iter().map(|one| one.max_ms).fold(0.0, f64::max);
    let smallest = latencies
        .iter()
        .map(|one| one.p50_ms)
        .fold(f64::INFINITY, f64::min);
    let log = largest > 12.0 * smallest;
    let y = if log {
        Scale::log_around(smallest, largest)
    } else {
        Scale::from_zero(largest)
    };
    let columns = columns(&latencies);
    let without = track.subscribers.len() - latencies.len();
    let mut reading = format!(
        "p99: best {}, median {}, worst {}.",
        ms(best.p99_ms),
        ms(median.p99_ms),
        ms(worst.p99_ms)
    );
    if columns.len() < latencies.len() {
        reading = format!(
            "{reading} Each column stands for up to {} subscribers and shows the worst.",
            latencies.len().div_ceil(columns.len())
        );
    }
    if without > 0 {
        reading = format!(
            "{reading} {} received nothing.",
            number::counted(without as u64, "subscriber")
        );
    }
    let labels = labels(
        "Spread over subscribers",
        &reading,
        "subscribers, steadiest first",
        if log { "ms, log scale" } else { "ms" },
    );
    let keys = [("max", "up to the slowest"), ("p99", "p99"), ("p50", "p50")];
    figure(markup, labels.title, &keys, &reading, |markup| {
        let x = Scale::Ranks {
            high: float(latencies.len() as u64),
        };
        Plot::new(x, y).draw(markup, &labels, |plot, markup| {
            for column in &columns {
                let span = inset(column.span, latencies.len());
                plot.bar(markup, "max", span, (column.p99_ms, column.max_ms));
                plot.bar(markup, "range", span, (column.p50_ms, column.p99_ms));
                plot.cap(markup, "p99", span, column.p99_ms);
                plot.cap(markup, "p50", span, column.p50_ms);
            }
            let strips: Vec<(f64, f64, String)> = columns.iter().map(Column::strip).collect();
            plot.strips(markup, &strips);
        });
    });
}

/// Neighbours in the order of subscribers, drawn as one.
struct Column {
    span: (f64, f64),
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Column {
    fn strip(&self) -> (f64, f64, String) {
        let text = format!(
            "{}\np50 {}\np99 {}\nslowest {}",
            ranks(self.span),
            ms(self.p50_ms),
            ms(self.p99_ms),
            ms(self.max_ms)
        );
        (self.span.0, self.span.1, text)
    }
}

fn columns(latencies: &[Distribution]) -> Vec<Column> {
    let per_column = latencies.len().div_ceil(COLUMNS_MAX).max(1);
    let worst = |ranks: &[Distribution], pick: fn(&Distribution) -> f64| {
        ranks.iter().map(pick).fold(0.0, f64::max)
    };
    let column = |(number, ranks): (usize, &[Distribution])| {
        let from = float((number * per_column) as u64);
        Column {
            span: (from, from + float(ranks.len() as u64)),
            p50_ms: worst(ranks, |one| one.p50_ms),
            p99_ms: worst(ranks, |one| one.p99_ms),
            max_ms: worst(ranks, |one| one.max_ms),
        }
    };
    latencies
        .chunks(per_column)
        .enumerate()
        .map(column)
        .collect()
}

/// Few subscribers stand apart, many touch.
fn inset(span: (f64, f64), of: usize) -> (f64, f64) {
    let margin = if of <= 40 { 0.2 } else { 0.0 };
    (span.0 + margin, span.1 - margin)
}

fn ranks(span: (f64, f64)) -> String {
    let (first, last) = (number::plain(span.0 + 1.0), number::plain(span.1));
    if first == last {
        format!("rank {first}")
    } else {
        format!("ranks {first} to {last}")
    }
}

/// Where objects were lost: one bar, split by place. Without a loss, the sentence alone.
pub(in crate::relay::html) fn loss_by_place(markup: &mut Markup, track: &TrackReport) {
    let lost = &track.completion.lost_objects;
    let due = lost
        .sum
        .saturating_add(track.completion.objects_received.sum);
    if due == 0 {
        return;
    }
    let Delivery {
        lost_join,
        lost_middle,
        lost_tail,
        ..
    } = track.delivery;
    if lost.sum == 0 {
        markup.element("figure", &[("class", &"calm")], |markup| {
            markup.element("figcaption", &[], |markup| {
                markup.leaf("h4", &[], &"Loss by place");
            });
            let all = format!("All {} objects arrived.", number::count(due));
            markup.leaf("p", &[("class", &"all-well")], &all);
            let reading = "Nothing was lost at join, in the middle or at the tail.";
            markup.leaf("p", &[("class", &"reading")], &reading);
        });
        return;
    }
    let places = [
        ("join", lost_join),
        ("middle", lost_middle),
        ("tail", lost_tail),
    ];
    let mut reading = format!(
        "{} of {} objects.",
        number::loss(lost.sum, due),
        number::count(due)
    );
    if let Some(first) = track.delivery.first_lost {
        let (group, object) = (number::count(first.group), number::count(first.object));
        reading = format!("{reading} The first is object {object} of group {group}.");
    }
    figure(markup, "Loss by place", &[], &reading, |markup| {
        markup.element(
            "div",
            &[("class", &"stack"), ("aria-hidden", &"true")],
            |markup| {
                for (class, count) in places.iter().filter(|(_, count)| *count > 0) {
                    let share = statistics::ratio(*count, lost_join + lost_middle + lost_tail);
                    let grow = format!("flex-grow:{:.4}", share.unwrap_or(0.0));
                    markup.empty_block("span", &[("class", class), ("style", &grow)]);
                }
            },
        );
        markup.element("dl", &[("class", &"places")], |markup| {
            let names = ["at join", "in the middle", "at the tail"];
            let meanings = [
                "before the first arrival",
                "between arrivals",
                "after the last arrival",
            ];
            for (((class, count), name), meaning) in places.iter().zip(names).zip(meanings) {
                markup.element("div", &[], |markup| {
                    markup.leaf("dt", &[("class", &format!("key {class}"))], &name);
                    markup.element("dd", &[], |markup| {
                        markup.leaf("b", &[], &number::count(*count));
                        markup.leaf("small", &[], &meaning);
                    });
                });
            }
        });
    });
}

/// Every subscriber's loss, the worst first; nothing without a loss.
pub(in crate::relay::html) fn loss(markup: &mut Markup, track: &TrackReport) {
    let mut losers: Vec<&SubscriberReport> = track
        .subscribers
        .iter()
        .filter(|one| one.completion.lost_objects > 0)
        .collect();
    losers.sort_by_key(|one| (std::cmp::Reverse(one.completion.lost_objects), one.index));
    let Some(worst) = losers.first() else { return };
    if track.subscribers.len() < 2 {
        return;
    }
    let largest = worst.completion.lost_objects;
    let failed = losers
        .iter()
        .filter(|one| one.status == Status::Failed)
        .count();
    let reading = format!(
        "{} of {} subscriptions lost something; {failed} of them failed.",
        number::count(losers.len() as u64),
        number::count(track.subscribers.len() as u64),
    );
    let labels = labels(
        "Loss over subscribers",
        &reading,
        "subscribers, worst first",
        "objects lost",
    );
    let per_column = losers.len().div_ceil(COLUMNS_MAX);
    figure(
        markup,
        labels.title,
        &[("bad", "lost objects")],
        &reading,
        |markup| {
            let x = Scale::Ranks {
                high: float(losers.len() as u64),
            };
            let plot = Plot::new(x, Scale::from_zero(float(largest)));
            plot.with_height(210.0)
                .draw(markup, &labels, |plot, markup| {
                    let mut strips = Vec::new();
                    for (number, column) in losers.chunks(per_column).enumerate() {
                        let from = float((number * per_column) as u64);
                        let span = (from, from + float(column.len() as u64));
                        let lost = column[0].completion.lost_objects;
                        plot.bar(markup, "bad", inset(span, losers.len()), (0.0, float(lost)));
                        let text = format!("{}\n{} lost", ranks(span), number::count(lost));
                        strips.push((span.0, span.1, text));
                    }
                    plot.strips(markup, &strips);
                });
        },
    );
}
