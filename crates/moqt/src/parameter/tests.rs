use super::*;

const DRAFT: Draft = Draft::Draft18;
/// One letter for each of [`RequestKind::ALL`].
const LETTERS: &str = "SPFTnNT";

/// Returns the steps of requests in which `parameters` may be sent: one letter per request kind in the order of
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
        assert_eq!(
            RequestKind::ALL.len(),
            LETTERS.len(),
            "a letter for each kind"
        );
        let letters = RequestKind::ALL.into_iter().zip(LETTERS.chars());
        letters
            .map(|(kind, letter)| if may(kind) { letter } else { '-' })
            .collect::<String>()
    });
    words.join(" ")
}

fn with(set: impl FnOnce(&mut Parameters)) -> Parameters {
    let mut parameters = Parameters::none();
    set(&mut parameters);
    parameters
}

#[test]
fn each_parameter_may_stand_where_the_draft_says() {
    let second = Some(Duration::from_secs(1));
    let tokens = vec![Token::UseAlias { alias: 1 }];
    for (parameters, expected) in [
        (Parameters::none(), "SPFTnNT SPFTnNT SPFTnNT SPFTnNT"),
        (
            with(|parameters| parameters.object_delivery_timeout = second),
            "S------ -P----- SPFTnNT -------",
        ),
        (
            with(|parameters| parameters.subgroup_delivery_timeout = second),
            "S------ -P----- SPFTnNT -------",
        ),
        (
            with(|parameters| parameters.authorization_tokens = tokens),
            "SPFTnNT ------- SPFTnNT -------",
        ),
        (
            with(|parameters| parameters.rendezvous_timeout = second),
            "S------ ------- ------- -------",
        ),
        (
            with(|parameters| parameters.expires = second),
            "-P----- SP-T--- ------- SP-----",
        ),
        (
            with(|parameters| parameters.largest_object = Some(Location::ZERO)),
            "-P----- S--T--- ------- SP-----",
        ),
        (
            with(|parameters| parameters.fill_timeout = second),
            "--F---- ------- ------- -------",
        ),
        (
            with(|parameters| parameters.forward = Some(true)),
            "SP----T -P----- SP----- -------",
        ),
        (
            with(|parameters| parameters.subscriber_priority = Some(1)),
            "S-F---- -P----- SPF---- -------",
        ),
        (
            with(|parameters| parameters.filter = Some(Filter::LargestObject)),
            "S------ -P----- SP----- -------",
        ),
        (
            with(|parameters| parameters.group_order = Some(GroupOrder::Ascending)),
            "S-F---- -P----- ------- -------",
        ),
        (
            with(|parameters| parameters.new_group_request = Some(0)),
            "S------ -P----- SP----- -------",
        ),
        (
            with(|parameters| parameters.track_namespace_prefix = Some(Namespace::EMPTY)),
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
        end: Location::new(1, 0),
    };
    filter.write(DRAFT, &mut BytesMut::new());
}
