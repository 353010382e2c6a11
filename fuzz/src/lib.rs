//! The fuzz targets as functions. A test of each crate calls them too, to run the committed corpus without a fuzzer.

pub mod bench_message;
pub mod bus;
pub mod capsules;
pub mod catalog;
pub mod client;
pub mod control_message;
pub mod data_header;
pub mod http3_server;
pub mod ingest;
pub mod links;
pub mod profile;
pub mod session;
pub mod settings;
pub mod tokens;
pub mod viewer;
pub mod web_transport;

#[path = "program/relay.rs"]
#[expect(dead_code, unused_imports, reason = "the program uses the rest")]
mod relay;
#[path = "program/run.rs"]
#[expect(dead_code, reason = "the program uses the rest")]
mod run;
#[expect(dead_code, reason = "the program uses the rest")]
mod urls;
