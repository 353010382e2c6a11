mod page;

use std::time::Duration;

use proptest::prelude::*;
use weir_quic::tls::Acknowledgements;

use super::*;
use crate::interpolate::Variables;
use crate::limits::{
    DURATION_MAX, LINE_BYTES_MAX, PROFILE_BYTES_MAX, SECTION_NAME_BYTES_MAX, TRACKS_MAX,
};

const AUDIO: &[u8] = include_bytes!("../../../../profiles/audio.ini");
const AUDIO_SHORT: &[u8] = include_bytes!("../../../../profiles/audio-short.ini");

const AUDIO_VIDEO: &[u8] = include_bytes!("../../../../profiles/audio-video.ini");
const AUDIO_VIDEO_SHORT: &[u8] = include_bytes!("../../../../profiles/audio-video-short.ini");
const MEETING: &[u8] = include_bytes!("../../../../profiles/meeting.ini");
const MEETING_SHORT: &[u8] = include_bytes!("../../../../profiles/meeting-short.ini");

/// The draft's video track, without its comments.
const VIDEO: &str = "\
[360p Video]
namespace = perf/video/{}
name = 1
track_mode = stream
priority = 3
ttl = 5000
time_interval = 33.33
objects_per_group = 150
first_object_size = 21333
object_size = 2666
start_delay = 5000
total_transmit_time = 35000
";

fn parse(text: &str) -> Result<Profile, ProfileError> {
    Profile::parse("profiles/x.ini", text.as_bytes())
}

fn problem(text: &str) -> Problem {
    parse(text).expect_err(text).problem
}

/// The video track with one line replaced.
fn video_with(key: &str, line: &str) -> String {
    let replaced = VIDEO.lines().map(|old| {
        if old.split(' ').next() == Some(key) {
            line.to_owned()
        } else {
            old.to_owned()
        }
    });
    replaced.collect::<Vec<_>>().join("\n")
}

#[test]
fn reads_the_drafts_audio_profile_to_the_letter() {
    let profile = Profile::parse("profiles/audio.ini", AUDIO).unwrap();
    let [track] = profile.tracks.as_slice() else {
        panic!("one track")
    };
    assert_eq!(track.section, "Audio Datagram");
    let label = track.template.fill(&Variables::default());
    assert_eq!(label.to_string(), "perf/audio/0--1");
    assert_eq!(track.mode, None);
    assert_eq!(track.track_mode, TrackMode::Datagram);
    assert_eq!((track.priority, track.ttl), (2, Duration::from_secs(5)));
    assert_eq!(track.interval.duration(), Duration::from_millis(20));
    assert_eq!(track.objects_per_group.count(), 1);
    assert_eq!(
        (track.first_object_size.bytes(), track.object_size.bytes()),
        (120, 120)
    );
    assert_eq!(track.object_size.data_length(), 95);
    assert_eq!((track.start_delay, track.duration), secs(5, 30));
    assert_eq!(track.total_transmit_time(), Duration::from_secs(35));
    assert!(!track.late_join);
}

#[test]
fn the_short_profile_differs_in_its_times_alone() {
    let mut short = Profile::parse("profiles/audio-short.ini", AUDIO_SHORT).unwrap();
    assert_eq!(
        (short.tracks[0].start_delay, short.tracks[0].duration),
        secs(1, 3)
    );
    (short.tracks[0].start_delay, short.tracks[0].duration) = secs(5, 30);
    assert_eq!(short, Profile::parse("profiles/audio.ini", AUDIO).unwrap());
}

#[test]
fn reads_the_drafts_audio_and_video_to_the_letter() {
    let profile = Profile::parse("profiles/audio-video.ini", AUDIO_VIDEO).unwrap();
    let audio = Profile::parse("profiles/audio.ini", AUDIO).unwrap();
    assert_eq!(profile.tracks[0], audio.tracks[0]);
    assert_eq!(profile.tracks[1], parse(VIDEO).unwrap().tracks[0]);
    assert_eq!(profile.tracks.len(), 2);
}

#[test]
fn the_short_audio_and_video_differ_in_their_times_alone() {
    let mut short = Profile::parse("profiles/audio-video-short.ini", AUDIO_VIDEO_SHORT).unwrap();
    for track in &mut short.tracks {
        assert_eq!((track.start_delay, track.duration), secs(1, 3));
        (track.start_delay, track.duration) = secs(5, 30);
    }
    // Groups of 1.5 s, so that three seconds hold two.
    assert_eq!(short.tracks[1].objects_per_group.count(), 45);
    short.tracks[1].objects_per_group = ObjectsPerGroup::new(150).unwrap();
    assert_eq!(
        short,
        Profile::parse("profiles/audio-video.ini", AUDIO_VIDEO).unwrap()
    );
}

#[test]
fn the_meeting_has_the_traffic_of_audio_and_video_under_names_of_its_own() {
    for (meeting, other) in [(MEETING, AUDIO_VIDEO), (MEETING_SHORT, AUDIO_VIDEO_SHORT)] {
        let meeting = Profile::parse("meeting.ini", meeting).unwrap();
        let mut other = Profile::parse("audio-video.ini", other).unwrap();
        for (track, named) in other.tracks.iter_mut().zip(&meeting.tracks) {
            track.template = named.template.clone();
            track.mode = Some(Mode::Both);
        }
        assert_eq!(meeting, other);
        let variables = Variables {
            client: 3,
            meeting: 1234,
            ..Variables::default()
        };
        let labels = meeting
            .tracks
            .iter()
            .map(|track| track.template.fill(&variables));
        let labels: Vec<_> = labels.map(|label| label.to_string()).collect();
        assert_eq!(labels, ["meeting/1234/3--audio", "meeting/1234/3--video"]);
    }
}

#[test]
fn the_interval_is_exact() {
    let profile = parse(VIDEO).unwrap();
    assert_eq!(profile.tracks[0].interval.ns(), 33_330_000);
}

#[test]
fn table_1_is_understood() {
    let table_1 = "
[360p Video]
Namespace = perf/video/{}
Name = 1
Reliable = True
Priority = 3
TTL = 5000
Interval = 33.33
Objects Per Group = 150
First Object Size = 21333
Remaining Object Size = 2666
Duration = 30000
Start Delay = 5000
";
    let mut of_appendix = parse(VIDEO).unwrap();
    of_appendix.tracks[0].has_total_transmit_time = false;
    assert_eq!(parse(table_1).unwrap(), of_appendix);
    let both = "mode = 3\nreliable = true\nduration = 30000";
    let profile = parse(&format!("{VIDEO}{both}")).unwrap();
    assert_eq!(profile.tracks[0].mode, Some(Mode::Both));
}

#[test]
fn tolerates_what_editors_leave_behind() {
    let windows = format!("\u{feff}{}", VIDEO.replace('\n', "  \r\n"));
    assert_eq!(parse(&windows).unwrap(), parse(VIDEO).unwrap());
    assert_eq!(parse(VIDEO.trim_end()).unwrap(), parse(VIDEO).unwrap());
}

#[test]
fn a_hash_begins_a_comment_where_nothing_stands_before_it() {
    let commented = VIDEO
        .replacen('\n', " # the one track\n# of this file\n", 1)
        .replace("ttl = ", "#ttl = 1\nttl = ");
    assert_eq!(parse(&commented).unwrap(), parse(VIDEO).unwrap());
    // Within a value it is a letter like any other.
    let named = parse(&video_with("name", "name = a#b # but this is a comment")).unwrap();
    assert_eq!(named.tracks[0].template.name().to_string(), "a#b");
    // Found by fuzzing: such a name was read, but its canonical form was not.
    for line in ["name =#b", "name =\u{c}#b"] {
        let nameless = parse(&video_with("name", line));
        assert!(nameless.is_err(), "{line:?}: {nameless:?}");
    }
}

#[test]
fn prints_the_canonical_form() {
    let profile = parse(&format!(
        "{VIDEO}mode=1\nlate_join=true\nnamespace_raw=true\n[b]\n{}\
         stream_mapping=two_subgroups\nextension_headers=3\npattern=bursts\nburst_objects=10",
        VIDEO.split_once('\n').unwrap().1
    ))
    .unwrap();
    insta::assert_snapshot!(profile.to_ini());
}

#[test]
fn every_error_names_the_line_and_what_was_expected() {
    let without = |key: &str| video_with(key, "");
    let and = |lines: &str| format!("{VIDEO}{lines}");
    let texts = [
        String::new(),
        "; only a comment\n".to_owned(),
        "name = 1\n[a]\n".to_owned(),
        and("[unclosed"),
        and("[]"),
        and("[a] name = 1"),
        and("[360p Video]"),
        and("what is this"),
        and("= 5"),
        and("not a comment"),
        and("prioriti = 3"),
        and("priority = 3 ; again"),
        and("interval = 33.33"),
        and("reliable = false"),
        and("duration = 35000"),
        without("namespace"),
        without("track_mode"),
        without("object_size"),
        without("total_transmit_time"),
        video_with("namespace", "namespace ="),
        video_with("namespace", "namespace = perf/video/"),
        video_with("namespace", "namespace = perf/{instance}"),
        video_with("name", "name = {"),
        video_with("track_mode", "track_mode = Streams"),
        video_with("track_mode", "reliable = yes"),
        video_with("priority", "priority = 256"),
        video_with("ttl", "ttl = 0"),
        video_with("time_interval", "time_interval = 0"),
        video_with("time_interval", "time_interval = 33,33"),
        video_with("objects_per_group", "objects_per_group = 0"),
        video_with("first_object_size", "first_object_size = 24"),
        video_with("object_size", "object_size = -1"),
        video_with(
            "object_size",
            "object_size = \u{1b}[31mtwo thousand six hundred and sixty-six bytes",
        ),
        video_with("start_delay", "start_delay = soon"),
        video_with("start_delay", "start_delay = 35000"),
        and("mode = both"),
        and("late_join = 1"),
        and("stream_mapping = one"),
        and("extension_headers = 17"),
        and("extension_header_size = 0"),
        and("pattern = now and then"),
        and("pattern = bursts"),
        and("pattern = bursts\nburst_objects = 1"),
        and("burst_objects = 5"),
        and("pattern = random\nburst_objects = 5"),
        video_with("track_mode", "track_mode = datagram\npattern = fetch"),
        video_with(
            "track_mode",
            "reliable = false\nstream_mapping = two_subgroups",
        ),
    ];
    let report: Vec<_> = texts
        .iter()
        .map(|text| parse(text).unwrap_err().to_string())
        .collect();
    insta::assert_snapshot!(report.join("\n"));
}

#[test]
fn errors_of_patterns_and_audiences_name_what_excludes_them() {
    let and = |lines: &str| format!("{VIDEO}{lines}");
    let texts = [
        and("pattern = pauses\nactive_time = 100"),
        and("pattern = pauses\nactive_time = 0\npause_time = 100"),
        video_with(
            "time_interval",
            "time_interval = 0.01\npattern = pauses\nactive_time = 656\npause_time = 1",
        ),
        and("pattern = random\npause_time = 100"),
        and("active_time = 100"),
        and("object_size_max = 2000"),
        video_with(
            "objects_per_group",
            "objects_per_group = 1\nobject_size_max = 3000",
        ),
        and("fetch_groups = 2"),
        and("pattern = fetch\nfetch_groups = 0"),
        and("joining_fetch = 10001"),
        and("pattern = fetch\njoining_fetch = 2"),
        video_with("track_mode", "track_mode = datagram\njoining_fetch = 2"),
        and("[audience]\nsockets = many"),
        and("[audience]\nthreads = 0"),
        and("[audience]\nacknowledgements = never"),
        and("[audience]\nreceive_pause = 101"),
        and("[audience]\nreply_spread = 20"),
    ];
    let errors = texts.map(|text| parse(&text).unwrap_err().to_string());
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn values_are_accepted_to_their_limits_and_no_further() {
    let accepts = |key: &str, value: &str| {
        let line = format!("{key} = {value}");
        let with = video_with(key, &line);
        let text = if with == VIDEO.trim_end() {
            format!("{VIDEO}{line}")
        } else {
            with
        };
        parse(&text).is_ok()
    };
    for (key, least, below, most, above) in [
        ("priority", "0", "-1", "255", "256"),
        ("ttl", "1", "0.999999", "3600000", "3600000.000001"),
        (
            "time_interval",
            "0.01",
            "0.009999",
            "3600000",
            "3600000.000001",
        ),
        ("objects_per_group", "1", "0", "10000000", "10000001"),
        ("first_object_size", "25", "24", "16777216", "16777217"),
        ("object_size", "25", "24", "16777216", "16777217"),
        ("extension_headers", "0", "-1", "16", "17"),
        ("extension_header_size", "1", "0", "1024", "1025"),
        ("start_delay", "0", "-1", "34999.999999", "35000"),
        (
            "total_transmit_time",
            "5000.000001",
            "5000",
            "176400000",
            "176400000.000001",
        ),
    ] {
        assert!(accepts(key, least) && accepts(key, most), "{key}");
        assert!(!accepts(key, below) && !accepts(key, above), "{key}");
    }
}

#[test]
fn files_are_accepted_to_their_limits_and_no_further() {
    let padded = |bytes: usize| {
        let comment = format!("{}\n", ";".repeat(LINE_BYTES_MAX));
        let mut text = VIDEO.to_owned();
        while text.len() + comment.len() <= bytes {
            text.push_str(&comment);
        }
        let rest = bytes - text.len();
        text + &";".repeat(rest)
    };
    assert!(parse(&padded(PROFILE_BYTES_MAX)).is_ok());
    assert_eq!(
        problem(&padded(PROFILE_BYTES_MAX + 1)),
        Problem::FileTooLarge
    );

    assert!(parse(&format!("{}\n{VIDEO}", ";".repeat(LINE_BYTES_MAX))).is_ok());
    assert_eq!(
        problem(&format!("{}\n{VIDEO}", ";".repeat(LINE_BYTES_MAX + 1))),
        Problem::LineTooLong
    );

    let tracks = |count: usize| {
        let keys = VIDEO.split_once('\n').unwrap().1;
        let sections = (0..count).map(|track| format!("[{track}]\n{keys}"));
        sections.collect::<Vec<_>>().concat()
    };
    assert_eq!(parse(&tracks(TRACKS_MAX)).unwrap().tracks.len(), TRACKS_MAX);
    assert_eq!(problem(&tracks(TRACKS_MAX + 1)), Problem::TooManyTracks);

    let named = |bytes: usize| VIDEO.replace("360p Video", &"v".repeat(bytes));
    assert!(parse(&named(SECTION_NAME_BYTES_MAX)).is_ok());
    assert_eq!(
        problem(&named(SECTION_NAME_BYTES_MAX + 1)),
        Problem::SectionName
    );

    let bytes = [VIDEO.as_bytes(), b"\xff"].concat();
    assert_eq!(
        Profile::parse("x", &bytes).unwrap_err().problem,
        Problem::NotText
    );
}

#[test]
fn settings_of_a_flag_replace_those_of_the_section() {
    let profile = parse(&format!(
        "{VIDEO}[audience]\nthreads = 4\nslow_subscribers = 5\nslow_read_pause = 9\n"
    ));
    let audience = profile.unwrap().audience;
    let flag =
        "sockets=own, reply_spread = 20,threads=1,churning_subscribers=10,churn_per_second=2";
    let changed = audience.with("--audience", flag).unwrap();
    assert_eq!((changed.threads, changed.slow_subscribers), (Some(1), 5));
    assert_eq!(changed.reply_spread, Duration::from_millis(20));
    assert!(changed.has_own_sockets);
    let problem = |settings: &str| {
        audience
            .with("--audience", settings)
            .unwrap_err()
            .to_string()
    };
    let problems = [
        "",
        "sockets",
        "sockets=own,",
        "socket=own",
        "threads=0",
        "reply_spread=20",
        "churning_subscribers=10",
        "sockets=own,sockets=own",
        "name=1",
    ];
    insta::assert_snapshot!(problems.map(problem).join("\n"));
}

fn secs(first: u64, second: u64) -> (Duration, Duration) {
    (Duration::from_secs(first), Duration::from_secs(second))
}

prop_compose! {
    fn any_track()(
        section in "[A-Za-z][A-Za-z0-9 =]{0,20}[a-z]",
        numbers in (0u8..=255, 1u64..=3600, 10_000u64..3_600_000_000_000, 1u32..=10_000_000),
        sizes in (25u32..=16_777_216, 25u32..=16_777_216),
        times in (0u64..3_600_000_000_000, 1u64..=170_000_000_000_000),
        patterns in (0usize..3, 0u8..=16, 1u16..=1024, 0u32..40),
        more in (1u32..=10_000_000, 0u32..=10_000, prop::bool::ANY, prop::bool::ANY),
        late_join: bool, raw: bool, stream: bool,
        mode in prop_oneof![
            Just(None), Just(Some(Mode::Publisher)), Just(Some(Mode::Subscriber)), Just(Some(Mode::Both))
        ],
    ) -> TrackProfile {
        let template = |text: &str| crate::interpolate::Template::parse(text).unwrap();
        let name = template("{track}-{client:03}");
        TrackProfile {
            section,
            template: TrackTemplate::new(template("perf/{}"), raw, name).unwrap(),
            mode,
            track_mode: if stream { TrackMode::Stream } else { TrackMode::Datagram },
            priority: numbers.0,
            ttl: Duration::from_secs(numbers.1),
            interval: Interval::new(Duration::from_nanos(numbers.2)).unwrap(),
            objects_per_group: ObjectsPerGroup::new(numbers.3).unwrap(),
            first_object_size: ObjectSize::new(sizes.0).unwrap(),
            object_size: ObjectSize::new(sizes.1).unwrap(),
            object_size_max: ObjectSize::new(sizes.1.max(sizes.0)).filter(|_| more.2 && numbers.3 > 1),
            start_delay: Duration::from_nanos(times.0),
            duration: Duration::from_nanos(times.1).max(Duration::from_millis(1)).min(DURATION_MAX),
            has_total_transmit_time: raw,
            late_join,
            stream_mapping: if stream { StreamMapping::ALL[patterns.0] } else { StreamMapping::default() },
            extension_headers: ExtensionHeaders { count: patterns.1, size: patterns.2 },
            pattern: match patterns.3 {
                0 => Pattern::Interval,
                1 => Pattern::Random,
                2 if stream => Pattern::Fetch,
                3 => Pattern::HeavyTail,
                4 => Pattern::Pauses {
                    active: Duration::from_nanos(numbers.2).max(Duration::from_millis(1)),
                    pause: Duration::from_secs(numbers.1),
                },
                objects => Pattern::Bursts { objects: ObjectsPerGroup::new(objects.max(2)).unwrap() },
            },
            fetch_groups: ObjectsPerGroup::new(more.0).filter(|_| more.3 && stream && patterns.3 == 2),
            joining_fetch: (more.3 && stream && patterns.3 != 2).then_some(more.1),
        }
    }
}

prop_compose! {
    fn any_audience()(
        joins in prop::option::of(0u32..=100_000),
        shares in (0u8..100, 1u64..1000, 0u8..100, 0u32..=100_000),
        network in (prop::bool::ANY, prop::option::of(1u16..=1024), prop::bool::ANY, 0u64..=100_000_000, 0u64..=500_000_000),
    ) -> Audience {
        let (own_sockets, threads, immediate, pause_ns, spread_ns) = network;
        Audience {
            joins_per_second: joins,
            slow_subscribers: shares.0,
            slow_read_pause: Duration::from_millis(shares.1),
            churning_subscribers: shares.2.max(1),
            churn_per_second: shares.3.max(1),
            has_own_sockets: own_sockets,
            threads,
            acknowledgements: if immediate { Acknowledgements::Immediate } else { Acknowledgements::Delayed },
            receive_pause: Duration::from_nanos(pause_ns),
            reply_spread: Duration::from_nanos(if own_sockets { spread_ns } else { 0 }),
        }
    }
}

proptest! {
    #[test]
    fn the_canonical_form_is_read_back(
        mut tracks in prop::collection::vec(any_track(), 1..4),
        audience in any_audience(),
    ) {
        for (number, track) in tracks.iter_mut().enumerate() {
            track.section.push_str(&number.to_string());
        }
        let profile = Profile { tracks, audience };
        prop_assert_eq!(parse(&profile.to_ini()), Ok(profile));
    }

    #[test]
    fn any_bytes_are_an_error_at_worst(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = Profile::parse("x", &bytes) {
            prop_assert!(error.to_string().starts_with('x'));
        }
    }

    #[test]
    fn any_lines_are_an_error_at_worst(text in r"(\[[a-z]{0,2}\]?\n|[a-z_]{0,9} ?= ?[0-9a-z{}./;]{0,6}\n|mode=1\n){0,9}") {
        if let Ok(profile) = parse(&text) {
            prop_assert!(!profile.tracks.is_empty());
        }
    }
}
