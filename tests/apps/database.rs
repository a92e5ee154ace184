//! Starts a MariaDB for one test, with its own data and a unix socket.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::site::{ids_of, installed, is_root};

/// A running server. Dropping it ends it and removes its data.
pub struct Database {
    server: Child,
    directory: TempDir,
}

impl Database {
    pub fn start() -> Database {
        let server = installed("/usr/sbin/mariadbd", "mariadb-server");
        let directory = TempDir::with_prefix("surus-db-").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        let mut user = None;
        if is_root() {
            let (id, group) = ids_of("mysql");
            chown(directory.path(), Some(id), Some(group)).unwrap();
            chown(&data, Some(id), Some(group)).unwrap();
            user = Some("--user=mysql");
        }
        let datadir = format!("--datadir={}", data.display());
        let installation = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                &datadir,
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ])
            .args(user)
            // A starting server removes the temporary tables that it finds, which may belong to
            // another test.
            .env("TMPDIR", directory.path())
            .output()
            .unwrap();
        assert!(
            installation.status.success(),
            "mariadb-install-db: {}",
            String::from_utf8_lossy(&installation.stderr)
        );

        let log = directory.path().join("log");
        let server = Command::new(server)
            .args([
                "--no-defaults",
                &datadir,
                "--skip-networking",
                "--innodb-buffer-pool-size=32M",
            ])
            .arg(format!(
                "--socket={}",
                socket_in(directory.path()).display()
            ))
            .arg(format!(
                "--pid-file={}",
                directory.path().join("pid").display()
            ))
            .args(user)
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(File::options().append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let mut database = Database { server, directory };
        let started = Instant::now();
        while database.query("SELECT 1").is_err() {
            let ended = database.server.try_wait().unwrap();
            if ended.is_some() || started.elapsed() > Duration::from_secs(120) {
                panic!(
                    "mariadbd did not start:\n{}",
                    fs::read_to_string(&log).unwrap()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        database
    }

    pub fn socket(&self) -> PathBuf {
        socket_in(self.directory.path())
    }

    /// Runs statements as root.
    pub fn run(&self, sql: &str) {
        self.query(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Asks as root for one value.
    pub fn ask(&self, sql: &str) -> String {
        let said = self.query(sql);
        said.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn query(&self, sql: &str) -> Result<String, String> {
        let socket = format!("--socket={}", self.socket().display());
        let output = Command::new("mariadb")
            .args(["--no-defaults", &socket, "--user=root", "-Ne", sql])
            .output()
            .unwrap();
        if output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout);
            Ok(said.trim().to_string())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The data is thrown away, so the server need not shut down cleanly.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn socket_in(directory: &Path) -> PathBuf {
    directory.join("socket")
}
