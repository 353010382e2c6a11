//! SIGINT and SIGTERM as a request to stop.

use anyhow::Context as _;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use weir_net::Stop;

/// A request to stop that the first SIGINT or SIGTERM makes. The second one ends the process at once.
pub(crate) fn stop_on_signals() -> anyhow::Result<Stop> {
    let stop = Stop::new().context("cannot make an event descriptor")?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let requested = stop.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "waits for signals beside the hosts"
    )]
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if requested.is_requested() {
                std::process::exit(128 + signal);
            }
            requested.request();
        }
    });
    Ok(stop)
}
