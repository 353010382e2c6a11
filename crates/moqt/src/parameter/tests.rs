use super::*;

const DRAFT: Draft = Draft::Draft18;

/// All moments of a request in which `parameters` may be sent, one letter per request kind in the order of
/// [`RequestKind::ALL`], one word per step.
fn places(parameters: &Parameters) -> String {
    let steps = [
        Step::Request,
        Step::Answer,
        Step::Update,
        Step::UpdateAnswer,
    ];
    let words = steps.map(|step| {
        let may = |kind: RequestKind| parameters.check(DRAFT, kind, step).is_ok();
        let letters = RequestKind::ALL.into_iter().zip("SPFTnNT".chars());
        letters
            .map(|(kind, letter)| if may(kind) { letter } else { '-' })
            .collect::<String>()
    });
    words.join(" ")
}

#[test]
fn each_parameter_may_stand_where_the_draft_says() {
    let none = Parameters::none;
    let second = Some(Duration::from_secs(1));
    let tokens = vec![Token::UseAlias { alias: 1 }];
    for (parameters, expected) in [
        (none(), "SPFTnNT SPFTnNT SPFTnNT SPFTnNT"),
        (
            Parameters {
                object_delivery_timeout: second,
                ..none()
            },
            "S------ -P----- SPFTnNT -------",
        ),
        (
            Parameters {
                subgroup_delivery_timeout: second,
                ..none()
            },
            "S------ -P----- SPFTnNT -------",
        ),
        (
            Parameters {
                authorization_tokens: tokens,
                ..none()
            },
            "SPFTnNT ------- SPFTnNT -------",
        ),
        (
            Parameters {
                rendezvous_timeout: second,
                ..none()
            },
            "S------ ------- ------- -------",
        ),
        (
            Parameters {
                expires: second,
                ..none()
            },
            "-P----- SP-T--- ------- SP-----",
        ),
        (
            Parameters {
                largest_object: Some(Location::ZERO),
                ..none()
            },
            "-P----- S--T--- ------- SP-----",
        ),
        (
            Parameters {
                fill_timeout: second,
                ..none()
            },
            "--F---- ------- ------- -------",
        ),
        (
            Parameters {
                forward: Some(true),
                ..none()
            },
            "SP----T -P----- SP----- -------",
        ),
        (
            Parameters {
                subscriber_priority: Some(1),
                ..none()
            },
            "S-F---- -P----- SPF---- -------",
        ),
        (
            Parameters {
                filter: Some(Filter::LargestObject),
                ..none()
            },
            "S------ -P----- SP----- -------",
        ),
        (
            Parameters {
                group_order: Some(GroupOrder::Ascending),
                ..none()
            },
            "S-F---- -P----- ------- -------",
        ),
        (
            Parameters {
                new_group_request: Some(0),
                ..none()
            },
            "S------ -P----- SP----- -------",
        ),
        (
            Parameters {
                track_namespace_prefix: Some(Namespace::EMPTY),
                ..none()
            },
            "------- ------- -----NT -------",
        ),
    ] {
        assert_eq!(places(&parameters), expected, "{parameters:?}");
    }
}

#[test]
fn the_rows_of_a_draft_ascend() {
    for draft in Draft::ALL {
        assert!(draft.parameters().is_sorted_by(|a, b| a.code < b.code));
    }
}

#[test]
#[should_panic(expected = "a filter ends in or behind its first group")]
fn a_filter_does_not_end_before_it_starts() {
    let filter = Filter::AbsoluteRange {
        start: Location::new(2, 0),
        end_group: 1,
    };
    filter.encode(&mut BytesMut::new());
}
