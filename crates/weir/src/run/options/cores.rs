//! The choice of cores for relay, publishers and subscribers.

use anyhow::bail;

use super::RunOptions;
use crate::{
    harness::{
        machine::{Machine, check_cores},
        own_relay::OwnRelay,
        process,
    },
    run::{CoreChoice, RelayChoice},
};

/// Returns the cores of a run. Without flags, publishers and subscribers share all cores that the relay does not use.
pub(super) fn choose(
    options: &RunOptions,
    machine: &Machine,
    relay: &RelayChoice,
) -> anyhow::Result<CoreChoice> {
    check(options, machine, relay)?;
    let relay = match relay {
        // The operating system chooses.
        RelayChoice::Own(OwnRelay::Weir { cores, .. }) if cores.is_empty() => machine.cores.clone(),
        RelayChoice::Own(OwnRelay::Weir { cores, .. }) => cores.clone(),
        RelayChoice::Own(OwnRelay::Null { core }) => core.iter().copied().collect(),
        RelayChoice::At { .. } if !options.relay_cores.is_empty() => options.relay_cores.clone(),
        RelayChoice::At { pid, .. } => {
            pid.map_or_else(Vec::new, |pid| process::bound_cores(pid, &machine.cores))
        }
    };
    let generator = generator_cores(&machine.cores, &relay);
    let chosen = |flag: &Vec<usize>| {
        if flag.is_empty() {
            generator.clone()
        } else {
            flag.clone()
        }
    };
    Ok(CoreChoice {
        publishers: chosen(&options.publishers_cores),
        subscribers: chosen(&options.subscribers_cores),
        relay,
    })
}

/// Returns the cores that the relay does not use, or the last core if the relay uses all. A relay whose cores are unknown gets
/// the first core.
fn generator_cores(cores: &[usize], relay: &[usize]) -> Vec<usize> {
    let is_free = |core: &usize| {
        if relay.is_empty() {
            Some(core) != cores.first()
        } else {
            !relay.contains(core)
        }
    };
    let free: Vec<usize> = cores.iter().copied().filter(is_free).collect();
    if free.is_empty() {
        cores.last().copied().into_iter().collect()
    } else {
        free
    }
}

/// Checks that the cores of flags exist. A relay that runs already may use cores that this process may not.
fn check(options: &RunOptions, machine: &Machine, relay: &RelayChoice) -> anyhow::Result<()> {
    let of_relay = match relay {
        RelayChoice::Own(_) => &machine.cores,
        RelayChoice::At { .. } => &machine.online,
    };
    check_cores("--relay-cores", &options.relay_cores, of_relay)?;
    let (publishers, subscribers) = (&options.publishers_cores, &options.subscribers_cores);
    check_cores("--publishers-cores", publishers, &machine.cores)?;
    check_cores("--subscribers-cores", subscribers, &machine.cores)
}

/// Returns weir's own relay with its cores. Without --relay-cores, these are the first cores, one for each thread.
pub(super) fn own_relay(options: &RunOptions, machine: &Machine) -> anyhow::Result<OwnRelay> {
    let threads = usize::from(options.relay_threads);
    let chosen = &options.relay_cores;
    if !chosen.is_empty() && chosen.len() != threads {
        bail!(
            "--relay-cores: expected {threads}, one for each of --relay-threads, not {}",
            chosen.len()
        );
    }
    let cores = if chosen.is_empty() {
        machine.cores.iter().copied().take(threads).collect()
    } else {
        chosen.clone()
    };
    Ok(OwnRelay::Weir {
        threads,
        // With more threads than cores, the operating system chooses.
        cores: if cores.len() == threads {
            cores
        } else {
            Vec::new()
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        run: RunOptions,
    }

    /// Returns the choice on a machine with so many cores.
    fn chosen(cores: usize, flags: &[&str]) -> CoreChoice {
        choose_of((0..cores).collect(), cores, flags).unwrap()
    }

    /// Returns the choice if this process may use `cores` of so many.
    fn choose_of(cores: Vec<usize>, online: usize, flags: &[&str]) -> anyhow::Result<CoreChoice> {
        let line = ["weir"].iter().chain(flags);
        let options = Line::try_parse_from(line)?.run;
        let machine = Machine {
            kernel: String::new(),
            cpu_model: String::new(),
            cores,
            online: (0..online).collect(),
        };
        let relay = match &options.relay {
            None => RelayChoice::Own(own_relay(&options, &machine)?),
            Some(url) => RelayChoice::At {
                url: url.parse()?,
                pid: None,
                by_name: false,
            },
        };
        choose(&options, &machine, &relay)
    }

    #[test]
    fn a_relay_of_somebody_else_may_be_where_this_process_may_not() {
        let other = "--relay=moqt://127.0.0.1:4443";
        let cores = choose_of(vec![1], 2, &[other, "--relay-cores=0"]).unwrap();
        assert_eq!((cores.relay, cores.subscribers), (vec![0], vec![1]));
        for flags in [
            &[other, "--relay-cores=2"][..],
            &[other, "--subscribers-core=0"],
            &["--relay-cores=0"],
        ] {
            let error = choose_of(vec![1], 2, flags).unwrap_err().to_string();
            assert!(error.contains("there is no core"), "{flags:?}: {error}");
        }
    }

    #[test]
    fn the_generator_keeps_off_the_relays_cores() {
        for (flags, relay, generator) in [
            (&[][..], &[0][..], &[1, 2, 3][..]),
            (&["--relay-threads=2"], &[0, 1], &[2, 3]),
            (&["--relay-threads=3"], &[0, 1, 2], &[3]),
            (&["--relay-cores=1"], &[1], &[0, 2, 3]),
            (
                &["--relay=moqt://127.0.0.1:4443", "--relay-cores=1"],
                &[1],
                &[0, 2, 3],
            ),
            // The cores of this relay are unknown.
            (&["--relay=moqt://127.0.0.1:4443"], &[], &[1, 2, 3]),
        ] {
            let cores = chosen(4, flags);
            assert_eq!(cores.relay, relay, "{flags:?}");
            let both = (&cores.publishers[..], &cores.subscribers[..]);
            assert_eq!(both, (generator, generator), "{flags:?}");
        }
        let said = chosen(4, &["--relay-cores=1", "--subscribers-core=1"]);
        assert_eq!(
            (said.publishers, said.subscribers),
            (vec![0, 2, 3], vec![1])
        );
        let said = chosen(4, &["--publishers-core=2", "--subscribers-cores=1,3"]);
        assert_eq!((said.publishers, said.subscribers), (vec![2], vec![1, 3]));
    }

    #[test]
    fn where_no_core_is_left_the_last_is_shared() {
        for (cores, flags, relay) in [
            (1, &[][..], &[0][..]),
            (2, &["--relay-threads=2"], &[0, 1]),
            // More threads than cores: the system chooses.
            (2, &["--relay-threads=3"], &[0, 1]),
        ] {
            let choice = chosen(cores, flags);
            assert_eq!(choice.relay, relay, "{flags:?}");
            assert_eq!(choice.subscribers, [cores - 1], "{flags:?}");
        }
    }
}
