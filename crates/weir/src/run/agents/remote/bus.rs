//! The way of messages between a controller and its agents: subjects that messages are published to.

use std::time::{Duration, Instant};

/// A connection to a message system. Messages of one sender to one subject arrive in order. A message whose subject nobody
/// has subscribed to is lost.
pub(crate) trait Bus {
    /// Receives messages to `subject` from now on.
    ///
    /// # Errors
    /// The connection is lost, or the subject is not allowed.
    fn subscribe(&mut self, subject: &str) -> anyhow::Result<()>;

    /// Publishes a message of at most [`Self::payload_bytes_max`] bytes.
    ///
    /// # Errors
    /// The connection is lost, or the message is too large.
    fn publish(&mut self, subject: &str, payload: Vec<u8>) -> anyhow::Result<()>;

    /// Returns the next message, for which it waits at most `patience`.
    ///
    /// # Errors
    /// The connection is lost.
    fn receive(&mut self, patience: Duration) -> anyhow::Result<Option<Message>>;

    /// Returns the largest message, in bytes.
    fn payload_bytes_max(&self) -> usize;
}

/// A message that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) payload: Vec<u8>,
    /// When it arrived in this process.
    pub(crate) at: Instant,
}

/// Messages that wait to be received. Beyond this, a connection drops what arrives, and its next receipt fails.
pub(crate) const MESSAGES_MAX: usize = 8192;

/// A message system within this process, for tests.
#[cfg(test)]
pub(crate) mod hub {
    use std::sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    };

    use weir_net::clock;

    use super::{Bus, Duration, MESSAGES_MAX, Message};

    type Subscriptions = Arc<Mutex<Vec<(String, SyncSender<Message>)>>>;

    /// The message system. Clones share it.
    #[derive(Clone, Default)]
    pub(crate) struct Hub(Subscriptions);

    /// A connection to a [`Hub`].
    pub(crate) struct HubBus {
        hub: Hub,
        sender: SyncSender<Message>,
        receiver: Receiver<Message>,
    }

    impl Hub {
        fn lock(&self) -> MutexGuard<'_, Vec<(String, SyncSender<Message>)>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn connect(&self) -> HubBus {
            let (sender, receiver) = mpsc::sync_channel(MESSAGES_MAX);
            HubBus {
                hub: self.clone(),
                sender,
                receiver,
            }
        }
    }

    impl Bus for HubBus {
        fn subscribe(&mut self, subject: &str) -> anyhow::Result<()> {
            let mut subscriptions = self.hub.lock();
            subscriptions.push((subject.to_owned(), self.sender.clone()));
            Ok(())
        }

        fn publish(&mut self, subject: &str, payload: Vec<u8>) -> anyhow::Result<()> {
            if payload.len() > self.payload_bytes_max() {
                anyhow::bail!("the message is too large");
            }
            let message = Message {
                subject: subject.to_owned(),
                payload,
                at: clock::now(),
            };
            let mut subscriptions = self.hub.lock();
            // Who has left receives nothing.
            subscriptions
                .retain(|(to, sender)| to != subject || sender.try_send(message.clone()).is_ok());
            Ok(())
        }

        fn receive(&mut self, patience: Duration) -> anyhow::Result<Option<Message>> {
            match self.receiver.recv_timeout(patience) {
                Ok(message) => Ok(Some(message)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the hub is gone"),
            }
        }

        fn payload_bytes_max(&self) -> usize {
            64 << 10
        }
    }
}

/// What every message system has to do. Each implementation runs these tests.
#[cfg(test)]
pub(crate) mod conformance {
    use super::{Bus, Duration};

    const PATIENCE: Duration = Duration::from_secs(10);
    /// How long a message may take that must not come.
    const NOTHING: Duration = Duration::from_millis(50);

    /// Runs all tests with connections that `connect` makes. `prefix` begins all subjects.
    pub(crate) fn check(prefix: &str, mut connect: impl FnMut() -> Box<dyn Bus>) {
        let (mut one, mut two, mut three) = (connect(), connect(), connect());
        let subject = |name: &str| format!("{prefix}.{name}");
        two.subscribe(&subject("a")).unwrap();
        two.subscribe(&subject("b")).unwrap();
        three.subscribe(&subject("b")).unwrap();

        // In order, to those who have subscribed, with their subject.
        for number in 0..100_u8 {
            one.publish(&subject("a"), vec![number]).unwrap();
        }
        for number in 0..100_u8 {
            let message = two.receive(PATIENCE).unwrap().unwrap();
            assert_eq!(
                (message.subject, message.payload),
                (subject("a"), vec![number])
            );
        }
        assert_eq!(three.receive(NOTHING).unwrap(), None);

        // To all of several.
        one.publish(&subject("b"), b"x".to_vec()).unwrap();
        for receiver in [&mut two, &mut three] {
            let message = receiver.receive(PATIENCE).unwrap().unwrap();
            assert_eq!(message.payload, b"x");
        }

        // To nobody: no error, and nothing later. What comes after it on the same connection shows that it was handled: a
        // subscription of another connection may overtake it.
        one.publish(&subject("c"), b"lost".to_vec()).unwrap();
        one.publish(&subject("b"), b"after".to_vec()).unwrap();
        assert_eq!(two.receive(PATIENCE).unwrap().unwrap().payload, b"after");
        two.subscribe(&subject("c")).unwrap();
        one.publish(&subject("c"), b"kept".to_vec()).unwrap();
        let message = two.receive(PATIENCE).unwrap().unwrap();
        assert_eq!(message.payload, b"kept");

        // At the limit, and one past it.
        let most = one.payload_bytes_max();
        one.publish(&subject("a"), vec![7; most]).unwrap();
        let message = two.receive(PATIENCE).unwrap().unwrap();
        assert_eq!(message.payload.len(), most);
        assert!(one.publish(&subject("a"), vec![7; most + 1]).is_err());

        // Who has left is not missed.
        assert_eq!(three.receive(PATIENCE).unwrap().unwrap().payload, b"after");
        drop(three);
        one.publish(&subject("b"), b"y".to_vec()).unwrap();
        assert_eq!(two.receive(PATIENCE).unwrap().unwrap().payload, b"y");
    }

    #[test]
    fn a_hub_does_what_a_message_system_has_to_do() {
        let hub = super::hub::Hub::default();
        check("test", || Box::new(hub.connect()));
    }
}
