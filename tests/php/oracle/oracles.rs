//! The oracles php-fpm, php-cgi and Surus, with the same document root and php.ini.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::answer::Answer;
use super::corpus::Topic;
use super::request::Request;
use super::vars::cgi_variables;
use super::watch::Watch;
use super::{cgi, fastcgi, http};
use crate::common::Surus;
use crate::common::php::{few_extensions, minor};

/// The paths of Debian's php-fpm, php-cgi and php.ini for this PHP version.
struct Installed {
    fpm: String,
    cgi: String,
    ini: String,
}

impl Installed {
    fn find() -> Installed {
        let minor = minor();
        let found = Installed {
            fpm: format!("/usr/sbin/php-fpm{minor}"),
            cgi: format!("/usr/bin/php-cgi{minor}"),
            ini: format!("/etc/php/{minor}/fpm/php.ini"),
        };
        for program in [&found.fpm, &found.cgi] {
            assert!(
                Path::new(program).exists(),
                "{program} is missing. The oracle test compares Surus with it: apt-get install \
                    php{minor}-fpm php{minor}-cgi"
            );
        }
        found
    }
}

/// The limit for events that must happen eventually; reached only on failure.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    Fpm,
    Cgi,
    Surus,
}

impl Name {
    /// Replaces `{who}` in requests. All have the same length, so that content lengths are equal.
    pub fn token(self) -> &'static str {
        match self {
            Name::Fpm => "WHOisFPM",
            Name::Cgi => "WHOisCGI",
            Name::Surus => "WHOisSUR",
        }
    }
}

/// The oracles in `ORACLES` to compare with php-fpm, the reference. By default that is Surus, and
/// php-cgi once for each topic.
fn chosen(engine: &str) -> Vec<Name> {
    match std::env::var("ORACLES") {
        Err(_) if engine != "classic" => vec![Name::Surus],
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

/// The script that engines boot: each event runs the requested file, as on `classic`.
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

/// All oracles with one document root.
pub struct Oracles {
    root: PathBuf,
    /// A directory that scripts may write to.
    pub state: PathBuf,
    /// The address that every oracle reports as the server's.
    server: String,
    /// The directory with php-cgi's additional ini files.
    scan_dir: String,
    surus: Option<Surus>,
    installed: Installed,
    fpm: Fpm,
    /// php-cgi's log so far.
    cgi: Option<String>,
    // Last, so that it is deleted after the processes that use it have ended.
    _dir: tempfile::TempDir,
}

impl Oracles {
    /// Starts all oracles. The topic's `ini` is added to every php.ini. `fill` writes the document
    /// root, its first argument; scripts may write to the second.
    pub fn start(engine: &str, topic: &Topic, fill: impl FnOnce(&Path, &Path)) -> Oracles {
        let installed = Installed::find();
        let dir = tempfile::Builder::new().prefix("oracle").tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let (root, state, added) = (home.join("root"), home.join("state"), home.join("ini"));
        for dir in [&root, &state, &added] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(added.join("oracle.ini"), &topic.ini).unwrap();
        let extensions = match topic.all_extensions {
            true => &format!("/etc/php/{}/fpm/conf.d", minor()),
            false => few_extensions(),
        };
        let scan_dir = format!("{extensions}:{}", added.display());
        fill(&root, &state);
        // php-fpm's workers run as another user.
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o777)).unwrap();

        let chosen = chosen(engine);
        let surus = chosen.contains(&Name::Surus).then(|| {
            // Compression belongs to the HTTP front end, not to PHP.
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
                env.push(("SURUS_ENGINE_VERIFY_RESTORE", "true"));
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

    /// The oracles that are compared with php-fpm.
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

/// Whether `condition` becomes true within the time limit.
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

/// A php-fpm with one worker, so that every request sees the state that the previous one left. Drop
/// stops it.
struct Fpm {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    /// How much of the log file is already in `said`.
    read: usize,
    /// FastCGI's STDERR and the log file's content so far.
    said: String,
}

impl Fpm {
    fn start(installed: &Installed, home: &Path, scan_dir: &str) -> Fpm {
        let (socket, log, config) = (
            home.join("fpm.sock"),
            home.join("fpm.log"),
            home.join("fpm.conf"),
        );
        // Only root can change the user, and php-fpm requires it then.
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
        // Drop also runs after a panic, but not if the test is killed; then the kernel stops the
        // child.
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
