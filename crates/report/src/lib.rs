//! Results as plain data, and their output formats: terminal, JSON, CSV, Prometheus text and HTML.
//!
//! The crate measures nothing and knows no protocol: its callers fill in the figures. It holds these kinds of results:
//!
//! - [`relay::Report`]: one run of the relay benchmark,
//! - [`http3::Report`]: one run of the HTTP/3 load client,
//! - [`comparison`]: comparisons of several relays, or of several HTTP/3 servers,
//! - [`search::Record`]: a search for the largest load of a relay,
//! - [`lab`]: runs of live streaming,
//! - [`probe::Report`]: one run of the cases of conformance and robustness.
//!
//! A [`service_level::ServiceLevel`] judges a run of the relay benchmark.

pub mod charts;
pub mod comparison;
mod form;
pub mod http3;
pub mod lab;
pub mod latency;
pub mod limits;
pub mod probe;
pub mod process;
pub mod relay;
pub mod search;
pub mod service_level;
pub mod statistics;
