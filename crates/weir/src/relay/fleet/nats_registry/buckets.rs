//! The two buckets of the registry, and what they report.

use std::time::Duration;

use anyhow::{Context as _, bail};
use async_nats::{
    Client,
    jetstream::{
        Context, ErrorCode,
        context::{ContextBuilder, GetStreamError, GetStreamErrorKind, KeyValueError},
        kv::{self, Store, Watch},
        stream::StorageType,
    },
};
use futures_util::{
    StreamExt as _,
    future::{Either, select},
};
use weir_relay::registry::LEASE;

use super::super::entry::Scope;
use crate::nats::NatsProblem;

/// The buckets of all fleets of an account. A scope is a part of them.
pub(super) struct Buckets {
    pub(super) leases: Store,
    pub(super) registrations: Store,
}

impl Buckets {
    /// Opens the buckets; creates them if there are none.
    pub(super) async fn open(client: &Client) -> Result<Self, NatsProblem> {
        Ok(Self {
            leases: bucket(client, "weir-fleet-leases", LEASE).await?,
            registrations: bucket(client, "weir-fleet", REGISTRATION_MAX).await?,
        })
    }

    /// Checks that the buckets are those that were opened: the servers may have lost them, and another relay may have created
    /// them again.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        for store in [&self.leases, &self.registrations] {
            let found = store.stream.get_info().await?.created;
            if found != store.stream.cached_info().created {
                bail!("the bucket {} was created again", store.name);
            }
        }
        Ok(())
    }
}

/// One of the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bucket {
    Leases,
    Registrations,
}

/// The watches of both buckets.
pub(super) struct Both {
    leases: Watch,
    registrations: Watch,
    /// Whether each has told everything that its bucket had when the watch began.
    has_all: [bool; 2],
}

impl Both {
    pub(super) async fn new(buckets: &Buckets, scope: &Scope) -> anyhow::Result<Self> {
        let keys = scope.keys();
        Ok(Self {
            leases: buckets.leases.watch_with_history(keys.clone()).await?,
            registrations: buckets.registrations.watch_with_history(keys).await?,
            has_all: [false; 2],
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.has_all == [true; 2]
    }

    pub(super) async fn next(&mut self) -> anyhow::Result<(Bucket, kv::Entry)> {
        let (bucket, entry) = match select(self.leases.next(), self.registrations.next()).await {
            Either::Left((entry, _)) => (Bucket::Leases, entry),
            Either::Right((entry, _)) => (Bucket::Registrations, entry),
        };
        let entry = entry.context("the watch has ended")?;
        let entry = entry.context("the watch failed")?;
        self.has_all[bucket as usize] |= entry.seen_current;
        Ok((bucket, entry))
    }
}

/// Opens the bucket; creates it if there is none.
async fn bucket(client: &Client, name: &str, max_age: Duration) -> Result<Store, NatsProblem> {
    let context = ContextBuilder::new()
        .timeout(ANSWER_MAX)
        .ack_timeout(ANSWER_MAX)
        .build(client.clone());
    // Servers that choose a leader do not answer: those that were asked are soon asked again.
    let found = tokio::time::timeout(LOOK_MAX, context.get_key_value(name)).await;
    let store = match found {
        Ok(Ok(store)) => store,
        Ok(Err(error)) if is_absent(&error) => create(&context, name, max_age).await?,
        Ok(Err(error)) => return Err(no_bucket(&error)),
        Err(_) => {
            let seconds = LOOK_MAX.as_secs();
            let problem = format!("the servers of NATS did not answer within {seconds} s");
            return Err(NatsProblem::Unreachable(problem));
        }
    };
    let found = &store.stream.cached_info().config;
    let description = found.description.as_deref().unwrap_or_default();
    if description != DESCRIPTION || found.max_age != max_age {
        return Err(NatsProblem::Refused(format!(
            "the bucket {name} of NATS is of another version: expected {DESCRIPTION:?} with an age of {} s, found {description:?} with {} s",
            max_age.as_secs(),
            found.max_age.as_secs()
        )));
    }
    Ok(store)
}

async fn create(context: &Context, name: &str, max_age: Duration) -> Result<Store, NatsProblem> {
    let config = |num_replicas| kv::Config {
        bucket: name.to_owned(),
        description: DESCRIPTION.to_owned(),
        max_age,
        storage: StorageType::Memory,
        num_replicas,
        limit_markers: Some(MARKER_TIME),
        ..kv::Config::default()
    };
    let created = match context.create_key_value(config(REPLICAS)).await {
        // A single server.
        Err(error) if chain(&error).contains("replicas > 1 not supported") => {
            context.create_key_value(config(1)).await
        }
        created => created,
    };
    created.map_err(|error| no_bucket(&error))
}

/// Returns whether the servers say that there is no such bucket.
fn is_absent(error: &KeyValueError) -> bool {
    let source = std::error::Error::source(error);
    let source = source.and_then(|source| source.downcast_ref::<GetStreamError>());
    let Some(GetStreamErrorKind::JetStream(error)) = source.map(GetStreamError::kind) else {
        return false;
    };
    error.error_code() == ErrorCode::STREAM_NOT_FOUND
}

fn no_bucket(error: &dyn std::error::Error) -> NatsProblem {
    let problem = chain(error);
    NatsProblem::Unreachable(format!(
        "NATS has no bucket for the fleet: {problem}; the servers need JetStream"
    ))
}

/// Returns the text of an error with its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// What the buckets say of themselves.
const DESCRIPTION: &str = "weir fleet, version 2";
/// Copies of a bucket in a cluster of NATS, so that it survives the loss of a server.
const REPLICAS: usize = 3;
/// How long registrations stay after they were last renewed.
const REGISTRATION_MAX: Duration = Duration::from_mins(10);
/// How long a server may take to say whether there is a bucket.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long the servers tell of a key that has expired or was deleted.
pub(super) const MARKER_TIME: Duration = Duration::from_mins(1);
