//! Jobs in `surus serve`: as root in a process of the keeper's, otherwise in the server's own.

mod checks;
mod processes;
mod shutdown;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use super::database::Kind;
use super::operate::private_files;
use super::plain::Plain;
use super::redis::Site as RedisSite;
use super::site::{ids_of, is_root};
use super::work::descendants;
use crate::common::Surus;
use crate::common::executable::copy_executable;

/// How the server is started.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Root,
    User,
}

/// Runs a test for both, if this is root.
fn by_each(test: impl Fn(By)) {
    if is_root() {
        test(By::Root);
    }
    test(By::User);
}

const SERVE: &str = "[work]\nserve = true\n";

/// Answers at once, or after the jobs that wait may go on.
const PAGE: &str = r#"<?php
if (isset($_GET['wait'])) {
    file_put_contents(getenv('NOTES'), "request waits\n", FILE_APPEND | LOCK_EX);
    while (!file_exists(getenv('NOTES') . '.go')) {
        usleep(5000);
        clearstatcache();
    }
}
echo 'hello';
"#;

fn spawn(plain: &Plain, by: By) -> Result<Surus, String> {
    spawn_with(plain, by, &[])
}

fn spawn_with(plain: &Plain, by: By, settings: &[(&str, &str)]) -> Result<Surus, String> {
    let www = plain.site.www();
    std::fs::write(www.join("index.php"), PAGE).unwrap();
    plain.site.stored();
    let env = [
        ("SURUS_ENV_NOTES", plain.notes.to_str().unwrap()),
        ("SURUS_ADMIN_LISTEN", "127.0.0.1:0"),
        ("SURUS_WORK_ADMIN_LISTEN", "127.0.0.1:0"),
    ];
    let build = env!("CARGO_BIN_EXE_surus");
    let mut command = Command::new(build);
    if by == By::User && is_root() {
        // The build directory may be closed to other users.
        let bin = plain.site.www().parent().unwrap().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::set_permissions(&bin, Permissions::from_mode(0o755)).unwrap();
        let build = std::path::Path::new(build);
        let php = format!("surus-php{}", crate::common::php::minor());
        for name in ["surus", &php] {
            copy_executable(&build.with_file_name(name), &bin.join(name));
        }
        let (user, group) = ids_of("www-data");
        command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={group}")]);
        command.arg("--clear-groups").arg(bin.join("surus"));
    }
    command.envs(settings.iter().copied());
    Surus::spawn_by(command, &www, &["--workers", "2"], &env)
}

/// Serves pages and jobs. Returns once both are served.
#[track_caller]
fn serve(plain: &Plain, by: By) -> Surus {
    let surus = spawn(plain, by).unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    surus.wait_for_log(|log| log.contains("working on a queue"));
    surus
}

#[track_caller]
fn until(surus: &Surus, condition: impl Fn() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it has not come true; the log:\n{}", surus.log());
}

fn page(surus: &Surus, path: &str) -> Option<String> {
    let mut response = ureq::get(format!("{}{path}", surus.url)).call().ok()?;
    response.body_mut().read_to_string().ok()
}

#[track_caller]
fn assert_serves(surus: &Surus) {
    assert_eq!(
        page(surus, "/").as_deref(),
        Some("hello"),
        "{}",
        surus.log()
    );
}

/// The addresses of the admin listeners: that of the sites, and that of the queues.
fn admin(surus: &Surus) -> [String; 2] {
    let split = |log: &str| {
        let addresses = log.split("admin listener address=\"http://").skip(1);
        let addresses = addresses.filter_map(|rest| rest.split('"').next());
        addresses.map(str::to_string).collect::<Vec<_>>()
    };
    surus.wait_for_log(|log| split(log).len() == 2);
    split(&surus.log()).try_into().unwrap()
}

/// Runs a command for the server's project.
fn surus(plain: &Plain, server: &Surus, args: &[&str]) -> Output {
    let [sites, queues] = admin(server);
    Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(args)
        .arg(plain.site.www())
        .env("SURUS_ADMIN_LISTEN", sites)
        .env("SURUS_WORK_ADMIN_LISTEN", queues)
        .output()
        .unwrap()
}

#[track_caller]
fn said(plain: &Plain, server: &Surus, args: &[&str]) -> String {
    let output = surus(plain, server, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Status and text of a request to an admin listener.
fn asked(address: &str, path: &str) -> (u16, String) {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = ureq::Agent::new_with_config(config.build());
    let mut response = agent.get(format!("http://{address}{path}")).call().unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), text)
}

/// The process of the queues, if root has started the server.
fn queue_process(surus: &Surus) -> Option<u32> {
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut all = descendants(surus.pid()).into_iter();
    all.find(|pid| name(pid).trim_end() == "surus work")
}

#[test]
fn pages_and_jobs_are_served_by_one_command() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, &format!("{SERVE}[pool.work]\nworkers = 1\n"));
        plain.push(0, "");
        let mut surus = serve(&plain, by);
        plain.push(1, "context");
        until(&surus, || plain.table.is_empty());
        assert_serves(&surus);
        assert_eq!((plain.count("done 0"), plain.count("done 1")), (1, 1));
        assert_eq!(queue_process(&surus).is_some(), by == By::Root);
        surus.signal("TERM");
        assert!(surus.wait().success(), "{by:?}: {}", surus.log());
        let left = private_files(&plain.site);
        assert!(left.is_empty(), "{by:?}: {left:?}");
    });
}

#[test]
fn queues_are_left_alone_without_work_serve() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, "");
        plain.push(0, "");
        let mut surus = spawn(&plain, by).unwrap();
        assert_serves(&surus);
        assert_eq!(queue_process(&surus), None);
        surus.signal("TERM");
        assert!(surus.wait().success());
        let rows = plain.table.rows();
        assert!(rows.len() == 1 && rows[0].attempts == 0, "{by:?}: {rows:?}");
        assert!(
            !surus.log().contains("working on a queue"),
            "{}",
            surus.log()
        );
    });
}

#[test]
fn sigterm_lets_the_request_and_the_job_finish() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, SERVE);
        let mut surus = serve(&plain, by);
        plain.push(0, "wait");
        until(&surus, || plain.count("begins 0") == 1);
        let url = format!("{}/?wait", surus.url);
        let request = std::thread::spawn(move || {
            let mut response = ureq::get(url).call().unwrap();
            response.body_mut().read_to_string().unwrap()
        });
        until(&surus, || plain.count("request waits") == 1);
        plain.push(1, "");
        plain.push(2, "");
        surus.signal("TERM");
        surus.wait_for_log(|log| log.contains("running jobs finish"));
        surus.wait_for_log(|log| log.matches("shutting down").count() == 2);
        plain.go(true);
        assert_eq!(request.join().unwrap(), "hello");
        assert!(surus.wait().success(), "{by:?}: {}", surus.log());
        assert_eq!(plain.count("done 0"), 1, "{by:?}: {}", surus.log());
        for row in plain.table.rows() {
            assert!(!row.is_reserved, "{by:?}: {row:?}");
        }
    });
}

#[test]
fn job_that_outlasts_its_grace_period_is_released_and_ends_the_server() {
    by_each(|by| {
        let grace = "timeout = '60s'\n[work]\nserve = true\nshutdown_timeout = '1s'\n";
        let plain = Plain::new(Kind::Sqlite, grace);
        let mut surus = serve(&plain, by);
        plain.push(0, "hang");
        until(&surus, || plain.count("begins 0") == 1);
        surus.signal("TERM");
        assert!(surus.wait().success(), "{by:?}: {}", surus.log());
        let rows = plain.table.rows();
        assert!(!rows[0].is_reserved && rows[0].attempts == 1, "{rows:?}");
    });
}

#[test]
fn reload_applies_what_only_pages_use_and_rejects_what_jobs_use() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, SERVE);
        let surus = serve(&plain, by);
        let toml = plain.site.www().join("surus.toml");
        let text = std::fs::read_to_string(&toml).unwrap();
        std::fs::write(&toml, format!("{text}\n[php]\nprecision = 9\n")).unwrap();
        let output = self::surus(&plain, &surus, &["reload"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success()
                && error.contains("only a restart of Surus applies (php.precision)"),
            "{by:?}: {error}"
        );
        assert!(!surus.log().contains("reloaded\n"), "{}", surus.log());
        std::fs::write(&toml, format!("{text}\n[compress]\nenabled = false\n")).unwrap();
        assert_eq!(said(&plain, &surus, &["reload"]), "reloaded\nreloaded\n");
        assert!(surus.log().contains("changed=\"compress.enabled\""));
        assert_serves(&surus);
        plain.push(0, "");
        until(&surus, || plain.count("done 0") == 1);
    });
}

#[test]
fn reload_boots_both_and_broken_code_keeps_both() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, SERVE);
        let surus = serve(&plain, by);
        assert_eq!(said(&plain, &surus, &["reload"]), "reloaded\nreloaded\n");
        let handler = plain.site.www().join("jobs.php");
        let code = std::fs::read_to_string(&handler).unwrap();
        std::fs::write(&handler, "<?php this is no PHP").unwrap();
        let output = self::surus(&plain, &surus, &["reload"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains("jobs.php"),
            "{error}"
        );
        plain.push(0, "");
        until(&surus, || plain.count("done 0") == 1);
        assert_serves(&surus);
        std::fs::write(&handler, code.replace("'done'", "'newly done'")).unwrap();
        surus.signal("HUP");
        // Each job that the old code runs first is followed by another.
        let number = std::cell::Cell::new(1);
        until(&surus, || {
            if plain.table.is_empty() {
                plain.push(number.replace(number.get() + 1), "");
            }
            plain
                .notes()
                .iter()
                .any(|note| note.starts_with("newly done"))
        });
        assert_serves(&surus);
    });
}

#[test]
fn commands_and_metrics_reach_the_queues_of_a_server() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, SERVE);
        let surus = serve(&plain, by);
        let status = said(&plain, &surus, &["status"]);
        assert!(
            status.contains("classic: PHP") && status.contains("work: PHP"),
            "{status}"
        );
        assert_eq!(said(&plain, &surus, &["work", "pause"]), "paused default\n");
        surus.wait_for_log(|log| log.contains("paused"));
        plain.push(0, "");
        let status = said(&plain, &surus, &["work", "status", "--json"]);
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["error"], Value::Null);
        assert_eq!(status["queues"][0]["is_paused"], true);
        assert_serves(&surus);
        said(&plain, &surus, &["work", "resume"]);
        until(&surus, || plain.count("done 0") == 1);
        let [_, queues] = admin(&surus);
        assert_eq!(asked(&queues, "/-/ready").0, 200);
        until(&surus, || {
            let (_, metrics) = asked(&queues, "/-/metrics");
            metrics.contains(r#"surus_jobs_total{queue="default",class="",outcome="done"} 1"#)
        });
    });
}

#[test]
fn broker_that_is_down_does_not_stop_pages_and_is_waited_for() {
    by_each(|by| {
        let mut site = RedisSite::new(SERVE);
        site.redis.kill();
        let surus = spawn(&site.plain, by).unwrap();
        surus.wait_for_log(|log| log.contains("the queues cannot be started; trying again"));
        assert_serves(&surus);
        let [sites, queues] = admin(&surus);
        assert_eq!(asked(&sites, "/-/ready").0, 200);
        let (status, why) = asked(&queues, "/-/ready");
        assert!(
            status == 503 && why.contains("Redis server"),
            "{status} {why}"
        );
        // Nothing runs that could be paused, and a reload is possible.
        assert!(
            !self::surus(&site.plain, &surus, &["work", "pause"])
                .status
                .success()
        );
        assert_eq!(
            said(&site.plain, &surus, &["reload"]),
            "reloaded\nreloaded\n"
        );
        site.redis.revive();
        surus.wait_for_log(|log| log.contains("working on a queue"));
        site.push(0, "");
        until(&surus, || site.plain.count("done 0") == 1);
        assert_eq!(asked(&queues, "/-/ready").0, 200);
        // And again, while it runs.
        site.redis.kill();
        surus.wait_for_log(|log| log.contains("the broker failed"));
        assert_serves(&surus);
        site.redis.revive();
        site.push(1, "");
        until(&surus, || site.plain.count("done 1") == 1);
    });
}

#[test]
fn handler_that_cannot_boot_does_not_stop_pages_and_is_tried_again() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, SERVE);
        let handler = plain.site.www().join("jobs.php");
        let code = std::fs::read_to_string(&handler).unwrap();
        let broken = r#"<?php
            file_put_contents(getenv('NOTES'), "boots\n", FILE_APPEND);
            throw new Exception('no database at '.hrtime(true));"#;
        std::fs::write(&handler, broken).unwrap();
        let surus = spawn(&plain, by).unwrap();
        let message = "the queues cannot be started; trying again";
        surus.wait_for_log(|log| log.contains(message));
        assert_serves(&surus);
        until(&surus, || plain.count("boots") >= 3);
        assert_eq!(surus.log().matches(message).count(), 1, "{}", surus.log());
        for command in [&["status"][..], &["work", "status"]] {
            let status = said(&plain, &surus, command);
            let why = status
                .lines()
                .find(|line| line.starts_with("no jobs run: "));
            assert!(
                why.is_some_and(|why| why.contains("no database")),
                "{status}"
            );
        }
        let json = said(&plain, &surus, &["work", "status", "--json"]);
        let json: Value = serde_json::from_str(&json).unwrap();
        assert!(
            json["error"].as_str().unwrap().contains("no database"),
            "{json}"
        );
        std::fs::write(&handler, code).unwrap();
        plain.push(0, "");
        until(&surus, || plain.count("done 0") == 1);
    });
}

#[test]
fn second_signal_ends_both_at_once() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, SERVE);
        let mut surus = serve(&plain, by);
        plain.push(0, "wait");
        until(&surus, || plain.count("begins 0") == 1);
        surus.signal("TERM");
        surus.wait_for_log(|log| log.contains("running jobs finish"));
        // One that comes within a second repeats the first.
        std::thread::sleep(Duration::from_millis(1500));
        surus.signal("TERM");
        assert!(surus.wait().success(), "{by:?}: {}", surus.log());
        assert_eq!(plain.count("done 0"), 0);
    });
}

#[test]
fn logs_of_both_are_reopened() {
    by_each(|by| {
        let plain = Plain::new(Kind::Sqlite, SERVE);
        let surus = serve(&plain, by);
        surus.signal("USR1");
        surus.wait_for_log(|log| log.contains("logs reopened"));
        plain.push(0, "");
        until(&surus, || plain.table.is_empty());
        assert_serves(&surus);
    });
}

#[test]
fn queues_that_cannot_be_served_stop_the_start_with_the_remedy() {
    by_each(|by| {
        for (settings, says) in [
            (
                "[work]\nserve = true\n[[site]]\nhost = 'a.example'\n",
                "work.serve is not supported with [[site]]",
            ),
            (
                "[[queue]]\nname = 'mail'\nhandler = 'none.php'\nsource = '{source}'\n[work]\n\
                 serve = true\n",
                "none.php (handler)",
            ),
        ] {
            let plain = Plain::new(Kind::Sqlite, settings);
            let log = spawn(&plain, by).err().unwrap();
            assert!(log.contains(says), "{by:?}: {says}: {log}");
        }
    });
}
