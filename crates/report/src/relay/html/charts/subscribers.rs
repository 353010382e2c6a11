//! Plots that compare the subscribers of a track: their latency and their loss.

use maud::{Markup, html};

use crate::form::number::{self, milliseconds as ms};
use crate::form::plot::{Plot, STRIPS_MAX, Strip};
use crate::form::scale::Scale;
use crate::form::{latency, page};
use crate::relay::{Conduct, Delivery, Distribution, Status, SubscriberReport, TrackReport};
use crate::statistics::{self, float};

/// Most columns of a plot over subscribers. With more subscribers, each column shows the worst of several.
const COLUMNS_MAX: usize = STRIPS_MAX;

/// Latency of every subscriber, lowest p99 first.
pub(in crate::relay::html) fn spread(track: &TrackReport) -> Markup {
    let subscribers = track.subscribers.iter();
    let mut latencies: Vec<Distribution> = subscribers.filter_map(|one| one.latency).collect();
    latencies.sort_by(|a, b| {
        let by_p99 = a.p99_ms.total_cmp(&b.p99_ms);
        by_p99.then(a.max_ms.total_cmp(&b.max_ms))
    });
    if latencies.len() < 2 {
        return html! {};
    }
    let largest = latencies.iter().map(|one| one.max_ms).fold(0.0, f64::max);
    let medians = latencies.iter().map(|one| one.p50_ms);
    let smallest = medians.fold(f64::INFINITY, f64::min);
    let columns = columns(&latencies);
    let x = Scale::Ranks {
        high: float(latencies.len() as u64),
    };
    let x = ("subscribers, lowest p99 first", x);
    let mut plot = Plot::new("Latency by subscriber", x, latency::axis(smallest, largest))
        .reading(spread_in_words(track, &latencies, columns.len()))
        .keys([("max", "slowest"), ("p99", "p99"), ("p50", "p50")]);
    for column in &columns {
        let span = inset(column.span, latencies.len());
        plot.bar("max", span, (column.p99_ms, column.max_ms));
        plot.bar("range", span, (column.p50_ms, column.p99_ms));
        plot.cap("p99", span, column.p99_ms);
        plot.cap("p50", span, column.p50_ms);
    }
    plot.strips(&columns.iter().map(Column::strip).collect::<Vec<_>>());
    plot.figure()
}

fn spread_in_words(track: &TrackReport, latencies: &[Distribution], columns: usize) -> String {
    let p99 = |place: usize| latencies.get(place).map_or(0.0, |one| one.p99_ms);
    let last = latencies.len() - 1;
    let [best, median, worst] = [0, latencies.len() / 2, last].map(|place| ms(p99(place)));
    let mut reading = format!("p99 of the best subscriber {best}, median {median}, worst {worst}.");
    if columns < latencies.len() {
        reading = format!(
            "{reading} Each column shows the worst of up to {} subscribers.",
            latencies.len().div_ceil(columns)
        );
    }
    let without = track.subscribers.len() - latencies.len();
    if without > 0 {
        let without = number::counted(without as u64, "subscriber");
        reading = format!("{reading} {without} received nothing.");
    }
    reading
}

/// A column of the plot: one subscriber, or several that are adjacent in its order.
struct Column {
    span: (f64, f64),
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Column {
    fn strip(&self) -> Strip {
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

/// Leaves a gap between columns if there are few.
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

/// Where in the track objects were lost: one bar, split by place; a sentence if nothing was lost.
pub(in crate::relay::html) fn loss_by_place(track: &TrackReport) -> Markup {
    let (lost, received) = (
        track.completion.lost_objects.sum,
        track.completion.objects_received.sum,
    );
    let due = lost.saturating_add(received);
    if due == 0 {
        return html! {};
    }
    if lost == 0 {
        return html! {
            figure.calm {
                figcaption { h4 { "Where objects were lost" } }
                p.all-well { "Nowhere: all " (number::count(due)) " objects arrived." }
            }
        };
    }
    let Delivery {
        lost_join,
        lost_middle,
        lost_tail,
        first_lost,
        ..
    } = track.delivery;
    let all = lost_join + lost_middle + lost_tail;
    let places = [
        (
            "join",
            lost_join,
            "join",
            "before the subscriber's first arrival",
        ),
        ("middle", lost_middle, "middle", "between arrivals"),
        ("tail", lost_tail, "tail", "after the last arrival"),
    ];
    let first = first_lost.map_or_else(String::new, |first| {
        let (group, object) = (number::count(first.group), number::count(first.object));
        format!(" The first lost object is object {object} of group {group}.")
    });
    let grow = |count: u64| {
        let share = statistics::ratio(count, all).unwrap_or(0.0);
        format!("flex-grow:{share:.4}")
    };
    let reading = format!(
        "{} of {} objects.{first}",
        number::loss(lost, due),
        number::count(due)
    );
    let stack = html! {
        div.stack aria-hidden="true" {
            @for (class, count, ..) in places.iter().filter(|(_, count, ..)| *count > 0) {
                span.(class) style=(grow(*count)) {}
            }
        }
        dl.places {
            @for (class, count, name, meaning) in places {
                div {
                    dt.key.(class) { (name) }
                    dd { b { (number::count(count)) } small { (meaning) } }
                }
            }
        }
    };
    page::figure("Where objects were lost", &[], &reading, &stack)
}

/// Lost objects of every subscriber, most first; nothing without a loss.
pub(in crate::relay::html) fn loss(track: &TrackReport) -> Markup {
    let lost = |one: &SubscriberReport| one.completion.lost_objects;
    let subscribers = track.subscribers.iter();
    let mut lossy: Vec<&SubscriberReport> = subscribers.filter(|one| lost(one) > 0).collect();
    lossy.sort_by_key(|one| (std::cmp::Reverse(lost(one)), one.index));
    let Some(worst) = lossy.first().filter(|_| track.subscribers.len() > 1) else {
        return html! {};
    };
    let is_failed = |one: &&&SubscriberReport| one.status == Status::Failed;
    let mut reading = format!(
        "{} of {} subscriptions lost objects; {} of them failed.",
        number::count(lossy.len() as u64),
        number::count(track.subscribers.len() as u64),
        lossy.iter().filter(is_failed).count()
    );
    let is_apart = |one: &&&SubscriberReport| one.conduct != Conduct::Steady;
    let apart = lossy.iter().filter(is_apart).count();
    if apart > 0 {
        let apart = number::counted(apart as u64, "slow or churning subscriber");
        reading = format!("{reading} They include {apart}, which other figures leave out.");
    }
    let x = Scale::Ranks {
        high: float(lossy.len() as u64),
    };
    let y = ("objects lost", Scale::from_zero(float(lost(worst))));
    let mut plot = Plot::new(
        "Lost objects by subscriber",
        ("subscribers, most lost first", x),
        y,
    )
    .reading(reading)
    .keys([("bad", "lost objects")])
    .height(210.0);
    let per_column = lossy.len().div_ceil(COLUMNS_MAX);
    let mut strips: Vec<Strip> = Vec::new();
    for (number, column) in lossy.chunks(per_column).enumerate() {
        let from = float((number * per_column) as u64);
        let span = (from, from + float(column.len() as u64));
        let lost = lost(column[0]);
        plot.bar("bad", inset(span, lossy.len()), (0.0, float(lost)));
        let text = format!("{}\n{} lost", ranks(span), number::count(lost));
        strips.push((span.0, span.1, text));
    }
    plot.strips(&strips);
    plot.figure()
}
