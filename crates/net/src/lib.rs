//! The host with real sockets, threads and the clock.
//!
//! One thread runs one [`Host`]: its sockets, one [`Endpoint`](weir_quic::Endpoint) with thousands of connections, and
//! one role. Packets arrive through `recvmmsg` with GRO and leave through `sendmmsg` with GSO. Threads share only
//! [`Telemetry`] and, if several threads serve one address, channels between them. This is the only crate with system
//! calls (`sys.rs` and below), and the only one that reads the clock (`clock.rs`). It does not depend on any role.

pub mod certificate;
pub mod clock;
mod host;
mod receive_arena;
mod receive_pause;
mod send_delay;
mod sending;
mod shaper;
mod socket;
pub mod stop;
mod sys;
mod telemetry;
mod thread_channel;
mod waker;

pub use host::{Host, HostConfig};
pub use receive_pause::ReceivePause;
pub use shaper::{Shaper, ShaperConfig, ShaperReport};
pub use socket::{SocketConfig, SocketGroup, UdpSocket};
pub use stop::Stop;
pub use sys::{
    CountingAllocator, end_with_parent, heap_bytes, kill, pin_to_core, raise_open_files_limit,
    terminate,
};
pub use telemetry::{Delays, Telemetry, TelemetrySnapshot};
pub use thread_channel::{CHANNEL_ITEMS_MAX, ThreadChannels, thread_channels};
pub use waker::Waker;
