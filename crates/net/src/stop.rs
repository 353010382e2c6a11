//! Stops hosts from a signal handler or another thread.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::sys;

/// A request to stop, which wakes every waiting host. Clones share the request.
#[derive(Clone, Debug)]
pub struct Stop {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    requested: AtomicBool,
    /// Readable from the request on.
    wake: OwnedFd,
}

impl Stop {
    /// Returns a request that is not made yet.
    pub fn new() -> io::Result<Self> {
        let wake = sys::eventfd()?;
        Ok(Self {
            inner: Arc::new(Inner {
                requested: AtomicBool::new(false),
                wake,
            }),
        })
    }

    /// Makes the request. Safe to call at any time, any number of times.
    pub fn request(&self) {
        self.inner.requested.store(true, Ordering::Release);
        sys::signal_eventfd(&self.inner.wake);
    }

    /// Whether the request was made.
    pub fn is_requested(&self) -> bool {
        self.inner.requested.load(Ordering::Acquire)
    }

    /// Waits up to `limit` for the request. Returns whether it was made.
    pub fn wait(&self, limit: std::time::Duration) -> bool {
        if !self.is_requested() {
            sys::wait_readable(&[self.descriptor()], Some(limit));
        }
        self.is_requested()
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.inner.wake.as_raw_fd()
    }
}
