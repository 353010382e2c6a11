//! What the cache cannot serve: asked for upstream, once for all who wait for it.

use weir_moqt::{
    location::Location,
    message::FetchKind,
    parameter::{GroupOrder, Parameters},
};
use weir_quic::Handle;

use crate::{
    cache::{Known, Span},
    fetch::Serving,
    fetch::served_fetch::Fetch,
    fetch::upstream_fetch::Feeder,
    ids::FetchId,
    ids::TrackId,
    track::Publisher,
    turn::Turn,
};

impl Serving<'_> {
    /// Whether an answer is on its way that brings the object at `at`. One that was held up goes on.
    pub(crate) fn is_fed(&mut self, turn: &mut Turn<'_>, fetch: &Fetch, at: Location) -> bool {
        let mut found = None;
        for id in self.fetches.upstream_ids(fetch.track) {
            if let Some(feeder) = self.fetches.upstream.get_mut(&id)
                && feeder.span.order == fetch.span.order
                && feeder.covers(at)
            {
                let was_paused = std::mem::take(&mut feeder.is_paused);
                found = Some((id.0, feeder.stream.filter(|_| was_paused)));
                break;
            }
        }
        if let Some((handle, Some(stream))) = found {
            let now = turn.now;
            turn.with_session(handle, |session, connection| {
                session.resume_data(now, connection, stream);
            });
            turn.sessions.settle_later(handle);
        }
        found.is_some()
    }

    /// Asks a publisher for what a fetch is missing: the range from `at` to `last`, and the next few behind it
    /// of which nothing is known. Returns whether somebody was asked.
    pub(crate) fn ask_for(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, _): FetchId,
        fetch: &mut Fetch,
        (at, last): (Location, Location),
    ) -> bool {
        let publishers = self.fetch_publishers(turn, fetch.track, handle);
        let mut next = Some((at, last));
        let mut is_asked = false;
        for _ in 0..ASKED_AHEAD_MAX {
            let Some((first, last)) = next else { break };
            // A range of several descending groups holds all of them.
            let is_descending = fetch.span.order == GroupOrder::Descending;
            let (start, end) = if is_descending && first.group != last.group {
                let (top, bottom) = (first.group, last.group);
                (fetch.span.first_of(bottom), fetch.span.last_of(top))
            } else {
                (first, last)
            };
            let order = fetch.span.order;
            let span = Span { start, end, order };
            if !self.ask_publishers_for(turn, fetch.track, span, publishers.clone()) {
                break;
            }
            is_asked = true;
            let last = span.last();
            fetch.asked = Some(last);
            next = self.next_unknown(fetch, last);
        }
        if !is_asked {
            fetch.asked = Some(last);
        }
        is_asked
    }

    /// The next range behind `last` of which nothing is known.
    fn next_unknown(&mut self, fetch: &Fetch, last: Location) -> Option<(Location, Location)> {
        let track = self.tracks.get(fetch.track)?;
        let mut at = fetch.span.after(last)?;
        for _ in 0..LOOKED_AHEAD_MAX {
            at = match track.cache().look(at, &fetch.span, None) {
                Known::Unknown(last) => {
                    let mut subgroups = track.subgroups().iter();
                    let is_coming = subgroups.any(|subgroup| subgroup.is_arriving(at));
                    return (!is_coming).then_some((at, last));
                }
                Known::Absent(last) => fetch.span.after(last)?,
                Known::Object(_) => fetch.span.after(at)?,
            };
        }
        None
    }

    /// The sessions that may have objects of a track, those that send it first [moqt-18 §9.5].
    fn fetch_publishers(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        except: Handle,
    ) -> Vec<Handle> {
        let Some(track) = self.tracks.get(track_id) else {
            return Vec::new();
        };
        let known = track.publishers().iter();
        let mut found: Vec<Handle> = known
            .filter(|publisher| publisher.is_established() || publisher.is_offering())
            .map(Publisher::session)
            .collect();
        found.extend(self.catalogue.announcers_of(turn, &track.name().namespace));
        let mut publishers = Vec::new();
        let for_link = turn.is_link(except);
        for handle in found {
            let supports_fetch = !self.fetches.unsupporting.contains(&handle);
            let can = turn.sessions.get(handle).is_some_and(|peer| {
                let max = turn.config.limits.fetches_upstream_per_session_max;
                let has_room = peer.is_link() || peer.counts.feeders < max;
                let is_passed_on = peer.is_link() && for_link;
                let may_be_asked = supports_fetch && !is_passed_on && handle != except;
                let is_refused = may_be_asked && !has_room;
                turn.counters.fetches_upstream_refused += u64::from(is_refused);
                may_be_asked && has_room
            });
            if can && !publishers.contains(&handle) {
                publishers.push(handle);
            }
        }
        publishers
    }

    pub(super) fn ask_publishers_for(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        span: Span,
        mut publishers: Vec<Handle>,
    ) -> bool {
        while !publishers.is_empty() {
            let handle = publishers.remove(0);
            let Some(track) = self.tracks.get(track_id) else {
                return false;
            };
            let kind = FetchKind::Standalone {
                track: track.name().clone(),
                start: span.start,
                end: span.end,
            };
            let parameters = Parameters {
                group_order: Some(span.order),
                ..Parameters::default()
            };
            let request = turn.with_session(handle, |session, connection| {
                session.fetch(connection, kind, parameters)
            });
            let Some(Ok(request)) = request else {
                continue;
            };
            turn.counters.fetches_upstream += 1;
            let id = (handle, request);
            let session = (!turn.is_link(handle)).then_some(handle);
            let feeder = Feeder::new(track_id, session, span, publishers);
            self.insert_upstream(turn.sessions, id, feeder);
            return true;
        }
        false
    }
}

/// How many ranges one fetch asks for at once.
const ASKED_AHEAD_MAX: usize = 4;
/// How many objects and ranges are looked at to find the next one to ask for.
const LOOKED_AHEAD_MAX: usize = 1000;
