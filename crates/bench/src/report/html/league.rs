//! A page with one table, in the looks of a report.

use super::{Markup, POLICY, tables};

/// A page with `title`, a table and paragraphs below it.
pub(crate) fn page(
    title: &str,
    heading: &[&str],
    rows: &[Vec<String>],
    notes: &[String],
) -> String {
    let mut markup = Markup::default();
    markup.verbatim("<!DOCTYPE html>\n");
    markup.element("html", &[("lang", &"en")], |markup| {
        markup.element("head", &[], |markup| {
            markup.empty("meta", &[("charset", &"utf-8")]);
            let equiv = &[
                (
                    "http-equiv",
                    &"Content-Security-Policy" as &dyn std::fmt::Display,
                ),
                ("content", &POLICY),
            ];
            markup.empty("meta", equiv);
            let viewport = "width=device-width, initial-scale=1";
            markup.empty("meta", &[("name", &"viewport"), ("content", &viewport)]);
            markup.empty(
                "meta",
                &[("name", &"color-scheme"), ("content", &"light dark")],
            );
            markup.leaf("title", &[], &title);
            markup.element("style", &[], |markup| {
                markup.verbatim(include_str!("report.css"));
            });
        });
        markup.element("body", &[], |markup| {
            markup.element("header", &[], |markup| markup.leaf("h1", &[], &title));
            markup.element("main", &[], |markup| {
                markup.element("div", &[("class", &"scroll")], |markup| {
                    markup.element("table", &[], |markup| {
                        tables::head(markup, heading);
                        markup.element("tbody", &[], |markup| {
                            for row in rows {
                                table_row(markup, row);
                            }
                        });
                    });
                });
                for note in notes {
                    markup.leaf("p", &[("class", &"reading")], note);
                }
            });
        });
    });
    markup.verbatim("\n");
    markup.finish()
}

fn table_row(markup: &mut Markup, row: &[String]) {
    markup.element("tr", &[], |markup| {
        for (column, cell) in row.iter().enumerate() {
            if column == 0 {
                markup.leaf("th", &[("scope", &"row")], cell);
            } else {
                markup.leaf("td", &[], cell);
            }
        }
    });
}
