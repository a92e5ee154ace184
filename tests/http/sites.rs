//! Tests several sites by host name (`[[site]]`) in one server.

mod access_logs;
mod certificates;
mod limits;

use std::path::Path;
use std::process::Command;

use crate::common::Surus;
use crate::common::executable::copy_executable;
use crate::wire::{Answer, Wire};

/// A directory with these files, which every user may read.
fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open.clone()).unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        let parent = path.parent().unwrap();
        if !parent.exists() {
            std::fs::create_dir(parent).unwrap();
            std::fs::set_permissions(parent, open.clone()).unwrap();
        }
        std::fs::write(path, text).unwrap();
    }
    dir
}

const ECHO: &str = "<?php echo basename(__DIR__), ' ', getenv('SURUS_ENGINE'), ' ', \
                    $_SERVER['HTTP_HOST'] ?? '-';";

fn start(dir: &Path) -> Surus {
    Surus::spawn(dir, &["--workers", "1"], &[])
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

fn get(surus: &Surus, host: &str, target: &str) -> Answer {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    Wire::connect(surus).ask(&request).unwrap()
}

fn body(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Runs a command of Surus for the project. Returns its output, and whether it succeeded.
fn surus(command: &str, dir: &Path) -> (bool, String) {
    let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
    // `check` tries to listen, and other tests run it, too.
    surus.env("SURUS_HTTP_LISTEN", "127.0.0.1:0");
    let output = surus.arg(command).arg(dir).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Has the server of the project listen for operators at a socket in its directory.
fn with_admin(dir: &tempfile::TempDir, toml: &str) {
    let socket = dir.path().join("admin.sock");
    let toml = format!("admin.listen = 'unix:{}'\n{toml}", socket.display());
    std::fs::write(dir.path().join("surus.toml"), toml).unwrap();
}

/// The answer at that socket; empty if nothing listens there.
fn admin(dir: &Path, path: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-s", "--unix-socket"])
        .arg(dir.join("admin.sock"));
    let output = curl.arg(format!("http://surus/-/{path}")).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn host_selects_the_site_with_its_engine_files_and_limits() {
    let dir = project(&[
        ("shop/index.php", ECHO),
        ("shop/shop.txt", "of the shop"),
        (
            "blog/index.php",
            "<?php surus_serve(function () { echo 'blog ', getenv('SURUS_ENGINE'); });",
        ),
        ("blog/blog.txt", "of the blog"),
        ("other/index.php", ECHO),
        (
            "surus.toml",
            r#"
[[route]]
prefix = "/closed"
deny = true

[[site]]
host = ["shop.example", "*.shop.example"]
name = "shop"
project = "shop"
engine.name = "classic"
http.max_body_size = 10

[[site.route]]
prefix = "/old"
redirect = "/new"

[[site.route]]
prefix = "/cgi"
engine = "cgi"

[[site]]
host = "blog.shop.example"
name = "blog"
project = "blog"

[[site]]
default = true
root = "other"
engine.name = "cgi"
"#,
        ),
    ]);
    let surus = start(dir.path());
    for (host, expected) in [
        ("shop.example", "shop classic shop.example"),
        ("SHOP.example.:80", "shop classic SHOP.example.:80"),
        ("a.b.shop.example", "shop classic a.b.shop.example"),
        ("blog.shop.example", "blog rewind"),
        ("else.example", "other cgi else.example"),
    ] {
        let answer = get(&surus, host, "/");
        assert_eq!(
            (answer.status, body(&answer)),
            (200, expected.into()),
            "{host}"
        );
    }
    // The host of the target counts, and a request may have none.
    let mut wire = Wire::connect(&surus);
    let absolute = "GET http://blog.shop.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    assert_eq!(body(&wire.ask(absolute).unwrap()), "blog rewind");
    let without = Wire::connect(&surus).ask("GET / HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(body(&without), "other cgi -");
    // One connection may be for several sites.
    let next = "GET /shop.txt HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    assert_eq!(body(&wire.ask(next).unwrap()), "of the shop");

    assert_eq!(
        body(&get(&surus, "blog.shop.example", "/blog.txt")),
        "of the blog"
    );
    assert_ne!(
        body(&get(&surus, "blog.shop.example", "/shop.txt")),
        "of the shop"
    );
    assert_eq!(get(&surus, "shop.example", "/old").status, 302);
    assert_eq!(get(&surus, "blog.shop.example", "/old").status, 200);
    assert!(body(&get(&surus, "shop.example", "/cgi")).starts_with("shop cgi"));
    for host in ["shop.example", "blog.shop.example"] {
        assert_eq!(get(&surus, host, "/closed").status, 403);
        let post =
            format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 11\r\n\r\n01234567890");
        let status = if host == "shop.example" { 413 } else { 200 };
        assert_eq!(Wire::connect(&surus).ask(&post).unwrap().status, status);
    }
    surus.wait_for_log(|log| {
        log.contains("ms shop/classic\n")
            && log.contains("ms shop/static\n")
            && log.contains("ms blog/rewind\n")
    });
}

#[test]
fn forwarded_host_of_a_trusted_proxy_selects_the_site() {
    let dir = project(&[
        ("a/index.php", "<?php echo 'a';"),
        ("b/index.php", "<?php echo 'b';"),
        (
            "surus.toml",
            "[http]\ntrusted_proxies = '127.0.0.0/8'\n[[site]]\nhost = 'a'\nroot = 'a'\n\
             [[site]]\nhost = 'b'\nroot = 'b'\n",
        ),
    ]);
    let surus = start(dir.path());
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Host: b\r\n\r\n";
    assert_eq!(body(&Wire::connect(&surus).ask(request).unwrap()), "b");
}

#[test]
fn site_that_cannot_be_booted_leaves_the_others_alone() {
    let dir = project(&[
        ("good/index.php", "<?php echo 'good';"),
        (
            "bad/index.php",
            "<?php throw new Exception('at the boot'); surus_serve(1);",
        ),
        (
            "surus.toml",
            "[[site]]\nhost = 'good.example'\nproject = 'good'\n\
             [[site]]\nhost = 'bad.example'\nname = 'bad'\nproject = 'bad'\n\
             [[site]]\nhost = 'gone.example'\nname = 'gone'\nproject = 'gone'\n",
        ),
    ]);
    let server = start(dir.path());
    assert_eq!(body(&get(&server, "good.example", "/")), "good");
    for host in ["bad.example", "gone.example"] {
        let answer = get(&server, host, "/");
        assert_eq!(answer.status, 503, "{host}: {answer:?}");
        assert!(body(&answer).contains("this site cannot be served"));
    }
    let unknown = get(&server, "unknown.example", "/");
    assert_eq!(unknown.status, 421, "{unknown:?}");
    assert!(body(&unknown).contains("no site of this server has this host"));
    server.wait_for_log(|log| {
        let names = |site: &str| log.contains(&format!("site=\"{site}\""));
        log.contains("the site cannot be booted") && names("bad") && names("gone")
    });

    let (_, status) = surus("status", dir.path());
    assert!(
        status.contains("site good.example is served for good.example"),
        "{status}"
    );
    assert!(
        status.contains("site bad is NOT served for bad.example (status 503)"),
        "{status}"
    );
    let mut top = Command::new(env!("CARGO_BIN_EXE_surus"));
    top.args(["top", "--once"]).arg(dir.path());
    let top = top.output().unwrap();
    let top = String::from_utf8_lossy(&top.stdout);
    for name in ["bad", "gone"] {
        assert!(top.contains(&format!("site {name} is NOT served")), "{top}");
    }
    assert!(!top.contains("site good"), "{top}");
    let (is_fine, checked) = surus("check", dir.path());
    assert!(!is_fine && checked.contains("✗ site bad: "), "{checked}");
    assert!(checked.contains("✗ site gone: "), "{checked}");
    assert!(!checked.contains("✗ site good"), "{checked}");

    // A reload tries again.
    let mended = "<?php surus_serve(function () { echo 'mended'; });";
    std::fs::write(dir.path().join("bad/index.php"), mended).unwrap();
    let (is_fine, reloaded) = surus("reload", dir.path());
    assert!(!is_fine && reloaded.contains("1 of 3 sites") && reloaded.contains("gone: "));
    assert_eq!(body(&get(&server, "bad.example", "/")), "mended");
    let (_, status) = surus("status", dir.path());
    assert!(status.contains("site bad is served"), "{status}");
    assert_eq!(get(&server, "gone.example", "/").status, 503);
}

/// The code of a boot that takes until a file exists.
const WAITS: &str = "<?php while (!file_exists(__DIR__.'/go')) { clearstatcache(); usleep(10000); }
surus_serve(function () { echo 'slow'; });";

/// Repeats a request until its answer has this status, which it has sooner or later.
fn get_until(surus: &Surus, host: &str, status: u16) -> Answer {
    let began = std::time::Instant::now();
    loop {
        let answer = get(surus, host, "/");
        if answer.status == status || began.elapsed().as_secs() > 200 {
            return answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn slow_boot_of_a_site_delays_only_its_own_requests() {
    let dir = project(&[
        ("good/index.php", "<?php echo 'good';"),
        ("slow/index.php", WAITS),
    ]);
    with_admin(
        &dir,
        "[[site]]\nhost = 'slow.example'\nname = 'slow'\nproject = 'slow'\n\
         engine.name = 'rewind'\nengine.boot_timeout = '10m'\nhttp.request_timeout = '10m'\n\
         [[site]]\nhost = 'good.example'\nproject = 'good'\n",
    );
    let server = start(dir.path());
    assert_eq!(body(&get(&server, "good.example", "/")), "good");
    let (_, status) = surus("status", dir.path());
    assert!(
        status.contains("site slow is NOT served") && status.contains("it is booting"),
        "{status}"
    );
    let metrics = admin(dir.path(), "metrics");
    assert!(
        metrics.contains("surus_site_up{site=\"slow\"} 0"),
        "{metrics}"
    );
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| get(&server, "slow.example", "/"));
        assert_eq!(body(&get(&server, "good.example", "/")), "good");
        std::fs::write(dir.path().join("slow/go"), "").unwrap();
        let answer = waits.join().unwrap();
        assert_eq!((answer.status, body(&answer)), (200, "slow".into()));
    });
    let (_, status) = surus("status", dir.path());
    assert!(status.contains("site slow is served"), "{status}");
}

#[test]
fn server_whose_sites_all_fail_does_not_start() {
    let dir = project(&[
        ("a/index.php", "<?php exit(1); surus_serve(1);"),
        (
            "surus.toml",
            "engine.name = 'rewind'\n[[site]]\nhost = 'a'\nproject = 'a'\n\
             [[site]]\nhost = 'b'\nproject = 'b'\n",
        ),
    ]);
    let log = Surus::spawn(dir.path(), &[], &[]).err().unwrap();
    assert_eq!(log.matches("the site cannot be booted").count(), 2, "{log}");
}

#[test]
fn requests_wait_for_the_only_boot_and_the_admin_listener_does_not() {
    let dir = project(&[("index.php", WAITS)]);
    with_admin(&dir, "");
    let socket = dir.path().join("http.sock");
    let listen = format!("unix:{}", socket.display());
    let args = ["--engine", "rewind", "--workers", "1", "--listen", &listen];
    std::thread::scope(|scope| {
        let spawned = scope.spawn(|| Surus::spawn(dir.path(), &args, &[]));
        let began = std::time::Instant::now();
        let ready = loop {
            let ready = admin(dir.path(), "ready");
            if !ready.is_empty() || began.elapsed().as_secs() > 100 {
                break ready;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        };
        let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut client, request.as_bytes()).unwrap();
        std::fs::write(dir.path().join("go"), "").unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut client, &mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("slow"),
            "{answer}"
        );
        let _server = spawned.join().unwrap().unwrap();
        assert!(ready.contains("not ready: it is booting"), "{ready:?}");
        assert_eq!(admin(dir.path(), "ready"), "ready\n");
    });
}

#[test]
fn failed_site_is_tried_again_by_itself() {
    let late = project(&[]);
    let needs = format!(
        "<?php file_exists('{}/late') || throw new Exception('not yet');
        surus_serve(function () {{ echo 'late'; }});",
        late.path().display()
    );
    let dir = project(&[
        ("good/index.php", "<?php echo 'good';"),
        ("late/index.php", &needs),
        (
            "bad/index.php",
            "<?php require __DIR__.'/src/a.php'; surus_serve(fn () => print 'mended');",
        ),
        ("bad/src/a.php", "<?php throw new Exception('at the boot');"),
        (
            "surus.toml",
            "engine.name = 'rewind'\nengine.workers = 1\n\
             [[site]]\nhost = 'good.example'\nproject = 'good'\nengine.name = 'classic'\n\
             [[site]]\nhost = 'late.example'\nproject = 'late'\n\
             [[site]]\nhost = 'bad.example'\nproject = 'bad'\n\
             [[site]]\nhost = 'gone.example'\nproject = 'gone'\n",
        ),
    ]);
    let server = Surus::serve(dir.path(), &[]);
    for host in ["late.example", "bad.example", "gone.example"] {
        assert_eq!(get(&server, host, "/").status, 503, "{host}");
    }
    std::fs::write(late.path().join("late"), "").unwrap();
    assert_eq!(body(&get_until(&server, "late.example", 200)), "late");
    std::fs::write(dir.path().join("bad/src/a.php"), "<?php").unwrap();
    assert_eq!(body(&get_until(&server, "bad.example", 200)), "mended");
    let gone = dir.path().join("gone");
    std::fs::rename(dir.path().join("good"), &gone).unwrap();
    std::fs::write(
        gone.join("index.php"),
        "<?php surus_serve(fn () => print 'here');",
    )
    .unwrap();
    assert_eq!(get_until(&server, "gone.example", 200).status, 200);
    server.wait_for_log(|log| log.matches("the site has booted and is served now").count() == 3);
    // One line for each reason.
    let failures = server.log().matches("the site cannot be booted").count();
    assert!((3..=5).contains(&failures), "{}", server.log());
}

#[test]
fn failed_reload_of_a_site_keeps_its_old_version_alone() {
    let serves = |text: &str| format!("<?php $text = '{text}'; surus_serve(fn () => print $text);");
    let dir = project(&[
        ("a/index.php", &serves("a1")),
        ("b/index.php", &serves("b1")),
        (
            "surus.toml",
            "[[site]]\nhost = 'a.example'\nname = 'a'\nproject = 'a'\n\
             [[site]]\nhost = 'b.example'\nname = 'b'\nproject = 'b'\n",
        ),
    ]);
    let server = start(dir.path());
    assert_eq!(body(&get(&server, "a.example", "/")), "a1");
    std::fs::write(
        dir.path().join("a/index.php"),
        "<?php exit(1); surus_serve(1);",
    )
    .unwrap();
    std::fs::write(dir.path().join("b/index.php"), serves("b2")).unwrap();
    let (is_fine, reloaded) = surus("reload", dir.path());
    assert!(
        !is_fine && reloaded.contains("1 of 2 sites cannot be reloaded"),
        "{reloaded}"
    );
    assert!(reloaded.contains(": a: "), "{reloaded}");
    assert_eq!(body(&get(&server, "a.example", "/")), "a1");
    assert_eq!(body(&get(&server, "b.example", "/")), "b2");
}

#[test]
fn each_site_runs_on_its_own_surus_php() {
    let code = "<?php $program = fn () => print readlink('/proc/self/exe');
        getenv('SURUS_ENGINE') === 'classic' ? $program() : surus_serve($program);";
    let dir = project(&[("index.php", code)]);
    let own = dir.path().join("surus-php");
    copy_executable(Path::new(surus_php::EXECUTABLE), &own);
    let sites = format!(
        "engine.name = 'classic'\n[[site]]\nhost = 'a.example'\n\
         [[site]]\nhost = 'b.example'\nengine.surus_php = '{0}'\n\
         [[site]]\nhost = 'c.example'\nengine.name = 'rewind'\n\
         [[site]]\nhost = 'd.example'\nengine.name = 'rewind'\nengine.surus_php = '{0}'\n",
        own.display()
    );
    std::fs::write(dir.path().join("surus.toml"), sites).unwrap();
    let server = start(dir.path());
    let own = own.canonicalize().unwrap().display().to_string();
    for (host, is_own) in [
        ("a.example", false),
        ("b.example", true),
        ("c.example", false),
        ("d.example", true),
    ] {
        let program = body(&get(&server, host, "/"));
        assert!(program.starts_with('/'), "{host}: {program}");
        assert_eq!(program == own, is_own, "{host}: {program}");
    }
}

#[test]
fn conflict_of_hosts_is_named_by_check_and_stops_the_start() {
    let dir = project(&[
        ("index.php", "<?php"),
        (
            "surus.toml",
            "[[site]]\nhost = 'a.example'\n[[site]]\nname = 'b'\nhost = ['b', 'A.example']\n",
        ),
    ]);
    let says = "[[site]] number 1 and number 2 both have the host a.example";
    let (is_fine, checked) = surus("check", dir.path());
    assert!(!is_fine && checked.contains(says), "{checked}");
    let log = Surus::spawn(dir.path(), &[], &[]).err().unwrap();
    assert!(log.contains(says), "{log}");
}

#[test]
fn command_for_one_application_rejects_several_sites() {
    let dir = project(&[
        ("index.php", "<?php"),
        ("surus.toml", "[[site]]\nhost = 'a'\n"),
    ]);
    let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
    let output = surus
        .args(["lambda", "package"])
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("[[site]] is for `surus serve`"),
        "{text}"
    );
}
