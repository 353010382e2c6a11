//! The service level of a run: what is asked for, as far as a run of this kind can see it.

use anyhow::{Context as _, bail};
use weir_bench::{
    profile::{Pattern, Profile, TrackProfile},
    qperf::Wire,
    scenario::Roles,
};
use weir_report::service_level::{ServiceLevel, Subject};

use crate::run::RelayChoice;

/// What a run can see, and what not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<'a> {
    pub(super) profile: &'a Profile,
    pub(super) wire: Wire,
    pub(super) relay: &'a RelayChoice,
    /// Who does what here in a fan-out.
    pub(super) roles: Roles,
    /// Whether there are meetings instead, in which everybody does both.
    pub(super) is_meeting: bool,
}

impl<'a> Sight<'a> {
    /// The tracks that somebody here subscribes to.
    fn subscribed(self) -> impl Iterator<Item = &'a TrackProfile> {
        let tracks = self.profile.tracks.iter();
        tracks.filter(move |track| self.is_meeting || self.roles.subscribes(track.mode))
    }

    /// Why nothing is measured of a subject; none if it is.
    fn problem(self, subject: Subject) -> Option<String> {
        let is_blind = || self.subscribed().next().is_none();
        match subject {
            Subject::Loss | Subject::Late | Subject::Latency if is_blind() => {
                Some("nobody subscribes here, so nothing is seen of what arrived".to_owned())
            }
            Subject::Failures | Subject::Loss => None,
            Subject::Late => self.lateness_problem(),
            Subject::Latency => self.latency_problem(),
            Subject::Cpu => matches!(self.relay, RelayChoice::At { pid: None, .. }).then(|| {
                "it takes --relay-pid or --relay-process to see the relay's CPU".to_owned()
            }),
        }
    }

    /// Why no object of any track is ever late; none if one may be.
    fn lateness_problem(self) -> Option<String> {
        let mut fetched = self
            .subscribed()
            .take_while(|track| track.pattern == Pattern::Fetch);
        let first = fetched.next()?;
        let is_all = fetched.count() + 1 == self.subscribed().count();
        is_all.then(|| {
            format!(
                "[{}]: pattern = fetch: what is fetched is not sent by a schedule, so nothing of it is late",
                first.section
            )
        })
    }

    /// Why no track has a latency; none if one has.
    fn latency_problem(self) -> Option<String> {
        let mut problem = None;
        for track in self.subscribed() {
            problem = Some(track.latency_problem(self.wire)?);
        }
        problem
    }
}

/// The level that `asked` names, each of whose clauses can be judged; without a word of the user's, the usual one as
/// far as it can.
pub(super) fn level(asked: Option<&str>, sight: Sight<'_>) -> anyhow::Result<ServiceLevel> {
    let Some(asked) = asked else {
        let usual = ServiceLevel::default();
        return usual
            .about(|subject| sight.problem(subject).is_none())
            .context("nothing of the usual service level can be judged");
    };
    let level: ServiceLevel = asked.parse().context("--slo")?;
    for clause in level.clauses() {
        if let Some(problem) = sight.problem(clause.subject()) {
            bail!("--slo: {clause} cannot be judged: {problem}");
        }
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    use weir_bench::profile::Mode;

    use super::*;
    use crate::run::OwnRelay;

    const AUDIO: &str = include_str!("../../../../../profiles/audio-short.ini");

    fn said(asked: Option<&str>, pattern: &str, publishes_only: bool, pid: Option<u32>) -> String {
        let text = AUDIO
            .replace("= datagram", "= stream")
            .replace("track_mode", &format!("pattern = {pattern}\ntrack_mode"));
        let given = publishes_only.then_some(Mode::Publisher);
        said_of(&text, asked, Roles { given }, pid)
    }

    fn said_of(profile: &str, asked: Option<&str>, roles: Roles, pid: Option<u32>) -> String {
        let profile = Profile::parse("audio.ini", profile.as_bytes()).unwrap();
        let relay = RelayChoice::At {
            url: "moqt://127.0.0.1:4443".parse().unwrap(),
            pid,
            by_name: false,
        };
        let sight = Sight {
            profile: &profile,
            wire: Wire::Draft,
            relay: &relay,
            roles,
            is_meeting: false,
        };
        match level(asked, sight) {
            Ok(level) => level.to_string(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn the_usual_level_asks_for_nothing_that_cannot_be_seen() {
        assert_eq!(
            said(None, "interval", false, None),
            "loss=0,failed=0,p99<100ms"
        );
        assert_eq!(said(None, "fetch", false, None), "loss=0,failed=0");
        assert_eq!(said(None, "interval", true, None), "failed=0");
    }

    #[test]
    fn a_clause_that_cannot_be_judged_is_refused_in_words() {
        let fetched = said(Some("loss=0,p99<1s"), "fetch", false, Some(1));
        assert!(
            fetched.starts_with("--slo: p99<1000ms cannot be judged: [")
                && fetched.contains("pattern = fetch"),
            "{fetched}"
        );
        assert_eq!(
            said(Some("loss=0"), "interval", true, Some(1)),
            "--slo: loss=0 cannot be judged: nobody subscribes here, so nothing is seen of what arrived"
        );
        assert_eq!(
            said(Some("failed=0,cpu<95%"), "interval", false, None),
            "--slo: cpu<95% cannot be judged: it takes --relay-pid or --relay-process to see the relay's CPU"
        );
        assert_eq!(
            said(Some("failed=0,cpu<95%"), "fetch", true, Some(1)),
            "failed=0,cpu<95%"
        );
    }

    #[test]
    fn what_is_fetched_is_never_late() {
        let fetched = said(Some("loss=0,late=0"), "fetch", false, None);
        assert!(
            fetched.starts_with("--slo: late=0 cannot be judged: [")
                && fetched.contains("pattern = fetch"),
            "{fetched}"
        );
        assert_eq!(
            said(Some("late=0"), "interval", false, None),
            "late=0",
            "what is sent by a schedule can be late"
        );
        assert_eq!(
            said(Some("late=0"), "interval", true, None),
            "--slo: late=0 cannot be judged: nobody subscribes here, so nothing is seen of what arrived"
        );
    }

    #[test]
    fn tracks_that_nobody_here_subscribes_to_have_no_say() {
        // One is published here for others; the other is fetched.
        let sent = AUDIO.replace("= datagram", "= stream");
        let sent = sent.replace("track_mode", "mode = 1\ntrack_mode");
        let fetched = sent
            .replace("mode = 1\n", "mode = 3\npattern = fetch\n")
            .replace("name                = 1", "name = 2")
            .replacen("[Audio", "[Fetched", 1);
        let both = format!("{sent}\n{fetched}");
        assert_eq!(
            said_of(&both, None, Roles::default(), None),
            "loss=0,failed=0"
        );
        let late = said_of(&both, Some("late=0"), Roles::default(), None);
        assert!(late.contains("pattern = fetch"), "{late}");
        let all = Roles {
            given: Some(Mode::Both),
        };
        assert_eq!(said_of(&both, None, all, None), "loss=0,failed=0,p99<100ms");
        assert_eq!(said_of(&both, Some("late=0"), all, None), "late=0");
    }

    #[test]
    fn a_relay_of_our_own_is_seen() {
        let profile = Profile::parse("audio.ini", AUDIO.as_bytes()).unwrap();
        let relay = RelayChoice::Own(OwnRelay::Null { core: None });
        let sight = Sight {
            profile: &profile,
            wire: Wire::Draft,
            relay: &relay,
            roles: Roles::default(),
            is_meeting: false,
        };
        assert!(level(Some("cpu<95%"), sight).is_ok());
    }
}
