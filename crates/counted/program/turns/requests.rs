//! What clients of the scenes send.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, SubgroupHeader},
    draft::Draft,
    location::Location,
    message::FetchKind,
    parameter::Parameters,
    property::Properties,
    session::RequestId,
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

    pub(crate) fn announce(&mut self, client: Handle, namespace: &str) -> RequestId {
        let namespace = space(namespace);
        let sent = self.act(client, |session, connection| {
            session.publish_namespace(connection, namespace, Parameters::default())
        });
        sent.expect(ROOM)
    }

    pub(crate) fn subscribe(&mut self, client: Handle, track: &str) -> RequestId {
        let track = name(track);
        let parameters = Parameters {
            rendezvous_timeout: Some(Duration::from_secs(30)),
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
        let kind = FetchKind::Standalone {
            track: name(track),
            start: Location::ZERO,
            end: Location::new(1 << 30, 0),
        };
        let sent = self.act(client, |session, connection| {
            session.fetch(connection, kind, Parameters::default())
        });
        sent.expect(ROOM)
    }

    /// Leaves without a word on the streams: the packet contains a `CONNECTION_CLOSE`.
    pub(crate) fn leave(&mut self, client: Handle) {
        self.act(client, |_, connection| connection.close(0, b"leaving"));
    }

    /// Sends a group of one object of one byte.
    pub(crate) fn datagram(&mut self, client: Handle, track_alias: u64, group: u64) {
        let mut encoded = BytesMut::new();
        let object = ObjectDatagram {
            track_alias,
            end_of_group: true,
            ..datagram(group, 0, b"a")
        };
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

const ROOM: &str = "the session has room for the request";
