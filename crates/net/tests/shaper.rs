//! A slow link between loopback sockets: which packets pass, and when.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    net::{SocketAddr, UdpSocket},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use weir_link::{Bitrate, Config, Delay, Loss, Probability, Queue, Rate};
use weir_net::{Shaper, ShaperConfig, ShaperReport, Stop, clock};

/// A shaper on its own thread.
struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<ShaperReport>,
}

impl Running {
    fn start(target: &UdpSocket, change: impl FnOnce(&mut ShaperConfig)) -> Self {
        let mut config = ShaperConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            target: target.local_addr().unwrap(),
            up: Config::default(),
            down: Config::default(),
            steps: Vec::new(),
            start: None,
            seed: 7,
            clients_max: 100,
        };
        change(&mut config);
        let mut shaper = Shaper::bind(config).unwrap();
        let stop = Stop::new().unwrap();
        let address = shaper.local_address().unwrap();
        let asked = stop.clone();
        let name = thread::Builder::new().name("shaper".to_owned());
        let thread = name.spawn(move || shaper.run(&asked).unwrap()).unwrap();
        Self {
            address,
            stop,
            thread,
        }
    }

    fn end(self) -> ShaperReport {
        self.stop.request();
        self.thread.join().unwrap()
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Only a test that hangs waits for this long.
    let patience = Duration::from_mins(5);
    socket.set_read_timeout(Some(patience)).unwrap();
    socket
}

/// Returns the next packet and its sender.
fn next(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2000];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..length].to_vec(), from)
}

#[test]
fn clients_keep_apart_and_get_their_own_answers() {
    let (server, one, other) = (socket(), socket(), socket());
    let shaper = Running::start(&server, |_| {});
    one.send_to(b"one", shaper.address).unwrap();
    let (data, from_one) = next(&server);
    assert_eq!(data, b"one");
    other.send_to(b"other", shaper.address).unwrap();
    let (data, from_other) = next(&server);
    assert_eq!(data, b"other");
    assert_ne!(from_one, from_other);
    server.send_to(b"to the other", from_other).unwrap();
    server.send_to(b"to the one", from_one).unwrap();
    assert_eq!(next(&one), (b"to the one".to_vec(), shaper.address));
    assert_eq!(next(&other), (b"to the other".to_vec(), shaper.address));
    let report = shaper.end();
    assert_eq!((report.clients, report.packets_refused), (2, 0));
    assert_eq!((report.up.delivered, report.down.delivered), (2, 2));
}

#[test]
fn one_client_more_than_there_is_room_for_is_dropped_and_counted() {
    let (server, one, other) = (socket(), socket(), socket());
    let shaper = Running::start(&server, |config| config.clients_max = 1);
    one.send_to(b"one", shaper.address).unwrap();
    assert_eq!(next(&server).0, b"one");
    other.send_to(b"other", shaper.address).unwrap();
    one.send_to(b"two", shaper.address).unwrap();
    assert_eq!(next(&server).0, b"two", "the first has its place");
    let report = shaper.end();
    assert_eq!((report.clients, report.packets_refused), (1, 1));
}

#[test]
fn rate_queue_and_delay_are_those_of_the_link() {
    // All packets must arrive before the first may leave, so a busy machine gets more time for it.
    let times = [200, 1000, 10_000, 60_000].map(Duration::from_millis);
    assert!(times.into_iter().any(is_link_obeyed), "they never were");
}

/// Sends more packets than the queue accepts, of which none leaves before `hold` is over, and checks their fate.
/// Returns false if they did not all arrive in that time.
fn is_link_obeyed(hold: Duration) -> bool {
    let (server, client) = (socket(), socket());
    let start = clock::now();
    let shaper = Running::start(&server, |config| {
        config.down.delay = Delay::fixed(Duration::from_millis(50)).unwrap();
        config.down.queue = Queue {
            bytes_max: 10_000,
            packets_max: 1000,
        };
        // At 100 kbit/s, a packet of 1000 bytes with its headers takes 82 ms.
        let rate = Rate::Fixed(Bitrate::from_kilobits_per_second(100));
        config.start = Some(start);
        config.steps = vec![(Duration::ZERO, Rate::Fixed(Bitrate::ZERO)), (hold, rate)];
    });
    client.send_to(b"hello", shaper.address).unwrap();
    let (_, from) = next(&server);
    for number in 0..20 {
        server.send_to(&[number; 1000], from).unwrap();
    }
    // The shaper reads everything available before it forwards anything.
    client.send_to(b"all is sent", shaper.address).unwrap();
    next(&server);
    if clock::now() - start >= hold {
        shaper.end();
        return false;
    }
    // One packet is being sent, nine are queued.
    for number in 0..10 {
        assert!(next(&client).0 == [number; 1000], "in their order");
    }
    let took = clock::now() - start;
    let report = shaper.end();
    // Not earlier than the link permits. How much later depends on the machine.
    let least = hold + Duration::from_millis(10 * 82 + 50);
    assert!(took >= least, "{took:?}");
    assert_eq!(report.down.delivered, 10);
    assert_eq!(report.down.dropped_queue_bytes, 10);
    assert!(report.down.queue_bytes_peak <= 10_000);
    true
}

#[test]
fn equal_seeds_lose_equal_packets() {
    let lost = |seed: u64| {
        let (server, client) = (socket(), socket());
        let shaper = Running::start(&server, |config| {
            config.seed = seed;
            config.up.loss = Loss::Independent(Probability::new(0.5).unwrap());
        });
        for number in 0..100_u8 {
            client.send_to(&[number], shaper.address).unwrap();
        }
        // A marker shows that the packets before it have passed. It is sometimes lost too.
        let mut arrived = Vec::new();
        let short = Duration::from_millis(50);
        server.set_read_timeout(Some(short)).unwrap();
        let mut buffer = [0; 10];
        let mut markers = 0;
        while arrived.last() != Some(&MARKER) {
            if server.recv(&mut buffer).is_ok() {
                arrived.push(buffer[0]);
            } else {
                client.send_to(&[MARKER], shaper.address).unwrap();
                markers += 1;
                assert!(markers < 6000, "nothing has come for minutes");
            }
        }
        arrived.pop();
        let report = shaper.end();
        let offered = report.up.offered;
        assert!((101..=100 + markers).contains(&offered), "{offered}");
        let delivered = report.up.delivered - arrived.len() as u64;
        assert!((1..=markers).contains(&delivered), "{delivered}");
        arrived
    };
    let first = lost(1);
    assert_eq!(first, lost(1));
    assert_ne!(first, lost(2));
    assert!((25..75).contains(&first.len()), "{}", first.len());
}

/// A number that no counted packet has.
const MARKER: u8 = 255;

#[test]
fn the_rate_follows_its_steps() {
    let (server, client) = (socket(), socket());
    let start = clock::now();
    let shaper = Running::start(&server, |config| {
        config.start = Some(start);
        config.steps = vec![
            (Duration::ZERO, Rate::Fixed(Bitrate::ZERO)),
            (Duration::from_millis(400), Rate::Unlimited),
        ];
    });
    client.send_to(b"hello", shaper.address).unwrap();
    let (_, from) = next(&server);
    server.send_to(b"late", from).unwrap();
    assert_eq!(next(&client).0, b"late");
    let held = |since: Instant| clock::now() - since;
    assert!(held(start) >= Duration::from_millis(400));
    shaper.end();
}
