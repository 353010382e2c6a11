//! Messages that answer or end a request.

use std::time::Duration;

use bytes::{BufMut, BytesMut};

use super::fields::Field;
use super::request::{read_end, write_end};
use super::{
    FetchOk, GoAway, PublishDone, Redirect, RequestError, RequestKind, RequestOk, read_reason,
    read_uri, write_reason, write_text,
};
use crate::cursor::Cursor;
use crate::draft::Draft;
use crate::error::{DecodeError, PublishDoneCode, RequestErrorCode, Violation};
use crate::name::FullTrackName;
use crate::parameter::{Step, millis, read_duration};
use crate::scope::Scopes;
use crate::varint;

impl Field for GoAway {
    fn read(draft: Draft, _: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            new_session_uri: read_uri(cursor)?,
            timeout: Some(read_duration(cursor)?).filter(|timeout| !timeout.is_zero()),
            request_id: if cursor.is_empty() || !draft.goaway_has_request_id() {
                None
            } else {
                Some(cursor.varint()?)
            },
        })
    }

    fn write(&self, draft: Draft, out: &mut BytesMut) {
        write_text(&self.new_session_uri, out);
        varint::encode(self.timeout.map_or(0, millis), out);
        if let Some(request_id) = self.request_id
            && draft.goaway_has_request_id()
        {
            varint::encode(request_id, out);
        }
    }
}

impl Field for PublishDone {
    fn read(draft: Draft, _: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            code: PublishDoneCode(cursor.varint()?),
            stream_count: Some(cursor.varint()?)
                .filter(|count| *count != draft.stream_count_unknown()),
            reason: read_reason(cursor)?,
        })
    }

    fn write(&self, draft: Draft, out: &mut BytesMut) {
        varint::encode(draft.publish_done(self.code).0, out);
        let stream_count = self
            .stream_count
            .unwrap_or_else(|| draft.stream_count_unknown());
        varint::encode(stream_count, out);
        write_reason(&self.reason, out);
    }
}

impl Field for FetchOk {
    fn read(draft: Draft, scopes: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            end_of_track: match cursor.uint8()? {
                0 => false,
                1 => true,
                _ => return Err(DecodeError::protocol("End Of Track is neither 0 nor 1")),
            },
            end: read_end(draft, cursor)?,
            parameters: Field::read(draft, scopes, cursor)?,
            properties: Field::read(draft, scopes, cursor)?,
        })
    }

    fn write(&self, draft: Draft, out: &mut BytesMut) {
        out.put_u8(u8::from(self.end_of_track));
        write_end(draft, self.end, out);
        self.parameters.write(draft, out);
        self.properties.write(draft, out);
    }
}

impl RequestOk {
    /// Checks that the parameters may occur in the answer at this `step` of a request of `kind`, and that only the
    /// answer to `TRACK_STATUS` has properties [moqt-18 §10.5].
    pub fn check(&self, draft: Draft, kind: RequestKind, step: Step) -> Result<(), Violation> {
        let of_track_status = kind == RequestKind::TrackStatus && step == Step::Answer;
        if !self.properties.is_empty() && !of_track_status {
            return Err(Violation::protocol(
                "REQUEST_OK has properties it may not have",
            ));
        }
        self.parameters.check(draft, kind, step)
    }
}

impl RequestError {
    /// Checks that the redirect of a namespace request names no track [moqt-18 §10.6.1].
    pub fn check(&self, draft: Draft, kind: RequestKind) -> Result<(), Violation> {
        let of_namespace = match kind {
            RequestKind::PublishNamespace | RequestKind::SubscribeNamespace => true,
            RequestKind::SubscribeTracks => draft.redirects_tracks_by_namespace(),
            RequestKind::Subscribe
            | RequestKind::Publish
            | RequestKind::Fetch
            | RequestKind::TrackStatus => false,
        };
        let names_track = self
            .redirect
            .as_ref()
            .is_some_and(|redirect| !redirect.track.name.is_empty());
        if of_namespace && names_track {
            return Err(Violation::protocol(
                "the redirect of a namespace request names a track",
            ));
        }
        Ok(())
    }
}

impl Field for RequestError {
    fn read(_: Draft, _: Scopes, cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let code = RequestErrorCode(cursor.varint()?);
        Ok(Self {
            code,
            retry_after: cursor.varint()?.checked_sub(1).map(Duration::from_millis),
            reason: read_reason(cursor)?,
            redirect: if code == RequestErrorCode::REDIRECT {
                Some(Redirect::decode(cursor)?)
            } else {
                None
            },
        })
    }

    /// # Panics
    /// If there is a redirect under another code than REDIRECT, or none under that code.
    fn write(&self, draft: Draft, out: &mut BytesMut) {
        assert_eq!(
            self.redirect.is_some(),
            self.code == RequestErrorCode::REDIRECT,
            "a redirect goes with the code REDIRECT"
        );
        varint::encode(draft.request_error(self.code).0, out);
        varint::encode(
            self.retry_after
                .map_or(0, |after| millis(after).saturating_add(1)),
            out,
        );
        write_reason(&self.reason, out);
        if let Some(redirect) = &self.redirect {
            redirect.encode(out);
        }
    }
}

impl Redirect {
    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            connect_uri: read_uri(cursor)?,
            track: FullTrackName::decode(cursor)?,
        })
    }

    fn encode(&self, out: &mut BytesMut) {
        write_text(&self.connect_uri, out);
        self.track.encode(out);
    }
}
