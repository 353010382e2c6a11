//! What the clients of a run measured, or those of a part of it: plain data that adds up and can travel.
//!
//! Its size does not grow with the number of objects: a row of figures for each publication and subscription, and
//! histograms of fixed size for each track.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_histogram::{Histogram, Series};
use weir_moqt::draft::Draft;
use weir_moqt::name::FullTrackName;
use weir_report::relay::Acknowledged;

use crate::metrics::{Heat, OverTime, SentTotals, TrackPlan};
use crate::publisher::{PublicationResult, PublisherProgress, PublisherRole};
use crate::subscriber::{SubscriberProgress, SubscriberRole, SubscriptionResult};

/// What publishers and subscribers measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The publishers' side.
    pub publishers: PublishersMeasured,
    /// The subscribers' side.
    pub subscribers: SubscribersMeasured,
}

/// What publishers measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishersMeasured {
    /// What each publisher sent of each of its tracks.
    pub results: Vec<PublicationResult>,
    /// Delays from planned time to time of sending, one histogram per plan.
    pub lateness: Vec<Histogram>,
    /// The progress at the end.
    pub progress: PublisherProgress,
    /// Why publishers failed.
    pub failures: Vec<String>,
    /// Why publishers failed before all of their tracks had ended.
    pub cut_off: Vec<String>,
    /// The draft of the first session.
    #[serde(with = "draft")]
    pub draft: Option<Draft>,
}

/// What subscribers measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscribersMeasured {
    /// Every subscription, in the order of subscribers.
    pub results: Vec<SubscriptionResult>,
    /// Latency over time, one series per plan.
    pub latency: Vec<Series>,
    /// Deltas, variances and bit rates over time, one per plan.
    pub over_time: Vec<OverTime>,
    /// Arrivals by subscriber and planned time, one map per plan.
    pub heat: Vec<Heat>,
    /// Absolute receive variance, one histogram per plan.
    pub receive_variance: Vec<Histogram>,
    /// How packets were acknowledged, over all connections that subscribers closed; `None` if they closed none.
    pub acknowledged: Option<Acknowledged>,
    /// The progress at the end.
    pub progress: SubscriberProgress,
    /// The draft of the first session.
    #[serde(with = "draft")]
    pub draft: Option<Draft>,
    /// The relay's name in the first session.
    pub relay: Option<String>,
    /// Why the relay refused to tell the publishers of other processes that the subscribers are there, if it did.
    pub announcement_refused: Option<String>,
}

/// How much was sent of one track, as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrackSent {
    /// The track.
    #[serde(with = "track_name")]
    pub name: FullTrackName,
    /// Objects and groups.
    pub totals: SentTotals,
}

/// Parts that do not measure the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the figures are of another run: {0} differ")]
pub struct OtherRun(&'static str);

impl Measured {
    /// Returns the figures of a run of `plans` with `subscribers` subscribers in all, before anything was measured.
    pub fn empty(plans: &[TrackPlan], subscribers: usize) -> Self {
        let histograms = || vec![Histogram::new(); plans.len()];
        Self {
            publishers: PublishersMeasured {
                lateness: histograms(),
                ..PublishersMeasured::default()
            },
            subscribers: SubscribersMeasured {
                latency: vec![Series::new(SERIES_WINDOW); plans.len()],
                over_time: vec![OverTime::new(); plans.len()],
                heat: plans
                    .iter()
                    .map(|plan| Heat::new(plan.schedule(), subscribers))
                    .collect(),
                receive_variance: histograms(),
                ..SubscribersMeasured::default()
            },
        }
    }

    /// Returns what two roles measured.
    pub fn of(publishers: &PublisherRole, subscribers: &SubscriberRole) -> Self {
        let publishers = publishers.measured();
        Self {
            subscribers: subscribers.measured(&publishers.sent()),
            publishers,
        }
    }
}

impl PublishersMeasured {
    /// Returns how much was sent of each track.
    pub fn sent(&self) -> BTreeMap<FullTrackName, SentTotals> {
        let results = self.results.iter();
        results
            .map(|result| (result.name.clone(), result.totals))
            .collect()
    }

    /// Adds what the publishers of another part measured.
    ///
    /// # Errors
    /// The other part has other tracks. In this case nothing was added.
    pub fn absorb(&mut self, other: Self) -> Result<(), OtherRun> {
        check(self.lateness.len(), other.lateness.len(), "tracks")?;
        add_each(&mut self.lateness, &other.lateness, Histogram::merge);
        self.results.extend(other.results);
        self.progress.add(&other.progress);
        self.failures.extend(other.failures);
        self.cut_off.extend(other.cut_off);
        self.draft = self.draft.or(other.draft);
        Ok(())
    }
}

impl SubscribersMeasured {
    /// Adds what the subscribers of another part measured.
    ///
    /// # Errors
    /// The other part has other tracks, or another number of subscribers in all. In this case nothing was added.
    pub fn absorb(&mut self, other: Self) -> Result<(), OtherRun> {
        for (own, other) in [
            (self.latency.len(), other.latency.len()),
            (self.over_time.len(), other.over_time.len()),
            (self.heat.len(), other.heat.len()),
            (self.receive_variance.len(), other.receive_variance.len()),
        ] {
            check(own, other, "tracks")?;
        }
        let mut maps = self.heat.iter().zip(&other.heat);
        if !maps.all(|(own, other)| own.is_like(other)) {
            return Err(OtherRun("subscribers or schedules"));
        }
        add_each(&mut self.latency, &other.latency, Series::merge);
        add_each(&mut self.over_time, &other.over_time, OverTime::merge);
        add_each(&mut self.heat, &other.heat, Heat::merge);
        let variance = &mut self.receive_variance;
        add_each(variance, &other.receive_variance, Histogram::merge);
        self.results.extend(other.results);
        self.results.sort_by_key(|result| result.subscriber);
        self.progress.add(&other.progress);
        if let Some(other) = &other.acknowledged {
            let total = self.acknowledged.get_or_insert_default();
            total.add(other);
        }
        self.draft = self.draft.or(other.draft);
        self.relay = self.relay.take().or(other.relay);
        let refused = &mut self.announcement_refused;
        *refused = refused.take().or(other.announcement_refused);
        Ok(())
    }
}

fn check(own: usize, other: usize, what: &'static str) -> Result<(), OtherRun> {
    if own == other {
        Ok(())
    } else {
        Err(OtherRun(what))
    }
}

/// Adds the figures of another part, one for each plan.
fn add_each<T>(own: &mut [T], other: &[T], add: fn(&mut T, &T)) {
    for (own, other) in own.iter_mut().zip(other) {
        add(own, other);
    }
}

/// The window of each latency histogram.
pub(crate) const SERIES_WINDOW: Duration = Duration::from_secs(1);

/// Drafts as plain data: their ALPN.
mod draft {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error};
    use weir_moqt::draft::Draft;

    #[expect(
        clippy::ref_option,
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes references"
    )]
    pub(super) fn serialize<S: Serializer>(
        draft: &Option<Draft>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        draft.map(Draft::alpn).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Draft>, D::Error> {
        let alpn = Option::<String>::deserialize(deserializer)?;
        let known = |alpn: String| {
            let draft = Draft::from_alpn(alpn.as_bytes());
            draft.ok_or_else(|| D::Error::custom("an unknown draft of MOQT"))
        };
        alpn.map(known).transpose()
    }
}

/// Names of tracks as plain data: the fields of the namespace, and then the name, each in hexadecimal digits.
pub(crate) mod track_name {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error};
    use weir_moqt::name::{FullTrackName, Namespace, TrackName};

    pub(crate) fn serialize<S: Serializer>(
        name: &FullTrackName,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let parts = name.namespace.fields().chain([name.name.as_bytes()]);
        let digits = parts.map(|part| {
            let nibbles = part.iter().flat_map(|byte| [byte >> 4, byte & 15]);
            nibbles
                .filter_map(|nibble| char::from_digit(nibble.into(), 16))
                .collect()
        });
        digits.collect::<Vec<String>>().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<FullTrackName, D::Error> {
        let parts = Vec::<String>::deserialize(deserializer)?;
        let parts: Option<Vec<Vec<u8>>> = parts.iter().map(|part| bytes(part)).collect();
        let mut fields = parts.ok_or_else(|| D::Error::custom("expected hexadecimal digits"))?;
        let name = fields
            .pop()
            .ok_or_else(|| D::Error::custom("a track has a name"))?;
        let named = || FullTrackName::new(Namespace::new(fields)?, TrackName::new(name)?);
        named().map_err(D::Error::custom)
    }

    fn bytes(digits: &str) -> Option<Vec<u8>> {
        let digit = |digit: &u8| char::from(*digit).to_digit(16);
        let pairs = digits.as_bytes().chunks(2);
        let pairs = pairs.map(|pair| match pair {
            [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
            _ => None,
        });
        pairs.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_track_name_survives_serialisation() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Named(#[serde(with = "track_name")] FullTrackName);

        use weir_moqt::name::{Namespace, TrackName};
        let namespace = Namespace::new([&b"a/b"[..], &[0, 255]]).unwrap();
        let name = FullTrackName::new(namespace, TrackName::new("").unwrap()).unwrap();
        let text = serde_json::to_string(&Named(name.clone())).unwrap();
        assert_eq!(text, r#"["612f62","00ff",""]"#);
        assert_eq!(serde_json::from_str::<Named>(&text).unwrap(), Named(name));
        for bad in [r"[]", r#"["6"]"#, r#"["6x",""]"#, r#"["é",""]"#] {
            assert!(serde_json::from_str::<Named>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parts_of_other_runs_are_refused() {
        let of = |plans| PublishersMeasured {
            lateness: vec![Histogram::new(); plans],
            ..PublishersMeasured::default()
        };
        let mut own = of(2);
        assert_eq!(own.absorb(of(1)).unwrap_err(), OtherRun("tracks"));
        own.absorb(of(2)).unwrap();
        let mut own = SubscribersMeasured {
            heat: vec![heat(3, 1)],
            ..SubscribersMeasured::default()
        };
        let other = SubscribersMeasured {
            heat: vec![heat(3, 2)],
            ..SubscribersMeasured::default()
        };
        assert!(own.absorb(other).is_err());
    }

    fn heat(seconds: u64, subscribers: usize) -> Heat {
        let text = format!(
            "[a]\nnamespace = a\nname = 1\ntrack_mode = stream\npriority = 1\nttl = 1000\ntime_interval = 100\n\
             objects_per_group = 5\nfirst_object_size = 99\nobject_size = 99\nstart_delay = 0\nduration = {}\n",
            seconds * 1000
        );
        let profile = crate::profile::Profile::parse("x", text.as_bytes()).unwrap();
        Heat::new(
            &crate::schedule::Schedule::new(&profile.tracks[0], 0),
            subscribers,
        )
    }
}
