//! The configuration of a story.

use std::sync::Arc;

use weir_link::Delay;
use weir_moqt::draft::Draft;
use weir_quic::Limits as QuicLimits;
use weir_relay::{Authority, Limits, Open};

use crate::{stage::draft, words::millis};

/// The configuration of a story.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) relay: Limits,
    pub(crate) session: weir_moqt::limits::Limits,
    /// Limits of the relay's connections.
    pub(crate) quic: QuicLimits,
    /// Limits of the clients' connections.
    pub(crate) client: QuicLimits,
    /// The draft of the clients.
    pub(crate) draft: Draft,
    pub(crate) link: weir_link::Config,
    /// The URI in the relay's GOAWAY.
    pub(crate) successor: Option<String>,
    /// Whether publishers are paused while their tracks have no subscriber.
    pub(crate) pauses_publishers: bool,
    /// The relay's authority.
    pub(crate) authority: Arc<dyn Authority>,
    /// Number of the relay's threads.
    pub(crate) threads: u16,
    /// Whether each packet arrives at the thread of its connection.
    pub(crate) is_steered: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            relay: Limits::default(),
            session: weir_moqt::limits::Limits::for_servers(),
            quic: QuicLimits::default(),
            client: QuicLimits::default(),
            draft: draft(),
            link: weir_link::Config {
                delay: Delay::fixed(millis(10)).expect("short"),
                ..weir_link::Config::default()
            },
            successor: None,
            pauses_publishers: false,
            authority: Arc::new(Open),
            threads: 1,
            is_steered: true,
        }
    }
}
