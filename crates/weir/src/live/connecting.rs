//! Lines about the way of a publisher or a player to its relay, for a user who waits.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use weir_client::client::{Client, Stage};
use weir_live::{Origin, Viewer};
use weir_quic::{App, Endpoint, Event};

/// A role whose way to its relay is worth a line.
pub(crate) trait Connects: App {
    fn client(&self) -> &Client;

    /// Why the role last left a relay for the next one.
    fn last_move(&self) -> Option<&str>;

    /// What the role does at its relay, once it does so; `None` before.
    fn work(&self) -> Option<&'static str>;

    /// What has not happened yet at a relay with a session.
    fn awaited(&self) -> &'static str;
}

impl Connects for Origin {
    fn client(&self) -> &Client {
        self.client()
    }

    fn last_move(&self) -> Option<&str> {
        self.last_move()
    }

    fn work(&self) -> Option<&'static str> {
        self.is_published().then_some("publishing to")
    }

    fn awaited(&self) -> &'static str {
        "the relay has not accepted the tracks"
    }
}

impl Connects for Viewer {
    fn client(&self) -> &Client {
        self.client()
    }

    fn last_move(&self) -> Option<&str> {
        self.last_move()
    }

    fn work(&self) -> Option<&'static str> {
        (!self.records().is_empty()).then_some("playing from")
    }

    fn awaited(&self) -> &'static str {
        if self.plan().is_some() {
            NO_GROUP
        } else {
            "no frame has arrived"
        }
    }
}

/// What is missing while a stream is there, and nothing of it can be shown.
pub(crate) const NO_GROUP: &str = "the stream is there, but no group of pictures has begun; how often does the encoder make a keyframe?";

/// A role, and what was said about its way to its relay.
///
/// `say` gets a line when the role begins to connect to a relay, when it leaves one, and when it has begun its work. While
/// neither happens, `say` gets a line after 3 s, 9 s, 21 s and so on, at last once a minute, with what is missing.
#[derive(Debug)]
pub(crate) struct Connecting<R, S> {
    pub(crate) role: R,
    say: S,
    /// The relay that was named last.
    relay: Option<SocketAddr>,
    /// Since when the present relay has been waited for.
    since: Option<Instant>,
    /// When to say the next time what is missing; `None` if nothing is.
    next_at: Option<Instant>,
    pause: Duration,
}

impl<R: Connects, S: FnMut(&str)> Connecting<R, S> {
    pub(crate) fn new(role: R, say: S) -> Self {
        Self {
            role,
            say,
            relay: None,
            since: None,
            next_at: None,
            pause: PAUSE_FIRST,
        }
    }

    /// Says what has changed, or what is still missing.
    fn look(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let client = self.role.client();
        let (relay, stage) = (client.remote(), client.stage());
        match (stage, self.role.work()) {
            (Stage::Closed, _) => self.next_at = None,
            (Stage::Waiting, _) => self.leave(),
            (Stage::Connecting, _) if self.relay.is_none() => self.begin(now, relay),
            (Stage::Ready, Some(work)) => {
                if self.next_at.take().is_some() {
                    (self.say)(&format!("weir: {work} {relay}"));
                }
            }
            (Stage::Connecting | Stage::AwaitsSetup | Stage::Ready, _) => {
                self.complain(now, endpoint, stage);
            }
        }
    }

    /// Names the relay that the role begins to connect to.
    fn begin(&mut self, now: Instant, relay: SocketAddr) {
        self.relay = Some(relay);
        self.since = Some(now);
        self.pause = PAUSE_FIRST;
        self.next_at = Some(now + self.pause);
        (self.say)(&format!("weir: connecting to {relay}"));
    }

    /// Says why the role has left its relay.
    fn leave(&mut self) {
        if let Some(relay) = self.relay.take() {
            let reason = self.role.last_move().unwrap_or("the connection was lost");
            (self.say)(&format!("weir: left {relay}: {reason}"));
        }
        self.next_at = None;
    }

    /// Says what is missing, if it is time.
    fn complain(&mut self, now: Instant, endpoint: &mut Endpoint, stage: Stage) {
        let (Some(relay), Some(since)) = (self.relay, self.since) else {
            return;
        };
        if self.next_at.is_none_or(|at| at > now) {
            return;
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.next_at = Some(now + self.pause);
        let handle = self.role.client().handle();
        let connection = handle.and_then(|handle| endpoint.connection(now, handle));
        let received = connection.map_or(0, |one| one.stats().payloads_received);
        let missing = match stage {
            Stage::Connecting if received == 0 => "no packet has come back",
            Stage::Connecting => "packets come back, but the handshake is not complete",
            Stage::AwaitsSetup => "the connection is established, but no SETUP has arrived",
            Stage::Ready => self.role.awaited(),
            Stage::Waiting | Stage::Closed => return,
        };
        let seconds = now.saturating_duration_since(since).as_secs();
        (self.say)(&format!(
            "weir: still waiting for {relay} after {seconds} s: {missing}"
        ));
    }
}

impl<R: Connects, S: FnMut(&str)> App for Connecting<R, S> {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.role.handle_event(now, endpoint, event);
        self.look(now, endpoint);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let due = [self.role.poll_timeout(), self.next_at];
        due.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.role.handle_timeout(now, endpoint);
        self.look(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.role.handle_shutdown(now, endpoint);
        self.look(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.role.is_finished()
    }
}

/// The time until the first line about what is missing.
const PAUSE_FIRST: Duration = Duration::from_secs(3);
/// The longest time between two of these lines.
const PAUSE_MAX: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use std::{mem, sync::Arc};

    use weir_client::target::Target;
    use weir_live::{
        Choice, Item, Join, OriginConfig, PublishFlow, Timebase, ViewerConfig,
        packaging::Packaging, playout::BufferChoice, source::Source, strategy,
    };
    use weir_moqt::{draft::Draft, name::Namespace};
    use weir_relay::{Config, Relay};
    use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

    use super::*;

    /// A publisher's input that never has anything.
    #[derive(Debug)]
    struct Nothing;

    impl Source for Nothing {
        fn poll(&mut self, _now: Instant) -> Option<(Instant, Item)> {
            None
        }

        fn next_at(&self) -> Option<Instant> {
            None
        }

        fn is_over(&self) -> bool {
            false
        }
    }

    type Said<R> = Connecting<R, Box<dyn FnMut(&str)>>;

    /// Two relays and a client.
    struct Scene {
        sim: Sim,
        relays: [NodeId; 2],
        client: NodeId,
        said: Arc<std::sync::Mutex<Vec<String>>>,
    }

    impl Scene {
        fn new() -> Self {
            let mut sim = Sim::new(7);
            let relays = [(); 2].map(|()| {
                let server = Some(sim.server_tls(&Draft::alpns()));
                let node = sim.add_node(NodeConfig {
                    server,
                    ..NodeConfig::default()
                });
                sim.start(node, Relay::new(Config::default()));
                node
            });
            let client = sim.add_node(NodeConfig::default());
            Self {
                sim,
                relays,
                client,
                said: Arc::default(),
            }
        }

        fn target(&self, relays: &[NodeId]) -> Target {
            let config = self.sim.client_config(&Draft::alpns());
            let one =
                |relay: &NodeId| Target::new(self.sim.address(*relay), SERVER_NAME, config.clone());
            let mut target = one(&relays[0]);
            target.alternatives = relays[1..]
                .iter()
                .map(|relay| Arc::new(one(relay)))
                .collect();
            target
        }

        fn start<R: Connects + 'static>(&mut self, role: R) {
            let said = Arc::clone(&self.said);
            let say = move |line: &str| said.lock().unwrap().push(line.to_owned());
            let say: Box<dyn FnMut(&str)> = Box::new(say);
            self.sim.start(self.client, Connecting::new(role, say));
        }

        fn publish(&mut self, relays: &[NodeId]) {
            let origin = Origin::new(OriginConfig {
                target: self.target(relays),
                namespace: Namespace::new(["live"]).unwrap(),
                flow: PublishFlow::Publish,
                strategy: strategy::by_name("weir").unwrap(),
                fits_relay: false,
                packaging: Packaging::Cmaf,
                timebase: self.timebase(),
                source: Box::new(Nothing),
            });
            self.start(origin);
        }

        fn timebase(&self) -> Timebase {
            Timebase {
                at: self.sim.now(),
                us: 0,
            }
        }

        /// Returns what was said up to this second.
        fn said_until(&mut self, second: u64) -> Vec<String> {
            self.sim.run_until(Duration::from_secs(second), |_| false);
            mem::take(&mut self.said.lock().unwrap())
        }
    }

    #[test]
    fn a_relay_that_does_not_answer_is_named_at_once_and_again_while_it_is_silent() {
        let mut scene = Scene::new();
        let relay = scene.relays[0];
        scene.sim.kill(relay);
        scene.publish(&[relay]);
        let address = scene.sim.address(relay);
        assert_eq!(
            scene.said_until(2),
            [format!("weir: connecting to {address}")]
        );
        let still = |seconds: u64| {
            format!("weir: still waiting for {address} after {seconds} s: no packet has come back")
        };
        assert_eq!(scene.said_until(29), [still(3), still(9), still(21)]);
        // The command says why it failed.
        assert!(scene.said_until(120).is_empty());
        let failed: &Said<Origin> = scene.sim.app(scene.client);
        assert!(failed.role.failure().is_some() && failed.poll_timeout().is_none());
    }

    #[test]
    fn a_publisher_that_is_accepted_says_so_and_is_silent_from_then_on() {
        let mut scene = Scene::new();
        let relay = scene.relays[0];
        scene.publish(&[relay]);
        let address = scene.sim.address(relay);
        let expected = [
            format!("weir: connecting to {address}"),
            format!("weir: publishing to {address}"),
        ];
        assert_eq!(scene.said_until(60), expected);
    }

    #[test]
    fn a_publisher_names_the_relay_that_it_leaves_and_the_next_one() {
        let mut scene = Scene::new();
        let [first, second] = scene.relays;
        scene.publish(&[first, second]);
        scene.said_until(1);
        scene.sim.kill(first);
        let addresses = [first, second].map(|relay| scene.sim.address(relay));
        let said = scene.said_until(10);
        let [left, connecting, publishing] = &said[..] else {
            panic!("{said:?}");
        };
        let left_for = format!("weir: left {}: timed out", addresses[0]);
        assert!(left.starts_with(&left_for), "{left}");
        assert_eq!(*connecting, format!("weir: connecting to {}", addresses[1]));
        assert_eq!(*publishing, format!("weir: publishing to {}", addresses[1]));
    }

    #[test]
    fn a_player_without_a_publisher_says_what_it_waits_for() {
        let mut scene = Scene::new();
        let relay = scene.relays[0];
        let viewer = Viewer::new(ViewerConfig {
            target: scene.target(&[relay]),
            namespace: Namespace::new(["live"]).unwrap(),
            choice: Choice::Catalog,
            join: Join::Next,
            buffer: BufferChoice::default(),
            rendezvous_timeout: Duration::from_secs(5),
            reconnect_timeout: Duration::ZERO,
            timebase: scene.timebase(),
        });
        scene.start(viewer);
        let address = scene.sim.address(relay);
        let expected = [
            format!("weir: connecting to {address}"),
            format!("weir: still waiting for {address} after 3 s: no frame has arrived"),
        ];
        assert_eq!(scene.said_until(60), expected);
        let failed: &Said<Viewer> = scene.sim.app(scene.client);
        assert!(failed.role.failure().is_some());
    }
}
