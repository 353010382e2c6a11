//! What MOQT asks of QUIC or WebTransport.
