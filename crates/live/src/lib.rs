//! Live streaming: an origin's input, delivery strategies, and a player without a screen.
//!
//! [`Ingest`] reads fragmented MP4 with H.264 from a byte stream and returns one [`Frame`] after the other. Each has
//! its kind and its position in a group of pictures.
//!
//! A [`Strategy`](strategy::Strategy) maps frames to MOQT's tracks, groups and subgroups. There are two roles.
//! [`Origin`] publishes a stream by a strategy. [`Viewer`] receives it, lets [`playout`] decide when each frame is
//! shown, and records the fate of each frame.
//!
//! The crate is *not* a codec: it does not decode frames, and reads only what delivery needs.

pub mod catalog;
pub mod frame;
pub mod h264;
mod ingest;
pub mod limits;
mod mp4;
mod origin;
pub mod packaging;
pub mod plan;
pub mod playout;
mod sequence;
pub mod source;
pub mod strategy;
mod timebase;
mod viewer;

pub use frame::{Frame, FrameKind};
pub use ingest::{Ingest, Item};
pub use mp4::{Audio, IngestError, Init, Media, Track};
pub use origin::{Origin, OriginConfig, OriginCounters, PublishFlow};
pub use plan::{Plan, PlanError, VideoPlan};
pub use timebase::Timebase;
pub use viewer::{Choice, Join, Viewer, ViewerConfig, WINDOW_FIRST};
