//! The subscriber: a subscription from the beginning, one with a fill, and a FETCH.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use anyhow::{Context as _, bail, ensure};
use moqtail::{
    model::{
        common::{
            location::Location,
            tuple::{Tuple, TupleField},
        },
        control::{
            constant::PublishDoneStatusCode, control_message::ControlMessage, fetch::Fetch,
            subscribe::Subscribe,
        },
        parameter::{location_filter::LocationFilter, message_parameter::MessageParameter},
    },
    transport::{
        connection::TransportConnection,
        control_stream_handler::ControlStreamHandler,
        data_stream_handler::{DataStreamItem, HeaderInfo, RecvDataStream},
    },
};
use tokio::sync::{RwLock, mpsc};

use crate::{
    GROUPS, OBJECTS, TRACK, payload,
    session::{Session, ended},
};

/// How many groups before the current one a late subscriber wants.
const FILL_GROUPS: u64 = 2;
/// The groups that are fetched.
const FETCHED: Range<u64> = GROUPS.start..GROUPS.start + 2;

/// An object, or the end of a range of a fetch stream.
struct Arrival {
    /// Whether it came on a fetch stream.
    is_fetched: bool,
    item: DataStreamItem,
}

/// The arrivals of a session.
struct Arrivals {
    queue: mpsc::UnboundedReceiver<Arrival>,
    live: BTreeSet<(u64, u64)>,
    fetched: BTreeSet<(u64, u64)>,
    /// Ends of ranges that do not exist, are unknown, or have timed out.
    ends: usize,
}

/// Plays the subscriber, and prints what came.
pub(crate) async fn run(url: &str, namespace: &str) -> anyhow::Result<()> {
    let mut first = Session::connect(url).await?;
    let mut all = Arrivals::of(&first);
    let start = LocationFilter::NextObject;
    let request = subscribe(first.request_id(), namespace, start, Vec::new());
    let mut stream = subscribed(&first, request).await?;
    all.until(|arrivals| arrivals.live.last().map(|last| last.0) == Some(GROUPS.start + 4))
        .await?;

    let mut late = Session::connect(url).await?;
    let mut rest = Arrivals::of(&late);
    let past = LocationFilter::RelativeStart {
        start_group: FILL_GROUPS + 1,
    };
    let fill =
        MessageParameter::new_fill_parameters(vec![MessageParameter::new_location_filter(past)]);
    let request = subscribe(
        late.request_id(),
        namespace,
        LocationFilter::NextObject,
        vec![fill],
    );
    let mut late_stream = subscribed(&late, request).await?;

    all.until(|arrivals| arrivals.live == objects(GROUPS))
        .await?;
    rest.until(|arrivals| arrivals.live.contains(&last_of(GROUPS)) && !arrivals.fetched.is_empty())
        .await?;
    let from = rest.fetched.first().context("a fill has objects")?.0;
    let together: BTreeSet<_> = rest.live.union(&rest.fetched).copied().collect();
    ensure!(
        together == objects(from..GROUPS.end),
        "of the late subscription came {together:?}"
    );
    let filled = rest.fetched.len();
    expect_end(&mut stream).await?;
    expect_end(&mut late_stream).await?;

    let fetched = fetch(&mut first, &mut all, namespace).await?;
    println!(
        "{} objects; {filled} filled and {} after them; {fetched} fetched, {} ends of ranges",
        all.live.len(),
        rest.live.len(),
        all.ends
    );
    first.connection.close(0, b"");
    late.connection.close(0, b"");
    Ok(())
}

fn subscribe(
    id: u64,
    namespace: &str,
    start: LocationFilter,
    parameters: Vec<MessageParameter>,
) -> ControlMessage {
    let (namespace, name) = (
        Tuple::from_utf8_path(namespace),
        TupleField::from_utf8(TRACK),
    );
    let request = Subscribe::new_with_location_filter(id, namespace, name, start, parameters);
    ControlMessage::Subscribe(Box::new(request))
}

/// Subscribes, and returns the request's stream.
async fn subscribed(
    session: &Session,
    request: ControlMessage,
) -> anyhow::Result<ControlStreamHandler> {
    let (stream, answer) = session.request(request).await?;
    match answer {
        ControlMessage::SubscribeOk(_) => Ok(stream),
        other => bail!("SUBSCRIBE is answered by {other:?}"),
    }
}

/// Waits for the end of a subscription.
async fn expect_end(stream: &mut ControlStreamHandler) -> anyhow::Result<()> {
    let done = stream.next_message().await.map_err(ended)?;
    let ControlMessage::PublishDone(done) = done else {
        bail!("a subscription ends with {done:?}");
    };
    ensure!(
        done.status_code == PublishDoneStatusCode::TrackEnded,
        "{done:?}"
    );
    Ok(())
}

/// Fetches some groups, and returns the number of their objects.
async fn fetch(
    session: &mut Session,
    arrivals: &mut Arrivals,
    namespace: &str,
) -> anyhow::Result<usize> {
    let range = LocationFilter::AbsoluteRange {
        start: Location::new(FETCHED.start, 0),
        end: Location::new(FETCHED.end - 1, OBJECTS[2]),
    };
    let (namespace, name) = (
        Tuple::from_utf8_path(namespace),
        TupleField::from_utf8(TRACK),
    );
    let id = session.request_id();
    let request = Fetch::new_with_location_filter(id, namespace, name, range, Vec::new());
    let (_stream, answer) = session
        .request(ControlMessage::Fetch(Box::new(request)))
        .await?;
    let ControlMessage::FetchOk(ok) = answer else {
        bail!("FETCH is answered by {answer:?}");
    };
    let end = Location::new(FETCHED.end - 1, OBJECTS[2]);
    ensure!(
        ok.end_location == end,
        "FETCH_OK ends at {:?}",
        ok.end_location
    );
    arrivals
        .until(|arrivals| arrivals.fetched == objects(FETCHED))
        .await?;
    Ok(arrivals.fetched.len())
}

impl Arrivals {
    /// Reads all data streams of a session from now on.
    fn of(session: &Session) -> Self {
        let (to, queue) = mpsc::unbounded_channel();
        tokio::spawn(read_streams(session.connection.clone(), to));
        Self {
            queue,
            live: BTreeSet::new(),
            fetched: BTreeSet::new(),
            ends: 0,
        }
    }

    /// Takes what comes until enough is there.
    async fn until(&mut self, is_enough: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        while !is_enough(self) {
            let arrival = self.queue.recv().await;
            let arrival = arrival.with_context(|| {
                format!(
                    "the session ended after {} objects and {} fetched",
                    self.live.len(),
                    self.fetched.len()
                )
            })?;
            self.take(arrival)?;
        }
        Ok(())
    }

    fn take(&mut self, arrival: Arrival) -> anyhow::Result<()> {
        let DataStreamItem::Object(object) = arrival.item else {
            self.ends += 1;
            return Ok(());
        };
        let Location { group, object: id } = object.location;
        let is_whole = object.payload.as_ref() == Some(&payload(group, id));
        ensure!(is_whole, "another payload at {group}:{id}: {object:?}");
        let seen = if arrival.is_fetched {
            &mut self.fetched
        } else {
            &mut self.live
        };
        ensure!(seen.insert((group, id)), "{group}:{id} came twice");
        Ok(())
    }
}

/// Reads the streams of a connection until it ends.
async fn read_streams(connection: TransportConnection, to: mpsc::UnboundedSender<Arrival>) {
    while let Ok(stream) = connection.accept_uni().await {
        let to = to.clone();
        tokio::spawn(async move {
            let fetches = Arc::new(RwLock::new(BTreeMap::new()));
            let stream = RecvDataStream::new(stream, fetches);
            while let (stream, Some(item)) = stream.next_item().await {
                let header = stream.get_header_info().await;
                let is_fetched = matches!(header, Some(HeaderInfo::Fetch { .. }));
                if to.send(Arrival { is_fetched, item }).is_err() {
                    return;
                }
            }
        });
    }
}

/// Returns all objects of these groups.
fn objects(groups: Range<u64>) -> BTreeSet<(u64, u64)> {
    groups
        .flat_map(|group| OBJECTS.map(|object| (group, object)))
        .collect()
}

fn last_of(groups: Range<u64>) -> (u64, u64) {
    (groups.end - 1, OBJECTS[2])
}
