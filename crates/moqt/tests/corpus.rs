//! Replays the committed corpus of the fuzz targets through the functions the targets call.

use std::path::Path;

#[path = "../../../fuzz/src/control_message.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod control_message;
#[path = "../../../fuzz/src/data_header.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod data_header;
#[path = "../../../fuzz/src/session.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod session;

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
fn control_messages() {
    replay("control_message", control_message::run);
}

#[test]
fn data_headers() {
    replay("data_header", data_header::run);
}

#[test]
fn sessions() {
    replay("session", session::run);
}
