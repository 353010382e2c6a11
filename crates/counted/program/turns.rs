//! The longest turns of the relay.
//!
//! Each scene fills a relay with much state, and delivers one hostile packet. Counted are the turn that receives the
//! packet, from the UDP payload to the packets that answer it, and each later turn for which that one left work. Of scenes
//! of two threads, the turns of the thread that gets the messages are counted.
//! `scripts/count-turns.sh` compares the longest turn of each scene with its bound.
//!
//! Prints, for each scene, its name, how many turns were counted, and how many subscribers or notifications share its
//! longest turn. Fails if a scene is not what it claims to be.

mod audience;
mod cache;
mod catalogue;
mod crowd;
mod late;
mod links;
mod requests;
mod stage;
mod threads;
mod tokens;
#[expect(dead_code, reason = "the stories need more of it")]
#[path = "../../relay/tests/relay/words.rs"]
mod words;

use std::{
    error::Error,
    io::{self, Write as _},
};

use self::stage::Struck;

/// Runs all groups of scenes, or only one.
pub(crate) fn run(only: Option<&str>) -> Scene {
    let scenes = [
        ("catalogue", catalogue::announced as fn() -> Result<_, _>),
        ("waiting", catalogue::waiting),
        ("crowded", catalogue::crowded),
        ("audience", audience::of_one_track),
        ("tracks", audience::of_many_tracks),
        ("ended-tracks", audience::of_ended_tracks),
        ("streams", audience::with_streams),
        ("few-streams", audience::with_few_streams),
        ("web-transport", audience::over_web_transport),
        ("small", cache::of_small_objects),
        ("stale", cache::of_stale_objects),
        ("gaps", cache::with_gaps),
        ("stale-gaps", cache::of_stale_objects_with_gaps),
        ("large-groups", cache::of_large_groups),
        ("late", late::packets),
        ("tokens", tokens::of_requests),
        ("rules", tokens::of_rules_that_change),
        ("link", links::to_a_relay),
        ("upstreams", links::to_two_relays),
        ("prefixes", links::of_prefixes),
        ("fleet", links::of_a_fleet),
        ("threads", threads::of_one_relay),
    ];
    for (name, scene) in scenes {
        if only.is_none_or(|only| only == name) {
            scene()?;
        }
    }
    Ok(())
}

/// The result of a scene.
type Scene = Result<(), Box<dyn Error>>;

/// Prints a scene whose longest turn is for `units` subscribers or notifications; 1 if the bound is one of the turn.
fn note(name: &str, units: usize, struck: Struck) -> Scene {
    let turns = struck.turns;
    writeln!(
        io::stdout(),
        r#"{{"scene":"{name}","turns":{turns},"units":{units}}}"#
    )?;
    Ok(())
}
