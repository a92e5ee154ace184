//! Tests of `lab render`: pages of results, README's table and the lists of documents.

use serde_json::Value;

use super::Tiny;
use super::run::results;

/// A run of ten rounds in which the second contestant keeps the load generator this busy.
fn rendered_with_generator(busy: f64) -> Tiny {
    rendered("small", |index, is_second, sample| {
        if is_second && index == 3 {
            sample["generator"] = busy.into();
        }
    })
}

/// A run of ten rounds. The numbers of the second contestant are twice as high as those of the
/// first one, apart from what `change` makes of a round's sample.
pub fn rendered(size: &str, change: impl Fn(usize, bool, &mut Value)) -> Tiny {
    let tiny = Tiny::new();
    tiny.succeed(&["run"]);
    let mut results = results(&tiny);
    results["size"] = size.into();
    let rounds = results["rounds"].as_array_mut().unwrap();
    *rounds = rounds.iter().cycle().take(10).cloned().collect();
    for (index, round) in rounds.iter_mut().enumerate() {
        for turn in round["turns"].as_array_mut().unwrap() {
            let is_second = turn["contestant"] == "second";
            let sample = &mut turn["samples"]["hello"];
            sample["generator"] = 20.0.into();
            sample["others"] = 5.0.into();
            for quantity in ["rate", "p99", "cpu"] {
                sample[quantity] = if is_second { 200.0 } else { 100.0 }.into();
            }
            change(index, is_second, sample);
        }
    }
    let directory = tiny.path("target/lab/results/tiny");
    let file = std::fs::read_dir(&directory).unwrap().next().unwrap();
    std::fs::write(file.unwrap().path(), results.to_string()).unwrap();
    // Documents quote what docs/results has.
    std::fs::create_dir_all(tiny.path("docs")).unwrap();
    std::fs::rename(tiny.path("target/lab/results"), tiny.path("docs/results")).unwrap();
    let marked = |name: &str| format!("<!-- {name} -->\n<!-- /{name} -->\n");
    std::fs::write(tiny.path("README.md"), marked("benchmark")).unwrap();
    let page = marked("results") + &marked("goals");
    std::fs::write(tiny.path("docs/performance.md"), page).unwrap();
    let more = "more_references = [\"second\"]\n\n[readme]\nloads = [\"hello\"]\n\
        contestants = [\"first\", \"second\"]\n\n\
        [[goal]]\ntitle = \"twice as much\"\nload = \"hello\"\nquantity = \"rate\"\n\
        contestant = \"second\"\nto = \"first\"\nat_least = 2\nbound = \"its generator.\"\n\n\
        [[goal]]\ntitle = \"cheap\"\nload = \"hello\"\nquantity = \"cpu\"\n\
        contestant = \"second\"\nto = \"first\"\nat_most = 1.5\nbound = \"its second word.\"\n\n\
        [[contestant]]";
    tiny.change("lab/experiments/tiny.toml", "[[contestant]]", more);
    tiny.succeed(&["render"]);
    tiny
}

#[test]
fn numbers_that_the_generator_limited_are_marked_and_have_no_ratio() {
    let tiny = rendered_with_generator(95.0);
    let page = tiny.read("docs/results/tiny.md");
    assert!(
        page.contains("| php -S, twice | 200/s † | 200 ms † |"),
        "{page}"
    );
    assert!(page.contains("| php -S | 100/s | 100 ms |"), "{page}");
    let ratios = "| php -S, twice | † | 2.000 × (2.000 to 2.000) | † |";
    assert!(page.contains(ratios), "{page}");
    assert!(page.contains("†: the load generator used 95 %"), "{page}");

    let readme = tiny.read("README.md");
    assert!(
        readme.contains("| Hello | 100/s · 100 µs | 200/s † · 200 µs |"),
        "neither is the best: {readme}"
    );
    assert!(
        readme.contains("†: the load generator was the limit"),
        "{readme}"
    );
    let chart = tiny.read("docs/results/tiny.svg");
    assert!(
        chart.contains(">1.00× · 100/s<") && chart.contains(">200/s †<"),
        "{chart}"
    );
    let goals = tiny.read("docs/performance.md");
    for part in [
        "| [twice as much](results/tiny.md) | at least 2 × | † | unknown |",
        "\n†: the load generator was the limit; the server can do more.\n",
        "\nWhat bounds the goals that are not met:\n\n- cheap: its second word.\n\n",
        "\nWhat may bound the goals that are open or unknown:\n\n- twice as much: its generator.\n",
    ] {
        assert!(goals.contains(part), "{part} is not in {goals}");
    }

    let tiny = rendered_with_generator(94.0);
    let readme = tiny.read("README.md");
    assert!(
        readme.contains("| Hello | 100/s · 100 µs | **200/s · 200 µs** |"),
        "{readme}"
    );
    let chart = tiny.read("docs/results/tiny.svg");
    assert!(chart.contains(">2.00× · 200/s<"), "{chart}");
    let page = tiny.read("docs/results/tiny.md");
    assert!(!page.contains('†'), "{page}");
    let ratio = "2.000 × (2.000 to 2.000)";
    let ratios = format!("| php -S, twice | {ratio} | {ratio} | {ratio} |");
    assert!(page.contains(&ratios), "{page}");
}

#[test]
fn best_of_a_load_is_bold_only_if_its_interval_shows_a_difference() {
    let tiny = rendered_with_generator(20.0);
    let directory = tiny.path("docs/results/tiny");
    let mut files = std::fs::read_dir(directory).unwrap();
    let file = files.next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    let render = |rates: &dyn Fn(usize) -> [f64; 2], rounds: usize| {
        let mut results: serde_json::Value = serde_json::from_str(&text).unwrap();
        let all = results["rounds"].as_array_mut().unwrap();
        all.truncate(rounds);
        for (index, round) in all.iter_mut().enumerate() {
            for turn in round["turns"].as_array_mut().unwrap() {
                let is_second = usize::from(turn["contestant"] == "second");
                turn["samples"]["hello"]["rate"] = rates(index)[is_second].into();
            }
        }
        std::fs::write(&file, results.to_string()).unwrap();
        tiny.succeed(&["render"]);
        let readme = tiny.read("README.md");
        let row = readme.lines().find(|line| line.starts_with("| Hello |"));
        row.unwrap().to_string()
    };
    let noise = |index: usize| [100 + index % 5 * 10, 104 + index * 3 % 5 * 10].map(|it| it as f64);
    let row = render(&noise, 10);
    assert!(!row.contains("**"), "{row}");
    let clear = |_: usize| [150.0, 100.0];
    let row = render(&clear, 10);
    assert!(row.starts_with("| Hello | **150/s"), "{row}");
    render(&clear, 6);
    let page = tiny.read("docs/results/tiny.md");
    let caveat = "of 6 rounds, and a bootstrap of few rounds is a little too narrow";
    assert!(page.contains(caveat), "{page}");
    let row = render(&clear, 5);
    assert!(!row.contains("**"), "too few rounds: {row}");
}

#[test]
fn page_keeps_the_words_of_the_run_when_the_experiment_changes() {
    let tiny = Tiny::new();
    let experiment = "lab/experiments/tiny.toml";
    let notes = "notes = [\"5 s after all have closed.\"]\nrounds =";
    tiny.change(experiment, "rounds =", notes);
    let skips = "body = \"hello\"\nskips = { second = \"it is slow\" }";
    tiny.change(experiment, "body = \"hello\"", skips);
    tiny.succeed(&["run"]);
    let page = tiny.read("target/lab/results/tiny.md");
    for (from, to) in [
        ("PHP's own server", "Another title"),
        ("5 s after", "15 s after"),
        ("title = \"php -S\"", "title = \"php -S, renamed\""),
        ("title = \"Hello\"", "title = \"Hello, renamed\""),
        ("it is slow", "it is fast"),
        (
            "length = { small = 3, full = 3 }",
            "length = { small = 9, full = 9 }",
        ),
    ] {
        tiny.change(experiment, from, to);
    }
    tiny.succeed(&["render", "--results", "target/lab/results"]);
    assert_eq!(tiny.read("target/lab/results/tiny.md"), page);
    for part in ["5 s after all", "| it is slow |", "## Hello: GET /, "] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[test]
fn load_and_contestant_that_were_added_after_a_run_say_so() {
    let tiny = Tiny::new();
    tiny.succeed(&["run"]);
    let experiment = "lab/experiments/tiny.toml";
    let more = r#"[[contestant]]
name = "new"
title = "php -S, new"
uses = "php"

[[load]]
name = "later"
title = "Later"
path = "/"
connections = 1
warm_up = { small = 1, full = 1 }
length = { small = 3, full = 3 }
body = "hello"

[[load]]"#;
    tiny.change(experiment, "[[load]]", more);
    tiny.succeed(&["render", "--results", "target/lab/results"]);
    let page = tiny.read("target/lab/results/tiny.md");
    assert!(
        page.contains("| php -S, new | added after this run | "),
        "{page}"
    );
    assert!(page.contains("> Added after this run: Later."), "{page}");
    assert!(!page.contains("## Later"), "{page}");
    // The rows that a page leaves out are counted.
    std::fs::create_dir_all(tiny.path("docs")).unwrap();
    std::fs::rename(tiny.path("target/lab/results"), tiny.path("docs/results")).unwrap();
    let marked = "<!-- goals -->\n<!-- /goals -->\n";
    std::fs::write(tiny.path("docs/performance.md"), marked).unwrap();
    tiny.succeed(&["render"]);
    let goals = tiny.read("docs/performance.md");
    assert!(
        goals.contains("- tiny, php -S, new: added after this run (2 rows)"),
        "{goals}"
    );
}

/// Renders a run in which the second contestant used this CPU time per round, with three responses
/// in each. A round with 50 ms or more has its own CPU per request.
fn rendered_with_cpu(seconds: [f64; 3]) -> String {
    let tiny = Tiny::new();
    let columns = "columns = [\"cpu\", \"rate\"";
    tiny.change("lab/experiments/tiny.toml", "columns = [\"rate\"", columns);
    tiny.succeed(&["run"]);
    let mut results = results(&tiny);
    let rounds = results["rounds"].as_array_mut().unwrap();
    for (round, seconds) in rounds.iter_mut().zip(seconds) {
        for turn in round["turns"].as_array_mut().unwrap() {
            let is_second = turn["contestant"] == "second";
            let sample = turn["samples"]["hello"].as_object_mut().unwrap();
            sample.remove("cpu");
            if is_second {
                sample.insert("cpu_time".into(), seconds.into());
                sample.insert("responses".into(), 3.0.into());
                if seconds >= 0.05 {
                    sample.insert("cpu".into(), (seconds * 1e6 / 3.0).into());
                }
            } else {
                sample.remove("cpu_time");
                sample.remove("responses");
            }
        }
    }
    let directory = tiny.path("target/lab/results/tiny");
    let file = std::fs::read_dir(&directory).unwrap().next().unwrap();
    std::fs::write(file.unwrap().path(), results.to_string()).unwrap();
    tiny.succeed(&["render", "--results", "target/lab/results"]);
    tiny.read("target/lab/results/tiny.md")
}

#[test]
fn cpu_of_rounds_that_use_too_little_is_that_of_all_together() {
    // 90 ms for nine responses.
    let page = rendered_with_cpu([0.03, 0.02, 0.04]);
    assert!(page.contains("| php -S, twice | 10.0 ms | "), "{page}");
    let old = "| php -S | too little to measure | ";
    assert!(page.contains(old), "a result without these figures: {page}");
    // One round alone would be enough, and would hide the others.
    let page = rendered_with_cpu([0.06, 0.01, 0.02]);
    assert!(page.contains("| php -S, twice | 10.0 ms | "), "{page}");
    // All have enough: the median.
    let page = rendered_with_cpu([0.3, 0.06, 0.09]);
    assert!(page.contains("| php -S, twice | 30.0 ms | "), "{page}");
    let page = rendered_with_cpu([0.01, 0.01, 0.02]);
    assert!(
        page.contains("| php -S, twice | too little to measure | "),
        "{page}"
    );
}

#[test]
fn column_that_was_added_after_a_run_is_left_out() {
    let tiny = Tiny::new();
    tiny.succeed(&["run"]);
    let columns = "columns = [\"rate\", \"billed_p50\"";
    tiny.change("lab/experiments/tiny.toml", "columns = [\"rate\"", columns);
    tiny.succeed(&["render", "--results", "target/lab/results"]);
    let page = tiny.read("target/lab/results/tiny.md");
    assert!(
        page.contains("|  | requests/s | p99 | failed | published"),
        "{page}"
    );
    assert!(!page.contains("billed"), "{page}");
}

#[test]
fn published_words_stand_where_there_is_no_number() {
    let tiny = Tiny::new();
    let row = "[[row]]\ntitle = \"ours\"\ncontestant = \"first\"\nload = \"hello\"\n\
        says = \"slower\"\n\n[[row]]";
    tiny.change("lab/published/tiny.toml", "[[row]]", row);
    tiny.succeed(&["run"]);
    let page = tiny.read("target/lab/results/tiny.md");
    let line = page.lines().find(|line| line.starts_with("| php -S | "));
    let line = line.unwrap_or_default();
    assert!(line.ends_with("| slower [a talk] | – |"), "{page}");
}

#[test]
fn page_of_one_experiment_has_a_contestant_under_all_loads() {
    for (busy, row) in [
        (20.0, "| Hello | 200/s | 100 % | none |"),
        (95.0, "| Hello | 200/s † | † | none |"),
    ] {
        let tiny = rendered_with_generator(busy);
        let excerpt = "excerpt = \"second\"\nreference =";
        tiny.change("lab/experiments/tiny.toml", "reference =", excerpt);
        let page = "docs/performance-tiny.md";
        let marked = "before\n<!-- excerpt -->\nold\n<!-- /excerpt -->\nafter\n";
        std::fs::write(tiny.path(page), marked).unwrap();
        tiny.succeed(&["render"]);
        let text = tiny.read(page);
        assert!(text.contains(row), "{text}");
        assert!(!text.contains("old"), "{text}");
        assert!(text.starts_with("before\n") && text.ends_with(" -->\nafter\n"));
    }
}

#[test]
fn goals_have_their_measurement_their_verdict_and_their_bound() {
    let tiny = rendered_with_generator(20.0);
    // The record of the run.
    let file = "docs/results/small-form.json";
    let mut small: serde_json::Value = serde_json::from_str(&tiny.read(file)).unwrap();
    assert!(small["seconds"]["tiny"].as_f64().unwrap() > 0.0, "{small}");
    small["seconds"]["tiny"] = 90.0.into();
    small["date"] = "2026-01-02".into();
    std::fs::write(tiny.path(file), small.to_string()).unwrap();
    tiny.succeed(&["render"]);
    let goals = tiny.read("docs/performance.md");
    let ratio = "2.000 × (2.000 to 2.000)";
    for part in [
        format!("| [twice as much](results/tiny.md) | at least 2 × | {ratio} | met |"),
        format!("| [cheap](results/tiny.md) | at most 1.5 × | {ratio} | not met |"),
        "\n- cheap: its second word.\n".into(),
        "| every row of every table has numbers | 3 rows | 2 | not met |".into(),
        "- tiny, A program that is nowhere: surus-lab-nowhere is not installed".into(),
        "in their small form | under 15 min | 1.5 min (2026-01-02) | met |".into(),
    ] {
        assert!(goals.contains(&part), "{part} is not in {goals}");
    }
    assert!(!goals.contains("its generator"), "{goals}");
}

#[test]
fn experiment_without_results_is_listed_with_its_command_and_its_goals() {
    let tiny = rendered_with_generator(20.0);
    let text = tiny.read("lab/experiments/tiny.toml");
    let text = text.replace("PHP's own server", "Another");
    std::fs::write(tiny.path("lab/experiments/another.toml"), text).unwrap();
    let said = tiny.succeed(&["render"]);
    let command = "make lab EXPERIMENT=another FULL=1";
    let hint = format!("another: not run yet; `{command}` runs it");
    assert!(said.contains(&hint), "{said}");
    let page = tiny.read("docs/performance.md");
    for part in [
        format!("| Another | not run yet: `{command}` | |\n"),
        "| twice as much | at least 2 × | – | not measured |\n".into(),
    ] {
        assert!(page.contains(&part), "{part} is not in {page}");
    }
    let bounds = page.matches("its generator").count();
    assert_eq!(bounds, 0, "{page}");
    let small = "in their small form | under 15 min | – | not measured |";
    assert!(page.contains(small), "the run had not this one: {page}");
    assert!(page.contains("has numbers | 6 rows | 2 |"), "{page}");
    assert!(page.contains("- another: not run yet (3 rows)\n"), "{page}");
}

#[test]
fn ratios_are_to_each_reference_and_of_the_billed_quantity() {
    let tiny = rendered_with_generator(20.0);
    let page = tiny.read("docs/results/tiny.md");
    let (to_first, to_second) = (
        "## Hello: ratio to php -S\n",
        "## Hello: ratio to php -S, twice\n",
    );
    assert!(
        page.contains(to_first) && page.contains(to_second),
        "{page}"
    );
    let inverse = "| php -S | 0.500 × (0.500 to 0.500) |";
    assert!(page.contains(inverse), "{page}");
    assert!(!page.contains("billed"), "it is no column: {page}");
    let columns = "columns = [\"billed\", \"rate\"";
    tiny.change("lab/experiments/tiny.toml", "columns = [\"rate\"", columns);
    tiny.succeed(&["render"]);
    let page = tiny.read("docs/results/tiny.md");
    let head = format!("{to_first}\n|  | billed, average | requests/s | CPU per request | p99 |");
    assert!(page.contains(&head), "{page}");
}

/// The page with these requests/s of both contestants, a pair per round. There may be no more
/// rounds than before.
fn with_rates(tiny: &Tiny, rates: &[[f64; 2]]) -> String {
    let mut files = std::fs::read_dir(tiny.path("docs/results/tiny")).unwrap();
    let file = files.next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    let mut results: Value = serde_json::from_str(&text).unwrap();
    let rounds = results["rounds"].as_array_mut().unwrap();
    rounds.truncate(rates.len());
    assert_eq!(rounds.len(), rates.len());
    for (round, rates) in rounds.iter_mut().zip(rates) {
        for turn in round["turns"].as_array_mut().unwrap() {
            let is_second = usize::from(turn["contestant"] == "second");
            turn["samples"]["hello"]["rate"] = rates[is_second].into();
        }
    }
    std::fs::write(&file, results.to_string()).unwrap();
    tiny.succeed(&["render"]);
    tiny.read("docs/results/tiny.md")
}

#[test]
fn ratios_need_six_rounds_and_an_interval_without_one() {
    let tiny = rendered_with_generator(20.0);
    let (higher, lower) = ([100.0, 200.0], [200.0, 100.0]);
    let mixed = [higher, lower, higher, lower, higher, lower];
    for (rates, cell) in [
        (mixed, "no difference seen"),
        ([lower; 6], "0.500 × (0.500 to 0.500)"),
    ] {
        let page = with_rates(&tiny, &rates);
        let row = format!("| php -S, twice | {cell} | 2.000 × (2.000 to 2.000) |");
        assert!(page.contains(&row), "{row} is not in {page}");
    }
    let page = with_rates(&tiny, &[lower; 5]);
    assert!(!page.contains("## Hello: ratio to php -S"), "{page}");
}

#[test]
fn failures_of_one_round_are_summed_and_marked() {
    let tiny = rendered("small", |index, is_second, sample| {
        sample["failed"] = if is_second && index == 4 { 3.0 } else { 0.0 }.into();
    });
    let page = tiny.read("docs/results/tiny.md");
    let row = "| php -S, twice | 200/s | 200 ms | 3 in 1 of 10 rounds |";
    assert!(page.contains(row), "{page}");
    assert!(page.contains("| php -S | 100/s | 100 ms | 0 |"), "{page}");
    let readme = tiny.read("README.md");
    for part in [
        "| Hello | 100/s · 100 µs | **200/s § · 200 µs** |",
        "\n§: requests failed:\n\n- php -S, twice, Hello, 3 in 1 of 10 rounds\n",
    ] {
        assert!(readme.contains(part), "{part} is not in {readme}");
    }
}
