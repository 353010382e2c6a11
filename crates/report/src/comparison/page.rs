//! A comparison of relays as a page.

use maud::html;

use crate::form::page::Page;
use crate::form::table::Table;

/// One HTML file that needs no network: a heading and a table.
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
