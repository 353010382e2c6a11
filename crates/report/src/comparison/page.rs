//! A comparison of relays as an HTML page.

use maud::html;

use crate::form::page::Page;
use crate::form::table::Table;

/// Renders a heading and a table as an HTML file that needs no network.
pub(super) fn page(title: &str, table: &Table) -> String {
    let page = Page {
        title: format!("{title} – weir bench compare"),
        program: "weir bench compare",
        heading: title.to_owned(),
        facts: Vec::new(),
        main: html! { div.dense { (table) } },
        footer: Vec::new(),
    };
    page.render()
}
