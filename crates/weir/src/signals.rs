//! Signals: SIGINT and SIGTERM stop the process, SIGHUP reloads files.

use std::sync::mpsc::{Receiver, channel};

use anyhow::Context as _;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use weir_net::Stop;

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Reload files.
    Reload,
    /// Stop.
    Stop,
}

/// Returns a channel of the requests that signals make. A second SIGINT or SIGTERM ends the process and its children at once.
pub(crate) fn requests() -> anyhow::Result<Receiver<Request>> {
    let (sender, receiver) = channel();
    let mut is_stopping = false;
    on_signals(&[SIGINT, SIGTERM, SIGHUP], move |signal| {
        let request = if signal == SIGHUP {
            Request::Reload
        } else {
            if std::mem::replace(&mut is_stopping, true) {
                leave(signal);
            }
            Request::Stop
        };
        if sender.send(request).is_err() {
            // The receiver is gone.
            leave(signal);
        }
    })?;
    Ok(receiver)
}

/// Returns a stop that the first SIGINT or SIGTERM requests. A second one ends the process and its children at once.
pub(crate) fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new().context("cannot make an event descriptor")?;
    let requested = stop.clone();
    on_signals(&[SIGINT, SIGTERM], move |signal| {
        if requested.is_requested() {
            leave(signal);
        }
        requested.request();
    })?;
    Ok(stop)
}

/// Ends this process and its children.
fn leave(signal: i32) -> ! {
    crate::harness::child::kill_all();
    std::process::exit(128 + signal)
}

fn on_signals(signals: &[i32], mut act: impl FnMut(i32) + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new(signals).context("cannot handle signals")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(&mut act))
        .context("cannot start the thread that waits for signals")?;
    Ok(())
}
