//! Replays the committed fuzz corpus through the functions that the fuzz targets call.

#[path = "../../../fuzz/src/bench_message.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod bench_message;
#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod corpus;
#[path = "../../../fuzz/src/profile.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod profile;

#[test]
fn bench_messages() {
    corpus::replay("bench_message", bench_message::run);
}

#[test]
fn profiles() {
    corpus::replay("profile", profile::run);
}
