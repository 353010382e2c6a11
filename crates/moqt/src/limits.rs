//! The limits of a session.
