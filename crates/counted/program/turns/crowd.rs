//! The clients of a stage, and the relays that its relay connects to.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use weir_client::{peer::Peer, turn::Turn};
use weir_moqt::{
    error::RequestErrorCode,
    limits::Limits,
    message::{RequestError, RequestOk, Setup, SubscribeOk},
    parameter::Parameters,
    property::Properties,
    session::{Event as SessionEvent, Request, RequestId, Side},
};
use weir_quic::{App, Endpoint, Event, Handle};

/// Sessions that accept whatever the relay asks of them, but have no past objects.
#[derive(Default)]
pub(crate) struct Crowd {
    pub(crate) peers: BTreeMap<Handle, Peer>,
    /// Connections that the crowd has opened. The relay opened all others.
    pub(crate) opened: BTreeSet<Handle>,
    /// Subscriptions of the relay to prefixes of namespaces, at the relays that it connects to.
    pub(crate) watched: Vec<(Handle, RequestId)>,
    next_alias: u64,
}

impl Crowd {
    /// Returns whether the session of a connection is ready.
    pub(crate) fn is_ready(&self, handle: Handle) -> bool {
        let peer = self.peers.get(&handle);
        peer.is_some_and(|peer| peer.session().is_ready())
    }

    fn answer(&mut self, turn: &mut Turn<'_>, handle: Handle, event: SessionEvent) {
        let SessionEvent::Request { id, request } = event else {
            return;
        };
        let Some((session, mut connection)) =
            self.peers.get_mut(&handle).and_then(|peer| peer.open(turn))
        else {
            return;
        };
        if let Request::Subscribe(_) = request {
            self.next_alias += 1;
            let ok = SubscribeOk {
                track_alias: ALIASES_FROM + self.next_alias,
                parameters: Parameters::default(),
                properties: Properties::EMPTY,
            };
            session.subscribe_ok(&mut connection, id, ok);
        } else if let Request::Fetch(_) = request {
            let error = RequestError::new(RequestErrorCode::DOES_NOT_EXIST, "nothing to fetch");
            session.request_error(&mut connection, id, error);
        } else if let Request::SubscribeNamespace(_) = request {
            session.request_ok(&mut connection, id, RequestOk::default());
            self.watched.push((handle, id));
        } else {
            session.request_ok(&mut connection, id, RequestOk::default());
        }
    }
}

impl App for Crowd {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let handle = event.handle();
        let mut turn = Turn { now, endpoint };
        if let Event::Connected { .. } = event {
            let mut connection = turn.connection(handle).expect("it has connected");
            let side = if self.opened.contains(&handle) {
                Side::Client
            } else {
                Side::Server
            };
            let limits = Limits {
                requests_max: 1 << 16,
                ..Limits::default()
            };
            let peer = Peer::start(now, &mut connection, side, Setup::default(), limits);
            self.peers.extend(peer.map(|peer| (handle, peer)));
            return;
        }
        let Some(peer) = self.peers.get_mut(&handle) else {
            return;
        };
        peer.handle_event(&mut turn, event);
        while let Some(event) = self.peers.get_mut(&handle).and_then(Peer::poll_event) {
            self.answer(&mut turn, handle, event);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// Track aliases of subscriptions of the relay, beyond those that the scenes choose.
const ALIASES_FROM: u64 = 1 << 20;
