//! Tests that `rewind` restores the state of Debian's extensions.
//!
//! The boot and many requests of one worker use each extension, and all memory is compared after
//! each request (`engine.verify_restore`). `EXTENSION_ROUNDS` sets the number of requests; 15 by
//! default.
//!
//! docs/reference/extensions.md has the results. Needs `scripts/install extensions`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Surus, extension_files};

/// Used in the boot and in requests.
const LOCAL: &str = "apcu bcmath curl dom enchant exif fileinfo gd gettext gmp iconv igbinary \
    imagick imap intl ldap mbstring msgpack openssl pdo_sqlite phar pspell simplexml snmp soap \
    sockets sodium sqlite3 ssh2 sysvshm shmop tidy uuid xml xmlreader xmlrpc xmlwriter xsl yaml \
    zip";
/// Used in requests only, because the boot may not keep connections open.
const CONNECTING: &str = "memcached mysqli pdo_mysql pdo_pgsql pgsql redis";
/// Extensions that Debian's php-fpm loads only on request.
const ADDED: &str = "apcu bcmath enchant gmp igbinary imagick imap ldap msgpack memcached pgsql \
    pdo_pgsql pspell redis snmp soap ssh2 tidy uuid xmlrpc yaml";

#[test]
fn extensions_without_jit_are_rewound() {
    check(&[]);
}

#[test]
fn extensions_with_tracing_jit_are_rewound() {
    check(&["opcache.jit=tracing", "opcache.jit_buffer_size=16M"]);
}

#[test]
fn extensions_with_function_jit_are_rewound() {
    check(&["opcache.jit=function", "opcache.jit_buffer_size=16M"]);
}

#[test]
fn extensions_with_preloading_are_rewound() {
    check(&[
        "opcache.preload={dir}/preload.php",
        "opcache.preload_user=www-data",
    ]);
}

fn check(settings: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let source = include_str!("extensions/exercises.php");
    std::fs::write(dir.path().join("index.php"), source).unwrap();
    std::fs::write(
        dir.path().join("preload.php"),
        "<?php class Preloaded { public static $n = 0; } function preloaded() { return 1; }",
    )
    .unwrap();
    let scan_dir = extension_files(dir.path(), ADDED);
    let servers = Servers::start();

    let mut args = vec!["--workers".to_string(), "1".into()];
    for setting in settings {
        let setting = setting.replace("{dir}", dir.path().to_str().unwrap());
        args.extend(["-d".to_string(), setting]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let socket = |name: &str| servers.dir.path().join(name).to_str().unwrap().to_string();
    let env = [
        ("PHP_INI_SCAN_DIR", scan_dir),
        ("SURUS_ENGINE_NAME", "rewind".into()),
        ("SURUS_ENGINE_VERIFY_RESTORE", "true".into()),
        ("SURUS_ENV_MEMCACHED", socket("memcached")),
        ("SURUS_ENV_MYSQL", socket("mysql")),
        ("SURUS_ENV_POSTGRES", socket("")),
        ("SURUS_ENV_REDIS", socket("redis")),
    ];
    let env: Vec<(&str, &str)> = env
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let surus = Surus::spawn(dir.path(), &args, &env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));

    let rounds = std::env::var("EXTENSION_ROUNDS").map_or(15, |rounds| rounds.parse().unwrap());
    let mut wrong = Vec::new();
    for extension in LOCAL
        .split_whitespace()
        .chain(CONNECTING.split_whitespace())
        .filter(|extension| !crate::common::php::lacks(extension))
    {
        let (mut bodies, mut pids, mut descriptors) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for _ in 0..rounds {
            let answer = ask(&surus.address, &format!("/?extension={extension}"));
            bodies.insert(format!("{} {}", answer.status, answer.body));
            pids.insert(answer.header("x-pid"));
            descriptors.insert(answer.header("x-descriptors"));
        }
        println!("{extension}: {bodies:?} by {} processes", pids.len());
        if bodies.len() != 1
            || pids.len() != 1
            || descriptors.len() != 1
            || !bodies.iter().all(|body| is_answer(body))
        {
            wrong.push(format!(
                "{extension}: {bodies:?}, {} processes, descriptors {descriptors:?}",
                pids.len()
            ));
        }
    }
    let log = surus.log();
    assert!(wrong.is_empty(), "{wrong:#?}\n{log}");
    assert!(
        !log.contains("differs") && !log.contains("replaced instead"),
        "{log}"
    );
}

fn is_answer(body: &str) -> bool {
    body.starts_with("200 ") && !body.contains("not ")
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> String {
        let line = self
            .head
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with(name));
        line.unwrap_or_default().to_string()
    }
}

fn ask(address: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(40)))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Answer {
        status: head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0),
        head: head.to_string(),
        body: body.to_string(),
    }
}

/// Database servers on Unix sockets in a temporary directory. Drop stops them and deletes their
/// data.
struct Servers {
    running: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Servers {
    fn start() -> Servers {
        let dir = tempfile::TempDir::with_prefix("surus-servers-").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let mut servers = Servers {
            running: Vec::new(),
            dir,
        };
        let place = servers.dir.path().to_path_buf();
        let at = |name: &str| place.join(name).to_str().unwrap().to_string();

        servers.run(
            "/usr/bin/redis-server",
            None,
            &[
                "--port",
                "0",
                "--unixsocket",
                &at("redis"),
                "--unixsocketperm",
                "777",
                "--save",
                "",
            ],
        );
        servers.run(
            "/usr/bin/memcached",
            Some("memcache"),
            &["-s", &at("memcached"), "-a", "777"],
        );
        let data = at("mariadb");
        prepare(
            "/usr/bin/mariadb-install-db",
            "mysql",
            &place,
            &[
                "--no-defaults",
                &format!("--datadir={data}"),
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
        );
        servers.run(
            "/usr/sbin/mariadbd",
            Some("mysql"),
            &[
                "--no-defaults",
                &format!("--datadir={data}"),
                "--skip-networking",
                &format!("--socket={}", at("mysql")),
                &format!("--pid-file={}", at("mysql.pid")),
            ],
        );
        let (bin, data) = (postgres(), at("postgres"));
        prepare(
            &format!("{bin}/initdb"),
            "postgres",
            &place,
            &["-D", &data, "-A", "trust", "-U", "postgres"],
        );
        servers.run(
            &format!("{bin}/postgres"),
            Some("postgres"),
            &[
                "-D",
                &data,
                "-c",
                "listen_addresses=",
                "-k",
                place.to_str().unwrap(),
            ],
        );
        for socket in ["redis", "memcached", "mysql", ".s.PGSQL.5432"] {
            let began = Instant::now();
            while std::os::unix::net::UnixStream::connect(place.join(socket)).is_err() {
                assert!(
                    began.elapsed() < Duration::from_secs(60),
                    "the server of {socket} did not start"
                );
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        servers
    }

    fn run(&mut self, program: &str, user: Option<&str>, args: &[&str]) {
        let server = command(program, user.unwrap_or("nobody"), self.dir.path())
            .args(args)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}; scripts/install test extensions"));
        self.running.push(server);
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The data is deleted anyway, so the servers need not shut down cleanly.
        for server in &mut self.running {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Runs as another user if the test runs as root, because some servers refuse to run as root.
fn command(program: &str, user: &str, dir: &Path) -> Command {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = Command::new(if is_root { "setpriv" } else { program });
    if is_root {
        command.args([
            "--reuid",
            user,
            "--clear-groups",
            "--pdeathsig",
            "KILL",
            "--",
            program,
        ]);
    }
    command
        .current_dir(dir)
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn prepare(program: &str, user: &str, dir: &Path, args: &[&str]) {
    let done = command(program, user, dir).args(args).status().unwrap();
    assert!(done.success(), "{program}: {done}");
}

fn postgres() -> String {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL; scripts/install extensions")
        .map(|version| version.unwrap().path().join("bin"))
        .collect();
    found.sort();
    found.pop().unwrap().to_str().unwrap().to_string()
}
