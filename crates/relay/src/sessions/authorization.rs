//! Authorization of sessions and requests against the authority's grants.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::{SessionError, Violation},
    message::{FetchKind, RequestKind, Setup},
    name::Namespace,
    session::{Request, RequestId},
    token::Token,
};
use weir_quic::{Carrier, Handle};

use crate::{
    Credentials, Denial, Grant,
    authority::{AccessToken, Action, Permission, Subject, TOKENS_MAX, access_tokens},
    effect::Effect,
    ids::{FetchId, RequestKey},
    sessions::access::Access,
    timers::Timer,
    turn::Turn,
};

impl Turn<'_> {
    /// Determines what a session may do, once its SETUP has come.
    pub(crate) fn authorise_session(&mut self, handle: Handle, setup: &Setup) {
        let Some(connection) = self.endpoint.connection(self.now, handle) else {
            return;
        };
        let has_client_certificate = connection.has_peer_certificate();
        self.note_rules();
        let Some(connection) = self.endpoint.connection(self.now, handle) else {
            return;
        };
        let named = match asked_for(connection.carrier(), setup) {
            Ok(named) => named,
            Err(violation) => {
                self.counters.sessions_violated += 1;
                let reason = violation.text().into_owned();
                return self.push(Effect::CloseSession(handle, violation.code, reason));
            }
        };
        let Some(peer) = self.sessions.get(handle) else {
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
        let before = peer.memo.verified();
        let judged = if credentials.session_tokens.len() > TOKENS_MAX {
            Err(Denial::Malformed)
        } else {
            self.authority.grant(self.now, &credentials, &mut peer.memo)
        };
        let verified = peer.memo.verified() - before;
        let denial = judged.as_ref().err().copied();
        let access = std::mem::replace(&mut peer.access, Access::Unknown);
        peer.access = access.after_setup(credentials, judged);
        self.note_verified(handle, verified);
        if denial.is_some() && !has_tokens {
            // The session may still send tokens with its requests.
            self.set_permit_deadline(handle);
        } else if let Some(denial) = denial {
            self.counters.sessions_denied += 1;
            let code = denial.session_error();
            self.log_refused_session(handle, code, &denial.to_string());
            self.push(Effect::CloseSession(handle, code, denial.to_string()));
        } else {
            self.log_bearer(handle);
        }
    }

    /// Returns whether a session may make a request; refuses the request otherwise. If permitted, the caller calls
    /// [`forget_expiry_if_over`](Self::forget_expiry_if_over) once the request was handled. `joined` is the
    /// subscription that a FETCH joins, with its subject: the FETCH shares the authorization of that subscription,
    /// unless it carries tokens of its own.
    pub(crate) fn is_permitted(
        &mut self,
        (handle, id): FetchId,
        request: &Request,
        joined: Option<&(RequestId, Subject)>,
    ) -> bool {
        let tokens = &request.parameters().authorization_tokens;
        let own = subject_of(request);
        let subject = own.as_ref().or_else(|| joined.map(|(_, subject)| subject));
        let permitted = match (own.as_ref(), joined) {
            // A FETCH without a subscription to join is refused elsewhere.
            (None, None) => return true,
            (None, Some((joined, _))) if tokens.is_empty() => {
                let peer = self.sessions.get(handle);
                Ok(peer.and_then(|peer| {
                    peer.set_own_tokens(id, peer.own_tokens(*joined));
                    peer.expiry(*joined)
                }))
            }
            (Some(subject), _) | (None, Some((_, subject))) => {
                self.permit_request((handle, id), tokens, subject)
            }
        };
        self.admit_request((handle, id), permitted, subject)
    }
}

/// Returns what a request is about, unless it joins another request.
fn subject_of(request: &Request) -> Option<Subject> {
    let action = match request.kind() {
        RequestKind::Publish | RequestKind::PublishNamespace => Action::Publish,
        RequestKind::Subscribe
        | RequestKind::Fetch
        | RequestKind::TrackStatus
        | RequestKind::SubscribeNamespace
        | RequestKind::SubscribeTracks => Action::Subscribe,
    };
    let namespace = request.namespace()?.clone();
    Some(Subject { action, namespace })
}

/// Returns the subscription that a FETCH joins.
pub(crate) fn joined(request: &Request) -> Option<RequestId> {
    let Request::Fetch(fetch) = request else {
        return None;
    };
    match fetch.kind {
        FetchKind::Standalone { .. } | FetchKind::Recent { .. } => None,
        FetchKind::RelativeJoining { request_id, .. }
        | FetchKind::AbsoluteJoining { request_id, .. } => Some(RequestId(request_id)),
    }
}

impl Turn<'_> {
    /// Notes until when a request is permitted, or refuses the request.
    fn admit_request(
        &mut self,
        (handle, id): (Handle, RequestId),
        permitted: Result<Option<Instant>, Denial>,
        subject: Option<&Subject>,
    ) -> bool {
        match permitted {
            Ok(expires) => {
                self.note_expiry(handle, id, expires);
                true
            }
            Err(denial) => {
                self.count_denial(denial);
                let code = denial.code();
                self.log_refusal((handle, id), code, Some((denial, subject)));
                self.refuse_quietly((handle, id), code);
                false
            }
        }
    }

    /// Notes when the authorization of a request ends.
    pub(crate) fn note_expiry(&mut self, handle: Handle, id: RequestId, expires: Option<Instant>) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        peer.expiries.set(id, expires);
        self.set_expiry_timer(handle, self.now);
    }

    /// Removes the expiry of a request that is already over.
    pub(crate) fn forget_expiry_if_over(&mut self, handle: Handle, id: RequestId) {
        if let Some(peer) = self.sessions.get(handle)
            && peer.purpose(id).is_none()
        {
            peer.expiries.remove(id);
            peer.set_own_tokens(id, Vec::new());
            peer.reserved.on_refused(id);
            peer.shares.remove(&id);
        }
    }

    /// Judges a request by its own tokens, or by the session's grants if it has none, and remembers the tokens. Reserves
    /// the namespace of a publication, if the grant says so. Returns until when the request is permitted.
    pub(crate) fn permit_request(
        &mut self,
        (handle, id): (Handle, RequestId),
        tokens: &[Token],
        subject: &Subject,
    ) -> Result<Option<Instant>, Denial> {
        let tokens = access_tokens(tokens);
        let before = self.tokens_verified(handle);
        let permitted = self.permit_with(handle, tokens.clone(), subject);
        let count = self.tokens_verified(handle) - before;
        self.note_verified(handle, count);
        let permission = permitted?;
        // Another thread has judged what comes over its link.
        if subject.action == Action::Publish && !self.is_link(handle) {
            let owner = permission.owner.as_deref();
            self.reserve((handle, id), &subject.namespace, owner)?;
        }
        if let Some(peer) = self.sessions.get(handle) {
            peer.set_own_tokens(id, tokens);
        }
        Ok(permission.expires)
    }

    /// Reserves a namespace that a session publishes in to its owner, if there is one. Fails if it is reserved to somebody
    /// else.
    fn reserve(
        &mut self,
        (handle, id): RequestKey,
        namespace: &Namespace,
        owner: Option<&str>,
    ) -> Result<(), Denial> {
        let ownership = self.sessions.ownership.clone();
        let Some(owner) = owner else {
            let is_admitted = ownership.admits(namespace, None);
            return is_admitted.then_some(()).ok_or(Denial::Owned);
        };
        let reserved = ownership.reserve(namespace, owner).ok_or(Denial::Owned)?;
        if let Some(peer) = self.sessions.get(handle) {
            peer.reserved.insert(id, reserved);
        }
        self.note_rules();
        Ok(())
    }

    /// Judges a request by its own tokens, or by the session's grants if it has none.
    pub(super) fn permit_with(
        &mut self,
        handle: Handle,
        request_tokens: Vec<AccessToken>,
        subject: &Subject,
    ) -> Result<Permission, Denial> {
        let has_tokens = !request_tokens.is_empty();
        let own = if has_tokens {
            self.verify(handle, request_tokens)?
        } else {
            Vec::new()
        };
        let peer = self.sessions.get(handle).ok_or(Denial::Unauthorized)?;
        let mut grants: Vec<&Grant> = own.iter().collect();
        if has_tokens {
            grants.extend(peer.access.grants().into_iter().flatten());
        } else {
            grants.extend(peer.access.grants()?);
        }
        let permitting = grants.iter();
        let permitting =
            permitting.filter(|grant| grant.permits(self.now, subject.action, &subject.namespace));
        let permissions = permitting.map(|grant| Permission {
            expires: grant.expires,
            owner: grant.owner.clone(),
        });
        // The grant of an owner, or the one that lasts longest; one without expiry outlasts all others.
        let key = |it: &Permission| (it.owner.is_some(), it.expires.is_none(), it.expires);
        if let Some(permission) = permissions.max_by_key(key) {
            return Ok(permission);
        }
        if grants.iter().any(|grant| grant.is_over(self.now)) {
            return Err(Denial::Expired);
        }
        Err(Denial::Unauthorized)
    }

    /// Returns what the tokens of a request of a session grant.
    fn verify(
        &mut self,
        handle: Handle,
        request_tokens: Vec<AccessToken>,
    ) -> Result<Vec<Grant>, Denial> {
        let peer = self.sessions.get(handle).ok_or(Denial::Unauthorized)?;
        if request_tokens.len() > TOKENS_MAX {
            return Err(Denial::Malformed);
        }
        let credentials = Credentials {
            request_tokens,
            ..peer.access.credentials()
        };
        self.authority.grant(self.now, &credentials, &mut peer.memo)
    }

    pub(crate) fn count_denial(&mut self, denial: Denial) {
        match denial {
            Denial::Unauthorized | Denial::Untrusted | Denial::Revoked => {
                self.counters.refused_unauthorized += 1;
            }
            Denial::Expired => self.counters.refused_expired += 1,
            Denial::Malformed => self.counters.refused_malformed_token += 1,
            Denial::Owned => self.counters.refused_owned += 1,
        }
    }

    /// Returns how long the authorization of a request lasts, for the EXPIRES parameter [moqt-18 §10.2.10].
    pub(crate) fn expires_in(&mut self, handle: Handle, id: RequestId) -> Option<Duration> {
        let expires = self.sessions.get(handle)?.expiries.get(id)?;
        Some(
            expires
                .saturating_duration_since(self.now)
                .max(Duration::from_millis(1)),
        )
    }

    /// Handles the expiry timer of a session.
    pub(crate) fn clear_expiry_timer(&mut self, handle: Handle) {
        if let Some(peer) = self.sessions.get(handle) {
            peer.expiry_timer = None;
        }
    }

    /// Takes a request of a session whose authorization has expired, if there is one.
    pub(crate) fn pop_expired(&mut self, handle: Handle) -> Option<RequestId> {
        self.sessions.get(handle)?.expiries.pop_due(self.now)
    }

    /// Sets the wake-up for the earliest expiry among a session's requests, but not before `earliest`.
    pub(crate) fn set_expiry_timer(&mut self, handle: Handle, earliest: Instant) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let Some(next) = peer.expiries.earliest() else {
            return;
        };
        let next = next.max(earliest);
        if peer.expiry_timer.is_none_or(|at| next < at) {
            if let Some(later) = peer.expiry_timer.replace(next) {
                self.timers.cancel(later, Timer::Expiry(handle));
            }
            self.timers.set(next, Timer::Expiry(handle));
        }
    }
}

/// Returns the path and authority that a client requested. Over WebTransport they are in its request, and SETUP may not
/// contain them [moqt-18 §10.3.1.1, §10.3.1.2].
fn asked_for(
    carrier: Carrier<'_>,
    setup: &Setup,
) -> Result<(Option<String>, Option<String>), Violation> {
    let request = match carrier {
        Carrier::Quic | Carrier::PeerThread | Carrier::WebTransport(None) => {
            return Ok((setup.path.clone(), setup.authority.clone()));
        }
        Carrier::WebTransport(Some(request)) => request,
    };
    if setup.path.is_some() {
        let reason = "PATH over WebTransport";
        return Err(SessionError::INVALID_PATH.violation(reason));
    }
    if setup.authority.is_some() {
        let reason = "AUTHORITY over WebTransport";
        return Err(SessionError::INVALID_AUTHORITY.violation(reason));
    }
    Ok((Some(request.path.clone()), Some(request.authority.clone())))
}
