//! One session of MOQT: its control plane and inbound data.
