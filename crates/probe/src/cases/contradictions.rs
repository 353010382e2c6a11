//! Chosen contradictions of publishers and subscribers: the relay may close the session or go on, and serves others.

use weir_moqt::message::{Message, MessageKind};

use super::{
    asked::{Asks, answering},
    robustness::{robust, slot, storm, uni},
    upstream_fetches::serve,
};
use crate::{
    case::Case,
    hostile::{Asked, KINDS, data},
    line::Action,
    script::{A, B, Channel, Script, Step, request},
    seen::Slot,
    wire::{self, ALIAS, Request, Subgroup, group, int, object},
};

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = answers().collect();
    cases.extend(subscriptions());
    cases.extend(ended_subscriptions());
    cases.extend(fetches());
    cases.extend(objects());
    cases.extend(cuts());
    cases
}

/// A case in which a publisher is asked for a track and contradicts itself.
fn contradiction(name: &str, act: impl Fn(&mut Script) + Send + 'static) -> Case {
    robust(format!("contradiction.{name}"), move |script| {
        script.track = script.track.below("contradiction");
        act(script);
        script.wait(100);
        script.track.namespace.pop();
    })
}

/// Each message as the answer to each request of the relay, then as the second answer.
fn answers() -> impl Iterator<Item = Case> {
    Asks::ALL.into_iter().map(|asks| {
        let name = format!("contradiction.all-answers-to-{}", asks.word());
        robust(name, move |script| {
            let kinds = KINDS.len() as u64;
            answering(
                script,
                asks,
                2 * kinds,
                move |number, asked, slot, message, _| {
                    let (_, encode) = KINDS[usize::try_from(number % kinds).unwrap_or(0)];
                    let bytes = encode(number, &asked.track);
                    if number < kinds {
                        return vec![asked.write(slot, bytes)];
                    }
                    let mut steps = asked.accept(slot, message);
                    steps.push(asked.write(slot, bytes));
                    steps
                },
            );
        })
    })
}

/// Contradictions while a subscription is established.
fn subscriptions() -> Vec<Case> {
    vec![
        contradiction("subscribe-ok-with-another-alias", |script| {
            let Channel { publication, .. } = script.channel(A, B);
            script.write(A, publication, wire::subscribe_ok(ALIAS + 1, &[], &[]));
            for alias in [ALIAS, ALIAS + 1] {
                let header = Subgroup {
                    alias,
                    ..Subgroup::of(0)
                };
                script.stream(A, group(header, &[b"a"]));
            }
        }),
        contradiction("alias-in-use", |script| {
            let other = script.track.named("other");
            script.channel(A, B);
            script.request_of(B, Request::Subscribe, other);
            let taken = script.taken_subscribe(A);
            script.write(A, taken, wire::subscribe_ok(ALIAS, &[], &[]));
            script.stream(A, group(Subgroup::of(0), &[b"of which track?"]));
        }),
        contradiction("data-of-another-alias", |script| {
            script.channel(A, B);
            for alias in 2..40 {
                let header = Subgroup {
                    alias,
                    ..Subgroup::of(0)
                };
                script.stream(A, group(header, &[b"a"]));
                script.datagram(A, data::DATAGRAMS[0].1(alias, 0));
            }
        }),
        contradiction("data-before-the-answer", |script| {
            let Channel { publication, .. } = script.pending(A, B);
            script.stream(A, group(Subgroup::of(0), &[b"early"]));
            script.datagram(A, wire::datagram(1, 0, b"early"));
            script.write(A, publication, wire::request_error(0, b"no"));
            script.stream(A, group(Subgroup::of(2), &[b"late"]));
        }),
        contradiction("data-of-a-subscriber", |script| {
            script.channel(B, A);
            script.stream(A, group(Subgroup::of(0), &[b"mine"]));
            script.datagram(A, wire::datagram(1, 0, b"mine"));
        }),
    ]
}

/// Contradictions when a subscription has ended.
fn ended_subscriptions() -> Vec<Case> {
    vec![
        contradiction("data-after-publish-done", |script| {
            let Channel { publication, .. } = script.channel(A, B);
            script.stream(A, group(Subgroup::of(0), &[b"a"]));
            script.write(A, publication, wire::publish_done(2, 1, b""));
            script.stream(A, group(Subgroup::of(1), &[b"late"]));
            script.datagram(A, wire::datagram(2, 0, b"late"));
            script.write(A, publication, wire::subscribe_ok(ALIAS, &[], &[]));
            script.stream(A, group(Subgroup::of(3), &[b"late"]));
        }),
        contradiction("publish-done-twice", |script| {
            let slot = script.publish(A);
            script.write(A, slot, wire::publish_done(2, 0, b"").repeat(2));
            script.stream(A, group(Subgroup::of(0), &[b"late"]));
        }),
        contradiction("publish-done-with-2^64-1-streams", |script| {
            let Channel { publication, .. } = script.channel(A, B);
            script.write(A, publication, wire::publish_done(2, u64::MAX, b""));
            script.stream(A, group(Subgroup::of(0), &[b"a"]));
        }),
        contradiction("second-answer-after-an-error", |script| {
            let Channel { publication, .. } = script.pending(A, B);
            let refusal = wire::request_error(0x10, b"no");
            let accepted = wire::subscribe_ok(ALIAS, &[], &[]);
            script.write(A, publication, [&refusal[..], &accepted, &refusal].concat());
            script.stream(A, group(Subgroup::of(0), &[b"a"]));
        }),
        contradiction("answer-to-a-cancelled-request", |script| {
            let Channel {
                publication,
                subscription,
            } = script.pending(A, B);
            script.stop(B, subscription, 1);
            script.reset(B, subscription, 1);
            script.wait(50);
            script.write(A, publication, wire::subscribe_ok(ALIAS, &[], &[]));
            script.stream(A, group(Subgroup::of(0), &[b"a"]));
        }),
        contradiction("update-after-the-end", |script| {
            let channel = script.channel(B, A);
            script.write(B, channel.publication, wire::publish_done(2, 0, b""));
            script.wait(50);
            for _ in 0..3 {
                script.update(A, channel.subscription, Vec::new());
            }
            script.finish(A, channel.subscription);
        }),
    ]
}

/// A publisher gets the relay's FETCH. Returns its stream.
fn asked_to_fetch(script: &mut Script) -> Slot {
    script.announce(A);
    script.step(Step::Behave(A, Box::new(|line| line.is_mute = true)));
    script.join(B);
    let track = script.track.clone();
    script.ask(B, move |id| wire::fetch(id, &track, (5, 0), (6, 0), &[]));
    let taken = script.taken();
    script.expect(A, request(taken, MessageKind::Fetch, |_| true));
    taken
}

/// Contradictions in the answers to a FETCH of the relay for group 5.
fn fetches() -> Vec<Case> {
    let accepted = |script: &mut Script, taken, end| {
        let accepted = wire::fetch_ok(script.edition, end, &[]);
        script.write(A, taken, accepted);
    };
    vec![
        contradiction("fetch-stream-of-an-unknown-request", |script| {
            asked_to_fetch(script);
            for request in [999, 998] {
                script.stream(A, data::fetch_stream(request, 5));
            }
        }),
        contradiction("fetch-stream-of-a-subscribe", |script| {
            let Channel { publication, .. } = script.channel(A, B);
            script.step(Step::Reply(
                A,
                Slot::Uni(1_000),
                Box::new(move |seen| {
                    let first = seen.on(publication).and_then(|it| it.messages.first());
                    match first {
                        Some(Message::Subscribe(it)) => Ok(data::fetch_stream(it.request_id, 0)),
                        _ => Err("the relay's SUBSCRIBE is gone".to_owned()),
                    }
                }),
            ));
        }),
        contradiction("fetch-stream-twice", move |script| {
            let taken = asked_to_fetch(script);
            accepted(script, taken, (6, 0));
            for _ in 0..2 {
                let stream = serve(script, A, taken, &[0x1C, 5, 0, 128, 1, b'a']);
                script.finish(A, stream);
            }
        }),
        contradiction("fetch-ok-twice", move |script| {
            let taken = asked_to_fetch(script);
            accepted(script, taken, (6, 0));
            accepted(script, taken, (5, 1));
            let stream = serve(script, A, taken, &[0x1C, 5, 0, 128, 1, b'a']);
            script.finish(A, stream);
        }),
        contradiction("fetch-stream-without-fetch-ok", |script| {
            let taken = asked_to_fetch(script);
            let stream = serve(script, A, taken, &[0x1C, 5, 0, 128, 1, b'a']);
            script.finish(A, stream);
            script.wait(50);
            script.write(A, taken, wire::request_error(0x10, b"no"));
            script.finish(A, taken);
        }),
        contradiction("fetched-objects-outside-the-range", move |script| {
            let taken = asked_to_fetch(script);
            accepted(script, taken, (6, 0));
            let objects = [0x1C, 4, 0, 128, 1, b'a', 0x0C, 90, 0, 1, b'b'];
            let stream = serve(script, A, taken, &objects);
            script.finish(A, stream);
        }),
        contradiction("fetched-objects-that-decrease", move |script| {
            let taken = asked_to_fetch(script);
            accepted(script, taken, (6, 0));
            let back = [int(u64::MAX), vec![1, b'b']].concat();
            let objects = [&[0x1C, 5, 9, 128, 1, b'a', 0x04][..], &back].concat();
            let stream = serve(script, A, taken, &objects);
            script.finish(A, stream);
        }),
    ]
}

/// Objects that contradict their subgroup or each other.
fn objects() -> Vec<Case> {
    vec![
        contradiction("object-ids-that-decrease", |script| {
            script.channel(A, B);
            let header = Subgroup::of(0).encode();
            let objects = [object(9, b"nine"), object(u64::MAX, b"nine again")];
            script.stream(A, [&header[..], &objects.concat()].concat());
        }),
        contradiction("subgroup-that-starts-again", |script| {
            script.channel(A, B);
            for first in [9, 4, 9, 0] {
                let header = Subgroup::of(0).encode();
                script.stream(A, [header, object(first, b"again")].concat());
            }
        }),
        contradiction("groups-that-decrease", |script| {
            script.channel(A, B);
            for number in (0..30).rev() {
                script.stream(A, group(Subgroup::of(number), &[b"a"]));
                script.datagram(A, wire::datagram(number, 7, b"a"));
            }
        }),
        contradiction("stream-and-datagram-of-one-object", |script| {
            script.channel(A, B);
            for number in 0..10 {
                script.stream(A, group(Subgroup::of(number), &[b"a"]));
                script.datagram(A, wire::datagram(number, 0, b"a"));
            }
        }),
        contradiction("objects-after-the-end", |script| {
            script.channel(A, B);
            let header = Subgroup::of(0).encode();
            let objects = [wire::status(0, 4), object(0, b"after"), wire::status(0, 3)];
            script.stream(A, [&header[..], &objects.concat()].concat());
            script.stream(A, group(Subgroup::of(7), &[b"after"]));
        }),
    ]
}

/// Data that is cut at each length, and then ends or is reset.
fn cuts() -> Vec<Case> {
    let ends = || [Action::Finish, Action::Reset(1)];
    let mut cases = vec![robust("cut.fetch-stream", move |script| {
        let times = 2 * data::fetch_stream(1, 0).len() as u64;
        answering(
            script,
            Asks::Fetch,
            times,
            move |number, asked: &Asked, slot, message, _| {
                let Message::Fetch(fetch) = message else {
                    return Vec::new();
                };
                let bytes = data::fetch_stream(fetch.request_id, 0);
                let end = ends()[usize::from(number % 2 == 1)].clone();
                let mut steps = vec![asked.write(slot, asked.valid(message))];
                steps.extend(asked.stream(0, cut(bytes, number / 2), end));
                steps
            },
        );
    })];
    for (name, encode) in data::STREAMS {
        cases.push(robust(format!("cut.{name}"), move |script| {
            let times = 2 * encode(100, 0).len() as u64;
            published(script, times, move |number, alias| {
                let end = ends()[usize::from(number % 2 == 1)].clone();
                let write = Action::Write(cut(encode(alias, 0), number / 2).into());
                vec![
                    Step::Act(A, uni(number), write),
                    Step::Act(A, uni(number), end),
                ]
            });
        }));
    }
    for (name, encode) in data::DATAGRAMS {
        cases.push(robust(format!("cut.{name}"), move |script| {
            let times = encode(100, 0).len() as u64;
            published(script, times, move |number, alias| {
                let bytes = cut(encode(alias, 0), number);
                vec![Step::Datagram(A, bytes.into())]
            });
        }));
    }
    cases
}

/// A client publishes a track each time, and sends its data. If it is closed, it joins again.
fn published(
    script: &mut Script,
    times: u64,
    data: impl Fn(u64, u64) -> Vec<Step> + Send + 'static,
) {
    let track = script.track.below("cut");
    script.step(storm(times, 200, move |number, _| {
        let (track, alias) = (track.named(&number.to_string()), 100 + number);
        let encode = move |id| wire::publish(id, &track, alias, &[], &[]);
        let mut steps = vec![Step::Rejoin(A)];
        if let Some(earlier) = number.checked_sub(KEPT) {
            let ends = [Action::Stop(1), Action::Reset(1)];
            steps.extend(ends.map(|end| Step::Act(A, slot(earlier), end)));
        }
        steps.push(Step::Ask(A, slot(number), Box::new(encode)));
        steps.extend(data(number, alias));
        steps
    }));
    script.wait(100);
}

/// Returns the first bytes.
fn cut(mut bytes: Vec<u8>, length: u64) -> Vec<u8> {
    bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    bytes
}

/// Publications that stay open at a time.
const KEPT: u64 = 40;
