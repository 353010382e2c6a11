//! Replays the committed fuzz corpora through the functions that the fuzz targets call.

#[path = "../../../fuzz/src/capsules.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod capsules;
#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod corpus;
#[path = "../../../fuzz/src/web_transport.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod web_transport;

#[test]
fn capsules_of_sessions() {
    corpus::replay("capsules", capsules::run);
}

#[test]
fn sessions_of_any_peer() {
    corpus::replay("web_transport", web_transport::run);
}
