//! Tests that a reload applies a changed configuration without losing a request, and that it
//! applies nothing of one that it cannot use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use surus_sys::process::is_root;

use crate::common::Surus;
use crate::common::user::User;
use crate::wire::{Answer, Wire};

/// A page that says how it is configured. If it is asked to, it sends something before, and waits
/// for a file.
const PAGE: &str = r#"<?php
if (isset($_GET['sends'])) {
    echo 'sent ';
    ob_get_level() && ob_flush();
    flush();
}
if (isset($_GET['until'])) {
    error_log('begun');
    while (!file_exists(__DIR__ . '/' . $_GET['until'])) {
        usleep(5000);
        clearstatcache();
    }
}
echo getenv('WORD'), ' ', getmypid();
"#;

/// A server of root, with a keeper, or of a user.
struct Server {
    surus: Surus,
    path: PathBuf,
    admin: String,
    /// What is removed at the end.
    _kept: (Option<tempfile::TempDir>, Option<User>),
}

impl Server {
    fn start(by_root: bool, toml: &str, files: &[(&str, &str)]) -> Server {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::write(dir.path().join("surus.toml"), toml).unwrap();
        let env = [("SURUS_ADMIN_LISTEN", "127.0.0.1:0")];
        let path = dir.path().to_path_buf();
        let (surus, kept) = match by_root {
            true => {
                use std::os::unix::fs::PermissionsExt;
                let open = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(dir.path(), open).unwrap();
                (Surus::spawn(&path, &[], &env), (Some(dir), None))
            }
            false => {
                let user = User::new(dir);
                (user.serve(&[], &env), (None, Some(user)))
            }
        };
        let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
        let mark = "admin listener address=\"http://";
        surus.wait_for_log(|log| log.contains(mark));
        let log = surus.log();
        let admin = log.split(mark).nth(1).unwrap().split('"').next().unwrap();
        let admin = admin.to_owned();
        Server {
            surus,
            path,
            admin,
            _kept: kept,
        }
    }

    /// Reloads with another configuration. Returns the answer.
    fn reload(&self, toml: &str) -> (u16, String) {
        std::fs::write(self.path.join("surus.toml"), toml).unwrap();
        let mut admin = Wire::to(&self.admin);
        let answer = admin.ask("POST /-/reload HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = answer.unwrap();
        (answer.status, body(&answer))
    }

    #[track_caller]
    fn reloads(&self, toml: &str) {
        let reloaded = self.reload(toml);
        let log = self.surus.log();
        assert_eq!(reloaded, (200, "reloaded\n".into()), "{log}");
    }

    fn get(&self, host: &str, target: &str) -> Answer {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        Wire::connect(&self.surus).ask(&request).unwrap()
    }

    /// The word of the page, and its process.
    fn word(&self, host: &str) -> (String, String) {
        word(&self.get(host, "/"))
    }

    /// The worker processes of the first pool.
    fn workers(&self) -> Vec<String> {
        let status = "GET /-/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let status = Wire::to(&self.admin).ask(status).unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
        let workers = status[0]["workers"].as_array().unwrap().iter();
        workers.map(|worker| worker["pid"].to_string()).collect()
    }
}

fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

fn by_each(test: impl Fn(bool)) {
    if is_root() {
        test(true);
    }
    test(false);
}

fn body(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[track_caller]
fn word(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = body(answer);
    let (word, pid) = text.split_once(' ').unwrap();
    (word.to_owned(), pid.to_owned())
}

#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Clients that ask again and again. Returns, once it is called, how often they were answered.
fn load(server: &Server) -> impl FnOnce() -> usize {
    let is_over = Arc::new(AtomicBool::new(false));
    let client = |number: usize| {
        let (address, is_over) = (server.surus.address.clone(), is_over.clone());
        thread::spawn(move || {
            let mut answered = 0;
            while !is_over.load(Ordering::Relaxed) {
                let mut wire = Wire::to(&address);
                // Some connections live through all reloads.
                for _ in 0..if number.is_multiple_of(2) {
                    usize::MAX
                } else {
                    3
                } {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let answer = wire.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
                    word(&answer.expect("no response"));
                    answered += 1;
                }
            }
            answered
        })
    };
    let clients: Vec<_> = (0..4).map(client).collect();
    move || {
        is_over.store(true, Ordering::Relaxed);
        let answered = clients.into_iter().map(|client| client.join().unwrap());
        answered.sum()
    }
}

const ONE: &str = "engine.workers = 1\nenv.WORD = 'one'\n";

const TWO: &str = "engine.workers = 3\nenv.WORD = 'two'\nhttp.request_timeout = '3s'\n\
    access_log.format = 'new: %U'\n[[route]]\nprefix = '/moved'\nredirect = '/'\n";

#[test]
fn changed_configuration_is_used_after_a_reload_without_a_lost_request() {
    by_each(|by_root| {
        let server = Server::start(by_root, ONE, &[("index.php", PAGE)]);
        let clients = load(&server);
        for round in 0..3 {
            assert_eq!(server.word("a.test").0, "one");
            assert_eq!(server.get("a.test", "/moved").status, 200);
            assert_eq!(server.workers().len(), 1);
            server.reloads(TWO);
            assert_eq!(server.word("a.test").0, "two");
            assert_eq!(server.get("a.test", "/moved").status, 302);
            assert_eq!(server.workers().len(), 3);
            if round == 0 {
                assert_eq!(server.get("a.test", "/?until=never").status, 504);
            }
            server.reloads(ONE);
        }
        let answered = clients();
        assert!(answered > 50, "{answered}");
        server.surus.wait_for_log(|log| log.contains("new: /\n"));
        // Without a change, it is the usual reload.
        server.reloads(ONE);
        assert_eq!(server.word("a.test").0, "one");
    });
}

#[test]
fn request_in_flight_ends_with_the_configuration_that_it_began_with() {
    by_each(|by_root| {
        let server = Server::start(by_root, ONE, &[("index.php", PAGE)]);
        let mut slow = Wire::connect(&server.surus);
        slow.send("GET /?until=go HTTP/1.1\r\nHost: a\r\n\r\n");
        server.surus.wait_for_log(|log| log.contains("begun"));
        server.reloads(TWO);
        assert_eq!(server.word("a").0, "two");
        std::fs::write(server.path.join("go"), "").unwrap();
        let (old, pid) = word(&slow.answer().unwrap());
        assert_eq!(old, "one");
        until("the old worker exits", || !lives(&pid));
        // The connection goes on with the new one.
        let answer = slow.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(word(&answer).0, "two");
    });
}

#[test]
fn idle_workers_of_a_replaced_pool_exit_while_another_one_sends() {
    by_each(|by_root| {
        let three = "engine.workers = 3\nenv.WORD = 'three'\n";
        let server = Server::start(by_root, three, &[("index.php", PAGE)]);
        let old = server.workers();
        let living = || old.iter().filter(|pid| lives(pid)).count();
        assert_eq!(living(), 3);
        let mut slow = Wire::connect(&server.surus);
        slow.send("GET /?sends&until=go HTTP/1.1\r\nHost: a\r\n\r\n");
        slow.begins();
        server.reloads(ONE);
        until("two workers exit", || living() == 1);
        assert_eq!(server.word("a").0, "one");
        assert_eq!(living(), 1);
        std::fs::write(server.path.join("go"), "").unwrap();
        let answer = body(&slow.answer().unwrap());
        assert!(answer.starts_with("sent three "), "{answer}");
        until("the last worker exits", || living() == 0);
    });
}

#[test]
fn slow_upload_does_not_keep_a_replaced_pool() {
    by_each(|by_root| {
        let with_limit = |toml: &str| format!("http.shutdown_timeout = '1s'\n{toml}");
        let server = Server::start(by_root, &with_limit(ONE), &[("index.php", PAGE)]);
        let (_, pid) = server.word("a");
        let mut slow = Wire::connect(&server.surus);
        slow.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n");
        slow.send("Content-Length: 2\r\n\r\n");
        assert_eq!(slow.answer().unwrap().status, 100);
        server.reloads(&with_limit(TWO));
        let late = "requests of the replaced configuration have no response yet";
        server.surus.wait_for_log(|log| log.contains(late));
        until("the old worker exits", || !lives(&pid));
        slow.send("ab");
        assert_eq!(slow.answer_to("POST").unwrap().status, 503);
        assert_eq!(server.word("a").0, "two");
    });
}

#[test]
fn adaptive_pool_begins_with_the_size_of_the_one_that_it_replaces() {
    by_each(|by_root| {
        let adaptive = |word: &str| {
            format!("engine.min_workers = 1\nengine.max_workers = 4\nenv.WORD = '{word}'\n")
        };
        let server = Server::start(by_root, &adaptive("one"), &[("index.php", PAGE)]);
        let ask = |_| {
            let mut wire = Wire::connect(&server.surus);
            wire.send("GET /?until=go HTTP/1.1\r\nHost: a\r\n\r\n");
            wire
        };
        let slow: Vec<_> = (0..4).map(ask).collect();
        until("the pool has grown", || server.workers().len() == 4);
        server.reloads(&adaptive("two"));
        assert_eq!(server.workers().len(), 4);
        std::fs::write(server.path.join("go"), "").unwrap();
        for mut wire in slow {
            assert_eq!(word(&wire.answer().unwrap()).0, "one");
        }
    });
}

#[test]
fn slow_requests_are_logged_as_a_reload_has_configured() {
    by_each(|by_root| {
        let server = Server::start(by_root, ONE, &[("index.php", PAGE)]);
        server.reloads("env.WORD = 'two'\nhttp.slow_request = '100ms'\n");
        let mut slow = Wire::connect(&server.surus);
        slow.send("GET /?until=go HTTP/1.1\r\nHost: a\r\n\r\n");
        let line = "slow request (http.slow_request)";
        server.surus.wait_for_log(|log| log.contains(line));
        std::fs::write(server.path.join("go"), "").unwrap();
        assert_eq!(word(&slow.answer().unwrap()).0, "two");
    });
}

/// The file of the configuration could have been written by PHP as it runs at the moment.
#[test]
fn users_that_php_has_at_the_moment_are_not_trusted_with_its_configuration() {
    if !is_root() {
        return;
    }
    let site = |user: &str| {
        format!("[[site]]\nhost = 'a.test'\nengine.user = '{user}'\nenv.WORD = '{user}'\n")
    };
    let server = Server::start(true, &site("daemon"), &[("index.php", PAGE)]);
    let give_to = |user: &str| {
        let user = surus_sys::process::find_user(user, None).unwrap().unwrap();
        let file = server.path.join("surus.toml");
        std::os::unix::fs::chown(file, Some(user.uid), None).unwrap();
    };
    give_to("daemon");
    let (status, error) = server.reload(&site("games"));
    let why = "PHP's user daemon may change";
    assert!(status == 500 && error.contains(why), "{status} {error}");
    assert_eq!(server.word("a.test").0, "daemon");
    give_to("bin");
    let warning = "another user than root can replace";
    assert!(!server.surus.log().contains(warning));
    server.reloads(&site("games"));
    assert_eq!(server.word("a.test").0, "games");
    server.surus.wait_for_log(|log| log.contains(warning));
}

#[test]
fn nothing_of_a_configuration_that_cannot_be_used_is_applied() {
    by_each(|by_root| {
        let broken = "<?php exit(1); surus_serve(1);";
        let files = [("index.php", PAGE), ("broken.php", broken)];
        let server = Server::start(by_root, ONE, &files);
        for (toml, named) in [
            (
                "http.max_connections = 10\nenv.WORD = 'two'\n",
                "surus.toml has changed what only a restart of Surus applies \
                 (http.max_connections)",
            ),
            (
                "env.WORD = 'two'\nhttp.max_bodi = 1\n",
                "surus.toml:2: unknown field `max_bodi`",
            ),
            (
                "env.WORD = 'two'\nengine.name = 'rewind'\nengine.script = 'broken.php'\n\
                 engine.must_boot = true\n",
                "engine `rewind`",
            ),
            ("env.WORD = 'two'\nsite.root = 'nowhere'\n", "nowhere"),
        ] {
            let (status, error) = server.reload(toml);
            assert_eq!(status, 500, "{toml}: {error}");
            let kept = "nothing was reloaded, and the old configuration stays in use";
            assert!(
                error.contains(named) && error.contains(kept),
                "{toml}: {error}"
            );
            assert_eq!(server.word("a").0, "one", "{toml}");
            server.surus.signal("HUP");
            server.surus.wait_for_log(|log| log.contains(named));
        }
        server.reloads(TWO);
        assert_eq!(server.word("a").0, "two");
    });
}

fn sites(sites: &[(&str, &str)]) -> String {
    let site = |(host, more): &(&str, &str)| {
        format!("[[site]]\nhost = '{host}.test'\nproject = '{host}'\nenv.WORD = '{host}'\n{more}\n")
    };
    sites.iter().map(site).collect()
}

#[test]
fn new_site_is_served_and_a_removed_one_is_not() {
    by_each(|by_root| {
        let files = [("a/index.php", PAGE), ("b/index.php", PAGE)];
        let server = Server::start(by_root, &sites(&[("a", "")]), &files);
        let metrics = || body(&Wire::to(&server.admin).ask(METRICS).unwrap());
        let clients = load(&server);
        assert_eq!(server.get("b.test", "/").status, 421);
        server.reloads(&sites(&[("a", ""), ("b", "")]));
        assert_eq!(server.word("b.test").0, "b");
        assert!(metrics().contains("surus_site_up{site=\"b.test\"} 1\n"));
        let (status, error) = server.reload(&sites(&[("a", ""), ("b", ""), ("c", "")]));
        assert!(status == 500 && error.contains("c.test: "), "{error}");
        assert!(!metrics().contains("c.test"), "{}", metrics());
        assert_eq!(server.word("b.test").0, "b");
        server.reloads(&sites(&[("a", "")]));
        assert_eq!(server.get("b.test", "/").status, 421);
        assert!(!metrics().contains("surus_site_up{site=\"b.test\"}"));
        assert!(!metrics().contains("surus_workers{site=\"b.test\""));
        assert!(metrics().contains("surus_site_up{site=\"a.test\"} 1\n"));
        assert!(clients() > 10);
    });
}

const METRICS: &str = "GET /-/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn front_end_that_replaces_another_has_the_reloaded_configuration() {
    if !is_root() {
        return;
    }
    let server = Server::start(true, ONE, &[("index.php", PAGE)]);
    server.reloads(TWO);
    let front = server.surus.front();
    surus_sys::process::kill(front).unwrap();
    server
        .surus
        .wait_for_log(|log| log.contains("starting another"));
    assert_eq!(server.word("a").0, "two");
    assert_eq!(server.get("a", "/moved").status, 302);
    server.reloads(ONE);
    assert_eq!(server.word("a").0, "one");
}
