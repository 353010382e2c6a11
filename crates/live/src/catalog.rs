//! The catalog of a live stream: its tracks and how to decode them. The form is that of draft-ietf-moq-msf-01, with the
//! packaging `cmaf` of draft-ietf-moq-cmsf-01.
//!
//! This module writes the catalogs of weir's origins; [`plan`](crate::plan) reads catalogs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::packaging::Packaging;
use crate::strategy::Strategy;
use crate::{Audio, Init, Media};

/// The name of the catalog's track [msf-01 §5].
pub const CATALOG_TRACK: &str = "catalog";
/// The name of the track with the init segment, as in the thesis.
pub const INIT_TRACK: &str = "init";
/// The version of the catalog's form.
pub const VERSION: &str = "draft-01";

/// A catalog [msf-01 §5.1].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalog {
    /// The version of the catalog's form.
    pub version: String,
    /// When the catalog was written, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated_at: Option<i64>,
    /// The name of weir's delivery strategy. This field is not part of the draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weir_strategy: Option<String>,
    /// The tracks.
    #[serde(default)]
    pub tracks: Vec<CatalogTrack>,
    /// The data that decoders need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub init_data_list: Vec<InitData>,
}

/// A track in a catalog [msf-01 §5.2].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogTrack {
    /// The track's name, in the namespace of the catalog.
    pub name: String,
    /// The packaging of the objects: `loc`, `cmaf` or another.
    pub packaging: String,
    /// Whether more objects may follow.
    #[serde(default)]
    pub is_live: bool,
    /// `video`, `audio` or another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The latency that the publisher aims at, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_latency: Option<u64>,
    /// The number of the group of tracks that are played together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render_group: Option<u64>,
    /// The `id` of the track's entry in the catalog's `init_data_list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_ref: Option<String>,
    /// Names of the tracks that the decoder of this track needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<String>,
    /// The codec, in the notation of RFC 6381.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// For LOC: units of its times per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timescale: Option<u64>,
    /// Width in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u64>,
    /// Height in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u64>,
    /// Audio samples per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samplerate: Option<u64>,
    /// Audio channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_config: Option<String>,
}

/// The data that a decoder needs [msf-01 §5.1.7].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitData {
    /// The name that tracks refer to.
    pub id: String,
    /// The kind of `data`. weir writes `inline`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For `inline`: the bytes in Base64.
    pub data: String,
}

impl Catalog {
    /// Returns the catalog of a stream, written at `now_ms` since 1970.
    pub fn new(init: &Init, strategy: &dyn Strategy, packaging: Packaging, now_ms: i64) -> Self {
        let mut catalog = Self {
            version: VERSION.to_owned(),
            generated_at: Some(now_ms),
            weir_strategy: Some(strategy.name().to_owned()),
            tracks: Vec::new(),
            init_data_list: Vec::new(),
        };
        let common = CatalogTrack {
            packaging: packaging.name().to_owned(),
            is_live: true,
            render_group: Some(1),
            timescale: (packaging == Packaging::Loc).then_some(1_000_000),
            // In CMAF all tracks share one init segment.
            init_ref: (packaging == Packaging::Cmaf)
                .then(|| catalog.add_init_data("init", &init.segment)),
            ..CatalogTrack::default()
        };
        catalog.add_video(&init.video.media, strategy, &common);
        for track in &init.audio {
            if let Media::Audio(audio) = &track.media {
                catalog.add_audio(audio_track(track.number), audio, &common);
            }
        }
        catalog
    }

    /// Adds the strategy's tracks if the media is video.
    fn add_video(&mut self, media: &Media, strategy: &dyn Strategy, common: &CatalogTrack) {
        let Media::Video {
            codec,
            width,
            height,
            configuration,
            ..
        } = media
        else {
            return;
        };
        let init_ref = common.init_ref.clone();
        let init_ref = init_ref.unwrap_or_else(|| self.add_init_data("video", configuration));
        let terms = strategy.tracks();
        let first = terms.first().map(|first| first.name.to_owned());
        self.tracks
            .extend(terms.iter().zip(0..).map(|(one, place)| {
                CatalogTrack {
                    name: one.name.to_owned(),
                    role: Some("video".to_owned()),
                    target_latency: strategy
                        .target()
                        .and_then(|target| u64::try_from(target.as_millis()).ok()),
                    codec: Some(codec.clone()),
                    width: Some((*width).into()),
                    height: Some((*height).into()),
                    init_ref: Some(init_ref.clone()),
                    depends: first.clone().filter(|_| place > 0).into_iter().collect(),
                    ..common.clone()
                }
            }));
    }

    /// Adds an audio track.
    fn add_audio(&mut self, name: String, audio: &Audio, common: &CatalogTrack) {
        let own = audio
            .configuration
            .as_ref()
            .filter(|_| common.init_ref.is_none());
        let own = own.map(|configuration| self.add_init_data(&name, configuration));
        self.tracks.push(CatalogTrack {
            role: Some("audio".to_owned()),
            codec: Some(audio.codec.clone()),
            samplerate: Some(audio.sample_rate.into()),
            channel_config: Some(audio.channels.to_string()),
            init_ref: common.init_ref.clone().or(own),
            name,
            ..common.clone()
        });
    }

    /// Adds data for decoders. Returns the name that tracks refer to it by.
    fn add_init_data(&mut self, id: &str, data: &Bytes) -> String {
        self.init_data_list.push(InitData {
            id: id.to_owned(),
            kind: "inline".to_owned(),
            data: STANDARD.encode(data),
        });
        id.to_owned()
    }

    /// Encodes the catalog as JSON.
    pub fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("strings and numbers are always JSON"))
    }
}

/// Returns the name of the MOQT track for audio track `number` of the MP4 stream.
pub fn audio_track(number: u32) -> String {
    format!("audio-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ingest, Item, strategy};

    /// Described in `ingest/tests.rs`.
    const AUDIO_VIDEO: &[u8] = include_bytes!("../tests/media/audio-video.mp4");

    fn init() -> Init {
        let mut ingest = Ingest::new();
        ingest.push(AUDIO_VIDEO);
        let Ok(Some(Item::Init(init))) = ingest.poll() else {
            panic!("the init segment comes first");
        };
        *init
    }

    #[test]
    fn fields_stand_in_the_order_that_the_draft_wants() {
        let strategy = strategy::by_name("weir").expect("a known name");
        let catalog = Catalog::new(&init(), &*strategy, Packaging::Loc, 5);
        let json = catalog.encode();
        let read: Catalog = serde_json::from_slice(&json).expect("JSON of this form");
        assert_eq!(read, catalog);
        let text = String::from_utf8_lossy(&json);
        let order = (text.find("\"tracks\""), text.find("\"initDataList\""));
        assert!(order.0 < order.1, "{text}");
    }

    #[test]
    fn loc_says_what_each_decoder_needs_and_cmaf_gives_the_segment() {
        let strategy = strategy::by_name("weir").expect("a known name");
        let loc = Catalog::new(&init(), &*strategy, Packaging::Loc, 0);
        let ids: Vec<&str> = loc.init_data_list.iter().map(|one| &*one.id).collect();
        assert_eq!(ids, ["video", "audio-2"]);
        let video = STANDARD
            .decode(&loc.init_data_list[0].data)
            .expect("Base64");
        assert_eq!(video[0], 1, "an avcC box begins with its version");
        let audio = STANDARD
            .decode(&loc.init_data_list[1].data)
            .expect("Base64");
        assert_eq!(audio[0] >> 3, 2, "low complexity AAC");
        assert_eq!(loc.tracks[0].timescale, Some(1_000_000));
        let cmaf = Catalog::new(&init(), &*strategy, Packaging::Cmaf, 0);
        let segment = STANDARD
            .decode(&cmaf.init_data_list[0].data)
            .expect("Base64");
        assert_eq!(&segment[4..8], b"ftyp");
        let refs = cmaf.tracks.iter().map(|track| track.init_ref.as_deref());
        assert!(refs.into_iter().all(|one| one == Some("init")));
    }
}
