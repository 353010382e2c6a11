//! Fragments: a `moof` box and the `mdat` box behind it.

use bytes::{Bytes, BytesMut};
use mp4_atom::{Decode as _, Moof, Traf};

use super::{IngestError, Init, RawBox, Track};
use crate::limits::SAMPLES_PER_FRAGMENT_MAX;

/// What a fragment holds of the one track it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Where it begins.
    pub(crate) offset: u64,
    /// The track's number.
    pub(crate) track: u32,
    /// When its first sample is decoded, in units of the track.
    pub(crate) decode: u64,
    /// By how much its first sample is shown later than decoded, in units of the track.
    pub(crate) composition: i64,
    /// How long all of its samples take together, in units of the track.
    pub(crate) duration: u64,
    /// How many bytes each of its samples has.
    pub(crate) sizes: Vec<usize>,
    /// Both boxes.
    pub(crate) bytes: Bytes,
    /// Its samples, one after the other.
    pub(crate) data: Bytes,
}

/// Reads a fragment; `None` if it is of a track that is not delivered, or has no samples.
pub(crate) fn fragment(
    init: &Init,
    moof_box: &RawBox,
    mdat_box: &RawBox,
) -> Result<Option<Fragment>, IngestError> {
    let offset = moof_box.offset;
    let broken = |reason: String| IngestError::Broken {
        offset,
        kind: "moof",
        reason,
    };
    let moof = Moof::decode(&mut &moof_box.bytes[..]).map_err(|error| broken(error.to_string()))?;
    let [traf] = &moof.traf[..] else {
        let count = moof.traf.len();
        return Err(broken(format!(
            "it has parts of {count} tracks, not of one"
        )));
    };
    let Some(track) = init.track(traf.tfhd.track_id) else {
        return Ok(None);
    };
    let samples = samples(track, traf).map_err(&broken)?;
    if samples.sizes.is_empty() {
        return Ok(None);
    }
    let mut bytes = BytesMut::with_capacity(moof_box.bytes.len() + mdat_box.bytes.len());
    bytes.extend_from_slice(&moof_box.bytes);
    bytes.extend_from_slice(&mdat_box.bytes);
    let bytes = bytes.freeze();
    let start = samples_start(offset, moof_box, mdat_box, traf);
    let end = start.and_then(|start| start.checked_add(samples.size));
    let data = start
        .zip(end)
        .filter(|(start, end)| *start >= moof_box.bytes.len() && *end <= bytes.len())
        .map(|(start, end)| bytes.slice(start..end));
    let Some(data) = data else {
        return Err(broken(format!(
            "its {} bytes of samples do not lie within the box mdat behind it",
            samples.size
        )));
    };
    Ok(Some(Fragment {
        offset,
        track: track.number,
        decode: traf
            .tfdt
            .as_ref()
            .map_or(0, |tfdt| tfdt.base_media_decode_time),
        composition: samples.composition,
        duration: samples.duration,
        sizes: samples.sizes,
        bytes,
        data,
    }))
}

#[derive(Default)]
struct Samples {
    sizes: Vec<usize>,
    size: usize,
    duration: u64,
    composition: i64,
}

/// Adds up what the runs of a fragment say.
fn samples(track: &Track, traf: &Traf) -> Result<Samples, String> {
    let count: usize = traf.trun.iter().map(|run| run.samples.len()).sum();
    if count > SAMPLES_PER_FRAGMENT_MAX {
        return Err(format!(
            "{count} samples, of at most {SAMPLES_PER_FRAGMENT_MAX}"
        ));
    }
    let duration = traf
        .tfhd
        .default_sample_duration
        .unwrap_or(track.default_duration);
    let size = traf.tfhd.default_sample_size.unwrap_or(track.default_size);
    let mut samples = Samples::default();
    for entry in traf.trun.iter().flat_map(|run| run.samples.iter()) {
        if samples.sizes.is_empty() {
            samples.composition = entry.cts.unwrap_or(0);
        }
        let size = usize::try_from(entry.size.unwrap_or(size)).unwrap_or(usize::MAX);
        samples.sizes.push(size);
        samples.size = samples.size.saturating_add(size);
        samples.duration += u64::from(entry.duration.unwrap_or(duration));
    }
    Ok(samples)
}

/// Where in the fragment its samples begin.
fn samples_start(offset: u64, moof: &RawBox, mdat: &RawBox, traf: &Traf) -> Option<usize> {
    let first = traf.trun.first()?;
    let Some(data_offset) = first.data_offset else {
        return Some(moof.bytes.len() + mdat.header_bytes);
    };
    let base = traf.tfhd.base_data_offset.unwrap_or(offset);
    let start = i128::from(base) + i128::from(data_offset) - i128::from(offset);
    usize::try_from(start).ok()
}
