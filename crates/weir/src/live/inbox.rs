//! A live stream on its way in: a thread reads it, the origin takes it.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use weir_live::source::Source;
use weir_live::{Ingest, IngestError, Item};
use weir_net::{Bell, Stop, clock};

/// What was read and not yet taken. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// When it was made.
    since: Instant,
    /// Something was asked for or taken, or nobody takes anything any more.
    taken: Condvar,
    /// Something is there for the origin.
    bell: Bell,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<(Instant, Item)>,
    /// The origin has asked for the first item.
    is_wanted: bool,
    ended_at: Option<Instant>,
    is_closed: bool,
}

/// Why a stream could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot be read")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Ingest(#[from] IngestError),
}

impl Inbox {
    /// An empty inbox that rings `bell`.
    pub(crate) fn new(bell: Bell) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                since: clock::now(),
                taken: Condvar::new(),
                bell,
            }),
        }
    }

    /// Reads `input` on a thread of its own until it ends, breaks, or nobody wants it any more; from when the origin asks for the
    /// first item on: what lay there before would be said to have been available when nobody could have it. With `paced`, as fast
    /// as it is to be played; else as it comes.
    pub(crate) fn fill(
        &self,
        mut input: impl Read + Send + 'static,
        paced: bool,
        stop: Stop,
    ) -> anyhow::Result<JoinHandle<Result<(), ReadError>>> {
        let inbox = self.clone();
        let work = move || {
            let result = inbox.read(&mut input, paced, &stop);
            inbox.end();
            result
        };
        std::thread::Builder::new()
            .name("weir-ingest".to_owned())
            .spawn(work)
            .context("cannot start the thread that reads the stream")
    }

    /// Nobody takes anything any more.
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
                if let Some(wait) = pace.wait(&item).filter(|_| paced)
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

    /// Waits until the origin asks for the first item; returns whether it did.
    fn is_wanted(&self) -> bool {
        let mut state = self.lock();
        while !state.is_wanted && !state.is_closed {
            let waited = self.shared.taken.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.is_wanted
    }

    /// Puts an item in when there is room; returns whether anybody will take it.
    fn put(&self, item: Item) -> bool {
        let mut state = self.lock();
        while state.items.len() >= ITEMS_MAX && !state.is_closed {
            let waited = self.shared.taken.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return false;
        }
        state.items.push_back((clock::now(), item));
        drop(state);
        self.shared.bell.ring();
        true
    }

    fn end(&self) {
        self.lock().ended_at = Some(clock::now());
        self.shared.bell.ring();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Inbox {
    fn poll(&mut self, _now: Instant) -> Option<(Instant, Item)> {
        let mut state = self.lock();
        state.is_wanted = true;
        let item = state.items.pop_front();
        drop(state);
        self.shared.taken.notify_all();
        item
    }

    fn next_at(&self) -> Option<Instant> {
        let state = self.lock();
        if !state.is_wanted {
            // It wants to be asked.
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

/// Holds frames back until they would be made, were they made now.
#[derive(Debug, Default)]
struct Pace {
    /// When the first frame came, and its decode time.
    start: Option<(Instant, i64)>,
}

impl Pace {
    /// How long to wait before an item is handed on.
    fn wait(&mut self, item: &Item) -> Option<Duration> {
        let Item::Frame(frame) = item else {
            return None;
        };
        let now = clock::now();
        let (start, first_us) = *self.start.get_or_insert((now, frame.decode_us));
        let after = u64::try_from(frame.decode_us - first_us).unwrap_or(0);
        let due = start + Duration::from_micros(after);
        let wait = due.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }
}

const READ_BYTES: usize = 64 << 10;
/// Items that may wait for the origin; then the stream is left unread.
const ITEMS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Says when it is read, and is at its end.
    struct Watched(Sender<()>);

    impl Read for Watched {
        fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
            let _is_heard = self.0.send(());
            Ok(0)
        }
    }

    fn filled() -> (Inbox, Receiver<()>, JoinHandle<Result<(), ReadError>>) {
        let inbox = Inbox::new(Bell::new().expect("a descriptor"));
        let (sender, looks) = channel();
        let stop = Stop::new().expect("a descriptor");
        let reader = inbox.fill(Watched(sender), false, stop);
        (inbox, looks, reader.expect("a thread"))
    }

    #[test]
    fn nothing_is_read_before_it_is_asked_for() {
        let (mut inbox, looks, reader) = filled();
        assert!(looks.recv_timeout(Duration::from_millis(100)).is_err());
        assert!(
            inbox.next_at().is_some_and(|at| at <= clock::now()),
            "it wants to be asked"
        );
        assert!(inbox.poll(clock::now()).is_none());
        looks
            .recv_timeout(Duration::from_mins(1))
            .expect("it is read");
        let result = reader.join().expect("no panic");
        assert!(matches!(result, Err(ReadError::Ingest(_))), "nothing came");
        assert!(inbox.is_over());
    }

    #[test]
    fn who_is_never_asked_ends_with_its_origin() {
        let (inbox, looks, reader) = filled();
        inbox.close();
        assert!(reader.join().expect("no panic").is_ok());
        assert!(looks.try_recv().is_err());
    }
}
