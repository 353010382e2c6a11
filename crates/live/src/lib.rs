//! Live streaming: what an origin takes in, how it is delivered, and how a player without a screen
//! shows it.
//!
//! [`Ingest`] reads fragmented MP4 with H.264 from a byte stream and hands out one [`Frame`] after
//! the other, each with its kind and its place in a group of pictures.
//!
//! A [`Strategy`](strategy::Strategy) says how frames go into MOQT's tracks, groups and subgroups.
//! [`Origin`] and [`Viewer`] are the two roles: the one publishes by a strategy, the other receives,
//! lets [`playout`] decide when each frame is shown, and keeps the [`figures`].
//!
//! It is *not* a codec: no frame is decoded, only looked at as far as delivery has to know it.

pub mod catalog;
pub mod figures;
pub mod frame;
mod freshness;
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
pub use viewer::{Choice, Join, Viewer, ViewerConfig};
