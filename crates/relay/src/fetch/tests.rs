//! Snapshots of the state tables of fetches.

use std::fmt::{Debug, Write as _};

use weir_moqt::message::FetchKind;
use weir_transport::StreamId;

use super::{
    served_fetch::{Answer, AnswerEvent, Join},
    served_stream::{StreamEvent, StreamState},
    upstream_stream::{UpstreamEvent, UpstreamStream},
};

/// Prints, for each state, the state after each event; a state that stays is left out.
fn print<State, Event>(
    title: &str,
    states: &[State],
    events: &[Event],
    after: impl Fn(State, Event) -> State,
) -> String
where
    State: Copy + Debug + PartialEq,
    Event: Copy + Debug,
{
    let mut table = format!("{title}\n");
    for &state in states {
        writeln!(table, "  {state:?}").unwrap();
        for &event in events {
            let next = after(state, event);
            if next != state {
                writeln!(table, "    {:<44} {next:?}", format!("{event:?}")).unwrap();
            }
        }
    }
    table
}

fn answers() -> String {
    let (request_id, groups) = (4, 2);
    let join = Join::of(&FetchKind::RelativeJoining { request_id, groups }).unwrap();
    let known = |is_end_of_track| Answer::EndKnown { is_end_of_track };
    let states = [
        Answer::Joining(join),
        Answer::EndUnknown,
        known(false),
        known(true),
        Answer::Sent,
    ];
    let learned = |is_end_of_track| AnswerEvent::EndLearned { is_end_of_track };
    let events = [
        AnswerEvent::Joined,
        learned(false),
        learned(true),
        AnswerEvent::FetchOk,
    ];
    print(
        "Answer to a FETCH of a peer",
        &states,
        &events,
        Answer::after,
    )
}

fn served_streams() -> String {
    let stream = StreamId(3);
    let states = [
        StreamState::Unopened,
        StreamState::Pending,
        StreamState::Open(stream),
        StreamState::Blocked(stream),
    ];
    let events = [
        StreamEvent::NotAllowed,
        StreamEvent::Opened(stream),
        StreamEvent::Full,
        StreamEvent::Room,
    ];
    let title = "Stream that answers a FETCH of a peer";
    print(title, &states, &events, StreamState::after)
}

fn upstream_streams() -> String {
    let stream = StreamId(3);
    let states = [
        UpstreamStream::Awaited,
        UpstreamStream::Reading(stream),
        UpstreamStream::Paused(stream),
        UpstreamStream::Finished,
    ];
    let events = [
        UpstreamEvent::Begun(stream),
        UpstreamEvent::Unwanted,
        UpstreamEvent::Wanted,
        UpstreamEvent::Fin,
    ];
    let title = "Stream that answers a FETCH of the relay";
    print(title, &states, &events, UpstreamStream::after)
}

#[test]
fn states_of_fetches_and_their_events() {
    let tables = [answers(), served_streams(), upstream_streams()];
    insta::assert_snapshot!("states", tables.join("\n"));
}
