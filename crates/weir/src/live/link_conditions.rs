//! Conditions of an emulated link: delay, jitter, queue and loss.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use weir_link::{Config as Link, DELAY_MAX, Delay, Jitter, Loss, Probability, Queue};

/// Conditions of an emulated link, apart from its rate.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Conditions {
    /// Delay of every packet, in each direction: the round trip takes twice as long
    #[arg(long, default_value = "20ms", value_name = "TIME", value_parser = delay)]
    pub(crate) delay: Duration,
    /// Random variation of the delay, as a standard deviation, at most --delay; packets stay in order
    #[arg(long, default_value = "0ms", value_name = "TIME", value_parser = delay)]
    pub(crate) jitter: Duration,
    /// Length of the queue of packets that wait for the link, in bytes in each direction, 1500 or more; packets beyond it are
    /// dropped
    #[arg(long, default_value_t = 62_500, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1500..))]
    pub(crate) queue: u64,
    /// Share of packets that the link loses at random, in each direction, from 0 to 1: 0.01 is one in a hundred
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", value_parser = share, allow_negative_numbers = true)]
    pub(crate) loss: f64,
}

impl Conditions {
    /// Returns one direction of such a link, with unlimited rate. The error names the flag.
    pub(crate) fn link(&self) -> anyhow::Result<Link> {
        let jitter = if self.jitter.is_zero() {
            Jitter::None
        } else {
            Jitter::Normal(self.jitter)
        };
        let loss = if self.loss > 0.0 {
            Loss::Independent(Probability::new(self.loss).context("--loss")?)
        } else {
            Loss::None
        };
        Ok(Link {
            delay: Delay::new(self.delay, jitter).context("--jitter")?,
            queue: Queue {
                bytes_max: self.queue,
                packets_max: 1_000_000,
            },
            loss,
            ..Link::default()
        })
    }

    /// Returns this link, and links that differ from it in one condition each, with a name of the difference.
    pub(crate) fn sweep(&self) -> Vec<(String, Self)> {
        let mut links = Vec::new();
        for delay in [5, 50, 100] {
            let name = format!("delay {delay} ms");
            let delay = Duration::from_millis(delay);
            links.push((name, Self { delay, ..*self }));
        }
        for queue in [15_000, 30_000, 125_000, 250_000] {
            let name = format!("queue {} kB", queue / 1000);
            links.push((name, Self { queue, ..*self }));
        }
        for jitter in [2, 5, 10] {
            let name = format!("jitter {jitter} ms");
            let jitter = Duration::from_millis(jitter);
            links.push((name, Self { jitter, ..*self }));
        }
        for loss in [0.001, 0.01, 0.03] {
            links.push((format!("loss {} %", loss * 100.0), Self { loss, ..*self }));
        }
        // Jitter above the delay would deliver packets before they are sent.
        links.retain(|(_, link)| link.jitter <= link.delay);
        links.insert(0, (String::new(), *self));
        links
    }
}

/// Parses a share from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok();
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0 to 1, such as 0.01".to_owned())
}

/// Parses a delay of at most one hour.
fn delay(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|error| format!("expected a time such as 20ms: {error}"))?;
    if time > DELAY_MAX {
        return Err("expected at most one hour".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        conditions: Conditions,
    }

    #[test]
    fn impossible_conditions_are_refused_with_the_flag() {
        for (flag, values) in [
            (
                "--loss",
                &["-0.5", "1.1", "nan", "NaN", "inf", "half", ""][..],
            ),
            ("--delay", &["-1ms", "2h", "20", "soon"]),
            ("--jitter", &["-1ms", "2h", "20"]),
            ("--queue", &["-1", "0", "1499", "1e6"]),
        ] {
            for value in values {
                let line = Line::try_parse_from(["lab".to_owned(), format!("{flag}={value}")]);
                let error = line.expect_err(value).to_string();
                assert!(error.contains(flag), "{flag}={value}: {error}");
            }
            for split in [&["lab", flag, "-0.5"][..], &["lab", flag, "-1ms"]] {
                assert!(Line::try_parse_from(split).is_err(), "{split:?}");
            }
        }
        let good = [
            "lab",
            "--loss=1",
            "--delay=1h",
            "--jitter=0ms",
            "--queue=1500",
        ];
        let line = Line::try_parse_from(good).expect("at the limits");
        assert!(line.conditions.link().is_ok());
        let line = Line::try_parse_from(["lab", "--jitter=21ms"]).expect("by itself");
        let error = line.conditions.link().expect_err("the delay is 20 ms");
        assert!(format!("{error:#}").starts_with("--jitter: a jitter of 21ms"));
    }

    fn differences(one: &Conditions, other: &Conditions) -> usize {
        usize::from(one.delay != other.delay)
            + usize::from(one.jitter != other.jitter)
            + usize::from(one.queue != other.queue)
            + usize::from(one.loss.to_bits() != other.loss.to_bits())
    }

    #[test]
    fn a_sweep_varies_one_condition_at_a_time_and_names_it() {
        let usual = Conditions {
            delay: Duration::from_millis(20),
            jitter: Duration::ZERO,
            queue: 62_500,
            loss: 0.0,
        };
        let links = usual.sweep();
        for (place, (name, link)) in links.iter().enumerate() {
            assert_eq!(differences(&usual, link), usize::from(place > 0), "{name}");
            assert!(link.link().is_ok(), "{name}");
            let jittery = Conditions {
                jitter: Duration::from_millis(10),
                ..usual
            };
            assert!(jittery.sweep().iter().all(|(_, link)| link.link().is_ok()));
        }
        for kind in ["delay", "queue", "jitter", "loss"] {
            let of_kind = links.iter().filter(|(name, _)| name.starts_with(kind));
            assert!(of_kind.count() >= 3, "{kind}");
        }
        let mut names: Vec<&str> = links.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), links.len());
        let near = Conditions {
            delay: Duration::from_millis(3),
            ..usual
        };
        let is_jitter = |(name, _): &&(String, Conditions)| name.starts_with("jitter");
        let sweep = near.sweep();
        assert_eq!(
            sweep.iter().filter(is_jitter).count(),
            1,
            "at most the delay"
        );
    }
}
