//! The fuzz targets as functions. A test of each crate calls them too, to run the committed corpus without a fuzzer.

pub mod bench_message;
pub mod control_message;
pub mod data_header;
pub mod http3_server;
pub mod ingest;
pub mod profile;
pub mod session;
pub mod web_transport;
