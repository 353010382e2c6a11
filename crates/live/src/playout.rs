//! The playout core: when is which frame shown? Pure, in integers, the same in every language.
//!
//! [`RenderClock`] is Algorithm 1 of the thesis with its way of snapping forward, [`Reorder`] its
//! Algorithm 2, [`JitterTarget`] how much is buffered, [`Player`] all of it together.
//! Times are microseconds: of the player's clock where a name says `local` or `now`, of the media
//! where it says `decode` or `presentation`.

mod clock;
mod decodable;
mod jitter;
mod player;
mod reorder;

pub use self::clock::RenderClock;
pub use self::jitter::{BufferChoice, BufferChoiceError, Buffering, JitterTarget};
pub use self::player::{Arrival, Fate, Player, PlayerSettings, Shown};
pub use self::reorder::{Reorder, Reordered};
