//! The part of a plan that an agent on another host needs, as plain data.

use std::{net::SocketAddr, time::Duration};

use anyhow::bail;
use serde::{Deserialize, Serialize};
use weir_http3::client::limits::HANDSHAKE_TIMEOUT_MAX;

use super::{
    options::one_server,
    plan::{Handshake, Plan},
    url::Url,
};
use crate::{
    harness::processes::Processes,
    run::{SentTrust, remote::Surroundings},
    urls,
};

/// The load of each agent. What concerns only the controller stays there, also the warm-up, which has an order of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    pub(super) urls: Vec<String>,
    pub(super) address: SocketAddr,
    pub(super) trust: SentTrust,
    pub(super) handshake: Handshake,
    pub(super) threads: usize,
    pub(super) connections: usize,
    pub(super) requests_per_connection: Option<u64>,
    pub(super) requests_at_once: usize,
    pub(super) requests_per_thread: Option<u64>,
    /// Of this agent.
    pub(super) rate_per_second: Option<f64>,
    pub(super) send_udp_payload_size: u16,
    pub(super) recv_udp_payload_size: u16,
    pub(super) duration: Duration,
    pub(super) handshake_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) expected_bytes: Option<u64>,
    pub(super) sockets: u32,
    pub(super) gro: bool,
}

impl Order {
    /// Returns the order of each of so many agents.
    pub(super) fn of(plan: &Plan, agents: usize) -> Self {
        let urls = plan.urls.iter().map(|url| url.with_query().to_owned());
        #[expect(clippy::cast_precision_loss, reason = "agents are few")]
        let rate_per_second = plan.rate_per_second.map(|rate| rate / agents as f64);
        Self {
            urls: urls.collect(),
            address: plan.address,
            trust: SentTrust::of(&plan.trust),
            handshake: plan.handshake,
            threads: plan.threads,
            connections: plan.connections,
            requests_per_connection: plan.requests_per_connection,
            requests_at_once: plan.requests_at_once,
            requests_per_thread: plan.requests_per_thread,
            rate_per_second,
            send_udp_payload_size: plan.send_udp_payload_size,
            recv_udp_payload_size: plan.recv_udp_payload_size,
            duration: plan.duration,
            handshake_timeout: plan.handshake_timeout,
            idle_timeout: plan.idle_timeout,
            expected_bytes: plan.expected_bytes,
            sockets: plan.sockets,
            gro: plan.gro,
        }
    }

    /// Returns the plan of an agent.
    ///
    /// # Errors
    /// The agent does not permit it, or it is not possible; the error says what is wrong.
    pub(super) fn plan(self, agent: Surroundings<'_>) -> anyhow::Result<Plan> {
        self.check(agent)?;
        let urls = self.urls.iter().map(|url| url.parse());
        let urls = urls.collect::<Result<Vec<Url>, _>>()?;
        one_server(&urls)?;
        let plan = Plan {
            urls,
            address: self.address,
            trust: self.trust.choice().load()?,
            handshake: self.handshake,
            threads: self.threads,
            connections: self.connections,
            requests_per_connection: self.requests_per_connection,
            requests_at_once: self.requests_at_once,
            requests_per_thread: self.requests_per_thread,
            rate_per_second: self.rate_per_second,
            send_udp_payload_size: self.send_udp_payload_size,
            recv_udp_payload_size: self.recv_udp_payload_size,
            warm_up: Duration::ZERO,
            duration: self.duration,
            handshake_timeout: self.handshake_timeout,
            idle_timeout: self.idle_timeout,
            expected_bytes: self.expected_bytes,
            cores: agent.cores.to_vec(),
            sockets: self.sockets,
            gro: self.gro,
            server: agent.watched.map(|pid| Processes { pids: vec![pid] }),
            mtu_bytes: None,
            command_line: String::new(),
            qlog: None,
            notes: Vec::new(),
        };
        plan.check()?;
        Ok(plan)
    }

    /// Checks what the flags of a command line check by themselves, and the limits of the agent.
    fn check(&self, agent: Surroundings<'_>) -> anyhow::Result<()> {
        let limits = agent.limits;
        if !limits.allows_public && !urls::is_isolated(self.address.ip()) {
            bail!(
                "{} is outside private networks; start the agent with --allow-public to permit it",
                self.address
            );
        }
        let connections = self.threads.saturating_mul(self.connections);
        if connections > limits.clients_max {
            bail!(
                "its share has {connections} connections, and the agent runs at most {} (--clients-max)",
                limits.clients_max
            );
        }
        let sizes = [self.send_udp_payload_size, self.recv_udp_payload_size];
        if !sizes.iter().all(|size| (1200..=65_527).contains(size)) {
            bail!("expected UDP payloads of 1200 to 65527 bytes, not {sizes:?}");
        }
        if !(Duration::from_millis(1)..=HANDSHAKE_TIMEOUT_MAX).contains(&self.idle_timeout) {
            bail!(
                "expected an idle timeout of a millisecond to a day, not {} s",
                self.idle_timeout.as_secs_f64()
            );
        }
        Ok(())
    }
}
