//! Replays the committed corpus of the fuzz target through the function the target calls.

use std::path::Path;

#[path = "../../../fuzz/src/web_transport.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod web_transport;

#[test]
fn sessions_of_any_peer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/web_transport");
    let mut inputs = 0;
    for entry in folder.read_dir().expect("the corpus is in the repository") {
        let path = entry.expect("the corpus can be read").path();
        web_transport::run(&std::fs::read(path).expect("an input can be read"));
        inputs += 1;
    }
    assert!(inputs > 0, "the corpus is not empty");
}
