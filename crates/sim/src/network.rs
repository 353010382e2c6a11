//! The links between nodes, and the owners of addresses.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustc_hash::FxHashMap;
use weir_link::{Config, Link, Probability, Random};
use weir_quic::EcnCodepoint;

use crate::agenda::{Agenda, Alarm, Task};
use crate::trace::{Moment, Trace};

/// A UDP datagram on a link.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The address of the sender.
    pub source: SocketAddr,
    /// The address of the receiver.
    pub destination: SocketAddr,
    /// The ECN codepoint of the IP header.
    pub ecn: Option<EcnCodepoint>,
    /// The payload.
    pub data: BytesMut,
}

/// The owner of an address: a node, and the number of its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) node: usize,
    pub(crate) socket: u32,
}

/// All links and addresses.
#[derive(Debug)]
pub(crate) struct Network {
    seed: u64,
    default_config: Config,
    links: Vec<Wired>,
    /// Links by their sending and receiving nodes.
    by_pair: FxHashMap<(usize, usize), usize>,
    owners: FxHashMap<SocketAddr, Owner>,
    corruption: Probability,
    /// Chooses what is corrupted.
    chance: Random,
    trace: Trace,
}

/// A link, and its entry in the agenda.
#[derive(Debug)]
struct Wired {
    link: Link<Datagram>,
    alarm: Alarm,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            default_config: Config::default(),
            links: Vec::new(),
            by_pair: FxHashMap::default(),
            owners: FxHashMap::default(),
            corruption: Probability::ZERO,
            chance: derived(seed, [CORRUPTION, 0, 0]),
            trace: Trace::default(),
        }
    }

    pub(crate) fn set_default_config(&mut self, config: Config) {
        self.default_config = config;
    }

    pub(crate) fn set_corruption(&mut self, corruption: Probability) {
        self.corruption = corruption;
    }

    /// Returns the index of a link. Creates it with the default configuration if it does not exist.
    pub(crate) fn link_index(&mut self, now: Instant, from: usize, to: usize) -> usize {
        if let Some(index) = self.by_pair.get(&(from, to)) {
            return *index;
        }
        self.links.push(Wired {
            link: Link::new(now, self.default_config.clone(), self.link_seed(from, to)),
            alarm: Alarm::default(),
        });
        let index = self.links.len() - 1;
        self.by_pair.insert((from, to), index);
        index
    }

    /// Replaces a link with an empty one of this configuration.
    pub(crate) fn replace_link(&mut self, now: Instant, from: usize, to: usize, config: Config) {
        let index = self.link_index(now, from, to);
        self.links[index].link = Link::new(now, config, self.link_seed(from, to));
    }

    /// Replaces the links of all these pairs with one empty link that they share.
    pub(crate) fn share_link(&mut self, now: Instant, pairs: &[(usize, usize)], config: Config) {
        let Some(&(from, to)) = pairs.first() else {
            return;
        };
        self.replace_link(now, from, to, config);
        let index = self.link_index(now, from, to);
        self.by_pair.extend(pairs.iter().map(|pair| (*pair, index)));
    }

    pub(crate) fn link(&mut self, index: usize) -> &mut Link<Datagram> {
        &mut self.links[index].link
    }

    pub(crate) fn existing_link(&self, from: usize, to: usize) -> Option<&Link<Datagram>> {
        let index = self.by_pair.get(&(from, to))?;
        Some(&self.links[*index].link)
    }

    /// Enters the next event of a link in the agenda.
    pub(crate) fn schedule(&mut self, agenda: &mut Agenda, index: usize) {
        let Wired { link, alarm } = &mut self.links[index];
        alarm.set(agenda, Task::Link(index), link.poll_timeout());
    }

    /// Whether the agenda's entry at `at` is the link's current one.
    pub(crate) fn alarm_rings(&mut self, index: usize, at: Instant) -> bool {
        self.links[index].alarm.rings(at)
    }

    pub(crate) fn owner(&self, address: SocketAddr) -> Option<Owner> {
        self.owners.get(&address).copied()
    }

    /// Assigns an address to a node's socket. It must be free.
    pub(crate) fn claim(&mut self, address: SocketAddr, owner: Owner) {
        let before = self.owners.insert(address, owner);
        assert!(before.is_none(), "{address} belongs to {before:?} already");
    }

    pub(crate) fn release(&mut self, address: SocketAddr) {
        self.owners.remove(&address);
    }

    /// Sends a datagram of the node `from` over its link.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        elapsed: Duration,
        agenda: &mut Agenda,
        from: usize,
        mut datagram: Datagram,
    ) {
        self.record(elapsed, Moment::Sent, &datagram);
        let Some(to) = self.owner(datagram.destination) else {
            self.record(elapsed, Moment::Unroutable, &datagram);
            return;
        };
        if self.chance.chance(self.corruption) {
            self.record(elapsed, Moment::Corrupted, &datagram);
            flip_one_bit(&mut datagram.data, &mut self.chance);
        }
        let index = self.link_index(now, from, to.node);
        let size_bytes = datagram.data.len() + header_bytes(datagram.destination);
        self.links[index]
            .link
            .handle_packet(now, datagram, size_bytes);
        self.schedule(agenda, index);
    }

    pub(crate) fn record(&mut self, elapsed: Duration, moment: Moment, datagram: &Datagram) {
        let Datagram {
            source,
            destination,
            data,
            ..
        } = datagram;
        self.trace
            .record(elapsed, moment, *source, *destination, data.len());
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns a link's seed, which does not depend on other links.
    fn link_seed(&self, from: usize, to: usize) -> u64 {
        derived(self.seed, [LINK_SEEDS, from as u64, to as u64]).next_u64()
    }
}

/// Returns a generator for one purpose, named by `path`, independent of all others.
pub(crate) fn derived(seed: u64, path: [u64; 3]) -> Random {
    path.into_iter()
        .fold(Random::new(seed), |mut random, part| {
            Random::new(random.next_u64() ^ part)
        })
}

/// Returns the bytes that IP and UDP add to a datagram.
fn header_bytes(address: SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(_) => 20 + 8,
        IpAddr::V6(_) => 40 + 8,
    }
}

/// Flips a bit of a QUIC packet's header, or of the tag that authenticates the packet.
///
/// It is none that makes the receiver read ciphertext as something else, such as a length or the sample of header protection:
/// the ciphertext depends on TLS's random numbers, which have no seed, so equal runs would differ.
fn flip_one_bit(data: &mut [u8], random: &mut Random) {
    let is_long = data.first().is_some_and(|flags| flags & LONG_FORM != 0);
    let header = if is_long { LONG_BYTES } else { SHORT_BYTES };
    let bit = random.below(8 * (header + TAG_BYTES) as u64);
    let (place, mask) = (
        usize::try_from(bit / 8).unwrap_or(usize::MAX),
        1 << (bit % 8),
    );
    let place = if place < header {
        Some(place)
    } else {
        (data.len() + place).checked_sub(header + TAG_BYTES)
    };
    if let Some(byte) = place.and_then(|place| data.get_mut(place)) {
        let is_form = place == Some(0) && mask == LONG_FORM;
        *byte ^= if is_form && !is_long { FIXED } else { mask };
    }
}

/// The bit of the first byte that says that the header is long (RFC 9000 §17).
const LONG_FORM: u8 = 0x80;
/// The bit of the first byte that is always set.
const FIXED: u8 = 0x40;
/// Flags and version of a long header.
const LONG_BYTES: usize = 5;
/// Flags and connection ID of a short header.
const SHORT_BYTES: usize = 9;
/// The authentication tag at the end of a packet (RFC 9001 §5.3).
const TAG_BYTES: usize = 16;

/// The first element of the path of link seeds.
const LINK_SEEDS: u64 = 1;
/// The first element of the path of the seed of corruption.
const CORRUPTION: u64 = 3;
