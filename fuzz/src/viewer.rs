//! Fuzzing of a player, whose relay and publisher do anything.

#[path = "hostile.rs"]
#[expect(dead_code, reason = "only relays are in a fleet")]
mod hostile;

use std::time::Duration;

use bytes::Bytes;
use weir_client::target::Target;
use weir_live::playout::BufferChoice;
use weir_live::{Choice, Ingest, Item, Join, Timebase, Viewer, ViewerConfig, strategy};
use weir_moqt::draft::Draft;
use weir_moqt::name::Namespace;
use weir_sim::{NodeConfig, SERVER_NAME, Sim};

use self::hostile::{Hostile, Input};

/// A stream of H.264 video.
const STREAM: &[u8] = include_bytes!("../../crates/live/tests/media/pyramid.mp4");

/// Plays `input` as the script of a server. The first byte selects the draft, the second one the player. Checks that the
/// player says why it failed, and that it can always be stopped.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let draft = Draft::ALL[usize::from(input.byte()) % Draft::ALL.len()];
    let mut sim = Sim::new(1);
    let server = sim.add_node(NodeConfig {
        server: Some(sim.server_tls(&[draft.alpn()])),
        ..NodeConfig::default()
    });
    let node = sim.add_node(NodeConfig::default());
    let config = configuration(&sim, draft, input.byte(), sim.address(server));
    sim.start(server, Hostile::new(input.0, shelf(), None));
    sim.start(node, Viewer::new(config));
    sim.run(Duration::from_secs(20));
    sim.shutdown(node);
    sim.run(Duration::from_secs(25));
    let viewer = sim.app::<Viewer>(node);
    assert!(!sim.is_busy(node), "a player can be stopped");
    assert_ne!(viewer.failure(), Some(""), "a failure has a reason");
    for record in viewer.records() {
        assert!(record.shown_us.is_none_or(|shown| shown >= 0), "{record:?}");
    }
}

/// Returns a player of a catalog, or of known tracks.
fn configuration(
    sim: &Sim,
    draft: Draft,
    choice: u8,
    server: std::net::SocketAddr,
) -> ViewerConfig {
    let known = strategy::NAMES.get(usize::from(choice % 8));
    let known = known.and_then(|name| strategy::by_name(name));
    let is_patient = choice & 8 == 0;
    ViewerConfig {
        target: Target::new(server, SERVER_NAME, sim.client_config(&[draft.alpn()])),
        namespace: Namespace::new(["a"]).expect("it is short"),
        choice: known.map_or(Choice::Catalog, |strategy| Choice::of(&*strategy)),
        join: if choice & 16 == 0 {
            Join::Next
        } else {
            Join::Current
        },
        buffer: if choice & 32 == 0 {
            BufferChoice::Strategy
        } else {
            BufferChoice::Adaptive
        },
        rendezvous_timeout: Duration::from_secs(if is_patient { 2 } else { 0 }),
        reconnect_timeout: Duration::from_secs(if is_patient { 2 } else { 0 }),
        timebase: Timebase {
            at: sim.now(),
            us: 0,
        },
    }
}

/// Returns catalogs of each form, the init segment, and the first frames as fragments and as samples.
fn shelf() -> Vec<Bytes> {
    let mut shelf = vec![
        Bytes::from_static(br#"{"version":"1","tracks":[{"name":"video","packaging":"loc","role":"video","codec":"avc1.64000a","timescale":90000}]}"#),
        Bytes::from_static(br#"{"version":1,"commonTrackFields":{"packaging":"cmaf"},"tracks":[{"name":"1.m4s","initTrack":"0.mp4","selectionParams":{"codec":"avc1.64000a"}}]}"#),
        Bytes::from_static(br#"{"version":"draft-01","weirStrategy":"weir","tracks":[{"name":"video","packaging":"loc","isLive":true,"role":"video"},{"name":"more","packaging":"loc","role":"video","depends":["video"]}]}"#),
    ];
    let mut ingest = Ingest::new();
    ingest.push(STREAM);
    while let Ok(Some(item)) = ingest.poll()
        && shelf.len() < 12
    {
        match item {
            Item::Init(init) => shelf.push(init.segment.clone()),
            Item::Frame(frame) => shelf.extend([frame.fragment, frame.sample]),
            Item::Audio { .. } => {}
        }
    }
    shelf
}
