//! Runs the committed corpus of the fuzz targets.

#[path = "../../../fuzz/src/control_message.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod control_message;
#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod corpus;
#[path = "../../../fuzz/src/data_header.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod data_header;
#[path = "../../../fuzz/src/session.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod session;

#[test]
fn control_messages() {
    corpus::replay("control_message", control_message::run);
}

#[test]
fn data_headers() {
    corpus::replay("data_header", data_header::run);
}

#[test]
fn sessions() {
    corpus::replay("session", session::run);
}
