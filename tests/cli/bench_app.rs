//! Tests `surus bench app`: which engines it compares, what it says of them, and that no process
//! stays.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use surus_measure::probe;

use crate::common::Surus;
use crate::{Said, project, says};

/// Counts requests in a static variable, so that a process that serves several leaks.
const LEAKS: &str = "<?php
    surus_serve(function () {
        static $served = 0;
        $served++;
        header('Content-Type: text/plain');
        echo 'served by this process: ', $served, ', token ', bin2hex(random_bytes(8)), \"\\n\";
    });";

/// Runs it with one PHP process per engine.
pub(super) fn app(project: &Path, args: &[&str], env: &[(&str, &str)]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.args(["bench", "app"]).arg(project);
    command.args(["--quick", "--workers", "1"]).args(args);
    crate::run(command.envs(env.iter().copied()))
}

/// What it says in JSON if it succeeds.
#[track_caller]
fn report(project: &Path, args: &[&str], env: &[(&str, &str)]) -> Value {
    let said = app(project, &[args, &["--json"]].concat(), env);
    assert_eq!(said.status, 0, "{}", said.stderr);
    serde_json::from_str(&said.stdout).unwrap()
}

#[test]
fn leaking_application_differs_on_worker_and_not_on_rewind() {
    let project = project(&[
        (
            "public/index.php",
            "<?php header('Content-Type: text/plain');
            echo 'served by this process: 1, token ', bin2hex(random_bytes(8)), \"\\n\";",
        ),
        ("worker.php", LEAKS),
        ("surus.toml", "[engine]\nscript = 'worker.php'\n"),
    ]);
    let json = report(project.path(), &["--engines", "worker,rewind,cgi"], &[]);
    let answers = |engine: &str| &json["engines"][engine]["answers"]["verdict"];
    assert_eq!(answers("classic"), "reference", "{json:#}");
    assert_eq!(answers("worker"), "differ", "{json:#}");
    assert_eq!(answers("rewind"), "same", "{json:#}");
    assert_eq!(answers("cgi"), "same", "{json:#}");
    let difference = json["differences"]["worker"]["text"].as_str().unwrap();
    says(difference, &["GET /: ", "instead of", "process: 1"]);
    // A warm-up is a request, too.
    let notes = json["notes"].to_string();
    says(
        &notes,
        &["`rewind` ran without a warm-up: its answers differ after one"],
    );

    let advice = &json["advice"];
    let lines = (&advice["lines"][1], &advice["lines"][2]);
    let expected = ["name = \"classic\"", "name = \"rewind\""];
    assert!(expected.iter().any(|line| lines.0 == line), "{json:#}");
    if lines.0 == expected[0] {
        assert_eq!(lines.1, "script = \"public/index.php\"");
    }
    says(
        &advice["reasons"].to_string(),
        &["`worker` is out", "surus leaks"],
    );
    for engine in ["classic", "worker", "rewind", "cgi"] {
        let row = &json["engines"][engine];
        for column in ["requests/s", "p99", "memory per process", "cold start"] {
            assert_eq!(row[column]["kind"], "measured", "{engine}: {column}");
        }
    }
    assert_eq!(json["engines"]["worker"]["isolated"]["verdict"], "no");
}

#[test]
fn worker_script_of_the_project_is_booted_without_configuration() {
    let project = project(&[
        ("public/index.php", "<?php echo 'the same';"),
        (
            "worker.php",
            "<?php surus_serve(fn () => print 'the same');",
        ),
    ]);
    let json = report(project.path(), &["--engines", "rewind"], &[]);
    let answers = |engine: &str| &json["engines"][engine]["answers"]["verdict"];
    assert_eq!(answers("classic"), "reference", "{json:#}");
    assert_eq!(answers("rewind"), "same", "{json:#}");
    if json["advice"]["lines"][1] == "name = \"rewind\"" {
        assert_eq!(json["advice"]["lines"][2], "script = \"worker.php\"");
    }
}

#[test]
fn application_that_only_boots_is_compared_with_rewind() {
    let project = project(&[("index.php", LEAKS)]);
    let json = report(project.path(), &["--engines", "worker"], &[]);
    let reason = json["not_run"]["classic"]["text"].as_str().unwrap();
    says(
        reason,
        &[
            "GET / returned 500",
            "surus_serve() needs an engine that boots",
        ],
    );
    let answers = |engine: &str| &json["engines"][engine]["answers"]["verdict"];
    assert_eq!(answers("rewind"), "reference", "{json:#}");
    assert_eq!(answers("worker"), "differ", "{json:#}");
    assert_eq!(json["advice"]["lines"][1], "name = \"rewind\"");
}

#[test]
fn engine_that_boots_is_warmed_up_and_lines_say_so() {
    let project = project(&[("index.php", "<?php surus_serve(fn () => print 'the same');")]);
    let args = ["--engines", "rewind", "--path", "/", "/?a=b"];
    let json = report(project.path(), &args, &[]);
    assert_eq!(
        json["engines"]["rewind"]["answers"]["verdict"], "reference",
        "{json:#}"
    );
    let expected = serde_json::json!([
        "[engine]",
        "name = \"rewind\"",
        "warmup = [\"/\", \"/?a=b\"]",
    ]);
    assert_eq!(json["advice"]["lines"], expected, "{json:#}");
    says(json["advice"]["file"].as_str().unwrap(), &["/surus.toml"]);
}

#[test]
fn plain_application_runs_on_classic_and_booting_engines_say_why_not() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    // The user's own server goes on.
    let own = Surus::serve(project.path(), &["--workers", "1"]);
    let page = project.path().join("report.html");
    let args = [
        "--engines",
        "worker,rewind,cgi",
        "--html",
        page.to_str().unwrap(),
    ];
    let said = app(
        project.path(),
        &args,
        &[("SURUS_ENGINE_PHP_CGI", "/nowhere/php-cgi")],
    );
    assert_eq!(said.status, 0, "{}", said.stderr);
    says(
        &said.stdout,
        &[
            "Do not run the application",
            "has ended without serving",
            "/nowhere/php-cgi",
            "Recommended: classic",
            "surus_serve() makes that possible",
            "[engine]\n  name = \"classic\"\n",
        ],
    );
    says(&said.stderr, &["classic  GET /: 200, 5 B", "round 2/2"]);
    let page = std::fs::read_to_string(page).unwrap();
    says(&page, &["Recommended: classic", "<svg"]);
    assert_eq!(ureq::get(&own.url).call().unwrap().status(), 200);
}

#[test]
fn php_fpm_that_already_runs_has_no_cpu_time_and_no_memory() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let socket = project.path().join("fpm.sock");
    let configuration = format!(
        "[global]\ndaemonize = no\nerror_log = /dev/null\n[www]\nlisten = {}\npm = static\n\
         pm.max_children = 1\nuser = www-data\n",
        socket.display()
    );
    let file = project.path().join("fpm.conf");
    std::fs::write(&file, configuration).unwrap();
    let minor = surus_php::EXECUTABLE.rsplit("surus-php").next().unwrap();
    let mut fpm = Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "--"])
        .arg(format!("php-fpm{minor}"))
        .arg("--fpm-config")
        .arg(file)
        .spawn()
        .unwrap();
    while !socket.exists() {
        assert!(fpm.try_wait().unwrap().is_none(), "php-fpm ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let address = format!("unix:{}", socket.display());
    let env = [("SURUS_ENGINE_PHP_FPM_ADDRESS", &*address)];
    let json = report(project.path(), &["--engines", "fpm"], &env);
    let row = &json["engines"]["fpm"];
    assert_eq!(row["answers"]["verdict"], "same", "{json:#}");
    for column in ["CPU per request", "memory per process"] {
        assert_eq!(row[column]["missing"], "not counted", "{json:#}");
    }
    let notes = json["notes"].to_string();
    says(&notes, &["`fpm`", "engine.php_fpm_address"]);
    assert!(
        Command::new("kill")
            .arg(fpm.id().to_string())
            .status()
            .unwrap()
            .success()
    );
    fpm.wait().unwrap();
}

#[test]
fn path_without_a_page_is_an_error_before_any_measuring() {
    let index = "<?php if ($_SERVER['REQUEST_URI'] !== '/') http_response_code(404); echo 'x';";
    let project = project(&[("index.php", index)]);
    let said = app(project.path(), &["--path", "/", "/login"], &[]);
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[
            "`classic`, with whose answers all others are compared: GET /login returned 404",
            "--path",
            "-H 'Host: …'",
        ],
    );
    assert!(!said.stderr.contains("round 1"), "{}", said.stderr);
    assert_eq!(said.stdout, "");
}

#[test]
fn rate_limit_that_the_load_reaches_leaves_a_report_without_answers_after_load() {
    let counted = tempfile::tempdir().unwrap();
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(counted.path(), mode).unwrap();
    // The answers before load are twelve, and each round has at least five requests.
    let index = format!(
        "<?php $file = '{}/count';
        file_put_contents($file, 'x', FILE_APPEND | LOCK_EX);
        clearstatcache();
        if (filesize($file) > 16) {{
            http_response_code(429);
        }}
        echo 'hello';",
        counted.path().display()
    );
    let project = project(&[("index.php", &index)]);
    let said = app(project.path(), &["--engines", "classic", "--json"], &[]);
    assert_eq!(said.status, 1, "{}", said.stderr);
    let why = "answers after load were not compared: `classic` returned 429 to GET / when asked \
               again; raise the application's limit of requests per client";
    says(&said.stderr, &["round 2/2", why]);
    let json: Value = serde_json::from_str(&said.stdout).unwrap();
    says(&json["failure"].to_string(), &[why]);
    let row = &json["engines"]["classic"];
    for column in ["requests/s", "CPU per request"] {
        assert_eq!(row[column]["missing"], "requests failed", "{json:#}");
    }
    says(&json["failures"]["classic"].to_string(), &["429"]);
    assert_eq!(row["answers"]["verdict"], "fail under load", "{json:#}");
}

#[test]
fn application_that_cannot_run_is_an_error_with_php_s_words() {
    let project = project(&[("index.php", "<?php no_such_function();")]);
    let said = app(project.path(), &[], &[]);
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[
            "`classic`, with whose answers all others are compared: GET / returned 500 (",
            "undefined function no_such_function()",
        ],
    );
}

#[test]
fn missing_surus_php_is_an_error_with_its_setting() {
    let project = project(&[("index.php", "<?php echo 'x';")]);
    let said = app(
        project.path(),
        &[],
        &[("SURUS_ENGINE_SURUS_PHP", "/nowhere/surus-php")],
    );
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[
            "`classic`, with whose answers all others",
            "engine.surus_php",
        ],
    );
}

#[test]
fn wrong_options_are_refused() {
    let project = project(&[("index.php", "<?php echo 'x';")]);
    for (args, words) in [
        (["--path", "login"], "expected a path such as /"),
        (["--engines", "classic,turbo"], "unknown engine `turbo`"),
        (["--header", "Host"], "expected NAME: VALUE"),
    ] {
        let said = app(project.path(), &args, &[]);
        assert_eq!(said.status, 1, "{args:?}");
        says(&said.stderr, &[words]);
    }
    let said = app(project.path(), &["--csv"], &[]);
    says(&said.stderr, &["unexpected argument '--csv'"]);
    let said = app(&project.path().join("nowhere"), &[], &[]);
    says(&said.stderr, &["is not a directory"]);
}

#[test]
fn interrupt_ends_every_server() {
    for (signal, status) in [("INT", Some(1)), ("TERM", Some(1)), ("KILL", None)] {
        let project = project(&[("index.php", LEAKS)]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
        command.args(["bench", "app"]).arg(project.path());
        command.args([
            "--engines",
            "worker,rewind",
            "--rounds",
            "1000",
            "--workers",
            "2",
        ]);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = started(&mut child);
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), status, "{signal}");
        // Without its parent, a server needs a moment to notice and to end.
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Some(left) = left(&started, project.path()) {
            assert!(Instant::now() < deadline, "{signal}: {left} stays");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn interrupt_after_a_round_reports_the_finished_rounds() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.args(["bench", "app"]).arg(project.path());
    command.args(["--engines", "cgi", "--workers", "1", "--json"]);
    command.args(["--rounds", "1000", "-d", "100ms"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines.by_ref().map(Result::unwrap);
    // The first engine of two in the second round.
    lines.find(|line| line.starts_with("round 2/1000")).unwrap();
    send(&child, "INT");
    let said: Vec<_> = lines.collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{said:?}");
    says(&said.join("\n"), &["interrupted in round ", "of 1000"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rounds = |engine: &str, column: &str| {
        let number = &json["engines"][engine][column];
        assert!(number["value"].as_f64().unwrap() > 0.0, "{json:#}");
        number["samples"].as_array().unwrap().len()
    };
    let finished = rounds("classic", "requests/s");
    let load = json["load"].as_str().unwrap();
    says(load, &[&format!("; {finished} rounds of ")]);
    for column in ["requests/s", "p99", "memory per process", "cold start"] {
        for engine in ["classic", "cgi"] {
            assert_eq!(rounds(engine, column), finished, "{engine}, {column}");
        }
    }
    says(&json["notes"].to_string(), &["interrupted in round "]);
}

#[test]
fn admin_listener_is_a_private_socket_that_goes_with_its_server() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let temporary = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.args(["bench", "app"]).arg(project.path());
    command.args(["--engines", "classic", "--rounds", "1000"]);
    command.args(["--workers", "2"]);
    let mut child = command
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ports = HashSet::new();
    for (pid, _) in started(&mut child) {
        ports.extend(listening_sockets(pid));
    }
    assert!(ports.len() <= 1, "more than the application: {ports:?}");
    send(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let left = std::fs::read_dir(temporary.path()).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(sent.unwrap().success());
}

/// Inodes of the listening TCP sockets that a process has open.
fn listening_sockets(pid: i32) -> Vec<String> {
    const LISTEN: &str = "0A";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    let listening: HashSet<_> = rows
        .filter(|row| row[3] == LISTEN)
        .map(|row| format!("socket:[{}]", row[9]))
        .collect();
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let files = entries.into_iter().flatten().flatten();
    let files = files.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let files = files.map(|file| file.to_string_lossy().into_owned());
    files.filter(|file| listening.contains(file)).collect()
}

/// A process: its number, and when it began, because numbers are used again.
type Process = (i32, String);

/// The processes of a server with its PHP.
fn started(child: &mut Child) -> HashSet<Process> {
    let root = child.id().cast_signed();
    let began = Instant::now();
    loop {
        let tree = probe::tree(&[root]);
        // Itself, a server and two of PHP.
        if tree.len() >= 4 {
            return tree.into_iter().filter_map(process).collect();
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "it starts no PHP"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn process(pid: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    // proc(5) counts the state, which is the first here, as field 3.
    Some((pid, fields.split(' ').nth(19)?.to_string()))
}

/// A process that was started, or another one of the project.
fn left(started: &HashSet<Process>, project: &Path) -> Option<String> {
    let project = project.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find_map(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        // A process that has exited, and for which no process has waited yet, has no words.
        let is_known = || process(pid).is_some_and(|it| started.contains(&it));
        let stays = !words.is_empty() && (words.contains(project) || is_known());
        stays.then(|| format!("{pid}: {words}"))
    })
}
