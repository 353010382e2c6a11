//! What the forms of all reports are made of: numbers as text, tables, plots, pages, terminal screens, JSON.

pub(crate) mod bars;
pub(crate) mod json;
pub(crate) mod league;
pub(crate) mod markup;
pub(crate) mod number;
pub(crate) mod plot;
pub(crate) mod screen;
pub(crate) mod table;
