//! Observation of a server's processes during a run.

use std::time::Instant;

use weir_net::clock;
use weir_report::{http3::ServerUsage, process::percent};

use crate::harness::{
    machine::MachineTime,
    processes::{Processes, Sample},
};

/// Processes of a server under observation.
pub(super) struct Observation<'a> {
    server: &'a Processes,
    machine: Option<MachineTime>,
    first: (Instant, Sample),
    last: (Instant, Sample),
}

impl<'a> Observation<'a> {
    /// Begins to observe processes.
    pub(super) fn begin(server: &'a Processes) -> Self {
        let first = (clock::now(), server.sample(&Sample::default()));
        Self {
            server,
            machine: MachineTime::now(),
            last: first.clone(),
            first,
        }
    }

    /// Samples the processes. Returns their CPU load since the last look, in per cent of a core; `None` if there is none of
    /// them.
    pub(super) fn look(&mut self) -> Option<f64> {
        let now = (clock::now(), self.server.sample(&self.last.1));
        let used = now.1.used_since(&self.last.1).cpu;
        let load = (!now.1.is_empty()).then(|| percent(used, now.0 - self.last.0));
        self.last = now;
        load
    }

    /// Returns the usage from the beginning to the last look.
    pub(super) fn end(self) -> ServerUsage {
        let (first, last) = (&self.first, &self.last);
        let cores = self.server.cores();
        let machine = self.machine.zip(MachineTime::now());
        ServerUsage {
            pids: self.server.pids.clone(),
            used: last.1.used_since(&first.1),
            busiest_thread: last.1.busiest_since(&first.1),
            watched: last.0 - first.0,
            stolen_percent: machine
                .and_then(|(before, after)| before.stolen_percent_of(&cores, &after)),
            cores,
            died: self.server.died(&last.1),
        }
    }
}
