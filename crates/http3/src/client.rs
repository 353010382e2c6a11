//! The load client.
