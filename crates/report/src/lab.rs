//! Results of `weir live lab`: live streams over links that are too slow.
//!
//! [`Figures`] are those of one run, [`Row`] is one strategy over one link. [`table`], [`verdicts`] and [`page()`] show many rows;
//! [`agreement()`] compares virtual time, real time and a browser.

mod agreement;
mod figures;
mod frames;
mod page;
mod summary;
mod table;

pub use self::agreement::{Disturbed, agreement, bound, undisturbed};
pub use self::figures::{Delays, Figures, FrameRecord, Thresholds};
pub use self::frames::{FramesOf, frames_csv, frames_json};
pub use self::page::{DrawnRun, page};
pub use self::summary::{line, summary};
pub use self::table::{Row, legend, table, verdicts};
