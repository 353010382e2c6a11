//! The tables of states and events, of a session and of its requests, printed whole.

use std::fmt::Write as _;
use std::time::Instant;

use super::epoch;
use crate::error::ResetCode;
use crate::message::{MessageKind, RequestKind, Setup};
use crate::session::CloseReason;
use crate::session::RequestId;
use crate::session::request_state::{
    self, EndedBy, Input, Live, Opener, UpdateSent, Verdict, judge,
};
use crate::session::state::{self, GoAways};

/// Prints a table: the states are the columns, the events the rows.
fn print<State, Event: Copy>(
    title: &str,
    states: &[(&str, State)],
    events: &[(&str, Event)],
    cell: impl Fn(&State, Event) -> &'static str,
) -> String {
    let mut table = format!("\n{title:<32}");
    for (name, _) in states {
        write!(table, "{name:<17}").unwrap();
    }
    for (name, event) in events {
        write!(table, "\n  {name:<30}").unwrap();
        for (_, state) in states {
            write!(table, "{:<17}", cell(state, *event)).unwrap();
        }
    }
    table.push('\n');
    let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

fn session_states() -> [(&'static str, state::State); 7] {
    let peer = || Box::new(Setup::default());
    let deadline: Option<Instant> = Some(epoch());
    let ready = |goaways| state::State::Ready {
        peer: peer(),
        goaways,
    };
    [
        ("no control", state::State::AwaitingControl { deadline }),
        ("awaiting SETUP", state::State::AwaitingSetup { deadline }),
        ("ready", ready(GoAways::None)),
        ("GOAWAY sent", ready(GoAways::Sent)),
        ("GOAWAY received", ready(GoAways::Received)),
        ("GOAWAY both", ready(GoAways::Both)),
        ("closed", state::State::Closed { peer: Some(peer()) }),
    ]
}

const SESSION_EVENTS: [(&str, state::Input); 7] = [
    ("control stream", state::Input::ControlStream),
    ("SETUP", state::Input::Message(MessageKind::Setup)),
    ("GOAWAY", state::Input::Message(MessageKind::GoAway)),
    (
        "another control message",
        state::Input::Message(MessageKind::Subscribe),
    ),
    ("request of the peer", state::Input::Request),
    ("own request", state::Input::OwnRequest),
    ("own GOAWAY", state::Input::OwnGoAway),
];

fn session_cell(state: &state::State, input: state::Input) -> &'static str {
    match state::judge(state, input) {
        state::Verdict::Accept => "accept",
        state::Verdict::Defer => "defer",
        state::Verdict::Reject => "reject",
        state::Verdict::Refuse(_) => "refuse",
        state::Verdict::Ignore => "ignore",
        state::Verdict::Misuse => "misuse",
        state::Verdict::Violate(_) => "-",
    }
}

#[test]
fn session() {
    let table = print("session", &session_states(), &SESSION_EVENTS, session_cell);
    insta::assert_snapshot!(format!("- is a violation\n{table}").trim_end());
}

fn request_states() -> [(&'static str, request_state::State); 6] {
    use request_state::State;
    let updating = Live {
        updates_sent: [(RequestId(0), UpdateSent::OfRole(None))].into(),
        ..Live::default()
    };
    let done = State::DoneUnanswered {
        updates_due: 0,
        granted: [].into(),
    };
    let ended_by_peer = EndedBy::Peer { is_reported: false };
    [
        ("pending", State::new()),
        ("established", State::Established(Live::default())),
        ("updating", State::Established(updating)),
        ("done-unanswered", done),
        ("ended-by-peer", State::Ended(ended_by_peer)),
        ("ended-here", State::Ended(EndedBy::Here)),
    ]
}

const REQUEST_EVENTS: [(&str, Input); 15] = [
    ("SUBSCRIBE_OK", Input::Message(MessageKind::SubscribeOk)),
    ("FETCH_OK", Input::Message(MessageKind::FetchOk)),
    ("REQUEST_OK", Input::Message(MessageKind::RequestOk)),
    ("REQUEST_ERROR", Input::Message(MessageKind::RequestError)),
    ("REQUEST_UPDATE", Input::Message(MessageKind::RequestUpdate)),
    ("PUBLISH_DONE", Input::Message(MessageKind::PublishDone)),
    (
        "PUBLISH_STATE_NOTIFY",
        Input::Message(MessageKind::PublishStateNotify),
    ),
    ("NAMESPACE", Input::Message(MessageKind::Namespace)),
    ("NAMESPACE_DONE", Input::Message(MessageKind::NamespaceDone)),
    (
        "PUBLISH_BLOCKED",
        Input::Message(MessageKind::PublishBlocked),
    ),
    ("GOAWAY", Input::Message(MessageKind::GoAway)),
    ("first message", Input::Message(MessageKind::Subscribe)),
    ("FIN", Input::End(CloseReason::Fin)),
    (
        "RESET_STREAM",
        Input::End(CloseReason::Reset(ResetCode::CANCELLED)),
    ),
    (
        "STOP_SENDING",
        Input::End(CloseReason::Stopped(ResetCode::CANCELLED)),
    ),
];

fn request_cell(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accept => "accept",
        Verdict::Reject => "reject",
        Verdict::UpdateAnswer => "update answer",
        Verdict::Update => "update",
        Verdict::Done => "done",
        Verdict::StateNotify => "state",
        Verdict::Namespace => "namespace",
        Verdict::NamespaceDone => "namespace done",
        Verdict::PublishBlocked => "blocked",
        Verdict::GoAway => "goaway",
        Verdict::Close => "close",
        Verdict::HalfClose => "half close",
        Verdict::Ignore => "ignore",
        Verdict::Violate(_) => "-",
    }
}

#[test]
fn requests() {
    let mut tables = String::from("- is a violation\n");
    let openers = [
        (Opener::Here, "of this endpoint"),
        (Opener::Peer, "of the peer"),
    ];
    for (opener, name) in openers {
        for kind in RequestKind::ALL {
            let title = format!("{kind:?} {name}");
            let states = request_states();
            let table = print(&title, &states, &REQUEST_EVENTS, |state, input| {
                request_cell(judge(opener, kind, state, input))
            });
            tables.push_str(&table);
        }
    }
    insta::assert_snapshot!(tables.trim_end());
}

#[test]
fn setup_and_first_messages_never_fit() {
    for message in [
        MessageKind::Setup,
        MessageKind::Subscribe,
        MessageKind::Publish,
        MessageKind::Fetch,
        MessageKind::TrackStatus,
        MessageKind::PublishNamespace,
        MessageKind::SubscribeNamespace,
        MessageKind::SubscribeTracks,
    ] {
        for kind in RequestKind::ALL {
            for (_, state) in request_states() {
                for opener in [Opener::Here, Opener::Peer] {
                    let verdict = judge(opener, kind, &state, Input::Message(message));
                    assert!(matches!(verdict, Verdict::Violate(_)));
                }
            }
        }
    }
}
