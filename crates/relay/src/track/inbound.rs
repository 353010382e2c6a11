//! Subgroup streams that are being received from one session, and how they end.

use std::collections::BTreeMap;

use weir_moqt::{
    data::SubgroupHeader,
    error::ResetCode,
    session::{RequestId, StreamEnd},
};
use weir_quic::Handle;
use weir_transport::StreamId;

use super::{Ended, Tracks};
use crate::{
    cache::Contradiction,
    effect::Effect,
    ids::{SubgroupId, TrackId},
    sessions::peer::PeerKind,
    turn::Turn,
};

/// Subgroup streams that are being received from one session.
pub(super) type InboundStreams = BTreeMap<StreamId, InboundStream>;

/// A subgroup stream that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InboundStream {
    pub(super) track: TrackId,
    pub(super) request: RequestId,
    /// What the session is to this relay.
    pub(super) kind: PeerKind,
    /// The publisher's header.
    pub(super) header: SubgroupHeader,
    pub(super) flow: Flow,
    /// Whether the object that began last is dropped, since it is known not to exist.
    pub(super) is_ruled_out: bool,
}

/// The treatment of the objects of a subgroup stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// No object has come.
    Fresh,
    /// The objects are forwarded in this subgroup.
    Passed(SubgroupId),
    /// The objects are dropped, because another publisher sends them or has sent them.
    Repeated(Repetition),
}

/// The progress of a subgroup whose objects are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repetition {
    /// The subgroup ID.
    pub(super) number: u64,
    /// The last object that began.
    pub(super) object: u64,
    /// Bytes of its payload that have come.
    pub(super) bytes: u64,
}

impl InboundStream {
    /// Returns the subgroup ID, if the next object is `object`.
    pub(super) fn number(&self, object: u64) -> Option<u64> {
        match self.flow {
            Flow::Passed(_) => None,
            Flow::Fresh => Some(self.header.subgroup.resolve(object)),
            Flow::Repeated(repetition) => Some(repetition.number),
        }
    }

    /// Drops the object that begins, and what follows of the subgroup `number` while it is a repetition.
    pub(super) fn repeat(&mut self, number: u64, object: u64) {
        self.flow = Flow::Repeated(Repetition {
            number,
            object,
            bytes: 0,
        });
    }
}

impl Tracks {
    /// Handles the end of a publisher's subgroup stream.
    pub(crate) fn on_stream_end(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        end: StreamEnd,
    ) {
        let streams = self.inbound.get_mut(handle);
        let Some(inbound) = streams.and_then(|streams| streams.remove(&stream)) else {
            return;
        };
        let ended = match end {
            StreamEnd::Fin => Ended::Finished,
            StreamEnd::Reset(code) => Ended::Reset(code),
        };
        if self.end_stream(turn, handle, &inbound, ended).is_err() {
            turn.push(Effect::Malformed(inbound.track, handle));
        }
        self.release_leaving(turn, inbound.track);
    }

    /// Ends a stream in its subgroup. Fails if the stream was finished and another stream of the subgroup ended
    /// elsewhere.
    pub(super) fn end_stream(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        inbound: &InboundStream,
        ended: Ended,
    ) -> Result<(), Contradiction> {
        let Some(track) = self.table.get(inbound.track) else {
            return Ok(());
        };
        let sender = (handle, inbound.request);
        if let Some(publisher) = track.publisher(sender) {
            publisher.streams_open = publisher.streams_open.saturating_sub(1);
        }
        match inbound.flow {
            Flow::Repeated(repetition) if ended == Ended::Finished => {
                let key = (inbound.header.group, repetition.number);
                track.duplicates.finish(key, repetition.object)
            }
            Flow::Passed(log) => {
                let sound = track.end_log(turn, &mut self.ledger, (log, sender), inbound, ended);
                if track.subgroup(log).is_some() {
                    self.mark_grown(inbound.track, log);
                }
                sound
            }
            Flow::Fresh | Flow::Repeated(_) => Ok(()),
        }
    }

    /// Ends all streams that a publisher has open for one of its tracks.
    pub(super) fn cut_streams(&mut self, turn: &mut Turn<'_>, handle: Handle, request: RequestId) {
        let Some(streams) = self.inbound.get_mut(handle) else {
            return;
        };
        let cut: Vec<_> = streams
            .extract_if(.., |_, inbound| inbound.request == request)
            .collect();
        for (_, inbound) in cut {
            // An interrupted stream does not determine the end of the subgroup.
            let _sound = self.end_stream(turn, handle, &inbound, CUT);
        }
    }
}

/// How a stream ends for subscribers if its publisher is gone.
pub(super) const CUT: Ended = Ended::Reset(ResetCode::CANCELLED);
