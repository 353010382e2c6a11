//! The lowest possible cost of a datagram on this machine: one `sendmmsg` per 64 packets and one AES-128-GCM seal per
//! packet, nothing else. The relay's cost per delivered datagram is expressed as a multiple of this one.
//!
//! ```text
//! cargo bench -p weir-net --bench floor -- [--bytes N] [--destinations N] [--seconds S]
//!     [--rounds N] [--core N] [--json]
//! ```
//!
//! Each round runs all cases, so that noise spoils a round and not a case. The results are CPU time of the one sending
//! thread, which on the loopback interface includes the kernel's receive path. There are two kinds of receivers.
//! *Unread*: as many sockets as destinations, whose queues are full, so that the kernel drops each packet at the last
//! step, the cheapest end of a packet. *Drained*: one socket that a thread on another core empties before the next
//! batch, as the load generator does. The floor is sealing and sending to unread sockets.

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that prints figures"
)]

#[path = "../arguments/mod.rs"]
mod arguments;
mod options;
mod traffic;

use std::{
    error::Error,
    io,
    net::UdpSocket,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use clap::Parser as _;
use options::Options;
use traffic::{Case, READ_TIMEOUT, Sender, bind, drain, shrink_receive_buffer};
use weir_net::{pin_to_core, raise_open_files_limit};

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    raise_open_files_limit()?;
    let reader = bind()?;
    reader.set_read_timeout(Some(READ_TIMEOUT))?;
    let reader_core = (options.core + 1) % thread::available_parallelism()?.get();
    let is_done = AtomicBool::new(false);
    let received = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            // If the system refuses, the figures are valid but noisier.
            pin_to_core(reader_core).ok();
            drain(&reader, &is_done, &received);
        });
        let result = pin_to_core(options.core)
            .map_err(Into::into)
            .and_then(|()| measure_all(&options, &reader, &received));
        is_done.store(true, Ordering::Relaxed);
        let cases = result?;
        if options.json {
            print_json(&options, &cases);
        } else {
            print_table(&options, &cases);
        }
        Ok(())
    })
}

fn measure_all(
    options: &Options,
    reader: &UdpSocket,
    received: &AtomicU64,
) -> Result<Vec<Figures>, Box<dyn Error>> {
    let unread = (0..options.destinations)
        .map(|_| bind())
        .collect::<io::Result<Vec<_>>>()?;
    for socket in &unread {
        shrink_receive_buffer(socket)?;
    }
    let mut sender = Sender::new(options, &unread, reader, received)?;
    let mut cases: Vec<Figures> = Case::ALL.map(Figures::new).into();
    for figures in &cases {
        sender.run(figures.case, options.seconds.min(WARM_UP))?;
    }
    for _ in 0..options.rounds {
        for figures in &mut cases {
            let run = sender.run(figures.case, options.seconds)?;
            figures.nanoseconds.push(run.nanoseconds_per_packet());
            figures.core_share.push(run.core_share());
            figures.packets += run.packets;
            figures.unread += run.unread;
        }
    }
    for figures in &mut cases {
        figures.nanoseconds.sort_by(f64::total_cmp);
        figures.core_share.sort_by(f64::total_cmp);
    }
    Ok(cases)
}

/// The results of one case, one per round, sorted at the end.
struct Figures {
    case: Case,
    nanoseconds: Vec<f64>,
    core_share: Vec<f64>,
    packets: u64,
    /// Packets that the draining thread did not receive in time.
    unread: u64,
}

impl Figures {
    fn new(case: Case) -> Self {
        Self {
            case,
            nanoseconds: Vec::new(),
            core_share: Vec::new(),
            packets: 0,
            unread: 0,
        }
    }

    fn lowest(&self) -> f64 {
        self.nanoseconds[0]
    }

    fn median(&self) -> f64 {
        self.nanoseconds[self.nanoseconds.len() / 2]
    }

    fn highest(&self) -> f64 {
        self.nanoseconds[self.nanoseconds.len() - 1]
    }

    /// Returns the lowest share of the core in any round.
    fn core_share(&self) -> f64 {
        self.core_share[0]
    }
}

fn print_table(options: &Options, cases: &[Figures]) {
    let Options {
        bytes,
        destinations,
        rounds,
        core,
        ..
    } = options;
    println!(
        "{bytes} bytes of UDP payload, {destinations} destinations and keys, {rounds} rounds of \
         {:.1} s per case, on core {core}",
        options.seconds.as_secs_f64(),
    );
    println!("CPU time of the sending thread, ns per packet:\n");
    println!("  {:<26}  median  lowest  highest", "");
    for figures in cases {
        println!(
            "  {:<26}  {:>6.0}  {:>6.0}  {:>7.0}",
            figures.case.name,
            figures.median(),
            figures.lowest(),
            figures.highest(),
        );
        if figures.unread > 0 {
            println!("    {} of these packets were dropped", figures.unread);
        }
    }
    println!("\nfloor: {:.0} ns per datagram", floor(cases));
    let core_share = core_share(cases);
    println!(
        "the core was this program's for at least {:.0} % of each measurement{}",
        core_share * 100.0,
        if core_share < QUIET_CORE_SHARE {
            ": the machine was not quiet"
        } else {
            ""
        }
    );
}

fn print_json(options: &Options, cases: &[Figures]) {
    let cases_json: Vec<String> = cases
        .iter()
        .map(|figures| {
            format!(
                r#"{{"case":"{}","median_ns":{:.1},"lowest_ns":{:.1},"highest_ns":{:.1},"packets":{},"dropped":{}}}"#,
                figures.case.name,
                figures.median(),
                figures.lowest(),
                figures.highest(),
                figures.packets,
                figures.unread,
            )
        })
        .collect();
    println!(
        r#"{{"floor_ns":{:.1},"bytes":{},"destinations":{},"rounds":{},"seconds":{},"core":{},"core_share":{:.3},"cases":[{}]}}"#,
        floor(cases),
        options.bytes,
        options.destinations,
        options.rounds,
        options.seconds.as_secs_f64(),
        options.core,
        core_share(cases),
        cases_json.join(","),
    );
}

/// Returns the median of the reference case, in ns.
fn floor(cases: &[Figures]) -> f64 {
    let floor = cases.iter().find(|figures| figures.case == Case::FLOOR);
    floor.expect("the floor is one of the cases").median()
}

/// Returns the lowest share of the core in any measurement.
fn core_share(cases: &[Figures]) -> f64 {
    cases
        .iter()
        .map(Figures::core_share)
        .fold(1.0, |lowest, share| share.min(lowest))
}

/// CPU time of each case before the first round, which fills queues and caches.
const WARM_UP: Duration = Duration::from_millis(100);
/// Below this share of the core, other processes were running on it.
const QUIET_CORE_SHARE: f64 = 0.97;
