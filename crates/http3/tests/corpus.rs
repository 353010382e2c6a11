//! Replays the committed corpus of the fuzz target through the function the target calls.

use std::path::Path;

#[path = "../../../fuzz/src/http3_server.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod http3_server;

#[test]
fn a_server_of_any_client() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http3_server");
    let mut inputs = 0;
    for entry in folder.read_dir().expect("the corpus is in the repository") {
        let path = entry.expect("the corpus can be read").path();
        http3_server::run(&std::fs::read(path).expect("an input can be read"));
        inputs += 1;
    }
    assert!(inputs > 0, "the corpus is not empty");
}
