//! What was measured, as plain data, and its forms: for the terminal, as JSON, CSV and Prometheus text, and as HTML pages.
//!
//! A report is plain data that stands alone, so that a run writes it, somebody keeps it, and a later version reads it. The crate
//! measures nothing and knows no protocol: `bench`, `http3` and `live` hand it figures. The kinds of reports:
//! [`relay::Report`] (one run of the relay benchmark), [`http3::Report`] (one run of the HTTP/3 load client), the
//! comparisons of several relays and of several HTTP/3 servers ([`comparison`]), and the
//! [`search::Record`] of a search for the largest load. A [`service_level::ServiceLevel`] judges a run.

pub mod charts;
pub mod comparison;
mod form;
pub mod http3;
pub mod lab;
pub mod latency;
pub mod limits;
pub mod process;
pub mod relay;
pub mod search;
pub mod service_level;
pub mod statistics;
