//! The relay as its operators meet it: configuration, measurements, reloads, leave-taking, credentials.

mod access;
mod admin;
mod client;
mod configuration;
mod measured;
mod moving;
mod reload;
mod upstream;
