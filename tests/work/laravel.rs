//! Laravel's jobs without configuration: pushed by Laravel, decided by Laravel.

mod boot_connections;
mod console;
mod features;
mod files;
mod kills;
mod limits;
mod refusals;

use std::path::{Path, PathBuf};
use std::process::Command;

use self::files::{DATABASE, JOB, KERNEL, NOTES, PUSH, QUEUE, SQS_CLIENT, THEIRS};
use super::database::{Kind, PASSWORD, in_each_database};
use super::site::{Site, extension, framework, installed};
use super::table::Table;
use super::work::{Work, notes, with_longer_times};
use crate::common::php::cli;

/// The example application, with a database and queues.
pub struct Laravel {
    pub site: Site,
    pub table: Table,
    notes: PathBuf,
    env: Vec<(String, String)>,
}

impl Laravel {
    pub fn new(libraries: &Path) -> Laravel {
        Laravel::on(Kind::Sqlite, libraries)
    }

    /// The same with its tables in another database.
    pub fn on(kind: Kind, libraries: &Path) -> Laravel {
        let site = Site::laravel(&[])
            .directory("public")
            .replace(
                "config/app.php",
                "Illuminate\\Pipeline",
                "Illuminate\\Database\\DatabaseServiceProvider::class,\n        \
                 Illuminate\\Redis\\RedisServiceProvider::class,\n        \
                 Illuminate\\Queue\\QueueServiceProvider::class,\n        \
                 App\\Package::class,\n        App\\Boots::class,\n        Illuminate\\Pipeline",
            )
            .replace(
                "bootstrap/app.php",
                "return $app;",
                "$app->singleton(Illuminate\\Contracts\\Console\\Kernel::class, \
                 App\\ConsoleKernel::class);\nreturn $app;",
            )
            .write("config/queue.php", QUEUE)
            .write("config/database.php", DATABASE)
            .write("app/Work.php", JOB)
            .write("app/Notes.php", NOTES)
            .write("app/ConsoleKernel.php", KERNEL)
            .write("app/SqsClient.php", SQS_CLIENT)
            .write("push.php", PUSH)
            .write("theirs.php", THEIRS)
            .write("features.php", features::FEATURES)
            .write("limits.php", limits::LIMITS)
            .write("counted.php", kills::COUNTED)
            .write("artisan", "<?php // only its presence counts here\n");
        let classes = features::CLASSES.into_iter().chain(limits::CLASSES);
        let classes = classes.chain([kills::CLASS, boot_connections::CLASS]);
        let classes = classes.chain(console::CLASSES);
        let site = classes.fold(site, |site, (name, class)| {
            let class = format!("<?php\nnamespace App;\n{class}\n");
            site.write(&format!("app/{name}.php"), &class)
        });
        let site = site.vendor_from(libraries);
        let table = Table::create(kind, &site.tmp());
        let notes = site.tmp().join("notes");
        let path = |path: &Path| path.to_str().unwrap().to_string();
        let env = [
            ("NOTES", path(&notes)),
            ("DATABASE", table.name.clone()),
            ("APP_STORAGE", path(&site.tmp().join("storage"))),
        ];
        let env = env.map(|(name, value)| (name.to_string(), value)).into();
        let mut laravel = Laravel {
            site,
            table,
            notes,
            env,
        };
        if let Some(server) = laravel.table.server.clone() {
            extension("pdo_mysql", "php-mysql");
            extension("pdo_pgsql", "php-pgsql");
            let connection = if kind == Kind::MySql {
                "mysql"
            } else {
                "pgsql"
            };
            laravel.set("DB_CONNECTION", connection);
            laravel.set("DB_PORT", &server.port.to_string());
            laravel.set("DB_PASSWORD", PASSWORD.1);
        }
        laravel
    }

    /// The same with its queues in Redis.
    pub fn on_redis(libraries: &Path, port: u16) -> Laravel {
        extension("redis", "php-redis");
        let mut laravel = Laravel::new(libraries);
        laravel.set("QUEUE_CONNECTION", "redis");
        laravel.set("REDIS_PORT", &port.to_string());
        laravel
    }

    /// The same with its queues in SQS.
    pub fn on_sqs(libraries: &Path, prefix: &str, queue: &str) -> Laravel {
        let mut laravel = Laravel::new(libraries);
        laravel.set("QUEUE_CONNECTION", "sqs");
        laravel.set("SQS_PREFIX", prefix);
        laravel.set("SQS_QUEUE", queue);
        laravel
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.into(), value.into()));
    }

    pub fn start(&self, args: &[&str]) -> Work {
        let work = self.spawn(args);
        work.wait_for_log(|log| log.contains("working on queue"));
        work
    }

    pub fn spawn(&self, args: &[&str]) -> Work {
        let set = |(name, value): &(String, String)| (format!("SURUS_ENV_{name}"), value.clone());
        let mut env: Vec<_> = self.env.iter().map(set).collect();
        let extensions = "igbinary, redis, pdo_pgsql";
        env.push(("SURUS_PHP_EXTENSION".into(), extensions.into()));
        let env: Vec<_> = env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        Work::spawn(&self.site, args, &env)
    }

    pub fn push(&self, jobs: &[&str]) {
        self.run("push.php", jobs);
    }

    /// Runs a script of the application, and returns what it prints.
    pub fn run(&self, script: &str, args: &[&str]) -> String {
        let output = Command::new(cli())
            .args(["-d", "extension=igbinary", "-d", "extension=redis"])
            .args(["-d", "extension=pdo_pgsql"])
            .arg(self.site.www().join(script))
            .args(args)
            .envs(self.env.iter().cloned())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // Created by root, where tests run as root.
        self.site.stored();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Lets the jobs go on that wait.
    pub fn go(&self) {
        std::fs::write(self.notes.with_extension("go"), "").unwrap();
    }

    pub fn notes_file(&self) -> &Path {
        &self.notes
    }

    pub fn notes(&self) -> Vec<String> {
        notes(&self.notes)
    }

    /// The notes without what follows the name of a queue, in alphabetical order. A released job
    /// may be reserved before or after others end.
    pub fn runs(&self, queue: &str) -> Vec<String> {
        let of_queue = format!(" of {queue}");
        let notes = self.notes().into_iter();
        let runs = notes.map(|note| note.split(&of_queue).next().unwrap().to_owned());
        let mut runs: Vec<_> = runs.collect();
        runs.sort();
        runs
    }
}

/// What the jobs `well`, `throw`, `release`, `fail` and `well` note, in alphabetical order.
pub const RUNS: [&str; 9] = [
    "fail failed: failed by the job",
    "fail, attempt 1",
    "release, attempt 1",
    "release, attempt 2",
    "throw failed: thrown by the job",
    "throw, attempt 1",
    "throw, attempt 2",
    "well, attempt 1",
    "well, attempt 1",
];

pub fn debian() -> PathBuf {
    installed(
        "/usr/share/php/Illuminate/autoload.php",
        "php-laravel-framework",
    );
    PathBuf::from("/usr/share/php")
}

in_each_database! {
    jobs_of_an_unconfigured_application_run_as_laravel_decides
    failure_that_laravel_cannot_record_is_recorded_by_surus
    released_and_reserved_rows_are_those_of_laravel
}

fn jobs_of_an_unconfigured_application_run_as_laravel_decides(kind: Kind) {
    let of_debian = match kind {
        Kind::Sqlite => &["rewind", "worker"][..],
        _ => &["rewind"],
    };
    for (libraries, engines) in [
        (debian(), of_debian),
        (framework("laravel10"), &["rewind"][..]),
    ] {
        for engine in engines {
            let laravel = Laravel::on(kind, &libraries);
            laravel.push(&["well", "throw", "release", "fail", "well"]);
            let mut args = vec!["--workers", "1"];
            // The default needs no option.
            if *engine != "rewind" {
                args.extend(["--engine", engine]);
            }
            let work = laravel.start(&args);
            work.wait_until(|| laravel.table.is_empty());
            let noted = laravel.notes();
            if *engine == "rewind" {
                let clean = noted
                    .iter()
                    .filter(|note| note.ends_with(" of jobs/mails, 0 before"));
                assert_eq!(clean.count(), 7, "jobs see others: {noted:?}");
            }
            assert_eq!(
                laravel.runs("jobs/mails"),
                RUNS,
                "{engine} {}",
                libraries.display()
            );
            let failed = laravel.table.failed();
            assert_eq!(failed.len(), 2, "recorded by Laravel: {failed:?}");
            for (queue, payload, _) in &failed {
                assert_eq!(queue, "mails");
                assert!(
                    payload.contains(r#""displayName":"App\\Work""#),
                    "{payload}"
                );
            }
            assert!(
                failed[0].2.contains("RuntimeException: failed by the job"),
                "{failed:?}"
            );
        }
    }
}

#[test]
fn job_that_ends_its_process_is_tried_again_and_failed_by_laravel() {
    with_longer_times(a_job_that_never_ends_begins_twice);
}

/// Whether it does so before its timeout.
fn a_job_that_never_ends_begins_twice(timeout: &str) -> bool {
    let mut laravel = Laravel::new(&debian());
    laravel.set("HANG", timeout.trim_end_matches('s'));
    laravel.push(&["exit", "kill", "hang", "well"]);
    let work = laravel.start(&["--workers", "2"]);
    work.wait_until(|| laravel.table.is_empty());
    let noted = laravel.notes();
    if runs(&noted, "hang") < 2 {
        return false;
    }
    for what in ["exit", "kill", "hang"] {
        assert_eq!(runs(&noted, what), 2, "{noted:?}");
        let failed = format!("{what} failed: App\\Work: ");
        let is_failed = noted.iter().any(|note| note.starts_with(&failed));
        assert!(is_failed, "{noted:?}");
    }
    assert_eq!(laravel.table.failed().len(), 3);
    assert!(noted.contains(&"well, attempt 1 of jobs/mails, 0 before".to_string()));
    true
}

#[test]
fn job_that_exhausts_its_memory_is_failed_with_the_reason_of_php() {
    for libraries in [debian(), framework("laravel13")] {
        let laravel = Laravel::new(&libraries);
        laravel.push(&["memory"]);
        let work = laravel.start(&["--workers", "1"]);
        work.wait_until(|| laravel.table.is_empty());
        let failed = laravel.table.failed();
        assert_eq!(failed.len(), 1, "{}", work.log());
        let reason = "App\\Work: FatalError: Allowed memory size";
        assert!(failed[0].2.contains(reason), "{failed:?} {}", work.log());
    }
}

/// How often a job has begun.
pub fn runs(notes: &[String], what: &str) -> usize {
    let run = format!("{what}, attempt");
    notes.iter().filter(|note| note.starts_with(&run)).count()
}

fn failure_that_laravel_cannot_record_is_recorded_by_surus(kind: Kind) {
    let mut laravel = Laravel::on(kind, &debian());
    laravel.set("FAILED_DATABASE", "missing");
    laravel.push(&["fail"]);
    let work = laravel.start(&["--workers", "1"]);
    work.wait_until(|| laravel.table.is_empty());
    let failed = laravel.table.failed();
    assert_eq!(failed.len(), 1, "{}", work.log());
    assert!(
        failed[0].2.contains("the job has called fail()"),
        "{failed:?}"
    );
}

#[test]
fn job_released_until_a_date_or_for_an_interval_waits_that_long() {
    for libraries in [debian(), framework("laravel10"), framework("laravel13")] {
        let laravel = Laravel::new(&libraries);
        let ways = ["at", "for", "the job at", "the job for"].map(|way| format!("release {way}"));
        laravel.push(&ways.each_ref().map(String::as_str));
        let work = laravel.start(&["--workers", "1"]);
        let is_settled = || laravel.table.rows().iter().all(|row| !row.is_reserved);
        work.wait_until(|| laravel.notes().len() >= ways.len() && is_settled());
        let rows = laravel.table.rows();
        assert_eq!(rows.len(), ways.len(), "{rows:?} {}", work.log());
        for row in &rows {
            let due = row.available_at - super::table::now();
            let waits = row.attempts == 1 && (3500..=3600).contains(&due);
            assert!(waits, "{due}: {rows:?}");
        }
    }
}

fn released_and_reserved_rows_are_those_of_laravel(kind: Kind) {
    let laravel = Laravel::on(kind, &debian());
    laravel.push(&["back off"]);
    let work = laravel.start(&["--workers", "1"]);
    work.wait_until(|| laravel.table.rows().iter().any(|row| row.id == 2));
    let rows = laravel.table.rows();
    let due = rows[0].available_at - super::table::now();
    assert!(
        rows.len() == 1 && rows[0].attempts == 1 && !rows[0].is_reserved,
        "{rows:?}"
    );
    assert!((3500..=3600).contains(&due), "{due}");
}
