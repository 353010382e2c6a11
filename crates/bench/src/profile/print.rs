//! Prints a profile in canonical form.

use std::fmt::{Display, Write as _};

use weir_quic::tls::Acknowledgements;

use super::key::Key;
use super::value::print_milliseconds;
use super::{Audience, ExtensionHeaders, Mode, Pattern, Profile, StreamMapping, TrackProfile};

/// Prints each track as a section, with the keys of the draft's Appendix A in its order.
pub(super) fn to_ini(profile: &Profile) -> String {
    let mut sections: Vec<String> = profile.tracks.iter().map(section).collect();
    if profile.audience != Audience::default() {
        sections.push(audience(&profile.audience));
    }
    sections.join("\n")
}

fn audience(audience: &Audience) -> String {
    let mut text = format!("[{}]\n", super::ini::AUDIENCE);
    let mut pair = |key: Key, value: &dyn Display| {
        let name = key.name();
        writeln!(text, "{name:WIDTH$} = {value}").expect("writing to a string succeeds");
    };
    if let Some(rate) = audience.joins_per_second {
        pair(Key::JoinsPerSecond, &rate);
    }
    if audience.slow_subscribers > 0 {
        pair(Key::SlowSubscribers, &audience.slow_subscribers);
    }
    if !audience.slow_read_pause.is_zero() {
        pair(
            Key::SlowReadPause,
            &print_milliseconds(audience.slow_read_pause),
        );
    }
    if audience.churning_subscribers > 0 {
        pair(Key::ChurningSubscribers, &audience.churning_subscribers);
    }
    if audience.churn_per_second > 0 {
        pair(Key::ChurnPerSecond, &audience.churn_per_second);
    }
    let plain = Audience::default();
    if audience.has_own_sockets {
        pair(Key::Sockets, &"own");
    }
    if let Some(threads) = audience.threads {
        pair(Key::Threads, &threads);
    }
    if audience.acknowledgements == Acknowledgements::Immediate {
        pair(Key::Acknowledgements, &"immediate");
    }
    if audience.receive_pause != plain.receive_pause {
        pair(
            Key::ReceivePause,
            &print_milliseconds(audience.receive_pause),
        );
    }
    if !audience.reply_spread.is_zero() {
        pair(Key::ReplySpread, &print_milliseconds(audience.reply_spread));
    }
    text
}

fn section(track: &TrackProfile) -> String {
    let mut text = format!("[{}]\n", track.section);
    let mut pair = |key: Key, value: &dyn Display| {
        let name = key.name();
        writeln!(text, "{name:WIDTH$} = {value}").expect("writing to a string succeeds");
    };
    pair(Key::Namespace, track.template.namespace());
    if track.template.namespace_raw() {
        pair(Key::NamespaceRaw, &true);
    }
    pair(Key::Name, track.template.name());
    if let Some(mode) = track.mode {
        pair(Key::Mode, &mode_number(mode));
    }
    pair(Key::TrackMode, &track.track_mode.name());
    pair(Key::Priority, &track.priority);
    pair(Key::Ttl, &print_milliseconds(track.ttl));
    pair(
        Key::TimeInterval,
        &print_milliseconds(track.interval.duration()),
    );
    pair(Key::ObjectsPerGroup, &track.objects_per_group.count());
    pair(Key::FirstObjectSize, &track.first_object_size.bytes());
    pair(Key::ObjectSize, &track.object_size.bytes());
    if let Some(most) = track.object_size_max {
        pair(Key::ObjectSizeMax, &most.bytes());
    }
    pair(Key::StartDelay, &print_milliseconds(track.start_delay));
    let (key, time) = if track.has_total_transmit_time {
        (Key::TotalTransmitTime, track.total_transmit_time())
    } else {
        (Key::Duration, track.duration)
    };
    pair(key, &print_milliseconds(time));
    if track.late_join {
        pair(Key::LateJoin, &true);
    }
    if track.stream_mapping != StreamMapping::default() {
        pair(Key::StreamMapping, &track.stream_mapping.name());
    }
    if track.extension_headers != ExtensionHeaders::NONE {
        pair(Key::ExtensionHeaders, &track.extension_headers.count);
        pair(Key::ExtensionHeaderSize, &track.extension_headers.size);
    }
    match track.pattern {
        Pattern::Interval => {}
        Pattern::Random => pair(Key::Pattern, &"random"),
        Pattern::Bursts { objects } => {
            pair(Key::Pattern, &"bursts");
            pair(Key::BurstObjects, &objects.count());
        }
        Pattern::Pauses { active, pause } => {
            pair(Key::Pattern, &"pauses");
            pair(Key::ActiveTime, &print_milliseconds(active));
            pair(Key::PauseTime, &print_milliseconds(pause));
        }
        Pattern::HeavyTail => pair(Key::Pattern, &"heavy_tail"),
        Pattern::Fetch => pair(Key::Pattern, &"fetch"),
    }
    if let Some(groups) = track.fetch_groups {
        pair(Key::FetchGroups, &groups.count());
    }
    if let Some(groups) = track.joining_fetch {
        pair(Key::JoiningFetch, &groups);
    }
    text
}

fn mode_number(mode: Mode) -> u8 {
    match mode {
        Mode::Publisher => 1,
        Mode::Subscriber => 2,
        Mode::Both => 3,
    }
}

/// The length of `total_transmit_time`, the longest key.
const WIDTH: usize = 19;
