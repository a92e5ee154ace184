//! Compares long flows of mixed requests of several visitors: boots that learned pages warm up must
//! answer as php-fpm, `classic` and a cold boot do. The visitors' requests are in `flows/*.toml`.

mod play;
mod script;

use std::process::Command;

use play::play;
use script::{Request, Script};

use super::client::Client;
use super::learned::LEARNED;
use super::site::Site;
use super::visitors::same;
use super::{laravel_visitors, symfony_visitors};
use crate::common::Surus;

/// The flow of requests; another number is another order.
const SEED: u64 = 30;

/// At most this many requests teach a boot. The first 200 do.
const LESSONS: usize = 2_000;

struct Flow {
    site: Site,
    env: Vec<(&'static str, &'static str)>,
    script: Script,
    requests: Vec<Request>,
    /// What php-fpm has answered.
    expected: Vec<String>,
}

impl Flow {
    /// Answers of php-fpm and of `classic` must be the same.
    fn of(site: Site, script: &str, env: &[(&'static str, &'static str)]) -> Flow {
        let script = Script::parse(script);
        let requests = script.flow(SEED);
        let mut flow = Flow {
            site,
            env: env.to_vec(),
            script,
            requests,
            expected: Vec::new(),
        };
        flow.expected = flow.play(&flow.serve("fpm", &[]));
        flow.compare(&flow.serve("classic", &[]), "classic");
        flow
    }

    fn serve(&self, engine: &str, env: &[(&str, &str)]) -> Surus {
        let args = ["--engine", engine, "--workers", "2"];
        self.site.serve_with(&args, &[&self.env, env].concat())
    }

    fn play(&self, surus: &Surus) -> Vec<String> {
        play(surus, &self.script, &self.requests)
    }

    #[track_caller]
    fn compare(&self, surus: &Surus, what: &str) {
        same(&self.expected, &self.play(surus), what);
    }

    fn status(&self) -> String {
        let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
        let output = surus.arg("status").arg(self.site.www()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asks for the pages to learn, until the boot is warmed up by them.
    fn teach(&self, surus: &Surus) {
        for page in self.script.learned.iter().cycle().take(LESSONS) {
            if surus.log().contains(LEARNED) {
                return;
            }
            Client::new(&surus.url).get(page).ok();
        }
        surus.wait_for_log_within(180, |log| log.contains(LEARNED));
    }

    /// Compares before, while and after workers are exchanged for those of the learned boot.
    fn compare_while_learning(&self, engine: &str) {
        let state = tempfile::tempdir().unwrap();
        let learn = [
            ("STATE_DIRECTORY", state.path().to_str().unwrap()),
            ("SURUS_ENGINE_WARMUP", "learn"),
        ];
        let surus = self.serve(engine, &learn);
        self.compare(&surus, &format!("{engine} before it has learned"));
        assert!(self.status().contains("generation 1"), "{}", self.status());
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
        assert!(status.contains("generation 2"), "{status}");
        for page in &self.script.learned {
            let used = format!("warmed up by http://localhost{page}\n");
            assert!(status.contains(&used), "{page}: {status}\n{}", surus.log());
        }
        for _ in 0..2 {
            self.compare(&surus, &format!("{engine} that has learned"));
        }
        drop(surus);
        let surus = self.serve(engine, &learn);
        surus.wait_for_log_within(180, |log| log.contains(LEARNED));
        self.compare(
            &surus,
            &format!("{engine} that has learned before its start"),
        );
    }
}

fn symfony(libraries: &str) -> Flow {
    let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];
    let site = symfony_visitors::unmodified(libraries);
    Flow::of(site, include_str!("flows/symfony.toml"), &env)
}

fn laravel(libraries: &str) -> Flow {
    let site = laravel_visitors::unmodified(libraries);
    Flow::of(site, include_str!("flows/laravel.toml"), &[])
}

#[test]
#[ignore = "make test-learned"]
fn symfony_7_flow_gets_answers_of_php_fpm_from_learned_boots() {
    let flow = symfony("symfony7");
    for engine in ["rewind", "fork"] {
        flow.compare_while_learning(engine);
    }
}

#[test]
#[ignore = "make test-learned"]
fn symfony_5_flow_gets_answers_of_php_fpm_from_learned_boots() {
    symfony("symfony5").compare_while_learning("rewind");
}

#[test]
#[ignore = "make test-learned"]
fn laravel_10_flow_gets_answers_of_php_fpm_from_learned_boots() {
    let flow = laravel("laravel10");
    for engine in ["rewind", "fork"] {
        flow.compare_while_learning(engine);
    }
}

#[test]
#[ignore = "make test-learned"]
fn laravel_8_flow_gets_answers_of_php_fpm_from_learned_boots() {
    laravel("laravel8").compare_while_learning("rewind");
}

#[test]
fn flow_has_at_least_250_requests_of_every_visitor_and_is_repeatable() {
    for script in [
        include_str!("flows/symfony.toml"),
        include_str!("flows/laravel.toml"),
    ] {
        let script = Script::parse(script);
        let targets = |seed| {
            let flow = script.flow(seed);
            let targets = flow.iter().map(|request| {
                let (method, path) = request.step.target();
                format!("{} {method} {path}", request.visitor)
            });
            targets.collect::<Vec<_>>()
        };
        let flow = targets(SEED);
        assert!(flow.len() >= 250, "{}", flow.len());
        assert_eq!(flow, targets(SEED));
        assert_ne!(flow, targets(SEED + 1));
        for visitor in 0..script.users.len() {
            let own = |target: &&String| target.starts_with(&visitor.to_string());
            assert!(flow.iter().filter(own).count() > 50);
        }
    }
}
