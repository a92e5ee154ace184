//! Tests of rows that other processes on the machine have disturbed.

use super::render::rendered;

/// A run of ten rounds. Others use half of the CPUs more in some rounds of the second contestant,
/// which is slower there.
fn rendered_with_others(disturbed: &[usize], size: &str) -> super::Tiny {
    rendered(size, |index, is_second, sample| {
        if is_second && disturbed.contains(&index) {
            sample["others"] = 55.0.into();
            sample["rate"] = 50.0.into();
            sample["cpu"] = 250.0.into();
        }
    })
}

#[test]
fn disturbed_rounds_of_a_row_are_left_out_if_enough_remain() {
    let tiny = rendered_with_others(&[0, 1, 2, 3], "full");
    let page = tiny.read("docs/results/tiny.md");
    let ratio = "2.000 × (2.000 to 2.000)";
    for part in [
        "| php -S, twice | 200/s | 200 ms |".to_string(),
        format!("| php -S, twice | {ratio} | {ratio} | {ratio} |"),
        "> In 1 of 3 rows, rounds are left out in which other processes used the CPUs, 15 % of \
         them or more above the row's quietest round: at most 4 of 10."
            .into(),
    ] {
        assert!(page.contains(&part), "{part} is not in {page}");
    }
    assert!(!page.contains('‡'), "{page}");
    let highest = "| other processes' CPU | 5 % | 55 % |";
    assert!(page.contains(highest), "of all rounds: {page}");
    let readme = tiny.read("README.md");
    assert!(readme.contains("| **200/s · 200 µs** |"), "{readme}");
}

#[test]
fn row_with_too_few_quiet_rounds_is_marked_and_has_no_ratio() {
    let tiny = rendered_with_others(&[0, 1, 2, 3, 4], "full");
    let page = tiny.read("docs/results/tiny.md");
    let row = "| php -S, twice | 125/s ‡ | 200 ms ‡ |";
    assert!(page.contains(row), "{page}");
    assert!(
        page.contains("| php -S, twice | ‡ | 2."),
        "CPU has one: {page}"
    );
    assert!(
        page.contains("> ‡: other processes used the CPUs"),
        "{page}"
    );
    assert!(page.contains("| php -S | 100/s | 100 ms |"), "{page}");
    let readme = tiny.read("README.md");
    let row = "| Hello | 100/s · 100 µs | 125/s ‡ · 225 µs |";
    assert!(readme.contains(row), "neither is the best: {readme}");
    assert!(
        readme.contains("\n‡: other processes on the machine took"),
        "{readme}"
    );
    let goals = tiny.read("docs/performance.md");
    let unknown = "| [twice as much](results/tiny.md) | at least 2 × | ‡ | unknown |";
    assert!(goals.contains(unknown), "{goals}");
    let legend = "\n‡: other processes on the machine took";
    assert!(goals.contains(legend), "{goals}");
    let chart = tiny.read("docs/results/tiny.svg");
    assert!(chart.contains(">125/s ‡<"), "{chart}");
}

#[test]
fn page_of_one_experiment_explains_the_marks_of_its_table() {
    let tiny = rendered_with_others(&[0, 1, 2, 3, 4], "full");
    let excerpt = "excerpt = \"second\"\ncolumns = [";
    tiny.change("lab/experiments/tiny.toml", "columns = [", excerpt);
    let marks = "<!-- excerpt -->\n<!-- /excerpt -->\n";
    std::fs::write(tiny.path("docs/performance-tiny.md"), marks).unwrap();
    tiny.succeed(&["render"]);
    let page = tiny.read("docs/performance-tiny.md");
    assert!(page.contains("| Hello | 125/s ‡ | ‡ | none |"), "{page}");
    let legend = "\n‡: other processes on the machine took";
    assert!(page.contains(legend) && !page.contains('†'), "{page}");
}

#[test]
fn both_marks_stand_behind_a_number_that_has_both_reasons() {
    let tiny = rendered("full", |index, is_second, sample| {
        if is_second && index < 6 {
            sample["others"] = 55.0.into();
            sample["generator"] = 95.0.into();
        }
    });
    let page = tiny.read("docs/results/tiny.md");
    assert!(page.contains("| php -S, twice | 200/s †‡ |"), "{page}");
}

#[test]
fn small_form_is_not_judged() {
    let tiny = rendered_with_others(&[0, 1, 2, 3, 4], "small");
    assert!(!tiny.read("docs/results/tiny.md").contains('‡'));
}

#[test]
fn readme_says_that_all_rounds_were_disturbed() {
    let tiny = rendered("full", |_, _, sample| sample["others"] = 30.0.into());
    let note = "Other processes used the CPUs during this run: ";
    for file in ["docs/results/tiny.md", "README.md"] {
        let text = tiny.read(file);
        assert!(text.contains(note) && !text.contains('‡'), "{text}");
    }
}
