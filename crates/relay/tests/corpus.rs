//! Replays the committed fuzz corpus through the function that the fuzz target calls.

#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod corpus;
#[path = "../../../fuzz/src/links.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod links;

#[test]
fn relays_of_several_threads() {
    corpus::replay("links", links::run);
}
