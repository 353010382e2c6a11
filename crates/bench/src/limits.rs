//! Every limit of the benchmark, each with its reason.

use std::time::Duration;

/// Bytes of a profile file. The draft's longest example has 2 KiB.
pub const PROFILE_BYTES_MAX: usize = 1 << 20;

/// Bytes of one line of a profile, its comment included.
pub const LINE_BYTES_MAX: usize = 4096;

/// Tracks of one profile. Every subscriber keeps the state of every track.
pub const TRACKS_MAX: usize = 64;

/// Bytes of a section's name, which labels its track in reports.
pub const SECTION_NAME_BYTES_MAX: usize = 128;

/// The fewest bytes of an object: a DATA header (decision 25).
pub const OBJECT_BYTES_MIN: u32 = 25;

/// The most bytes of an object. A key frame of 8K video is a few MiB.
pub const OBJECT_BYTES_MAX: u32 = 16 << 20;

/// Objects in one group: a day of 60 objects per second is 5,184,000.
pub const OBJECTS_PER_GROUP_MAX: u32 = 10_000_000;

/// Extension headers of one object. Real video carries three to five.
pub const EXTENSION_HEADERS_MAX: u8 = 16;

/// Bytes of one extension header's value.
pub const EXTENSION_HEADER_BYTES_MAX: u16 = 1024;

/// The shortest interval between two objects of a track.
pub const INTERVAL_MIN: Duration = Duration::from_micros(10);

/// The longest interval, start delay and time to live.
pub const DELAY_MAX: Duration = Duration::from_hours(1);

/// Objects between two pauses of a publisher: their times are kept in a table.
pub const CYCLE_OBJECTS_MAX: u64 = 1 << 16;

/// Groups before the current one that a joining FETCH asks for.
pub const JOINING_GROUPS_MAX: u32 = 10_000;

/// The longest data phase. It keeps a track's time in nanoseconds within 64 bits, and in milliseconds within the 32
/// bits of the draft's messages.
pub const DURATION_MAX: Duration = Duration::from_hours(48);

/// Fields of a track namespace. [moqt-18 §2.4.1]
pub const NAMESPACE_FIELDS_MAX: usize = 32;

/// Bytes of a full track name, namespace and name together. [moqt-18 §2.4.1]
pub const FULL_TRACK_NAME_BYTES_MAX: usize = 4096;

/// The largest width of a template's field: the digits of the largest 64-bit number.
pub const TEMPLATE_WIDTH_MAX: usize = 20;

/// Malformed messages that fail a track.
pub const MALFORMED_MAX: u64 = 100;

/// How many objects behind the newest one a receiver can still tell an object from a duplicate.
pub const SEQUENCE_WINDOW: usize = 32_768;

/// Groups behind the newest one in which a receiver still counts objects.
pub const GROUP_WINDOW: usize = 512;

/// The shortest wait for late objects after COMPLETION (decision 13).
pub const DRAIN_MIN: Duration = Duration::from_secs(2);

/// Bytes of one track's metrics at one subscriber (decision 36).
pub const TRACK_RECEIVER_BYTES_MAX: usize = 64 << 10;

/// The most clients that join, or sessions that churn ends, in one second.
pub const PER_SECOND_MAX: u32 = 100_000;

/// Threads that the subscribers of one process are spread over. Each has an event loop with its receive buffers.
pub const SUBSCRIBER_THREADS_MAX: u16 = 1024;

/// The longest pause between two reads of subscribers' sockets: with 256 KiB of buffer, a longer one loses packets.
pub const RECEIVE_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The longest delay of subscribers' replies: about the largest round trip on Earth.
pub const REPLY_SPREAD_MAX: Duration = Duration::from_millis(500);

/// Subscriptions measured by one process: 2.5 GiB of metrics, at 20 KiB each (decision 36).
pub const SUBSCRIPTIONS_MAX: usize = 1 << 17;

/// Rows of a heat map. If there are more subscribers, several share a row.
pub const HEAT_ROWS_MAX: usize = 40;

/// Columns of a heat map. If there are more seconds, several share a column.
pub const HEAT_COLUMNS_MAX: usize = 60;

/// Tracks of the null relay, and its namespaces.
pub const NULL_RELAY_TRACKS_MAX: usize = 1 << 17;

/// Bytes that the null relay queues for one blocked stream. Beyond this, it resets the stream.
pub const NULL_RELAY_BACKLOG_BYTES_MAX: usize = 4 << 20;

/// Objects that a publisher queues for one blocked stream. Beyond this, objects are dropped.
pub const STREAM_QUEUE_OBJECTS_MAX: usize = 1024;

/// Bytes that a publisher queues for one blocked stream. A single object may be larger.
pub const STREAM_QUEUE_BYTES_MAX: usize = 4 << 20;

/// Open streams of one track at one publisher. Beyond this, the oldest stream is reset.
pub const STREAMS_PER_TRACK_MAX: usize = 64;

/// FETCH requests that one publisher answers at the same time.
pub const FETCHES_MAX: usize = 1024;

/// Items that one track sends in one turn of the event loop, if it is behind its schedule.
pub const ITEMS_PER_TURN_MAX: usize = 64;

/// Connections that a role starts in one turn of the event loop.
pub const CONNECTS_PER_TURN_MAX: usize = 64;

/// Streams of one subscriber whose objects are followed at once.
pub const INCOMING_STREAMS_MAX: usize = 1024;

/// Processes of one run whose subscribers a publisher waits for.
pub const PROCESSES_MAX: usize = 1024;

/// Windows of the figures over time. Beyond this, pairs of windows are merged.
pub const PROGRESS_WINDOWS_MAX: usize = 512;
