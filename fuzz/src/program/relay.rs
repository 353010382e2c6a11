//! The modules of the program that read settings, keys, tokens and entries of the registry. The program is no library, so
//! they are links to its files.

pub(crate) mod authority;
pub(crate) mod config;
pub(crate) mod fleet {
    pub(crate) mod entry;
}
pub(crate) mod settings;
