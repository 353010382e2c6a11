//! What there is to play of a stream: read from its catalog, be it ours or that of others' publishers.
//!
//! Understood are draft-ietf-moq-msf, versions 00 and 01, with LOC and the packaging `cmaf` of draft-ietf-moq-cmsf-01, and what went
//! before it, draft-ietf-moq-catalogformat-01. Updates, other qualities of one picture, encryption and sound are passed over.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::limits::{INIT_TRACKS_MAX, LAYERS_MAX};
use crate::packaging::Packaging;
use crate::{Ingest, IngestError, Init, Item};

/// The name of the track that carries the catalog with publishers of the form before MSF.
pub const EARLIER_CATALOG_TRACK: &str = ".catalog";

/// What is to be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The name of the strategy by which a stream of ours is delivered.
    pub strategy: Option<String>,
    /// The tracks with video: first the one with the keyframes, then those that cannot be decoded without it.
    pub video: Vec<VideoPlan>,
}

/// A track that is to be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoPlan {
    /// Its name, in the namespace of the catalog.
    pub name: String,
    /// The codec as RFC 6381 writes it; empty if the catalog does not say.
    pub codec: String,
    pub(crate) form: Form,
}

/// What has to be known to find the frames in objects that do not say themselves what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The coded frame alone.
    Loc {
        /// Units per second of a time that names none.
        timescale: u64,
        /// Bytes of the length in front of each NAL unit.
        length_bytes: usize,
    },
    /// A fragment, and the init segment that it belongs to.
    Cmaf(Box<Init>),
}

/// Why there is nothing to play.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The catalog is no JSON.
    #[error("the catalog cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// It has no list of tracks.
    #[error("the catalog lists no tracks")]
    NoTracks,
    /// It lists nothing to see.
    #[error("the catalog lists no video as loc or cmaf, but {found}")]
    NoVideo {
        /// What it lists.
        found: String,
    },
    /// Fragments cannot be read without their init segment.
    #[error("the catalog names no init segment for the track {track:?} that could be read")]
    NoInit {
        /// The name of the track.
        track: String,
    },
    /// The init segment is broken, or is not of H.264 video.
    #[error("the init segment of the track {track:?} is of no use: {error}")]
    Init {
        /// The name of the track.
        track: String,
        /// What is wrong.
        error: IngestError,
    },
}

impl Plan {
    /// Reads a catalog; `segments` is what those tracks hold that [`init_tracks`] names.
    pub fn read(json: &[u8], segments: &BTreeMap<String, Bytes>) -> Result<Self, PlanError> {
        let catalog = Listing::read(json)?;
        let video = || catalog.tracks.iter().filter(|track| track.is_video());
        // Of alternatives of one quality each, the first is played.
        let base = video().find(|track| !track.is_layer());
        let Some(base) = base.or_else(|| video().next()) else {
            let found: Vec<String> = catalog.tracks.iter().map(Listed::described).collect();
            let found = found.join(", ");
            return Err(PlanError::NoVideo { found });
        };
        let layers = video().filter(|track| track.is_layer() && track.name != base.name);
        let chosen = std::iter::once(base).chain(layers).take(LAYERS_MAX);
        let video: Result<Vec<_>, _> = chosen.map(|track| track.plan(&catalog, segments)).collect();
        let strategy = catalog.fields.get("weirStrategy").and_then(Value::as_str);
        Ok(Self {
            strategy: strategy.map(str::to_owned),
            video: video?,
        })
    }
}

impl VideoPlan {
    /// What its objects are.
    pub fn packaging(&self) -> Packaging {
        match self.form {
            Form::Loc { .. } => Packaging::Loc,
            Form::Cmaf(_) => Packaging::Cmaf,
        }
    }
}

/// Names of the tracks with init segments that a catalog refers to, where they do not stand in it; each once.
pub fn init_tracks(json: &[u8]) -> Result<Vec<String>, PlanError> {
    let mut names: Vec<String> = Vec::new();
    for track in Listing::read(json)?.tracks {
        if let Some(name) = track.text("initTrack")
            && names.len() < INIT_TRACKS_MAX
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// A catalog whose tracks have all their fields themselves.
struct Listing {
    fields: Map<String, Value>,
    tracks: Vec<Listed>,
}

/// A track as a catalog lists it.
struct Listed {
    name: String,
    fields: Map<String, Value>,
}

impl Listing {
    fn read(json: &[u8]) -> Result<Self, PlanError> {
        let Value::Object(fields) = serde_json::from_slice(json)? else {
            return Err(PlanError::NoTracks);
        };
        let listed = fields.get("tracks").and_then(Value::as_array);
        let Some(listed) = listed else {
            return Err(PlanError::NoTracks);
        };
        let common = fields.get("commonTrackFields").and_then(Value::as_object);
        let tracks = listed.iter().filter_map(Value::as_object);
        let tracks = tracks.filter_map(|own| {
            let name = own.get("name")?.as_str()?.to_owned();
            // The earlier form keeps some fields for all tracks, and some one level deeper.
            let deeper = own.get("selectionParams").and_then(Value::as_object);
            let parts = [common, deeper, Some(own)];
            let fields = parts.into_iter().flatten().flatten();
            let fields = fields.map(|(key, value)| (key.clone(), value.clone()));
            let fields = fields.collect();
            Some(Listed { name, fields })
        });
        Ok(Self {
            tracks: tracks.collect(),
            fields,
        })
    }

    /// What a decoder of the track has to know, if that stands in the catalog.
    fn init_data(&self, track: &Listed) -> Option<Bytes> {
        let list = self.fields.get("initDataList").and_then(Value::as_array);
        let referred = list.into_iter().flatten().find(|one| {
            let is = |key: &str, value: Option<&str>| {
                value.is_some() && one.get(key).and_then(Value::as_str) == value
            };
            is("id", track.text("initRef")) && is("type", Some("inline"))
        });
        let referred = referred.and_then(|one| one.get("data")?.as_str());
        let data = STANDARD.decode(referred.or_else(|| track.text("initData"))?);
        data.ok().map(Bytes::from)
    }
}

impl Listed {
    fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str()
    }

    fn codec(&self) -> &str {
        self.text("codec").unwrap_or_default()
    }

    fn packaging(&self) -> Option<Packaging> {
        Packaging::by_name(self.text("packaging")?)
    }

    fn is_video(&self) -> bool {
        let codecs = ["avc", "hvc", "hev", "vp0", "av01"];
        let is_known = |prefix: &&str| self.codec().starts_with(*prefix);
        let is_seen = self.text("role") == Some("video") || codecs.iter().any(is_known);
        self.packaging().is_some() && is_seen
    }

    /// Whether it cannot be decoded without another track.
    fn is_layer(&self) -> bool {
        let depends = self.fields.get("depends").and_then(Value::as_array);
        depends.is_some_and(|depends| !depends.is_empty())
    }

    /// For an error.
    fn described(&self) -> String {
        let packaging = self.text("packaging").unwrap_or("unknown packaging");
        format!("{:?} ({packaging} {})", self.name, self.codec())
    }

    fn plan(
        &self,
        catalog: &Listing,
        segments: &BTreeMap<String, Bytes>,
    ) -> Result<VideoPlan, PlanError> {
        let referred = || segments.get(self.text("initTrack")?).cloned();
        let init = catalog.init_data(self).or_else(referred);
        let track = || self.name.clone();
        let form = match (self.packaging(), init) {
            (Some(Packaging::Cmaf), Some(segment)) => {
                let init = read_init(&segment);
                Form::Cmaf(init.map_err(|error| PlanError::Init {
                    track: track(),
                    error,
                })?)
            }
            (Some(Packaging::Cmaf), None) => return Err(PlanError::NoInit { track: track() }),
            (Some(Packaging::Loc) | None, configuration) => Form::Loc {
                timescale: self
                    .fields
                    .get("timescale")
                    .and_then(Value::as_u64)
                    .unwrap_or(MICROSECONDS),
                length_bytes: length_bytes(configuration.as_deref()),
            },
        };
        Ok(VideoPlan {
            name: track(),
            codec: self.codec().to_owned(),
            form,
        })
    }
}

fn read_init(segment: &[u8]) -> Result<Box<Init>, IngestError> {
    let mut ingest = Ingest::new();
    ingest.push(segment);
    match ingest.poll()? {
        Some(Item::Init(init)) => Ok(init),
        Some(Item::Frame(_) | Item::Audio { .. }) | None => {
            ingest.finish()?;
            let offset = segment.len() as u64;
            Err(IngestError::NoInit { offset })
        }
    }
}

/// Bytes of the lengths in front of NAL units, as an `avcC` box says it; 4 if there is none.
fn length_bytes(configuration: Option<&[u8]>) -> usize {
    let field = configuration.and_then(|configuration| configuration.get(4));
    match field.map(|field| usize::from(field & 0b11) + 1) {
        Some(bytes @ (1 | 2)) => bytes,
        Some(_) | None => 4,
    }
}

/// Units per second where neither catalog nor object says how many.
const MICROSECONDS: u64 = 1_000_000;

#[cfg(test)]
mod tests;
