//! The link emulator: rate, queue, delay, jitter, loss, from a seed.
