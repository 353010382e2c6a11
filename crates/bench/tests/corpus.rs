//! Replays the committed corpus of the fuzz targets through the functions the targets call.

use std::path::Path;

#[path = "../../../fuzz/src/bench_message.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod bench_message;
#[path = "../../../fuzz/src/profile.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod profile;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut inputs = 0;
    for entry in folder.read_dir().expect("the corpus is in the repository") {
        let path = entry.expect("the folder can be read").path();
        let input = std::fs::read(&path).expect("the file can be read");
        let outcome = std::panic::catch_unwind(|| run(&input));
        assert!(outcome.is_ok(), "{} fails", path.display());
        inputs += 1;
    }
    assert!(inputs > 0, "the corpus is not empty");
}

#[test]
fn bench_messages() {
    replay("bench_message", bench_message::run);
}

#[test]
fn profiles() {
    replay("profile", profile::run);
}
