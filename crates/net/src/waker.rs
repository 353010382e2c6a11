//! Waking a host from another thread, when its role has something new to look at.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::Arc,
};

use crate::sys;

/// Wakes the host that was made with it. Clones are the same bell.
#[derive(Clone, Debug)]
pub struct Bell {
    wake: Arc<OwnedFd>,
}

impl Bell {
    /// A bell that has not rung.
    pub fn new() -> io::Result<Self> {
        sys::eventfd().map(|wake| Self {
            wake: Arc::new(wake),
        })
    }

    /// Wakes the host, now or as soon as it would sleep. It then looks whether its role's time has come.
    pub fn ring(&self) {
        sys::signal_eventfd(&self.wake);
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    pub(crate) fn silence(&self) {
        sys::clear_eventfd(&self.wake);
    }
}
