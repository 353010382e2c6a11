//! The table of what draft-18 requires names a case, or a reason why there is none.

use std::collections::BTreeSet;

use weir_probe::{Case, Edition, Kind};

use crate::stage::of_kind;

/// Each sentence of draft-ietf-moq-transport-18 that says MUST, MUST NOT or REQUIRED, in the order of the sections, in other
/// words. `rule` marks what other sentences say. The last column has the cases, `*` for any text, or `--` and a reason.
const TABLE: &str = include_str!("../../src/cases/musts.tsv");

/// Sentences of draft-18 with MUST, MUST NOT or REQUIRED, in its sections 1 to 15.
const SENTENCES: usize = 250;

/// One row: section, kind, rule, and cases or reason.
fn rows() -> Vec<[&'static str; 4]> {
    let rows = TABLE.lines().skip(1).map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        columns
            .try_into()
            .unwrap_or_else(|_| panic!("{line}: four columns"))
    });
    rows.collect()
}

/// Whether a name is one that a pattern with at most two `*` means.
fn is_meant(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn a_pattern_means_the_names_that_it_covers() {
    assert!(is_meant("a.b", "a.b"));
    assert!(!is_meant("a.b", "a.bc"));
    assert!(is_meant("a.*", "a.bc"));
    assert!(is_meant("a.*-in-*", "a.b-in-c"));
    assert!(!is_meant("a.*-in-*", "a.b-of-c"));
    assert!(is_meant("a.*-c", "a.b-c"));
    assert!(!is_meant("a.*-c", "a.b-cd"));
}

#[test]
fn each_sentence_has_a_row_in_the_order_of_the_draft() {
    let rows = rows();
    let musts = rows.iter().filter(|[_, kind, _, _]| *kind == "MUST");
    assert_eq!(musts.count(), SENTENCES);
    let number = |section: &str| -> Vec<u32> {
        let parts = section.split('.').map(str::parse);
        let parts: Result<_, _> = parts.collect();
        parts.unwrap_or_else(|_| panic!("{section}: a section"))
    };
    assert!(rows.is_sorted_by_key(|[section, ..]| number(section)));
    for [section, kind, rule, _] in rows {
        assert!(["MUST", "rule"].contains(&kind), "{section}: {kind}");
        assert!(!rule.is_empty(), "{section}: a rule");
    }
}

#[test]
fn each_row_names_cases_or_a_reason_and_each_case_is_named() {
    let cases: Vec<Case> = of_kind(Edition::Eighteen, Kind::Conformance);
    let mut unnamed: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    for [section, _, rule, shown] in rows() {
        if let Some(reason) = shown.strip_prefix("-- ") {
            assert!(reason.len() > 10, "{section}: {rule}: a reason");
            continue;
        }
        assert!(!shown.is_empty(), "{section}: {rule}: a case");
        for pattern in shown.split(' ') {
            let names = cases.iter().map(|case| case.name.as_str());
            let meant: Vec<&str> = names.filter(|name| is_meant(pattern, name)).collect();
            assert!(!meant.is_empty(), "{section}: {rule}: no case {pattern}");
            for name in meant {
                unnamed.remove(name);
            }
        }
    }
    assert_eq!(unnamed, BTreeSet::new(), "cases that no row names");
}
