//! The rights of a session: the credentials of its SETUP, and what the authority granted for them.

use crate::{Credentials, Denial, Grant};

/// The rights of a session.
#[derive(Debug)]
pub(super) enum Access {
    /// The client's SETUP has not come.
    Unknown,
    /// The client's credentials were granted this.
    Granted {
        credentials: Box<Credentials>,
        grants: Vec<Grant>,
    },
    /// The client's credentials were granted nothing, or the client sent none. Its requests may carry tokens.
    Denied {
        credentials: Box<Credentials>,
        denial: Denial,
    },
    /// The peer is a relay, which asks its own authority before it passes a request on.
    Link(Grant),
}

impl Access {
    /// Returns the rights after the authority has judged the credentials of SETUP, which comes once.
    pub(super) fn after_setup(
        self,
        credentials: Credentials,
        judged: Result<Vec<Grant>, Denial>,
    ) -> Self {
        let credentials = Box::new(credentials);
        match (self, judged) {
            (Self::Unknown, Ok(grants)) => Self::Granted {
                credentials,
                grants,
            },
            (Self::Unknown, Err(denial)) => Self::Denied {
                credentials,
                denial,
            },
            (known @ (Self::Granted { .. } | Self::Denied { .. } | Self::Link(_)), _) => known,
        }
    }

    /// Returns what is granted to the session, whatever tokens its requests carry.
    pub(super) fn grants(&self) -> Result<&[Grant], Denial> {
        match self {
            Self::Unknown => Err(Denial::Unauthorized),
            Self::Granted { grants, .. } => Ok(grants),
            Self::Denied { denial, .. } => Err(*denial),
            Self::Link(grant) => Ok(std::slice::from_ref(grant)),
        }
    }

    /// Returns the name of the bearer of the session's tokens, if one of them has a name.
    pub(super) fn bearer(&self) -> Option<&str> {
        let grants = self.grants().ok()?;
        grants.iter().find_map(|grant| grant.bearer.as_deref())
    }

    /// Replaces the rights after the authority has judged the same credentials again. Returns the denial of a session that
    /// had rights and has lost them.
    pub(super) fn judge_again(&mut self, judged: Result<Vec<Grant>, Denial>) -> Result<(), Denial> {
        match self {
            Self::Granted { grants, .. } => {
                *grants = judged?;
            }
            Self::Denied { credentials, .. } => {
                if let Ok(grants) = judged {
                    let credentials = std::mem::take(credentials);
                    *self = Self::Granted {
                        credentials,
                        grants,
                    };
                }
            }
            Self::Unknown | Self::Link(_) => {}
        }
        Ok(())
    }

    /// Returns the credentials of SETUP.
    pub(super) fn credentials(&self) -> Credentials {
        match self {
            Self::Granted { credentials, .. } | Self::Denied { credentials, .. } => {
                (**credentials).clone()
            }
            Self::Unknown | Self::Link(_) => Credentials::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn credentials(path: &str) -> Credentials {
        Credentials {
            path: Some(path.to_owned()),
            ..Credentials::default()
        }
    }

    fn text(access: &Access) -> String {
        let name = match access {
            Access::Unknown => "Unknown",
            Access::Granted { .. } => "Granted",
            Access::Denied { .. } => "Denied",
            Access::Link(_) => "Link",
        };
        let shown = access.credentials().path.unwrap_or_default();
        let grants = access.grants().map(<[Grant]>::len);
        format!("{name} shown {shown:?} grants {grants:?}")
    }

    #[test]
    fn every_setup_of_a_session_has_one_outcome() {
        let judged = |path, judged| Access::Unknown.after_setup(credentials(path), judged);
        let states = || {
            [
                Access::Unknown,
                judged("first", Ok(vec![Grant::everything()])),
                judged("first", Err(Denial::Expired)),
                Access::Link(Grant::everything()),
            ]
        };
        let mut table = String::new();
        for (event, judged) in [
            ("granted", Ok(vec![Grant::everything(), Grant::default()])),
            ("denied", Err(Denial::Malformed)),
        ] {
            for state in states() {
                let before = text(&state);
                let after = text(&state.after_setup(credentials("second"), judged.clone()));
                writeln!(table, "{before:50} {event:8} {after}").unwrap();
            }
        }
        insta::assert_snapshot!(table.trim_end());
    }
}
