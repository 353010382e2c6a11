//! The cost of a datagram with nothing but the QUIC engine and the host: a server sends each of its connections a
//! datagram every 20 ms, as the relay does with audio, but without a relay. The relay's cost is also expressed as a
//! multiple of this one.
//!
//! ```text
//! cargo bench -p weir-net --bench engine -- [--connections N] [--seconds S] [--bytes N]
//!     [--core N] [--json]
//! ```
//!
//! The result is CPU time of the server's thread per datagram that a client received. It includes what the relay's
//! includes: acknowledgements, timers, wake-ups and, on the loopback interface, the kernel's receive path. All clients
//! share one socket and one thread, on the next core.

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that prints figures"
)]

#[path = "../arguments/mod.rs"]
mod arguments;
mod options;
mod roles;

use std::{error::Error, io, net::SocketAddr, sync::Arc, thread};

use clap::Parser as _;
use options::Options;
use roles::{Clients, Server, Tally};
use weir_net::{
    Host, HostConfig, SocketConfig, Stop, UdpSocket, certificate::Certificate, clock, pin_to_core,
};
use weir_quic::{
    App, ClientConfig, Endpoint, EndpointConfig, Limits, Packets,
    tls::{ClientTls, ServerTls, Trust},
};

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let made = Certificate::self_made(&["localhost".to_owned()])?;
    let tls = ServerTls::new(made.chain, made.key, &[roles::PROTOCOL])?;
    let client = ClientConfig {
        tls: ClientTls::new(Trust::Anyone, &[roles::PROTOCOL])?,
        web_transport: None,
    };
    let tally = Arc::new(Tally::default());
    let stop = Stop::new()?;
    let socket = bind()?;
    let address = socket.local_address()?;
    let mut server = Server::new(&options, Arc::clone(&tally), stop.clone());
    let mut clients = Clients::new(address, client, options.connections, Arc::clone(&tally));
    let client_core = (options.core + 1) % thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let crowd = thread::Builder::new().spawn_scoped(scope, || {
            run(bind()?, None, client_core, stop.clone(), &mut clients)
        })?;
        let served = run(socket, Some(tls), options.core, stop.clone(), &mut server);
        stop.request();
        let received = crowd.join().map_err(|_| "the clients' thread panicked")?;
        served.and(received).map_err(Box::<dyn Error>::from)
    })?;
    report(&options, &server.figures()?);
    Ok(())
}

fn bind() -> io::Result<UdpSocket> {
    UdpSocket::bind(
        SocketAddr::from(([127, 0, 0, 1], 0)),
        SocketConfig::default(),
    )
}

/// Runs a role on the calling thread, with the relay's default pause between turns.
fn run(
    socket: UdpSocket,
    server: Option<ServerTls>,
    core: usize,
    stop: Stop,
    app: &mut dyn App,
) -> io::Result<()> {
    // If the system refuses, the figures are valid but noisier.
    pin_to_core(core).ok();
    let endpoint = Endpoint::new(EndpointConfig {
        limits: Limits::default(),
        segmentation_offload: server.is_some() && socket.has_segmentation(),
        handshake_counts: weir_quic::OriginCounts::default(),
        server,
        seed: [7; 32],
        time_source: Arc::new(clock::SystemClock),
        qlog: None,
        packets: Packets::default(),
    })
    .map_err(io::Error::other)?;
    let config = HostConfig {
        receive_pause: roles::REST,
        ..HostConfig::default()
    };
    Host::new(config, vec![socket], endpoint, Arc::default(), stop)?.run(app)
}

fn report(options: &Options, figures: &roles::Figures) {
    let &roles::Figures {
        cpu,
        wall,
        sent,
        received,
    } = figures;
    let engine_ns = cpu.as_secs_f64() * 1e9 / received as f64;
    let share = cpu.as_secs_f64() / wall.as_secs_f64();
    let Options {
        connections, bytes, ..
    } = options;
    if options.json {
        println!(
            r#"{{"engine_ns":{engine_ns:.1},"connections":{connections},"bytes":{bytes},"sent":{sent},"received":{received},"cpu_share":{share:.4},"seconds":{:.1}}}"#,
            wall.as_secs_f64(),
        );
    } else {
        println!(
            "{connections} connections, a datagram of {bytes} bytes to each every {} ms, for {:.1} s: {sent} sent, \
             {received} received",
            roles::INTERVAL.as_millis(),
            wall.as_secs_f64(),
        );
        println!(
            "engine: {engine_ns:.0} ns per datagram, {:.1} % of the core",
            share * 100.0
        );
    }
}
