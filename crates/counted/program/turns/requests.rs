//! What clients of the scenes send.

use std::{ops::Range, time::Duration};

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, SubgroupHeader, SubgroupId},
    draft::Draft,
    location::Location,
    message::FetchKind,
    parameter::Parameters,
    property::{self, Properties},
    session::RequestId,
    token::Token,
};
use weir_quic::Handle;
use weir_transport::{Direction, StreamId, Transport as _};

use super::{
    stage::Stage,
    words::{datagram, name, object, plain, space},
};

/// Requests and objects of a client. They leave with the next strike or pause.
impl Stage {
    pub(crate) fn publish(&mut self, client: Handle, track: &str, alias: u64) -> RequestId {
        self.publish_with(client, track, alias, Properties::EMPTY)
    }

    pub(crate) fn publish_with(
        &mut self,
        client: Handle,
        track: &str,
        alias: u64,
        properties: Properties,
    ) -> RequestId {
        let track = name(track);
        let sent = self.act(client, |session, connection| {
            session.publish(connection, track, alias, Parameters::default(), properties)
        });
        sent.expect(ROOM)
    }

    /// Lets the congestion window of a client grow, so that it can send much at once. Uses Request ID 0.
    pub(crate) fn warm_up(&mut self, client: Handle) {
        self.publish(client, "warm--up", WARM_UP_ALIAS);
        self.settle();
        let stream = self.begin(client, WARM_UP_ALIAS, 0, WARM_UP_BYTES as u64);
        self.write(client, stream, Bytes::from(vec![7; WARM_UP_BYTES]));
        self.settle();
    }

    pub(crate) fn announce(&mut self, client: Handle, namespace: &str) -> RequestId {
        let namespace = space(namespace);
        let sent = self.act(client, |session, connection| {
            session.publish_namespace(connection, namespace, Parameters::default())
        });
        sent.expect(ROOM)
    }

    pub(crate) fn subscribe(&mut self, client: Handle, track: &str) -> RequestId {
        self.subscribe_with(client, track, Vec::new())
    }

    pub(crate) fn subscribe_with(
        &mut self,
        client: Handle,
        track: &str,
        tokens: Vec<Token>,
    ) -> RequestId {
        let track = name(track);
        let parameters = Parameters {
            rendezvous_timeout: Some(Duration::from_secs(30)),
            authorization_tokens: tokens,
            ..Parameters::default()
        };
        let sent = self.act(client, |session, connection| {
            session.subscribe(connection, track, parameters)
        });
        sent.expect(ROOM)
    }

    pub(crate) fn watch(&mut self, client: Handle, prefix: &str) -> RequestId {
        let prefix = space(prefix);
        let sent = self.act(client, |session, connection| {
            session.subscribe_namespace(connection, prefix, Parameters::default())
        });
        sent.expect(ROOM)
    }

    pub(crate) fn collect(&mut self, client: Handle, prefix: &str) -> RequestId {
        let prefix = space(prefix);
        let sent = self.act(client, |session, connection| {
            session.subscribe_tracks(connection, prefix, Parameters::default())
        });
        sent.expect(ROOM)
    }

    pub(crate) fn update(&mut self, client: Handle, id: RequestId, parameters: Parameters) {
        let sent = self.act(client, |session, connection| {
            session.update(connection, id, parameters)
        });
        sent.expect("few updates are unanswered");
    }

    /// Fetches all groups of a track.
    pub(crate) fn fetch(&mut self, client: Handle, track: &str) -> RequestId {
        self.fetch_with(client, track, Parameters::default())
    }

    pub(crate) fn fetch_with(
        &mut self,
        client: Handle,
        track: &str,
        parameters: Parameters,
    ) -> RequestId {
        let kind = FetchKind::Standalone {
            track: name(track),
            start: Location::ZERO,
            end: Location::new(1 << 30, 0),
        };
        let sent = self.act(client, |session, connection| {
            session.fetch(connection, kind, parameters)
        });
        sent.expect(ROOM)
    }

    /// Leaves without a word on the streams: the packet contains a `CONNECTION_CLOSE`.
    pub(crate) fn leave(&mut self, client: Handle) {
        self.act(client, |_, connection| connection.close(0, b"leaving"));
    }

    /// Sends a group of one object of one byte.
    pub(crate) fn datagram(&mut self, client: Handle, track_alias: u64, group: u64) {
        let object = ObjectDatagram {
            track_alias,
            end_of_group: true,
            ..datagram(group, 0, b"a")
        };
        self.send_datagram(client, &object);
    }

    /// Sends objects of one byte, all of group 0, as one subgroup.
    pub(crate) fn objects(&mut self, client: Handle, track_alias: u64, ids: Range<u64>) {
        let header = SubgroupHeader {
            track_alias,
            subgroup: SubgroupId::Explicit(ids.start),
            ..plain(0)
        };
        let mut data = BytesMut::new();
        header.encode(Draft::KEPT, &mut data);
        let mut previous = None;
        for id in ids {
            object(id, 1).encode_in_subgroup(previous, false, Draft::KEPT, &mut data);
            data.extend_from_slice(b"a");
            previous = Some(id);
        }
        let stream = self.act(client, |_, connection| connection.open(Direction::Uni));
        let stream = stream.expect("the relay allows enough streams");
        self.write(client, stream, data.freeze());
        self.act(client, |_, connection| connection.finish(stream));
    }

    /// Sends an object of group 0 as a datagram, which says that so many objects before it do not exist.
    pub(crate) fn object_after_gap(&mut self, client: Handle, track_alias: u64, id: u64, gap: u64) {
        let properties = Properties::builder().int(property::PRIOR_OBJECT_ID_GAP, gap);
        let object = ObjectDatagram {
            track_alias,
            properties: properties.build(),
            ..datagram(0, id, b"a")
        };
        self.send_datagram(client, &object);
    }

    fn send_datagram(&mut self, client: Handle, object: &ObjectDatagram) {
        let mut encoded = BytesMut::new();
        object.encode(Draft::KEPT, &mut encoded);
        self.act(client, |_, connection| {
            let sent = connection.send_datagram(encoded.freeze(), None);
            sent.expect("it is small");
        });
    }

    /// Opens a subgroup stream, and begins an object of `length` bytes on it.
    pub(crate) fn begin(
        &mut self,
        client: Handle,
        track_alias: u64,
        group: u64,
        length: u64,
    ) -> StreamId {
        let header = SubgroupHeader {
            track_alias,
            ..plain(group)
        };
        let object = ObjectHeader {
            payload_len: length,
            ..object(0, 0)
        };
        let mut data = BytesMut::new();
        header.encode(Draft::KEPT, &mut data);
        object.encode_in_subgroup(None, false, Draft::KEPT, &mut data);
        let stream = self.act(client, |_, connection| connection.open(Direction::Uni));
        let stream = stream.expect("the relay allows enough streams");
        self.write(client, stream, data.freeze());
        stream
    }

    /// Sends a subgroup of one object of one byte.
    pub(crate) fn subgroup(&mut self, client: Handle, track_alias: u64, group: u64) {
        let stream = self.begin(client, track_alias, group, 1);
        self.act(client, |_, connection| {
            let _written = connection.write(stream, &mut Bytes::from_static(b"a"));
            connection.finish(stream);
        });
    }
}

const WARM_UP_ALIAS: u64 = 1 << 40;
const WARM_UP_BYTES: usize = 8 << 20;
const ROOM: &str = "the session has room for the request";
