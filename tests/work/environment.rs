//! Tests that jobs find what PHP has on the command line: no limit of their time, the project's
//! directory and the standard streams.

use std::path::Path;

use super::database::Kind;
use super::laravel::{Laravel, debian};
use super::messenger::Messenger;
use super::plain::Plain;
use super::site::framework;
use super::work::Work;

const HANDLER: &str = r#"<?php
fwrite(STDERR, "loaded in ".getcwd()."\n");
return static function (array $job): void {
    $seen = ini_get('max_execution_time').' '.getcwd().stream_get_contents(STDIN);
    file_put_contents(getenv('NOTES'), "$seen\n", FILE_APPEND);
    fwrite(STDERR, "said to STDERR\n");
    fwrite(STDOUT, "said to STDOUT\n");
    chdir('/');
};
"#;

/// What a job notes.
fn environment(limit: usize, project: &Path) -> String {
    format!("{limit} {}", project.canonicalize().unwrap().display())
}

fn wait_for_output(work: &Work) {
    let said = ["said to STDERR", "said to STDOUT"];
    work.wait_for_log(|log| said.iter().all(|text| log.contains(text)));
}

#[test]
fn handlers_run_as_on_the_command_line_with_the_limit_of_the_configuration() {
    for (engine, settings, limit) in [
        ("worker", "", 0),
        ("rewind", "", 0),
        ("fork", "[php]\nmax_execution_time = 60\n", 60),
        ("cgi", "", 0),
        ("classic", "[pool.work.php]\nmax_execution_time = 70\n", 70),
    ] {
        let plain = Plain::new(Kind::Sqlite, settings);
        let project = plain.site.www();
        std::fs::write(project.join("jobs.php"), HANDLER).unwrap();
        // The second begins where the first has begun.
        plain.push(1, "");
        plain.push(2, "");
        let work = plain.start(&["--workers", "1", "--engine", engine]);
        work.wait_until(|| plain.table.is_empty());
        let seen = environment(limit, &project);
        assert_eq!(plain.notes(), [&*seen, &*seen], "{engine} {}", work.log());
        wait_for_output(&work);
        let loaded = seen.replace(&format!("{limit} "), "loaded in ");
        work.wait_for_log(|log| log.contains(&loaded));
    }
}

#[test]
fn jobs_of_laravel_run_as_on_the_command_line() {
    for libraries in [debian(), framework("laravel13")] {
        let laravel = Laravel::new(&libraries);
        laravel.push(&["environment"]);
        let work = laravel.start(&["--workers", "1"]);
        work.wait_until(|| laravel.table.is_empty());
        let seen = environment(0, &laravel.site.www());
        assert!(laravel.notes().contains(&seen), "{:?}", laravel.notes());
        wait_for_output(&work);
    }
}

#[test]
fn messages_of_messenger_run_as_on_the_command_line() {
    let messenger = Messenger::new(Kind::Sqlite, "messenger7", "doctrine://default");
    messenger.send(&["environment"]);
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| messenger.rows("default") == 0);
    let seen = environment(0, &messenger.site.www());
    assert!(messenger.notes().contains(&seen), "{:?}", messenger.notes());
    wait_for_output(&work);
}
