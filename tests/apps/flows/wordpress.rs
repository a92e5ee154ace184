//! The flow of WordPress's visitors, each time on the same database.

use std::path::Path;
use std::process::Command;

use super::oracle::Oracle;
use super::play::play;
use super::script::Script;
use super::{SEED, UNCOMPRESSED, same};
use crate::blog::{self, database, install, site_of};
use crate::common::ports::free_address;
use crate::database::Database;
use crate::site::{fixture, framework};

const CONTENT: &str = "
foreach (['ada', 'bob'] as $name) {
    wp_insert_user([
        'user_login' => $name, 'user_pass' => \"$name-218\", 'role' => 'subscriber',
        'user_email' => \"$name@example.org\", 'user_registered' => '2024-10-30 12:00:00',
    ]);
}
wp_insert_post([
    'post_title' => 'Secret', 'post_name' => 'secret', 'post_status' => 'publish',
    'post_password' => 'snow', 'post_date' => '2024-10-29 12:00:00', 'post_content' => 'Avalanche.',
]);
";

#[test]
#[ignore = "make test-learned"]
fn wordpress_6_flow_gets_answers_of_php_fpm() {
    engines_answer_as_php_fpm("wordpress6");
}

#[test]
#[ignore = "make test-learned"]
fn wordpress_7_flow_gets_answers_of_php_fpm() {
    engines_answer_as_php_fpm("wordpress7");
}

fn engines_answer_as_php_fpm(version: &str) {
    let database = database();
    let files = framework(version).with_file_name("wordpress");
    let site = site_of(&files, &database, "", "")
        .copy(&fixture("flows/wordpress_site"), "wp-content")
        .copy(&fixture("flows/sendmail"), "bin/sendmail");
    let host = free_address();
    install(&site.www(), &host);
    blog::run(&site.www(), CONTENT);
    let dump = site.tmp().join("dump.sql");
    save(&database, &dump);
    let script = Script::parse(include_str!("wordpress.toml"));
    let requests = script.flow(SEED, false);
    let answers = |engine: &str| {
        load(&database, &dump);
        let args = ["--engine", engine, "--listen", &*host, "--workers", "2"];
        let surus = site.serve_with(&args, &[UNCOMPRESSED]);
        // The address of the blog, among those that Surus listens on.
        let answers = play(&format!("http://{host}"), &script, &requests);
        let log = surus.log();
        assert!(!log.contains("cannot be booted"), "{engine}: {log}");
        answers
    };
    load(&database, &dump);
    let oracle = Oracle::start(&site, "", &host, &[]);
    let expected = play(&oracle.url, &script, &requests);
    drop(oracle);
    for text in [
        "Avalanche.",
        "It&#8217;s &#8220;",
        "wpadminbar",
        "Anmelden",
        "To: ada@example.org",
        "elephant.png",
    ] {
        assert!(
            expected.iter().any(|answer| answer.contains(text)),
            "{text}"
        );
    }
    for engine in ["fpm", "classic", "rewind", "fork"] {
        same(&expected, &answers(engine), engine);
    }
}

fn save(database: &Database, to: &Path) {
    let output = client("mariadb-dump", database).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::write(to, output.stdout).unwrap();
}

fn load(database: &Database, from: &Path) {
    let dump = std::fs::File::open(from).unwrap();
    let output = client("mariadb", database).stdin(dump).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn client(program: &str, database: &Database) -> Command {
    let socket = format!("--socket={}", database.socket().display());
    let mut command = Command::new(program);
    command.args(["--no-defaults", &socket, "--user=root", "wordpress"]);
    command
}
