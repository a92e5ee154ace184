//! Who answers: php-fpm, php-cgi and Surus, over the same document root and with the same php.ini.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::answer::Answer;
use super::request::Request;
use super::vars::cgi_variables;
use super::watch::Watch;
use super::{cgi, fastcgi, http};
use crate::common::Surus;
use crate::common::php::minor;

/// Where Debian has php-fpm, php-cgi and php-fpm's configuration of that PHP.
struct Installed {
    fpm: String,
    cgi: String,
    ini: String,
    scan_dir: String,
}

impl Installed {
    fn find() -> Installed {
        let minor = minor();
        let found = Installed {
            fpm: format!("/usr/sbin/php-fpm{minor}"),
            cgi: format!("/usr/bin/php-cgi{minor}"),
            ini: format!("/etc/php/{minor}/fpm/php.ini"),
            scan_dir: format!("/etc/php/{minor}/fpm/conf.d"),
        };
        for program in [&found.fpm, &found.cgi] {
            assert!(
                Path::new(program).exists(),
                "{program} is missing. The oracle test compares Surus with it: apt-get install php{minor}-fpm php{minor}-cgi"
            );
        }
        found
    }
}

/// For what has to happen some time; nothing waits this long unless it failed.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    Fpm,
    Cgi,
    Surus,
}

impl Name {
    /// Stands for `{who}` in requests. All of one length, so that lengths do not differ.
    pub fn token(self) -> &'static str {
        match self {
            Name::Fpm => "WHOisFPM",
            Name::Cgi => "WHOisCGI",
            Name::Surus => "WHOisSUR",
        }
    }
}

/// The oracles named in `ORACLES` beside php-fpm, which is the reference; all of them if it is not set.
fn chosen() -> Vec<Name> {
    match std::env::var("ORACLES") {
        Err(_) => vec![Name::Cgi, Name::Surus],
        Ok(words) => words
            .split(',')
            .filter_map(|word| match word {
                "fpm" => None,
                "cgi" => Some(Name::Cgi),
                "surus" => Some(Name::Surus),
                other => panic!("ORACLES: {other:?} is none of fpm, cgi, surus"),
            })
            .collect(),
    }
}

/// What the engines boot that boot a script: each event runs the file that it names, as `classic` does.
const BOOT: &str = r#"<?php
surus_serve(static function () {
    $file = $_SERVER['SCRIPT_FILENAME'];
    if ($file === __FILE__) {
        http_response_code(404);
        echo "File not found.\n";
        return;
    }
    chdir(dirname($file));
    (static fn () => require $_SERVER['SCRIPT_FILENAME'])();
});
"#;

/// All of them, over one document root.
pub struct Oracles {
    root: PathBuf,
    /// Where scripts may write.
    pub state: PathBuf,
    /// The address that every oracle believes to be the server's.
    server: String,
    /// Where php-cgi, which starts for every request, finds the rest of its php.ini.
    scan_dir: String,
    surus: Option<Surus>,
    installed: Installed,
    fpm: Fpm,
    /// What php-cgi has logged so far.
    cgi: Option<String>,
    // Last: dropped, and so deleted, after the processes that use it.
    _dir: tempfile::TempDir,
}

impl Oracles {
    /// `ini` is added to the php.ini of all; `fill` writes the document root, its first argument; scripts may write to the
    /// second.
    pub fn start(engine: &str, ini: &str, fill: impl FnOnce(&Path, &Path)) -> Oracles {
        let installed = Installed::find();
        let dir = tempfile::Builder::new().prefix("oracle").tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let (root, state, added) = (home.join("root"), home.join("state"), home.join("ini"));
        for dir in [&root, &state, &added] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(added.join("oracle.ini"), ini).unwrap();
        let scan_dir = format!("{}:{}", installed.scan_dir, added.display());
        fill(&root, &state);
        // php-fpm's workers are another user.
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o777)).unwrap();

        let chosen = chosen();
        let surus = chosen.contains(&Name::Surus).then(|| {
            // Compression is the front's and not PHP's.
            let mut env = vec![
                ("PHP_INI_SCAN_DIR", scan_dir.as_str()),
                ("SURUS_COMPRESS_ENABLED", "false"),
                ("SURUS_ENGINE_NAME", engine),
            ];
            let boot = home.join("boot.php");
            if engine != "classic" {
                std::fs::write(&boot, BOOT).unwrap();
                env.push(("SURUS_ENGINE_SCRIPT", boot.to_str().unwrap()));
                env.push(("SURUS_ENGINE_WORKERS", "1"));
                env.push(("SURUS_ENGINE_PARANOID", "true"));
            }
            Surus::spawn(&root, &[], &env)
                .unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
        });
        let server = surus
            .as_ref()
            .map_or("127.0.0.1:8080".into(), |surus| surus.address.clone());
        let fpm = Fpm::start(&installed, &home, &scan_dir);
        let cgi = chosen.contains(&Name::Cgi).then(String::new);
        Oracles {
            root,
            state,
            server,
            scan_dir,
            surus,
            installed,
            fpm,
            cgi,
            _dir: dir,
        }
    }

    /// Who is compared with php-fpm.
    pub fn others(&self) -> Vec<Name> {
        let cgi = self.cgi.as_ref().map(|_| Name::Cgi);
        let surus = self.surus.as_ref().map(|_| Name::Surus);
        cgi.into_iter().chain(surus).collect()
    }

    pub fn ask(
        &mut self,
        name: Name,
        request: &Request,
        watch: Option<Watch>,
    ) -> Result<Answer, String> {
        let vars = cgi_variables(request, &self.root, &self.server);
        let (reply, log) = match name {
            Name::Surus => {
                let surus = self.surus.as_ref().ok_or("surus was not started")?;
                return http::ask(&surus.address, &request.wire(), &request.method, watch);
            }
            Name::Fpm => (
                fastcgi::ask(&self.fpm.socket, &vars, &request.body, watch),
                &mut self.fpm.said,
            ),
            Name::Cgi => {
                let log = self.cgi.as_mut().ok_or("php-cgi was not chosen")?;
                (
                    cgi::ask(
                        cgi::Program {
                            path: &self.installed.cgi,
                            ini: &self.installed.ini,
                            scan_dir: &self.scan_dir,
                        },
                        &vars,
                        &request.body,
                        watch,
                    ),
                    log,
                )
            }
        };
        let reply = reply.map_err(|error| error.to_string())?;
        log.push_str(&String::from_utf8_lossy(&reply.stderr));
        Answer::from_cgi(&reply.stdout, &request.method)
    }

    /// Everything that `name` has logged so far.
    pub fn log(&mut self, name: Name) -> String {
        match name {
            Name::Surus => self.surus.as_ref().map(Surus::log).unwrap_or_default(),
            Name::Fpm => self.fpm.log(),
            Name::Cgi => self.cgi.clone().unwrap_or_default(),
        }
    }
}

/// Whether `condition` holds before patience ends.
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// A php-fpm with one worker, so that every request meets what the one before it left behind. Dropping it ends it.
struct Fpm {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    /// How much of the log file is in `said` already.
    read: usize,
    /// What came as FastCGI's STDERR and what is in the log file, so far.
    said: String,
}

impl Fpm {
    fn start(installed: &Installed, home: &Path, scan_dir: &str) -> Fpm {
        let (socket, log, config) = (
            home.join("fpm.sock"),
            home.join("fpm.log"),
            home.join("fpm.conf"),
        );
        // Only root can, and has to, become somebody else.
        let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let user = if root {
            "user = www-data\ngroup = www-data\n"
        } else {
            ""
        };
        let text = format!(
            "[global]\nerror_log = {log}\nlog_limit = 65536\ndaemonize = no\n\
             [oracle]\n{user}listen = {socket}\npm = static\npm.max_children = 1\n\
             catch_workers_output = yes\ndecorate_workers_output = no\nclear_env = yes\n",
            log = log.display(),
            socket = socket.display(),
        );
        std::fs::write(&config, text).unwrap();
        // Drop ends it after a panic too, but not when the test itself is killed: then the kernel does.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--", &installed.fpm])
            .args(["--nodaemonize", "--php-ini", &installed.ini, "--fpm-config"])
            .arg(&config)
            .env("PHP_INI_SCAN_DIR", scan_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut fpm = Fpm {
            child,
            socket,
            log,
            read: 0,
            said: String::new(),
        };
        let up = eventually(|| {
            UnixStream::connect(&fpm.socket).is_ok() || !matches!(fpm.child.try_wait(), Ok(None))
        });
        let log = std::fs::read_to_string(&fpm.log).unwrap_or_default();
        assert!(
            up && UnixStream::connect(&fpm.socket).is_ok(),
            "php-fpm did not start:\n{log}"
        );
        fpm
    }

    fn log(&mut self) -> String {
        let file = std::fs::read(&self.log).unwrap_or_default();
        self.said
            .push_str(&String::from_utf8_lossy(&file[self.read..]));
        self.read = file.len();
        self.said.clone()
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        if !eventually(|| !matches!(self.child.try_wait(), Ok(None))) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
