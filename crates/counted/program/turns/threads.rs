//! Scenes of two threads of one relay: what one of them does with the messages of the other.

use std::time::Duration;

use weir_quic::{Limits, Shard};
use weir_relay::{Config, Relay};

use super::{
    Scene, note,
    stage::{Stage, Struck},
};

/// What one packet for a thread makes another one do.
pub(crate) fn of_one_relay() -> Scene {
    objects()?;
    requests()
}

/// One track with subscribers on another thread, and many tracks.
fn objects() -> Scene {
    let mut threads = Threads::new();
    let publisher = threads.stages[0].client();
    for track in 0..TRACKS {
        threads.stages[0].publish(publisher, &format!("a--{track}"), track);
    }
    threads.settle();
    let subscribers = threads.stages[1].clients(SUBSCRIBERS);
    for &client in &subscribers {
        threads.stages[1].subscribe(client, "a--0");
    }
    for track in 1..TRACKS {
        threads.stages[1].subscribe(subscribers[0], &format!("a--{track}"));
    }
    threads.settle();
    let subscriptions = threads.stages[1].gauges().subscriptions;
    assert_eq!(subscriptions, SUBSCRIBERS as u64 + TRACKS - 1);
    for group in 0..STREAMS {
        threads.stages[0].subgroup(publisher, 0, group);
    }
    note("subgroups-of-another-thread", 1, threads.strike(0))?;
    threads.settle();
    for group in 0..STREAMS {
        threads.stages[0].datagram(publisher, 0, 1000 + group);
    }
    note("datagrams-of-another-thread", 1, threads.strike(0))?;
    threads.settle();
    let sent = threads.stages[1].counters();
    assert_eq!(sent.datagrams_sent, SUBSCRIBERS as u64 * STREAMS);
    assert_eq!(sent.streams_sent, SUBSCRIBERS as u64 * STREAMS);
    threads.stages[1].leave(subscribers[0]);
    note(
        "end-of-120-subscriptions-of-another-thread",
        1,
        threads.strike(1),
    )?;
    threads.settle();
    threads.stages[0].leave(publisher);
    note("end-of-120-tracks-of-another-thread", 1, threads.strike(0))
}

/// Many requests that wait on another thread.
fn requests() -> Scene {
    let mut threads = Threads::new();
    let clients = threads.stages[1].clients(SESSIONS);
    for (session, &client) in clients.iter().enumerate() {
        for number in 0..TRACKS {
            let track = format!("w-{session}--{number}");
            threads.stages[1].subscribe(client, &track);
        }
    }
    threads.settle();
    let waiting = threads.stages[1].gauges().tracks;
    assert_eq!(waiting, SESSIONS as u64 * TRACKS);
    let hostile = threads.stages[0].client();
    for session in 0..AT_ONCE {
        threads.stages[0].announce(hostile, &format!("w-{session}"));
    }
    note("announcements-of-another-thread", 1, threads.strike(0))?;
    threads.settle();
    threads.stages[0].leave(hostile);
    note(
        "end-of-announcements-of-another-thread",
        1,
        threads.strike(0),
    )?;
    threads.settle();
    let hostile = threads.stages[0].client();
    threads.settle();
    for number in 0..AT_ONCE {
        let track = format!("w-1--{number}");
        threads.stages[0].publish(hostile, &track, number as u64);
    }
    note("publications-of-another-thread", 1, threads.strike(0))
}

/// Two threads, each with clients of its own.
struct Threads {
    stages: [Stage; 2],
}

impl Threads {
    fn new() -> Self {
        let stages = [0, 1].map(|index| {
            let shard = Shard::new(index, 2).expect("there are two");
            Stage::with(Relay::new(Config::default()), shard, &Limits::default())
        });
        let mut threads = Self { stages };
        threads.settle();
        threads
    }

    /// Lets everything come to rest on both threads.
    fn settle(&mut self) {
        loop {
            for stage in &mut self.stages {
                stage.settle();
            }
            let has_crossed = [0, 1].map(|from| self.cross(from));
            if has_crossed == [false, false] {
                return;
            }
        }
    }

    /// Delivers the one packet that the clients of a thread have to send, and counts the turns of the other thread that
    /// come of it.
    fn strike(&mut self, from: u16) -> Struck {
        self.stages[usize::from(from)].take_packet();
        assert!(self.cross(from), "nothing crosses");
        self.stages[usize::from(1 - from)].overdue(Duration::from_millis(20))
    }

    /// Delivers the messages of one thread to the other. Returns whether there were any.
    fn cross(&mut self, from: u16) -> bool {
        let to = 1 - from;
        let messages = self.stages[usize::from(from)].take_messages(to);
        let has_crossed = !messages.is_empty();
        self.stages[usize::from(to)].accept_messages(from, messages);
        has_crossed
    }
}

const SUBSCRIBERS: usize = 100;
const TRACKS: u64 = 120;
/// Objects in one packet.
const STREAMS: u64 = 50;
/// Sessions that wait for so many tracks each.
const SESSIONS: usize = 80;
/// Requests in one packet.
const AT_ONCE: usize = 60;
