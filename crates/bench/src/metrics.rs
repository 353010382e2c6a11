//! What a track's publisher and each of its subscribers measure. [evens-00 §5.5]
//!
//! A [`TrackReceiver`] is one subscriber's view of one track: it is told of every object, keeps a
//! fixed number of bytes whatever arrives, and gives the figures of the draft's Tables 2 and 3 at
//! any time. A [`TrackSender`] is the publisher's view. What both know beforehand is the
//! [`TrackPlan`]. None of them reads a clock or touches a connection.

mod groups;
mod heat;
mod plan;
mod receiver;
mod sender;
mod sequence;
#[cfg(test)]
mod tests;
mod timing;

pub use self::heat::{Heat, HeatRow};
pub use self::plan::TrackPlan;
pub use self::receiver::{
    Delivered, End, Failure, PublisherVariance, Received, SentTotals, TrackReceiver, TrackResult,
};
pub use self::sender::{Dropped, Refusal, Refusals, SenderResult, TrackSender};
