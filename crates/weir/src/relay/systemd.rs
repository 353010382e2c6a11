//! Notifications to systemd, for a service of `Type=notify` (`sd_notify(3)`). Without systemd they do nothing.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// The notification socket of the service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Manager {
    socket: Option<UnixDatagram>,
    /// Interval of `WATCHDOG=1`, if the service manager has a watchdog.
    pub(crate) watchdog: Option<Duration>,
}

impl Manager {
    /// Returns the service manager that the environment names. `variable` reads an environment variable.
    pub(crate) fn find(variable: impl Fn(&str) -> Option<String>) -> Self {
        let socket = variable("NOTIFY_SOCKET").and_then(|name| connect(&name).ok());
        let is_for_us = variable("WATCHDOG_PID")
            .is_none_or(|process| process == std::process::id().to_string());
        let micros = variable("WATCHDOG_USEC").filter(|_| is_for_us && socket.is_some());
        let watchdog = micros.and_then(|micros| micros.parse().ok());
        Self {
            socket,
            // Half of the watchdog's timeout, as `sd_watchdog_enabled(3)` advises.
            watchdog: watchdog.map(|micros: u64| Duration::from_micros(micros / 2)),
        }
    }

    /// Sends a state such as `READY=1`. Errors are ignored.
    pub(crate) fn notify(&self, state: &str) {
        if let Some(socket) = &self.socket {
            drop(socket.send(state.as_bytes()));
        }
    }
}

fn connect(name: &str) -> std::io::Result<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // Nothing may wait for a service manager that does not read.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_notified_if_the_environment_names_one() {
        let name = format!("weir-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        let variable = |of: &str| match of {
            "NOTIFY_SOCKET" => Some(format!("@{name}")),
            "WATCHDOG_USEC" => Some("4000000".to_owned()),
            _ => None,
        };
        let manager = Manager::find(variable);
        assert_eq!(manager.watchdog, Some(Duration::from_secs(2)));
        manager.notify("READY=1");
        let mut buffer = [0; 64];
        let length = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");

        let nobody = Manager::find(|_| None);
        assert_eq!(nobody.watchdog, None);
        nobody.notify("READY=1");
        let stranger = |of: &str| match of {
            "WATCHDOG_PID" => Some("1".to_owned()),
            of => variable(of),
        };
        assert_eq!(Manager::find(stranger).watchdog, None);
    }
}
