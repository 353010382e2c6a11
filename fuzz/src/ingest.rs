//! Fuzzing of the reader of fragmented MP4.

use weir_live::{Ingest, Item};

/// Reads `input` as a stream. Checks that the init segment comes out first, that groups begin with a keyframe, and that
/// an error names its position.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let mut ingest = Ingest::new();
    let mut items = 0;
    for piece in input.chunks(97) {
        ingest.push(piece);
        loop {
            let item = match ingest.poll() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(error) => {
                    assert!(
                        error.to_string().starts_with("byte "),
                        "an error names its place"
                    );
                    return;
                }
            };
            let is_init = matches!(item, Item::Init(_));
            assert_eq!(
                is_init,
                items == 0,
                "the init segment comes first, and once"
            );
            items += 1;
            if let Item::Frame(frame) = item {
                assert_eq!(frame.index == 0, frame.kind == weir_live::FrameKind::Key);
                assert!(frame.references <= frame.index);
            }
        }
    }
    let _whole = ingest.finish().is_ok();
}
