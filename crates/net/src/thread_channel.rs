//! Bounded channels between threads. Each has one writer and one reader, and wakes its reader only if it sleeps.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    vec::Drain,
};

use crate::sys;

/// One thread's end of the channels of a group of threads.
#[derive(Debug)]
pub struct ThreadChannels<T> {
    own: u16,
    wakers: Vec<Arc<ThreadWaker>>,
    /// Channels from each thread to this one, by thread number; none from itself.
    incoming: Vec<Option<Arc<Channel<T>>>>,
    /// Channels from this thread to each thread.
    outgoing: Vec<Option<Arc<Channel<T>>>>,
    /// A buffer that is swapped with a channel's to empty it, so that neither allocates repeatedly.
    taken: Vec<T>,
}

/// The items on their way from one thread to another.
#[derive(Debug)]
struct Channel<T> {
    items: Mutex<Vec<T>>,
    count: AtomicUsize,
    items_max: usize,
}

/// Wakes one thread.
#[derive(Debug)]
struct ThreadWaker {
    is_asleep: AtomicBool,
    event: OwnedFd,
}

/// Returns the ends of channels between `count` threads, one for each thread, in order. A channel holds at most
/// `items_max`.
pub fn thread_channels<T>(count: u16, items_max: usize) -> io::Result<Vec<ThreadChannels<T>>> {
    let count = usize::from(count);
    let wakers: io::Result<Vec<_>> = (0..count)
        .map(|_| ThreadWaker::new().map(Arc::new))
        .collect();
    let wakers = wakers?;
    let channels = wakers.iter().zip(0..).map(|(_, own)| ThreadChannels {
        own,
        wakers: wakers.clone(),
        incoming: Vec::new(),
        outgoing: Vec::new(),
        taken: Vec::new(),
    });
    let mut channels: Vec<ThreadChannels<T>> = channels.collect();
    for from in 0..count {
        for to in 0..count {
            let channel = (to != from).then(|| Arc::new(Channel::new(items_max)));
            channels[to].incoming.push(channel.clone());
            channels[from].outgoing.push(channel);
        }
    }
    Ok(channels)
}

impl<T> ThreadChannels<T> {
    /// Returns the numbers of the other threads.
    pub fn others(&self) -> impl Iterator<Item = u16> + use<T> {
        let own = self.own;
        (0_u16..)
            .take(self.outgoing.len())
            .filter(move |&other| other != own)
    }

    /// Moves as many items as fit from the front of `items` to thread `to`. Returns whether the thread had to be woken.
    pub fn send(&self, to: u16, items: &mut Vec<T>) -> bool {
        let to = usize::from(to);
        let Some(channel) = self.outgoing.get(to).and_then(Option::as_ref) else {
            return false;
        };
        channel.put(items);
        self.wakers[to].wake()
    }

    /// Takes all items, with the number of the thread that sent them.
    pub fn collect(&mut self, mut take: impl FnMut(u16, Drain<'_, T>)) {
        let Self {
            incoming, taken, ..
        } = self;
        for (number, channel) in (0_u16..).zip(incoming) {
            let Some(channel) = channel.as_ref().filter(|channel| !channel.is_empty()) else {
                continue;
            };
            channel.take(taken);
            take(number, taken.drain(..));
        }
    }

    /// Sleeps with `wait`, unless an item is there. `wait` receives a descriptor that becomes readable when an item
    /// arrives, and returns whether it is readable.
    pub(crate) fn sleep(&self, wait: impl FnOnce(RawFd) -> bool) {
        let waker = &self.wakers[usize::from(self.own)];
        // A thread that sends later sees this flag; an item that was sent before is found below.
        waker.is_asleep.store(true, Ordering::SeqCst);
        let mut incoming = self.incoming.iter().flatten();
        if incoming.all(|channel| channel.is_empty()) && wait(waker.event.as_raw_fd()) {
            sys::clear_eventfd(&waker.event);
        }
        waker.is_asleep.store(false, Ordering::SeqCst);
    }
}

impl<T> Channel<T> {
    fn new(items_max: usize) -> Self {
        Self {
            items: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            items_max,
        }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    fn put(&self, items: &mut Vec<T>) {
        let mut held = self.lock();
        let room = self.items_max.saturating_sub(held.len());
        if room >= items.len() {
            held.append(items);
        } else {
            held.extend(items.drain(..room));
        }
        self.count.store(held.len(), Ordering::SeqCst);
    }

    fn take(&self, into: &mut Vec<T>) {
        let mut held = self.lock();
        std::mem::swap(&mut *held, into);
        self.count.store(0, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // A thread that holds the lock panics only if memory runs out.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadWaker {
    fn new() -> io::Result<Self> {
        Ok(Self {
            is_asleep: AtomicBool::new(false),
            event: sys::eventfd()?,
        })
    }

    /// Wakes the thread if it sleeps. Returns whether it slept.
    fn wake(&self) -> bool {
        let is_asleep = self.is_asleep.swap(false, Ordering::SeqCst);
        if is_asleep {
            sys::signal_eventfd(&self.event);
        }
        is_asleep
    }
}

/// The default limit of a channel: the messages of many turns.
pub const CHANNEL_ITEMS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    fn collected<T>(channels: &mut ThreadChannels<T>) -> Vec<(u16, Vec<T>)> {
        let mut all = Vec::new();
        channels.collect(|from, items| all.push((from, items.collect())));
        all
    }

    #[test]
    fn every_thread_hears_from_every_other() {
        let mut channels = thread_channels(3, 10).unwrap();
        assert_eq!(channels[1].others().collect::<Vec<_>>(), [0, 2]);
        channels[0].send(2, &mut vec!["a", "b"]);
        channels[1].send(2, &mut vec!["c"]);
        channels[1].send(1, &mut vec!["to nobody"]);
        channels[0].send(2, &mut vec!["d"]);
        assert_eq!(
            collected(&mut channels[2]),
            [(0, vec!["a", "b", "d"]), (1, vec!["c"])]
        );
        assert_eq!(collected(&mut channels[2]), []);
        assert_eq!(collected(&mut channels[1]), []);
    }

    #[test]
    fn a_channel_takes_its_limit_and_the_rest_stays_in_order() {
        let mut channels = thread_channels(2, 3).unwrap();
        let mut items = vec![1, 2, 3];
        channels[0].send(1, &mut items);
        assert!(items.is_empty());
        let mut items = vec![4, 5];
        channels[0].send(1, &mut items);
        assert_eq!(items, [4, 5], "it is full");
        assert_eq!(collected(&mut channels[1]), [(0, vec![1, 2, 3])]);
        let mut items = vec![4, 5, 6, 7];
        channels[0].send(1, &mut items);
        assert_eq!(items, [7]);
    }

    #[test]
    fn only_who_sleeps_is_woken_and_only_once() {
        let channels = thread_channels(2, 9).unwrap();
        assert!(!channels[0].send(1, &mut vec![1]), "it is awake");
        channels[1].sleep(|_| unreachable!("something is there"));
        let mut second = channels.into_iter();
        let (first, mut second) = (second.next().unwrap(), second.next().unwrap());
        collected(&mut second);
        let mut woken = Vec::new();
        second.sleep(|event| {
            woken.extend([2, 3].map(|item| first.send(1, &mut vec![item])));
            sys::wait_readable(&[event], Some(Duration::ZERO))
        });
        assert_eq!(woken, [true, false]);
        assert_eq!(collected(&mut second), [(0, vec![2, 3])]);
        second.sleep(|event| {
            assert!(
                !sys::wait_readable(&[event], Some(Duration::ZERO)),
                "the event was cleared"
            );
            false
        });
    }

    #[test]
    fn nothing_is_lost_between_two_threads_that_sleep_and_wake() {
        let mut channels = thread_channels::<u32>(2, 7).unwrap();
        let (mut second, first) = (channels.pop().unwrap(), channels.pop().unwrap());
        #[expect(clippy::disallowed_methods, reason = "a test's second thread")]
        let writer = thread::spawn(move || {
            let mut items: Vec<u32> = Vec::new();
            let mut next = 0;
            while next < ITEMS || !items.is_empty() {
                if items.is_empty() {
                    items.extend(next..next + 3);
                    next += 3;
                }
                first.send(1, &mut items);
            }
        });
        let mut expected = 0;
        while expected < ITEMS {
            second.sleep(|event| {
                let is_woken = sys::wait_readable(&[event], Some(Duration::from_secs(20)));
                assert!(is_woken, "what was sent woke nobody");
                is_woken
            });
            second.collect(|_, items| {
                for item in items {
                    assert_eq!(item, expected);
                    expected += 1;
                }
            });
        }
        writer.join().unwrap();
    }

    const ITEMS: u32 = 30_000;
}
