//! The plots of a report, each as a captioned figure.

pub(super) mod heat;
pub(crate) mod latency;
pub(super) mod relay;
pub(super) mod subscribers;

use crate::form::markup::Markup;
use crate::form::number;
use crate::form::plot::Labels;

/// One entry of a legend: class of the swatch, and what it stands for.
pub(crate) type Key = (&'static str, &'static str);

/// A figure: heading, legend, plot, and a sentence that says what is to be seen.
pub(crate) fn figure(
    markup: &mut Markup,
    title: &str,
    keys: &[Key],
    reading: &str,
    plot: impl FnOnce(&mut Markup),
) {
    markup.element("figure", &[], |markup| {
        markup.element("figcaption", &[], |markup| {
            markup.leaf("h4", &[], &title);
            if !keys.is_empty() {
                markup.element("p", &[("class", &"legend")], |markup| {
                    for (class, name) in keys {
                        markup.leaf("span", &[("class", &format!("key {class}"))], name);
                    }
                });
            }
        });
        markup.element("div", &[("class", &"canvas")], plot);
        if !reading.is_empty() {
            markup.leaf("p", &[("class", &"reading")], &reading);
        }
    });
}

pub(crate) const TIME: &str = "seconds since the start of the run";

/// The words of a plot.
pub(crate) fn labels<'a>(
    title: &'a str,
    description: &'a str,
    x: &'a str,
    y: &'a str,
) -> Labels<'a> {
    Labels {
        title,
        description,
        x,
        y,
    }
}

fn ms(value: f64) -> String {
    number::milliseconds(value)
}
