//! Tests that `surus status` and `surus reload` reach the surus of this project and no other.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::Surus;
use crate::common::executable::copy_executable;
use crate::{is_root, project, run, says, surus};

#[test]
fn status_without_a_running_surus_says_so() {
    let project = project(&[]);
    for command in ["status", "reload"] {
        let said = surus(&[command, project.path().to_str().unwrap()], &[]);
        assert_eq!(said.status, 1);
        says(
            &said.stderr,
            &[
                "no running surus answers at unix:",
                "this directory",
                "--config",
            ],
        );
    }
}

#[test]
fn running_surus_answers_status_and_reload() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let directory = project.path().to_str().unwrap();
    let _serving = Surus::serve(project.path(), &["--workers", "2"]);
    let said = surus(&["status", directory], &[]);
    says(&said.stdout, &["classic: PHP 8.", "generation 1", "idle"]);
    let said = surus(&["status", "--json", directory], &[]);
    let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(json["engines"][0]["engine"], "classic");
    assert_eq!(json["certificates"], serde_json::json!([]));
    let said = surus(&["reload", directory], &[]);
    assert_eq!(
        (said.status, said.stdout.as_str()),
        (0, "reloaded\n"),
        "{}",
        said.stderr
    );
    says(
        &surus(&["status", directory], &[]).stdout,
        &["generation 2"],
    );
    let said = surus(&["check", directory, "--listen", "127.0.0.1:0"], &[]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    says(
        &said.stdout,
        &["! surus is already running for this project"],
    );
}

#[test]
fn status_ready_fails_once_the_shutdown_has_begun() {
    let toml = "http.shutdown_delay = '10m'\n";
    let project = project(&[("index.php", "<?php echo 'hello';"), ("surus.toml", toml)]);
    let directory = project.path().to_str().unwrap();
    let said = surus(&["status", "--ready", directory], &[]);
    assert_eq!((said.status, said.stdout.as_str()), (1, ""));
    says(&said.stderr, &["no running surus answers at unix:"]);

    let serving = Surus::serve(project.path(), &["--workers", "1"]);
    let said = surus(&["status", "--ready", directory], &[]);
    assert_eq!(
        (said.status, said.stdout.as_str()),
        (0, "ready\n"),
        "{}",
        said.stderr
    );
    serving.signal("TERM");
    let began = Instant::now();
    let said = loop {
        let said = surus(&["status", "--ready", directory], &[]);
        if said.status != 0 || began.elapsed() > Duration::from_secs(60) {
            break said;
        }
    };
    assert_eq!((said.status, said.stdout.as_str()), (1, ""));
    says(&said.stderr, &["not ready: draining"]);
}

#[test]
fn reload_during_the_shutdown_says_what_to_do() {
    let toml = "http.shutdown_delay = '10m'\n";
    let project = project(&[("index.php", "<?php echo 'hello';"), ("surus.toml", toml)]);
    let serving = Surus::serve(project.path(), &["--workers", "1"]);
    serving.signal("TERM");
    let began = Instant::now();
    let said = loop {
        let said = surus(&["reload", project.path().to_str().unwrap()], &[]);
        if said.status != 0 || began.elapsed() > Duration::from_secs(60) {
            break said;
        }
    };
    assert_eq!((said.status, said.stdout.as_str()), (1, ""));
    says(&said.stderr, &["Surus is shutting down", "start it again"]);
}

#[test]
fn reload_rejects_what_needs_a_restart_and_keeps_the_old_configuration() {
    let toml = "engine.workers = 1\n[env]\nSECRET = 'one'\n";
    let project = project(&[("index.php", "<?php echo 'hello';"), ("surus.toml", toml)]);
    let directory = project.path().to_str().unwrap();
    let serving = Surus::serve(project.path(), &[]);
    let write = |text: &str| std::fs::write(project.path().join("surus.toml"), text).unwrap();

    write(&format!(
        "http.max_connections = 5\n{}",
        toml.replace("one", "two")
    ));
    let said = surus(&["reload", directory], &[]);
    assert_eq!((said.status, said.stdout.as_str()), (1, ""));
    let changed = [
        "nothing was reloaded",
        "/surus.toml has changed what only a restart of Surus applies (http.max_connections)",
    ];
    says(&said.stderr, &changed);
    assert!(!said.stderr.contains("two"), "{}", said.stderr);
    serving.signal("HUP");
    serving.wait_for_log(|log| {
        log.contains("the reload failed") && log.contains("only a restart of Surus applies")
    });

    write("engine.workers = 1\nengine.wrong = 1\n");
    let said = surus(&["reload", directory], &[]);
    assert_eq!(said.status, 1);
    says(&said.stderr, &["surus.toml:2: unknown field `wrong`"]);
    serving.signal("HUP");
    serving.wait_for_log(|log| log.contains("unknown field `wrong`"));
    write(toml);
    says(
        &surus(&["status", directory], &[]).stdout,
        &["generation 1"],
    );

    write(&format!("# The same.\n{toml}"));
    let said = surus(&["reload", directory], &[]);
    assert_eq!((said.status, said.stdout.as_str()), (0, "reloaded\n"));
}

#[test]
fn another_project_is_never_reloaded() {
    let both = project(&[
        ("a/b/index.php", "<?php echo 'one';"),
        ("a-b/index.php", "<?php echo 'other';"),
    ]);
    let (one, other) = (both.path().join("a/b"), both.path().join("a-b"));
    let _serving = Surus::serve(&one, &["--workers", "1"]);
    let said = surus(&["reload", other.to_str().unwrap()], &[]);
    assert_eq!(said.status, 1);
    says(&said.stderr, &["no running surus answers"]);
    let _other = Surus::serve(&other, &["--workers", "1"]);
    let said = surus(&["reload", other.to_str().unwrap()], &[]);
    assert_eq!(said.status, 0, "{}", said.stderr);

    let socket = format!("unix:{}", both.path().join("admin.sock").display());
    let env = [("SURUS_ADMIN_LISTEN", socket.as_str())];
    let third = project(&[("index.php", "")]);
    let _third = Surus::spawn(third.path(), &["--workers", "1"], &env).unwrap();
    for command in ["reload", "status"] {
        let said = surus(&[command, one.to_str().unwrap()], &env);
        assert_eq!(said.status, 1);
        let serves = format!("serves {}, not {}", third.path().display(), one.display());
        says(&said.stderr, &[&socket, &serves, "admin.listen"]);
        let link = both.path().join(command);
        std::os::unix::fs::symlink(third.path(), &link).unwrap();
        let said = surus(&[command, link.to_str().unwrap()], &env);
        assert_eq!(said.status, 0, "{}", said.stderr);
    }
}

#[test]
fn admin_socket_that_another_user_could_replace_is_rejected() {
    if !is_root() {
        return; // Without root no other user's directory can be made
    }
    let directory = project(&[("app/index.php", ""), ("tmp/surus-65534/x", "")]);
    let program = directory.path().join("surus");
    copy_executable(env!("CARGO_BIN_EXE_surus").as_ref(), &program);
    let mut command = Command::new(&program);
    command
        .arg("serve")
        .arg(directory.path().join("app"))
        .args(["--listen", "127.0.0.1:0"])
        .env("TMPDIR", directory.path().join("tmp"))
        .current_dir("/")
        .env_remove("XDG_RUNTIME_DIR")
        .uid(65534)
        .gid(65534);
    let said = run(&mut command);
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[
            "tmp/surus-65534 ",
            "belongs to another user (0)",
            "admin.listen",
        ],
    );
}

/// A deployment may change a symbolic link, so a reload opens the directories of routes again, like
/// the site.
#[test]
fn reload_reopens_the_directories_of_routes() {
    let configuration = "[[route]]\nprefix = \"/s/\"\nroot = \"@/current\"\n";
    let place = project(&[
        ("one/index.php", ""),
        ("one/s/v.txt", "one"),
        ("two/index.php", ""),
        ("two/s/v.txt", "two"),
    ]);
    let link = place.path().join("current");
    std::os::unix::fs::symlink("one", &link).unwrap();
    let file = place.path().join("surus.toml");
    let configuration = configuration.replace('@', place.path().to_str().unwrap());
    std::fs::write(&file, configuration).unwrap();
    let socket = format!("unix:{}", place.path().join("admin.sock").display());
    let env = [
        ("SURUS_ADMIN_LISTEN", socket.as_str()),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    let args = ["--config", file.to_str().unwrap()];
    let served = Surus::spawn(&link, &args, &env).unwrap();
    let get = || {
        ureq::get(&format!("{}/s/v.txt", served.url))
            .call()
            .unwrap()
            .into_body()
            .read_to_string()
            .unwrap()
    };
    assert_eq!(get(), "one");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("two", &link).unwrap();
    let said = surus(&["reload", link.to_str().unwrap()], &env[..1]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    assert_eq!(get(), "two");
}

/// The address of the admin listener.
fn admin_address(serving: &Surus) -> String {
    let find = |log: &str| {
        let (_, rest) = log.split_once("admin listener address=\"http://")?;
        Some(rest.split_once('"')?.0.to_string())
    };
    serving.wait_for_log(|log| find(log).is_some());
    find(&serving.log()).unwrap()
}

/// Its connections need descriptors that the site's clients need, too.
#[test]
fn admin_connections_beyond_the_limit_wait() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let env = [("SURUS_ADMIN_LISTEN", "127.0.0.1:0")];
    let serving = Surus::spawn(project.path(), &["--workers", "1"], &env).unwrap();
    let address = admin_address(&serving);
    let connect = || std::net::TcpStream::connect(&address).unwrap();
    let mut idle: Vec<_> = (0..64).map(|_| connect()).collect();
    let mut waiting = connect();
    let request = b"GET /-/ready HTTP/1.1\r\nHost: localhost\r\n\r\n";
    std::io::Write::write_all(&mut waiting, request).unwrap();
    waiting
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut byte = [0];
    let early = std::io::Read::read(&mut waiting, &mut byte);
    assert_eq!(early.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    idle.pop();
    waiting
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    assert_eq!(std::io::Read::read(&mut waiting, &mut byte).unwrap(), 1);
}

#[test]
fn admin_listener_may_be_tcp() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let directory = project.path().to_str().unwrap();
    let env = [("SURUS_ADMIN_LISTEN", "127.0.0.1:0")];
    let serving = Surus::spawn(project.path(), &["--workers", "1"], &env).unwrap();
    let address = admin_address(&serving);
    let env = [("SURUS_ADMIN_LISTEN", address.as_str())];
    says(
        &surus(&["status", directory], &env).stdout,
        &["classic: PHP 8.", "generation 1"],
    );
    let said = surus(&["reload", directory], &env);
    assert_eq!(
        (said.status, said.stdout.as_str()),
        (0, "reloaded\n"),
        "{}",
        said.stderr
    );
    let status = |request: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let request = format!("{request}\r\nConnection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let response = std::io::read_to_string(stream).unwrap();
        response.split(' ').nth(1).unwrap().to_string()
    };
    for (request, expected) in [
        ("GET /-/status HTTP/1.1\r\nHost: localhost:9180", "200"),
        ("GET /-/status HTTP/1.1\r\nHost: [::1]", "200"),
        ("GET /-/status HTTP/1.0", "200"),
        ("POST /-/reload HTTP/1.1\r\nHost: 127.0.0.1", "200"),
        // A page that a browser shows, whose name leads to this machine.
        ("GET /-/status HTTP/1.1\r\nHost: evil.example", "403"),
        (
            "GET /-/dashboard HTTP/1.1\r\nHost: 127.0.0.1.evil.example",
            "403",
        ),
        (
            "POST /-/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example",
            "403",
        ),
    ] {
        assert_eq!(status(request), expected, "{request}");
    }
}
