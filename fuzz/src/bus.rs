//! Fuzzing of what comes over NATS: entries of the registry, and frames of agents' messages.

use serde_json::{Value, json};

use crate::relay::fleet::entry::{Entry, Scope};
use crate::run::remote::envelope::{Opener, Refused, Sealer, SharedKey, header_of};

/// Reads `input` as what its first byte selects: an entry, a scope, a frame without the key, or messages whose frames are
/// lost, repeated, moved and changed on the way.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    match first % 4 {
        0 => check_entry(rest),
        1 => check_scope(&String::from_utf8_lossy(rest)),
        2 => check_frame(rest),
        _ => check_messages(rest),
    }
}

/// What was read is written and read as the same, and has a key of four parts.
fn check_entry(value: &[u8]) {
    let Ok(entry) = Entry::read(value) else {
        return;
    };
    let again = Entry::read(&entry.write());
    assert_eq!(again.expect("it was written"), entry);
    let scope = Scope::new("scope").expect("these are letters");
    let key = scope.key(entry.namespace.as_ref(), entry.relay);
    check_key(&key, 4);
}

/// A scope is one part of a key, and names no other.
fn check_scope(text: &str) {
    if let Ok(scope) = Scope::new(text) {
        let keys = scope.keys();
        check_key(keys.strip_suffix(".>").expect("all keys below it"), 2);
    }
}

fn check_key(key: &str, parts: usize) {
    let is_plain = |part: &str| {
        let mut letters = part.chars();
        letters.all(|it| it.is_ascii_alphanumeric() || "-_".contains(it)) && !part.is_empty()
    };
    assert!(key.split('.').all(is_plain), "{key}");
    assert_eq!(key.split('.').count(), parts, "{key}");
}

/// A frame that nobody with the key has made is refused.
fn check_frame(frame: &[u8]) {
    if let Ok((header, piece)) = header_of(frame) {
        let opened = Opener::new(key()).open::<Value>(SUBJECT, &header, piece);
        assert_eq!(opened, Err(Refused::Key));
    }
}

/// Messages arrive unchanged, in order and once, or not at all.
fn check_messages(script: &[u8]) {
    let (lens, actions) = script.split_at(script.len().min(4));
    let sent: Vec<Value> = (0_usize..)
        .zip(lens)
        .map(|(number, len)| json!([number, "x1y".repeat(usize::from(*len)), script]))
        .collect();
    let mut sealer = Sealer::new(key(), "a", "session");
    let frames: Vec<Vec<u8>> = sent
        .iter()
        .flat_map(|message| {
            let sealed = sealer.seal(SUBJECT, message, FRAME_BYTES);
            sealed.expect("it is short")
        })
        .collect();
    let mut opener = Opener::new(key());
    let mut heard = Vec::new();
    let mut deliver = |frame: &[u8]| {
        let outcome = header_of(frame)
            .and_then(|(header, piece)| opener.open::<Value>(SUBJECT, &header, piece));
        match outcome {
            Ok(message) => heard.extend(message),
            Err(refused) => return Some(refused),
        }
        None
    };
    let mut actions = actions.iter().map(|byte| usize::from(*byte));
    for (place, frame) in frames.iter().enumerate() {
        match actions.next().unwrap_or(0) % 8 {
            1 => {}
            2 => {
                let _first = deliver(frame);
                let second = deliver(frame);
                assert!(second.is_some(), "a frame is taken once");
            }
            3 => {
                let mut changed = frame.clone();
                let at = actions.next().unwrap_or(0) * 257 % changed.len();
                changed[at] ^= 1 << (actions.next().unwrap_or(0) % 8);
                assert!(deliver(&changed).is_some(), "nothing can be changed");
            }
            4 => {
                let earlier = actions.next().unwrap_or(0) % (place + 1);
                let _any = deliver(&frames[earlier]);
                let _any = deliver(frame);
            }
            _ => drop(deliver(frame)),
        }
    }
    let mut rest = sent.iter();
    let in_order = heard.iter().all(|message| rest.any(|sent| sent == message));
    assert!(in_order, "{heard:?} of {sent:?}");
    if script.iter().skip(4).all(|action| *action % 8 == 0) {
        assert_eq!(heard, sent, "nothing was done to them");
    }
}

fn key() -> SharedKey {
    SharedKey::new(&[b'k'; 32]).expect("it is long enough")
}

const SUBJECT: &str = "subject";
/// Bytes of a frame: a piece has 16.
const FRAME_BYTES: usize = 1040;
