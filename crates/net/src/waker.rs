//! Wakes a host from another thread, when its role has something new to do.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::Arc,
};

use crate::sys;

/// Wakes the host that it was created with. Clones are the same waker.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// Returns a waker that has not woken its host.
    pub fn new() -> io::Result<Self> {
        sys::eventfd().map(|event| Self {
            event: Arc::new(event),
        })
    }

    /// Wakes the host, now or when it would next sleep. The host then checks whether its role is due.
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
