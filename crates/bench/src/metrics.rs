//! The metrics of a track at its publisher and at each subscriber. [evens-00 §5.5]
//!
//! A [`TrackReceiver`] is one subscriber's view of one track. It receives each object, keeps a fixed number of bytes
//! whatever arrives, and returns the metrics of the draft's Tables 2 and 3 at any time. A [`TrackSender`] is the
//! publisher's view. A [`TrackPlan`] holds what both know in advance. None of them reads a clock or touches a
//! connection.

mod groups;
mod heat;
mod over_time;
mod plan;
mod receiver;
mod sender;
mod sequence;
#[cfg(test)]
mod tests;
mod timing;

pub use self::heat::{Heat, HeatRow};
pub use self::over_time::{OverTime, Timing};
pub use self::plan::TrackPlan;
pub use self::receiver::{
    Delivered, End, Failure, PublisherVariance, Received, SentTotals, TrackReceiver, TrackResult,
};
pub use self::sender::{Dropped, Refusal, Refusals, SenderResult, TrackSender};
