//! Peers that do not read for a while: a relay gives up what they are behind with, or waits, and says what it gave up.

use super::{
    bounds::bounded,
    robustness::{storm, uni},
};
use crate::{
    case::Case,
    line::{Action, Line},
    script::{A, B, Check, Script, Step, ok, progress},
    seen::Slot,
    wire::{Request, Subgroup, group, object},
};
use weir_moqt::message::Message;

pub(super) fn cases() -> Vec<Case> {
    vec![
        bounded(
            "limit.lag-in-groups",
            "320 groups of 50 kB that a subscriber does not read",
            |script| {
                let subscription = deaf_subscriber(script);
                script.step(storm(320, 800, |number, _| {
                    let bytes = group(Subgroup::of(number), &[&vec![b'x'; 50_000]]);
                    vec![
                        Step::Act(B, uni(number), Action::Write(bytes.into())),
                        Step::Act(B, uni(number), Action::Finish),
                    ]
                }));
                hears_again(script, subscription);
            },
        ),
        bounded(
            "limit.lag-in-one-group",
            "a group of 16 MB that a subscriber does not read",
            |script| {
                let subscription = deaf_subscriber(script);
                script.write(B, uni(0), Subgroup::of(0).encode());
                script.step(storm(320, 800, |_, _| {
                    let bytes = object(0, &vec![b'x'; 50_000]);
                    vec![Step::Act(B, uni(0), Action::Write(bytes.into()))]
                }));
                hears_again(script, subscription);
            },
        ),
        bounded(
            "limit.streams-of-a-subscription",
            "200 open streams that a subscriber does not read",
            |script| {
                let subscription = deaf_subscriber(script);
                script.step(storm(200, 800, |number, _| {
                    let header = Subgroup {
                        id: number,
                        ..Subgroup::of(0)
                    };
                    let bytes = [header.encode(), object(number, &[b'x'; 1000])].concat();
                    vec![Step::Act(B, uni(number), Action::Write(bytes.into()))]
                }));
                script.wait(300);
                script.step(storm(200, 2000, |number, _| {
                    vec![Step::Act(B, uni(number), Action::Finish)]
                }));
                hears_again(script, subscription);
            },
        ),
        announcements(),
    ]
}

/// A subscriber that does not read what is announced.
fn announcements() -> Case {
    bounded(
        "limit.announcements-that-are-not-read",
        "400 kB of announcements that a subscriber does not read",
        |script| {
            script.join(A);
            let slot = script.request(A, Request::SubscribeNamespace);
            script.expect(A, ok(slot));
            script.step(Step::Behave(A, Box::new(|line| line.is_deaf = true)));
            let track = script.track.clone();
            script.step(storm(400, 1000, move |number, _| {
                let client = 2 + usize::try_from(number % 4).unwrap_or(0);
                let field = format!("{number:01000}");
                let track = track.below(&field);
                let encode = move |id| Request::PublishNamespace.encode(id, &track, &[]);
                vec![
                    Step::Rejoin(client),
                    Step::Ask(client, super::robustness::slot(number), Box::new(encode)),
                ]
            }));
            script.wait(300);
        },
    )
}

/// B publishes a track to A, which stops reading. Returns A's subscription.
fn deaf_subscriber(script: &mut Script) -> Slot {
    let channel = script.channel(B, A);
    let deaf = |line: &mut Line| line.is_deaf = true;
    script.step(Step::Behave(A, Box::new(deaf)));
    channel.subscription
}

/// A reads again. It gets a new object, or is told that its subscription has ended.
fn hears_again(script: &mut Script, subscription: Slot) {
    script.wait(300);
    script.step(Step::Behave(A, Box::new(|line| line.is_deaf = false)));
    script.then();
    script.stream(B, group(Subgroup::of(NEWEST), &[b"new"]));
    script.expect(A, goes_on(subscription));
}

/// A group after all others of a case.
const NEWEST: u64 = 10_000;

/// The newest object arrives, or the end of the subscription or the session.
fn goes_on(subscription: Slot) -> Check {
    let text = "a new object, or PUBLISH_DONE, or the end of the session by the relay";
    Check::new(text, move |seen| {
        let is_done = seen.on(subscription).is_some_and(|it| {
            let mut messages = it.messages.iter();
            messages.any(|one| matches!(one, Message::PublishDone(_)))
        });
        let is_closed = seen.ended.as_ref().is_some_and(|it| it.code.is_some());
        let has_newest = seen.objects.iter().any(|it| it.group == NEWEST);
        progress(is_done || is_closed || has_newest)
    })
}
