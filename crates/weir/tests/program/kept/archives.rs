//! The archive of a run, and the files that `weir bench report` makes of it.

use std::{fs, io::Read as _};

use flate2::read::GzDecoder;

use super::stage::folder;
use crate::process::{ANY, Folder, text, weir};

/// Archives a run of three subscribers. Returns the exit code, which its reports have too.
fn kept(folder: &Folder) -> Option<i32> {
    let (profile, archive, json) = (
        folder.file("profile.ini"),
        folder.file("run.weir"),
        folder.file("run.json"),
    );
    let output = weir(&[
        "bench",
        &profile,
        "--subscribers",
        "3",
        "--seed",
        "5",
        "--slo",
        ANY,
        "--archive",
        &archive,
        "--json",
        &json,
    ]);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{}", text(&output.stderr));
    code
}

#[test]
fn an_archive_has_every_form_of_its_report() {
    let folder = folder("forms");
    let code = kept(&folder);
    let archive = folder.file("run.weir");
    let names = ["again.json", "page.html", "rows.csv", "seconds.csv", "text"];
    let files = names.map(|name| folder.file(name));
    let flags = ["--json", "--html", "--csv", "--seconds-csv", "--prometheus"];
    let mut arguments = vec!["bench", "report", &archive];
    for (flag, file) in flags.iter().zip(&files) {
        arguments.extend([*flag, file]);
    }
    let output = weir(&arguments);
    assert_eq!(output.status.code(), code, "{}", text(&output.stderr));
    // The report of the run, byte for byte.
    assert_eq!(folder.text("again.json"), folder.text("run.json"));
    assert!(folder.text("page.html").starts_with("<!DOCTYPE html>"));
    // The heading, and three subscriptions.
    assert_eq!(folder.text("rows.csv").lines().count(), 4);
    // The heading, and a row for each second with an arrival.
    let seconds = folder.text("seconds.csv").lines().count();
    assert!((2..=6).contains(&seconds), "{}", folder.text("seconds.csv"));
    let text = folder.text("text");
    assert!(text.contains("# TYPE weir_bench_"), "{text}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains("not calibrated against a null relay"),
        "{shown}"
    );
}

#[test]
fn an_archive_that_somebody_unpacked_is_read_and_one_that_was_cut_off_is_not() {
    let folder = folder("packed");
    let code = kept(&folder);
    let packed = fs::read(folder.file("run.weir")).unwrap();
    let mut plain = String::new();
    GzDecoder::new(&*packed).read_to_string(&mut plain).unwrap();
    assert!(
        plain.starts_with("{\"weir_archive\":{\"version\":2,"),
        "{}",
        &plain[..60]
    );
    let (unpacked, again) = (folder.write("plain", &plain), folder.file("again.json"));
    let output = weir(&["bench", "report", &unpacked, "--json", &again]);
    assert_eq!(output.status.code(), code, "{}", text(&output.stderr));
    assert_eq!(folder.text("again.json"), folder.text("run.json"));
    let half = folder.write("half", &packed[..packed.len() / 2]);
    let (lines, _) = plain.trim_end().rsplit_once('\n').unwrap();
    let headless = folder.write("headless", lines);
    for (file, problem) in [
        (half, "cannot be unpacked"),
        (headless, "breaks off after line"),
    ] {
        let output = weir(&["bench", "report", &file]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.starts_with(&format!("weir: {file}: ")) && error.contains(problem),
            "{error}"
        );
    }
}

#[test]
fn no_form_of_a_sanitized_report_names_anybody() {
    let folder = folder("sanitized");
    let code = kept(&folder);
    let (archive, json, html, csv) = (
        folder.file("run.weir"),
        folder.file("clean.json"),
        folder.file("clean.html"),
        folder.file("clean.csv"),
    );
    let flags = [
        "--sanitize",
        "--json",
        &json,
        "--html",
        &html,
        "--csv",
        &csv,
    ];
    let output = weir(&[&["bench", "report", &archive], &flags[..]].concat());
    assert_eq!(output.status.code(), code, "{}", text(&output.stderr));
    let shown = String::from_utf8(output.stdout).unwrap();
    let files = ["clean.json", "clean.html", "clean.csv"].map(|name| folder.text(name));
    for text in files.iter().chain([&shown]) {
        for secret in ["boardroom", "chairman", "127.0.0.1", "localhost"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
    assert!(folder.text("run.json").contains("boardroom"));
}
