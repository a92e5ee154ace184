//! Real servers of MariaDB and PostgreSQL, each on a free port of 127.0.0.1.

mod broker_outages;
mod client;
mod full_disk;

pub use client::Client;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tempfile::TempDir;

use super::site::{ids_of, installed, is_root};
use crate::common::ports::free_port;

/// Where the tables of a test are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    MySql,
    Postgres,
}

/// Runs tests of a module with each kind of database, or with the kinds that are named.
macro_rules! in_each_database {
    ($($test:ident)*) => {
        mod sqlite {
            $(#[test] fn $test() { super::$test(crate::database::Kind::Sqlite) })*
        }
        crate::database::in_each_server! { $($test)* }
    };
}
pub(crate) use in_each_database;

/// Runs tests of a module with each kind of database that is a server.
macro_rules! in_each_server {
    ($($test:ident)*) => {
        mod mariadb {
            $(#[test] fn $test() { super::$test(crate::database::Kind::MySql) })*
        }
        mod postgresql {
            $(#[test] fn $test() { super::$test(crate::database::Kind::Postgres) })*
        }
    };
}
pub(crate) use in_each_server;

/// As it stands in URLs, and as it is.
pub const PASSWORD: (&str, &str) = ("p%40ss%2Fw%3Frd", "p@ss/w?rd");

/// A running server. Dropping it kills it.
pub struct Server {
    pub kind: Kind,
    pub port: u16,
    child: Child,
    directory: TempDir,
}

static SHARED: [Mutex<Weak<Server>>; 2] = [Mutex::new(Weak::new()), Mutex::new(Weak::new())];

impl Server {
    /// The server of all tests that run now. It ends with the last of them.
    pub fn shared(kind: Kind) -> Arc<Server> {
        let shared = &SHARED[usize::from(kind == Kind::Postgres)];
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Server::start(kind));
            *shared = Arc::downgrade(&server);
            server
        })
    }

    pub fn start(kind: Kind) -> Server {
        let directory = TempDir::with_prefix("surus-db-").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if is_root() {
            let (user, group) = ids_of(user(kind));
            chown(directory.path(), Some(user), Some(group)).unwrap();
        }
        install(kind, directory.path());
        // Another process may take the port before the server does.
        for _ in 0..10 {
            let port = free_port();
            let mut child = spawn(kind, port, directory.path());
            if is_up(kind, &mut child, port) {
                return Server {
                    kind,
                    port,
                    child,
                    directory,
                };
            }
        }
        let log = fs::read_to_string(directory.path().join("log")).unwrap_or_default();
        panic!("the server of {kind:?} does not start:\n{log}");
    }

    /// Creates a database, and returns its name.
    pub fn create(&self) -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let client = Client::connect(self.kind, &url(self.kind, self.port, any(self.kind)));
        client.unwrap().run(&format!("create database {name}"));
        name
    }

    pub fn url(&self, database: &str) -> String {
        url(self.kind, self.port, database)
    }

    pub fn kill(&mut self) {
        kill(self.kind, &mut self.child);
    }

    /// Starts it again after [`kill`](Self::kill).
    pub fn revive(&mut self) {
        self.child = spawn(self.kind, self.port, self.directory.path());
        let is_up = is_up(self.kind, &mut self.child, self.port);
        assert!(is_up, "it does not start again");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kill(self.kind, &mut self.child);
    }
}

/// The URL of a database, on any port.
pub fn url(kind: Kind, port: u16, database: &str) -> String {
    let scheme = match kind {
        Kind::MySql => "mysql",
        _ => "postgresql",
    };
    format!(
        "{scheme}://surus:{}@127.0.0.1:{port}/{database}",
        PASSWORD.0
    )
}

/// A database that is always there.
fn any(kind: Kind) -> &'static str {
    match kind {
        Kind::MySql => "mysql",
        _ => "postgres",
    }
}

fn user(kind: Kind) -> &'static str {
    match kind {
        Kind::MySql => "mysql",
        _ => "postgres",
    }
}

/// A command with the rights that the server has: not root's, if tests have them.
fn command(kind: Kind, program: &Path, directory: &Path) -> Command {
    let mut command = match is_root() {
        true => Command::new("setpriv"),
        false => Command::new(program),
    };
    if is_root() {
        command.args(["--reuid", user(kind), "--clear-groups", "--"]);
        command.arg(program);
    }
    command
        .current_dir(directory)
        // A starting server removes the temporary tables that it finds, which may belong to
        // another test.
        .env("TMPDIR", directory)
        .stdin(Stdio::null());
    command
}

/// The directory of PostgreSQL's newest programs.
fn postgres() -> PathBuf {
    let installed = fs::read_dir(installed("/usr/lib/postgresql", "postgresql")).unwrap();
    let newest = installed.map(|version| version.unwrap().path()).max();
    newest.unwrap().join("bin")
}

/// Creates the data of a server and its user `surus`.
fn install(kind: Kind, directory: &Path) {
    let at = |name: &str| directory.join(name).display().to_string();
    let output = match kind {
        Kind::MySql => {
            let init = format!(
                "create user if not exists surus@127.0.0.1 identified by '{}';\n\
                 grant all on *.* to surus@127.0.0.1;\n",
                PASSWORD.1
            );
            fs::write(directory.join("init.sql"), init).unwrap();
            let program = installed("/usr/bin/mariadb-install-db", "mariadb-server");
            command(kind, &program, directory)
                .args(["--no-defaults", "--skip-test-db"])
                .arg(format!("--datadir={}", at("data")))
                .arg("--auth-root-authentication-method=normal")
                .output()
        }
        _ => {
            fs::write(directory.join("password"), PASSWORD.1).unwrap();
            command(kind, &postgres().join("initdb"), directory)
                .args(["-A", "scram-sha-256", "-U", "surus", "--pwfile"])
                .arg(at("password"))
                .args(["-E", "UTF8", "--no-locale", "--no-sync", "-D"])
                .arg(at("data"))
                .output()
        }
    };
    let output = output.unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
}

fn spawn(kind: Kind, port: u16, directory: &Path) -> Child {
    let at = |name: &str| directory.join(name).display().to_string();
    let log = File::create(directory.join("log")).unwrap();
    let mut command = match kind {
        Kind::MySql => {
            let program = installed("/usr/sbin/mariadbd", "mariadb-server");
            let mut command = command(kind, &program, directory);
            command.args(["--no-defaults", "--bind-address=127.0.0.1"]);
            command.args(["--innodb-buffer-pool-size=32M", "--skip-name-resolve"]);
            command.args(["--innodb-flush-log-at-trx-commit=2"]);
            command.arg(format!("--datadir={}", at("data")));
            command.arg(format!("--init-file={}", at("init.sql")));
            command.arg(format!("--socket={}", at("socket")));
            command.arg(format!("--pid-file={}", at("pid")));
            command.arg(format!("--port={port}"));
            command
        }
        _ => {
            let mut command = command(kind, &postgres().join("postgres"), directory);
            command.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]);
            command.args(["-D", &at("data"), "-k", &at("")]);
            command.args(["-p", &port.to_string()]);
            command
        }
    };
    command.stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().unwrap()
}

/// Whether it accepts connections; false if it has ended.
fn is_up(kind: Kind, child: &mut Child, port: u16) -> bool {
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if Client::connect(kind, &url(kind, port, any(kind))).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends a server without letting it finish anything.
fn kill(kind: Kind, child: &mut Child) {
    match kind {
        // Its children end first, so that a new server may take their place.
        Kind::Postgres => super::work::signal(child.id(), "QUIT"),
        _ => drop(child.kill()),
    }
    let _ = child.wait();
}
