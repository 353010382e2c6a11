//! Clients whose address changes, at a relay of two threads.

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;
use weir_net::clock;

use crate::process::{Folder, Relay, weir};

/// Objects in datagrams and in streams, every 20 ms, for three seconds.
const PROFILE: &str = "[audio]
namespace = perf
name = 1
track_mode = datagram
mode = 3
priority = 2
ttl = 5000
time_interval = 20
objects_per_group = 1
first_object_size = 120
object_size = 120
start_delay = 1500
total_transmit_time = 3000

[video]
namespace = perf
name = 2
track_mode = stream
mode = 3
priority = 3
ttl = 5000
time_interval = 20
objects_per_group = 50
first_object_size = 1000
object_size = 300
start_delay = 1500
total_transmit_time = 3000
";

/// A proxy between clients and a relay that changes its address towards the relay every second. Packets to old addresses are
/// forwarded too.
struct Nat {
    address: SocketAddr,
    moves: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Nat {
    fn before(relay: SocketAddr) -> Self {
        let inner = bind();
        let address = inner.local_addr().unwrap();
        let (moves, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, ends) = (Arc::clone(&moves), Arc::clone(&is_over));
        #[expect(
            clippy::disallowed_methods,
            reason = "a wire of the program under test"
        )]
        let thread = thread::spawn(move || {
            // The sockets towards the relay for each client; the last one is in use.
            let mut clients: Vec<(SocketAddr, Vec<UdpSocket>)> = Vec::new();
            let (mut begin, mut packet) = (clock::now(), vec![0; 65536]);
            while !ends.load(Ordering::Relaxed) {
                if clock::now() - begin > Duration::from_secs(1) {
                    begin = clock::now();
                    for (_, outer) in &mut clients {
                        outer.push(bind());
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
                let mut is_idle = true;
                while let Ok((size, from)) = inner.recv_from(&mut packet) {
                    is_idle = false;
                    let known = clients.iter().position(|(client, _)| *client == from);
                    let place = known.unwrap_or_else(|| {
                        clients.push((from, vec![bind()]));
                        clients.len() - 1
                    });
                    if let Some(current) = clients[place].1.last() {
                        drop(current.send_to(&packet[..size], relay));
                    }
                }
                for (client, outer) in &clients {
                    for socket in outer {
                        while let Ok((size, _)) = socket.recv_from(&mut packet) {
                            is_idle = false;
                            drop(inner.send_to(&packet[..size], client));
                        }
                    }
                }
                if is_idle {
                    thread::sleep(Duration::from_micros(300));
                }
            }
        });
        Self {
            address,
            moves,
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn bind() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Returns how many packets the kernel has dropped so far because a UDP socket's receive buffer was full.
fn dropped_packets() -> u64 {
    let text = fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|name| name == "RcvbufErrors");
    let value = values.split(' ').nth(place.unwrap());
    value.unwrap().parse().unwrap()
}

/// Datagrams of the profile that fit into a packet of 1,452 bytes.
const DATAGRAMS_PER_PACKET_MAX: u64 = 1452 / 120;

#[test]
fn clients_whose_address_changes_lose_nothing_at_a_relay_of_two_threads() {
    let folder = Folder::new("moving");
    let (profile, report) = (
        folder.write("profile.ini", PROFILE),
        folder.file("report.json"),
    );
    let mut relay = Relay::start(&["--threads", "2"]);
    let nat = Nat::before(relay.address());
    let url = format!("moqt://{}", nat.address);
    let (begin, dropped_before): (Instant, u64) = (clock::now(), dropped_packets());
    let arguments = [
        "bench",
        &profile,
        "--relay",
        &url,
        "--insecure",
        "--subscribers=30",
        "--slo=failed=0",
        "--json",
        &report,
    ];
    let output = weir(&arguments);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(clock::now() - begin > Duration::from_secs(3));
    assert!(
        nat.moves.load(Ordering::Relaxed) >= 6,
        "the address changed"
    );
    let report = fs::read_to_string(report).unwrap_or_else(|_| panic!("{shown}{said}"));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        report["slo"]["first_broken"],
        Value::Null,
        "{}",
        report["slo"]
    );
    let tracks = report["tracks"].as_array().unwrap();
    let lost = |track: &Value| track["completion"]["lost_objects"]["sum"].as_u64().unwrap();
    let (datagrams, streams) = (lost(&tracks[0]), lost(&tracks[1]));
    assert_eq!(streams, 0, "{tracks:?}");
    // On a busy machine, a thread may have no time while its socket's buffer fills. Streams repeat what the kernel then drops.
    let dropped = dropped_packets() - dropped_before;
    assert!(
        datagrams <= dropped * DATAGRAMS_PER_PACKET_MAX,
        "{datagrams} lost, {dropped} packets dropped by the kernel: {tracks:?}"
    );
    // On a busy machine, the generator may have missed its schedule.
    let is_healthy = report["generator"]["healthy"] == true;
    assert_eq!(output.status.code() == Some(0), is_healthy, "{shown}{said}");
    drop(nat);
    relay.signal("TERM");
    assert_eq!(relay.wait().0, Some(0));
}
