//! Tests where the logs go: to files that SIGUSR1 reopens, and to systemd's journal.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Surus, php};

fn project(settings: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let index = "<?php error_log(\"one\\ntwo\"); echo 'hello';";
    std::fs::write(dir.path().join("index.php"), index).unwrap();
    std::fs::write(dir.path().join("surus.toml"), settings).unwrap();
    dir
}

/// A server whose address is in its log file. Dropping it ends it.
struct Server(Child, PathBuf);

impl Server {
    fn start(dir: &Path) -> Server {
        Server::logging(dir, "error.log")
    }

    fn logging(dir: &Path, log: &str) -> Server {
        let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
        let child = surus
            .arg("serve")
            .arg(dir)
            .args(["--listen", "127.0.0.1:0", "--workers", "1"])
            .env("PHP_INI_SCAN_DIR", php::few_extensions())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Server(child.unwrap(), dir.join(log))
    }

    fn url(&self) -> String {
        let text = wait_for(&self.1, "listening");
        let (_, after) = text.split_once("http://").unwrap();
        let end = after.find(|c: char| c.is_whitespace() || c == '"').unwrap();
        format!("http://{}", &after[..end])
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// What it has written to stdout and stderr.
    fn end(mut self) -> String {
        self.signal("TERM");
        let mut text = String::new();
        for stream in [
            &mut self.0.stdout.take().unwrap() as &mut dyn std::io::Read,
            &mut self.0.stderr.take().unwrap(),
        ] {
            stream.read_to_string(&mut text).unwrap();
        }
        assert!(self.0.wait().unwrap().success());
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.signal("TERM");
            let _ = self.0.wait();
        }
    }
}

/// The text of a file, once it has these words.
fn wait_for(path: &Path, words: &str) -> String {
    for _ in 0..12_000 {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let end = text.find(words).map(|at| text[at..].contains('\n'));
        if end == Some(true) {
            return text;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = std::fs::read_to_string(path);
    panic!("{words:?} is not in {}: {text:?}", path.display());
}

#[test]
fn logs_go_to_files_and_to_new_ones_after_usr1() {
    let dir = project(
        "log.file = 'error.log'\naccess_log.file = 'access.log'\n\
         access_log.format = '%m %U'\n",
    );
    let server = Server::start(dir.path());
    let url = server.url();
    let get = |path: &str| {
        let mut response = ureq::get(format!("{url}{path}")).call().unwrap();
        response.body_mut().read_to_string().unwrap()
    };
    assert_eq!(get("/first"), "hello");
    let (access, error) = (dir.path().join("access.log"), dir.path().join("error.log"));
    assert_eq!(wait_for(&access, "/first"), "GET /first\n");
    wait_for(&error, "two");
    let mode = std::os::unix::fs::PermissionsExt::mode(&error.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o640);

    for log in [&access, &error] {
        std::fs::rename(log, log.with_extension("1")).unwrap();
    }
    server.signal("USR1");
    wait_for(&error, "logs reopened");
    // The front end has its descriptors from the keeper, a moment later.
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until && std::fs::metadata(&access).map_or(0, |access| access.len()) == 0
    {
        get("/again/");
    }
    let text = wait_for(&access, "GET /again/");
    assert!(!text.contains("/first"), "{text}");
    wait_for(&error, "two");
    let said = server.end();
    assert!(said.contains("the log continues in a file"), "{said}");
    assert!(!said.contains("GET /") && !said.contains("two"), "{said}");
}

#[test]
fn log_file_that_cannot_be_opened_stops_the_start_with_the_setting() {
    let dir = project("log.file = 'none/error.log'\n");
    let log = Surus::spawn(dir.path(), &[], &[]).err().unwrap();
    let path = dir.path().join("none/error.log");
    let words = format!("cannot open the file {} (log.file)", path.display());
    assert!(log.contains(&words), "{log}");
}

#[test]
fn log_file_may_be_above_the_project_and_the_project_a_link() {
    let dir = project("");
    let app = dir.path().join("app");
    std::fs::create_dir(&app).unwrap();
    std::fs::rename(dir.path().join("index.php"), app.join("index.php")).unwrap();
    std::fs::write(app.join("surus.toml"), "log.file = '../error.log'\n").unwrap();
    std::os::unix::fs::symlink("app", dir.path().join("link")).unwrap();
    for project in ["app", "link"] {
        let surus = Surus::serve(&dir.path().join(project), &["--workers", "1"]);
        ureq::get(&surus.url).call().unwrap();
        wait_for(&dir.path().join("error.log"), "two");
        std::fs::remove_file(dir.path().join("error.log")).unwrap();
    }
}

#[test]
fn log_in_the_document_root_is_not_sent() {
    let dir = project("log.file = 'errors.txt'\naccess_log.file = 'visits.txt'\n");
    let server = Server::logging(dir.path(), "errors.txt");
    let url = server.url();
    let get = |path: &str| {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = ureq::Agent::new_with_config(config.build());
        let mut response = agent.get(format!("{url}{path}")).call().unwrap();
        let body = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), body)
    };
    std::fs::write(dir.path().join("visits.txt.1"), "a visit").unwrap();
    std::fs::write(dir.path().join("other.txt"), "a file").unwrap();
    assert_eq!(get("/other.txt"), (200, "a file".into()));
    wait_for(&dir.path().join("visits.txt"), "other.txt");
    for log in ["/errors.txt", "/visits.txt", "/visits.txt.1"] {
        assert_ne!(get(log).0, 200, "{log}");
    }
}

#[test]
fn failed_start_is_said_on_the_terminal_and_in_the_log_file() {
    let dir =
        project("log.file = 'error.log'\nengine.name = 'worker'\nengine.script = 'index.php'\n");
    std::fs::write(
        dir.path().join("index.php"),
        "<?php throw new Exception('no luck');",
    )
    .unwrap();
    let said = Surus::spawn(dir.path(), &["--workers", "1"], &[])
        .err()
        .unwrap();
    let line = said.lines().find(|line| line.starts_with("surus: "));
    assert!(line.is_some_and(|line| line.contains("no luck")), "{said}");
    let log = std::fs::read_to_string(dir.path().join("error.log")).unwrap();
    assert!(log.contains(line.unwrap()), "{log}");
}

#[test]
fn lines_for_the_journal_have_priorities_and_no_time() {
    // As systemd says that stderr leads to the journal.
    let journal = "export JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2); exec \"$@\"";
    for (stream, setting, is_journal) in [
        (journal, "", true),
        ("exec \"$@\"", "", false),
        ("exec \"$@\"", "log.format = 'journal'", true),
        (journal, "log.format = 'text'", false),
    ] {
        let dir = project(setting);
        let mut shell = Command::new("sh");
        shell.args(["-c", stream, "sh", env!("CARGO_BIN_EXE_surus")]);
        let surus = Surus::spawn_by(shell, dir.path(), &["--workers", "1"], &[]);
        let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
        ureq::get(&surus.url).call().unwrap();
        surus.wait_for_log(|log| log.contains("two"));
        let log = surus.log();
        let lines: Vec<_> = (log.lines())
            .filter(|line| line.contains("admin listener") || line.contains("two"))
            .collect();
        let has_priority = |line: &&str| line.starts_with('<') && line[2..].starts_with('>');
        let all = lines.iter().all(has_priority) && lines.len() >= 2;
        assert_eq!(all, is_journal, "{setting:?}: {log}");
        if is_journal {
            assert!(log.contains("<6>admin listener address="), "{log}");
        }
    }
}
