//! What the relay does not pass on: namespaces that belong to a session, and tracks with mandatory properties that the
//! relay does not understand.

use weir_moqt::{
    error::RequestErrorCode, name::Namespace, parameter::Parameters, property::Properties,
};

use crate::{
    actor::Manner,
    archive::Serving,
    stage::{Setting, millis, space, story},
};

#[test]
fn names_that_belong_to_a_session_stay_in_it() {
    story(&Setting::default(), |stage| {
        let [watcher, client, other] = [(); 3].map(|()| stage.client());
        let watching = stage.watch(watcher, Namespace::EMPTY);
        let all = Parameters::default();
        let collecting = stage.collect(other, Namespace::EMPTY, all.clone());
        stage.step("two who want to hear of everything", millis(50));
        // `.session`, and below it, and `.`, in their canonical form.
        for namespace in [".2esession", ".2esession-x", ".2e"] {
            let tracks = [format!("{namespace}--x"), format!("{namespace}--")];
            let mut asked = vec![
                stage.announce(client, namespace),
                stage.watch(client, space(namespace)),
                stage.collect(client, space(namespace), all.clone()),
            ];
            for track in &tracks {
                asked.extend([
                    stage.publish(client, track),
                    stage.subscribe(client, track),
                    stage.fetch(client, track, (0, 0), (1, 0)),
                    stage.track_status(client, track),
                ]);
            }
            stage.step(&format!("all requests for {namespace}"), millis(100));
            for asked in asked {
                let code = Some(RequestErrorCode::DOES_NOT_EXIST);
                assert_eq!(stage.refusal(asked), code, "{asked:?}");
            }
        }
        assert!(stage.heard(watching).is_empty());
        assert!(stage.heard(collecting).is_empty());
        assert!(stage.actor(other).offered.is_empty());
        assert_eq!((stage.gauges().tracks, stage.gauges().namespaces), (0, 0));
        let open = stage.announce(client, ".2eother");
        stage.step(
            "another reserved name, whose meaning is for others",
            millis(100),
        );
        assert!(stage.is_accepted(open), "is passed on");
        assert_eq!(stage.heard(watching).len(), 1);
    });
}

#[test]
fn a_track_that_has_to_be_understood_is_not_passed_on() {
    story(&Setting::default(), |stage| {
        let [publisher, announcer, subscriber, collector] = [(); 4].map(|()| stage.client());
        // Type 0x4000, an integer: a mandatory track property that is not defined.
        let properties = Properties::builder().int(0x4000, 1).build();
        stage.collect(collector, space("a"), Parameters::default());
        stage.wait(millis(50));
        let none = Parameters::default();
        let publication = stage.publish_with(publisher, "a--x", none, properties.clone());
        stage.step("PUBLISH with such a property", millis(100));
        let unsupported = Some(RequestErrorCode::UNSUPPORTED_EXTENSION);
        assert_eq!(stage.refusal(publication), unsupported);
        stage.direct(announcer, |actor| {
            actor.manner = Manner::Accept(9);
            actor.archive.fill(0, 2, 3, 500);
            actor.archive.properties = properties;
            actor.archive.serving = Serving::Serve;
        });
        stage.announce(announcer, "a");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        let fetch = stage.fetch(subscriber, "a--y", (0, 0), (2, 2));
        stage.step("SUBSCRIBE_OK and FETCH_OK with it", millis(200));
        assert_eq!(stage.refusal(subscription), unsupported);
        assert_eq!(stage.refusal(fetch), unsupported);
        let asked = stage.asked(announcer, 0);
        assert!(stage.actor(announcer).exchanges[&asked].closed.is_some());
        assert!(stage.actor(collector).offered.is_empty());
        assert_eq!(stage.gauges().tracks, 0);
    });
}
