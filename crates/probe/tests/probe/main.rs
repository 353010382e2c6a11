//! The probe against relays, as stories in virtual time.
//!
//! A story prints its seed; `WEIR_SEED` sets another one.

#![expect(clippy::print_stdout, reason = "stories print their seed and results")]

mod broken;
mod musts;
mod own_relay;
mod stage;
mod withholding;
