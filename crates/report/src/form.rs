//! Parts of all output formats: numbers as text, tables, plots, pages, terminal screens, JSON.

pub(crate) mod bars;
#[cfg(test)]
mod fields;
pub(crate) mod image;
pub(crate) mod json;
mod labels;
pub(crate) mod latency;
pub(crate) mod number;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod scale;
#[cfg(test)]
pub(crate) mod schema;
pub(crate) mod screen;
pub(crate) mod table;
