//! Replays the committed fuzz corpora through the functions that the fuzz targets call.

#[path = "../../../fuzz/src/catalog.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod catalog;
#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "tests of several crates call it")]
mod corpus;
#[path = "../../../fuzz/src/ingest.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod ingest;
#[path = "../../../fuzz/src/viewer.rs"]
#[expect(unreachable_pub, reason = "the fuzz target calls it from outside")]
mod viewer;

#[test]
fn catalogs() {
    corpus::replay("catalog", catalog::run);
}

#[test]
fn streams() {
    corpus::replay("ingest", ingest::run);
}

#[test]
fn viewers() {
    corpus::replay("viewer", viewer::run);
}
