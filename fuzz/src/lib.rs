//! What the fuzz targets do with their bytes, as functions that a test of the crate in question calls too, to replay the
//! committed corpus without a fuzzer.

pub mod bench_message;
pub mod control_message;
pub mod data_header;
pub mod http3_server;
pub mod ingest;
pub mod profile;
pub mod session;
pub mod web_transport;
