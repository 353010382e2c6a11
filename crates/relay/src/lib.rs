//! The MOQT relay: namespaces, tracks, subscriptions, fan-out, limits.
