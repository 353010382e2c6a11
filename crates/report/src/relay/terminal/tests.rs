//! Tests of reports in the terminal.

use super::*;
use crate::relay::example::{self, Shape, Story};

#[test]
fn a_run_that_held() {
    let shape = Shape {
        video: true,
        ..Shape::audio(200)
    };
    insta::assert_snapshot!(render(&example::report(shape), 100, false));
}

#[test]
fn an_overloaded_relay_on_eighty_columns() {
    let shape = Shape::audio(200).story(Story::Overloaded);
    insta::assert_snapshot!(render(&example::report(shape), 80, false));
}

#[test]
fn a_relay_whose_process_ended() {
    let shape = Shape::audio(200).story(Story::RelayDied);
    insta::assert_snapshot!(render(&example::report(shape), 100, false));
}

#[test]
fn a_generator_that_did_not_keep_up() {
    let shape = Shape::audio(1).story(Story::SlowGenerator);
    insta::assert_snapshot!(render(&example::report(shape), 100, false));
}

#[test]
fn a_run_without_tracks_on_forty_columns() {
    insta::assert_snapshot!(render(&example::empty(), 0, false));
}

#[test]
fn colour_changes_nothing_but_colour() {
    let report = example::report(Shape::audio(3).story(Story::Overloaded));
    let coloured = render(&report, 100, true);
    assert!(
        coloured.starts_with("\x1b[1;31mbroken:\x1b[0m "),
        "{coloured:?}"
    );
    let plain: String = coloured
        .split("\x1b[")
        .enumerate()
        .map(|(number, piece)| {
            if number == 0 {
                piece
            } else {
                piece.split_once('m').unwrap().1
            }
        })
        .collect();
    assert_eq!(plain, render(&report, 100, false));
}

#[test]
fn lines_keep_within_the_width() {
    for width in [40, 60, 80, 120] {
        let report = example::report(Shape::audio(20).story(Story::Overloaded));
        for line in render(&report, width, false).lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}
