//! The controller of a run: it leads its agents through the phases, and judges how the run ended.

use std::time::{Duration, Instant};

use anyhow::bail;
use weir_bench::{measured::Measured, metrics::End, profile::Mode, subscriber::SubscriptionResult};
use weir_net::{Stop, clock};
use weir_report::{
    relay::{Conduct, Status, live_view::Moment},
    service_level::JudgedClause,
};

use super::{
    Plan, RelayUrl,
    agents::{Agents, KEEP_ALIVE, Order, Seen, longest},
    watch::Watch,
};

/// Why a run was ended early.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BrokenOff {
    /// A failure, or an interruption.
    Because(String),
    /// These clauses of the service level are broken for certain.
    Hopeless(Vec<JudgedClause>),
    /// An agent is lost.
    Lost(String),
}

/// Leads the agents, which are prepared, through the phases of the run. Returns why the run was ended early, if it was.
pub(super) fn conduct(
    agents: &mut Agents,
    (plan, url): (&Plan, &RelayUrl),
    stop: &Stop,
    watch: &mut Watch,
    say: &mut impl FnMut(&Moment),
) -> Option<BrokenOff> {
    let because = |reason: &str| Some(BrokenOff::Because(reason.to_owned()));
    let started = clock::now();
    let patience = patience(plan);
    let length = longest(&plan.profile) + END_TIMEOUT + wait_for_others(plan);
    let (mut is_admitted, mut released, mut has_met_relay) = (false, None, false);
    loop {
        if stop.wait(STEP) {
            return because("interrupted");
        }
        let now = clock::now();
        if let Err(problem) = agents.poll(now) {
            return Some(BrokenOff::Lost(format!("{problem:#}")));
        }
        if let Some(moment) = watch.look(now, agents) {
            say(&moment);
        }
        if let Some(death) = watch.relay_death() {
            return because(&death);
        }
        if agents.is_over() {
            return None;
        }
        if let Some(hopeless) = hopeless(plan, agents) {
            return Some(BrokenOff::Hopeless(hopeless));
        }
        let seen = agents.seen();
        // Clients that move on to another relay are not ready meanwhile.
        has_met_relay |= seen.iter().any(has_met);
        if now - started > START_TIMEOUT && !has_met_relay {
            return because(&format!("no answer within {} s", START_TIMEOUT.as_secs()));
        }
        // Subscribers have nothing to wait for; the publishers' results say why.
        if released.is_none() && all_publishers_failed(&seen) {
            return None;
        }
        let last_packet_at = watch.last_packet_at(now, agents);
        let is_open = |one: &Seen| one.publishers.ready + one.subscribers.ready > 0;
        if now - last_packet_at > SILENCE_MAX && seen.iter().any(is_open) {
            return because(&silence(url, watch, now - last_packet_at));
        }
        let is_late = now - started > patience;
        let may_join = seen.iter().all(|one| one.has_announced) || is_late;
        if may_join && !is_admitted {
            is_admitted = true;
            agents.order_all(&Order::AdmitSubscribers);
        }
        let is_ready = seen.iter().all(|one| one.is_subscribed && one.is_served);
        if released.is_none()
            && is_late
            && let Some(reason) = nobody_came(plan, &seen, patience)
        {
            return Some(BrokenOff::Because(reason));
        }
        if released.is_none() && (is_ready || is_late) {
            watch.on_released(now, &plan.profile);
            agents.order_all(&Order::Release);
            released = Some(now);
        }
        if released.is_some_and(|released| now - released > length) {
            return because("the run did not end in time");
        }
    }
}

/// Returns whether the relay has answered a client of these, or refused it.
fn has_met(one: &Seen) -> bool {
    let (publishers, subscribers) = (one.publishers, one.subscribers);
    publishers.ready + publishers.failed + subscribers.ready + subscribers.failed > 0
}

/// Returns whether every thread has told of its clients, and there are publishers, all of which have failed.
fn all_publishers_failed(seen: &[Seen]) -> bool {
    let have_told = |one: &Seen| one.publishers.publishers + one.subscribers.subscribers > 0;
    let sum = |pick: fn(&Seen) -> u64| seen.iter().map(pick).sum::<u64>();
    let all = sum(|one| one.publishers.publishers);
    all > 0 && all == sum(|one| one.publishers.failed) && seen.iter().all(have_told)
}

/// Says that no packet came from the relay for so long.
fn silence(url: &RelayUrl, watch: &Watch, silent: Duration) -> String {
    format!(
        "no packet came from the relay at {url} for {} s, also no answer to a ping; the last packet came {}",
        silent.as_secs(),
        watch.time_in_words(watch.last_packet())
    )
}

/// Returns the clauses of the service level that are broken for certain; `None` if there are none.
fn hopeless(plan: &Plan, agents: &Agents) -> Option<Vec<JudgedClause>> {
    let so_far = agents.so_far()?;
    let clauses = plan.level.clearly_broken(&so_far);
    (!clauses.is_empty()).then_some(clauses)
}

/// Returns why the run is incomplete although it was not ended early: all sessions were lost, the publisher failed, or
/// the relay stopped answering. `None` for a complete run, whatever objects were lost.
pub(super) fn cut_short(
    measured: &Measured,
    url: &RelayUrl,
    watch: &Watch,
    now: Instant,
) -> Option<String> {
    let Measured {
        publishers,
        subscribers,
    } = measured;
    let last_packet_at = watch.last_packet();
    let last_packet = format!(
        "the last packet came {}",
        watch.time_in_words(last_packet_at)
    );
    let results = &subscribers.results;
    let steady = || results.iter().filter(|one| one.conduct == Conduct::Steady);
    // Whether every subscription ended early, in a way that `is_meant` accepts.
    let all_ended = |is_meant: fn(End) -> bool| {
        let cut = |one: &SubscriptionResult| {
            one.track.status != Status::Good && one.track.end.is_some_and(is_meant)
        };
        !results.is_empty() && steady().all(cut)
    };
    let has_received = || steady().any(|one| one.track.completion.objects_received > 0);
    let progress = subscribers.progress;
    if progress.failed == progress.subscribers
        && all_ended(|end| end == End::Disconnected)
        && has_received()
    {
        let reason = results.iter().rev().find_map(|one| one.failure.as_deref());
        return Some(format!(
            "all sessions with the relay at {url} were lost ({last_packet}): {}",
            reason.unwrap_or("the reason is not known")
        ));
    }
    let published = publishers.progress;
    if published.failed > 0
        && published.failed == published.publishers
        && let Some(reason) = publishers.cut_off.last()
    {
        return Some(format!(
            "the publisher at the relay {url} failed before the end of its tracks: {reason}"
        ));
    }
    let is_silent = now - last_packet_at > KEEP_ALIVE + PING_PATIENCE;
    (is_silent && all_ended(|end| matches!(end, End::Idle | End::Disconnected)) && has_received())
        .then(|| format!("the relay at {url} stopped answering, also to pings; {last_packet}"))
}

/// Checks that something was measured.
///
/// # Errors
/// No session was established, the publisher failed at once, or publishers of another process could not be told that the
/// subscribers are there; the error names the reason.
pub(super) fn check(
    measured: &Measured,
    url: &RelayUrl,
    interrupted: Option<&str>,
) -> anyhow::Result<()> {
    let Measured {
        publishers,
        subscribers,
    } = measured;
    let failure = publishers.failures.first().cloned();
    // Without subscribers, a failed publisher is all there is to report.
    let is_silent = subscribers.progress.subscribers == 0 && failure.is_some();
    // Publishers that are done have closed their sessions.
    let has_met = publishers.progress.established > 0;
    // Publishers that wait for these subscribers never began.
    if let Some(refused) = &subscribers.announcement_refused
        && subscribers.progress.objects == 0
        && !has_met
    {
        bail!("{url}: {refused}");
    }
    if (has_met && !is_silent) || subscribers.draft.is_some() {
        return Ok(());
    }
    let of_subscribers = || {
        let mut results = subscribers.results.iter();
        results.find_map(|result| result.failure.clone())
    };
    let failure = failure
        .or_else(|| interrupted.map(str::to_owned))
        .or_else(of_subscribers);
    let failure = failure.unwrap_or_else(|| "no session was established".to_owned());
    bail!("{url}: {failure}")
}

/// Returns why publishers cannot begin when their patience is over: the subscribers of other processes did not come.
fn nobody_came(plan: &Plan, seen: &[Seen], patience: Duration) -> Option<String> {
    if plan.part() != Mode::Publisher || plan.no_wait {
        return None;
    }
    let sum = |pick: fn(&Seen) -> u64| seen.iter().map(pick).sum::<u64>();
    let served = sum(|one| one.publishers.served);
    // All publishers wait for the same subscribers.
    let most = |pick: fn(&Seen) -> u64| seen.iter().map(pick).max().unwrap_or_default();
    let present = most(|one| one.publishers.present);
    let seconds = patience.as_secs();
    if let Some(awaited) = plan.await_subscribers.filter(|awaited| present < *awaited) {
        let ignored = most(|one| one.publishers.ignored_announcements);
        return Some(format!(
            "{present} of {awaited} subscribers (--await-subscribers) had subscribed after {seconds} s, \
             and {ignored} announcements could not be counted; start them with the same --seed, and with tokens that may publish \
             in weir-bench/ready"
        ));
    }
    (served == 0).then(|| {
        format!(
            "no subscriber came within {seconds} s; start --role subscribe with the same --seed, or say --no-wait"
        )
    })
}

/// Returns how long subscribers wait for the process that publishes.
pub(super) fn wait_for_others(plan: &Plan) -> Duration {
    if plan.part() == Mode::Subscriber {
        AUDIENCE_TIMEOUT
    } else {
        Duration::ZERO
    }
}

/// Returns how long the clients may take to get ready.
fn patience(plan: &Plan) -> Duration {
    let rate = u64::from(plan.ramp_per_second);
    let ramp = |subscribers: u64| {
        let seconds = subscribers.checked_div(rate).unwrap_or(0);
        Duration::from_secs(seconds) * 2
    };
    if plan.part() == Mode::Publisher {
        return AUDIENCE_TIMEOUT + ramp(plan.await_subscribers.unwrap_or(0));
    }
    START_TIMEOUT + ramp(plan.subscribers_total() as u64)
}

/// Time between two looks at the agents.
const STEP: Duration = Duration::from_millis(20);
/// How long publishers and subscribers of different processes wait for each other.
const AUDIENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// Time that a relay may take to accept clients, after the last one has started.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time without a packet from the relay; clients ping earlier.
const SILENCE_MAX: Duration = Duration::from_secs(8);
/// Time that the answer to a ping may take.
const PING_PATIENCE: Duration = Duration::from_millis(200);
/// Time that a run may take beyond its profile.
const END_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{harness::machine::Machine, run::options::RunOptions};

    use super::*;

    #[test]
    fn a_run_has_no_purpose_once_all_publishers_have_failed() {
        let seen = |publishers, failed, subscribers| {
            let mut seen = Seen::default();
            seen.publishers.publishers = publishers;
            seen.publishers.failed = failed;
            seen.subscribers.subscribers = subscribers;
            seen
        };
        assert!(all_publishers_failed(&[seen(2, 2, 0), seen(0, 0, 9)]));
        assert!(!all_publishers_failed(&[seen(2, 1, 0), seen(0, 0, 9)]));
        assert!(!all_publishers_failed(&[seen(2, 2, 0), seen(1, 0, 0)]));
        let silent = [seen(2, 2, 0), seen(0, 0, 0)];
        assert!(!all_publishers_failed(&silent), "one has told nothing yet");
        assert!(
            !all_publishers_failed(&[seen(0, 0, 9)]),
            "none publishes here"
        );
    }

    /// Returns what a publishing process says when its patience is over, with `present` subscribers of other processes.
    fn said(flags: &[&str], present: u64) -> Option<String> {
        let line = ["--relay", "moqt://127.0.0.1:4443", "--role", "publish"];
        let line: Vec<String> = line.iter().chain(flags).map(ToString::to_string).collect();
        let options = RunOptions::from_arguments(&line).unwrap();
        let profile = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../profiles/audio-short.ini"
        );
        let machine = Machine {
            kernel: String::new(),
            cpu_model: String::new(),
            cores: vec![0, 1],
            online: vec![0, 1],
        };
        let plan = options.plan(Path::new(profile), &machine, None).unwrap();
        let mut seen = Seen::default();
        // The session was up, and the relay accepted the namespace.
        seen.publishers.established = 1;
        seen.publishers.ready = 1;
        seen.publishers.present = present;
        nobody_came(&plan, &[seen], Duration::from_mins(1))
    }

    #[test]
    fn a_publisher_whose_subscribers_do_not_come_says_so() {
        let alone = said(&[], 0).unwrap();
        assert!(
            alone.starts_with("no subscriber came within 60 s"),
            "{alone}"
        );
        assert_eq!(said(&["--no-wait"], 0), None);
        let few = said(&["--await-subscribers", "3"], 2).unwrap();
        assert!(few.starts_with("2 of 3 subscribers"), "{few}");
    }
}
