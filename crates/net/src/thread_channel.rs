//! Mailboxes between threads: each has one writer and one reader, a limit, and wakes its reader only if it sleeps.

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

/// One thread's end of the mailboxes of a group of threads.
#[derive(Debug)]
pub struct Post<T> {
    own: u16,
    bells: Vec<Arc<Bell>>,
    /// From each thread to this one, by its number; none from itself.
    incoming: Vec<Option<Arc<Mailbox<T>>>>,
    /// From this one to each.
    outgoing: Vec<Option<Arc<Mailbox<T>>>>,
    /// Swapped with a mailbox to empty it, so that neither allocates again and again.
    taken: Vec<T>,
}

/// What is on its way from one thread to another.
#[derive(Debug)]
struct Mailbox<T> {
    items: Mutex<Vec<T>>,
    count: AtomicUsize,
    items_max: usize,
}

/// Wakes one thread.
#[derive(Debug)]
struct Bell {
    is_asleep: AtomicBool,
    wake: OwnedFd,
}

/// The ends of mailboxes between `count` threads, one for each thread, in their order. No mailbox holds more than
/// `items_max`.
pub fn posts<T>(count: u16, items_max: usize) -> io::Result<Vec<Post<T>>> {
    let count = usize::from(count);
    let bells: io::Result<Vec<_>> = (0..count).map(|_| Bell::new().map(Arc::new)).collect();
    let bells = bells?;
    let posts = bells.iter().zip(0..).map(|(_, own)| Post {
        own,
        bells: bells.clone(),
        incoming: Vec::new(),
        outgoing: Vec::new(),
        taken: Vec::new(),
    });
    let mut posts: Vec<Post<T>> = posts.collect();
    for from in 0..count {
        for to in 0..count {
            let mailbox = (to != from).then(|| Arc::new(Mailbox::new(items_max)));
            posts[to].incoming.push(mailbox.clone());
            posts[from].outgoing.push(mailbox);
        }
    }
    Ok(posts)
}

impl<T> Post<T> {
    /// The numbers of the other threads.
    pub fn neighbours(&self) -> impl Iterator<Item = u16> + use<T> {
        let own = self.own;
        (0_u16..)
            .take(self.outgoing.len())
            .filter(move |&other| other != own)
    }

    /// Puts items into the mailbox of thread `to`, as many as fit, off the front. Returns whether it had to be woken.
    pub fn send(&self, to: u16, items: &mut Vec<T>) -> bool {
        let to = usize::from(to);
        let Some(mailbox) = self.outgoing.get(to).and_then(Option::as_ref) else {
            return false;
        };
        mailbox.put(items);
        self.bells[to].ring()
    }

    /// Takes all that is there, by the number of the thread it came from.
    pub fn collect(&mut self, mut take: impl FnMut(u16, Drain<'_, T>)) {
        let Self {
            incoming, taken, ..
        } = self;
        for (number, mailbox) in (0_u16..).zip(incoming) {
            let Some(mailbox) = mailbox.as_ref().filter(|mailbox| !mailbox.is_empty()) else {
                continue;
            };
            mailbox.take(taken);
            take(number, taken.drain(..));
        }
    }

    /// Sleeps by `wait`, unless something is there. `wait` gets a descriptor that becomes readable when something
    /// comes, and returns whether it is.
    pub(crate) fn sleep(&self, wait: impl FnOnce(RawFd) -> bool) {
        let bell = &self.bells[usize::from(self.own)];
        // Who puts something in later sees this, and who did before is seen below.
        bell.is_asleep.store(true, Ordering::SeqCst);
        let mut incoming = self.incoming.iter().flatten();
        if incoming.all(|mailbox| mailbox.is_empty()) && wait(bell.wake.as_raw_fd()) {
            sys::clear_eventfd(&bell.wake);
        }
        bell.is_asleep.store(false, Ordering::SeqCst);
    }
}

impl<T> Mailbox<T> {
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
        // Nobody panics while holding it but for want of memory.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell {
    fn new() -> io::Result<Self> {
        Ok(Self {
            is_asleep: AtomicBool::new(false),
            wake: sys::eventfd()?,
        })
    }

    /// Wakes the thread if it sleeps; returns whether it had to.
    fn ring(&self) -> bool {
        let is_asleep = self.is_asleep.swap(false, Ordering::SeqCst);
        if is_asleep {
            sys::signal_eventfd(&self.wake);
        }
        is_asleep
    }
}

/// What a mailbox holds at most, unless there is reason for another limit: many turns' worth.
pub const MAILBOX_ITEMS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    fn collected<T>(post: &mut Post<T>) -> Vec<(u16, Vec<T>)> {
        let mut all = Vec::new();
        post.collect(|from, items| all.push((from, items.collect())));
        all
    }

    #[test]
    fn every_thread_hears_from_every_other() {
        let mut posts = posts(3, 10).unwrap();
        assert_eq!(posts[1].neighbours().collect::<Vec<_>>(), [0, 2]);
        posts[0].send(2, &mut vec!["a", "b"]);
        posts[1].send(2, &mut vec!["c"]);
        posts[1].send(1, &mut vec!["to nobody"]);
        posts[0].send(2, &mut vec!["d"]);
        assert_eq!(
            collected(&mut posts[2]),
            [(0, vec!["a", "b", "d"]), (1, vec!["c"])]
        );
        assert_eq!(collected(&mut posts[2]), []);
        assert_eq!(collected(&mut posts[1]), []);
    }

    #[test]
    fn a_mailbox_takes_its_limit_and_the_rest_stays_in_order() {
        let mut posts = posts(2, 3).unwrap();
        let mut items = vec![1, 2, 3];
        posts[0].send(1, &mut items);
        assert!(items.is_empty());
        let mut items = vec![4, 5];
        posts[0].send(1, &mut items);
        assert_eq!(items, [4, 5], "it is full");
        assert_eq!(collected(&mut posts[1]), [(0, vec![1, 2, 3])]);
        let mut items = vec![4, 5, 6, 7];
        posts[0].send(1, &mut items);
        assert_eq!(items, [7]);
    }

    #[test]
    fn only_who_sleeps_is_woken_and_only_once() {
        let posts = posts(2, 9).unwrap();
        assert!(!posts[0].send(1, &mut vec![1]), "it is awake");
        posts[1].sleep(|_| unreachable!("something is there"));
        let mut second = posts.into_iter();
        let (first, mut second) = (second.next().unwrap(), second.next().unwrap());
        collected(&mut second);
        let mut woken = Vec::new();
        second.sleep(|bell| {
            woken.extend([2, 3].map(|item| first.send(1, &mut vec![item])));
            sys::wait_readable(&[bell], Some(Duration::ZERO))
        });
        assert_eq!(woken, [true, false]);
        assert_eq!(collected(&mut second), [(0, vec![2, 3])]);
        second.sleep(|bell| {
            assert!(
                !sys::wait_readable(&[bell], Some(Duration::ZERO)),
                "the bell was cleared"
            );
            false
        });
    }

    #[test]
    fn nothing_is_lost_between_two_threads_that_sleep_and_wake() {
        let mut posts = posts::<u32>(2, 7).unwrap();
        let (mut second, first) = (posts.pop().unwrap(), posts.pop().unwrap());
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
            second.sleep(|bell| {
                let is_rung = sys::wait_readable(&[bell], Some(Duration::from_secs(20)));
                assert!(is_rung, "what was sent rang no bell");
                is_rung
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
