//! `weir link`: emulates a slow link between real sockets.

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
use crate::numbers::{address, rate, whole};
use crate::output::{print_json, print_line};
use crate::signals;

/// Emulate a slow link: a UDP proxy with a rate, a queue, delay, jitter and loss
///
/// The proxy forwards packets from clients at --listen to the server at --to, and its answers back. All clients share one
/// link. The rate limits the direction to clients; delay, jitter, queue and loss apply to both directions. No privileges
/// are needed. The command prints a line of JSON with its address, rate and delay when it is ready, and another with its
/// counters when it ends.
#[derive(Debug, Args)]
pub(crate) struct LinkArguments {
    /// Address for clients; port 0: a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = address)]
    listen: SocketAddr,
    /// Address of the server
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    to: SocketAddr,
    /// Constant rate in bits per second, such as 500k or 5M [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with_all = ["profile", "trace"])]
    rate: Option<Bitrate>,
    /// Rate that changes over time, from the first packet on. In kbit/s: 500k (500 for 90 s), CASCADE (1200, 800, 400, 800,
    /// 1200, for 30 s each), INTRA_CASCADE (1000, 800, 600, 400, 200 and back, for 15 s each), SPIKE (1200, 300, 800, for 10 s
    /// each), SLOW_JITTERS (500 and 1200 in turns, for 5 s each) or FAST_JITTERS (1200, with dips to 500 of 0.1 to 0.25 s). The
    /// last rate stays
    #[arg(long, value_name = "NAME", conflicts_with = "trace")]
    profile: Option<String>,
    /// Recorded rate in Mahimahi's form, from the first packet on: one line per packet of 1504 bytes, the time in ms at which
    /// the link carries it; repeats at its end
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    conditions: Conditions,
    /// Seed of random loss and jitter, a 64-bit number: the same seed gives the same sequence
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    seed: u64,
    /// Largest number of clients; packets of others are dropped
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = whole(0..=usize::MAX))]
    clients_max: usize,
}

pub(crate) fn run(arguments: &LinkArguments) -> anyhow::Result<ExitCode> {
    let steps = match (&arguments.rate, &arguments.profile, &arguments.trace) {
        (Some(rate), ..) => vec![(Duration::ZERO, Rate::Fixed(*rate))],
        (_, Some(name), _) => NetworkProfile::find(name).context("--profile")?.steps,
        (.., Some(path)) => {
            NetworkProfile::load(path, Duration::MAX)
                .context("--trace")?
                .steps
        }
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
    let mut shaper = Shaper::bind(config)
        .with_context(|| format!("--listen: cannot bind to {}", arguments.listen))?;
    let address = shaper
        .local_address()
        .context("the socket has no address")?;
    print_json(&arguments.ready_line(address))?;
    if let Some(warning) = arguments.rate.and_then(warning) {
        print_line(&warning);
    }
    let report = shaper
        .run(&stop)
        .context("the link could not forward packets")?;
    print_json(&json!({
        "clients": report.clients,
        "packets_refused": report.packets_refused,
        "packets_orphaned": report.packets_orphaned,
        "up": direction(&report.up),
        "down": direction(&report.down),
    }))?;
    Ok(ExitCode::SUCCESS)
}

impl LinkArguments {
    /// Returns the line that tells that the link listens at `address`, and what the link does.
    fn ready_line(&self, address: SocketAddr) -> Value {
        let trace = self.trace.as_ref().map(|file| file.display().to_string());
        json!({
            "listening": address.to_string(),
            "to": self.to.to_string(),
            "rate_bits_per_second": self.rate.map(Bitrate::bits_per_second),
            "profile": self.profile,
            "trace": trace,
            "delay_ms": self.conditions.delay.as_secs_f64() * 1000.0,
        })
    }
}

/// Returns the warning of a rate at which a packet takes longer than a second: a unit may be missing.
fn warning(rate: Bitrate) -> Option<String> {
    let bits = rate.bits_per_second();
    (bits < RATE_WARNING_BITS).then(|| {
        format!(
            "warning: --rate {bits} is {bits} bit/s, so a packet of 1500 bytes takes {} s; for {bits} kbit/s, use \
             --rate {bits}k",
            PACKET_BITS.div_ceil(bits)
        )
    })
}

/// Bits of a full packet.
const PACKET_BITS: u64 = 1500 * 8;
/// Rates below this one are slower than any link for media, in bits per second.
const RATE_WARNING_BITS: u64 = 10_000;

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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        link: LinkArguments,
    }

    #[test]
    fn the_first_line_has_the_rate_and_the_delay() {
        let to = ["link", "--to", "127.0.0.1:4443"];
        let ready = |more: &[&str]| {
            let line = Line::try_parse_from(to.iter().chain(more)).unwrap();
            line.link.ready_line(([127, 0, 0, 1], 4444).into())
        };
        let line = ready(&["--rate", "500k", "--delay", "2500us"]);
        assert_eq!(line["listening"], "127.0.0.1:4444");
        assert_eq!(line["to"], "127.0.0.1:4443");
        assert_eq!(line["rate_bits_per_second"], 500_000);
        assert_eq!(line["delay_ms"], 2.5);
        assert_eq!(
            (&line["profile"], &line["trace"]),
            (&Value::Null, &Value::Null)
        );
        let line = ready(&["--profile", "SPIKE"]);
        assert_eq!(
            (&line["profile"], &line["delay_ms"]),
            (&json!("SPIKE"), &json!(20.0))
        );
        assert_eq!(line["rate_bits_per_second"], Value::Null);
    }

    #[test]
    fn a_rate_that_lacks_its_unit_is_warned_of() {
        let text = |text: &str| warning(rate(text).unwrap());
        let expected = "warning: --rate 500 is 500 bit/s, so a packet of 1500 bytes takes 24 s; for 500 kbit/s, use --rate 500k";
        assert_eq!(text("500").as_deref(), Some(expected));
        assert!(text("9999").is_some());
        assert_eq!(text("10k"), None);
    }
}
