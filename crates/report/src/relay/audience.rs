//! The subscribers as the relay meets them: their sockets, threads and acknowledgements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form::number;

/// How the subscribers' packets travelled. Relays pay for each acknowledgement, and on one machine for each thread that they
/// wake, so costs compare only between equal audiences.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Audience {
    /// UDP sockets that the subscribers shared, or had each.
    pub sockets: u64,
    /// Threads that the subscribers were spread over.
    pub threads: u64,
    /// When subscribers acknowledged packets: `delayed` (RFC 9000 §13.2, unless the relay asked for something else) or `immediate`
    /// (every packet at once).
    pub acknowledgements: String,
    /// Pause between two reads of a socket while packets arrived; 0: each packet woke its thread.
    pub receive_pause_ms: f64,
    /// Largest delay of a subscriber's packets; 0: they left at once.
    pub reply_spread_ms: f64,
    /// How packets were acknowledged; null if no connection was closed in order.
    pub acknowledged: Option<Acknowledged>,
}

/// How packets were acknowledged, over all connections that subscribers closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acknowledged {
    /// Connections.
    pub connections: u64,
    /// Connections on which the relay asked for other acknowledgements by `ACK_FREQUENCY` (draft-ietf-quic-ack-frequency).
    pub connections_asked: u64,
    /// UDP payloads received.
    pub packets_received: u64,
    /// ACK frames sent.
    pub acknowledgements_sent: u64,
}

impl Acknowledged {
    /// Adds the counts of other connections.
    pub fn add(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.connections, other.connections),
            (&mut self.connections_asked, other.connections_asked),
            (&mut self.packets_received, other.packets_received),
            (&mut self.acknowledgements_sent, other.acknowledgements_sent),
        ] {
            *own = own.saturating_add(other);
        }
    }
}

impl Audience {
    /// Returns the audience in words.
    pub(super) fn in_words(&self) -> String {
        let acknowledged = match self.acknowledged_in_words() {
            Some((rate, asked)) => {
                let kind = &self.acknowledgements;
                format!("{rate} acknowledgements per packet ({kind}, {asked})")
            }
            None => self.kind_of_acknowledgements(),
        };
        format!("{}, {acknowledged}", self.sockets_in_words())
    }

    /// Returns what was chosen, in words: all but what was measured.
    pub fn settings_in_words(&self) -> String {
        let (sockets, kind) = (self.sockets_in_words(), self.kind_of_acknowledgements());
        format!("{sockets}, {kind}")
    }

    fn kind_of_acknowledgements(&self) -> String {
        format!("{} acknowledgements", self.acknowledgements)
    }

    fn sockets_in_words(&self) -> String {
        let mut parts = vec![
            number::counted(self.sockets, "socket"),
            number::counted(self.threads, "thread"),
        ];
        if self.receive_pause_ms > 0.0 {
            let pause = number::milliseconds(self.receive_pause_ms);
            parts.push(format!("{pause} between reads"));
        } else {
            parts.push("no pause between reads".to_owned());
        }
        if self.reply_spread_ms > 0.0 {
            let spread = number::milliseconds(self.reply_spread_ms);
            parts.push(format!("replies up to {spread} late"));
        }
        parts.join(", ")
    }

    /// Returns the acknowledgements for each packet, and on how many connections the relay asked for others; `None` if that
    /// was not measured.
    pub fn acknowledged_in_words(&self) -> Option<(String, String)> {
        let found = self.acknowledged.filter(|one| one.packets_received > 0)?;
        let asked = match found.connections_asked {
            0 => "no ACK_FREQUENCY".to_owned(),
            asked => format!(
                "ACK_FREQUENCY on {} of {}",
                number::count(asked),
                number::counted(found.connections, "connection")
            ),
        };
        Some((number::brief(found.per_packet()), asked))
    }
}

impl Acknowledged {
    /// Returns the ACK frames sent for each UDP payload received; 0 if none was received.
    #[expect(clippy::cast_precision_loss, reason = "a printed figure")]
    pub fn per_packet(&self) -> f64 {
        self.acknowledgements_sent as f64 / self.packets_received.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audience_in_words() {
        let audience = Audience {
            sockets: 1,
            threads: 1,
            acknowledgements: "delayed".to_owned(),
            receive_pause_ms: 0.5,
            reply_spread_ms: 0.0,
            acknowledged: None,
        };
        let words = audience.in_words();
        assert!(
            words.ends_with("between reads, delayed acknowledgements"),
            "{words}"
        );
        let own = Audience {
            sockets: 50,
            threads: 50,
            acknowledgements: "immediate".to_owned(),
            receive_pause_ms: 0.0,
            reply_spread_ms: 20.0,
            acknowledged: Some(Acknowledged {
                connections: 50,
                connections_asked: 0,
                packets_received: 1_000,
                acknowledgements_sent: 990,
            }),
        };
        let words = own.in_words();
        assert!(
            words.starts_with("50 sockets, 50 threads, no pause between reads, replies up to 20"),
            "{words}"
        );
        assert!(
            words.ends_with("0.99 acknowledgements per packet (immediate, no ACK_FREQUENCY)"),
            "{words}"
        );
        let asked = Audience {
            acknowledged: own.acknowledged.map(|one| Acknowledged {
                connections_asked: 50,
                ..one
            }),
            ..own
        };
        assert!(
            asked
                .in_words()
                .contains("ACK_FREQUENCY on 50 of 50 connections")
        );
    }
}
