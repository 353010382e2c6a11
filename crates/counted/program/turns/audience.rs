//! Scenes of subscribers and their tracks.

use std::time::Duration;

use bytes::Bytes;
use weir_moqt::{
    error::{PublishDoneCode, ResetCode},
    message::PublishDone,
    parameter::Parameters,
};
use weir_quic::{Handle, Limits, Shard};
use weir_relay::{Config, Relay};
use weir_transport::Transport as _;

use super::{Scene, note, stage::Stage};

/// One track with many subscribers.
pub(crate) fn of_one_track() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    let publication = stage.publish(publisher, "a--x", 0);
    stage.settle();
    for client in stage.clients(SUBSCRIBERS) {
        stage.subscribe(client, "a--x");
    }
    stage.settle();
    assert_eq!(stage.gauges().subscriptions, SUBSCRIBERS as u64);
    stage.datagram(publisher, 0, 0);
    note("datagram", SUBSCRIBERS, stage.strike())?;
    stage.settle();
    stage.subgroup(publisher, 0, 1);
    note("subgroup", SUBSCRIBERS, stage.strike())?;
    stage.settle();
    send_many(&mut stage, publisher, "")?;
    stage.act(publisher, |session, connection| {
        let done = PublishDone {
            stream_count: Some(1 + STREAMS),
            ..PublishDone::new(PublishDoneCode::TRACK_ENDED, "that is all")
        };
        session.publish_done(connection, publication, done);
    });
    stage.take_packet();
    // Datagrams may still come for a while.
    let overdue = stage.overdue(Duration::from_secs(1));
    note("end-of-a-track", SUBSCRIBERS, overdue)?;
    assert_eq!(stage.gauges().subscriptions, 0);
    Ok(())
}

/// One track with many subscribers, all over WebTransport.
pub(crate) fn over_web_transport() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.web_transport_clients(1)[0];
    stage.publish(publisher, "a--x", 0);
    stage.settle();
    for client in stage.web_transport_clients(SUBSCRIBERS) {
        stage.subscribe(client, "a--x");
    }
    stage.settle();
    assert_eq!(stage.gauges().subscriptions, SUBSCRIBERS as u64);
    send_many(&mut stage, publisher, "-over-web-transport")?;
    let mut streams = Vec::new();
    for group in 0..100 {
        streams.push(stage.begin(publisher, 0, 2000 + group, 1000));
    }
    stage.settle();
    for stream in streams {
        stage.act(publisher, |_, connection| {
            connection.reset(stream, ResetCode::CANCELLED.0);
        });
    }
    note("resets-over-web-transport", 1, stage.strike())?;
    stage.settle();
    stage.leave(publisher);
    note("end-of-a-session-of-web-transport", 1, stage.strike())
}

/// Sends as many objects as fit into one packet.
fn send_many(stage: &mut Stage, publisher: Handle, suffix: &str) -> Scene {
    let before = stage.counters();
    for group in 0..STREAMS {
        stage.subgroup(publisher, 0, 2 + group);
    }
    note(
        &format!("subgroups-in-one-packet{suffix}"),
        1,
        stage.strike(),
    )?;
    stage.settle();
    for group in 0..STREAMS {
        stage.datagram(publisher, 0, 1000 + group);
    }
    note(
        &format!("datagrams-in-one-packet{suffix}"),
        1,
        stage.strike(),
    )?;
    let sent = stage.counters().datagrams_sent - before.datagrams_sent;
    assert_eq!(sent, SUBSCRIBERS as u64 * STREAMS);
    stage.settle();
    Ok(())
}

/// Many tracks of one publisher, each with the same subscribers.
pub(crate) fn of_many_tracks() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    for track in 0..TRACKS as u64 {
        stage.publish(publisher, &format!("a--{track}"), track);
    }
    stage.settle();
    let subscribers = stage.clients(COLLECTORS);
    let mut requests = Vec::new();
    for &client in &subscribers {
        let tracks = 0..TRACKS as u64;
        let subscribed = tracks.map(|track| stage.subscribe(client, &format!("a--{track}")));
        requests = subscribed.collect();
    }
    stage.settle();
    let subscriptions = COLLECTORS * TRACKS;
    assert_eq!(stage.gauges().subscriptions, subscriptions as u64);
    let last = subscribers[COLLECTORS - 1];
    for &request in &requests[..60] {
        let parameters = Parameters {
            forward: Some(false),
            ..Parameters::default()
        };
        stage.update(last, request, parameters);
    }
    note("updates-of-60-subscriptions", 1, stage.strike())?;
    stage.settle();
    for track in 0..60 {
        stage.datagram(publisher, track, 0);
    }
    note("datagrams-of-60-tracks", 1, stage.strike())?;
    stage.settle();
    for &request in &requests[..60] {
        stage.act(last, |session, connection| {
            session.cancel(connection, request, ResetCode::CANCELLED);
        });
    }
    note("end-of-60-subscriptions", 1, stage.strike())?;
    stage.settle();
    stage.leave(subscribers[0]);
    note("end-of-a-session-with-120-subscriptions", 1, stage.strike())?;
    stage.leave(publisher);
    note("end-of-a-session-with-120-tracks", 1, stage.strike())?;
    // The tracks wait 5 s for their publisher.
    let overdue = stage.overdue(Duration::from_secs(8));
    note("end-of-120-tracks-without-a-publisher", 1, overdue)
}

/// Many tracks whose publisher has said that they are over, and leaves. Each has many subscribers.
pub(crate) fn of_ended_tracks() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    let tracks = 0..TRACKS as u64;
    let published = tracks.map(|track| stage.publish(publisher, &format!("a--{track}"), track));
    let published: Vec<_> = published.collect();
    stage.settle();
    for client in stage.clients(AUDIENCE) {
        for track in 0..TRACKS {
            stage.subscribe(client, &format!("a--{track}"));
        }
        stage.settle();
    }
    let subscriptions = AUDIENCE * TRACKS;
    assert_eq!(stage.gauges().subscriptions, subscriptions as u64);
    for request in published {
        let done = PublishDone {
            // A stream that never comes.
            stream_count: Some(1),
            ..PublishDone::new(PublishDoneCode::TRACK_ENDED, "that is all")
        };
        stage.act(publisher, |session, connection| {
            session.publish_done(connection, request, done);
        });
    }
    stage.settle();
    assert_eq!(stage.gauges().subscriptions, subscriptions as u64);
    stage.leave(publisher);
    let struck = stage.strike_and_pass(Duration::from_millis(500));
    note("end-of-a-publisher-of-120-tracks-for-60", 1, struck)?;
    assert_eq!(stage.gauges().subscriptions, 0);
    Ok(())
}

/// A session with as many open streams as the relay allows.
pub(crate) fn with_streams() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    for track in 0..TRACKS as u64 {
        stage.publish(publisher, &format!("a--{track}"), track);
    }
    stage.settle();
    let subscriber = stage.client();
    for track in 0..TRACKS as u64 {
        stage.subscribe(subscriber, &format!("a--{track}"));
    }
    stage.settle();
    let mut streams = Vec::new();
    for stream in 0..OPEN {
        streams.push(stage.begin(
            publisher,
            stream % TRACKS as u64,
            stream / TRACKS as u64,
            1000,
        ));
    }
    stage.settle();
    assert_eq!(stage.gauges().subgroups, OPEN);
    for &stream in &streams[..100] {
        stage.act(publisher, |_, connection| {
            connection.reset(stream, ResetCode::CANCELLED.0);
        });
    }
    note("resets-of-100-streams", 1, stage.strike())?;
    stage.settle();
    stage.leave(publisher);
    note("end-of-a-session-with-150-streams", 1, stage.strike())
}

/// A session with more subscriptions than streams that it allows, which raises its limit of streams.
pub(crate) fn with_few_streams() -> Scene {
    let limits = Limits {
        uni_streams_max: 64,
        ..Limits::default()
    };
    let relay = Relay::new(Config::default());
    let mut stage = Stage::with(relay, Shard::ALONE, &limits);
    let publishers = stage.clients(PUBLISHERS);
    for (number, &publisher) in publishers.iter().enumerate() {
        for track in 0..TRACKS as u64 {
            stage.publish(publisher, &format!("a-{number}--{track}"), track);
        }
    }
    stage.settle();
    let subscriber = stage.client();
    stage.collect(subscriber, "a");
    stage.settle();
    let subscriptions = (PUBLISHERS * TRACKS) as u64;
    assert_eq!(stage.gauges().subscriptions, subscriptions);
    let mut streams = Vec::new();
    for publisher in publishers {
        for track in 0..TRACKS as u64 {
            streams.push((publisher, stage.begin(publisher, track, 0, 1)));
        }
    }
    stage.settle();
    let opened = stage.counters().streams_sent;
    assert!(opened < subscriptions, "{opened} streams are open");
    for (publisher, stream) in streams {
        stage.act(publisher, |_, connection| {
            let _written = connection.write(stream, &mut Bytes::from_static(b"a"));
            connection.finish(stream);
        });
    }
    let struck = stage.strike_with_answers();
    note("more-streams-for-960-subscriptions", 1, struck)?;
    stage.settle();
    assert!(stage.counters().streams_sent > opened);
    Ok(())
}

const SUBSCRIBERS: usize = 100;
/// Subgroups in one packet.
const STREAMS: u64 = 50;
const TRACKS: usize = 120;
/// Publishers with so many tracks each.
const PUBLISHERS: usize = 8;
/// Subscribers of all tracks.
const COLLECTORS: usize = 20;
/// Those of each track that has ended.
const AUDIENCE: usize = 60;
/// Streams of a publisher. The relay allows it 256.
const OPEN: u64 = 250;
