//! The plan of a player: what to play, read from the catalog of weir's or another publisher.
//!
//! Supported forms: draft-ietf-moq-msf 00 and 01 with LOC and the packaging `cmaf` of draft-ietf-moq-cmsf-01, and the
//! earlier draft-ietf-moq-catalogformat-01. Updates, alternative qualities, encryption and audio are ignored.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::limits::{
    CATALOG_TRACKS_MAX, DESCRIBED_CHARACTERS_MAX, DESCRIBED_TRACKS_MAX, INIT_TRACKS_MAX, LAYERS_MAX,
};
use crate::packaging::Packaging;
use crate::{Ingest, IngestError, Init, Item};

/// The name of the catalog's track in the form that preceded MSF.
pub const EARLIER_CATALOG_TRACK: &str = ".catalog";

/// What to play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The delivery strategy, if the catalog names one.
    pub strategy: Option<String>,
    /// The latency that the publisher aims at, if the catalog has one.
    pub target: Option<Duration>,
    /// The video tracks: first the one with the keyframes, then those that depend on it.
    pub video: Vec<VideoPlan>,
}

/// A track to play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoPlan {
    /// The track's name, in the namespace of the catalog.
    pub name: String,
    /// The codec in the notation of RFC 6381; empty if the catalog omits it.
    pub codec: String,
    pub(crate) form: Form,
}

/// How to find the frames in objects without a frame tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The coded frame alone.
    Loc {
        /// Units per second of times without a timescale of their own.
        timescale: u64,
        /// Bytes of the length before each NAL unit.
        length_bytes: usize,
    },
    /// A fragment, with its init segment.
    Cmaf(Box<Init>),
}

/// Why a catalog cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The catalog is not JSON.
    #[error("the catalog cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The catalog has no list of tracks.
    #[error("the catalog lists no tracks")]
    NoTracks,
    /// The catalog lists too many tracks.
    #[error(
        "the catalog lists {count} tracks; at most {} are accepted",
        CATALOG_TRACKS_MAX
    )]
    TooManyTracks {
        /// The number of tracks.
        count: usize,
    },
    /// The catalog lists no video.
    #[error("the catalog lists no video with packaging loc or cmaf, only {found}")]
    NoVideo {
        /// The listed tracks.
        found: String,
    },
    /// A track of fragments lacks its init segment.
    #[error("the catalog has no readable init segment for the track {track:?}")]
    NoInit {
        /// The name of the track.
        track: String,
    },
    /// The init segment is invalid, or does not describe H.264 video.
    #[error("the init segment of the track {track:?} cannot be used: {error}")]
    Init {
        /// The name of the track.
        track: String,
        /// The problem.
        error: IngestError,
    },
}

impl Plan {
    /// Parses a catalog. `segments` holds the objects of the tracks that [`init_tracks`] names.
    pub fn read(json: &[u8], segments: &BTreeMap<String, Bytes>) -> Result<Self, PlanError> {
        let catalog = Listing::read(json)?;
        let video = || catalog.tracks.iter().filter(|track| track.is_video());
        // Of alternatives of equal quality, the first is played.
        let base = video().find(|track| !track.is_layer());
        let Some(base) = base.or_else(|| video().next()) else {
            return Err(PlanError::NoVideo {
                found: catalog.described(),
            });
        };
        let layers = video().filter(|track| track.is_layer() && track.name != base.name);
        let chosen = std::iter::once(base).chain(layers).take(LAYERS_MAX);
        let video: Result<Vec<_>, _> = chosen.map(|track| track.plan(&catalog, segments)).collect();
        let strategy = catalog.fields.get("weirStrategy").and_then(Value::as_str);
        let target = base.field("targetLatency").and_then(Value::as_u64);
        Ok(Self {
            strategy: strategy.map(str::to_owned),
            target: target.map(Duration::from_millis),
            video: video?,
        })
    }
}

impl VideoPlan {
    /// Returns the packaging of the objects.
    pub fn packaging(&self) -> Packaging {
        match self.form {
            Form::Loc { .. } => Packaging::Loc,
            Form::Cmaf(_) => Packaging::Cmaf,
        }
    }
}

/// Returns the names of the tracks with init segments that a catalog refers to and does not contain, each once.
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

/// A catalog, split into tracks and the rest.
struct Listing {
    fields: Map<String, Value>,
    tracks: Vec<Listed>,
}

/// A track in a catalog.
struct Listed {
    name: String,
    fields: Map<String, Value>,
    /// Fields that the earlier form shares between all tracks.
    for_all: Rc<Map<String, Value>>,
}

impl Listing {
    fn read(json: &[u8]) -> Result<Self, PlanError> {
        let Value::Object(mut fields) = serde_json::from_slice(json)? else {
            return Err(PlanError::NoTracks);
        };
        let Some(Value::Array(listed)) = fields.remove("tracks") else {
            return Err(PlanError::NoTracks);
        };
        let count = listed.len();
        if count > CATALOG_TRACKS_MAX {
            return Err(PlanError::TooManyTracks { count });
        }
        let for_all = fields.remove("commonTrackFields");
        let for_all = if let Some(Value::Object(for_all)) = for_all {
            Rc::new(for_all)
        } else {
            Rc::default()
        };
        let tracks = listed.into_iter().filter_map(|own| {
            let Value::Object(fields) = own else {
                return None;
            };
            let name = fields.get("name")?.as_str()?.to_owned();
            Some(Listed {
                name,
                fields,
                for_all: Rc::clone(&for_all),
            })
        });
        Ok(Self {
            tracks: tracks.collect(),
            fields,
        })
    }

    /// Describes the first tracks, and counts the others, for an error message.
    fn described(&self) -> String {
        let described = self.tracks.iter().take(DESCRIBED_TRACKS_MAX);
        let described: Vec<String> = described.map(Listed::described).collect();
        let described = described.join(", ");
        match self.tracks.len().checked_sub(DESCRIBED_TRACKS_MAX) {
            Some(more @ 1..) => format!("{described} and {more} more"),
            Some(0) | None => described,
        }
    }

    /// Returns the track's data for decoders, if the catalog contains it.
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
    /// Returns a field. The earlier form has some of them one level deeper, and some for all tracks together.
    fn field(&self, key: &str) -> Option<&Value> {
        let deeper = || self.fields.get("selectionParams")?.as_object()?.get(key);
        let own = self.fields.get(key).or_else(deeper);
        own.or_else(|| self.for_all.get(key))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.field(key)?.as_str()
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

    /// Whether decoding needs another track.
    fn is_layer(&self) -> bool {
        let depends = self.field("depends").and_then(Value::as_array);
        depends.is_some_and(|depends| !depends.is_empty())
    }

    /// Describes the track for an error message.
    fn described(&self) -> String {
        let packaging = shortened(self.text("packaging").unwrap_or("unknown packaging"));
        let (packaging, codec) = (packaging.escape_debug(), shortened(self.codec()));
        format!(
            "{:?} ({packaging} {})",
            shortened(&self.name),
            codec.escape_debug()
        )
    }

    fn plan(
        &self,
        catalog: &Listing,
        segments: &BTreeMap<String, Bytes>,
    ) -> Result<VideoPlan, PlanError> {
        let referred = || segments.get(self.text("initTrack")?).cloned();
        let init = catalog.init_data(self).or_else(referred);
        let track = || shortened(&self.name);
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
                    .field("timescale")
                    .and_then(Value::as_u64)
                    .unwrap_or(MICROSECONDS),
                length_bytes: length_bytes(configuration.as_deref()),
            },
        };
        Ok(VideoPlan {
            name: self.name.clone(),
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

/// Shortens a text of the catalog for an error message.
fn shortened(text: &str) -> String {
    text.chars().take(DESCRIBED_CHARACTERS_MAX).collect()
}

/// Returns the bytes of the lengths before NAL units, from an `avcC` box; 4 without one.
fn length_bytes(configuration: Option<&[u8]>) -> usize {
    let field = configuration.and_then(|configuration| configuration.get(4));
    match field.map(|field| usize::from(field & 0b11) + 1) {
        Some(bytes @ (1 | 2)) => bytes,
        Some(_) | None => 4,
    }
}

/// Units per second if neither catalog nor object gives a timescale.
const MICROSECONDS: u64 = 1_000_000;

#[cfg(test)]
mod tests;
