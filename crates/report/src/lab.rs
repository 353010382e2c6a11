//! Live streams over links that are too slow: the figures of a run, tables and a page of many, and how far runs in virtual
//! time, in real time and in a browser are apart.
//!
//! The testbed makes the runs. The main types are [`Figures`], of one run, and [`Row`], of one strategy over one link.

mod agreement;
mod figures;
mod page;
mod summary;
mod table;

pub use self::agreement::{Disturbed, agreement, bound, undisturbed};
pub use self::figures::{DEADLINE_US, Delays, FREEZE_US, Figures, FrameRecord};
pub use self::page::{DrawnRun, page};
pub use self::summary::{line, summary};
pub use self::table::{Row, table, verdicts};
