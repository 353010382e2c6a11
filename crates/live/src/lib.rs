//! Live streaming: what an origin takes in, how it is delivered, and how a player without a screen
//! shows it.
//!
//! [`Ingest`] reads fragmented MP4 with H.264 from a byte stream and hands out one [`Frame`] after
//! the other, each with its kind and its place in a group of pictures.
//!
//! It is *not* a codec: no frame is decoded, only looked at as far as delivery has to know it.

pub mod frame;
pub mod h264;
mod ingest;
pub mod limits;
mod mp4;

pub use frame::{Frame, FrameKind};
pub use ingest::{Ingest, Item};
pub use mp4::{Audio, IngestError, Init, Media, Track};
