//! Random roles that obey the protocol, on both sides of a reordering link, against a model of the events that each
//! role may get.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weir_transport::{Direction, Transport};

use super::link::index;
use super::pair::{
    Pair, config, datagram, done, fetch_ok, namespace, ok, request_error, subgroup, subscribe_ok,
    track,
};
use crate::error::{RequestErrorCode, ResetCode};
use crate::location::Location;
use crate::message::{FetchKind, RequestKind};
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::session::{Event, RequestId, Session, Side};

/// An operation of a role or of the link. `which` selects among the requests to which it applies.
#[derive(Clone, Debug)]
enum Op {
    Ask { side: Side, kind: RequestKind },
    Answer { side: Side, which: u8, accept: bool },
    Update { side: Side, which: u8 },
    AnswerUpdate { side: Side, which: u8, accept: bool },
    Done { side: Side, which: u8 },
    Cancel { side: Side, which: u8 },
    Namespace { side: Side, which: u8, name: u8 },
    Subgroup { side: Side, which: u8 },
    Datagram { side: Side, which: u8 },
    Deliver { steps: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    let side = || prop_oneof![Just(Side::Client), Just(Side::Server)];
    let kind = || prop::sample::select(RequestKind::ALL.to_vec());
    let which = any::<u8>;
    prop_oneof![
        4 => (side(), kind()).prop_map(|(side, kind)| Op::Ask { side, kind }),
        4 => (side(), which(), any::<bool>())
            .prop_map(|(side, which, accept)| Op::Answer { side, which, accept }),
        2 => (side(), which()).prop_map(|(side, which)| Op::Update { side, which }),
        2 => (side(), which(), any::<bool>())
            .prop_map(|(side, which, accept)| Op::AnswerUpdate { side, which, accept }),
        1 => (side(), which()).prop_map(|(side, which)| Op::Done { side, which }),
        1 => (side(), which()).prop_map(|(side, which)| Op::Cancel { side, which }),
        2 => (side(), which(), 0_u8..4)
            .prop_map(|(side, which, name)| Op::Namespace { side, which, name }),
        3 => (side(), which()).prop_map(|(side, which)| Op::Subgroup { side, which }),
        3 => (side(), which()).prop_map(|(side, which)| Op::Datagram { side, which }),
        8 => (0_u8..12).prop_map(|steps| Op::Deliver { steps }),
    ]
}

/// What one role knows of one request.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
enum Known {
    /// Nothing yet.
    #[default]
    No,
    /// Asked, not answered.
    Pending,
    /// Answered with an OK.
    Established,
    /// The publisher sent PUBLISH_DONE, or the last answer was given; at most `Closed` may follow.
    Ending,
    /// Over; nothing may follow.
    Over,
}

#[derive(Debug, Default)]
struct View {
    known: Known,
    is_closed: bool,
    updates_sent: usize,
    updates_due: usize,
    namespaces: BTreeSet<u8>,
    /// Objects delivered: subgroups by group, datagrams by object.
    groups: BTreeSet<u64>,
    objects: BTreeSet<u64>,
}

#[derive(Debug)]
struct Request {
    opener: Side,
    kind: RequestKind,
    views: [View; 2],
    groups_sent: u64,
    objects_sent: u64,
    /// Whether the receiver may miss objects because it ended the request first.
    may_lose: bool,
}

impl Request {
    /// The side the objects of the request come from.
    fn publisher(&self) -> Option<Side> {
        match self.kind {
            RequestKind::Subscribe => Some(self.opener.peer()),
            RequestKind::Publish => Some(self.opener),
            RequestKind::Fetch
            | RequestKind::TrackStatus
            | RequestKind::PublishNamespace
            | RequestKind::SubscribeNamespace
            | RequestKind::SubscribeTracks => None,
        }
    }

    fn alias(id: RequestId) -> u64 {
        1000 + id.0
    }
}

struct Model {
    pair: Pair,
    requests: BTreeMap<RequestId, Request>,
}

impl Model {
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Ask { side, kind } => self.ask(side, kind),
            Op::Answer {
                side,
                which,
                accept,
            } => self.answer(side, which, accept),
            Op::Update { side, which } => self.update(side, which),
            Op::AnswerUpdate {
                side,
                which,
                accept,
            } => self.answer_update(side, which, accept),
            Op::Done { side, which } => self.done(side, which),
            Op::Cancel { side, which } => self.cancel(side, which),
            Op::Namespace { side, which, name } => self.namespace(side, which, name),
            Op::Subgroup { side, which } => self.subgroup(side, which),
            Op::Datagram { side, which } => self.datagram(side, which),
            Op::Deliver { steps } => {
                for _ in 0..steps {
                    self.pair.step();
                    self.hear();
                }
            }
        }
        self.hear();
    }

    /// One of the requests a side may do something to.
    fn pick(
        &self,
        side: Side,
        which: u8,
        may: impl Fn(&Request, &View) -> bool,
    ) -> Option<RequestId> {
        let able = self
            .requests
            .iter()
            .filter(|(_, request)| may(request, &request.views[index(side)]));
        let able: Vec<RequestId> = able.map(|(&id, _)| id).collect();
        able.get(usize::from(which) % able.len().max(1)).copied()
    }

    fn view(&mut self, side: Side, id: RequestId) -> &mut View {
        &mut self.requests.get_mut(&id).expect("the model has it").views[index(side)]
    }

    fn ask(&mut self, side: Side, kind: RequestKind) {
        let number = self.requests.len();
        let name = format!("t{number}");
        let alias = Request::alias(self.next_id(side));
        let id = self.pair.with(side, |session: &mut Session, view| {
            let (track, none) = (track(&name), Parameters::default());
            let namespace = namespace("a");
            match kind {
                RequestKind::Subscribe => session.subscribe(view, track, none),
                RequestKind::Publish => {
                    session.publish(view, track, alias, none, Properties::EMPTY)
                }
                RequestKind::Fetch => {
                    let (start, end) = (Location::ZERO, Location::new(9, 9));
                    session.fetch(view, FetchKind::Standalone { track, start, end }, none)
                }
                RequestKind::TrackStatus => session.track_status(view, track, none),
                RequestKind::PublishNamespace => session.publish_namespace(view, namespace, none),
                RequestKind::SubscribeNamespace => {
                    session.subscribe_namespace(view, namespace, none)
                }
                RequestKind::SubscribeTracks => session.subscribe_tracks(view, namespace, none),
            }
        });
        let id = id.expect("there is room");
        let mut request = Request {
            opener: side,
            kind,
            views: Default::default(),
            groups_sent: 0,
            objects_sent: 0,
            may_lose: false,
        };
        request.views[index(side)].known = Known::Pending;
        assert!(self.requests.insert(id, request).is_none(), "IDs are new");
        assert_eq!(Request::alias(id), alias);
    }

    /// The ID the next request of a side gets: requests and updates count.
    fn next_id(&self, side: Side) -> RequestId {
        self.pair.session(side).ids.next()
    }

    fn answer(&mut self, side: Side, which: u8, accept: bool) {
        let pick = self.pick(side, which, |request, view| {
            request.opener != side && view.known == Known::Pending
        });
        let Some(id) = pick else { return };
        let kind = self.requests[&id].kind;
        self.pair.with(side, |session, view| match (accept, kind) {
            (false, _) => {
                session.request_error(view, id, request_error(RequestErrorCode::TIMEOUT));
            }
            (true, RequestKind::Subscribe) => {
                session.subscribe_ok(view, id, subscribe_ok(Request::alias(id)));
            }
            (true, RequestKind::Fetch) => {
                session.fetch_ok(view, id, fetch_ok(Location::new(9, 9)));
            }
            (true, _) => session.request_ok(view, id, ok()),
        });
        let is_over = !accept || kind == RequestKind::TrackStatus;
        if is_over {
            self.lose(id);
        }
        self.view(side, id).known = if is_over {
            Known::Over
        } else {
            Known::Established
        };
    }

    fn update(&mut self, side: Side, which: u8) {
        let pick = self.pick(side, which, |request, view| {
            let may = match view.known {
                Known::Pending => request.opener == side,
                Known::Established => {
                    request.opener == side || request.kind == RequestKind::Publish
                }
                Known::No | Known::Ending | Known::Over => false,
            };
            may && request.kind != RequestKind::TrackStatus && view.updates_sent < 16
        });
        let Some(id) = pick else { return };
        let sent = self.pair.with(side, |session, view| {
            session.update(view, id, Parameters::default())
        });
        assert_eq!(sent, Ok(()));
        self.view(side, id).updates_sent += 1;
    }

    fn answer_update(&mut self, side: Side, which: u8, accept: bool) {
        let pick = self.pick(side, which, |_, view| {
            let open = matches!(view.known, Known::Pending | Known::Established);
            open && view.updates_due > 0
        });
        let Some(id) = pick else { return };
        self.view(side, id).updates_due -= 1;
        self.pair.with(side, |session, view| {
            if accept {
                session.update_ok(view, id, ok());
            } else {
                session.update_error(view, id, request_error(RequestErrorCode::TIMEOUT));
            }
        });
        let kind = self.requests[&id].kind;
        let is_unanswered =
            self.requests[&id].opener != side && self.view(side, id).known == Known::Pending;
        let outlives = matches!(kind, RequestKind::Subscribe | RequestKind::Publish);
        if !accept && (is_unanswered || !outlives) {
            self.lose(id);
            self.view(side, id).known = Known::Over;
        }
    }

    fn done(&mut self, side: Side, which: u8) {
        let pick = self.pick(side, which, |request, view| {
            request.publisher() == Some(side)
                && (view.known == Known::Established
                    || view.known == Known::Pending && request.opener == side)
        });
        let Some(id) = pick else { return };
        self.pair
            .with(side, |session, view| session.publish_done(view, id, done()));
        self.view(side, id).known = Known::Over;
    }

    fn cancel(&mut self, side: Side, which: u8) {
        let pick = self.pick(side, which, |_, view| {
            !matches!(view.known, Known::No | Known::Over)
        });
        let Some(id) = pick else { return };
        self.pair.with(side, |session, view| {
            session.cancel(view, id, ResetCode::CANCELLED);
        });
        self.view(side, id).known = Known::Over;
        self.lose(id);
    }

    fn lose(&mut self, id: RequestId) {
        self.requests
            .get_mut(&id)
            .expect("the model has it")
            .may_lose = true;
    }

    fn namespace(&mut self, side: Side, which: u8, name: u8) {
        let pick = self.pick(side, which, |request, view| {
            request.kind == RequestKind::SubscribeNamespace
                && request.opener != side
                && view.known == Known::Established
        });
        let Some(id) = pick else { return };
        let suffix = namespace(&name.to_string());
        let comes = self.view(side, id).namespaces.insert(name);
        if !comes {
            self.view(side, id).namespaces.remove(&name);
        }
        self.pair.with(side, |session, view| {
            if comes {
                session.namespace(view, id, suffix);
            } else {
                session.namespace_done(view, id, suffix);
            }
        });
    }

    /// A subscription a side publishes objects to.
    fn pick_publisher(&self, side: Side, which: u8) -> Option<RequestId> {
        self.pick(side, which, |request, view| {
            request.publisher() == Some(side)
                && (view.known == Known::Established
                    || view.known == Known::Pending && request.opener == side)
        })
    }

    fn subgroup(&mut self, side: Side, which: u8) {
        let Some(id) = self.pick_publisher(side, which) else {
            return;
        };
        let request = self.requests.get_mut(&id).expect("it was picked");
        let data = subgroup(Request::alias(id), request.groups_sent);
        request.groups_sent += 1;
        self.pair.with(side, |_, view| {
            let stream = view.open(Direction::Uni).expect("the link has streams");
            view.write(stream, &mut data.into())
                .expect("the link takes it");
            view.finish(stream);
        });
    }

    fn datagram(&mut self, side: Side, which: u8) {
        let Some(id) = self.pick_publisher(side, which) else {
            return;
        };
        let request = self.requests.get_mut(&id).expect("it was picked");
        let object = request.objects_sent;
        request.objects_sent += 1;
        let sent = datagram(Request::alias(id), object);
        if let Some(to) = self.pair.datagram(side.peer(), &sent) {
            assert_eq!(to, id);
            self.hear_object(side.peer(), id, object);
        }
    }

    fn hear_object(&mut self, side: Side, id: RequestId, object: u64) {
        let view = self.view(side, id);
        assert!(
            !matches!(view.known, Known::No | Known::Over),
            "objects of {id:?} at {side:?}"
        );
        assert!(view.objects.insert(object), "each object once");
    }

    fn hear(&mut self) {
        for side in [Side::Client, Side::Server] {
            for event in self.pair.events(side) {
                self.hear_one(side, event);
            }
        }
    }

    fn hear_one(&mut self, side: Side, event: Event) {
        use Known::{Ending, Established, No, Over, Pending};
        match event {
            Event::Request { id, request } => {
                assert_eq!(request.kind(), self.requests[&id].kind);
                self.turn(side, id, &[No], Pending);
            }
            Event::Accepted { id, .. } => {
                let is_last = self.requests[&id].kind == RequestKind::TrackStatus;
                let next = if is_last { Ending } else { Established };
                self.turn(side, id, &[Pending], next);
            }
            Event::Rejected { id, .. } => self.turn(side, id, &[Pending], Over),
            Event::Done { id, .. } => {
                assert_eq!(self.requests[&id].publisher(), Some(side.peer()));
                self.turn(side, id, &[Pending, Established], Ending);
            }
            Event::Closed { id, .. } => self.hear_closed(side, id),
            Event::Update { id, .. } => {
                self.turn_not(side, id);
                self.view(side, id).updates_due += 1;
            }
            Event::Updated { id, result } => self.hear_updated(side, id, result.is_ok()),
            Event::Namespace { id, suffix } => {
                self.turn_not(side, id);
                let name = suffix.to_string().parse().expect("a number");
                self.view(side, id).namespaces.insert(name);
            }
            Event::NamespaceDone { id, suffix } => {
                self.turn_not(side, id);
                let name: u8 = suffix.to_string().parse().expect("a number");
                assert!(self.view(side, id).namespaces.remove(&name));
            }
            Event::Subgroup {
                request, header, ..
            } => {
                let view = self.view(side, request);
                assert!(!matches!(view.known, No | Over));
                assert!(view.groups.insert(header.group), "each subgroup once");
            }
            Event::Datagram { request, datagram } => {
                self.hear_object(side, request, datagram.object);
            }
            Event::Object { .. } | Event::Payload { .. } | Event::StreamEnd { .. } => {}
            other @ (Event::Ready { .. }
            | Event::PublishBlocked { .. }
            | Event::StateChanged { .. }
            | Event::GoAway(_)
            | Event::RequestGoAway { .. }
            | Event::Fetched { .. }
            | Event::FetchObject { .. }
            | Event::Violated(_)) => panic!("{side:?} did not expect {other:?}"),
        }
    }

    fn hear_closed(&mut self, side: Side, id: RequestId) {
        use Known::{Ending, Established, Over, Pending};
        let view = self.view(side, id);
        assert!(
            !std::mem::replace(&mut view.is_closed, true),
            "{id:?} closes once"
        );
        let was_ending = view.known == Ending;
        self.turn(side, id, &[Pending, Established, Ending], Over);
        if was_ending {
            // Objects may still come.
            self.view(side, id).known = Ending;
        } else {
            self.lose(id);
        }
    }

    fn hear_updated(&mut self, side: Side, id: RequestId, is_ok: bool) {
        let keeps = matches!(
            self.requests[&id].kind,
            RequestKind::Subscribe | RequestKind::Publish
        );
        let view = self.view(side, id);
        view.updates_sent = view.updates_sent.checked_sub(1).expect("one was sent");
        if !is_ok && !keeps {
            self.turn(side, id, &[Known::Established], Known::Ending);
        }
    }

    fn turn(&mut self, side: Side, id: RequestId, from: &[Known], to: Known) {
        let view = self.view(side, id);
        assert!(
            from.contains(&view.known),
            "{id:?} at {side:?}: {:?} to {to:?}",
            view.known
        );
        view.known = to;
    }

    fn turn_not(&mut self, side: Side, id: RequestId) {
        let known = self.view(side, id).known;
        assert!(
            matches!(known, Known::Pending | Known::Established),
            "{id:?}: {known:?}"
        );
    }

    /// Ends everything, and checks that nothing is left and nothing was lost without a reason.
    fn finish(mut self) {
        self.pair.run();
        self.hear();
        for (id, request) in &self.requests {
            let Some(publisher) = request.publisher() else {
                continue;
            };
            let receiver = &request.views[index(publisher.peer())];
            if !request.may_lose && receiver.known != Known::Pending {
                assert_eq!(receiver.groups.len() as u64, request.groups_sent, "{id:?}");
                assert_eq!(
                    receiver.objects.len() as u64,
                    request.objects_sent,
                    "{id:?}"
                );
            }
        }
        let ids: Vec<(RequestId, Side)> = self
            .requests
            .iter()
            .map(|(&id, request)| (id, request.opener))
            .collect();
        for side in [Side::Client, Side::Server] {
            for (id, opener) in &ids {
                if *opener == side {
                    self.pair.with(side, |session, view| {
                        session.cancel(view, *id, ResetCode::CANCELLED);
                    });
                    self.view(side, *id).known = Known::Over;
                }
            }
        }
        self.pair.run();
        for side in [Side::Client, Side::Server] {
            assert_eq!(self.pair.session(side).requests_len(), 0, "{side:?}");
            assert_eq!(self.pair.closed(side), None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn roles_hear_what_the_model_says(
        seed in any::<u64>(),
        ops in prop::collection::vec(op(), 1..160),
    ) {
        let mut model = Model {
            pair: Pair::ready_with(seed, config(Side::Client), config(Side::Server)),
            requests: BTreeMap::new(),
        };
        for op in &ops {
            model.apply(op);
        }
        model.finish();
    }
}
