//! `weir link`: a slow link between real sockets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};
use weir_link::{Bitrate, Rate, Stats};
use weir_net::{Shaper, ShaperConfig};

use crate::live::{link_conditions::Conditions, network_profile::NetworkProfile};
use crate::output::print_json;
use crate::signals;

/// Emulate a slow link: a UDP proxy with a rate, a queue, delay, jitter and loss
///
/// Clients send to --listen what is meant for --to; all of them share one link. The rate limits what goes to clients;
/// delay, jitter, queue and loss are those of both directions. No privileges are needed. One line of JSON says where it
/// listens, another one at the end what it did.
#[derive(Debug, Args)]
pub(crate) struct LinkArguments {
    /// Address for clients; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address that their packets are forwarded to
    #[arg(long, value_name = "ADDRESS")]
    to: SocketAddr,
    /// A constant rate, such as 500k or 5M bits per second [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with_all = ["profile", "trace"])]
    rate: Option<Bitrate>,
    /// A profile of `weir live lab`, such as `INTRA_CASCADE`, from the first packet on
    #[arg(long, value_name = "NAME", conflicts_with = "trace")]
    profile: Option<String>,
    /// A recorded link in Mahimahi's form, from the first packet on
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    conditions: Conditions,
    /// Random seed of loss and jitter
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Clients at once
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    clients_max: usize,
}

pub(crate) fn run(arguments: &LinkArguments) -> anyhow::Result<ExitCode> {
    let steps = match (&arguments.rate, &arguments.profile, &arguments.trace) {
        (Some(rate), ..) => vec![(Duration::ZERO, Rate::Fixed(*rate))],
        (_, Some(name), _) => NetworkProfile::find(name)?.steps,
        (.., Some(path)) => NetworkProfile::load(path, Duration::MAX)?.steps,
        (None, None, None) => Vec::new(),
    };
    let link = arguments.conditions.link()?;
    let config = ShaperConfig {
        listen: arguments.listen,
        target: arguments.to,
        up: link.clone(),
        down: link,
        steps,
        start: None,
        seed: arguments.seed,
        clients_max: arguments.clients_max,
    };
    let stop = signals::stop_on_signals()?;
    let mut shaper =
        Shaper::bind(config).with_context(|| format!("cannot bind to {}", arguments.listen))?;
    let address = shaper
        .local_address()
        .context("the socket has no address")?;
    let (address, to) = (address.to_string(), arguments.to.to_string());
    print_json(&json!({ "listening": address, "to": to }))?;
    let report = shaper.run(&stop).context("the link failed")?;
    print_json(&json!({
        "clients": report.clients,
        "packets_refused": report.packets_refused,
        "packets_orphaned": report.packets_orphaned,
        "up": direction(&report.up),
        "down": direction(&report.down),
    }))?;
    Ok(ExitCode::SUCCESS)
}

fn direction(stats: &Stats) -> Value {
    json!({
        "offered": stats.offered,
        "offered_bytes": stats.offered_bytes,
        "delivered": stats.delivered,
        "delivered_bytes": stats.delivered_bytes,
        "dropped_queue": stats.dropped_queue_bytes + stats.dropped_queue_packets,
        "lost": stats.lost,
        "dropped_in_flight": stats.dropped_in_flight,
        "queue_bytes_peak": stats.queue_bytes_peak,
    })
}

fn rate(text: &str) -> Result<Bitrate, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) => (digits, &text[digits.len()..]),
        None => (text, ""),
    };
    let factor = match unit {
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => 1,
    };
    let bits = digits.parse::<u64>().ok();
    let bits = bits.and_then(|number| number.checked_mul(factor));
    let bits = bits.filter(|bits| *bits > 0);
    bits.map(Bitrate::from_bits_per_second)
        .ok_or_else(|| "expected bits per second above zero, such as 500k or 5M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        let bits = |text: &str| rate(text).map(Bitrate::bits_per_second);
        assert_eq!(bits("500k"), Ok(500_000));
        assert_eq!(bits("5M"), Ok(5_000_000));
        assert_eq!(bits("1G"), Ok(1_000_000_000));
        assert_eq!(bits("1200"), Ok(1200));
        for bad in [
            "",
            "k",
            "0",
            "0k",
            "1.5M",
            "-1",
            "5m",
            "99999999999999999999",
            "99999999999999999G",
        ] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
