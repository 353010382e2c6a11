//! The queue between the thread that reads a live stream and the origin that publishes it.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use weir_live::source::Source;
use weir_live::{Ingest, IngestError, Item};
use weir_net::{Stop, Waker, clock};

/// A queue of frames and audio that are read and not published yet. Clones share one queue.
#[derive(Clone, Debug)]
pub(crate) struct IngestQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// When the queue was created.
    since: Instant,
    /// Signals that the origin asked for an item, took one, or has closed the queue.
    taken: Condvar,
    /// Wakes the origin's event loop.
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<(Instant, Item)>,
    /// Bytes of all items.
    bytes: usize,
    /// Whether the origin has asked for the first item.
    is_wanted: bool,
    ended_at: Option<Instant>,
    is_closed: bool,
}

impl State {
    /// Returns whether there is room for an item of so many bytes. An item above the limit may wait alone.
    fn has_room(&self, bytes: usize) -> bool {
        let has_bytes = self.bytes.saturating_add(bytes) <= BYTES_MAX;
        self.items.is_empty() || self.items.len() < ITEMS_MAX && has_bytes
    }
}

/// Returns the bytes that an item occupies.
fn size(item: &Item) -> usize {
    match item {
        Item::Init(init) => init.segment.len(),
        Item::Frame(frame) => frame.fragment.len(),
        Item::Audio { fragment, .. } => fragment.len(),
    }
}

/// Why a stream cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot be read")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Ingest(#[from] IngestError),
    #[error(
        "the frame at {decode_us} µs of media time is {ahead} s ahead of its time; --realtime waits at most {} s for a frame",
        AHEAD_MAX.as_secs()
    )]
    Ahead { decode_us: i64, ahead: u64 },
}

impl IngestQueue {
    /// Creates an empty queue, which calls `waker` for each item.
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                since: clock::now(),
                taken: Condvar::new(),
                waker,
            }),
        }
    }

    /// Reads `input` on a thread of its own, until the input ends or fails, or the origin closes the queue.
    ///
    /// Reading begins when the origin asks for the first item. An item read earlier would count as available before anyone
    /// could receive it. With `paced`, items are read at the speed of playback; otherwise as they arrive.
    pub(crate) fn fill(
        &self,
        mut input: impl Read + Send + 'static,
        paced: bool,
        stop: Stop,
    ) -> anyhow::Result<JoinHandle<Result<(), ReadError>>> {
        let queue = self.clone();
        let work = move || {
            let result = queue.read(&mut input, paced, &stop);
            queue.end();
            result
        };
        std::thread::Builder::new()
            .name("weir-ingest".to_owned())
            .spawn(work)
            .context("cannot start the thread that reads the stream")
    }

    /// Closes the queue, which ends the reading thread.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.shared.taken.notify_all();
    }

    fn read(&self, input: &mut impl Read, paced: bool, stop: &Stop) -> Result<(), ReadError> {
        if !self.is_wanted() {
            return Ok(());
        }
        let mut ingest = Ingest::new();
        let mut buffer = vec![0; READ_BYTES];
        let mut pace = Pace::default();
        loop {
            let count = match input.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            };
            if count == 0 {
                return Ok(ingest.finish()?);
            }
            ingest.push(&buffer[..count]);
            while let Some(item) = ingest.poll()? {
                if paced
                    && let Some(wait) = pace.wait(clock::now(), &item)?
                    && stop.wait(wait)
                {
                    return Ok(());
                }
                if !self.put(item) {
                    return Ok(());
                }
            }
        }
    }

    /// Waits until the origin asks for the first item, or closes the queue. Returns whether the origin asked.
    fn is_wanted(&self) -> bool {
        let mut state = self.lock();
        while !state.is_wanted && !state.is_closed {
            let waited = self.shared.taken.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.is_wanted
    }

    /// Adds an item as soon as there is room. Returns false if the queue is closed.
    fn put(&self, item: Item) -> bool {
        let mut state = self.lock();
        let bytes = size(&item);
        while !state.has_room(bytes) && !state.is_closed {
            let waited = self.shared.taken.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return false;
        }
        state.items.push_back((clock::now(), item));
        state.bytes += bytes;
        drop(state);
        self.shared.waker.wake();
        true
    }

    fn end(&self) {
        self.lock().ended_at = Some(clock::now());
        self.shared.waker.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for IngestQueue {
    fn poll(&mut self, _now: Instant) -> Option<(Instant, Item)> {
        let mut state = self.lock();
        state.is_wanted = true;
        let item = state.items.pop_front();
        state.bytes -= item.as_ref().map_or(0, |(_, item)| size(item));
        drop(state);
        self.shared.taken.notify_all();
        item
    }

    fn next_at(&self) -> Option<Instant> {
        let state = self.lock();
        if !state.is_wanted {
            // Due at once, so that the origin asks for the first item.
            return Some(self.shared.since);
        }
        let first = state.items.front().map(|(at, _)| *at);
        first.or(state.ended_at)
    }

    fn is_over(&self) -> bool {
        let state = self.lock();
        state.ended_at.is_some() && state.items.is_empty()
    }
}

/// Delays the frames of a file, as if a live encoder made them.
#[derive(Debug, Default)]
struct Pace {
    /// When the first frame was read, and its decode time.
    start: Option<(Instant, i64)>,
}

impl Pace {
    /// Returns how long to wait before an item is passed on. A wait above [`AHEAD_MAX`] is an error: the decode time is
    /// invalid.
    fn wait(&mut self, now: Instant, item: &Item) -> Result<Option<Duration>, ReadError> {
        let Item::Frame(frame) = item else {
            return Ok(None);
        };
        let decode_us = frame.decode_us;
        let (start, first_us) = *self.start.get_or_insert((now, decode_us));
        let after = u64::try_from(decode_us.saturating_sub(first_us)).unwrap_or(0);
        let passed = now.saturating_duration_since(start);
        let wait = Duration::from_micros(after).saturating_sub(passed);
        if wait > AHEAD_MAX {
            let ahead = wait.as_secs();
            return Err(ReadError::Ahead { decode_us, ahead });
        }
        Ok((!wait.is_zero()).then_some(wait))
    }
}

const READ_BYTES: usize = 64 << 10;
/// Most items in the queue. Beyond it, the stream is not read.
const ITEMS_MAX: usize = 256;
/// Most bytes in the queue. Beyond it, the stream is not read.
const BYTES_MAX: usize = 128 << 20;
/// Longest wait for one frame. A stream with a longer gap is invalid.
const AHEAD_MAX: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use bytes::Bytes;
    use weir_live::{Frame, FrameKind};

    use super::*;

    /// Says when it is read, and is at its end.
    struct Watched(Sender<()>);

    impl Read for Watched {
        fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
            let _is_heard = self.0.send(());
            Ok(0)
        }
    }

    fn filled() -> (IngestQueue, Receiver<()>, JoinHandle<Result<(), ReadError>>) {
        let queue = IngestQueue::new(Waker::new().expect("a descriptor"));
        let (sender, looks) = channel();
        let stop = Stop::new().expect("a descriptor");
        let reader = queue.fill(Watched(sender), false, stop);
        (queue, looks, reader.expect("a thread"))
    }

    #[test]
    fn nothing_is_read_before_it_is_asked_for() {
        let (mut queue, looks, reader) = filled();
        assert!(looks.recv_timeout(Duration::from_millis(100)).is_err());
        assert!(
            queue.next_at().is_some_and(|at| at <= clock::now()),
            "it wants to be asked"
        );
        assert!(queue.poll(clock::now()).is_none());
        looks
            .recv_timeout(Duration::from_mins(1))
            .expect("it is read");
        let result = reader.join().expect("no panic");
        assert!(matches!(result, Err(ReadError::Ingest(_))), "nothing came");
        assert!(queue.is_over());
    }

    fn frame(decode_us: i64) -> Item {
        Item::Frame(Frame {
            kind: FrameKind::Key,
            is_disposable: false,
            group: 0,
            index: 0,
            references: 0,
            decode_us,
            presentation_us: decode_us,
            duration_us: 1,
            fragment: Bytes::from_static(b"12345"),
            sample: Bytes::from_static(b"345"),
        })
    }

    #[test]
    fn so_many_bytes_wait_and_no_more() {
        let item = frame(0);
        assert_eq!(size(&item), 5);
        let mut state = State {
            bytes: BYTES_MAX - 5,
            ..State::default()
        };
        state.items.push_back((clock::now(), item));
        assert!(state.has_room(5));
        assert!(!state.has_room(6));
        state.items.clear();
        state.bytes = 0;
        assert!(state.has_room(BYTES_MAX + 1), "it is alone");
    }

    #[test]
    fn so_many_items_wait_and_no_more() {
        let mut state = State::default();
        for _ in 0..ITEMS_MAX {
            assert!(state.has_room(5));
            state.items.push_back((clock::now(), frame(0)));
        }
        assert!(!state.has_room(5));
    }

    #[test]
    fn what_is_taken_makes_room() {
        let mut queue = IngestQueue::new(Waker::new().expect("a descriptor"));
        for count in 1..=3 {
            assert!(queue.put(frame(0)));
            assert_eq!(queue.lock().bytes, 5 * count);
        }
        for count in (0..3).rev() {
            assert!(queue.poll(clock::now()).is_some());
            assert_eq!(queue.lock().bytes, 5 * count);
        }
        assert!(queue.poll(clock::now()).is_none());
    }

    #[test]
    fn a_frame_is_held_back_so_long_and_no_longer() {
        let now = clock::now();
        let ahead_us = i64::try_from(AHEAD_MAX.as_micros()).expect("minutes");
        let mut pace = Pace::default();
        let mut wait = |decode_us| pace.wait(now, &frame(decode_us));
        assert_eq!(wait(7).expect("the first"), None);
        let longest = wait(7 + ahead_us).expect("at the limit");
        assert_eq!(longest, Some(AHEAD_MAX));
        let error = wait(8 + ahead_us).expect_err("past the limit");
        assert!(
            error.to_string().contains("600 s ahead of its time"),
            "{error}"
        );
        assert!(matches!(wait(i64::MAX), Err(ReadError::Ahead { .. })));
        assert_eq!(wait(i64::MIN).expect("it is late"), None);
    }

    #[test]
    fn a_reader_that_is_never_asked_ends_with_its_origin() {
        let (queue, looks, reader) = filled();
        queue.close();
        assert!(reader.join().expect("no panic").is_ok());
        assert!(looks.try_recv().is_err());
    }
}
