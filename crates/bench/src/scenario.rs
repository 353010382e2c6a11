//! Who publishes and who subscribes to what, from a profile and the size of the audience.

use std::sync::Arc;

use thiserror::Error;
use weir_moqt::name::{FullTrackName, NameError};

use crate::interpolate::{Clash, TrackLabel, Variables, check_clashes};
use crate::limits::SUBSCRIPTIONS_MAX;
use crate::profile::{Mode, Profile};

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

/// What this process does with the tracks of a profile: the `mode` of each track, unless one mode is given for all
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
        /// What is wrong with it.
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
        Self::fan_out_of(profile, subscribers, run, Roles::default())
    }

    /// Returns the part of [`Self::fan_out`] that has `roles`. There is no publisher if no track is published here, and
    /// no subscriber if none is subscribed to.
    pub fn fan_out_of(
        profile: &Profile,
        subscribers: usize,
        run: u64,
        roles: Roles,
    ) -> Result<Self, ScenarioError> {
        let variables = Variables {
            run,
            ..Variables::default()
        };
        let tracks = name_all(profile, variables)?;
        check_clashes(labels(profile, &tracks, String::new))?;
        let modes = || tracks.iter().zip(&profile.tracks);
        let published: Vec<_> = modes()
            .filter(|(_, track)| roles.publishes(track.mode))
            .map(|(named, _)| named.track.clone())
            .collect();
        let wanted: Arc<[NamedTrack]> = modes()
            .filter(|(_, track)| roles.subscribes(track.mode))
            .map(|(named, _)| named.track.clone())
            .collect();
        check_subscriptions(subscribers, wanted.len())?;
        let subscribers = if wanted.is_empty() { 0 } else { subscribers };
        Ok(Self {
            publishers: if published.is_empty() {
                Vec::new()
            } else {
                vec![published]
            },
            subscribers: vec![wanted; subscribers],
        })
    }

    /// Returns `meetings` of `clients` each. Every client publishes all tracks of the profile, and subscribes to those
    /// of all other clients in its meeting: scenario 3. [evens-00 §4.3]
    pub fn meetings(
        profile: &Profile,
        meetings: usize,
        clients: usize,
        run: u64,
    ) -> Result<Self, ScenarioError> {
        if clients < 2 {
            return Err(ScenarioError::Lonely);
        }
        let one_sided = |mode: Option<Mode>| !matches!(mode, None | Some(Mode::Both));
        if let Some(track) = profile.tracks.iter().find(|track| one_sided(track.mode)) {
            let section = track.section.clone();
            return Err(ScenarioError::NotBoth { section });
        }
        let others = (clients - 1).saturating_mul(profile.tracks.len());
        check_subscriptions(meetings.saturating_mul(clients), others)?;
        let mut all_labels = Vec::new();
        let mut scenario = Self {
            publishers: Vec::with_capacity(meetings * clients),
            subscribers: Vec::with_capacity(meetings * clients),
        };
        for meeting in 0..meetings {
            let mut members = Vec::with_capacity(clients);
            for client in 0..clients {
                let variables = Variables {
                    instance: (meeting * clients + client) as u64,
                    client: client as u64,
                    meeting: meeting as u64,
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

    #[test]
    fn everybody_in_a_meeting_hears_all_others_and_nobody_else() {
        let profile = profile("meeting/{meeting}/{client}", "mode = 3");
        let scenario = Scenario::meetings(&profile, 3, 4, 7).unwrap();
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
        let error = Scenario::meetings(&same, 1, 2, 0).unwrap_err().to_string();
        assert!(
            error.starts_with("client 0 of meeting 0, [audio] and client 1 of meeting 0, [audio]"),
            "{error}"
        );
        let good = profile("meeting/{}", "");
        assert!(Scenario::meetings(&good, 2, 2, 0).is_ok());
        assert_eq!(
            Scenario::meetings(&good, 2, 1, 0).unwrap_err(),
            ScenarioError::Lonely
        );
        let one_sided = profile("meeting/{}", "mode = 1");
        assert!(matches!(
            Scenario::meetings(&one_sided, 2, 2, 0),
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
            let scenario = Scenario::fan_out_of(&profile, 5, 0, roles).unwrap();
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
}
