//! Scenes of many namespaces, and of many requests that wait for a track.

use std::time::Duration;

use weir_moqt::parameter::Parameters;
use weir_relay::{Config, Load};

use super::{Scene, note, stage::Stage, words::space};

/// Ten thousand namespaces: those under `m` are as many as a prefix may have, and those under `n` are more.
pub(crate) fn announced() -> Scene {
    let mut stage = Stage::new(Config::default());
    let announcers = stage.clients(SESSIONS);
    for (session, &client) in announcers.iter().enumerate() {
        let parent = if session < WATCHED { "m" } else { "n" };
        for number in 0..REQUESTS {
            stage.announce(client, &format!("{parent}-{session}-{number}"));
        }
        stage.announce(client, "p");
        stage.settle();
    }
    assert_eq!(
        stage.gauges().namespaces,
        (SESSIONS * (REQUESTS + 1)) as u64
    );
    let hostile = stage.client();
    for _ in 0..AT_ONCE {
        stage.watch(hostile, "n");
    }
    note("prefixes-of-too-many-namespaces", 1, stage.strike())?;
    let hostile = stage.client();
    let watched = stage.watch(hostile, "m");
    note("prefix-of-4000-namespaces", 1, stage.strike())?;
    stage.settle();
    for _ in 0..16 {
        let parameters = Parameters {
            track_namespace_prefix: Some(space("m")),
            ..Parameters::default()
        };
        stage.update(hostile, watched, parameters);
    }
    note("updates-of-a-prefix-of-4000-namespaces", 1, stage.strike())?;
    stage.settle();
    let hostile = stage.client();
    for number in 0..AT_ONCE {
        stage.subscribe(hostile, &format!("p--{number}"));
    }
    note("subscriptions-that-80-sessions-announce", 1, stage.strike())?;
    stage.settle();
    let watchers = stage.clients(WATCHERS);
    for watcher in watchers {
        stage.watch(watcher, "m");
    }
    stage.settle();
    stage.leave(announcers[0]);
    note("end-of-an-announcer-that-10-watch", 1, stage.strike())
}

/// Ten thousand tracks that sessions wait for.
pub(crate) fn waiting() -> Scene {
    let mut stage = Stage::new(Config::default());
    let clients = stage.clients(SESSIONS);
    for (session, &client) in clients.iter().enumerate() {
        for number in 0..REQUESTS {
            stage.subscribe(client, &format!("w-{session}--{number}"));
        }
    }
    stage.settle();
    assert_eq!(stage.gauges().tracks, (SESSIONS * REQUESTS) as u64);
    let hostile = stage.client();
    for _ in 0..AT_ONCE {
        stage.collect(hostile, "w");
    }
    note("prefixes-of-too-many-tracks", 1, stage.strike())?;
    stage.settle();
    let hostile = stage.client();
    for number in 0..AT_ONCE {
        stage.publish(hostile, &format!("w-1--{number}"), number as u64);
    }
    note("publications-that-somebody-waits-for", 1, stage.strike())?;
    stage.settle();
    let hostile = stage.client();
    for session in 0..AT_ONCE {
        stage.announce(hostile, &format!("w-{session}"));
    }
    note("announcements-that-7000-wait-for", 1, stage.strike())?;
    stage.settle();
    stage.leave(clients[79]);
    note(
        "end-of-a-session-that-waits-for-120-tracks",
        1,
        stage.strike(),
    )?;
    let load = Load {
        heap_bytes: 4 << 30,
        memory_bytes: 4 << 30,
        ..Load::default()
    };
    note("no-memory-left", 1, stage.observe(load))?;
    stage.settle();
    let overdue = stage.overdue(Duration::from_secs(40));
    note("end-of-the-time-of-those-who-wait", 1, overdue)
}

/// One track that many sessions wait for.
pub(crate) fn crowded() -> Scene {
    let mut stage = Stage::new(Config::default());
    for client in stage.clients(CROWD) {
        stage.subscribe(client, "w--x");
    }
    stage.settle();
    assert_eq!(stage.gauges().waiting, CROWD as u64);
    let one_more = stage.client();
    stage.subscribe(one_more, "w--x");
    note("subscription-beside-400-that-wait", 1, stage.strike())?;
    stage.settle();
    let publisher = stage.client();
    stage.publish(publisher, "w--x", 0);
    note("publication-that-400-wait-for", CROWD, stage.strike())
}

/// Sessions that wait for one track.
const CROWD: usize = 400;
const SESSIONS: usize = 80;
/// Requests of one session. The relay allows it 128 streams.
const REQUESTS: usize = 120;
/// Sessions whose namespaces are under `m`.
const WATCHED: usize = 33;
/// Sessions that subscribe to the namespaces under `m`.
const WATCHERS: usize = 10;
/// Requests in one packet.
const AT_ONCE: usize = 60;
