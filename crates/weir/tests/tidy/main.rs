//! The rules of the house that neither the compiler nor clippy can check: which crate may depend on
//! which, what pure crates must not mention, and how the sources look.
//!
//! Each rule is a function from the tree, or a part of it, to [`Finding`]s; each has a test that the
//! tree keeps the rule, here, and one that the rule finds what it is there to find, beside it.

mod architecture;
mod documents;
mod floors;
mod purity;
mod shown;
mod sources;
mod text;
mod tree;

use tree::{Finding, SourceFile, read_tree};

#[test]
fn crates_depend_in_the_permitted_directions() {
    assert_kept(&architecture::check_directions(&read_tree()));
}

#[test]
fn every_crate_has_its_place() {
    assert_kept(&architecture::check_places(&read_tree()));
}

#[test]
fn the_relays_folders_use_only_what_stands_below_them() {
    assert_kept(&floors::check(&read_tree()));
}

#[test]
fn only_moqt_names_drafts() {
    assert_kept(&architecture::check_drafts(&read_tree_without_tidy()));
}

#[test]
fn crates_have_no_features() {
    assert_kept(&architecture::check_features(&read_tree()));
}

#[test]
fn crates_take_the_lints_of_the_workspace() {
    assert_kept(&architecture::check_lints(&read_tree()));
}

#[test]
fn pure_crates_leave_the_world_alone() {
    assert_kept(&purity::check(&read_tree()));
}

#[test]
fn unsafe_code_stays_in_its_place() {
    assert_kept(&sources::check_unsafe(&read_tree_without_tidy()));
}

#[test]
fn lints_are_expected_not_allowed() {
    assert_kept(&sources::check_allow(&read_tree_without_tidy()));
}

#[test]
fn source_files_are_short() {
    assert_kept(&sources::check_length(&read_tree()));
}

#[test]
fn functions_are_short() {
    assert_kept(&sources::check_functions(&read_tree()));
}

#[test]
fn comments_have_no_examples_to_run() {
    assert_kept(&sources::check_examples(&read_tree_without_tidy()));
}

#[test]
fn file_names_say_something() {
    assert_kept(&text::check_names(&read_tree()));
}

#[test]
fn nothing_is_left_unfinished() {
    assert_kept(&text::check_marks(&read_tree_without_tidy()));
}

#[test]
fn citations_name_a_known_draft() {
    assert_kept(&text::check_citations(&read_tree_without_tidy()));
}

#[test]
fn nothing_points_out_of_the_tree() {
    assert_kept(&text::check_paths(&read_tree_without_tidy(), tree::root()));
}

#[test]
fn what_a_page_says_is_shown_has_a_test() {
    assert_kept(&shown::check_tests(&read_tree()));
}

#[test]
fn links_lead_to_files_and_headings() {
    let exists = |path: &str| tree::root().join(path).exists();
    assert_kept(&documents::check_links(&read_tree(), exists));
}

#[test]
fn shell_fences_are_run_or_say_what_they_need() {
    assert_kept(&documents::check_fences(&read_tree()));
}

#[test]
fn documents_name_no_commits() {
    assert_kept(&documents::check_hashes(&read_tree()));
}

#[test]
fn documents_written_by_hand_can_be_read() {
    assert_kept(&documents::check_size(&read_tree()));
}

#[test]
fn lines_of_documents_are_short() {
    assert_kept(&documents::check_columns(&read_tree()));
}

#[test]
fn documents_and_comments_are_a_reference() {
    assert_kept(&documents::check_phrases(&read_tree_without_tidy()));
}

#[track_caller]
fn assert_kept(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "rules broken:\n{}", lines.join("\n"));
}

/// The tree without this test, which has to spell out what it forbids.
fn read_tree_without_tidy() -> Vec<SourceFile> {
    let mut files = read_tree();
    files.retain(|file| !file.path.starts_with("crates/weir/tests/tidy/"));
    files
}
