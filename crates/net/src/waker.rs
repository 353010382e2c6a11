//! Waking a host from another thread, when its role has something new to look at.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::Arc,
};

use crate::sys;

/// Wakes the host that was made with it. Clones are the same waker.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// A waker that has not woken its host yet.
    pub fn new() -> io::Result<Self> {
        sys::eventfd().map(|event| Self {
            event: Arc::new(event),
        })
    }

    /// Wakes the host, now or as soon as it would sleep. It then looks whether its role's time has come.
    pub fn wake(&self) {
        sys::signal_eventfd(&self.event);
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub(crate) fn clear(&self) {
        sys::clear_eventfd(&self.event);
    }
}
