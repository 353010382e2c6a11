//! The relay's fan-out.
//!
//! A publisher sends audio as datagrams through the relay to 64 subscribers, over virtual links and in virtual time, so
//! every run executes the same code. Only [`Counted::fan_out`] is counted: from the arrival of a datagram's frame at
//! the relay to the sealed packets for all subscribers. Handshakes, acknowledgements, the clients and the simulation
//! are excluded.
//!
//! Prints how many datagrams the relay received and sent. Fails if a subscriber missed an object.

#[expect(dead_code, reason = "the stories of whole runs need more of it")]
#[path = "../../bench/tests/scenarios/world.rs"]
mod world;

use std::{
    error::Error,
    io::{self, Write as _},
    time::Instant,
};

use weir_quic::{App, Endpoint, Event};
use weir_relay::Relay;

use self::world::{Crowd, Setting, World};

/// Runs the fan-out.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let setting = Setting {
        link: world::delay(5),
        joins_per_second: 100,
        ..Setting::new(PROFILE, SEED, Crowd::Subscribers(SUBSCRIBERS))
    };
    let mut world = World::new(&setting, Counted::new());
    world.run();

    let counters = world.sim.app::<Counted>(world.relay).relay.counters();
    let (received, sent) = (counters.datagrams_received, counters.datagrams_sent);
    writeln!(
        io::stdout(),
        r#"{{"datagrams_received":{received},"datagrams_sent":{sent}}}"#
    )?;
    let due = received * SUBSCRIBERS as u64;
    if received == 0 || sent != due {
        return Err(format!("{due} datagrams should have been sent").into());
    }
    Ok(())
}

/// The relay, with the fan-out of a datagram in a function of its own.
struct Counted {
    relay: Relay,
    fan_outs: u64,
}

impl Counted {
    fn new() -> Self {
        Self {
            relay: Relay::new(weir_relay::Config::default()),
            fan_outs: 0,
        }
    }

    /// Callgrind counts while this function runs. Inlining would remove it, and a tail call would become a jump, so
    /// both are prevented.
    #[inline(never)]
    fn fan_out(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.relay.handle_event(now, endpoint, event);
        self.fan_outs += 1;
    }
}

impl App for Counted {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if matches!(event, Event::Datagram { .. }) {
            self.fan_out(now, endpoint, event);
        } else {
            self.relay.handle_event(now, endpoint, event);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.relay.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.relay.handle_timeout(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.relay.handle_shutdown(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.relay.is_finished()
    }
}

/// 200 objects of the audio profile.
const PROFILE: &str = "
[Audio]
namespace = perf/audio
name = 1
track_mode = datagram
priority = 2
ttl = 5000
time_interval = 20
objects_per_group = 1
first_object_size = 120
object_size = 120
start_delay = 1000
total_transmit_time = 5000
";
const SUBSCRIBERS: usize = 64;
const SEED: u64 = 1;
