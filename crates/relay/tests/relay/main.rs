//! Behaviour of the relay, as stories in virtual time, with real QUIC between the relay and scripted clients.
//!
//! A story prints its seed and its steps; `WEIR_SEED` sets another seed. Each story runs twice and has to have the same
//! result.

#![expect(clippy::print_stdout, reason = "stories print their seed and steps")]

mod actor;
mod archive;
mod setting;
mod stage;
mod vandal;
mod words;

mod addresses;
mod authorising;
mod caching;
mod chain;
mod churn;
mod crossing;
mod datagrams;
mod discovering;
mod drafts;
mod draining;
mod fetching;
mod filling;
mod fleet;
mod fleet_failures;
mod fleet_tree;
mod flood;
mod forwarding;
mod gaps;
mod hostile;
mod interests;
mod joining;
mod judging;
mod late;
mod limits;
mod load;
mod loss;
mod malformed;
mod model;
mod moving;
mod offering;
mod outages;
mod parked;
mod pieces;
mod publishers;
mod renewing;
mod reserved;
mod revoking;
mod seeds;
mod sharing;
mod slow;
mod streams;
mod threads;
mod timeouts;
mod track_status;
mod unanswered;
mod waiting;
mod web_transport;
