//! A page with one table, in the looks of a report.

use crate::relay::html::{document, tables};

/// A page with `title`, a table and paragraphs below it.
pub(crate) fn page(
    title: &str,
    heading: &[&str],
    rows: &[Vec<String>],
    notes: &[String],
) -> String {
    document(title, |markup| {
        markup.element("header", &[], |markup| markup.leaf("h1", &[], &title));
        markup.element("main", &[], |markup| {
            tables::table(markup, "", heading, rows);
            for note in notes {
                markup.leaf("p", &[("class", &"reading")], note);
            }
        });
    })
}
