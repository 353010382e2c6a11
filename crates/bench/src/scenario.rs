//! Publishers and subscribers of each track, from a profile and the size of the audience.

use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;
use weir_moqt::name::{FullTrackName, NameError};

use crate::interpolate::{Clash, TrackLabel, Variables, check_clashes};
use crate::limits::SUBSCRIPTIONS_MAX;
use crate::profile::{Mode, Profile, TrackProfile};

/// The tracks of each publisher and of each subscriber.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// One entry per publisher.
    pub publishers: Vec<Vec<NamedTrack>>,
    /// One entry per subscriber; in meetings the same clients as the publishers.
    pub subscribers: Vec<Arc<[NamedTrack]>>,
}

/// One track to publish or to subscribe to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTrack {
    /// The index of the track's plan.
    pub plan: usize,
    /// The track's name.
    pub name: FullTrackName,
}

/// This process's part in the tracks of a profile: the `mode` of each track, unless one mode is given for all
/// (decision 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The mode of all tracks, if given.
    pub given: Option<Mode>,
}

/// Why a profile cannot be turned into a scenario.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ScenarioError {
    /// Two tracks with the same name (decision 30).
    #[error(transparent)]
    Clash(#[from] Clash),
    /// A name that is too long for MOQT.
    #[error("[{section}]: {error}")]
    Name {
        /// The profile's section.
        section: String,
        /// The problem with it.
        error: NameError,
    },
    /// More subscriptions than their metrics have memory for (decision 36).
    #[error(
        "{subscriptions} subscriptions are more than the {SUBSCRIPTIONS_MAX} that are measured at once"
    )]
    TooMany {
        /// The number of subscriptions.
        subscriptions: usize,
    },
    /// A track of a meeting that clients do not both publish and subscribe to.
    #[error("[{section}]: mode is not 3, but everybody in a meeting publishes and subscribes")]
    NotBoth {
        /// The profile's section.
        section: String,
    },
    /// A meeting of one client.
    #[error("a meeting has at least two clients")]
    Lonely,
}

impl Roles {
    /// Whether this process publishes a track of this mode. Without any mode, it does.
    pub fn publishes(self, mode: Option<Mode>) -> bool {
        self.given.or(mode) != Some(Mode::Subscriber)
    }

    /// Whether this process subscribes to a track of this mode. Without any mode, it does.
    pub fn subscribes(self, mode: Option<Mode>) -> bool {
        self.given.or(mode) != Some(Mode::Publisher)
    }

    /// Whether publishers and subscribers of every track are in one process, and so have one clock (decision 34).
    pub fn share_a_clock(self, profile: &Profile) -> bool {
        let mut modes = profile.tracks.iter().map(|track| track.mode);
        modes.all(|mode| self.publishes(mode) == self.subscribes(mode))
    }

    /// Returns what this process does with all tracks of `profile` together.
    pub fn part(self, profile: &Profile) -> Mode {
        let modes = || profile.tracks.iter().map(|track| track.mode);
        match (
            modes().any(|mode| self.publishes(mode)),
            modes().any(|mode| self.subscribes(mode)),
        ) {
            (true, false) => Mode::Publisher,
            (false, true) => Mode::Subscriber,
            (true, true) | (false, false) => Mode::Both,
        }
    }
}

impl Scenario {
    /// Returns one publisher of all tracks of the profile, and `subscribers` that each subscribe to all of them:
    /// scenarios 1 and 2. [evens-00 §4.1, §4.2]
    pub fn fan_out(profile: &Profile, subscribers: usize, run: u64) -> Result<Self, ScenarioError> {
        Self::fan_out_of(profile, 0..1, subscribers, run, Roles::default())
    }

    /// Returns the part of a fan-out that has `roles`. `publishers` are the numbers of the publishers in the run, each of
    /// which publishes all tracks of the profile. A subscriber subscribes to the tracks of one publisher; publishers take
    /// turns. There is no publisher if no track is published here, and no subscriber if none is subscribed to.
    ///
    /// # Errors
    /// Two publishers have the same track, a name is too long, or there are too many subscriptions.
    pub fn fan_out_of(
        profile: &Profile,
        publishers: Range<u64>,
        subscribers: usize,
        run: u64,
        roles: Roles,
    ) -> Result<Self, ScenarioError> {
        let wants = |track: &TrackProfile| roles.subscribes(track.mode);
        let wanted = profile.tracks.iter().filter(|track| wants(track)).count();
        check_subscriptions(subscribers, wanted)?;
        let mut all_labels = Vec::new();
        let (mut published, mut offers): (Vec<Vec<_>>, Vec<Arc<[_]>>) = Default::default();
        for instance in publishers {
            let variables = Variables {
                instance,
                client: instance,
                run,
                ..Variables::default()
            };
            let tracks = name_all(profile, variables)?;
            all_labels.extend(labels(profile, &tracks, || {
                format!("publisher {instance}, ")
            }));
            let modes = || tracks.iter().zip(&profile.tracks);
            let here = modes().filter(|(_, track)| roles.publishes(track.mode));
            published.push(here.map(|(named, _)| named.track.clone()).collect());
            let wanted = modes().filter(|(_, track)| wants(track));
            offers.push(wanted.map(|(named, _)| named.track.clone()).collect());
        }
        check_clashes(all_labels)?;
        published.retain(|tracks| !tracks.is_empty());
        offers.retain(|tracks| !tracks.is_empty());
        Ok(Self {
            publishers: published,
            subscribers: offers.into_iter().cycle().take(subscribers).collect(),
        })
    }

    /// Returns the part of meetings of `clients` each that has `roles`. `meetings` are their numbers in the run. Every
    /// client publishes all tracks of the profile, and subscribes to those of all other clients in its meeting:
    /// scenario 3. [evens-00 §4.3] If only one role is given, another process has the other halves of the clients.
    ///
    /// # Errors
    /// A meeting has one client, a track is not for both roles, two clients have the same track, a name is too long, or
    /// there are too many subscriptions.
    pub fn meetings(
        profile: &Profile,
        meetings: Range<u64>,
        clients: usize,
        run: u64,
        roles: Roles,
    ) -> Result<Self, ScenarioError> {
        if clients < 2 {
            return Err(ScenarioError::Lonely);
        }
        let one_sided =
            |mode: Option<Mode>| roles.given.is_none() && !matches!(mode, None | Some(Mode::Both));
        if let Some(track) = profile.tracks.iter().find(|track| one_sided(track.mode)) {
            let section = track.section.clone();
            return Err(ScenarioError::NotBoth { section });
        }
        let others = (clients - 1).saturating_mul(profile.tracks.len());
        let count = usize::try_from(meetings.end.saturating_sub(meetings.start));
        let all = count.unwrap_or(usize::MAX).saturating_mul(clients);
        check_subscriptions(all, others)?;
        let mut all_labels = Vec::new();
        let mut scenario = Self {
            publishers: Vec::with_capacity(all),
            subscribers: Vec::with_capacity(all),
        };
        for meeting in meetings {
            let mut members = Vec::with_capacity(clients);
            for client in 0..clients as u64 {
                let variables = Variables {
                    instance: meeting
                        .saturating_mul(clients as u64)
                        .saturating_add(client),
                    client,
                    meeting,
                    track: 0,
                    run,
                };
                let tracks = name_all(profile, variables)?;
                let who = || format!("client {client} of meeting {meeting}, ");
                all_labels.extend(labels(profile, &tracks, who));
                members.push(tracks);
            }
            for (client, tracks) in members.iter().enumerate() {
                let publish = tracks.iter().map(|one| one.track.clone());
                scenario.publishers.push(publish.collect());
                let others = members
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != client);
                let wanted =
                    others.flat_map(|(_, tracks)| tracks.iter().map(|one| one.track.clone()));
                scenario.subscribers.push(wanted.collect());
            }
        }
        check_clashes(all_labels)?;
        match roles.given {
            Some(Mode::Publisher) => scenario.subscribers.clear(),
            Some(Mode::Subscriber) => scenario.publishers.clear(),
            Some(Mode::Both) | None => {}
        }
        Ok(scenario)
    }

    /// Counts the subscriptions of all subscribers.
    pub fn subscriptions(&self) -> usize {
        self.subscribers.iter().map(|wanted| wanted.len()).sum()
    }
}

/// A track of the profile and its name, in the forms for MOQT and for people.
struct Labelled {
    track: NamedTrack,
    label: TrackLabel,
}

/// Fills in the names of all tracks.
fn name_all(profile: &Profile, variables: Variables) -> Result<Vec<Labelled>, ScenarioError> {
    let tracks = profile.tracks.iter().enumerate();
    tracks
        .map(|(plan, track)| {
            let track_number = plan as u64;
            let label = track.template.fill(&Variables {
                track: track_number,
                ..variables
            });
            let name = label
                .full_track_name()
                .map_err(|error| ScenarioError::Name {
                    section: track.section.clone(),
                    error,
                })?;
            let track = NamedTrack { plan, name };
            Ok(Labelled { track, label })
        })
        .collect()
}

/// Returns the publisher of each track, for error messages.
fn labels(
    profile: &Profile,
    tracks: &[Labelled],
    who: impl Fn() -> String,
) -> Vec<(String, TrackLabel)> {
    let with_sections = tracks.iter().zip(&profile.tracks);
    with_sections
        .map(|(named, track)| (format!("{}[{}]", who(), track.section), named.label.clone()))
        .collect()
}

fn check_subscriptions(subscribers: usize, each: usize) -> Result<(), ScenarioError> {
    let subscriptions = subscribers.saturating_mul(each);
    if subscriptions > SUBSCRIPTIONS_MAX {
        return Err(ScenarioError::TooMany { subscriptions });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(namespace: &str, more: &str) -> Profile {
        let tracks = ["audio", "video"].map(|name| {
            format!(
                "[{name}]\nnamespace = {namespace}\nname = {name}\ntrack_mode = stream\npriority = 2\n\
                 ttl = 100\ntime_interval = 20\nobjects_per_group = 1\nfirst_object_size = 120\n\
                 object_size = 120\nstart_delay = 100\ntotal_transmit_time = 500\n{more}\n"
            )
        });
        Profile::parse("test.ini", tracks.concat().as_bytes()).unwrap()
    }

    fn meetings(
        profile: &Profile,
        numbers: Range<u64>,
        clients: usize,
    ) -> Result<Scenario, ScenarioError> {
        Scenario::meetings(profile, numbers, clients, 7, Roles::default())
    }

    fn names(tracks: &[NamedTrack]) -> Vec<String> {
        tracks.iter().map(|one| one.name.to_string()).collect()
    }

    #[test]
    fn everybody_in_a_meeting_hears_all_others_and_nobody_else() {
        let profile = profile("meeting/{meeting}/{client}", "mode = 3");
        let scenario = meetings(&profile, 0..3, 4).unwrap();
        assert_eq!(
            (scenario.publishers.len(), scenario.subscribers.len()),
            (12, 12)
        );
        assert_eq!(scenario.subscriptions(), 12 * 3 * 2);
        // The second client of the last meeting.
        let own: Vec<_> = scenario.publishers[9]
            .iter()
            .map(|one| one.name.to_string())
            .collect();
        assert_eq!(own, ["meeting-2-1--audio", "meeting-2-1--video"]);
        let wanted: Vec<_> = scenario.subscribers[9]
            .iter()
            .map(|one| (one.plan, one.name.to_string()))
            .collect();
        let expected: Vec<_> = [0, 2, 3]
            .into_iter()
            .flat_map(|client| {
                [(0, "audio"), (1, "video")]
                    .map(|(plan, name)| (plan, format!("meeting-2-{client}--{name}")))
            })
            .collect();
        assert_eq!(wanted, expected);
    }

    #[test]
    fn a_meeting_that_cannot_be_is_refused() {
        let same = profile("meeting/{meeting}", "");
        let error = meetings(&same, 0..1, 2).unwrap_err().to_string();
        assert!(
            error.starts_with("client 0 of meeting 0, [audio] and client 1 of meeting 0, [audio]"),
            "{error}"
        );
        let good = profile("meeting/{}", "");
        assert!(meetings(&good, 0..2, 2).is_ok());
        assert_eq!(meetings(&good, 0..2, 1).unwrap_err(), ScenarioError::Lonely);
        let one_sided = profile("meeting/{}", "mode = 1");
        assert!(matches!(
            meetings(&one_sided, 0..2, 2),
            Err(ScenarioError::NotBoth { .. })
        ));
    }

    #[test]
    fn subscriptions_are_counted_before_they_cost_memory() {
        let profile = profile("perf/{track}", "");
        let most = SUBSCRIPTIONS_MAX / 2;
        assert_eq!(
            Scenario::fan_out(&profile, most, 0)
                .unwrap()
                .subscriptions(),
            SUBSCRIPTIONS_MAX
        );
        let one_more = Scenario::fan_out(&profile, most + 1, 0).unwrap_err();
        let subscriptions = SUBSCRIPTIONS_MAX + 2;
        assert_eq!(one_more, ScenarioError::TooMany { subscriptions });
    }

    #[test]
    fn the_role_that_is_given_wins_over_the_profile() {
        let profile = profile("perf/{track}", "mode = 1");
        let sizes = |given| {
            let roles = Roles { given };
            let scenario = Scenario::fan_out_of(&profile, 0..1, 5, 0, roles).unwrap();
            (scenario.publishers.len(), scenario.subscribers.len())
        };
        assert_eq!(sizes(None), (1, 0));
        assert_eq!(sizes(Some(Mode::Publisher)), (1, 0));
        assert_eq!(sizes(Some(Mode::Subscriber)), (0, 5));
        assert_eq!(sizes(Some(Mode::Both)), (1, 5));
        let part = |given, profile| Roles { given }.part(profile);
        assert_eq!(part(None, &profile), Mode::Publisher);
        assert_eq!(part(Some(Mode::Subscriber), &profile), Mode::Subscriber);
        assert_eq!(part(None, &self::profile("perf/{track}", "")), Mode::Both);
    }

    #[test]
    fn publishers_of_a_fan_out_share_its_subscribers() {
        let profile = profile("perf/{}", "");
        let of = |publishers, given| {
            Scenario::fan_out_of(&profile, publishers, 5, 0, Roles { given }).unwrap()
        };
        let scenario = of(3..5, None);
        assert_eq!(
            names(&scenario.publishers[1]),
            ["perf-4--audio", "perf-4--video"]
        );
        let first = |tracks: &Arc<[NamedTrack]>| names(tracks).remove(0);
        let wanted: Vec<_> = scenario.subscribers.iter().map(first).collect();
        let expected = ["perf-3", "perf-4", "perf-3", "perf-4", "perf-3"];
        assert_eq!(wanted, expected.map(|one| format!("{one}--audio")));
        // Two processes publish, and a third one has the subscribers: together they are the same.
        let apart = [3..4, 4..5].map(|one| of(one, Some(Mode::Publisher)).publishers);
        assert_eq!(apart.concat(), scenario.publishers);
        let subscribers = of(3..5, Some(Mode::Subscriber)).subscribers;
        assert_eq!(subscribers, scenario.subscribers);
        // Without a number in the name, they would publish the same.
        let same = self::profile("perf", "");
        let error = Scenario::fan_out_of(&same, 0..2, 5, 0, Roles::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("publisher 0, [audio] and publisher 1, [audio]"),
            "{error}"
        );
    }

    #[test]
    fn meetings_can_be_spread_over_processes() {
        let profile = profile("meeting/{meeting}/{}", "mode = 3");
        let of = |meetings, given| {
            Scenario::meetings(&profile, meetings, 2, 7, Roles { given }).unwrap()
        };
        let whole = of(0..3, None);
        let apart = [0..2, 2..3].map(|meetings| of(meetings, None));
        assert_eq!(
            whole.publishers,
            apart.each_ref().map(|one| one.publishers.clone()).concat()
        );
        assert_eq!(
            whole.subscribers,
            apart.each_ref().map(|one| one.subscribers.clone()).concat()
        );
        let (publishing, subscribing) = (
            of(0..3, Some(Mode::Publisher)),
            of(0..3, Some(Mode::Subscriber)),
        );
        assert_eq!(
            (&publishing.publishers, publishing.subscriptions()),
            (&whole.publishers, 0)
        );
        assert_eq!(
            (subscribing.subscribers, subscribing.publishers.len()),
            (whole.subscribers, 0)
        );
    }
}
