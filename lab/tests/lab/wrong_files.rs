//! A wrong file is reported with what is wrong, where, and what to write.

use super::Tiny;

const EXPERIMENT: &str = "lab/experiments/tiny.toml";
const MANIFEST: &str = "lab/contestants/php/manifest.toml";
const PUBLISHED: &str = "lab/published/tiny.toml";

/// Changes a file and returns what `lab check` says.
fn after(file: &str, from: &str, to: &str) -> String {
    let tiny = Tiny::new();
    tiny.change(file, from, to);
    let said = tiny.fail(&["check"]);
    assert!(said.contains(file), "{said} does not name {file}");
    said
}

#[track_caller]
fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{said} does not say: {part}");
    }
}

#[test]
fn file_without_a_first_comment_is_rejected() {
    let said = after(PUBLISHED, "# Made up for the tests of the lab.\n", "");
    assert_says(
        &said,
        &["tiny.toml:1: the first line must be a comment that says whose table"],
    );
}

#[test]
fn unknown_key_is_reported_with_its_line_and_the_known_keys() {
    let said = after(EXPERIMENT, "connections = 1", "conections = 1");
    assert_says(
        &said,
        &[
            "line 28",
            "unknown field `conections`",
            "expected one of",
            "`rate`",
        ],
    );
}

#[test]
fn length_without_a_unit_is_rejected_with_an_example() {
    let said = after(
        EXPERIMENT,
        "length = { small = 3",
        "length = { small = \"3\"",
    );
    assert_says(
        &said,
        &["line 30", "\"3\"", "a time such as \"500ms\" or \"10s\""],
    );
}

#[test]
fn no_requests_is_rejected() {
    let said = after(EXPERIMENT, "warm_up = { small = 1", "warm_up = { small = 0");
    assert_says(&said, &["line 29", "0 requests; at least 1 is needed"]);
}

#[test]
fn unknown_reference_names_the_contestants() {
    let said = after(EXPERIMENT, "reference = \"first\"", "reference = \"frist\"");
    assert_says(
        &said,
        &["\"frist\" is no contestant; use one of first, second, absent"],
    );
}

#[test]
fn two_contestants_of_one_name_are_rejected() {
    let said = after(EXPERIMENT, "name = \"second\"", "name = \"first\"");
    assert_says(
        &said,
        &["two contestants are called `first`; give one another name"],
    );
}

#[test]
fn unknown_quantity_is_reported_with_the_known_ones() {
    let said = after(EXPERIMENT, "\"p99\"", "\"p999\"");
    assert_says(&said, &["line 4", "`p999`", "`p99`", "`memory`"]);
}

#[test]
fn unknown_value_of_a_contestant_names_the_manifest_and_its_values() {
    let said = after(EXPERIMENT, "{ message =", "{ massage =");
    assert_says(
        &said,
        &[
            "contestant `second`: values.massage is unknown",
            "known: message",
        ],
    );
}

#[test]
fn unknown_contestant_directory_names_those_that_exist() {
    let said = after(EXPERIMENT, "uses = \"nowhere\"", "uses = \"elsewhere\"");
    assert_says(&said, &["elsewhere/manifest.toml", "known: nowhere, php"]);
}

#[test]
fn contestant_without_a_start_is_rejected() {
    let said = after(
        MANIFEST,
        "start = [[\"php\", \"-S\"",
        "start = [[], [\"php\", \"-S\"",
    );
    assert_says(
        &said,
        &["start has an empty command; write [[\"program\", \"argument\"]]"],
    );
}

#[test]
fn missing_file_of_a_contestant_is_reported_with_its_path() {
    let said = after(
        MANIFEST,
        "files = [\"index.php\"]",
        "files = [\"indx.php\"]",
    );
    assert_says(
        &said,
        &["there is no ", "php/indx.php; correct `files` or `lock`"],
    );
}

#[test]
fn published_row_of_an_unknown_contestant_is_rejected() {
    let said = after(
        PUBLISHED,
        "contestant = \"second\"",
        "contestant = \"third\"",
    );
    assert_says(
        &said,
        &[
            "row \"theirs\"",
            "\"third\" is unknown",
            "first, second, absent",
        ],
    );
}

#[test]
fn published_number_of_an_unknown_quantity_is_rejected() {
    let said = after(PUBLISHED, "rate = 1234", "speed = 1234");
    assert_says(&said, &["`speed`", "`rate`"]);
}

#[test]
fn unknown_experiment_names_those_that_exist() {
    let said = Tiny::new().fail(&["run", "tinny"]);
    assert_says(
        &said,
        &["there is no ", "experiments/tinny.toml; known: tiny"],
    );
}

#[test]
fn unknown_word_in_a_command_is_rejected_before_anything_runs() {
    let said = after(MANIFEST, "127.0.0.1:@port@", "127.0.0.1:@prot@");
    assert_says(&said, &["no value for @prot@; known: ", "message", "port"]);
}

#[test]
fn value_that_hides_a_word_of_every_run_is_rejected() {
    let said = after(
        MANIFEST,
        "message = \"hello\"",
        "message = \"hello\"\nport = \"1\"",
    );
    assert_says(
        &said,
        &["values.port would hide a word of every run; give it another name"],
    );
}
