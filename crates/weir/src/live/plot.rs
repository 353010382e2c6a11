//! Curves and bars as SVG, without a library and without a network.

use std::fmt::Write as _;

/// A line of one colour.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
    /// Points that are marked.
    pub(crate) marks: Vec<(f64, f64)>,
}

/// Bars that stand together.
pub(crate) struct BarGroup {
    pub(crate) name: String,
    /// Name, colour and height of each.
    pub(crate) bars: Vec<(String, &'static str, f64)>,
}

/// Curves over time, in a figure of their own.
pub(crate) fn plot(title: &str, duration_s: f64, curves: &[Curve]) -> String {
    let values = curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|(_, value)| *value));
    let high = values.fold(0.1, f64::max) * 1.05;
    let across = |at: f64| LEFT + at / duration_s * (WIDTH - LEFT - 10.0);
    let down = |value: f64| HEIGHT - 20.0 - value / high * (HEIGHT - 45.0);
    let mut out = begin(title);
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
        let colour = curve.colour;
        for (at, value) in &curve.marks {
            put(
                &mut out,
                format_args!(
                    "<circle r=2 fill='{MARK}' cx='{:.1}' cy='{:.1}'/>",
                    across(*at),
                    down(*value)
                ),
            );
        }
        put(
            &mut out,
            format_args!("<path fill='none' stroke='{colour}' d='{path}'/>"),
        );
        legend(&mut out, number, &curve.name, colour);
    }
    out.push_str("</svg></figure>");
    out
}

/// Groups of bars, each bar with its height above it.
pub(crate) fn bars(title: &str, groups: &[BarGroup]) -> String {
    let values = groups.iter().flat_map(|group| &group.bars);
    let high = values.fold(0.1, |high, bar| bar.2.max(high)) * 1.1;
    let mut out = begin(title);
    let count = u32::try_from(groups.len()).unwrap_or(1).max(1);
    let step = (WIDTH - LEFT) / f64::from(count);
    for (number, group) in (0_u32..).zip(groups) {
        let left = LEFT + step * f64::from(number);
        let each = u32::try_from(group.bars.len()).unwrap_or(1).max(1);
        let width = step * 0.85 / f64::from(each);
        for (place, (name, colour, value)) in (0_u32..).zip(&group.bars) {
            let (x, height) = (
                left + width * f64::from(place),
                value / high * (HEIGHT - 45.0),
            );
            let (y, middle) = (HEIGHT - 20.0 - height, x + width / 2.0);
            put(
                &mut out,
                format_args!(
                    "<rect x='{x:.1}' y='{y:.1}' width='{:.1}' height='{height:.1}' fill='{colour}'>\
                     <title>{}: {value:.2}</title></rect>\
                     <text x='{middle:.1}' y='{:.1}' class='m s'>{value:.1}</text>",
                    width * 0.9,
                    escaped(name),
                    y - 3.0
                ),
            );
        }
        let middle = left + step * 0.42;
        put(
            &mut out,
            format_args!(
                "<text x='{middle:.1}' y='{HEIGHT}' class=m>{}</text>",
                escaped(&group.name)
            ),
        );
    }
    let names = groups
        .first()
        .map(|group| &group.bars[..])
        .unwrap_or_default();
    for (number, (name, colour, _)) in (0_u8..).zip(names) {
        legend(&mut out, number, name, colour);
    }
    out.push_str("</svg></figure>");
    out
}

fn begin(title: &str) -> String {
    format!(
        "<figure><figcaption>{}</figcaption><svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>",
        escaped(title)
    )
}

fn legend(out: &mut String, number: u8, name: &str, colour: &str) {
    let x = LEFT + 8.0 + f64::from(number) * 130.0;
    put(
        out,
        format_args!(
            "<text x='{x}' y='12' fill='{colour}'>{}</text>",
            escaped(name)
        ),
    );
}

/// Text that is not taken for markup.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&#39;")
}

/// Writes to a text.
pub(crate) fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes all");
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 40.0;
const MARK: &str = "#000000";
