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

#[test]
fn whatever_is_watched_the_shortest_prefixes_are_subscribed_to() {
    story(&Setting::default(), |stage| {
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
            watchers.forget_refused(stage);
            let watched: BTreeSet<_> = watchers.watched().map(|(name, _)| space(name)).collect();
            let is_covered = |name: &Namespace| {
                watched
                    .iter()
                    .any(|other| other != name && name.starts_with(other))
            };
            let shortest = watched.iter().filter(|name| !is_covered(name)).count();
            assert_eq!(stage.gauges().prefixes, shortest as u64, "{watched:?}");
            for (name, watch) in watchers.watched() {
                let under = |other: &&String| space(other).starts_with(&space(name));
                let expected = names.iter().filter(under).count();
                assert_eq!(known(stage, *watch).len(), expected, "under {name}");
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
