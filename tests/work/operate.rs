//! Tests of the commands and reports for operators of a running `surus work`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::database::Kind;
use super::laravel::{Laravel, debian, runs};
use super::plain::Plain;
use super::redis::{DEFAULT, Redis, Site as RedisSite};
use super::site::{Site, framework, is_root};
use super::work::Work;

/// The address of the admin listener.
pub fn address(work: &Work) -> String {
    work.wait_for_log(|log| log.contains("admin listener"));
    let log = work.log();
    let start = log.split("address=\"http://").nth(1).unwrap();
    start.split('"').next().unwrap().to_string()
}

/// Runs `surus` for a site, whose `surus work` listens on `address`.
pub fn surus(site: &Site, address: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(args)
        .arg(site.www())
        .env("SURUS_WORK_ADMIN_LISTEN", address)
        .output()
        .unwrap()
}

#[track_caller]
pub fn said(site: &Site, work: &Work, args: &[&str]) -> String {
    let output = surus(site, &address(work), args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn metrics(work: &Work) -> String {
    let url = format!("http://{}/metrics", address(work));
    let mut response = ureq::get(&url).call().unwrap();
    response.body_mut().read_to_string().unwrap()
}

#[test]
fn paused_queue_returns_jobs_that_have_not_begun_and_continues_when_resumed() {
    let plain = Plain::new(Kind::Sqlite, "");
    let work = plain.start(&["--workers", "1"]);
    plain.push(0, "wait");
    for number in 1..4 {
        plain.push(number, "");
    }
    work.wait_until(|| plain.count("begins 0") == 1);
    assert_eq!(
        said(&plain.site, &work, &["work", "pause"]),
        "paused default\n"
    );
    work.wait_for_log(|log| log.contains("paused"));
    plain.go(true);
    work.wait_until(|| {
        let rows = plain.table.rows();
        rows.len() == 3 && rows.iter().all(|row| !row.is_reserved && row.attempts == 0)
    });
    plain.push(4, "");
    let status = said(&plain.site, &work, &["work", "status", "--json"]);
    let status: Value = serde_json::from_str(&status).unwrap();
    let queue = &status["queues"][0];
    assert_eq!(
        (&queue["is_paused"], &queue["depth"]["waiting"]),
        (&true.into(), &4.into())
    );
    assert_eq!(plain.count("begins 1"), 0);
    said(
        &plain.site,
        &work,
        &["work", "resume", "--queue", "default"],
    );
    work.wait_until(|| plain.table.is_empty());
    for number in 0..5 {
        assert_eq!(plain.count(&format!("done {number}")), 1);
    }
}

#[test]
fn pause_between_two_tries_of_a_job_keeps_the_order_of_its_group() {
    let plain = Plain::new(Kind::Sqlite, "group = 'customer'\nbackoff = '1h'\n");
    for (number, what) in [(1, "throw once"), (2, ""), (3, "")] {
        let job = json!({ "n": number, "do": what, "customer": 1 });
        plain.table.push("default", &job.to_string());
    }
    let work = plain.start(&["--workers", "2"]);
    work.wait_for_log(|log| log.contains("it will run again"));
    said(&plain.site, &work, &["work", "pause"]);
    work.wait_until(|| plain.table.rows().iter().all(|row| !row.is_reserved));
    let attempts = plain.table.rows().into_iter().map(|row| row.attempts);
    assert_eq!(attempts.collect::<Vec<_>>(), [1, 0, 0]);
    said(&plain.site, &work, &["work", "resume"]);
    work.wait_until(|| plain.table.is_empty());
    let notes = plain.notes().into_iter();
    let done: Vec<_> = notes.filter(|note| note.starts_with("done")).collect();
    assert_eq!(done, ["done 1", "done 2", "done 3"]);
}

#[test]
fn paused_queue_in_redis_is_left_to_others() {
    let site = RedisSite::new("");
    let work = site.plain.start(&["--workers", "1"]);
    said(&site.plain.site, &work, &["work", "pause"]);
    work.wait_for_log(|log| log.contains("paused"));
    site.push(1, "");
    let other = site.plain.start(&["--workers", "1"]);
    other.wait_until(|| site.is_empty());
    assert!(site.plain.count("done 1") == 1 && site.redis.is_empty(DEFAULT));
    other.signal("KILL");
    said(&site.plain.site, &work, &["work", "resume"]);
    site.push(3, "");
    work.wait_until(|| site.plain.count("done 3") == 1);
}

#[test]
fn status_and_reload_find_a_running_work() {
    let plain = Plain::new(Kind::Sqlite, "");
    let work = plain.start(&["--workers", "1"]);
    let status = said(&plain.site, &work, &["status"]);
    assert!(
        status.contains("work: PHP") && status.contains("idle"),
        "{status}"
    );
    let status = said(&plain.site, &work, &["work", "status"]);
    assert!(
        status.starts_with("QUEUE") && status.contains("default"),
        "{status}"
    );
    assert_eq!(said(&plain.site, &work, &["reload"]), "reloaded\n");
    let output = surus(
        &plain.site,
        &address(&work),
        &["work", "pause", "--queue", "no/such"],
    );
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("does not work on a queue \"no/such\""),
        "{error}"
    );
    let output = surus(&plain.site, "127.0.0.1:1", &["work", "pause"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("no running surus answers at http://127.0.0.1:1"),
        "{error}"
    );
}

/// The files that Surus keeps for a site while it runs, apart from sockets at named places.
pub fn private_files(site: &Site) -> Vec<PathBuf> {
    let name = site.www().parent().unwrap().file_name().unwrap().to_owned();
    let name = name.into_string().unwrap();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|it| PathBuf::from(it).join("surus"));
    let places = ["/run/surus".into(), std::env::temp_dir()];
    let places: Vec<PathBuf> = places.into_iter().chain(runtime).collect();
    // Below the directory for temporary files, each user has one.
    let own = list(&places[1]).into_iter().map(|(path, _)| path);
    let places = places.iter().cloned().chain(own);
    let files = places.flat_map(|place| list(&place));
    let of_site = files.filter(|(path, file)| path.is_file() && file.contains(&name));
    of_site.map(|(path, _)| path).collect()
}

/// Paths and names of the files in a directory; none if it cannot be read.
fn list(directory: &Path) -> Vec<(PathBuf, String)> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let files = files.map(|file| (file.path(), file.file_name()));
    let files = files.map(|(path, name)| (path, name.to_string_lossy().into_owned()));
    files.collect()
}

#[test]
fn ended_work_leaves_no_files_behind() {
    let plain = Plain::new(Kind::Sqlite, "lease = '3s'\n");
    let socket = plain.site.www().with_file_name("admin.sock");
    let listen = format!("unix:{}", socket.display());
    let start = || plain.start_with(&["--workers", "1"], &[("SURUS_WORK_ADMIN_LISTEN", &listen)]);
    plain.push(0, "wait");
    let mut work = start();
    work.wait_until(|| plain.count("begins 0") == 1);
    assert!(socket.exists());
    assert_eq!(private_files(&plain.site).len(), 1);
    work.signal("KILL");
    work.wait();
    // Jobs that have run are remembered, and the next one replaces the socket.
    assert_eq!(private_files(&plain.site).len(), 1);
    work = start();
    work.wait_until(|| plain.count("begins 0") == 2);
    plain.go(true);
    work.wait_until(|| plain.table.is_empty());
    work.signal("TERM");
    assert!(work.wait().success(), "{}", work.log());
    // If root has started it, another process removes them.
    work.wait_until(|| !socket.exists() && private_files(&plain.site).is_empty());
}

#[test]
fn metrics_tell_depth_and_age_of_every_broker() {
    let kinds = [Kind::Sqlite, Kind::MySql, Kind::Postgres];
    let (databases, site) = (kinds.map(|kind| Plain::new(kind, "")), RedisSite::new(""));
    let works = databases.iter().chain([&site.plain]).map(|plain| {
        let work = plain.start(&["--workers", "1"]);
        said(&plain.site, &work, &["work", "pause"]);
        work
    });
    let works: Vec<_> = works.collect();
    let due = super::table::now() - 60;
    for plain in &databases {
        plain.table.push_at("default", r#"{"n": 1}"#, due);
        plain.table.push_at("default", r#"{"n": 2}"#, due + 3600);
    }
    site.push_json(&format!(r#"{{"n": 1, "createdAt": {due}}}"#));
    let _: i64 = site
        .redis
        .ask(&format!("ZADD {DEFAULT}:delayed {} late", due + 3600));
    for work in &works {
        let text = metrics(work);
        for (state, count) in [("waiting", 1), ("delayed", 1), ("reserved", 0)] {
            let line = format!("surus_broker_jobs{{queue=\"default\",state=\"{state}\"}} {count}");
            assert!(text.contains(&line), "{line}: {text}");
        }
        let age = text
            .split("surus_broker_oldest_job_seconds{queue=\"default\"} ")
            .nth(1);
        let age: u64 = age.unwrap().lines().next().unwrap().parse().unwrap();
        assert!(age >= 60, "{age}");
    }
}

#[test]
fn metrics_count_laravel_jobs_by_class() {
    let laravel = Laravel::new(&debian());
    laravel.push(&["well", "fail", "well"]);
    let work = laravel.start(&["--workers", "1"]);
    work.wait_until(|| laravel.table.is_empty());
    let text = metrics(&work);
    for (outcome, count) in [("done", 2), ("failed", 1)] {
        let labels = format!(r#"{{queue="mails",class="App\\Work",outcome="{outcome}"}}"#);
        let line = format!("surus_jobs_total{labels} {count}");
        assert!(text.contains(&line), "{line}: {text}");
    }
}

/// The ids of failed jobs.
fn failed(site: &Site, work: &Work) -> Vec<String> {
    let json = said(site, work, &["work", "failed", "--json"]);
    let jobs: Vec<Value> = serde_json::from_str(&json).unwrap();
    let ids = jobs
        .iter()
        .map(|job| job["id"].as_str().unwrap().to_string());
    ids.collect()
}

#[test]
fn failed_job_is_listed_retried_and_forgotten() {
    let settings = "tries = 1\n";
    let kinds = [Kind::Sqlite, Kind::MySql, Kind::Postgres];
    let databases = kinds.map(|kind| Plain::new(kind, settings));
    let redis = RedisSite::new(settings);
    for plain in &databases {
        plain.push(1, "throw once");
    }
    redis.push(1, "throw once");
    for plain in databases.iter().chain([&redis.plain]) {
        let site = &plain.site;
        let work = plain.start(&["--workers", "1"]);
        work.wait_until(|| failed(site, &work).len() == 1);
        let id = &failed(site, &work)[0];
        let text = said(site, &work, &["work", "failed"]);
        assert!(text.contains(id) && text.contains("as told"), "{text}");
        said(site, &work, &["work", "retry", "--id", id]);
        work.wait_until(|| plain.count("done 1") == 1);
        assert_eq!(plain.count("begins 1"), 2);
        assert_eq!(
            said(site, &work, &["work", "failed"]),
            "no job has failed\n"
        );
        let again = surus(site, &address(&work), &["work", "retry", "--id", id]);
        let error = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(error.contains("no failed job has the id"), "{error}");
    }
    for plain in &databases {
        plain.push(2, "throw");
    }
    redis.push(2, "throw");
    for plain in databases.iter().chain([&redis.plain]) {
        let site = &plain.site;
        let work = plain.start(&["--workers", "1"]);
        work.wait_until(|| failed(site, &work).len() == 1);
        said(site, &work, &["work", "forget", "--all"]);
        assert_eq!((failed(site, &work).len(), plain.count("begins 2")), (0, 1));
    }
}

#[test]
fn failed_job_whose_id_two_queues_have_is_named_with_its_queue() {
    let plain = Plain::new(
        Kind::Sqlite,
        "tries = 1\nfailed_table = 'failed_one'\n[[queue]]\nname = 'other'\ntries = 1\n\
         handler = 'jobs.php'\nsource = '{source}'\nfailed_table = 'failed_two'\n",
    );
    // As the guide creates it: ids are the numbers of rows.
    for table in ["failed_one", "failed_two"] {
        plain.table.run(&format!(
            "create table {table} (id integer primary key autoincrement, connection text, \
             queue text, payload text, exception text, failed_at text)"
        ));
    }
    plain.push(1, "throw");
    plain.table.push("other", r#"{"n": 2, "do": "throw once"}"#);
    let (work, site) = (plain.start(&["--workers", "1"]), &plain.site);
    work.wait_until(|| failed(site, &work).len() == 2);
    assert_eq!(failed(site, &work), ["default/1", "other/1"]);
    let refused = surus(site, &address(&work), &["work", "retry", "--id", "1"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("write default/1 or other/1"), "{error}");
    said(site, &work, &["work", "retry", "--id", "other/1"]);
    work.wait_until(|| plain.count("done 2") == 1);
    assert_eq!((plain.count("begins 1"), plain.count("begins 2")), (1, 2));
    said(site, &work, &["work", "forget", "--all"]);
    assert!(failed(site, &work).is_empty());
}

#[test]
fn failed_jobs_of_other_brokers_are_listed_and_changed_while_one_is_away() {
    let mut redis = Redis::start();
    let plain = Plain::new(
        Kind::Sqlite,
        &format!(
            "tries = 1\n[[queue]]\nname = 'away'\nhandler = 'jobs.php'\nsource = '{}'\n",
            redis.url()
        ),
    );
    for number in 1..3 {
        plain.push(number, "throw");
    }
    let (work, site) = (plain.start(&["--workers", "1"]), &plain.site);
    work.wait_until(|| failed(site, &work).len() == 2);
    let ids = failed(site, &work);
    redis.kill();
    // Stdout and stderr of a command that fails.
    let run = |args: &[&str]| {
        let output = surus(site, &address(&work), args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let away = "cannot list failed jobs: queue away: ";
    let [text, error] = run(&["work", "failed"]);
    assert_eq!(text.matches("as told").count(), 2, "{text}");
    assert!(error.contains(away), "{error}");
    let [json, error] = run(&["work", "failed", "--json"]);
    let jobs: Vec<Value> = serde_json::from_str(&json).unwrap();
    assert!(jobs.len() == 2 && error.contains(away), "{json} {error}");
    let [text, error] = run(&["work", "retry", "--id", "unknown", "--id", &ids[0]]);
    assert_eq!(text, format!("retried {}\n", ids[0]));
    assert!(
        error.contains("unknown: ") && error.contains("queue away: "),
        "{error}"
    );
    work.wait_until(|| plain.count("begins 1") + plain.count("begins 2") == 3);
    work.wait_until(|| plain.table.failed().len() == 2);
    let [text, error] = run(&["work", "forget", "--all"]);
    assert_eq!(text.matches("forgot ").count(), 2, "{text}");
    assert!(error.contains(away), "{error}");
    assert!(plain.table.failed().is_empty());
}

#[test]
fn failed_laravel_job_is_retried_by_laravel() {
    let redis = Redis::start();
    let on_redis = Laravel::on_redis(&debian(), redis.port);
    let on_postgres = Laravel::on(Kind::Postgres, &debian());
    for laravel in [Laravel::new(&debian()), on_postgres, on_redis] {
        laravel.push(&["fail"]);
        let (work, site) = (laravel.start(&["--workers", "1"]), &laravel.site);
        work.wait_until(|| laravel.table.failed().len() == 1);
        let text = said(site, &work, &["work", "failed"]);
        assert!(
            text.contains("mails App\\Work") && text.contains("failed by the job"),
            "{text}"
        );
        let before = failed(site, &work);
        said(site, &work, &["work", "retry", "--all"]);
        // It fails again, and Laravel records it again.
        let runs = || {
            let notes = laravel.notes();
            notes
                .iter()
                .filter(|note| note.starts_with("fail, attempt 1"))
                .count()
        };
        work.wait_until(|| runs() == 2 && laravel.table.failed().len() == 1);
        assert_eq!(failed(site, &work).len(), before.len());
        said(site, &work, &["work", "forget", "--all"]);
        assert!(laravel.table.failed().is_empty());
    }
}

#[test]
fn failed_laravel_jobs_are_listed_and_forgotten_while_all_workers_run_jobs() {
    let laravel = Laravel::new(&debian());
    laravel.push(&["fail"]);
    let (work, site) = (laravel.start(&["--workers", "1"]), &laravel.site);
    work.wait_until(|| laravel.table.failed().len() == 1);
    laravel.push(&["wait"]);
    work.wait_until(|| runs(&laravel.notes(), "wait") == 1);
    assert_eq!(failed(site, &work).len(), 1);
    said(site, &work, &["work", "forget", "--all"]);
    assert!(laravel.table.failed().is_empty());
    laravel.go();
    work.wait_until(|| laravel.table.is_empty());
}

/// Laravel 8 cannot list ids alone.
#[test]
fn failed_laravel_jobs_are_listed_up_to_a_limit_and_all_are_forgotten() {
    for (libraries, forgets) in [(debian(), false), (framework("laravel13"), true)] {
        let laravel = Laravel::new(&libraries);
        laravel.table.run(
            r#"insert into failed_jobs (uuid, connection, queue, payload, exception)
               with recursive numbers (number) as
                   (select 1 union all select number + 1 from numbers where number < 1003)
               select 'job-' || number, 'jobs', 'mails', '{"displayName": "Many"}', 'as told'
               from numbers"#,
        );
        let (work, site) = (laravel.start(&["--workers", "1"]), &laravel.site);
        assert_eq!(failed(site, &work).len(), 1003);
        let text = said(site, &work, &["work", "failed"]);
        assert!(text.ends_with("3 more jobs have failed; `--all` includes them\n"));
        if forgets {
            said(site, &work, &["work", "forget", "--all"]);
            assert!(laravel.table.failed().is_empty());
        }
    }
}

#[test]
fn cleaner_of_a_work_that_root_has_started_may_only_remove_files() {
    if !is_root() {
        return;
    }
    let plain = Plain::new(Kind::Sqlite, "");
    let mut work = plain.start(&["--workers", "1"]);
    let site = plain.site.www();
    let read = |pid: &Path, name: &str| std::fs::read_to_string(pid.join(name)).unwrap_or_default();
    let find = || {
        let processes = std::fs::read_dir("/proc").unwrap();
        processes
            .map(|entry| entry.unwrap().path())
            .filter(|pid| read(pid, "comm") == "surus cleaner\n")
            .find(|pid| read(pid, "cmdline").contains(site.to_str().unwrap()))
    };
    work.wait_until(|| find().is_some());
    let cleaner = find().unwrap();
    let status = read(&cleaner, "status");
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_string()
    };
    // CAP_DAC_OVERRIDE and CAP_FOWNER.
    let may = "000000000000000a";
    assert_eq!(
        (value("CapEff:"), value("CapPrm:")),
        (may.into(), may.into())
    );
    assert_eq!(
        (value("CapBnd:"), value("NoNewPrivs:")),
        ("0".repeat(16), "1".into())
    );
    work.signal("TERM");
    assert!(work.wait().success());
    work.wait_until(|| !cleaner.exists());
}
