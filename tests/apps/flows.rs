//! Compares long flows of mixed requests of several visitors: boots that learned pages warm up must
//! answer as nginx with php-fpm, `classic` and a cold boot do. The requests are in `flows/*.toml`.

mod oracle;
mod play;
mod reports;
mod script;
mod wordpress;

use std::process::Command;

use oracle::Oracle;
use play::play;
use script::{Request, Script};

use super::client::{Client, PROXY};
use super::database::Database;
use super::laravel_visitors;
use super::learned::{LEARNED, has_booted_for_its_pages_only};
use super::site::Site;
use super::visitors::same;
use crate::common::Surus;
use crate::common::ports::free_address;

/// The flow of requests; another number is another order.
const SEED: u64 = 30;

/// nginx compresses nothing here.
const UNCOMPRESSED: (&str, &str) = ("SURUS_COMPRESS_ENABLED", "false");

/// At most this many requests teach a boot. The first 200 do.
const LESSONS: usize = 2_000;

struct Flow {
    site: Site,
    env: Vec<(&'static str, &'static str)>,
    script: Script,
    isolated: Requests,
    /// Those for an engine that keeps state.
    kept: Requests,
}

#[derive(Default)]
struct Requests {
    all: Vec<Request>,
    /// What nginx and php-fpm have answered.
    expected: Vec<String>,
}

impl Flow {
    /// Answers of nginx with php-fpm, and of `fpm`, `classic` and `worker` must be the same.
    fn of(site: Site, script: Script, env: &[(&'static str, &'static str)]) -> Flow {
        let mut flow = Flow {
            site,
            env: env.to_vec(),
            script,
            isolated: Requests::default(),
            kept: Requests::default(),
        };
        let oracle = Oracle::start(&flow.site, "public", &free_address(), env);
        let answers = |keeps_state| {
            let all = flow.script.flow(SEED, keeps_state);
            let expected = play(&oracle.url, &flow.script, &all);
            Requests { all, expected }
        };
        (flow.isolated, flow.kept) = (answers(false), answers(true));
        drop(oracle);
        for engine in ["fpm", "classic"] {
            flow.compare(&flow.serve(engine, &[]), engine);
        }
        let worker = flow.serve("worker", &[]);
        let played = play(&worker.url, &flow.script, &flow.kept.all);
        same(&flow.kept.expected, &played, "worker");
        flow
    }

    /// Checks that mail is sent and that each text is in an answer.
    #[track_caller]
    fn shows(&self, texts: &[&str]) {
        let answers = self.isolated.expected.join("\n");
        for text in [&["Subject: 2 reports"], texts].concat() {
            assert!(answers.contains(text), "no answer has {text}: {answers}");
        }
    }

    fn serve(&self, engine: &str, env: &[(&str, &str)]) -> Surus {
        let args = ["--engine", engine, "--workers", "2"];
        let env = [&[UNCOMPRESSED], &self.env[..], env].concat();
        self.site.serve_with(&args, &env)
    }

    #[track_caller]
    fn compare(&self, surus: &Surus, what: &str) {
        let played = play(&surus.url, &self.script, &self.isolated.all);
        same(&self.isolated.expected, &played, what);
    }

    fn status(&self) -> String {
        let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
        let output = surus.arg("status").arg(self.site.www()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asks for the pages to learn, until the boot is warmed up by them.
    fn teach(&self, surus: &Surus) {
        let pages = &self.script.learned;
        for (number, page) in pages.iter().cycle().take(LESSONS).enumerate() {
            if surus.log().contains(LEARNED) {
                return;
            }
            let client = Client::new(&surus.url);
            client.get_from(page, number / pages.len()).ok();
        }
        surus.wait_for_log_within(180, |log| log.contains(LEARNED));
    }

    /// Compares before, while and after workers are exchanged for those of the learned boot.
    fn compare_while_learning(&self, engine: &str) {
        let state = tempfile::tempdir().unwrap();
        let learn = [
            ("STATE_DIRECTORY", state.path().to_str().unwrap()),
            ("SURUS_ENGINE_WARMUP", "learn"),
            PROXY,
        ];
        let surus = self.serve(engine, &learn);
        self.compare(&surus, &format!("{engine} before it has learned"));
        assert!(!self.status().contains("warmed up by"), "{}", self.status());
        std::thread::scope(|scope| {
            let lessons = scope.spawn(|| self.teach(&surus));
            let mut is_learned = false;
            while !is_learned && !lessons.is_finished() {
                self.compare(&surus, &format!("{engine} while it learns"));
                is_learned = surus.log().contains(LEARNED);
            }
            lessons.join().unwrap();
        });
        let status = self.status();
        for page in &self.script.learned {
            let used = format!("warmed up by http://localhost{page}\n");
            assert!(status.contains(&used), "{page}: {status}\n{}", surus.log());
        }
        for _ in 0..2 {
            self.compare(&surus, &format!("{engine} that has learned"));
        }
        has_booted_for_its_pages_only(&surus);
        drop(surus);
        let surus = self.serve(engine, &learn);
        surus.wait_for_log_within(180, |log| log.contains(LEARNED));
        self.compare(
            &surus,
            &format!("{engine} that has learned before its start"),
        );
    }
}

/// On SQLite if there is no database.
fn symfony(libraries: &str, database: Option<&Database>) -> Flow {
    let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];
    let script = Script::parse(include_str!("flows/symfony.toml")).with(reports::SCRIPT);
    let flow = Flow::of(reports::symfony(libraries, database), script, &env);
    flow.shows(&["text,sender.name", "<sender><name>ada", "2 Berichte"]);
    flow
}

fn laravel(site: Site) -> Flow {
    let script = Script::parse(include_str!("flows/laravel.toml")).with(reports::SCRIPT);
    let flow = Flow::of(site, script, &[]);
    flow.shows(&[r#""sender":{"name":"ada"}"#, "2 Berichte"]);
    flow
}

#[test]
#[ignore = "make test-learned"]
fn symfony_7_flow_gets_answers_of_php_fpm_from_learned_boots() {
    let database = Database::start();
    let flow = symfony("symfony7", Some(&database));
    for engine in ["rewind", "fork"] {
        flow.compare_while_learning(engine);
    }
}

#[test]
#[ignore = "make test-learned"]
fn symfony_5_flow_gets_answers_of_php_fpm_from_learned_boots() {
    symfony("symfony5", None).compare_while_learning("rewind");
}

#[test]
#[ignore = "make test-learned"]
fn symfony_6_flow_gets_answers_of_php_fpm_from_learned_boots() {
    symfony("symfony6", None).compare_while_learning("rewind");
}

#[test]
#[ignore = "make test-learned"]
fn laravel_10_flow_gets_answers_of_php_fpm_from_learned_boots() {
    let flow = laravel(reports::laravel_10());
    for engine in ["rewind", "fork"] {
        flow.compare_while_learning(engine);
    }
}

#[test]
#[ignore = "make test-learned"]
fn laravel_8_flow_gets_answers_of_php_fpm_from_learned_boots() {
    let script = Script::parse(include_str!("flows/laravel.toml"));
    let site = laravel_visitors::unmodified("laravel8");
    Flow::of(site, script, &[]).compare_while_learning("rewind");
}

#[test]
#[ignore = "make test-learned"]
fn laravel_13_flow_gets_answers_of_php_fpm_from_learned_boots() {
    let database = Database::start();
    laravel(reports::laravel_13(&database)).compare_while_learning("rewind");
}

#[test]
fn flow_has_at_least_250_requests_of_every_visitor_and_is_repeatable() {
    for script in [
        Script::parse(include_str!("flows/symfony.toml")).with(reports::SCRIPT),
        Script::parse(include_str!("flows/laravel.toml")),
        Script::parse(include_str!("flows/wordpress.toml")),
    ] {
        let targets = |seed, keeps_state| {
            let flow = script.flow(seed, keeps_state);
            let targets = flow.iter().map(|request| {
                let (method, path) = request.step.target();
                format!("{} {method} {path}", request.visitor)
            });
            targets.collect::<Vec<_>>()
        };
        for keeps_state in [false, true] {
            let flow = targets(SEED, keeps_state);
            assert!(flow.len() >= 250, "{}", flow.len());
            assert_eq!(flow, targets(SEED, keeps_state));
            assert_ne!(flow, targets(SEED + 1, keeps_state));
            for visitor in 0..script.users.len() {
                let own = |target: &&String| target.starts_with(&visitor.to_string());
                assert!(flow.iter().filter(own).count() > 50);
            }
        }
    }
}
