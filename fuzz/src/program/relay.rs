//! The modules of the program that read settings, keys and tokens. The program is no library, so they are links to its
//! files.

pub(crate) mod authority;
pub(crate) mod config;
pub(crate) mod settings;
