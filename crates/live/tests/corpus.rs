//! Replays the committed corpus of the fuzz target through the function the target calls.

#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod corpus;
#[path = "../../../fuzz/src/ingest.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod ingest;

#[test]
fn streams() {
    corpus::replay("ingest", ingest::run);
}
