//! The link emulator, as a host sees it.

mod chances;
mod changes;
mod properties;
mod rate;

use std::time::{Duration, Instant};

use weir_link::{Bitrate, Config, Delay, Link, Rate};

/// The packets that arrived, and when.
type Deliveries = Vec<(Duration, u64)>;

/// A link of numbered packets, with times counted from its start.
struct Story {
    start: Instant,
    link: Link<u64>,
    deliveries: Deliveries,
}

impl Story {
    #[expect(
        clippy::disallowed_methods,
        reason = "a story needs some time to count from"
    )]
    fn new(config: Config, seed: u64) -> Self {
        let start = Instant::now();
        Self {
            start,
            link: Link::new(start, config, seed),
            deliveries: Vec::new(),
        }
    }

    fn at(&self, elapsed: Duration) -> Instant {
        self.start + elapsed
    }

    /// Sends a packet, after taking the packets that are due before.
    fn send(&mut self, elapsed: Duration, packet: u64, size_bytes: usize) {
        self.run_until(elapsed);
        self.link
            .handle_packet(self.at(elapsed), packet, size_bytes);
    }

    /// Polls up to `end`, each time when the link asks for it.
    fn run_until(&mut self, end: Duration) {
        while let Some(at) = self.link.poll_timeout().filter(|at| *at <= self.at(end)) {
            while let Some(packet) = self.link.poll_packet(at) {
                self.deliveries.push((at - self.start, packet));
            }
        }
    }

    /// Runs until the link is idle. Returns what arrived.
    fn finish(mut self) -> Deliveries {
        self.run_until(Duration::from_secs(1_000_000));
        self.deliveries
    }
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const fn kilobits(kilobits: u32) -> Rate {
    Rate::Fixed(Bitrate::from_kilobits_per_second(kilobits))
}

fn delay(base: Duration) -> Delay {
    Delay::fixed(base).expect("a short delay")
}

#[test]
fn a_perfect_link_gives_packets_back_at_once() {
    let mut story = Story::new(Config::default(), 0);
    for packet in 0..3 {
        story.send(millis(7), packet, 1200);
    }
    assert_eq!(
        story.finish(),
        [(millis(7), 0), (millis(7), 1), (millis(7), 2)]
    );
}

#[test]
fn a_delay_alone_lets_any_number_of_packets_travel() {
    let config = Config {
        delay: delay(millis(50)),
        ..Config::default()
    };
    let mut story = Story::new(config, 0);
    for packet in 0..1000 {
        story.send(micros(packet), packet, 1200);
    }
    assert_eq!(story.link.packets_inside(), 1000);
    let deliveries = story.finish();
    assert_eq!(deliveries.len(), 1000);
    assert!(
        deliveries
            .iter()
            .all(|(at, packet)| *at == millis(50) + micros(*packet))
    );
}

#[test]
fn a_link_that_is_polled_late_gives_the_same_packets_in_the_same_order() {
    let config = Config {
        rate: kilobits(800),
        delay: delay(millis(20)),
        ..Config::default()
    };
    let mut story = Story::new(config, 0);
    for packet in 0..10 {
        story
            .link
            .handle_packet(story.at(millis(packet)), packet, 1000);
    }
    // Ten milliseconds each: by 65 ms four packets have been sent and have arrived.
    let polled = |story: &mut Story, at| {
        let at = story.at(at);
        std::iter::from_fn(|| story.link.poll_packet(at)).collect::<Vec<u64>>()
    };
    assert_eq!(polled(&mut story, millis(65)), [0, 1, 2, 3]);
    assert_eq!(polled(&mut story, millis(120)), [4, 5, 6, 7, 8, 9]);
    assert_eq!(story.link.poll_timeout(), None);
}

#[test]
fn a_time_that_runs_backwards_counts_as_the_latest() {
    let config = Config {
        rate: kilobits(8),
        ..Config::default()
    };
    let mut story = Story::new(config, 0);
    story.link.handle_packet(story.at(millis(500)), 0, 100);
    story.link.handle_packet(story.at(millis(400)), 1, 100);
    story.run_until(millis(900));
    assert_eq!(story.link.poll_packet(story.at(millis(900))), None);
    story.link.handle_packet(story.at(millis(800)), 2, 100);
    let expected = [(600, 0), (700, 1), (1000, 2)].map(|(at, packet)| (millis(at), packet));
    assert_eq!(story.finish(), expected);
}
