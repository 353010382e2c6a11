//! The memory that the allocator has given out.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
    sync::atomic::{AtomicI64, Ordering},
};

/// An allocator that counts the bytes it has given out, each allocation with the size of its class. A thread adds to the
/// common count only in steps of `STEP_BYTES`, so that counting costs a few instructions.
#[derive(Debug)]
pub struct CountingAllocator<A>(pub A);

/// Returns the bytes that a [`CountingAllocator`] of this process has given out and not taken back, up to 64 KiB more or
/// less for each thread; 0 without such an allocator.
pub fn heap_bytes() -> u64 {
    u64::try_from(GIVEN.load(Ordering::Relaxed)).unwrap_or(0)
}

static GIVEN: AtomicI64 = AtomicI64::new(0);
/// What a thread adds to the common count at once.
const STEP_BYTES: i64 = 64 << 10;

thread_local! {
    /// What this thread has not yet added. Constant and without a destructor, so that reading it does not allocate.
    static PENDING: Cell<i64> = const { Cell::new(0) };
}

/// Returns the size of the class of an allocation: eight in each power of two, as in mimalloc, jemalloc and tcmalloc.
const fn class_bytes(size: usize) -> i64 {
    let size = if size < 8 { 8 } else { size };
    let step = 1_usize << (usize::BITS - 1 - size.leading_zeros()).saturating_sub(3);
    size.next_multiple_of(step).cast_signed() as i64
}

#[inline]
fn note(bytes: i64) {
    let pending = PENDING.get() + bytes;
    if pending.abs() < STEP_BYTES {
        PENDING.set(pending);
    } else {
        PENDING.set(0);
        GIVEN.fetch_add(pending, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to an allocator that keeps the contract; counting neither allocates nor
// panics, since `PENDING` is constant, has no destructor, and so stays accessible until the thread is gone.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(class_bytes(layout.size()));
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(class_bytes(layout.size()));
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        note(-class_bytes(layout.size()));
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { self.0.dealloc(place, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(class_bytes(size) - class_bytes(layout.size()));
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { self.0.realloc(place, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn allocations_count_with_the_size_of_their_class() {
        assert_eq!(
            [1, 8, 9, 100, 128, 129].map(class_bytes),
            [8, 8, 9, 104, 128, 144]
        );
        assert_eq!(
            [1200, 4097, 1 << 20].map(class_bytes),
            [1280, 4608, 1 << 20]
        );
    }

    #[test]
    fn what_is_given_is_counted_until_it_is_taken_back() {
        let allocator = CountingAllocator(System);
        let before = heap_bytes();
        let layout = Layout::from_size_align(1 << 20, 16).unwrap();
        // SAFETY: the layout is not empty; the memory is freed below with the layout that it has then.
        let place = unsafe { allocator.alloc(layout) };
        assert_eq!(heap_bytes() - before, 1 << 20);
        // SAFETY: the place and its layout are those of the allocation.
        let place = unsafe { allocator.realloc(place, layout, 3 << 20) };
        assert_eq!(heap_bytes() - before, 3 << 20);
        let layout = Layout::from_size_align(3 << 20, 16).unwrap();
        // SAFETY: the place and its layout are those of the allocation.
        unsafe { allocator.dealloc(place, layout) };
        assert_eq!(heap_bytes(), before);
    }
}
