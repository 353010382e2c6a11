//! `docs/profile-keys.md`: every key of a profile, from the table that the parser uses. Values and which keys a profile
//! needs come from the parser's own errors.

use std::fmt::Write as _;
use std::path::Path;

use super::super::key::{Key, TABLE};
use super::*;

/// What a key holds, and what a profile without it does.
struct Meaning {
    default: &'static str,
    about: &'static str,
}

const NEEDED: &str = "required";

#[test]
fn the_documentation_lists_every_key() {
    assert!(Profile::parse("video.ini", EXAMPLE.as_bytes()).is_ok());
    let mut page = format!("{HEAD}```ini\n{EXAMPLE}```\n");
    for (title, of_audience) in [("Keys of a track", false), ("Keys of `[audience]`", true)] {
        write!(page, "\n## {title}\n\n").unwrap();
        if of_audience {
            page.push_str(AUDIENCE);
        }
        page.push_str("| key | aliases | values | default | meaning |\n|---|---|---|---|---|\n");
        let keys = TABLE.iter();
        for (key, names) in keys.filter(|(key, _)| key.is_of_audience() == of_audience) {
            let aliases: Vec<String> = names[1..].iter().map(|name| format!("`{name}`")).collect();
            let (aliases, values) = (aliases.join(", "), values(*key));
            let Meaning { default, about } = meaning(*key);
            let name = names[0];
            writeln!(
                page,
                "| `{name}` | {aliases} | {values} | {default} | {about} |"
            )
            .unwrap();
        }
    }
    page.push_str(TAIL);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profile-keys.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        kept, page,
        "docs/profile-keys.md: UPDATE_DOCS=1 cargo test -p weir-bench --lib"
    );
}

/// A profile in which `key` is required says so on the page, and no other.
#[test]
fn the_documentation_knows_which_keys_are_required() {
    for (key, _) in TABLE {
        let text = profile_with(*key, None);
        let missing = parse(&text).err().map(|error| error.problem);
        let is_needed = matches!(missing, Some(Problem::MissingKey { .. }));
        let is_said = meaning(*key).default.starts_with(NEEDED);
        assert_eq!(is_said, is_needed, "{}: {missing:?}", key.name());
    }
}

/// The values that a key may have, as the parser's error names them.
fn values(key: Key) -> String {
    let error = parse(&profile_with(key, Some(""))).expect_err(key.name());
    assert_eq!(error.key.as_deref(), Some(key.name()), "{error}");
    let Problem::Value { expected, .. } = error.problem else {
        panic!("{error}");
    };
    expected
}

/// A profile that is right but for `key`: with this value, or without the key.
fn profile_with(key: Key, value: Option<&str>) -> String {
    let needed_by = [
        (Key::BurstObjects, (Key::Pattern, "bursts")),
        (Key::ActiveTime, (Key::Pattern, "pauses")),
        (Key::ActiveTime, (Key::PauseTime, "100")),
        (Key::PauseTime, (Key::Pattern, "pauses")),
        (Key::PauseTime, (Key::ActiveTime, "100")),
        (Key::FetchGroups, (Key::Pattern, "fetch")),
        (Key::SlowReadPause, (Key::SlowSubscribers, "10")),
        (Key::ChurnPerSecond, (Key::ChurningSubscribers, "10")),
    ];
    let others = needed_by.into_iter().filter(|(of, _)| *of == key);
    let own = value.map(|value| (key, value));
    let (audience, track): (Vec<_>, Vec<_>) = others
        .map(|(_, other)| other)
        .chain(own)
        .partition(|(key, _)| key.is_of_audience());
    let lines = |pairs: &[(Key, &str)]| -> String {
        let lines = pairs
            .iter()
            .map(|(key, value)| format!("{} = {value}\n", key.name()));
        lines.collect()
    };
    let is_kept = |line: &&str| line.split(' ').next() != Some(key.name());
    let base: Vec<&str> = VIDEO.lines().filter(is_kept).collect();
    format!(
        "{}\n{}[audience]\n{}",
        base.join("\n"),
        lines(&track),
        lines(&audience)
    )
}

fn meaning(key: Key) -> Meaning {
    let row = MEANINGS.iter().find(|(known, ..)| *known == key);
    let (_, default, about) = *row.expect("every key has a meaning");
    Meaning { default, about }
}

/// Each key with its default and what it means.
const MEANINGS: &[(Key, &str, &str)] = &[
    (
        Key::Namespace,
        NEEDED,
        "Track namespace, a template. `/` separates its fields.",
    ),
    (
        Key::NamespaceRaw,
        "`false`",
        "`true`: the namespace is one field, with its slashes.",
    ),
    (Key::Name, NEEDED, "Track name, a template."),
    (
        Key::TrackMode,
        "required, or `reliable`",
        "`datagram`: each object in a QUIC datagram. `stream`: on QUIC streams, as `stream_mapping` says.",
    ),
    (
        Key::Reliable,
        "`track_mode`",
        "`true` is `track_mode = stream`, `false` is `datagram`. If both keys are given, they must agree.",
    ),
    (
        Key::Mode,
        "`3`",
        "What this process does with the track. `--role` wins over it.",
    ),
    (
        Key::Priority,
        NEEDED,
        "MOQT publisher priority; lower is sent first.",
    ),
    (
        Key::Ttl,
        NEEDED,
        "How long an object may wait to be sent: then a datagram is dropped, a group's stream reset. It is also the delivery timeout \
         that the track announces, and objects that take longer count as late.",
    ),
    (Key::TimeInterval, NEEDED, "Time between two objects."),
    (Key::ObjectsPerGroup, NEEDED, "Objects in a group."),
    (
        Key::FirstObjectSize,
        NEEDED,
        "Size of the first object of every group, with the 25 bytes of the DATA header.",
    ),
    (
        Key::ObjectSize,
        NEEDED,
        "Size of the other objects, with the DATA header.",
    ),
    (
        Key::ObjectSizeMax,
        "`object_size`",
        "Size of the largest of the other objects, which then begin at `object_size` and vary with a heavy tail: half are below 1.7 \
         times `object_size`, one in twenty above 9 times.",
    ),
    (
        Key::StartDelay,
        NEEDED,
        "How long START messages are sent before the first object.",
    ),
    (
        Key::TotalTransmitTime,
        "required, or `duration` or `total_test_time`",
        "Start delay and objects together; with `--wire qperf` the objects alone, as qperf has it. It must agree with `duration`.",
    ),
    (
        Key::TotalTestTime,
        "`total_transmit_time`",
        "The same in qperf's older templates, and with `--wire qperf` too.",
    ),
    (
        Key::Duration,
        "`total_transmit_time` − `start_delay`",
        "How long objects are sent, without the start delay.",
    ),
    (
        Key::LateJoin,
        "`false`",
        "`true`: a subscriber that joins after START counts all the same. Use it with `--no-wait`.",
    ),
    (
        Key::StreamMapping,
        "`subgroup_per_group`",
        "Which stream carries an object: one per group, one per object, or two per group (`two_subgroups`: even object numbers on one, \
         odd ones on the other). Not for datagram tracks.",
    ),
    (
        Key::ExtensionHeaders,
        "`0`",
        "Extension headers (\"properties\" since draft-17) of each object. Subscribers check that they arrive unchanged. Real video \
         carries three or more.",
    ),
    (
        Key::ExtensionHeaderSize,
        "`8`",
        "Bytes of the value of each extension header.",
    ),
    (
        Key::Pattern,
        "`interval`",
        "When objects are sent; see [patterns](#patterns).",
    ),
    (
        Key::BurstObjects,
        "required with `pattern = bursts`",
        "Objects in a burst. Bursts are as rare as keeps the average rate.",
    ),
    (
        Key::ActiveTime,
        "required with `pattern = pauses`",
        "How long the publisher sends until it pauses. At most 65,536 objects.",
    ),
    (
        Key::PauseTime,
        "required with `pattern = pauses`",
        "How long it sends nothing then.",
    ),
    (
        Key::FetchGroups,
        "all groups",
        "With `pattern = fetch`: groups that one FETCH asks for. A subscriber fetches the ranges of a track one after the other.",
    ),
    (
        Key::JoiningFetch,
        "no FETCH",
        "Groups before the current one that a subscriber fetches when it joins a track under way, with `late_join` or after it churned \
         (joining FETCH). Fetched objects count as received, and have no latency; `set-up` shows how long the FETCH took. A refused one \
         fails the subscription. For stream tracks that are not fetched.",
    ),
    (
        Key::JoinsPerSecond,
        "`--ramp`, or 200",
        "Clients that start per second; `0`: all at once. `--ramp` wins over it.",
    ),
    (
        Key::SlowSubscribers,
        "`0`",
        "Share of the subscribers that leave their data streams unread. They cannot leave datagrams unread.",
    ),
    (
        Key::SlowReadPause,
        "required with `slow_subscribers`",
        "Time from one reading to the next. A pause longer than the run: they never read.",
    ),
    (
        Key::ChurningSubscribers,
        "`0`",
        "Share of the subscribers that leave and come back with a new session.",
    ),
    (
        Key::ChurnPerSecond,
        "required with `churning_subscribers`",
        "Sessions that end and begin again per second, over all of these subscribers, in turn.",
    ),
    (
        Key::Sockets,
        "`shared`",
        "UDP sockets: one for all subscribers of a thread, or one for each.",
    ),
    (
        Key::Threads,
        "one on each core of the subscribers",
        "Threads that the subscribers are spread over, at most one for each.",
    ),
    (
        Key::Acknowledgements,
        "`delayed`",
        "`delayed`: every second packet, or after 25 ms, unless the relay asks for another number (ACK_FREQUENCY). `immediate`: every \
         packet, whatever the relay asks for.",
    ),
    (
        Key::ReceivePause,
        "`0.5`",
        "Time between two reads of a thread while packets arrive: they are handled together. `0`: each packet wakes the thread.",
    ),
    (
        Key::ReplySpread,
        "`0`",
        "Largest delay of outgoing packets. Each subscriber has a delay of its own, so acknowledgements reach the relay one by one, \
         as over paths of different length. Needs `sockets = own`.",
    ),
];

const HEAD: &str = "\
# Keys of a benchmark profile

A profile is an INI file as in Appendix A of draft-evens-moq-bench-00. Each `[section]` is a track, and its name labels the track in reports;
`[audience]` is the one section that is no track.

- A `;` begins a comment, also behind a value; so does a `#` at the beginning of a line or after a blank. Case of keys does not matter, and a space in a key stands for `_`.
- The aliases are names from Table 1 of the draft.
- Times are in milliseconds, and may have decimals. Sizes are in bytes.
- An unknown, repeated, missing or contradictory key is an error that names file, line and key.

`cargo test -p weir-bench --lib` compares this page with the parser; `UPDATE_DOCS=1` before it writes the page.

## Profiles

The folder `profiles` has these:

| profile | traffic |
|---|---|
| `audio.ini` | scenario 1 of the draft: audio by datagram |
| `audio-video.ini` | scenario 2: the same, and video at 360p by stream |
| `meeting.ini` | scenario 3, with `--meetings 10 --clients-per-meeting 5`: every client publishes and subscribes, on one connection |
| `slow-readers.ini` | one subscriber in ten reads its streams every 30 s |
| `reconnect-churn.ini` | a third of the subscribers reconnect, 20 each second |
| `join-storm.ini` | everybody joins at once; look at `set-up`. The same with any profile: `--ramp 0` |
| `gop-bursts.ini` | four cameras send whole groups of pictures at the same instant |
| `interactive.ini` | speech with pauses; events whose sizes and intervals have heavy tails; extension headers |
| `late-joiners.ini` | half of the subscribers return, and fetch what they missed (joining FETCH) |
| `separate-clients.ini` | subscribers that share no socket, thread or acknowledgement |
| `audio-`, `audio-video-`, `meeting-short.ini` | the same for three seconds |

## Your own profile

Save this as `video.ini`, and run `weir bench video.ini` (with `--relay`, or weir starts its own). For a second track, copy the section with
another section name and `name`.

";

/// A profile, as the page shows it.
const EXAMPLE: &str = "\
[Video]
namespace           = perf/video/{}   ; {} is the publisher's number, / separates fields
name                = 1
track_mode          = stream          ; or datagram
priority            = 3               ; 0 to 255, lower is sent first
ttl                 = 2000            ; ms
time_interval       = 33.34           ; ms
objects_per_group   = 30
first_object_size   = 21333           ; bytes, of the first object of every group
object_size         = 2666            ; 8 * (21333 + 29 * 2666) bits a second: 0.79 Mbit/s
start_delay         = 1000            ; ms
total_transmit_time = 6000            ; ms: 5 s and the start delay
";

const AUDIENCE: &str = "\
How subscribers behave. Slow and churning subscribers are reported apart: figures over subscribers, and the service level, are about the
others. Clients of meetings cannot be either. `--audience KEY=VALUE,...` wins over the section.

";

const TAIL: &str = "
## Templates

Namespace and name may hold fields in braces, which each run fills in:

| field | number of |
|---|---|
| `{}`, `{0}` | the publisher, in the whole run |
| `{client}` | the publisher, in its meeting |
| `{meeting}` | the meeting |
| `{track}` | the track, in its profile, from 0 |
| `{run}` | the run, which is its seed |

A width of 1 to 20 digits may follow: `{client:04}` is `0007`. `{{` and `}}` are braces. `{}` may stand once. Two publishers of one full track
name are an error.

## Patterns

| `pattern` | objects are sent |
|---|---|
| `interval` | one in each interval, at its beginning |
| `random` | one in each interval, at a moment that follows from `--seed` |
| `bursts` | `burst_objects` at once; with `burst_objects` = `objects_per_group`, whole groups |
| `pauses` | one in each interval for `active_time`, none for `pause_time`, and so on |
| `heavy_tail` | with times between them that vary by the seed: most are short, few are up to a hundred times the shortest (Pareto, shape 4/3). The mean is `time_interval` |
| `fetch` | when a subscriber's FETCH asks for them, as fast as its stream accepts them |

Of `fetch`:

- A track is fetched as a whole, or in ranges of `fetch_groups`, during its `total_transmit_time`.
- There is no latency, since objects out of a cache were not sent for who fetches them. The default service level is `loss=0,failed=0`.
- The expected bit rate is that of real time; the average one is over the time of the fetch.
- It needs a stream track.
";
