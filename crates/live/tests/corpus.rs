//! Replays the committed corpus of the fuzz target through the function the target calls.

use std::path::Path;

#[path = "../../../fuzz/src/ingest.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod ingest;

#[test]
fn streams() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ingest");
    let mut inputs = 0;
    for entry in folder.read_dir().expect("the corpus is in the repository") {
        let path = entry.expect("the folder can be read").path();
        let input = std::fs::read(&path).expect("the file can be read");
        let outcome = std::panic::catch_unwind(|| ingest::run(&input));
        assert!(outcome.is_ok(), "{} fails", path.display());
        inputs += 1;
    }
    assert!(inputs > 0, "the corpus is not empty");
}
