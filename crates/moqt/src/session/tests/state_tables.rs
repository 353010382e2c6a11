//! The table of request states, printed whole.

use std::fmt::Write as _;

use crate::message::{MessageKind, RequestKind};
use crate::session::request_state::{End, Input, Opener, State, Verdict, judge};

const STATES: [(&str, State); 6] = [
    ("pending", State::Pending),
    ("established", State::Established { updating: false }),
    ("updating", State::Established { updating: true }),
    ("done-unanswered", State::DoneUnanswered),
    ("ended-by-peer", State::EndedByPeer),
    ("ended-here", State::EndedHere),
];

const INPUTS: [(&str, Input); 14] = [
    ("SUBSCRIBE_OK", Input::Message(MessageKind::SubscribeOk)),
    ("FETCH_OK", Input::Message(MessageKind::FetchOk)),
    ("REQUEST_OK", Input::Message(MessageKind::RequestOk)),
    ("REQUEST_ERROR", Input::Message(MessageKind::RequestError)),
    ("REQUEST_UPDATE", Input::Message(MessageKind::RequestUpdate)),
    ("PUBLISH_DONE", Input::Message(MessageKind::PublishDone)),
    ("NAMESPACE", Input::Message(MessageKind::Namespace)),
    ("NAMESPACE_DONE", Input::Message(MessageKind::NamespaceDone)),
    (
        "PUBLISH_BLOCKED",
        Input::Message(MessageKind::PublishBlocked),
    ),
    ("GOAWAY", Input::Message(MessageKind::GoAway)),
    ("first message", Input::Message(MessageKind::Subscribe)),
    ("FIN", Input::End(End::Fin)),
    ("RESET_STREAM", Input::End(End::Reset)),
    ("STOP_SENDING", Input::End(End::Stopped)),
];

fn cell(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accept => "accept",
        Verdict::Reject => "reject",
        Verdict::UpdateAnswer => "update answer",
        Verdict::Update => "update",
        Verdict::Done => "done",
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
    let mut table = String::from("- is a violation\n");
    for (opener, name) in [
        (Opener::Here, "of this endpoint"),
        (Opener::Peer, "of the peer"),
    ] {
        for kind in RequestKind::ALL {
            write!(table, "\n{:<32}", format!("{kind:?} {name}")).unwrap();
            for (state, _) in STATES {
                write!(table, "{state:<17}").unwrap();
            }
            for (input, row) in INPUTS {
                write!(table, "\n  {input:<30}").unwrap();
                for (_, state) in STATES {
                    write!(table, "{:<17}", cell(judge(opener, kind, state, row))).unwrap();
                }
            }
            table.push('\n');
        }
    }
    let trimmed: Vec<&str> = table.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(trimmed.join("\n"));
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
            for (_, state) in STATES {
                for opener in [Opener::Here, Opener::Peer] {
                    let verdict = judge(opener, kind, state, Input::Message(message));
                    assert!(matches!(verdict, Verdict::Violate(_)));
                }
            }
        }
    }
}
