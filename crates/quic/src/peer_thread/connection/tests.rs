//! Tests of two ends whose messages the test delivers.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use weir_transport::{Direction, Read, StreamId, WriteError};

use super::*;

fn origin() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's origin of time; its value is unused"
    )]
    Instant::now()
}

/// Two ends, and the events of their roles.
struct Pair {
    now: Instant,
    ends: [ThreadConnection; 2],
    events: [VecDeque<Event>; 2],
}

const LIMITS: ThreadLimits = ThreadLimits {
    bytes_max: 4000,
    stream_bytes_max: 2000,
    datagram_bytes_max: 1000,
    streams_max: 3,
    strays_max: 2,
};

impl Pair {
    fn new() -> Self {
        Self {
            now: origin(),
            ends: [
                ThreadConnection::new(0, 1, 0, LIMITS),
                ThreadConnection::new(1, 0, 0, LIMITS),
            ],
            events: Default::default(),
        }
    }

    /// Delivers the messages of one end; returns their number.
    fn carry(&mut self, from: usize) -> usize {
        let messages: Vec<_> = self.ends[from].messages().drain(..).collect();
        let count = messages.len();
        for ThreadMessage(content) in messages {
            let (to, events) = (&mut self.ends[1 - from], &mut self.events[1 - from]);
            to.handle_message(self.now, content, events);
        }
        count
    }

    fn settle(&mut self) {
        while self.carry(0) + self.carry(1) > 0 {}
    }

    fn open(&mut self, end: usize, direction: Direction) -> StreamId {
        self.ends[end].open(direction).unwrap()
    }

    fn write(&mut self, end: usize, stream: StreamId, len: usize) -> Result<(), WriteError> {
        let mut data = Bytes::from(vec![7; len]);
        self.ends[end].write(stream, &mut data)
    }

    fn read(&mut self, end: usize, stream: StreamId) -> Read {
        self.ends[end].read(stream, &mut self.events[end])
    }

    /// Reads until no more data comes; returns the number of bytes and the last result.
    fn read_all(&mut self, end: usize, stream: StreamId) -> (usize, Read) {
        let mut bytes = 0;
        loop {
            match self.read(end, stream) {
                Read::Data(data) => bytes += data.len(),
                end @ (Read::Fin | Read::Reset(_) | Read::Blocked) => return (bytes, end),
            }
        }
    }

    /// Returns the names of the events since the last call.
    fn heard(&mut self, end: usize) -> Vec<String> {
        let name = |event: Event| {
            let text = format!("{event:?}");
            text.split(' ').next().unwrap_or_default().to_owned()
        };
        self.events[end].drain(..).map(name).collect()
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        for end in [0, 1] {
            self.ends[end].handle_timeout(self.now, &mut self.events[end]);
        }
    }
}

#[test]
fn a_stream_arrives_whole_and_is_forgotten_on_both_sides() {
    let mut pair = Pair::new();
    let stream = pair.open(0, Direction::Uni);
    pair.write(0, stream, 10).unwrap();
    pair.write(0, stream, 20).unwrap();
    pair.ends[0].finish(stream);
    pair.ends[0].finish(stream);
    assert_eq!(pair.write(0, stream, 1), Err(WriteError::Closed));
    assert_eq!(pair.carry(0), 3);
    assert_eq!(pair.heard(1), ["Opened", "Readable"]);
    assert_eq!(pair.read_all(1, stream), (30, Read::Fin));
    assert_eq!(pair.read(1, stream), Read::Blocked);
    assert_eq!(pair.carry(1), 0, "the end is reported with something else");
    pair.ends[1].send_datagram(Bytes::from_static(b"x"));
    pair.settle();
    assert_eq!(pair.heard(0), ["Datagram"]);
    assert_eq!(
        (pair.ends[0].streams.len(), pair.ends[1].streams.len()),
        (0, 0)
    );
}

#[test]
fn both_sides_of_a_request_are_answered_and_end_alone() {
    let mut pair = Pair::new();
    let stream = pair.open(1, Direction::Bi);
    assert_eq!(stream, StreamId(1));
    pair.write(1, stream, 5).unwrap();
    pair.settle();
    assert_eq!(pair.heard(0), ["Opened", "Readable"]);
    pair.write(0, stream, 6).unwrap();
    pair.ends[0].finish(stream);
    pair.settle();
    assert_eq!(pair.heard(1), ["Readable"]);
    assert_eq!(pair.read_all(1, stream), (6, Read::Fin));
    pair.ends[1].reset(stream, 9);
    pair.settle();
    assert_eq!(
        pair.read_all(0, stream),
        (5, Read::Reset(9)),
        "a reset takes nothing that was written before"
    );
    pair.ends[0].send_datagram(Bytes::new());
    pair.ends[1].send_datagram(Bytes::new());
    pair.settle();
    assert_eq!(
        (pair.ends[0].streams.len(), pair.ends[1].streams.len()),
        (0, 0)
    );
}

#[test]
fn a_stream_takes_its_window_and_not_a_byte_more_until_it_is_read() {
    let mut pair = Pair::new();
    let stream = pair.open(0, Direction::Uni);
    let room = LIMITS.stream_bytes_max - MESSAGE_CHARGE;
    pair.write(0, stream, room).unwrap();
    assert_eq!(pair.write(0, stream, 1), Err(WriteError::Blocked));
    pair.carry(0);
    pair.carry(1);
    assert_eq!(pair.heard(0), [""; 0], "nothing was read");
    assert_eq!(pair.read_all(1, stream), (room, Read::Blocked));
    assert_eq!(pair.carry(1), 1, "much was read, so it is reported at once");
    assert_eq!(pair.heard(0), ["Writable"]);
    pair.write(0, stream, 1).unwrap();
}

#[test]
fn what_does_not_fit_stays_with_the_writer() {
    let mut pair = Pair::new();
    let stream = pair.open(0, Direction::Uni);
    let mut data = Bytes::from(vec![1; 3000]);
    let room = LIMITS.stream_bytes_max - MESSAGE_CHARGE;
    assert_eq!(
        pair.ends[0].write(stream, &mut data),
        Err(WriteError::Blocked)
    );
    assert_eq!(data.len(), 3000 - room);
}

#[test]
fn all_streams_share_a_window_and_all_that_were_refused_are_woken() {
    let mut pair = Pair::new();
    let streams = [0; 3].map(|_| pair.open(0, Direction::Uni));
    let room = LIMITS.bytes_max / 2 - MESSAGE_CHARGE;
    pair.write(0, streams[0], room).unwrap();
    pair.write(0, streams[1], room).unwrap();
    assert_eq!(pair.write(0, streams[2], 1), Err(WriteError::Blocked));
    assert_eq!(pair.write(0, streams[1], 1), Err(WriteError::Blocked));
    pair.carry(0);
    pair.read_all(1, streams[0]);
    pair.read_all(1, streams[1]);
    pair.carry(1);
    assert_eq!(pair.heard(0), ["Writable", "Writable"]);
    pair.write(0, streams[2], 1).unwrap();
}

/// Many small reads, none of which is worth a report, must not use up the window.
#[test]
fn small_reads_are_reported_in_time() {
    let mut pair = Pair::new();
    let stream = pair.open(0, Direction::Uni);
    for _ in 0..1000 {
        pair.write(0, stream, 1).unwrap();
        pair.carry(0);
        pair.read_all(1, stream);
        pair.carry(1);
    }
}

#[test]
fn streams_are_bounded_and_make_room_when_they_are_over() {
    let mut pair = Pair::new();
    for direction in [Direction::Uni, Direction::Bi] {
        let streams = [0; 3].map(|_| pair.open(0, direction));
        assert_eq!(pair.ends[0].open(direction), None);
        pair.ends[0].finish(streams[0]);
        pair.ends[0].stop(streams[0], 1, &mut pair.events[0]);
        pair.settle();
        assert_eq!(pair.read_all(1, streams[0]), (0, Read::Fin));
        pair.ends[1].finish(streams[0]);
        pair.ends[1].send_datagram(Bytes::new());
        pair.settle();
        assert!(pair.heard(0).contains(&"StreamsAvailable".to_owned()));
        pair.open(0, direction);
    }
}

#[test]
fn a_stopped_stream_ends_itself_and_what_was_on_its_way_is_paid_back() {
    let mut pair = Pair::new();
    let stream = pair.open(0, Direction::Uni);
    pair.write(0, stream, 100).unwrap();
    pair.carry(0);
    pair.write(0, stream, 100).unwrap();
    pair.ends[1].stop(stream, 5, &mut pair.events[1]);
    pair.ends[1].stop(stream, 5, &mut pair.events[1]);
    pair.settle();
    assert_eq!(pair.heard(0), ["Stopped"]);
    assert_eq!(pair.write(0, stream, 1), Err(WriteError::Stopped(5)));
    pair.ends[0].reset(stream, 5);
    pair.ends[1].send_datagram(Bytes::new());
    pair.settle();
    assert_eq!(pair.write(0, stream, 1), Err(WriteError::Closed));
    assert_eq!(
        (pair.ends[0].streams.len(), pair.ends[1].streams.len()),
        (0, 0)
    );
    let streams = [0; 2].map(|_| pair.open(0, Direction::Uni));
    for stream in streams {
        let room = LIMITS.bytes_max / 2 - MESSAGE_CHARGE;
        assert_eq!(
            pair.write(0, stream, room),
            Ok(()),
            "the whole window is there again"
        );
    }
}

#[test]
fn datagrams_past_their_window_are_dropped_and_counted() {
    let mut pair = Pair::new();
    let half = LIMITS.datagram_bytes_max / 2 - MESSAGE_CHARGE;
    for _ in 0..2 {
        pair.ends[0].send_datagram(Bytes::from(vec![0; half]));
    }
    assert_eq!(pair.ends[0].datagrams_dropped, 0);
    pair.ends[0].send_datagram(Bytes::new());
    assert_eq!(pair.ends[0].datagrams_dropped, 1);
    pair.settle();
    assert_eq!(pair.heard(1), ["Datagram", "Datagram"]);
    pair.ends[0].send_datagram(Bytes::new());
    assert_eq!(pair.ends[0].datagrams_dropped, 1, "there is room again");
}

#[test]
fn strays_past_their_limit_are_dropped_and_counted() {
    let mut pair = Pair::new();
    let stray = || Packet {
        remote: (Ipv4Addr::LOCALHOST, 1).into(),
        local: None,
        ecn: None,
        data: BytesMut::new(),
    };
    for _ in 0..3 {
        pair.ends[0].pass_on(stray());
    }
    assert_eq!(
        (pair.ends[0].strays_passed, pair.ends[0].strays_dropped),
        (2, 1)
    );
    pair.carry(0);
    pair.ends[0].pass_on(stray());
    assert_eq!(
        (pair.ends[0].strays_passed, pair.ends[0].strays_dropped),
        (3, 1)
    );
}

#[test]
fn a_closed_connection_opens_again_after_a_pause_with_nothing_left_of_the_old_one() {
    let mut pair = Pair::new();
    let stream = pair.open(0, Direction::Uni);
    pair.write(0, stream, 10).unwrap();
    let before = pair.ends[0].handle();
    pair.ends[0].close(3, b"enough");
    assert_eq!(pair.ends[0].open(Direction::Uni), None);
    pair.settle();
    assert_eq!(pair.heard(0), [""; 0]);
    assert_eq!(pair.heard(1), ["Opened", "Readable", "Lost"]);
    pair.wait(PAUSE.checked_sub(Duration::from_millis(1)).unwrap());
    assert_eq!(pair.heard(1), [""; 0]);
    pair.wait(Duration::from_millis(1));
    assert_eq!(
        (pair.heard(0), pair.heard(1)),
        (vec!["Connected".to_owned()], vec!["Connected".to_owned()])
    );
    assert_ne!(pair.ends[0].handle(), before);
    assert_eq!(
        pair.open(0, Direction::Uni),
        stream,
        "it is a new connection"
    );
    pair.write(0, stream, 1).unwrap();
    pair.settle();
    assert_eq!(pair.read_all(1, stream), (1, Read::Blocked));
}

#[test]
fn both_may_close_at_once_and_one_may_wake_before_the_other() {
    let mut pair = Pair::new();
    pair.ends[0].close(3, b"");
    pair.ends[1].close(4, b"");
    pair.settle();
    assert_eq!((pair.heard(0), pair.heard(1)), (Vec::new(), Vec::new()));
    pair.now += PAUSE;
    pair.ends[0].handle_timeout(pair.now, &mut pair.events[0]);
    pair.ends[0].send_datagram(Bytes::new());
    pair.carry(0);
    assert_eq!(pair.heard(1), ["Connected", "Datagram"]);
    assert_eq!(pair.ends[1].poll_timeout(), None);
}
