//! The keys of a profile and their names.

/// A key of a track's section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Namespace,
    NamespaceRaw,
    Name,
    TrackMode,
    Reliable,
    Mode,
    Priority,
    Ttl,
    TimeInterval,
    ObjectsPerGroup,
    FirstObjectSize,
    ObjectSize,
    ObjectSizeMax,
    StartDelay,
    TotalTransmitTime,
    TotalTestTime,
    Duration,
    LateJoin,
    StreamMapping,
    ExtensionHeaders,
    ExtensionHeaderSize,
    Pattern,
    BurstObjects,
    ActiveTime,
    PauseTime,
    FetchGroups,
    JoiningFetch,
    JoinsPerSecond,
    SlowSubscribers,
    SlowReadPause,
    ChurningSubscribers,
    ChurnPerSecond,
    Sockets,
    Threads,
    Acknowledgements,
    ReceivePause,
    ReplySpread,
}

impl Key {
    /// Finds a key by its canonical name or an alias. Case is ignored, and the blanks of Table 1's `Objects Per Group`
    /// stand for underscores.
    pub(super) fn find(name: &str) -> Option<Self> {
        let folded: String = name
            .split_ascii_whitespace()
            .collect::<Vec<_>>()
            .join("_")
            .to_ascii_lowercase();
        let row = TABLE
            .iter()
            .find(|(_, names)| names.contains(&folded.as_str()));
        row.map(|(key, _)| *key)
    }

    /// Returns the canonical name.
    pub(super) fn name(self) -> &'static str {
        let row = TABLE.iter().find(|(key, _)| *key == self);
        row.expect("every key has a row, as a test shows").1[0]
    }

    /// Whether the key belongs to `[audience]` instead of a track.
    pub(super) fn is_of_audience(self) -> bool {
        self >= Self::JoinsPerSecond
    }

    /// Returns the canonical names of the keys of `[audience]`, or of a track, for an error message.
    pub(super) fn names(of_audience: bool) -> String {
        TABLE
            .iter()
            .filter(|(key, _)| key.is_of_audience() == of_audience)
            .map(|(_, names)| names[0])
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Every key with its names, the canonical name first. Keys of the draft's Appendix A precede weir's own. Aliases are
/// the names of the draft's Table 1, and those of qperf's older templates.
pub(super) const TABLE: &[(Key, &[&str])] = &[
    (Key::Namespace, &["namespace"]),
    (Key::Name, &["name"]),
    (Key::TrackMode, &["track_mode"]),
    (Key::Reliable, &["reliable"]),
    (Key::Mode, &["mode"]),
    (Key::Priority, &["priority"]),
    (Key::Ttl, &["ttl"]),
    (Key::TimeInterval, &["time_interval", "interval"]),
    (
        Key::ObjectsPerGroup,
        &["objects_per_group", "objs_per_group"],
    ),
    (
        Key::FirstObjectSize,
        &["first_object_size", "bytes_per_group_start"],
    ),
    (
        Key::ObjectSize,
        &["object_size", "remaining_object_size", "bytes_per_group"],
    ),
    (Key::StartDelay, &["start_delay"]),
    (Key::TotalTransmitTime, &["total_transmit_time"]),
    (Key::Duration, &["duration"]),
    (Key::TotalTestTime, &["total_test_time"]),
    (Key::NamespaceRaw, &["namespace_raw"]),
    (Key::LateJoin, &["late_join"]),
    (Key::StreamMapping, &["stream_mapping"]),
    (Key::ObjectSizeMax, &["object_size_max"]),
    (Key::ExtensionHeaders, &["extension_headers"]),
    (Key::ExtensionHeaderSize, &["extension_header_size"]),
    (Key::Pattern, &["pattern"]),
    (Key::BurstObjects, &["burst_objects"]),
    (Key::ActiveTime, &["active_time"]),
    (Key::PauseTime, &["pause_time"]),
    (Key::FetchGroups, &["fetch_groups"]),
    (Key::JoiningFetch, &["joining_fetch"]),
    (Key::JoinsPerSecond, &["joins_per_second"]),
    (Key::SlowSubscribers, &["slow_subscribers"]),
    (Key::SlowReadPause, &["slow_read_pause"]),
    (Key::ChurningSubscribers, &["churning_subscribers"]),
    (Key::ChurnPerSecond, &["churn_per_second"]),
    (Key::Sockets, &["sockets"]),
    (Key::Threads, &["threads"]),
    (Key::Acknowledgements, &["acknowledgements"]),
    (Key::ReceivePause, &["receive_pause"]),
    (Key::ReplySpread, &["reply_spread"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_key_and_no_other() {
        for (key, names) in TABLE {
            assert_eq!(key.name(), names[0]);
            for name in *names {
                assert_eq!(Key::find(name), Some(*key), "{name}");
                assert_eq!(
                    Key::find(&name.replace('_', "  ").to_uppercase()),
                    Some(*key)
                );
            }
        }
        let mut names: Vec<_> = TABLE.iter().flat_map(|(_, names)| *names).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(
            names.len(),
            TABLE.iter().map(|(_, names)| names.len()).sum::<usize>()
        );
        assert_eq!(Key::find("priorities"), None);
        assert_eq!(Key::find(""), None);
    }
}
