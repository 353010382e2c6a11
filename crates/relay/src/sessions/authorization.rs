//! How the relay holds its sessions to what the authority granted them.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode, ResetCode, SessionError, Violation},
    message::{FetchKind, Setup},
    name::Namespace,
    parameter::Parameters,
    session::{Request, RequestId},
    token::Token,
};
use weir_quic::{Carrier, Handle};

use crate::{
    Credentials, Denial, Grant,
    authority::{Action, access_tokens},
    dispatch::Owners,
    fetch::served::FetchId,
    sessions::peer::Part,
    sessions::refusal::refusal,
    timers::Timer,
    turn::Turn,
};

impl Owners {
    /// A session was set up: finds out what it may do.
    pub(crate) fn authorise_session(&mut self, turn: &mut Turn<'_>, handle: Handle, setup: &Setup) {
        let Some(connection) = turn.endpoint.connection(turn.now, handle) else {
            return;
        };
        let has_client_certificate = connection.has_peer_certificate();
        let named = match asked_for(connection.carrier(), setup) {
            Ok(named) => named,
            Err(violation) => {
                turn.counters.sessions_violated += 1;
                let Violation { code, reason } = violation;
                return self.close_session(turn, handle, code, reason);
            }
        };
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let credentials = Credentials {
            session_tokens: access_tokens(&setup.authorization_tokens),
            request_tokens: Vec::new(),
            path: named.0,
            authority: named.1,
            has_client_certificate,
        };
        let has_tokens = !credentials.session_tokens.is_empty();
        peer.grants = turn.authority.grant(turn.now, &credentials);
        peer.credentials = Some(Box::new(credentials));
        // Who shows nothing at first may still bring tokens with the requests.
        if let Err(denial) = peer.grants
            && has_tokens
        {
            turn.counters.sessions_denied += 1;
            let reason = denial.to_string();
            self.close_session(turn, handle, denial.session_error(), &reason);
        }
    }

    /// Whether a session may make a request; if not, it is refused here. If it may, the caller settles with
    /// [`settle_expiry`](Self::settle_expiry) whether there is something to end later.
    pub(crate) fn is_permitted(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        request: &Request,
    ) -> bool {
        let (action, namespace) = match request {
            Request::Publish(publish) => (Action::Publish, &publish.track.namespace),
            Request::PublishNamespace(publish) => (Action::Publish, &publish.namespace),
            Request::Subscribe(subscribe) => (Action::Subscribe, &subscribe.track.namespace),
            Request::TrackStatus(status) => (Action::Subscribe, &status.track.namespace),
            Request::SubscribeNamespace(subscribe) => (Action::Subscribe, &subscribe.prefix),
            Request::SubscribeTracks(subscribe) => (Action::Subscribe, &subscribe.prefix),
            Request::Fetch(fetch) => match &fetch.kind {
                FetchKind::Standalone { track, .. } => (Action::Subscribe, &track.namespace),
                &FetchKind::RelativeJoining { request_id, .. }
                | &FetchKind::AbsoluteJoining { request_id, .. } => {
                    let tokens = &fetch.parameters.authorization_tokens;
                    let joined = RequestId(request_id);
                    return self.may_join(turn, (handle, id), joined, tokens);
                }
            },
        };
        let tokens = &request.parameters().authorization_tokens;
        let permitted = turn.permit(handle, tokens, action, namespace);
        turn.admit_request((handle, id), permitted)
    }

    /// Whether a FETCH may join a subscription: it stands and falls with that, which was permitted. Tokens of its own
    /// have to be good, and count instead.
    fn may_join(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): FetchId,
        joined: RequestId,
        tokens: &[Token],
    ) -> bool {
        let Some((action, namespace)) = self.subject(turn, handle, joined) else {
            // Who joins nothing is told so in its place.
            return true;
        };
        let permitted = if tokens.is_empty() {
            let peer = turn.sessions.get(handle);
            Ok(peer.and_then(|peer| peer.expiries.get(joined)))
        } else {
            turn.permit(handle, tokens, action, &namespace)
        };
        turn.admit_request((handle, id), permitted)
    }

    /// A subscription was given another end: the fetches that stand and fall with it have it too.
    fn extend_joined(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        joined: RequestId,
        expires: Option<Instant>,
    ) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let own = (handle, RequestId(0))..=(handle, RequestId(u64::MAX));
        let heirs = self.fetches.range(own);
        for (&(_, id), _) in heirs.filter(|(_, fetch)| fetch.stands_with == Some(joined)) {
            peer.expiries.set(id, expires);
        }
        turn.set_expiry_timer(handle);
    }

    /// A session changes a request and brings new tokens for it. Returns whether they permit it; if not, the
    /// update is refused, and with it what the draft says [moqt-18 §10.9.1].
    pub(crate) fn is_renewed(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        parameters: &Parameters,
    ) -> bool {
        let Some((action, mut namespace)) = self.subject(turn, handle, id) else {
            return true;
        };
        if let Some(prefix) = &parameters.track_namespace_prefix {
            namespace.clone_from(prefix);
        }
        let tokens = &parameters.authorization_tokens;
        match turn.permit(handle, tokens, action, &namespace) {
            Ok(expires) => {
                turn.note_expiry(handle, id, expires);
                self.extend_joined(turn, handle, id, expires);
                if let Some(fetch) = self.fetches.get_mut(&(handle, id)) {
                    // It has tokens of its own from turn.now on.
                    fetch.stands_with = None;
                }
                true
            }
            Err(denial) => {
                turn.count_denial(denial);
                self.fail_update(turn, handle, id, denial.code());
                false
            }
        }
    }

    /// What a request of a session is about.
    fn subject(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
    ) -> Option<(Action, Namespace)> {
        let part = turn.sessions.get(handle)?.requests.get(&id)?;
        Some(match part {
            &Part::Source(track) => {
                let track = self.tracks.get(track)?;
                (Action::Publish, track.name.namespace.clone())
            }
            &Part::Subscriber(track) | &Part::Fetch(track) => {
                let track = self.tracks.get(track)?;
                (Action::Subscribe, track.name.namespace.clone())
            }
            Part::Namespace(namespace) => (Action::Publish, namespace.clone()),
            Part::Interest(interest) => (Action::Subscribe, interest.prefix.clone()),
            Part::Feeder(_) | Part::Status(_) | Part::Inquiry => return None,
        })
    }

    /// Refuses an update. A subscription ends with it, and so does a request for or of namespaces; a publisher
    /// ends its own [moqt-18 §10.9.1].
    pub(crate) fn fail_update(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        code: RequestErrorCode,
    ) {
        turn.with_session(handle, |session, connection| {
            session.update_error(connection, id, refusal(code));
        });
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        match peer.requests.get(&id) {
            Some(&Part::Subscriber(track)) => {
                let done = PublishDoneCode::UPDATE_FAILED;
                self.cut_subscriber(turn, track, (handle, id), done);
            }
            Some(Part::Namespace(_) | Part::Interest(_)) => {
                if let Some(part) = peer.remove(id) {
                    self.part_gone(turn, handle, id, part);
                }
            }
            Some(&Part::Fetch(_)) => {
                peer.remove(id);
                self.fetch_gone(turn, (handle, id));
            }
            Some(Part::Source(_) | Part::Feeder(_) | Part::Status(_) | Part::Inquiry) | None => {}
        }
    }

    /// Ends a request of a session since its bearer's time is over.
    fn revoke(&mut self, turn: &mut Turn<'_>, handle: Handle, id: RequestId) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        turn.counters.requests_expired += 1;
        if let Some(&Part::Subscriber(track)) = peer.requests.get(&id) {
            let done = PublishDoneCode::EXPIRED;
            return self.cut_subscriber(turn, track, (handle, id), done);
        }
        if matches!(peer.requests.get(&id), Some(Part::Source(_))) {
            self.cut_streams(turn, handle, id);
        }
        turn.with_session(handle, |session, connection| {
            session.cancel(connection, id, ResetCode::EXPIRED_AUTH_TOKEN);
        });
        let part = turn.sessions.get(handle).and_then(|peer| peer.remove(id));
        if let Some(part) = part {
            self.part_gone(turn, handle, id, part);
        }
        self.publish_grown(turn);
    }

    /// The time of some requests of a session may be over.
    pub(crate) fn on_expiry(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        peer.expiry_timer = None;
        // The end of one may be that of others, which are not revoked then: they were told why.
        while let Some(peer) = turn.sessions.get(handle)
            && let Some(id) = peer.expiries.pop_due(turn.now)
        {
            self.revoke(turn, handle, id);
        }
        turn.set_expiry_timer(handle);
    }
}

impl Turn<'_> {
    /// Notes until when a request is permitted, or refuses it.
    fn admit_request(
        &mut self,
        (handle, id): (Handle, RequestId),
        permitted: Result<Option<Instant>, Denial>,
    ) -> bool {
        match permitted {
            Ok(expires) => {
                self.note_expiry(handle, id, expires);
                true
            }
            Err(denial) => {
                self.count_denial(denial);
                self.refuse(handle, id, denial.code());
                false
            }
        }
    }
}

impl Turn<'_> {
    /// Notes when a request ends, if its authorization does.
    pub(crate) fn note_expiry(&mut self, handle: Handle, id: RequestId, expires: Option<Instant>) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        peer.expiries.set(id, expires);
        self.set_expiry_timer(handle);
    }
}

impl Turn<'_> {
    /// A request was dealt with: if it is over already, its authorization needs no end.
    pub(crate) fn settle_expiry(&mut self, handle: Handle, id: RequestId) {
        if let Some(peer) = self.sessions.get(handle)
            && !peer.requests.contains_key(&id)
        {
            peer.expiries.remove(id);
        }
    }

    /// Judges a request by its own tokens if it has some, else by what the session was granted.
    fn permit(
        &mut self,
        handle: Handle,
        tokens: &[Token],
        action: Action,
        namespace: &Namespace,
    ) -> Result<Option<Instant>, Denial> {
        let peer = self.sessions.get(handle).ok_or(Denial::Unauthorized)?;
        let request_tokens = access_tokens(tokens);
        let own: Vec<Grant>;
        let mut grants = Vec::new();
        if request_tokens.is_empty() {
            grants.extend(peer.grants.as_ref().map_err(|&denial| denial)?);
        } else {
            let credentials = Credentials {
                request_tokens,
                ..peer.credentials.as_deref().cloned().unwrap_or_default()
            };
            own = self.authority.grant(self.now, &credentials)?;
            grants.extend(&own);
            grants.extend(peer.grants.iter().flatten());
        }
        let permitting = grants.iter();
        let permitting = permitting.filter(|grant| grant.permits(self.now, action, namespace));
        let ends = permitting.map(|grant| grant.expires);
        // The one that lasts longest; one without an end outlasts all others.
        if let Some(expires) = ends.max_by_key(|expires| (expires.is_none(), *expires)) {
            return Ok(expires);
        }
        if grants.iter().any(|grant| grant.is_over(self.now)) {
            return Err(Denial::Expired);
        }
        Err(Denial::Unauthorized)
    }

    fn count_denial(&mut self, denial: Denial) {
        match denial {
            Denial::Unauthorized => self.counters.refused_unauthorized += 1,
            Denial::Expired => self.counters.refused_expired += 1,
            Denial::Malformed => self.counters.refused_malformed_token += 1,
        }
    }

    /// How long the authorization of a request lasts, to be told to the peer [moqt-18 §10.2.10].
    pub(crate) fn expires_in(&mut self, handle: Handle, id: RequestId) -> Option<Duration> {
        let expires = self.sessions.get(handle)?.expiries.get(id)?;
        Some(
            expires
                .saturating_duration_since(self.now)
                .max(Duration::from_millis(1)),
        )
    }

    /// Wakes at the earliest end of a session's requests, or before.
    fn set_expiry_timer(&mut self, handle: Handle) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let Some(next) = peer.expiries.earliest() else {
            return;
        };
        if peer.expiry_timer.is_none_or(|at| next < at) {
            if let Some(later) = peer.expiry_timer.replace(next) {
                self.timers.cancel(later, Timer::Expiry(handle));
            }
            self.timers.set(next, Timer::Expiry(handle));
        }
    }
}

/// Path and authority that a client asks for. Over WebTransport its request names them, and SETUP may not
/// [moqt-18 §10.3.1.1, §10.3.1.2].
fn asked_for(
    carrier: Carrier<'_>,
    setup: &Setup,
) -> Result<(Option<String>, Option<String>), Violation> {
    let request = match carrier {
        Carrier::Quic | Carrier::Neighbour | Carrier::WebTransport(None) => {
            return Ok((setup.path.clone(), setup.authority.clone()));
        }
        Carrier::WebTransport(Some(request)) => request,
    };
    if setup.path.is_some() {
        let reason = "PATH over WebTransport";
        return Err(Violation {
            code: SessionError::INVALID_PATH,
            reason,
        });
    }
    if setup.authority.is_some() {
        let reason = "AUTHORITY over WebTransport";
        return Err(Violation {
            code: SessionError::INVALID_AUTHORITY,
            reason,
        });
    }
    Ok((Some(request.path.clone()), Some(request.authority.clone())))
}
