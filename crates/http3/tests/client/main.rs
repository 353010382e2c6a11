//! Stories of the load client in virtual time: with a good server, and with bad ones.

mod closed;
mod hostile;
mod opening;
mod stage;
