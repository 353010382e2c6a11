//! Stories of the load client in virtual time, with correct and with misbehaving servers.

mod closed;
mod hostile;
mod opening;
mod stage;
