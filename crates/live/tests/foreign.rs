//! Streams of other publishers, with their layouts, and without frame tags.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use serde_json::json;
use weir_client::client::Client;
use weir_client::target::Target;
use weir_client::turn::Turn;
use weir_live::limits::CATALOG_BYTES_MAX;
use weir_live::packaging::{LOC_TIMESCALE, LOC_TIMESTAMP, Packaging};
use weir_live::playout::BufferChoice;
use weir_live::{Choice, Frame, Ingest, Init, Item, Join, Media, Timebase, Viewer, ViewerConfig};
use weir_moqt::data::{ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId};
use weir_moqt::draft::Draft;
use weir_moqt::error::PublishDoneCode;
use weir_moqt::message::PublishDone;
use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_moqt::parameter::Parameters;
use weir_moqt::property::Properties;
use weir_moqt::session::{Event as SessionEvent, RequestId};
use weir_quic::{App, Connection, Endpoint, Event};
use weir_relay::Relay;
use weir_report::lab::Figures;
use weir_sim::{NodeConfig, SERVER_NAME, Sim};
use weir_transport::{Direction, StreamId, Transport as _};

/// 36 frames in groups of 15 and 6.
const PYRAMID: &[u8] = include_bytes!("media/pyramid.mp4");

/// A publisher's layout: tracks with one object each, and a video track.
#[derive(Debug)]
struct Layout {
    /// The group of the objects in `held`.
    group: u64,
    held: Vec<(&'static str, Bytes)>,
    video: &'static str,
    packaging: Packaging,
}

fn media() -> (Box<Init>, Vec<Frame>) {
    let mut ingest = Ingest::new();
    ingest.push(PYRAMID);
    let (mut init, mut frames) = (None, Vec::new());
    while let Some(item) = ingest.poll().expect("a whole stream") {
        match item {
            Item::Init(found) => init = Some(found),
            Item::Frame(frame) => frames.push(frame),
            Item::Audio { .. } => {}
        }
    }
    (init.expect("the init segment comes first"), frames)
}

fn catalog(value: &serde_json::Value) -> Bytes {
    Bytes::from(value.to_string())
}

/// The layout of moq-dev's `moq-cli`: MSF, with the init segment in the catalog.
fn msf_cmaf() -> Layout {
    let (init, _) = media();
    let json = json!({"version": "draft-01", "tracks": [
        {"name": "audio0", "packaging": "cmaf", "role": "audio", "codec": "mp4a.40.2", "initData": "AAAA"},
        {"name": "video0", "packaging": "cmaf", "isLive": true, "role": "video", "codec": "avc1.64000a", "initRef": "v"},
    ], "initDataList": [{"id": "v", "type": "inline", "data": STANDARD.encode(&init.segment)}]});
    Layout {
        group: 0,
        held: vec![("catalog", catalog(&json))],
        video: "video0",
        packaging: Packaging::Cmaf,
    }
}

/// MSF with coded frames.
fn msf_loc() -> Layout {
    let (init, _) = media();
    let Media::Video { configuration, .. } = &init.video.media else {
        panic!("the video track is video");
    };
    let json = json!({"version": "1", "tracks": [
        {"name": "camera", "packaging": "loc", "role": "video", "codec": "avc1.64000a", "timescale": 90_000,
         "initData": STANDARD.encode(configuration)},
    ]});
    Layout {
        group: 0,
        held: vec![("catalog", catalog(&json))],
        video: "camera",
        packaging: Packaging::Loc,
    }
}

/// The layout of Cloudflare's `moq-pub`: the form that preceded MSF, with the init segment on a track of its own.
fn earlier() -> Layout {
    let (init, _) = media();
    let json = json!({"version": 1, "streamingFormat": 1, "streamingFormatVersion": "0.2",
        "commonTrackFields": {"packaging": "cmaf", "renderGroup": 1},
        "tracks": [{"name": "1.m4s", "initTrack": "0.mp4", "selectionParams": {"codec": "avc1.64000a"}}]});
    Layout {
        group: 0,
        held: vec![
            ("0.mp4", init.segment.clone()),
            (".catalog", catalog(&json)),
        ],
        video: "1.m4s",
        packaging: Packaging::Cmaf,
    }
}

/// Another publisher.
#[derive(Debug)]
struct Publisher {
    client: Client,
    layout: Layout,
    frames: Vec<Frame>,
    begins_at: Instant,
    /// Requests by track alias.
    requests: Vec<RequestId>,
    next: usize,
    streams: BTreeMap<u64, (StreamId, u64)>,
    /// Kept objects that the connection has not accepted.
    waiting: Vec<(StreamId, Bytes)>,
    is_over: bool,
}

impl Publisher {
    fn new(target: Target, layout: Layout, begins_at: Instant) -> Self {
        Self {
            client: Client::new(Arc::new(target)),
            layout,
            frames: media().1,
            begins_at,
            requests: Vec::new(),
            next: 0,
            streams: BTreeMap::new(),
            waiting: Vec::new(),
            is_over: false,
        }
    }

    fn offer(&mut self, turn: &mut Turn<'_>) {
        let opened = self.client.open(turn);
        let (session, mut connection) = opened.expect("it is ready");
        let connection = &mut connection;
        let held = self.layout.held.iter().map(|(name, _)| *name);
        for (name, alias) in held.chain([self.layout.video]).zip(0..) {
            let name = TrackName::new(name).expect("short");
            let name = FullTrackName::new(namespace(), name).expect("short");
            let parameters = Parameters::default();
            let request = session.publish(connection, name, alias, parameters, Properties::EMPTY);
            self.requests.push(request.expect("few requests"));
        }
        for ((_, payload), alias) in self.layout.held.iter().zip(0..) {
            let stream = connection.open(Direction::Uni).expect("few streams");
            let header = Some((alias, self.layout.group));
            let bytes = object(header, None, 0, Properties::EMPTY, payload);
            self.waiting.push((stream, bytes));
        }
    }

    fn flush(&mut self, turn: &mut Turn<'_>) {
        let Some((_, mut connection)) = self.client.open(turn) else {
            return;
        };
        let connection = &mut connection;
        self.waiting.retain_mut(|(stream, bytes)| {
            let is_written = connection.write(*stream, bytes).is_ok();
            if is_written {
                connection.finish(*stream);
            }
            !is_written
        });
    }

    /// Sends what is due.
    fn advance(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let Some((session, mut connection)) = self.client.open(turn) else {
            return;
        };
        let connection = &mut connection;
        while let Some(frame) = self.frames.get(self.next)
            && self.begins_at + decoded_after(frame) <= now
        {
            self.next += 1;
            let (properties, payload) = match self.layout.packaging {
                Packaging::Cmaf => (Properties::EMPTY, &frame.fragment),
                Packaging::Loc => {
                    let time = u64::try_from(frame.presentation_us).expect("positive");
                    let time = Properties::builder().int(LOC_TIMESTAMP, time);
                    (time.int(LOC_TIMESCALE, 1_000_000).build(), &frame.sample)
                }
            };
            let known = self.streams.get(&frame.group).copied();
            let stream = known.map(|(stream, _)| stream);
            let stream = stream.unwrap_or_else(|| {
                for (stream, _) in self.streams.values() {
                    connection.finish(*stream);
                }
                connection.open(Direction::Uni).expect("few streams")
            });
            let alias = self.layout.held.len() as u64;
            let header = known.is_none().then_some((alias, frame.group));
            let previous = known.map(|(_, previous)| previous);
            let bytes = object(header, previous, frame.index, properties, payload);
            write(connection, stream, bytes);
            self.streams.insert(frame.group, (stream, frame.index));
        }
        if self.next == self.frames.len() && !std::mem::replace(&mut self.is_over, true) {
            for (stream, _) in self.streams.values() {
                connection.finish(*stream);
            }
            for (place, request) in self.requests.iter().enumerate() {
                let is_video = place == self.layout.held.len();
                let streams = if is_video { self.streams.len() } else { 1 };
                let done = PublishDone {
                    code: PublishDoneCode::TRACK_ENDED,
                    stream_count: Some(streams as u64),
                    reason: String::new(),
                };
                session.publish_done(connection, *request, done);
            }
        }
    }
}

fn decoded_after(frame: &Frame) -> Duration {
    Duration::from_micros(u64::try_from(frame.decode_us).expect("positive"))
}

/// Encodes an object of a subgroup, after the stream's header if the object is the first.
fn object(
    header: Option<(u64, u64)>,
    previous: Option<u64>,
    id: u64,
    properties: Properties,
    payload: &Bytes,
) -> Bytes {
    let mut bytes = BytesMut::new();
    if let Some((track_alias, group)) = header {
        SubgroupHeader {
            track_alias,
            group,
            subgroup: SubgroupId::Zero,
            priority: Some(100),
            has_properties: true,
            end_of_group: false,
            first_object: true,
        }
        .encode(Draft::KEPT, &mut bytes);
    }
    ObjectHeader {
        id,
        properties,
        status: ObjectStatus::Normal,
        payload_len: payload.len() as u64,
    }
    .encode_in_subgroup(previous, true, Draft::KEPT, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes.freeze()
}

fn write(connection: &mut Connection<'_>, stream: StreamId, mut bytes: Bytes) {
    connection.write(stream, &mut bytes).expect("there is room");
}

impl App for Publisher {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        // Writable streams do not matter in these stories.
        let _room = self.client.handle_event(turn, event);
        while let Some(event) = self.client.poll_event() {
            if matches!(event, SessionEvent::Ready { .. }) {
                self.offer(turn);
            }
        }
        self.flush(turn);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !self.client.has_started() {
            return self.begins_at.checked_sub(PREPARATION);
        }
        let frame = self
            .frames
            .get(self.next)
            .filter(|_| !self.requests.is_empty())?;
        Some(self.begins_at + decoded_after(frame))
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        if !self.client.has_started() {
            return self.client.connect(turn, 0);
        }
        self.advance(turn);
    }

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// How long before its first frame a publisher connects.
const PREPARATION: Duration = Duration::from_millis(500);

fn namespace() -> Namespace {
    Namespace::new(["live"]).expect("short")
}

/// Plays a publisher that connects a second after the player. `look` checks the player at the end.
fn play(layout: Layout, look: impl FnOnce(&Viewer)) {
    play_both(layout, None, look);
}

/// Plays a publisher, and another that connects before the first has ended.
fn play_both(layout: Layout, later: Option<Layout>, look: impl FnOnce(&Viewer)) {
    let mut sim = Sim::new(3);
    let server = Some(sim.server_tls(&Draft::alpns()));
    let relay = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    let nodes = [(); 3].map(|()| sim.add_node(NodeConfig::default()));
    sim.start(relay, Relay::new(weir_relay::Config::default()));
    let target = Target::new(
        sim.address(relay),
        SERVER_NAME,
        sim.client_config(&Draft::alpns()),
    );
    let timebase = Timebase {
        at: sim.now(),
        us: 0,
    };
    let viewer = ViewerConfig {
        target: target.clone(),
        namespace: namespace(),
        choice: Choice::Catalog,
        join: Join::Next,
        buffer: BufferChoice::Strategy,
        rendezvous_timeout: Duration::from_secs(5),
        reconnect_timeout: Duration::ZERO,
        timebase,
    };
    sim.start(nodes[0], Viewer::new(viewer));
    let begins_at = sim.instant(Duration::from_millis(1500));
    sim.start(nodes[1], Publisher::new(target.clone(), layout, begins_at));
    if let Some(later) = later {
        let begins_at = sim.instant(Duration::from_millis(2700));
        sim.start(nodes[2], Publisher::new(target, later, begins_at));
    }
    sim.run_until(Duration::from_secs(20), |_| false);
    look(sim.app::<Viewer>(nodes[0]));
}

#[test]
fn each_layout_is_played_and_what_is_not_told_is_not_made_up() {
    for (layout, name, packaging) in [
        (msf_cmaf(), "video0", Packaging::Cmaf),
        (msf_loc(), "camera", Packaging::Loc),
        (earlier(), "1.m4s", Packaging::Cmaf),
    ] {
        play(layout, |viewer| {
            assert_eq!(viewer.failure(), None, "{name}");
            let plan = viewer.plan().expect("it has read a catalog");
            assert_eq!(
                (&*plan.video[0].name, plan.strategy.as_deref()),
                (name, None)
            );
            assert_eq!(plan.video[0].packaging(), packaging);
            let records = viewer.records();
            let kinds: String = records.iter().map(|record| record.kind).collect();
            let expected: String = media().1.iter().map(|frame| frame.kind.letter()).collect();
            assert_eq!(kinds, expected, "{name}");
            assert!(records.iter().all(|record| record.available_us.is_none()));
            let shown = records.iter().filter(|record| record.shown_us.is_some());
            // LOC has no decode times, so some frames arrive too late for their position in decoding order.
            let least = if packaging == Packaging::Loc { 18 } else { 36 };
            assert!(shown.count() >= least, "{name}");
            assert!(viewer.is_finished(), "{name}: the stream is over");
            let figures = Figures::of_received(records, 0, 3_000_000);
            assert_eq!((figures.frames, figures.delays), (36, None));
            assert_eq!(viewer.objects_unknown(), 0);
        });
    }
}

#[test]
fn a_catalog_with_nothing_to_see_is_refused_with_what_it_lists() {
    let sound = json!({"tracks": [{"name": "radio", "packaging": "loc", "role": "audio", "codec": "opus"}]});
    let layout = Layout {
        held: vec![("catalog", catalog(&sound))],
        ..msf_loc()
    };
    play(layout, |viewer| {
        let reason =
            "the catalog lists no video with packaging loc or cmaf, only \"radio\" (loc opus)";
        assert_eq!(viewer.failure(), Some(reason));
    });
}

#[test]
fn a_later_catalog_is_followed_to_the_tracks_that_it_names() {
    // The second init segment is another object of the same track.
    let next = json!({"version": 1, "commonTrackFields": {"packaging": "cmaf"},
        "tracks": [{"name": "2.m4s", "initTrack": "0.mp4", "selectionParams": {"codec": "avc1.64000a"}}]});
    let earlier_again = Layout {
        group: 1,
        held: vec![("0.mp4", media().0.segment), (".catalog", catalog(&next))],
        video: "2.m4s",
        packaging: Packaging::Cmaf,
    };
    let loc_again = Layout {
        group: 1,
        ..msf_loc()
    };
    for (first, later, name) in [
        (msf_cmaf(), loc_again, "camera"),
        (earlier(), earlier_again, "2.m4s"),
    ] {
        play_both(first, Some(later), |viewer| {
            assert_eq!(viewer.failure(), None, "{name}");
            assert_eq!(viewer.catalogs_followed(), 1, "{name}");
            let plan = viewer.plan().expect("it has read a catalog");
            assert_eq!(&*plan.video[0].name, name);
            // The first stream as far as it was sent, and all of the second.
            assert!(viewer.records().len() > 36 + 10, "{name}");
            assert_eq!(viewer.objects_unknown(), 0, "{name}");
            assert!(viewer.is_finished(), "{name}: the stream is over");
        });
    }
}

#[test]
fn a_later_catalog_that_is_of_no_use_is_counted_and_changes_nothing() {
    let sound = json!({"tracks": [{"name": "radio", "packaging": "loc", "role": "audio", "codec": "opus"}]});
    for useless in [catalog(&sound), Bytes::from_static(b"no JSON")] {
        let later = Layout {
            group: 1,
            held: vec![("catalog", useless)],
            ..msf_loc()
        };
        play_both(msf_cmaf(), Some(later), |viewer| {
            assert_eq!(viewer.failure(), None);
            assert_eq!(viewer.catalogs_followed(), 0);
            assert_eq!(viewer.records().len(), 36);
            assert_eq!(viewer.objects_unknown(), 1, "{:?}", viewer.complaint());
        });
    }
}

#[test]
fn a_later_catalog_that_changes_nothing_of_what_is_played_interrupts_nothing() {
    // moq-cli repeats its catalog whenever its estimate of the bit rate improves.
    let (_, first) = &msf_cmaf().held[0];
    let mut said: serde_json::Value = serde_json::from_slice(first).expect("a catalog");
    said["tracks"][1]["bitrate"] = json!(400_000);
    let later = Layout {
        group: 1,
        held: vec![("catalog", catalog(&said))],
        video: "elsewhere",
        packaging: Packaging::Cmaf,
    };
    play_both(msf_cmaf(), Some(later), |viewer| {
        assert_eq!(viewer.failure(), None);
        assert_eq!(viewer.catalogs_followed(), 0);
        assert_eq!(viewer.records().len(), 36);
        assert!(
            viewer
                .records()
                .iter()
                .all(|record| record.shown_us.is_some())
        );
        assert_eq!(viewer.objects_unknown(), 0, "{:?}", viewer.complaint());
    });
}

#[test]
fn an_init_segment_that_nobody_has_is_named() {
    let mut layout = earlier();
    layout.held.remove(0);
    play(layout, |viewer| {
        let reason = "the catalog has no readable init segment for the track \"1.m4s\"";
        assert_eq!(viewer.failure(), Some(reason));
    });
}

#[test]
fn objects_that_are_not_what_the_catalog_says_are_counted_with_the_reason() {
    let layout = Layout {
        packaging: Packaging::Loc,
        ..msf_cmaf()
    };
    play(layout, |viewer| {
        assert_eq!(viewer.failure(), None);
        assert!(viewer.records().is_empty());
        assert_eq!(viewer.objects_unknown(), 36);
        let complaint = viewer.complaint().expect("a reason");
        assert!(
            complaint.contains("not a fragment of the track"),
            "{complaint}"
        );
    });
}

#[test]
fn who_never_publishes_is_waited_for_as_long_as_was_asked() {
    let mut layout = msf_loc();
    layout.held.clear();
    play(layout, |viewer| {
        let failure = viewer.failure().expect("it gave up");
        assert!(
            failure.starts_with("the relay refused the catalog: "),
            "{failure}"
        );
    });
}

#[test]
fn a_catalog_may_be_so_large_and_no_larger() {
    for (bytes, failure) in [
        (CATALOG_BYTES_MAX, None),
        (
            CATALOG_BYTES_MAX + 1,
            Some("the track \"catalog\" exists, but its object did not arrive"),
        ),
    ] {
        let mut layout = msf_cmaf();
        let (_, json) = &layout.held[0];
        let mut padded = json.to_vec();
        padded.resize(bytes, b' ');
        layout.held[0].1 = Bytes::from(padded);
        play(layout, |viewer| {
            assert_eq!(viewer.failure(), failure);
            let unknown = u64::from(failure.is_some());
            assert_eq!(viewer.objects_unknown(), unknown, "it is counted");
        });
    }
}
