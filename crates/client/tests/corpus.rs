//! Replays the committed fuzz corpus through the function that the fuzz target calls.

#[path = "../../../fuzz/src/client.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod client;
#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod corpus;

#[test]
fn clients() {
    corpus::replay("client", client::run);
}
