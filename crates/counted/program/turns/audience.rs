//! Scenes of subscribers and their tracks.

use std::time::Duration;

use weir_moqt::{
    error::{PublishDoneCode, ResetCode},
    message::PublishDone,
    parameter::Parameters,
};
use weir_relay::Config;
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
    note("datagram", SUBSCRIBERS, &stage.strike())?;
    stage.settle();
    stage.subgroup(publisher, 0, 1);
    note("subgroup", SUBSCRIBERS, &stage.strike())?;
    stage.settle();
    for group in 0..STREAMS as u64 {
        stage.subgroup(publisher, 0, 2 + group);
    }
    let units = SUBSCRIBERS * STREAMS;
    note("subgroups-in-one-packet", units, &stage.strike())?;
    stage.settle();
    for group in 0..STREAMS as u64 {
        stage.datagram(publisher, 0, 1000 + group);
    }
    note("datagrams-in-one-packet", units, &stage.strike())?;
    stage.settle();
    stage.act(publisher, |session, connection| {
        let done = PublishDone::new(PublishDoneCode::TRACK_ENDED, "that is all");
        session.publish_done(connection, publication, done);
    });
    note("end-of-a-track", SUBSCRIBERS, &stage.strike())
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
    note("updates-of-60-subscriptions", 1, &stage.strike())?;
    stage.settle();
    for track in 0..60 {
        stage.datagram(publisher, track, 0);
    }
    let units = (COLLECTORS - 1) * 60;
    note("datagrams-of-60-tracks", units, &stage.strike())?;
    stage.settle();
    for &request in &requests[..60] {
        stage.act(last, |session, connection| {
            session.cancel(connection, request, ResetCode::CANCELLED);
        });
    }
    note("end-of-60-subscriptions", 1, &stage.strike())?;
    stage.settle();
    stage.leave(subscribers[0]);
    note(
        "end-of-a-session-with-120-subscriptions",
        1,
        &stage.strike(),
    )?;
    stage.leave(publisher);
    note("end-of-a-session-with-120-tracks", 1, &stage.strike())?;
    // The tracks wait 5 s for their publisher.
    let overdue = stage.overdue(Duration::from_secs(8));
    note("end-of-120-tracks-without-a-publisher", 1, &overdue)
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
    note("resets-of-100-streams", 1, &stage.strike())?;
    stage.settle();
    stage.leave(publisher);
    note("end-of-a-session-with-150-streams", 1, &stage.strike())
}

const SUBSCRIBERS: usize = 100;
/// Subgroups in one packet.
const STREAMS: usize = 50;
const TRACKS: usize = 120;
/// Subscribers of all tracks.
const COLLECTORS: usize = 20;
/// Streams of a publisher. The relay allows it 256.
const OPEN: u64 = 250;
