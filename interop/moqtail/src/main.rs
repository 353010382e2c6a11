//! A publisher and a subscriber in draft-22 with the library moqtail, which are no programs of that project.
//!
//! moqtail-peer publish URL NAMESPACE
//! moqtail-peer subscribe URL NAMESPACE
//!
//! URL is that of a relay, with `moqt:` or `https:`; its certificate is not verified. The publisher announces NAMESPACE and
//! sends the track `t` of it to whom subscribes. The subscriber subscribes twice, the second time with a fill, and fetches.
//! It prints what came, and fails if that is not what the publisher sends.

mod publisher;
mod session;
mod subscriber;

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;

/// How long either takes at most.
const TIME_MAX: Duration = Duration::from_secs(30);

/// The track's name.
const TRACK: &str = "t";
/// The groups of the track. Integers from 128 on have two bytes, and those from 16384 on have three.
const GROUPS: std::ops::Range<u64> = 20_000..20_012;
/// The objects of each group.
const OBJECTS: [u64; 3] = [0, 1, 200];

/// Returns the payload of an object.
fn payload(group: u64, object: u64) -> Bytes {
    format!("{group}/{object} ").repeat(20).into()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = async {
        match arguments[..] {
            ["--version"] => {
                println!("moqtail 0.17.0");
                Ok(())
            }
            ["publish", url, namespace] => publisher::run(url, namespace).await,
            ["subscribe", url, namespace] => subscriber::run(url, namespace).await,
            _ => bail!("usage: moqtail-peer publish|subscribe URL NAMESPACE"),
        }
    };
    let result = tokio::time::timeout(TIME_MAX, run).await;
    result.context("it was not done in time")?
}
