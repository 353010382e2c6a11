//! Objects in datagrams.

use weir_moqt::{
    data::{ObjectDatagram, ObjectStatus},
    property::Properties,
};

use crate::stage::{Setting, millis, story};

#[test]
fn datagrams_reach_each_subscriber_once_and_unaltered() {
    for subscribers in [1, 50] {
        story(&Setting::default(), |stage| {
            let publisher = stage.client();
            let publication = stage.publish(publisher, "a--x");
            let subscribers = stage.clients(subscribers);
            stage.step("subscribe", millis(0));
            let subscriptions: Vec<_> = subscribers
                .iter()
                .map(|&subscriber| stage.subscribe(subscriber, "a--x"))
                .collect();
            stage.wait(millis(50));
            stage.step("publish", millis(0));
            let sent = samples(publication.alias);
            for datagram in &sent {
                stage.datagram_with(publication, datagram.clone());
                stage.wait(millis(5));
            }
            stage.wait(millis(50));
            for &subscription in &subscriptions {
                let outcome = stage.outcome(subscription);
                let ok = outcome.ok.as_ref().expect("it was accepted");
                assert_ne!(ok.track_alias, publication.alias);
                let expected = sent.iter().map(|datagram| ObjectDatagram {
                    track_alias: ok.track_alias,
                    ..datagram.clone()
                });
                let received = outcome.datagrams.iter().map(|(_, datagram)| datagram);
                let received: Vec<_> = received.cloned().collect();
                assert_eq!(received, expected.collect::<Vec<_>>());
            }
            let counters = stage.counters();
            assert_eq!(counters.datagrams_received, sent.len() as u64);
            assert_eq!(
                counters.datagrams_sent,
                (sent.len() * subscriptions.len()) as u64
            );
        });
    }
}

/// One of each kind.
fn samples(track_alias: u64) -> Vec<ObjectDatagram> {
    let plain = |object, payload: &'static [u8]| ObjectDatagram {
        track_alias,
        group: 5,
        object,
        priority: None,
        end_of_group: false,
        properties: Properties::EMPTY,
        status: ObjectStatus::Normal,
        payload: payload.into(),
    };
    let properties = Properties::builder().int(0x3C, 2).build();
    vec![
        plain(0, b"first"),
        ObjectDatagram {
            priority: Some(3),
            ..plain(1, b"urgent")
        },
        ObjectDatagram {
            properties,
            ..plain(2, b"with properties")
        },
        plain(3, b""),
        ObjectDatagram {
            end_of_group: true,
            ..plain(4, b"last of its group")
        },
        ObjectDatagram {
            group: 6,
            end_of_group: true,
            ..plain(u64::MAX, b"")
        },
        ObjectDatagram {
            group: 7,
            status: ObjectStatus::EndOfGroup,
            ..plain(9, b"")
        },
        ObjectDatagram {
            group: u64::MAX,
            status: ObjectStatus::EndOfTrack,
            priority: Some(255),
            ..plain(0, b"")
        },
    ]
}
