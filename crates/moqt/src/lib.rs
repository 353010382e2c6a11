//! Media over QUIC Transport: wire codec and one session's state machine.
