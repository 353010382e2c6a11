//! The playout core: decides when each frame is shown. It is pure, uses integers, and is the same in every language.
//!
//! [`RenderClock`] is Algorithm 1 of the thesis with its forward snapping. [`Reorder`] is its Algorithm 2.
//! [`JitterTarget`] sets how much is buffered. [`Player`] combines them. Times are microseconds: of the player's clock
//! if a name contains `local` or `now`, of the media if it contains `decode` or `presentation`.

mod clock;
mod decodable;
mod freshness;
mod jitter;
mod player;
mod reorder;

pub use self::clock::RenderClock;
pub use self::freshness::Freshness;
pub use self::jitter::{BufferChoice, BufferChoiceError, Buffering, JitterTarget};
pub use self::player::{Arrival, Fate, Player, PlayerSettings, Shown};
pub use self::reorder::{Reorder, Reordered};
