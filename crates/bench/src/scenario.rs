//! Who publishes and who subscribes to what, from a profile and a number of subscribers.

use std::sync::Arc;

use thiserror::Error;
use weir_moqt::name::NameError;

use crate::interpolate::{Clash, TrackLabel, Variables, check_clashes};
use crate::profile::Profile;
use crate::publisher::Publish;
use crate::subscriber::Wanted;

/// The tracks of each publisher and of each subscriber.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// One entry per publisher.
    pub publishers: Vec<Vec<Publish>>,
    /// One entry per subscriber.
    pub subscribers: Vec<Arc<[Wanted]>>,
}

/// Why a profile cannot be laid out.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ScenarioError {
    /// Two tracks would have the same name (decision 30).
    #[error(transparent)]
    Clash(#[from] Clash),
    /// A name is longer than MOQT allows.
    #[error("[{section}]: {error}")]
    Name {
        /// The profile's section.
        section: String,
        /// What is wrong with it.
        error: NameError,
    },
}

impl Scenario {
    /// One publisher for all tracks of the profile, and `subscribers` that each subscribe to all of them:
    /// scenarios 1 and 2. [evens-00 §4.1, §4.2]
    pub fn fan_out(profile: &Profile, subscribers: usize, run: u64) -> Result<Self, ScenarioError> {
        let mut labels: Vec<(String, TrackLabel)> = Vec::new();
        let mut published = Vec::new();
        let mut wanted = Vec::new();
        for (plan, track) in profile.tracks.iter().enumerate() {
            let variables = Variables {
                track: plan as u64,
                run,
                ..Variables::default()
            };
            let label = track.template.fill(&variables);
            let name = label
                .full_track_name()
                .map_err(|error| ScenarioError::Name {
                    section: track.section.clone(),
                    error,
                })?;
            labels.push((track.section.clone(), label));
            published.push(Publish {
                plan,
                name: name.clone(),
            });
            wanted.push(Wanted { plan, name });
        }
        check_clashes(labels)?;
        let wanted: Arc<[Wanted]> = wanted.into();
        Ok(Self {
            publishers: vec![published],
            subscribers: vec![wanted; subscribers],
        })
    }
}
