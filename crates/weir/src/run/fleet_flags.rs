//! The flags of runs with agents on other hosts.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use weir_net::Stop;

use super::remote::{AGENTS_MAX, Bus, Fleet, NatsBus, SharedKey, Wanted};
use crate::{nats::NatsServers, numbers::whole};

// How a process reaches its fleet. No doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, Args)]
pub(crate) struct FleetArguments {
    /// NATS servers through which controller and agents talk: nats://USER:PASSWORD@HOST:PORT or tls://, several with commas
    /// between
    #[arg(
        long,
        value_name = "URLS",
        env = "WEIR_FLEET",
        hide_env_values = true,
        required = true
    )]
    fleet: Option<String>,
    /// File with a secret of 32 bytes or more that controller and agents share, such as `openssl rand -hex 32` makes
    #[arg(long, value_name = "FILE", env = "WEIR_FLEET_KEY", required = true)]
    fleet_key: Option<PathBuf>,
    /// File with the credentials of a NATS account
    #[arg(long, value_name = "FILE")]
    fleet_credentials: Option<PathBuf>,
}

// The agents of a controller. No doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("fleet", |argument| argument.required(false)))]
#[command(mut_arg("fleet_key", |argument| argument.required(false)))]
#[command(mut_arg("fleet_credentials", |argument| argument.requires("fleet")))]
pub(crate) struct LoadAgents {
    /// Make the load with so many agents on other hosts, which run `weir agent`, instead of this process
    #[arg(long, value_name = "COUNT", requires_all = ["fleet", "fleet_key"], value_parser = whole(1..=AGENTS_MAX))]
    agents: Option<usize>,
    #[command(flatten)]
    fleet: FleetArguments,
}

// The flags of the controller of a relay benchmark. No doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, Args)]
pub(crate) struct AgentsArguments {
    #[command(flatten)]
    load: LoadAgents,
    /// Names of the agents that have the publishers, with commas between; the others have the subscribers [default: the first
    /// by name]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "agents")]
    publishers_at: Vec<String>,
}

impl FleetArguments {
    /// Returns the shared key.
    ///
    /// # Errors
    /// Its file cannot be read, or is too short.
    pub(crate) fn key(&self) -> anyhow::Result<SharedKey> {
        let file = self.fleet_key.as_ref().context("--fleet-key: missing")?;
        let named = || format!("--fleet-key: {}", file.display());
        let text = std::fs::read(file).with_context(named)?;
        SharedKey::new(&text).with_context(named)
    }

    /// Connects to the message system.
    ///
    /// # Errors
    /// No server can be reached, or it refuses the credentials.
    pub(crate) fn connect(&self, name: &str) -> anyhow::Result<Box<dyn Bus>> {
        let urls = self.fleet.as_deref().context("--fleet: missing")?;
        let credentials = self.fleet_credentials.clone();
        let credentials = credentials.map(|file| ("--fleet-credentials".to_owned(), file));
        let servers = NatsServers::parse("--fleet", urls, credentials)?;
        Ok(Box::new(NatsBus::connect(&servers, name)?))
    }
}

impl LoadAgents {
    /// Whether agents make the load.
    pub(crate) fn are_given(&self) -> bool {
        self.agents.is_some()
    }

    /// Claims the agents, if there are to be some. `name` is that of the command.
    ///
    /// # Errors
    /// NATS cannot be reached, or there are too few agents.
    pub(crate) fn claim(&self, name: &str, stop: &Stop) -> anyhow::Result<Option<Fleet>> {
        self.claim_with(name, &[], stop)
    }

    fn claim_with(
        &self,
        name: &str,
        publishers_at: &[String],
        stop: &Stop,
    ) -> anyhow::Result<Option<Fleet>> {
        let Some(agents) = self.agents else {
            return Ok(None);
        };
        let key = self.fleet.key()?;
        let bus = self.fleet.connect(name)?;
        let wanted = Wanted {
            agents,
            publishers_at: publishers_at.to_vec(),
        };
        Fleet::claim(bus, key, &wanted, stop).map(Some)
    }
}

impl AgentsArguments {
    /// Claims the agents, if the run has some.
    ///
    /// # Errors
    /// NATS cannot be reached, or there are too few agents.
    pub(crate) fn claim(&self, stop: &Stop) -> anyhow::Result<Option<Fleet>> {
        self.load
            .claim_with("weir bench", &self.publishers_at, stop)
    }
}
