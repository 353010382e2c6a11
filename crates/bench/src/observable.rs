//! The clauses of a service level that a run can judge.

use weir_report::service_level::{Clause, ServiceLevel, ServiceLevelError, Subject};

use crate::{
    profile::{Pattern, Profile, TrackProfile},
    qperf::Wire,
    scenario::Roles,
};

/// The properties of a run that decide which clauses it can judge.
#[derive(Clone, Copy, Debug)]
pub struct Observable<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// The form of the messages.
    pub wire: Wire,
    /// The roles of this process in a fan-out.
    pub roles: Roles,
    /// Whether the run consists of meetings, in which every client publishes and subscribes.
    pub is_meeting: bool,
    /// Whether the relay's CPU time is measured.
    pub has_relay_cpu: bool,
    /// Whether the clocks of publishers and subscribers are known to agree.
    pub has_common_clock: bool,
}

/// Why a run cannot judge a service level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// The text is not a service level.
    #[error(transparent)]
    Text(#[from] ServiceLevelError),
    /// The run does not measure what a clause judges.
    #[error("{clause} cannot be judged: {problem}")]
    Clause {
        /// The clause.
        clause: String,
        /// Why it is not measured.
        problem: String,
    },
    /// The run measures nothing that the default level judges.
    #[error("this run measures nothing that the default service level judges; set --slo")]
    Default,
}

impl<'a> Observable<'a> {
    /// Returns the level `asked` for, each of whose clauses the run can judge. Without it, returns those clauses of the
    /// default level that the run can judge.
    ///
    /// # Errors
    /// The text is not a service level, or the run cannot judge it.
    pub fn level(self, asked: Option<&str>) -> Result<ServiceLevel, LevelError> {
        let Some(asked) = asked else {
            let default = ServiceLevel::default();
            let level = default.about(|subject| self.problem(subject).is_none());
            return level.ok_or(LevelError::Default);
        };
        let level: ServiceLevel = asked.parse()?;
        for clause in level.clauses() {
            if let Some(problem) = self.problem(clause.subject()) {
                let clause = clause.to_string();
                return Err(LevelError::Clause { clause, problem });
            }
        }
        let is_latency = |clause: &Clause| clause.subject() == Subject::Latency;
        if !self.has_common_clock && level.clauses().iter().all(is_latency) {
            let problem = "publishers are in another process, whose clock may differ; if the clocks are synchronised, say \
                           --synchronized-clocks";
            return Err(LevelError::Clause {
                clause: level.to_string(),
                problem: problem.to_owned(),
            });
        }
        Ok(level)
    }

    /// Returns the tracks that this process subscribes to.
    fn subscribed(self) -> impl Iterator<Item = &'a TrackProfile> {
        let tracks = self.profile.tracks.iter();
        let all = self.is_meeting && self.roles.given.is_none();
        tracks.filter(move |track| all || self.roles.subscribes(track.mode))
    }

    /// Returns why a subject is not measured; `None` if it is.
    fn problem(self, subject: Subject) -> Option<String> {
        let is_blind = || self.subscribed().next().is_none();
        match subject {
            Subject::Loss | Subject::Late | Subject::Latency if is_blind() => {
                Some("this process has no subscribers, so it does not see what arrives".to_owned())
            }
            Subject::Failures | Subject::Loss => None,
            Subject::Late => self.lateness_problem(),
            Subject::Latency => self.latency_problem(),
            Subject::Cpu => (!self.has_relay_cpu).then(|| {
                "the relay's CPU is measured only with --relay-pid or --relay-process".to_owned()
            }),
        }
    }

    /// Returns why no object of any track can be late; `None` if one can.
    fn lateness_problem(self) -> Option<String> {
        let mut fetched = self
            .subscribed()
            .take_while(|track| track.pattern == Pattern::Fetch);
        let first = fetched.next()?;
        let is_all = fetched.count() + 1 == self.subscribed().count();
        is_all.then(|| {
            format!(
                "[{}]: pattern = fetch: fetched objects have no schedule, so none is late",
                first.section
            )
        })
    }

    /// Returns why no track has a latency; `None` if one has.
    fn latency_problem(self) -> Option<String> {
        let mut problem = None;
        for track in self.subscribed() {
            problem = Some(track.latency_problem(self.wire)?);
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Mode;

    const AUDIO: &str = include_str!("../../../profiles/audio-short.ini");

    fn said(asked: Option<&str>, pattern: &str, publishes_only: bool, pid: Option<u32>) -> String {
        let text = AUDIO
            .replace("= datagram", "= stream")
            .replace("track_mode", &format!("pattern = {pattern}\ntrack_mode"));
        let given = publishes_only.then_some(Mode::Publisher);
        said_of(&text, asked, Roles { given }, pid)
    }

    fn said_of(profile: &str, asked: Option<&str>, roles: Roles, pid: Option<u32>) -> String {
        let profile = Profile::parse("audio.ini", profile.as_bytes()).unwrap();
        let observable = Observable {
            profile: &profile,
            wire: Wire::Draft,
            roles,
            is_meeting: false,
            has_relay_cpu: pid.is_some(),
            has_common_clock: roles.given != Some(Mode::Subscriber),
        };
        match observable.level(asked) {
            Ok(level) => level.to_string(),
            Err(error) => error.to_string(),
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
            fetched.starts_with("p99<1000ms cannot be judged: [")
                && fetched.contains("pattern = fetch"),
            "{fetched}"
        );
        assert_eq!(
            said(Some("loss=0"), "interval", true, Some(1)),
            "loss=0 cannot be judged: this process has no subscribers, so it does not see what arrives"
        );
        assert_eq!(
            said(Some("failed=0,cpu<95%"), "interval", false, None),
            "cpu<95% cannot be judged: the relay's CPU is measured only with --relay-pid or --relay-process"
        );
        assert_eq!(
            said(Some("failed=0,cpu<95%"), "fetch", true, Some(1)),
            "failed=0,cpu<95%"
        );
    }

    #[test]
    fn latency_alone_is_not_asked_of_two_clocks() {
        let roles = Roles {
            given: Some(Mode::Subscriber),
        };
        let level = |asked| said_of(AUDIO, asked, roles, None);
        let refused = level(Some("p99<50ms"));
        assert!(
            refused.starts_with("p99<50ms cannot be judged: publishers are in another process")
                && refused.contains("--synchronized-clocks"),
            "{refused}"
        );
        assert_eq!(level(Some("loss=0,p99<50ms")), "loss=0,p99<50ms");
        assert_eq!(level(None), "loss=0,failed=0,p99<100ms");
    }

    #[test]
    fn what_is_fetched_is_never_late() {
        let fetched = said(Some("loss=0,late=0"), "fetch", false, None);
        assert!(
            fetched.starts_with("late=0 cannot be judged: [")
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
            "late=0 cannot be judged: this process has no subscribers, so it does not see what arrives"
        );
    }

    #[test]
    fn tracks_that_nobody_here_subscribes_to_have_no_say() {
        // The first track is published to others; the second is fetched.
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
}
