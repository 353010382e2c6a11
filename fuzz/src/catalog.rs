//! Fuzzing of catalogs of live streams, of weir's and of other publishers.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_live::{
    Plan,
    catalog::Catalog,
    limits::{INIT_TRACKS_MAX, LAYERS_MAX},
    plan::init_tracks,
};

/// A stream of H.264 video, which begins with an init segment.
const STREAM: &[u8] = include_bytes!("../../crates/live/tests/media/pyramid.mp4");

/// Reads `input` as a catalog whose first init track exists. Checks that the plan does not depend on how the JSON is
/// written, that it keeps its limits, that a refusal is one line of text, and that a catalog in weir's form survives
/// another round of encoding.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let names = init_tracks(input);
    let mut segments = BTreeMap::new();
    if let Ok(names) = &names {
        assert!(names.len() <= INIT_TRACKS_MAX);
        let first = names.first().cloned();
        segments.extend(first.map(|name| (name, Bytes::from_static(STREAM))));
    }
    let plan = Plan::read(input, &segments);
    assert!(names.is_ok() || plan.is_err(), "both read the same text");
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(input) {
        let again = Plan::read(value.to_string().as_bytes(), &segments);
        assert_eq!(plan.as_ref().ok(), again.as_ref().ok(), "{value}");
    }
    match plan {
        Ok(plan) => {
            assert!((1..=LAYERS_MAX).contains(&plan.video.len()));
            let (base, layers) = plan.video.split_first().expect("it is not empty");
            assert!(layers.iter().all(|layer| layer.name != base.name));
        }
        Err(error) => {
            let text = error.to_string();
            assert!(
                !text.is_empty() && !text.contains(char::is_control),
                "{text:?}"
            );
        }
    }
    if let Ok(catalog) = serde_json::from_slice::<Catalog>(input) {
        let again: Catalog = serde_json::from_slice(&catalog.encode()).expect("it was encoded");
        assert_eq!(again, catalog);
    }
}
