//! Prefixes that clients watch at a relay with an upstream relay: it subscribes to the shortest of them, and changes its
//! subscriptions in pieces.

use std::collections::BTreeSet;

use weir_moqt::name::Namespace;
use weir_sim::NodeId;

use crate::{
    actor::Heard,
    stage::{Asked, Setting, Stage, millis, secs, seed, space, story},
};

/// Returns what a watcher was told of and is still there.
fn known(stage: &Stage, watch: Asked) -> BTreeSet<Namespace> {
    let mut known = BTreeSet::new();
    for heard in stage.heard(watch) {
        let is_new = match heard {
            Heard::Came(suffix) => known.insert(suffix),
            Heard::Went(suffix) => known.remove(&suffix),
            Heard::Blocked(..) => continue,
        };
        assert!(is_new, "it is told of each change once");
    }
    known
}

#[test]
fn prefixes_that_another_one_covers_are_replaced_without_a_storm_of_resets() {
    const PREFIXES: u64 = 600;
    let mut setting = Setting::default();
    setting.quic.bidi_streams_max = 1000;
    setting.relay.prefixes_per_session_max = 1000;
    story(&setting, |stage| {
        let announcer = stage.client();
        for number in 0..PREFIXES {
            stage.announce(announcer, &format!("a-{number}-x"));
        }
        let mut viewers = Vec::new();
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let wide = stage.client_at(edge);
        let mut narrow = Vec::new();
        for number in 0..PREFIXES {
            if number % 60 == 0 {
                viewers.push(stage.client_at(edge));
            }
            let viewer = viewers[viewers.len() - 1];
            narrow.push(stage.watch(viewer, space(&format!("a-{number}"))));
        }
        stage.step("six hundred prefixes are watched", secs(1));
        assert_eq!(stage.gauges().prefixes, PREFIXES);
        let all = stage.watch(wide, space("a"));
        let mut sizes = vec![PREFIXES];
        while *sizes.last().unwrap() != 1 {
            assert!(sizes.len() < 1000, "{sizes:?}");
            stage.wait(millis(100));
            sizes.push(stage.gauges().prefixes);
        }
        stage.step("another one covers them", secs(5));
        // Two hundred in a second.
        assert!(sizes.len() > 20, "{sizes:?}");
        assert_eq!(known(stage, all).len() as u64, PREFIXES);
        stage.cancel(all);
        stage.step("it ends", secs(5));
        assert_eq!(stage.gauges().prefixes, PREFIXES);
        for watch in narrow {
            let heard = stage.heard(watch);
            assert!(matches!(&heard[..], [Heard::Came(_)]), "{heard:?}");
        }
        assert_eq!(stage.counters().sessions_closed_resets, 0);
    });
}

/// A tree of namespaces, three levels deep.
fn tree() -> Vec<String> {
    let mut names = Vec::new();
    for first in ["a", "b"] {
        names.push(first.to_owned());
        for second in 0..3 {
            names.push(format!("{first}-{second}"));
            names.extend((0..3).map(|third| format!("{first}-{second}-{third}")));
        }
    }
    names
}

/// Clients that watch one prefix each, and choose another one again and again.
struct Watchers {
    clients: Vec<(NodeId, Option<(String, Asked)>)>,
    random: u64,
}

impl Watchers {
    fn below(&mut self, bound: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) as usize % bound
    }

    /// Forgets what was refused: a request may overtake the end of the one before.
    fn forget_refused(&mut self, stage: &Stage) {
        for (_, watched) in &mut self.clients {
            watched.take_if(|(_, watch)| matches!(stage.outcome(*watch).answer, Some(Err(_))));
        }
    }

    fn choose(&mut self, stage: &mut Stage, names: &[String]) {
        self.forget_refused(stage);
        let place = self.below(self.clients.len());
        let name = names[self.below(names.len())].clone();
        let (client, watched) = &mut self.clients[place];
        if let Some((_, before)) = watched.take() {
            stage.cancel(before);
        } else {
            let watch = stage.watch(*client, space(&name));
            *watched = Some((name, watch));
        }
    }

    fn watched(&self) -> impl Iterator<Item = &(String, Asked)> {
        self.clients
            .iter()
            .filter_map(|(_, watched)| watched.as_ref())
    }
}

/// Clients that stay, even if they do nothing for minutes.
fn patient() -> Setting {
    let mut setting = Setting::default();
    setting.client.keep_alive = Some(secs(5));
    setting
}

#[test]
fn whatever_is_watched_the_shortest_prefixes_are_subscribed_to() {
    watch_at_random(&Setting::default(), u64::MAX);
}

#[test]
fn whatever_is_watched_as_many_prefixes_are_subscribed_to_as_permitted() {
    let mut setting = patient();
    setting.relay.prefixes_per_session_max = 3;
    watch_at_random(&setting, 3);
}

/// Has clients choose prefixes again and again, at a relay whose upstream relay permits it so many.
fn watch_at_random(setting: &Setting, permitted: u64) {
    story(setting, |stage| {
        let names = tree();
        let announcer = stage.client();
        for name in &names {
            stage.announce(announcer, &format!("{name}-x"));
        }
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let clients = (0..12).map(|_| (stage.client_at(edge), None)).collect();
        let mut watchers = Watchers {
            clients,
            random: seed(),
        };
        for round in 0..6 {
            for _ in 0..60 {
                watchers.choose(stage, &names);
                let pause = watchers.below(40);
                stage.wait(millis(pause as u64));
            }
            stage.step(&format!("changes, {round}"), secs(5));
            if permitted < u64::MAX {
                stage.step("what was refused is sent again", secs(65));
            }
            watchers.forget_refused(stage);
            let watched: BTreeSet<_> = watchers.watched().map(|(name, _)| space(name)).collect();
            let is_covered = |name: &Namespace| {
                watched
                    .iter()
                    .any(|other| other != name && name.starts_with(other))
            };
            let shortest = watched.iter().filter(|name| !is_covered(name)).count() as u64;
            let open = stage.gauges().prefixes;
            if shortest <= permitted {
                assert_eq!(open, shortest, "{watched:?}");
            } else {
                assert_eq!(open, permitted, "{watched:?}");
            }
            for (name, watch) in watchers.watched() {
                let under = |other: &&String| space(other).starts_with(&space(name));
                let expected = names.iter().filter(under).count();
                let known = known(stage, *watch).len();
                assert!(
                    known == expected || shortest > permitted && known < expected,
                    "{known} of {expected} under {name}"
                );
            }
        }
        for (_, watched) in &mut watchers.clients {
            if let Some((_, watch)) = watched.take() {
                stage.cancel(watch);
            }
        }
        stage.step("nobody watches", secs(5));
        assert_eq!(stage.gauges().prefixes, 0);
    });
}

#[test]
fn prefixes_beyond_the_limit_of_the_upstream_relay_are_subscribed_to_when_there_is_room() {
    let mut setting = patient();
    setting.relay.prefixes_per_session_max = 2;
    story(&setting, |stage| {
        let announcer = stage.client();
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let mut watches = Vec::new();
        for number in 0..6 {
            stage.announce(announcer, &format!("a-{number}-x"));
            let viewer = stage.client_at(edge);
            watches.push(stage.watch(viewer, space(&format!("a-{number}"))));
        }
        stage.step("two of them are permitted", secs(100));
        let told = |stage: &Stage, watches: &[Asked]| {
            let told = |watch: &&Asked| !known(stage, **watch).is_empty();
            watches.iter().filter(told).count()
        };
        assert_eq!(told(stage, &watches), 2);
        let refused = stage.counters().refused_limit_prefixes;
        assert!((12..80).contains(&refused), "not again at once: {refused}");
        while !watches.is_empty() {
            let place = watches.iter().position(|it| !known(stage, *it).is_empty());
            let ended = watches.remove(place.expect("some are served"));
            stage.cancel(ended);
            stage.step("there is room for another one", secs(35));
            assert_eq!(told(stage, &watches), watches.len().min(2));
        }
        assert_eq!(stage.gauges().prefixes, 0);
        let refused = stage.counters().refused_limit_prefixes;
        stage.step("nobody watches", secs(100));
        assert_eq!(stage.counters().refused_limit_prefixes, refused);
    });
}

#[test]
fn what_a_refused_prefix_would_cover_is_subscribed_to_instead() {
    let mut setting = patient();
    setting.relay.matches_per_prefix_max = 3;
    story(&setting, |stage| {
        let announcer = stage.client();
        for name in ["a-1-x", "a-1-y", "a-2-x", "a-2-y"] {
            stage.announce(announcer, name);
        }
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let [one, other, wide] = [(); 3].map(|()| stage.client_at(edge));
        let narrow = stage.watch(one, space("a-1"));
        stage.step("one watches a narrow prefix", secs(1));
        let wide = stage.watch(wide, space("a"));
        stage.step("another one a wide prefix", secs(5));
        let late = stage.watch(other, space("a-2"));
        stage.step("a third one another narrow prefix", secs(200));
        assert!(stage.is_accepted(wide));
        assert_eq!(stage.gauges().prefixes, 2);
        for watch in [narrow, late] {
            let heard = stage.heard(watch);
            assert!(
                matches!(&heard[..], [Heard::Came(_), Heard::Came(_)]),
                "{heard:?}"
            );
        }
        assert_eq!(known(stage, wide).len(), 4, "what the narrow ones find");
        stage.cancel(narrow);
        stage.cancel(late);
        stage.step("only the wide prefix is watched", secs(5));
        assert_eq!(stage.gauges().prefixes, 0);
        assert!(known(stage, wide).is_empty());
        stage.cancel(wide);
        stage.step("nobody watches", secs(5));
        assert_eq!(stage.gauges().prefixes, 0);
        assert_eq!(stage.counters().refused_too_large, 1);
    });
}

#[test]
fn a_subscription_that_the_upstream_relay_ends_is_sent_again() {
    let mut setting = patient();
    setting.relay.matches_per_prefix_max = 3;
    story(&setting, |stage| {
        let announcer = stage.client();
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let viewer = stage.client_at(edge);
        let watch = stage.watch(viewer, space("a"));
        stage.step("a prefix is watched", secs(1));
        let announced: Vec<_> = (0..4)
            .map(|number| stage.announce(announcer, &format!("a-{number}")))
            .collect();
        stage.step("under which are too many namespaces", millis(500));
        assert_eq!(stage.counters().interests_dropped, 1);
        stage.cancel(announced[0]);
        stage.step("one goes", secs(5));
        assert_eq!(known(stage, watch).len(), 3);
    });
}

#[test]
fn what_an_ended_subscription_found_is_not_kept_by_others() {
    story(&patient(), |stage| {
        let announcer = stage.client();
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let viewer = stage.client_at(edge);
        let announced = stage.announce(announcer, "a-1");
        let watch = stage.watch(viewer, space("a"));
        stage.step("a prefix is watched", secs(1));
        assert_eq!(known(stage, watch).len(), 1);
        stage.cancel(watch);
        stage.step("and no longer", millis(500));
        stage.cancel(announced);
        for number in 0..10 {
            let other = stage.client_at(edge);
            stage.watch(other, space(&format!("b-{number}")));
            stage.step("what it found goes; another prefix is watched", secs(1));
        }
        let watch = stage.watch(viewer, space("a"));
        stage.step("the first one is watched again", secs(5));
        assert!(stage.is_accepted(watch));
        let heard = stage.heard(watch);
        assert!(heard.is_empty(), "{heard:?}");
    });
}

#[test]
fn a_refused_prefix_that_is_watched_again_and_again_does_not_interrupt_longer_ones() {
    let mut setting = patient();
    setting.relay.matches_per_prefix_max = 3;
    story(&setting, |stage| {
        let announcer = stage.client();
        for number in 0..4 {
            stage.announce(announcer, &format!("a-{number}-x"));
        }
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let [viewer, restless] = [(); 2].map(|()| stage.client_at(edge));
        let narrow = stage.watch(viewer, space("a-1"));
        stage.step("a narrow prefix is watched", secs(1));
        for _ in 0..20 {
            let wide = stage.watch(restless, space("a"));
            stage.step("somebody watches a wide one", millis(500));
            stage.cancel(wide);
            stage.step("and leaves", millis(500));
        }
        assert_eq!(stage.counters().refused_too_large, 1);
        assert_eq!(stage.counters_at(edge).link_requests_refused, 1);
        assert_eq!(known(stage, narrow).len(), 1);
        stage.step("for a while, nobody watches the wide one", secs(35));
        stage.watch(restless, space("a"));
        stage.step("then it is asked for again", secs(60));
        assert_eq!(stage.counters().refused_too_large, 2);
        assert_eq!(stage.gauges().prefixes, 1);
    });
}

#[test]
fn a_prefix_that_is_left_before_it_is_answered_does_not_interrupt_longer_ones_again_and_again() {
    let mut setting = patient();
    setting.relay.matches_per_prefix_max = 3;
    story(&setting, |stage| {
        let announcer = stage.client();
        for number in 0..4 {
            stage.announce(announcer, &format!("a-{number}"));
        }
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let [viewer, restless] = [(); 2].map(|()| stage.client_at(edge));
        stage.watch(viewer, space("a-1"));
        stage.step("a narrow prefix is watched", secs(1));
        for _ in 0..20 {
            let wide = stage.watch(restless, space("a"));
            stage.wait(millis(1));
            stage.cancel(wide);
            stage.step("somebody leaves a wide one at once", millis(500));
        }
        let asked = stage.counters().refused_too_large;
        assert!(asked <= 11, "once a second: {asked}");
        stage.watch(restless, space("a"));
        stage.step("and watches it for longer", secs(5));
        assert_eq!(stage.counters().refused_too_large, asked + 1);
    });
}

#[test]
fn a_prefix_that_was_refused_before_it_was_accepted_is_subscribed_to_at_once_later() {
    let mut setting = patient();
    setting.relay.prefixes_per_session_max = 1;
    story(&setting, |stage| {
        let announcer = stage.client();
        stage.announce(announcer, "a-2");
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let [first, wide, narrow] = [(); 3].map(|()| stage.client_at(edge));
        let first = stage.watch(first, space("b"));
        stage.step("one prefix is permitted", secs(1));
        let watch = stage.watch(wide, space("a"));
        stage.watch(narrow, space("a-1"));
        stage.step("another one is refused", secs(10));
        stage.cancel(first);
        stage.step("then there is room for it", secs(10));
        assert_eq!(known(stage, watch).len(), 1);
        stage.cancel(watch);
        stage.step("nobody watches it, but a longer one", secs(5));
        let watch = stage.watch(wide, space("a"));
        stage.step("it is watched again", secs(5));
        assert_eq!(known(stage, watch).len(), 1);
    });
}

#[test]
fn a_refused_prefix_is_sent_again_soon_when_no_longer_one_is_watched() {
    let mut setting = patient();
    setting.relay.prefixes_per_session_max = 1;
    story(&setting, |stage| {
        let announcer = stage.client();
        stage.announce(announcer, "a-1");
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let [first, wide, narrow] = [(); 3].map(|()| stage.client_at(edge));
        let first = stage.watch(first, space("b"));
        stage.step("one prefix is permitted", secs(1));
        let wide = stage.watch(wide, space("a"));
        let narrow = stage.watch(narrow, space("a-1"));
        stage.step("two others are refused, with longer pauses", secs(1500));
        assert!(known(stage, wide).is_empty());
        stage.cancel(narrow);
        stage.step("the longer one is no longer watched", millis(10));
        stage.cancel(first);
        stage.step("there is room for the other", secs(35));
        assert_eq!(known(stage, wide).len(), 1);
    });
}
