//! An agent's part of a measurement that a controller on another host leads.

use std::{
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_net::{Stop, clock};

use super::{
    measured::{Measured, Seen},
    measurement::run_here,
    order::Order,
};
use crate::run::remote::{Job, Surroundings};

/// What an agent says of its measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// Its progress, once a second.
    Seen(Seen),
    /// Its results. Nothing comes after them.
    Measured(Box<Measured>),
}

/// A measurement on threads of its own.
struct Requests {
    words: String,
    stop: Stop,
    /// What the measurement says; it ends with its results or a failure.
    said: Receiver<anyhow::Result<Said>>,
    is_over: bool,
}

/// Starts the measurement of an order.
///
/// # Errors
/// The agent does not permit the order, or it is not possible.
pub(crate) fn start(order: Value, agent: Surroundings<'_>) -> anyhow::Result<Box<dyn Job>> {
    let order: Order =
        serde_json::from_value(order).context("an order that this weir does not understand")?;
    let begin = agent.begin;
    if begin > clock::now() + BEGIN_MAX {
        bail!(
            "the measurement begins in more than {} s",
            BEGIN_MAX.as_secs()
        );
    }
    let plan = order.plan(agent)?;
    let words = format!("requests {} at {}", plan.urls[0], plan.address);
    let stop = Stop::new().context("cannot make an event descriptor")?;
    let (sender, said) = channel();
    let stopped = stop.clone();
    let measure = move || {
        // Nobody listens if the controller has left.
        let mut say = |seen: &Seen| drop(sender.send(Ok(Said::Seen(*seen))));
        let measured = run_here(&plan, begin, &stopped, &mut say);
        drop(sender.send(measured.map(|measured| Said::Measured(Box::new(measured)))));
    };
    let thread = thread::Builder::new().name("weir-h3-agent".to_owned());
    thread.spawn(measure).context("cannot start a thread")?;
    Ok(Box::new(Requests {
        words,
        stop,
        said,
        is_over: false,
    }))
}

impl Job for Requests {
    fn words(&self) -> String {
        self.words.clone()
    }

    fn poll(&mut self) -> anyhow::Result<Vec<Value>> {
        let mut values = Vec::new();
        while !self.is_over {
            let said = match self.said.try_recv() {
                Ok(said) => said?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => bail!("its measurement panicked"),
            };
            self.is_over = matches!(said, Said::Measured(_));
            values.push(serde_json::to_value(&said).context("results cannot be written")?);
        }
        Ok(values)
    }

    fn end(&mut self) {
        self.stop.request();
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.stop.request();
    }
}

/// Longest time from an order to the beginning of its measurement.
const BEGIN_MAX: Duration = Duration::from_mins(1);
