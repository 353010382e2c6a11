//! Fuzzing of benchmark profiles.

use weir_bench::interpolate::Variables;
use weir_bench::profile::Profile;
use weir_bench::schedule::Schedule;

/// Reads `input` as a profile. Checks that its canonical form is read as the same profile, that its names can be filled
/// in, and that its schedules begin and end.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let profile = match Profile::parse("fuzz.ini", input) {
        Ok(profile) => profile,
        Err(error) => {
            assert!(
                error.to_string().starts_with("fuzz.ini:"),
                "an error names its file"
            );
            return;
        }
    };
    let again = Profile::parse("fuzz.ini", profile.to_ini().as_bytes());
    assert_eq!(
        again.as_ref(),
        Ok(&profile),
        "the canonical form is the same profile"
    );
    for track in &profile.tracks {
        let variables = Variables {
            instance: u64::MAX,
            run: u64::MAX,
            ..Variables::default()
        };
        let name = track.template.fill(&variables).full_track_name();
        assert!(name.is_ok(), "a template keeps to the limits of MOQT");
        let schedule = Schedule::new(track, 0);
        let last = schedule.items() - 1;
        assert_eq!(
            schedule.item(last).map(|item| item.at),
            Some(schedule.end())
        );
        assert!(schedule.item(0).is_some_and(|item| item.at.is_zero()));
        assert_eq!(schedule.item(last + 1), None);
    }
}
