//! Runs the committed corpus of the fuzz target.

#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod corpus;
#[path = "../../../fuzz/src/web_transport.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod web_transport;

#[test]
fn sessions_of_any_peer() {
    corpus::replay("web_transport", web_transport::run);
}
