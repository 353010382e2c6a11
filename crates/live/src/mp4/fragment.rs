//! Fragments: a `moof` box and the `mdat` box after it.

use bytes::{Bytes, BytesMut};
use mp4_atom::{Decode as _, Moof, Traf};

use super::{IngestError, Init, RawBox, Track, nesting};
use crate::limits::SAMPLES_PER_FRAGMENT_MAX;

/// A fragment of one track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The offset of the fragment in the stream.
    pub(crate) offset: u64,
    /// The track's number.
    pub(crate) track: u32,
    /// The decode time of its first sample, in units of the track.
    pub(crate) decode: u64,
    /// Its samples, at least one.
    pub(crate) samples: Vec<Sample>,
    /// Both boxes.
    pub(crate) bytes: Bytes,
    /// Its samples, concatenated.
    pub(crate) data: Bytes,
}

/// A sample's entry in a fragment, in units of the track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The size in bytes.
    pub(crate) size: usize,
    duration: u32,
    /// The presentation time minus the decode time.
    composition: i64,
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the unit belongs to the name")]
pub(crate) struct Times {
    pub(crate) decode_us: i64,
    pub(crate) presentation_us: i64,
    pub(crate) duration_us: i64,
}

impl Fragment {
    /// Returns the decode and presentation times of the first sample, and the duration of all samples.
    pub(crate) fn times(&self, timescale: u32) -> Result<Times, IngestError> {
        let durations = self.samples.iter().map(|sample| u64::from(sample.duration));
        let composition = self.samples.first().map_or(0, |first| first.composition);
        self.converted(0, composition, durations.sum(), timescale)
    }

    /// Returns each sample with its times.
    pub(crate) fn parts(&self, timescale: u32) -> Result<Vec<(Times, Bytes)>, IngestError> {
        let (mut elapsed, mut begin) = (0_u64, 0);
        let mut parts = Vec::new();
        for sample in &self.samples {
            let duration = u64::from(sample.duration);
            let times = self.converted(elapsed, sample.composition, duration, timescale)?;
            let end = begin + sample.size;
            parts.push((times, self.data.slice(begin..end)));
            elapsed += duration;
            begin = end;
        }
        Ok(parts)
    }

    /// Returns the times of a sample that begins `elapsed` after the fragment, in microseconds.
    fn converted(
        &self,
        elapsed: u64,
        composition: i64,
        duration: u64,
        timescale: u32,
    ) -> Result<Times, IngestError> {
        let microseconds = |value: i128| {
            let result = value * 1_000_000 / i128::from(timescale);
            i64::try_from(result)
                .ok()
                .filter(|result| result.abs() <= TIME_US_MAX)
                .ok_or(IngestError::TimeRange {
                    offset: self.offset,
                    track: self.track,
                    value,
                })
        };
        let decode = i128::from(self.decode) + i128::from(elapsed);
        Ok(Times {
            decode_us: microseconds(decode)?,
            presentation_us: microseconds(decode + i128::from(composition))?,
            duration_us: microseconds(i128::from(duration))?,
        })
    }
}

/// Parses a fragment; `None` if its track is not delivered, or it has no samples.
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
    nesting::check(&moof_box.bytes).map_err(broken)?;
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
    if samples.is_empty() {
        return Ok(None);
    }
    let mut bytes = BytesMut::with_capacity(moof_box.bytes.len() + mdat_box.bytes.len());
    bytes.extend_from_slice(&moof_box.bytes);
    bytes.extend_from_slice(&mdat_box.bytes);
    let bytes = bytes.freeze();
    let start = samples_start(offset, moof_box, mdat_box, traf);
    let size = samples
        .iter()
        .fold(0_usize, |size, sample| size.saturating_add(sample.size));
    let end = start.and_then(|start| start.checked_add(size));
    let data = start
        .zip(end)
        .filter(|(start, end)| *start >= moof_box.bytes.len() && *end <= bytes.len())
        .map(|(start, end)| bytes.slice(start..end));
    let Some(data) = data else {
        return Err(broken(format!(
            "its {size} bytes of samples do not lie within the box mdat behind it"
        )));
    };
    Ok(Some(Fragment {
        offset,
        track: track.number,
        decode: traf
            .tfdt
            .as_ref()
            .map_or(0, |tfdt| tfdt.base_media_decode_time),
        samples,
        bytes,
        data,
    }))
}

/// Returns the samples of a fragment's runs.
fn samples(track: &Track, traf: &Traf) -> Result<Vec<Sample>, String> {
    let count: usize = traf.trun.iter().map(|run| run.samples.len()).sum();
    if count > SAMPLES_PER_FRAGMENT_MAX {
        return Err(format!(
            "{count} samples; at most {SAMPLES_PER_FRAGMENT_MAX} are accepted"
        ));
    }
    let duration = traf
        .tfhd
        .default_sample_duration
        .unwrap_or(track.default_duration);
    let size = traf.tfhd.default_sample_size.unwrap_or(track.default_size);
    let entries = traf.trun.iter().flat_map(|run| run.samples.iter());
    let samples = entries.map(|entry| Sample {
        size: usize::try_from(entry.size.unwrap_or(size)).unwrap_or(usize::MAX),
        duration: entry.duration.unwrap_or(duration),
        composition: entry.cts.unwrap_or(0),
    });
    Ok(samples.collect())
}

/// Returns the offset of the first sample in the fragment.
fn samples_start(offset: u64, moof: &RawBox, mdat: &RawBox, traf: &Traf) -> Option<usize> {
    let first = traf.trun.first()?;
    let Some(data_offset) = first.data_offset else {
        return Some(moof.bytes.len() + mdat.header_bytes);
    };
    let base = traf.tfhd.base_data_offset.unwrap_or(offset);
    let start = i128::from(base) + i128::from(data_offset) - i128::from(offset);
    usize::try_from(start).ok()
}

/// The limit of times, so that sums of a few do not overflow: 36,000 years.
const TIME_US_MAX: i64 = i64::MAX / 8;
