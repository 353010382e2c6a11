//! SUBSCRIBE_NAMESPACE and SUBSCRIBE_TRACKS: who hears of namespaces and of tracks under a prefix.

use std::collections::BTreeSet;

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    message::{RequestOk, SubscribeTracks},
    name::{FullTrackName, Namespace},
    parameter::Parameters,
    session::RequestId,
};
use weir_quic::Handle;

use crate::{
    dispatch::Owners,
    sessions::peer::{Part, Peer},
    turn::Turn,
};

/// A session's wish to hear of what lies under a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) prefix: Namespace,
    pub(crate) subject: Subject,
}

/// What an [`Interest`] is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Namespaces; those that the session was told of, and not yet that they are gone.
    Namespaces { told: BTreeSet<Namespace> },
    /// Tracks; whether it wants their objects at once, and those that there was no room for.
    Tracks {
        forward: bool,
        blocked: BTreeSet<FullTrackName>,
    },
}

impl Interest {
    /// Whether both are in the same, and one prefix begins with the other [moqt-18 §10.18].
    fn overlaps(&self, other: &Self) -> bool {
        std::mem::discriminant(&self.subject) == std::mem::discriminant(&other.subject)
            && (self.prefix.starts_with(&other.prefix) || other.prefix.starts_with(&self.prefix))
    }
}

impl Owners {
    /// A session wants to hear of namespaces.
    pub(crate) fn on_subscribe_namespace(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        prefix: Namespace,
    ) {
        let told = BTreeSet::new();
        let subject = Subject::Namespaces { told };
        let interest = Interest { prefix, subject };
        self.on_interest(turn, handle, id, interest);
    }

    /// A session wants to be offered tracks.
    pub(crate) fn on_subscribe_tracks(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        subscribe: SubscribeTracks,
    ) {
        let subject = Subject::Tracks {
            forward: subscribe.parameters.forward.unwrap_or(true),
            blocked: BTreeSet::new(),
        };
        let prefix = subscribe.prefix;
        let interest = Interest { prefix, subject };
        self.on_interest(turn, handle, id, interest);
    }

    fn on_interest(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        interest: Interest,
    ) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        if peer.counts.prefixes >= turn.config.limits.prefixes_per_session_max {
            turn.counters.refused_limit_prefixes += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        if let Err(code) = self.check_interest(turn, handle, id, &interest) {
            return turn.refuse(handle, id, code);
        }
        self.register(handle, id, &interest);
        if let Some(peer) = turn.sessions.get(handle) {
            peer.insert(id, Part::Interest(Box::new(interest)));
        }
        turn.with_session(handle, |session, connection| {
            session.request_ok(connection, id, RequestOk::default());
        });
        self.tell_what_is_there(turn, handle, id);
    }

    /// A request or an update for a prefix was accepted: tells what there is turn.now.
    fn tell_what_is_there(&mut self, turn: &mut Turn<'_>, handle: Handle, id: RequestId) {
        let Some(interest) = turn
            .sessions
            .get(handle)
            .and_then(|peer| interest(peer, id))
        else {
            return;
        };
        let prefix = interest.prefix.clone();
        match interest.subject {
            Subject::Namespaces { .. } => {
                let there: Vec<Namespace> = self.namespaces.under(&prefix).cloned().collect();
                for namespace in there {
                    self.tell(turn, (handle, id), &namespace);
                }
            }
            Subject::Tracks { .. } => {
                let tracks: Vec<_> = self.tracks.under(&prefix).collect();
                for track in tracks {
                    if self.tracks.get(track).is_some_and(|it| it.is_published()) {
                        self.offer(turn, track, (handle, id));
                    }
                }
            }
        }
    }

    /// Whether a session may have this interest beside its others.
    fn check_interest(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        wanted: &Interest,
    ) -> Result<(), RequestErrorCode> {
        let max = turn.config.limits.matches_per_prefix_max;
        let matches = match wanted.subject {
            Subject::Namespaces { .. } => {
                self.namespaces.under(&wanted.prefix).take(max + 1).count()
            }
            Subject::Tracks { .. } => self.tracks.under(&wanted.prefix).take(max + 1).count(),
        };
        if matches > max {
            turn.counters.refused_too_large += 1;
            return Err(RequestErrorCode::NAMESPACE_TOO_LARGE);
        }
        let Some(peer) = turn.sessions.get(handle) else {
            return Ok(());
        };
        let overlaps = peer.requests.iter().any(|(&other, part)| match part {
            Part::Interest(interest) => other != id && interest.overlaps(wanted),
            Part::Source(_)
            | Part::Subscriber(_)
            | Part::Namespace(_)
            | Part::Fetch(_)
            | Part::Feeder(_)
            | Part::Status(_)
            | Part::Inquiry => false,
        });
        if overlaps {
            turn.counters.refused_overlap += 1;
            return Err(RequestErrorCode::PREFIX_OVERLAP);
        }
        Ok(())
    }

    fn register(&mut self, handle: Handle, id: RequestId, interest: &Interest) {
        let registry = match interest.subject {
            Subject::Namespaces { .. } => &mut self.namespace_interests,
            Subject::Tracks { .. } => &mut self.track_interests,
        };
        registry.insert(interest.prefix.clone(), (handle, id));
    }

    /// A session no longer wants to hear of a prefix.
    pub(crate) fn interest_gone(&mut self, handle: Handle, id: RequestId, interest: &Interest) {
        let registry = match interest.subject {
            Subject::Namespaces { .. } => &mut self.namespace_interests,
            Subject::Tracks { .. } => &mut self.track_interests,
        };
        registry.remove(&interest.prefix, (handle, id));
    }

    /// A session changes the prefix that it wants to hear of; what it was told stays told [moqt-18 §10.9.2].
    pub(crate) fn update_interest(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        parameters: &Parameters,
    ) {
        let found = turn
            .sessions
            .get(handle)
            .and_then(|peer| interest(peer, id));
        let Some(before) = found.map(|interest| interest.clone()) else {
            return;
        };
        let Some(prefix) = parameters.track_namespace_prefix.clone() else {
            turn.grant_update(handle, id, RequestOk::default());
            return self.tell_what_is_there(turn, handle, id);
        };
        let mut changed = Interest {
            prefix,
            ..before.clone()
        };
        if let Err(code) = self.check_interest(turn, handle, id, &changed) {
            return self.fail_update(turn, handle, id, code);
        }
        if let Subject::Namespaces { told } = &mut changed.subject {
            told.retain(|namespace| namespace.starts_with(&changed.prefix));
        }
        self.interest_gone(handle, id, &before);
        self.register(handle, id, &changed);
        if let Some(interest) = turn
            .sessions
            .get(handle)
            .and_then(|peer| interest(peer, id))
        {
            *interest = changed;
        }
        turn.grant_update(handle, id, RequestOk::default());
        self.tell_what_is_there(turn, handle, id);
    }

    /// A namespace is announced for the first time: all who want to know are told.
    pub(crate) fn tell_all(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        let interests: Vec<_> = self.namespace_interests.covering(namespace).collect();
        for who in interests {
            self.tell(turn, who, namespace);
        }
    }

    fn tell(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): (Handle, RequestId),
        namespace: &Namespace,
    ) {
        let max = turn.config.limits.matches_per_prefix_max;
        let found = turn
            .sessions
            .get(handle)
            .and_then(|peer| interest(peer, id));
        let Some(Interest {
            prefix,
            subject: Subject::Namespaces { told },
        }) = found
        else {
            return;
        };
        if told.contains(namespace) {
            return;
        }
        if told.len() >= max {
            return self.drop_interest(turn, handle, id);
        }
        told.insert(namespace.clone());
        if let Some(suffix) = namespace.suffix(prefix) {
            turn.with_session(handle, |session, connection| {
                session.namespace(connection, id, suffix);
            });
        }
    }

    /// Nobody announces a namespace any more: all who were told of it are told.
    pub(crate) fn untell_all(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        let interests: Vec<_> = self.namespace_interests.covering(namespace).collect();
        for (handle, id) in interests {
            let found = turn
                .sessions
                .get(handle)
                .and_then(|peer| interest(peer, id));
            if let Some(Interest {
                prefix,
                subject: Subject::Namespaces { told },
            }) = found
                && told.remove(namespace)
                && let Some(suffix) = namespace.suffix(prefix)
            {
                turn.with_session(handle, |session, connection| {
                    session.namespace_done(connection, id, suffix);
                });
            }
        }
    }

    /// Notes that there is no room for a track; returns whether the session is to be told.
    pub(crate) fn note_blocked(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): (Handle, RequestId),
        name: &FullTrackName,
    ) {
        turn.counters.offers_blocked += 1;
        let max = turn.config.limits.matches_per_prefix_max;
        let found = turn
            .sessions
            .get(handle)
            .and_then(|peer| interest(peer, id));
        let Some(Interest {
            prefix,
            subject: Subject::Tracks { blocked, .. },
        }) = found
        else {
            return;
        };
        if blocked.len() >= max {
            return self.drop_interest(turn, handle, id);
        }
        blocked.insert(name.clone());
        if let Some(suffix) = name.namespace.suffix(prefix) {
            let name = name.name.clone();
            turn.with_session(handle, |session, connection| {
                session.publish_blocked(connection, id, suffix, name);
            });
        }
    }

    /// Gives up an interest in more than the relay is willing to keep.
    fn drop_interest(&mut self, turn: &mut Turn<'_>, handle: Handle, id: RequestId) {
        turn.counters.interests_dropped += 1;
        turn.with_session(handle, |session, connection| {
            session.cancel(connection, id, ResetCode::EXCESSIVE_LOAD);
        });
        if let Some(part) = turn.sessions.get(handle).and_then(|peer| peer.remove(id)) {
            self.part_gone(turn, handle, id, part);
        }
    }
}

/// What a request of a session is interested in, if it is such a request.
pub(crate) fn interest(peer: &mut Peer, id: RequestId) -> Option<&mut Interest> {
    match peer.requests.get_mut(&id)? {
        Part::Interest(interest) => Some(interest),
        Part::Source(_)
        | Part::Subscriber(_)
        | Part::Namespace(_)
        | Part::Fetch(_)
        | Part::Feeder(_)
        | Part::Status(_)
        | Part::Inquiry => None,
    }
}
