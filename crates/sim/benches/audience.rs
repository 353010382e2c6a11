//! The speed of virtual time: 200 subscribers receive a datagram every 20 ms for 35 seconds.

#[path = "../tests/sim/audience.rs"]
mod audience;

use std::time::{Duration, Instant};

use weir_sim::Sim;

use crate::audience::{Seats, received, speech};

fn main() {
    for _ in 0..3 {
        run("one node", Seats::Together);
        run("one node, own sockets", Seats::OwnSockets);
        run("own nodes", Seats::OwnNodes);
    }
}

#[expect(clippy::print_stdout, reason = "the figures are what a bench is for")]
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn run(name: &str, seats: Seats) {
    let begin = Instant::now();
    let mut sim = Sim::new(1);
    let listeners = speech(&mut sim, 200, seats, 1750);
    sim.run_until(Duration::from_secs(37), |_| false);
    let received = received(&sim, &listeners);
    let real = begin.elapsed();
    let each = real / u32::try_from(received).expect("no more than were sent");
    println!(
        "{name}: {received} datagrams in {real:.2?}, {each:.2?} each; {} packets, hash {:016x}",
        sim.traffic().sent,
        sim.trace_hash()
    );
}
