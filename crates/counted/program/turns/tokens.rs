//! Scenes of requests with tokens, whose signatures the relay has to verify.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use bytes::{Bytes, BytesMut};
use weir_moqt::{
    draft::Draft,
    message::{Message, RequestUpdate, Subscribe},
    parameter::Parameters,
    token::Token,
};
use weir_quic::{Limits, Shard};
use weir_relay::{Authority, Config, Credentials, Denial, Grant, Load, Relay, TokenMemo, Verdict};
use weir_transport::{Direction, StreamId, Transport as _};

use super::{
    Scene, note,
    stage::Stage,
    words::{name, rendezvous},
};

/// Requests with as many tokens as the relay allows.
pub(crate) fn of_requests() -> Scene {
    let mut stage = stage();
    let client = stage.client();
    let mut known = Vec::new();
    for number in 0..REGISTERED {
        let alias = number;
        known.push(Token::UseAlias { alias });
        let registered = Token::Register {
            alias,
            token_type: number % 3,
            value: token(number),
        };
        stage.subscribe_with(client, &format!("a--{number}"), vec![registered]);
        stage.pass(SECOND);
    }
    for number in 0..IN_ONE_PACKET {
        let start = number % (known.len() - PER_REQUEST);
        let tokens = known[start..start + PER_REQUEST].to_vec();
        stage.subscribe_with(client, &format!("b--{number}"), tokens);
    }
    note("requests-with-tokens-that-are-known", 1, stage.strike())?;

    let client = stage.client();
    stage.warm_up(client);
    let streams: Vec<_> = (0..AT_ONCE).map(|_| stage.start_request(client)).collect();
    stage.lose_packet();
    for (number, stream) in (0..).zip(streams) {
        let tokens = (0..PER_REQUEST as u64).map(|token| 1000 + 8 * number + token);
        let request = Message::Subscribe(Subscribe {
            request_id: 2 + 2 * number,
            track: name(&format!("c--{number}")),
            parameters: with_tokens(tokens),
        });
        stage.write(client, stream, encoded(&request).slice(1..));
    }
    note("requests-with-new-tokens", 1, stage.strike_again())?;

    let client = stage.client();
    stage.warm_up(client);
    let stream = stage.start_request(client);
    stage.lose_packet();
    let request = Message::Subscribe(Subscribe {
        request_id: 2,
        track: name("d--x"),
        parameters: rendezvous(Duration::from_secs(30)),
    });
    stage.write(client, stream, encoded(&request).slice(1..));
    for number in 1..=UPDATES {
        let tokens = (0..PER_REQUEST as u64).map(|token| 9000 + 8 * number + token);
        let update = Message::RequestUpdate(RequestUpdate {
            request_id: 2 + 2 * number,
            parameters: with_tokens(tokens),
        });
        stage.write(client, stream, encoded(&update));
    }
    note("updates-with-new-tokens", 1, stage.strike_again())?;
    assert_eq!(stage.counters().sessions_violated, 0);
    Ok(())
}

/// Sessions whose requests have tokens of their own, when the keys change.
pub(crate) fn of_rules_that_change() -> Scene {
    let verifier = Arc::new(Verifier::default());
    let mut stage = stage_with(Arc::clone(&verifier));
    let mut asked = 0;
    for client in stage.clients(BEARERS) {
        for _ in 0..BORNE {
            stage.subscribe_with(client, &format!("a--{asked}"), vec![new_token(asked)]);
            asked += 1;
        }
        stage.pass(SECOND);
    }
    stage.pass(SECOND);
    assert_eq!(stage.gauges().waiting, asked);
    verifier.revision.fetch_add(1, Ordering::Relaxed);
    let struck = stage.observe(Load::default());
    note("keys-that-change-for-480-requests", 1, struck)?;
    stage.pass(SECOND);
    assert_eq!(stage.gauges().waiting, asked);
    Ok(())
}

fn new_token(number: u64) -> Token {
    Token::UseValue {
        token_type: 0,
        value: token(number),
    }
}

/// Returns a stage whose relay verifies tokens.
fn stage() -> Stage {
    stage_with(Arc::default())
}

fn stage_with(verifier: Arc<Verifier>) -> Stage {
    let relay = Relay::with_authority(Config::default(), verifier);
    Stage::with(relay, Shard::ALONE, &Limits::default())
}

impl Stage {
    /// Opens a request stream with the first byte of a SUBSCRIBE.
    fn start_request(&mut self, client: weir_quic::Handle) -> StreamId {
        let request = Message::Subscribe(Subscribe {
            request_id: 0,
            track: name("a--x"),
            parameters: Parameters::default(),
        });
        self.act(client, |_, connection| {
            let stream = connection.open(Direction::Bi);
            let stream = stream.expect("the relay allows enough streams");
            let _written = connection.write(stream, &mut encoded(&request).slice(..1));
            stream
        })
    }
}

fn encoded(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    let written = message.encode(Draft::KEPT, &mut out);
    written.expect("the message is not too long");
    out.freeze()
}

fn with_tokens(numbers: impl Iterator<Item = u64>) -> Parameters {
    Parameters {
        authorization_tokens: numbers.map(new_token).collect(),
        ..Parameters::default()
    }
}

/// Returns a token, as long as a short JWT.
fn token(number: u64) -> Bytes {
    Bytes::from(format!("{number:0180}"))
}

/// Grants everything, and verifies each token as if it were signed with ES256. It does not matter that no signature is valid.
#[derive(Debug, Default)]
struct Verifier {
    /// How often the keys have changed.
    revision: AtomicU64,
}

impl Authority for Verifier {
    fn grant(
        &self,
        _now: Instant,
        credentials: &Credentials,
        memo: &mut TokenMemo,
    ) -> Result<Vec<Grant>, Denial> {
        for token in &credentials.request_tokens {
            memo.judge(self.revision(), &token.value, || {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, POINT);
                let is_valid = key.verify(&token.value, &[1; 64]).is_ok();
                assert!(!is_valid, "nobody has signed it");
                Verdict::Final(Ok(Grant::everything()))
            })?;
        }
        Ok(vec![Grant::everything()])
    }

    fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }
}

/// A public key: the generator of the curve P-256 (SP 800-186 §3.2.1.3), uncompressed.
const POINT: [u8; 65] = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40,
    0xf2, 0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2,
    0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e,
    0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51,
    0xf5,
];
const SECOND: Duration = Duration::from_secs(1);
/// Sessions that bear tokens, and with how many requests.
const BEARERS: usize = 4;
const BORNE: usize = 120;
/// Tokens that a session registers: as many of this length as the relay allows.
const REGISTERED: u64 = 80;
/// Tokens of one request. With more, they are malformed.
const PER_REQUEST: usize = 8;
/// Requests with so many aliases of tokens in one packet.
const IN_ONE_PACKET: usize = 18;
/// Requests that complete with one packet.
const AT_ONCE: u64 = 30;
/// Updates of one request that complete with one packet.
const UPDATES: u64 = 16;
