//! Replays the committed fuzz corpus through the function that the fuzz target calls.

#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod corpus;
#[path = "../../../fuzz/src/http3_server.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod http3_server;

#[test]
fn a_server_of_any_client() {
    corpus::replay("http3_server", http3_server::run);
}
