//! How the processes of one run learn through the relay that all subscribers are there.
//!
//! A process that only subscribes announces a namespace as soon as all of its subscribers are subscribed:
//! `weir-bench/ready/RUN/PROCESS/SUBSCRIBERS`. A process that waits for them subscribes to the namespaces of the prefix
//! `weir-bench/ready/RUN` and adds up the numbers. So a ramp may take longer than the start delay.

use std::collections::BTreeMap;

use weir_moqt::message::RequestError;
use weir_moqt::name::Namespace;
use weir_moqt::parameter::Parameters;
use weir_moqt::session::{Event as SessionEvent, RequestId};
use weir_moqt::token::Token;

use crate::limits::PROCESSES_MAX;
use weir_client::client::Client;
use weir_client::turn::Turn;

/// The subscribers of other processes that a publishing process waits for.
#[derive(Clone, Debug)]
pub(crate) struct Awaited {
    run_id: u64,
    subscribers: u64,
    /// The SUBSCRIBE_NAMESPACE, and the session of the publisher that sent it.
    request: Option<(usize, RequestId)>,
    /// Subscribers by process.
    present: BTreeMap<u64, u64>,
    /// Announcements that were not counted, since they are malformed or there are too many.
    ignored: u64,
}

impl Awaited {
    /// Returns a count of the subscribers of run `run_id` that waits for `subscribers` of them.
    pub(crate) fn new(run_id: u64, subscribers: u64) -> Self {
        Self {
            run_id,
            subscribers,
            request: None,
            present: BTreeMap::new(),
            ignored: 0,
        }
    }

    /// Returns how many subscribers have to announce themselves.
    pub(crate) fn subscribers(&self) -> u64 {
        self.subscribers
    }

    /// Returns how many subscribers have announced themselves.
    pub(crate) fn present(&self) -> u64 {
        self.present.values().sum()
    }

    /// Whether all subscribers have announced themselves.
    pub(crate) fn is_complete(&self) -> bool {
        self.present() >= self.subscribers
    }

    /// Returns the number of announcements that were not counted: malformed ones, and those of more than
    /// [`PROCESSES_MAX`] processes.
    pub(crate) fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Handles an event of the session of publisher `number`.
    ///
    /// # Errors
    /// The relay cannot announce namespaces, so the subscribers will not be heard of.
    pub(crate) fn on_session_event(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        number: usize,
        event: &SessionEvent,
    ) -> Result<(), String> {
        let is_own = |id: &RequestId| self.request == Some((number, *id));
        if let SessionEvent::Ready { .. } = event {
            return self.ask(turn, client, number);
        }
        if let SessionEvent::Namespace { id, suffix } = event
            && is_own(id)
        {
            self.on_announced(suffix);
        } else if let SessionEvent::NamespaceDone { id, suffix } = event
            && is_own(id)
        {
            if let Some((process, _)) = parse(suffix) {
                self.present.remove(&process);
            }
        } else if let SessionEvent::Rejected { id, error } = event
            && is_own(id)
        {
            let RequestError { code, reason, .. } = error;
            return Err(format!(
                "the relay refused SUBSCRIBE_NAMESPACE of {}, through which subscribers are awaited: {code} {reason:?}",
                prefix(self.run_id)
            ));
        }
        Ok(())
    }

    /// Asks the relay for announcements, unless the session of another publisher has asked already.
    fn ask(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        number: usize,
    ) -> Result<(), String> {
        let tokens = client.tokens();
        let Some((session, mut connection)) = client.open(turn) else {
            return Ok(());
        };
        if self.request.is_none() {
            let prefix = prefix(self.run_id);
            let asked = session.subscribe_namespace(&mut connection, prefix, with_tokens(tokens));
            let request = asked.map_err(|refused| {
                format!("could not ask for the subscribers to wait for: {refused}")
            })?;
            self.request = Some((number, request));
        }
        Ok(())
    }

    fn on_announced(&mut self, suffix: &Namespace) {
        match parse(suffix) {
            Some((process, subscribers))
                if self.present.len() < PROCESSES_MAX || self.present.contains_key(&process) =>
            {
                self.present.insert(process, subscribers);
            }
            Some(_) | None => self.ignored += 1,
        }
    }
}

/// Announces that `subscribers` subscribers of process `process` are subscribed. Returns the request, unless the session
/// could not take it.
pub(crate) fn announce(
    turn: &mut Turn<'_>,
    client: &mut Client,
    run_id: u64,
    (process, subscribers): (u64, u64),
) -> Option<RequestId> {
    let tokens = client.tokens();
    let (session, mut connection) = client.open(turn)?;
    let suffix = Namespace::new([process.to_string(), subscribers.to_string()]);
    let namespace = suffix.and_then(|suffix| prefix(run_id).join(&suffix));
    let namespace = namespace.expect("five short fields are a namespace");
    let announced = session.publish_namespace(&mut connection, namespace, with_tokens(tokens));
    announced.ok()
}

/// Describes the refusal of an announcement.
pub(crate) fn refused(run_id: u64, error: &RequestError) -> String {
    let RequestError { code, reason, .. } = error;
    format!(
        "the relay refused PUBLISH_NAMESPACE under {}, by which the publishing process learns that the subscribers are \
         there: {code} {reason:?}",
        prefix(run_id)
    )
}

fn prefix(run_id: u64) -> Namespace {
    let run = format!("{run_id:016x}");
    Namespace::new(["weir-bench", "ready", &run]).expect("three short fields are a namespace")
}

/// Returns process and subscribers of an announcement.
fn parse(suffix: &Namespace) -> Option<(u64, u64)> {
    let mut fields = suffix.fields().map(|field| {
        let text = str::from_utf8(field).ok()?;
        text.parse().ok()
    });
    let parsed = (fields.next()??, fields.next()??);
    fields.next().is_none().then_some(parsed)
}

fn with_tokens(tokens: Vec<Token>) -> Parameters {
    Parameters {
        authorization_tokens: tokens,
        ..Parameters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suffix<const N: usize>(fields: [&str; N]) -> Namespace {
        Namespace::new(fields).unwrap()
    }

    #[test]
    fn subscribers_of_all_processes_count() {
        let mut awaited = Awaited::new(7, 30);
        awaited.on_announced(&suffix(["1", "20"]));
        assert!(!awaited.is_complete());
        // The same process again, then another one.
        awaited.on_announced(&suffix(["1", "20"]));
        assert_eq!(awaited.present(), 20);
        awaited.on_announced(&suffix(["2", "10"]));
        assert!(awaited.is_complete());
        for strange in [suffix(["3"]), suffix(["3", "x"]), suffix(["3", "1", "1"])] {
            awaited.on_announced(&strange);
        }
        assert_eq!((awaited.present(), awaited.ignored()), (30, 3));
    }

    #[test]
    fn the_table_of_processes_has_a_limit() {
        let mut awaited = Awaited::new(7, 1);
        let number = |number: usize| suffix([&number.to_string(), "1"]);
        for process in 0..PROCESSES_MAX {
            awaited.on_announced(&number(process));
        }
        assert_eq!(awaited.ignored(), 0);
        awaited.on_announced(&number(PROCESSES_MAX));
        awaited.on_announced(&number(0));
        let counted = (awaited.present(), awaited.ignored());
        assert_eq!(counted, (PROCESSES_MAX as u64, 1));
    }
}
