//! The init segment: tracks, and the data that their decoders need.

use bytes::{Bytes, BytesMut};
use mp4_atom::{Codec, Decode as _, Encode as _, Moov, Trak};

use super::{IngestError, RawBox, nesting};
use crate::limits::{CONFIGURATION_BYTES_MAX, TRACKS_MAX};

/// The init segment, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// The `ftyp` and `moov` boxes as received.
    pub segment: Bytes,
    /// The first H.264 track. Further video is not delivered.
    pub video: Track,
    /// The audio tracks.
    pub audio: Vec<Track>,
}

/// One track of the MP4 stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    /// Its number in the MP4 stream.
    pub number: u32,
    /// Units of its times per second, never 0.
    pub timescale: u32,
    /// The duration of a sample whose fragment gives none, in units of the track.
    pub default_duration: u32,
    /// The size of a sample whose fragment gives none, in bytes.
    pub default_size: u32,
    /// The kind of media.
    pub media: Media,
}

/// The media of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Media {
    /// H.264 video.
    Video {
        /// The codec in the notation of RFC 6381: `avc1.64001f`.
        codec: String,
        /// Width in pixels.
        width: u16,
        /// Height in pixels.
        height: u16,
        /// Bytes of the length before each NAL unit: 1, 2 or 4.
        length_bytes: usize,
        /// The contents of the `avcC` box, for a decoder.
        configuration: Bytes,
    },
    /// Audio of any codec.
    Audio(Audio),
}

/// An audio track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audio {
    /// The codec in the notation of RFC 6381, if known: `mp4a.40.2`, `opus`.
    pub codec: String,
    /// Samples per second.
    pub sample_rate: u32,
    /// Channels.
    pub channels: u16,
    /// Further data for the decoder. For AAC: its `AudioSpecificConfig`.
    pub configuration: Option<Bytes>,
}

impl Init {
    /// Parses the init segment: a `moov` box, and the boxes before it.
    pub(crate) fn read(before: &[u8], moov_box: &RawBox) -> Result<Self, IngestError> {
        let offset = moov_box.offset;
        let broken = |reason: String| IngestError::Broken {
            offset,
            kind: "moov",
            reason,
        };
        nesting::check(&moov_box.bytes).map_err(broken)?;
        let moov = Moov::decode(&mut &moov_box.bytes[..])
            .map_err(|error| broken(printable(&error.to_string())))?;
        if moov.trak.len() > TRACKS_MAX {
            let count = moov.trak.len();
            return Err(broken(format!(
                "{count} tracks; at most {TRACKS_MAX} are accepted"
            )));
        }
        let mut tracks = Vec::new();
        let mut found = Vec::new();
        for trak in &moov.trak {
            let handler = String::from_utf8_lossy(trak.mdia.hdlr.handler.as_ref());
            found.push(printable(&handler));
            tracks.extend(track(&moov, trak).map_err(&broken)?);
        }
        let is_video = |track: &Track| matches!(track.media, Media::Video { .. });
        let video = tracks.iter().position(is_video);
        let Some(video) = video.map(|place| tracks.remove(place)) else {
            let found = format!("tracks: {}", found.join(", "));
            return Err(IngestError::NoVideo { offset, found });
        };
        tracks.retain(|track| !is_video(track));
        let mut segment = BytesMut::from(before);
        segment.extend_from_slice(&moov_box.bytes);
        Ok(Self {
            segment: segment.freeze(),
            video,
            audio: tracks,
        })
    }

    /// Returns the track with this number if it is delivered.
    pub fn track(&self, number: u32) -> Option<&Track> {
        let mut tracks = std::iter::once(&self.video).chain(&self.audio);
        tracks.find(|track| track.number == number)
    }
}

/// Returns a text without control characters, which box types of a hostile stream can have.
fn printable(text: &str) -> String {
    let replaced = |letter: char| {
        if letter.is_control() {
            '\u{fffd}'
        } else {
            letter
        }
    };
    text.chars().map(replaced).collect()
}

/// Parses a track; `None` if it cannot be delivered.
fn track(moov: &Moov, trak: &Trak) -> Result<Option<Track>, String> {
    let number = trak.tkhd.track_id;
    let Some(codec) = trak.mdia.minf.stbl.stsd.codecs.first() else {
        return Err(format!("track {number} has no sample description"));
    };
    let Some(media) = media(codec)? else {
        return Ok(None);
    };
    let timescale = trak.mdia.mdhd.timescale;
    if timescale == 0 {
        return Err(format!("track {number} has a timescale of 0"));
    }
    let extends = moov.mvex.as_ref();
    let extends =
        extends.and_then(|extends| extends.trex.iter().find(|one| one.track_id == number));
    Ok(Some(Track {
        number,
        timescale,
        default_duration: extends.map_or(0, |extends| extends.default_sample_duration),
        default_size: extends.map_or(0, |extends| extends.default_sample_size),
        media,
    }))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the list of codecs is open, and what is not delivered needs no names"
)]
fn media(codec: &Codec) -> Result<Option<Media>, String> {
    let (configuration, visual, name) = match codec {
        Codec::Avc1(avc) => (&avc.avcc, &avc.visual, "avc1"),
        Codec::Avc3(avc) => (&avc.avcc, &avc.visual, "avc3"),
        Codec::Mp4a(mp4a) => {
            let specific = mp4a.esds.es_desc.dec_config.dec_specific.as_ref();
            let codec = specific.map_or_else(
                || "mp4a".to_owned(),
                |specific| format!("mp4a.40.{}", specific.profile),
            );
            let configuration = specific.map(|specific| Bytes::from(specific.raw.clone()));
            return Ok(Some(audio(&mp4a.audio, codec, configuration)));
        }
        Codec::Opus(opus) => return Ok(Some(audio(&opus.audio, "opus".to_owned(), None))),
        Codec::Flac(flac) => return Ok(Some(audio(&flac.audio, "flac".to_owned(), None))),
        // Other video, text and metadata are not delivered.
        _ => return Ok(None),
    };
    if !matches!(configuration.length_size, 1 | 2 | 4) {
        let bytes = configuration.length_size;
        return Err(format!(
            "NAL unit lengths have {bytes} bytes; expected 1, 2 or 4"
        ));
    }
    let mut encoded = Vec::new();
    configuration
        .encode(&mut encoded)
        .map_err(|error| error.to_string())?;
    // The contents without the box header.
    let configuration_bytes = Bytes::from(encoded).slice(8..);
    if configuration_bytes.len() > CONFIGURATION_BYTES_MAX {
        let bytes = configuration_bytes.len();
        return Err(format!(
            "the decoder configuration has {bytes} bytes; at most {CONFIGURATION_BYTES_MAX} are accepted"
        ));
    }
    Ok(Some(Media::Video {
        codec: format!(
            "{name}.{:02x}{:02x}{:02x}",
            configuration.avc_profile_indication,
            configuration.profile_compatibility,
            configuration.avc_level_indication
        ),
        width: visual.width,
        height: visual.height,
        length_bytes: usize::from(configuration.length_size),
        configuration: configuration_bytes,
    }))
}

fn audio(audio: &mp4_atom::Audio, codec: String, configuration: Option<Bytes>) -> Media {
    Media::Audio(Audio {
        codec,
        sample_rate: u32::from(audio.sample_rate.integer()),
        channels: audio.channel_count,
        configuration,
    })
}

#[cfg(test)]
mod tests {
    use mp4_atom::{Avc1, Avcc};

    use super::*;

    #[test]
    fn the_configuration_of_a_decoder_has_so_many_bytes_and_no_more() {
        // Versions, lengths and counts.
        let fixed_bytes = 11;
        for (bytes, is_taken) in [
            (CONFIGURATION_BYTES_MAX, true),
            (CONFIGURATION_BYTES_MAX + 1, false),
        ] {
            let sequence = vec![0x67; bytes - fixed_bytes - 4];
            let avcc = Avcc::new(&sequence, &[0x68; 4]).expect("long enough");
            let avc = Avc1 {
                avcc,
                ..Avc1::default()
            };
            let read = media(&avc.into());
            assert_eq!(read.is_ok(), is_taken, "{read:?}");
            if let Ok(Some(Media::Video { configuration, .. })) = read {
                assert_eq!(configuration.len(), bytes);
            }
        }
    }
}
