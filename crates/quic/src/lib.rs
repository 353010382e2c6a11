//! The QUIC engine's glue: endpoint, connection table, timer wheel.
