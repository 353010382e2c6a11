//! Objects on subgroup streams.

use weir_moqt::{
    data::{ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId},
    error::ResetCode,
    property::Properties,
    session::StreamEnd,
};

use crate::stage::{Asked, Setting, Stage, millis, object, payload, plain, secs, story};

/// A publisher and subscribers of its track.
fn cast(stage: &mut Stage, subscribers: usize) -> (Asked, Vec<Asked>) {
    let publisher = stage.client();
    let publication = stage.publish(publisher, "a--x");
    let subscribers = stage.clients(subscribers);
    let subscriptions = subscribers
        .iter()
        .map(|&subscriber| stage.subscribe(subscriber, "a--x"))
        .collect();
    stage.step("everybody is there", millis(50));
    (publication, subscriptions)
}

#[test]
fn headers_and_objects_arrive_unaltered() {
    story(&Setting::default(), |stage| {
        let (publication, subscriptions) = cast(stage, 3);
        let mut sent = Vec::new();
        for (group, header) in headers().into_iter().enumerate() {
            let mut header = header;
            header.group = group as u64 + 10;
            let objects = objects(header.has_properties);
            let mut stream = stage.open_with(publication, header);
            for (object, payload) in &objects {
                stage.object_with(publication, &mut stream, object, payload);
            }
            stage.finish(publication, &stream);
            stage.step("a subgroup", millis(20));
            sent.push((header, objects));
        }
        stage.wait(millis(50));
        for subscription in subscriptions {
            let outcome = stage.outcome(subscription);
            let alias = outcome.ok.as_ref().unwrap().track_alias;
            assert_eq!(outcome.streams.len(), sent.len());
            for (arrival, (header, objects)) in outcome.streams.iter().zip(&sent) {
                let header = SubgroupHeader {
                    track_alias: alias,
                    ..*header
                };
                assert_eq!(arrival.header, header);
                let received = arrival.objects.iter();
                let received = received.map(|object| (object.header.clone(), &object.payload[..]));
                assert!(received.eq(objects.clone()));
                assert_eq!(arrival.end, Some(StreamEnd::Fin));
            }
        }
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

/// Returns subgroup headers with every combination of fields.
fn headers() -> Vec<SubgroupHeader> {
    let mut headers = Vec::new();
    for subgroup in [
        SubgroupId::Zero,
        SubgroupId::FirstObject,
        SubgroupId::Explicit(77),
    ] {
        for bits in 0..16 {
            headers.push(SubgroupHeader {
                subgroup,
                priority: (bits & 1 != 0).then_some(9),
                has_properties: bits & 2 != 0,
                end_of_group: bits & 4 != 0,
                first_object: bits & 8 != 0,
                ..plain(0)
            });
        }
    }
    headers
}

/// Returns objects of all kinds: with gaps between them, with properties, with an empty payload, with a status.
fn objects(has_properties: bool) -> Vec<(ObjectHeader, &'static [u8])> {
    let properties = if has_properties {
        Properties::builder().int(0x3E, 1).bytes(0x41, &b"raw"[..])
    } else {
        Properties::builder()
    };
    let with_properties = ObjectHeader {
        properties: properties.build(),
        ..object(7, 5)
    };
    let end = ObjectHeader {
        status: ObjectStatus::EndOfGroup,
        ..object(10_000, 0)
    };
    vec![
        (object(3, 3), b"one"),
        (with_properties, b"seven"),
        (object(8, 0), b""),
        (end, b""),
    ]
}

#[test]
fn objects_are_passed_on_before_they_are_complete() {
    story(&Setting::default(), |stage| {
        let (publication, subscriptions) = cast(stage, 2);
        let whole = payload(1, 0, 60_000);
        let mut stream = stage.open(publication, 1);
        stage.step("the first half", millis(0));
        let header = object(0, whole.len());
        stage.object_with(publication, &mut stream, &header, &whole[..30_000]);
        stage.wait(millis(200));
        for &subscription in &subscriptions {
            let arrival = &stage.outcome(subscription).streams[0];
            assert_eq!(arrival.objects[0].payload, whole[..30_000]);
        }
        stage.step("the second half", millis(0));
        let rest = whole[30_000..].to_vec();
        stage.write(publication, stream.stream, rest.into(), true);
        stage.wait(millis(200));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &[1], 1, 60_000);
            let arrival = &stage.outcome(subscription).streams[0];
            assert_eq!(arrival.end, Some(StreamEnd::Fin));
        }
    });
}

#[test]
fn subgroups_travel_side_by_side() {
    story(&Setting::default(), |stage| {
        let (publication, subscriptions) = cast(stage, 2);
        let mut streams: Vec<_> = (0..5)
            .map(|subgroup| {
                let header = SubgroupHeader {
                    subgroup: SubgroupId::Explicit(subgroup),
                    ..plain(3)
                };
                stage.open_with(publication, header)
            })
            .collect();
        for id in 0..50 {
            let place = usize::try_from(id % 5).unwrap();
            stage.object(publication, &mut streams[place], id, &payload(3, id, 700));
            stage.wait(millis(3));
        }
        for stream in &streams {
            stage.finish(publication, stream);
        }
        stage.step("all are sent", millis(50));
        for &subscription in &subscriptions {
            stage.expect_objects(subscription, &[3], 50, 700);
            let streams = &stage.outcome(subscription).streams;
            assert_eq!(streams.len(), 5);
            for arrival in streams {
                assert_eq!(arrival.objects.len(), 10);
                assert!(arrival.objects.is_sorted_by_key(|object| object.header.id));
            }
        }
    });
}

#[test]
fn streams_of_one_packet_are_opened_in_its_order() {
    story(&Setting::default(), |stage| {
        let (publication, subscriptions) = cast(stage, 1);
        for group in 0..20 {
            stage.group(publication, group, 1, 10);
        }
        stage.step("all at once", millis(50));
        let streams = &stage.outcome(subscriptions[0]).streams;
        let groups: Vec<_> = streams.iter().map(|arrival| arrival.header.group).collect();
        assert_eq!(groups, (0..20).collect::<Vec<_>>());
        assert!(streams.is_sorted_by_key(|arrival| arrival.stream));
    });
}

#[test]
fn streams_that_a_peer_allows_go_to_the_few_of_many_subscriptions_that_wait() {
    let mut setting = Setting::default();
    // One of them is the control stream.
    setting.client.uni_streams_max = 41;
    setting.client.keep_alive = Some(secs(2));
    setting.quic.bidi_streams_max = 400;
    story(&setting, |stage| {
        let [publisher, subscriber] = [(); 2].map(|()| stage.client());
        let names: Vec<_> = (0..200).map(|number| format!("a--{number}")).collect();
        let tracks = names.iter().map(|name| stage.publish(publisher, name));
        let tracks: Vec<_> = tracks.collect();
        stage.step("two hundred tracks", millis(200));
        let subscriptions = names.iter().map(|name| stage.subscribe(subscriber, name));
        let subscriptions: Vec<_> = subscriptions.collect();
        stage.step("and subscriptions", millis(200));
        let open = (0..40).map(|group| {
            let mut outgoing = stage.open(tracks[0], group);
            stage.object(tracks[0], &mut outgoing, 0, b"x");
            outgoing
        });
        let open: Vec<_> = open.collect();
        stage.step("one track needs all streams", millis(100));
        assert_eq!(stage.outcome(subscriptions[0]).streams.len(), 40);
        for group in 0..60 {
            stage.group(tracks[7], group, 1, 10);
        }
        stage.group(tracks[9], 0, 1, 10);
        stage.step("two others wait", millis(100));
        for waiting in [7, 9] {
            let received = &stage.outcome(subscriptions[waiting]).streams;
            assert!(received.is_empty());
        }
        for outgoing in &open {
            stage.finish(tracks[0], outgoing);
        }
        stage.step("until streams end", secs(1));
        let groups: Vec<_> = (0..60).collect();
        stage.expect_objects(subscriptions[7], &groups, 1, 10);
        stage.expect_objects(subscriptions[9], &[0], 1, 10);
    });
}

#[test]
fn empty_subgroups_harm_nobody() {
    story(&Setting::default(), |stage| {
        let (publication, subscriptions) = cast(stage, 1);
        let finished = stage.open(publication, 1);
        stage.finish(publication, &finished);
        let reset = stage.open(publication, 2);
        stage.wait(millis(50));
        stage.reset(publication, &reset, ResetCode::DELIVERY_TIMEOUT);
        stage.step("two empty subgroups", millis(50));
        assert_eq!(stage.gauges().subgroups, 0);
        stage.group(publication, 3, 2, 100);
        stage.step("a full one", millis(50));
        stage.publish_done(publication, 3);
        stage.step("the end", secs(3));
        stage.expect_objects(subscriptions[0], &[3], 2, 100);
        let done = stage.outcome(subscriptions[0]).done.as_ref().unwrap();
        assert_eq!(done.stream_count, Some(1));
    });
}

#[test]
fn a_reset_is_passed_on() {
    story(&Setting::default(), |stage| {
        let (publication, subscriptions) = cast(stage, 2);
        let mut stream = stage.open(publication, 1);
        stage.object(publication, &mut stream, 0, b"whole");
        stage.object_with(publication, &mut stream, &object(1, 100), b"only a part");
        stage.step("an object and a part", millis(50));
        stage.reset(publication, &stream, ResetCode::DELIVERY_TIMEOUT);
        stage.step("and no more", millis(50));
        stage.group(publication, 2, 3, 100);
        stage.step("the next group", millis(50));
        for &subscription in &subscriptions {
            let streams = &stage.outcome(subscription).streams;
            assert_eq!(streams.len(), 2);
            let end = StreamEnd::Reset(ResetCode::DELIVERY_TIMEOUT);
            assert_eq!(streams[0].end, Some(end));
            assert_eq!(streams[0].objects[0].payload, b"whole");
            assert_eq!(streams[1].objects.len(), 3);
        }
        assert_eq!(stage.counters().streams_reset_upstream, 2);
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

#[test]
fn stopping_a_stream_stops_nothing_else() {
    story(&Setting::default(), |stage| {
        let (publication, subscriptions) = cast(stage, 2);
        let [one, other] = subscriptions[..] else {
            panic!("there are two")
        };
        let mut first = stage.open(publication, 1);
        let mut second = stage.open(publication, 2);
        stage.object(publication, &mut first, 0, &payload(1, 0, 100));
        stage.object(publication, &mut second, 0, &payload(2, 0, 100));
        stage.step("two groups begin", millis(50));
        let unwanted = stage.outcome(one).streams[0].stream;
        stage.act(one.node, |session, connection| {
            session.stop_data(connection, unwanted, ResetCode::CANCELLED);
        });
        stage.step("one of them is stopped", millis(50));
        for id in 1..4 {
            stage.object(publication, &mut first, id, &payload(1, id, 100));
            stage.object(publication, &mut second, id, &payload(2, id, 100));
            stage.wait(millis(10));
        }
        stage.finish(publication, &first);
        stage.finish(publication, &second);
        stage.group(publication, 3, 4, 100);
        stage.step("all are sent", millis(100));
        stage.expect_objects(other, &[1, 2, 3], 4, 100);
        let streams = &stage.outcome(one).streams;
        let counts: Vec<_> = streams
            .iter()
            .map(|arrival| arrival.objects.len())
            .collect();
        assert_eq!(counts, [1, 4, 4]);
        assert_eq!(stage.counters().streams_stopped, 1);
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

#[test]
fn subgroups_of_a_group_go_in_the_order_of_their_ids() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(100));
        let link = weir_link::Config {
            rate: weir_link::Rate::Fixed(weir_link::Bitrate::from_kilobits_per_second(200)),
            ..Setting::default().link
        };
        let relay = stage.relay;
        stage.sim.set_link(relay, subscriber, link);
        for (place, number) in [7, 2, 1, 0].into_iter().enumerate() {
            let header = SubgroupHeader {
                subgroup: SubgroupId::Explicit(number),
                ..plain(1)
            };
            let mut stream = stage.open_with(publication, header);
            for id in 0..60 {
                let id = 100 * place as u64 + id;
                stage.object(publication, &mut stream, id, &payload(1, id, 1000));
            }
            stage.finish(publication, &stream);
        }
        stage.step("four subgroups that end at one time", secs(20));
        let streams = stage.outcome(subscription).streams.iter();
        let mut ended: Vec<_> = streams
            .map(|arrival| {
                let last = arrival.objects.last().expect("it has objects");
                (last.complete_at.expect("in full"), arrival.header.subgroup)
            })
            .collect();
        ended.sort_by_key(|(at, _)| *at);
        let order: Vec<_> = ended.into_iter().map(|(_, number)| number).collect();
        // The transport completes a stream that it has begun; the others overtake each other.
        assert_eq!(order, [7, 0, 1, 2].map(SubgroupId::Explicit));
    });
}
