//! Starts an external PHP: command line, environment, user and descriptors.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use surus_sys::process::{self, Orphan, User};

use super::runtime_dir::{OwnDir, RuntimeDir};
use super::{PhpSpec, ProgramKind, file_names, fpm_master, fpm_trust};
use crate::launcher::{Child, Launcher, Role};

/// Starts PHP.
pub struct PhpLaunch {
    pub program: PathBuf,
    how: How,
}

enum How {
    /// As a child of this process.
    OwnDir(Box<Starter>),
    /// By the keeper, with the directory of this number.
    Keeper(Arc<dyn Launcher>, u32),
}

/// What PHP gets in addition to stdin, stdout and stderr.
#[derive(Default)]
pub struct ProcessInputs<'a> {
    /// NUL-terminated `NAME=value` pairs: environment variables in addition to the settings'.
    pub env: &'a [u8],
    /// Functions that PHP's settings disable. The keeper determines them itself.
    pub disabled: &'a str,
    /// The descriptors of the `cli` driver.
    pub driver: Option<[OwnedFd; 2]>,
}

impl PhpLaunch {
    pub fn new(spec: &PhpSpec, runtime_dir: &RuntimeDir) -> anyhow::Result<PhpLaunch> {
        Ok(PhpLaunch {
            program: spec.program.clone(),
            how: match runtime_dir {
                RuntimeDir::OwnDir(own) => {
                    let groups = spec.user.as_ref().map(groups).transpose()?;
                    How::OwnDir(Box::new(Starter::new(
                        spec,
                        own,
                        groups.unwrap_or_default(),
                    )?))
                }
                RuntimeDir::Keeper(kept) => How::Keeper(kept.launch.by.clone(), kept.dir.number),
            },
        })
    }

    /// Starts PHP with stdin, stdout and stderr.
    pub async fn start(
        &self,
        role: Role,
        inputs: ProcessInputs<'_>,
        stdio: [OwnedFd; 3],
    ) -> anyhow::Result<Child> {
        match &self.how {
            How::OwnDir(starter) => {
                let command = starter.command(role, inputs, stdio)?;
                let mut command = tokio::process::Command::from(command);
                let child = command.kill_on_drop(role != Role::Server).spawn();
                let child =
                    child.with_context(|| format!("cannot start {}", self.program.display()))?;
                Ok(Child::Own(Box::new(child)))
            }
            How::Keeper(keeper, runtime_dir) => {
                let mut fds = Vec::from(stdio);
                if !inputs.env.is_empty() {
                    fds.push(process::memory_file(inputs.env)?);
                }
                fds.extend(inputs.driver.into_iter().flatten());
                keeper.php(*runtime_dir, role, fds).await
            }
        }
    }
}

/// Starts PHP as a child of this process with the configured user.
pub struct Starter {
    way: ProgramKind,
    program: PathBuf,
    user: Option<(User, Vec<u32>)>,
    env: BTreeMap<OsString, OsString>,
    runtime_dir: PathBuf,
    may_be_root: bool,
    /// The sockets of a php-fpm that starts as PHP's user, until it has started. A copy that stays
    /// here would accept connections for a php-fpm that has exited.
    listeners: Mutex<Vec<OwnedFd>>,
    is_unprivileged: bool,
    /// Whether it starts as root, and gives up root by itself.
    is_roots: bool,
    /// What `roadrunner` runs.
    worker: Option<WorkerScript>,
}

struct WorkerScript {
    script: PathBuf,
    arguments: Vec<String>,
    directory: Option<PathBuf>,
}

impl Starter {
    /// `groups` are the supplementary groups of the user.
    pub fn new(spec: &PhpSpec, runtime_dir: &OwnDir, groups: Vec<u32>) -> anyhow::Result<Starter> {
        let user = spec.user.clone().map(|user| (user, groups));
        let mut env = environment(spec);
        // An empty name means PHP's compiled-in directory. Surus's own variable applies, as for
        // surus-php.
        let scanned = scanned(&env).unwrap_or_default();
        let named = std::env::split_paths(&scanned).map(absolute);
        let scanned = std::env::join_paths(named.chain([runtime_dir.ini()]))?;
        env.insert(SCANNED.into(), scanned);
        if let Some(named) = env.get_mut(OsStr::new("PHPRC")) {
            *named = absolute(PathBuf::from(&*named)).into();
        }
        // php -S would fork worker processes that Surus does not know.
        env.remove(OsStr::new("PHP_CLI_SERVER_WORKERS"));
        if spec.way == ProgramKind::RoadRunner {
            let mode = spec.roadrunner.as_ref().map(|worker| worker.mode);
            env.insert("RR_MODE".into(), mode.unwrap_or_default().name().into());
            env.insert("RR_RELAY".into(), "pipes".into());
        }
        if let Some(file) = &spec.ini_file {
            // PHP itself would silently continue without the file.
            surus_sys::regular_file::open(file)
                .with_context(|| format!("cannot read {} (engine.ini_file)", file.display()))?;
            env.insert("PHPRC".into(), absolute(file.clone()).into());
        }
        let worker = match &spec.roadrunner {
            None => None,
            Some(worker) => Some(WorkerScript {
                script: (worker.script)()?.script,
                arguments: worker.arguments.clone(),
                directory: worker.directory.clone(),
            }),
        };
        let listeners = match spec.way {
            ProgramKind::Fpm => fpm_master::listeners(spec, runtime_dir)?,
            _ => Vec::new(),
        };
        Ok(Starter {
            worker,
            way: spec.way,
            program: spec.program.clone(),
            may_be_root: user.as_ref().is_some_and(|(user, _)| user.uid == 0),
            user,
            env,
            is_unprivileged: !listeners.is_empty(),
            is_roots: fpm_master::is_roots(spec),
            listeners: Mutex::new(listeners),
            runtime_dir: runtime_dir.path(""),
        })
    }

    /// The command for a role.
    pub fn command(
        &self,
        role: Role,
        inputs: ProcessInputs<'_>,
        stdio: [OwnedFd; 3],
    ) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.program);
        let mut listeners = Vec::new();
        command.env_clear().envs(&self.env);
        for variable in inputs.env.split(|byte| *byte == 0) {
            let mut parts = variable.splitn(2, |byte| *byte == b'=');
            let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
                continue;
            };
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
        match (self.way, role) {
            // No arguments: php-cgi would treat a query that begins with `-` and has no `=` as an
            // option.
            (ProgramKind::Cgi, Role::Request) => {}
            (ProgramKind::RoadRunner, Role::Probe) => {
                command.args(["-d", "display_errors=stderr", "-f"]);
                command.arg(self.runtime_dir.join(file_names::REPORT));
            }
            (ProgramKind::RoadRunner, Role::Server) => {
                let worker = self.worker.as_ref().context("no worker script")?;
                command.arg("-f").arg(&worker.script).arg("--");
                command.args(&worker.arguments);
                if let Some(directory) = &worker.directory {
                    command.current_dir(directory);
                }
            }
            (ProgramKind::Cli, Role::Probe) => {
                // Keep startup errors out of the output.
                for setting in ["display_startup_errors=0", "display_errors=stderr"] {
                    command.args(["-d", setting]);
                }
                command.args(["-r", "echo ini_get('disable_functions');"]);
            }
            (ProgramKind::Cli, Role::Request) => {
                for setting in driver_settings(inputs.disabled) {
                    command.args(["-d", &setting]);
                }
                command
                    .arg("-f")
                    .arg(self.runtime_dir.join(file_names::DRIVER));
            }
            (ProgramKind::Builtin, Role::Server) => {
                // Port 0 selects a free port.
                command.args(["-S", "127.0.0.1:0", "-t"]);
                command.arg(self.runtime_dir.join("."));
                command.arg(self.runtime_dir.join(file_names::ROUTER));
            }
            (ProgramKind::Fpm, Role::Server) => {
                command.arg("--nodaemonize").arg("--fpm-config");
                command.arg(self.runtime_dir.join(file_names::CONFIGURATION));
                if self.may_be_root {
                    command.arg("--allow-to-run-as-root");
                }
                if self.is_unprivileged {
                    let mut kept = self
                        .listeners
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    listeners = std::mem::take(&mut *kept);
                    let count = listeners.len();
                    let (name, value) =
                        fpm_master::inherited(&self.runtime_dir, count, FIRST_LISTENER);
                    command.arg("--force-stderr").env(name, value);
                }
            }
            (way, role) => bail!("engine {way:?} does not support role {role:?}"),
        }
        if self.is_roots {
            command.current_dir(fpm_trust::DIRECTORY);
        }
        let [stdin, stdout, stderr] = stdio;
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let driver = inputs.driver.into_iter().flatten();
        let mut fds: Vec<_> = driver.zip([DRIVER_VARIABLES, DRIVER_HEAD]).collect();
        fds.extend(listeners.into_iter().zip(FIRST_LISTENER..));
        // Another php-fpm opens its log and sockets as the current user; its children change to
        // the configured user.
        let user = self.user.as_ref();
        let user = user.filter(|_| self.way != ProgramKind::Fpm || self.is_unprivileged);
        let orphan = match self.way {
            ProgramKind::Fpm => Orphan::Terminated,
            _ => Orphan::Killed,
        };
        let user = user.map(|(user, groups)| (user, groups.as_slice()));
        process::child(&mut command, user, orphan, fds)?;
        Ok(command)
    }
}

/// The first file descriptor of php-fpm's sockets.
const FIRST_LISTENER: RawFd = 3;

/// The file descriptors of the `cli` driver.
const DRIVER_VARIABLES: i32 = 3;
const DRIVER_HEAD: i32 = 4;

/// Functions to disable because the `cli` driver replaces them, one per line.
const REPLACED: &str = include_str!("cli.functions");

/// Settings for `-d` options. They are not in an ini file, because PHP processes that the script
/// starts read the same ini files.
fn driver_settings(disabled: &str) -> [String; 4] {
    let replaced = REPLACED.lines().map(|name| format!(",{name}"));
    [
        format!(
            "disable_functions={disabled}{}",
            replaced.collect::<String>()
        ),
        "auto_prepend_file=".into(),
        "auto_append_file=".into(),
        "session.auto_start=0".into(),
    ]
}

/// The numbers of all groups of PHP's user. Looking them up may need the network.
pub fn groups(user: &User) -> anyhow::Result<Vec<u32>> {
    process::groups(user).with_context(|| {
        format!(
            "cannot read the supplementary groups of user {} (engine.user)",
            user.name
        )
    })
}

/// An empty input.
pub fn nothing() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/dev/null")?.into())
}

/// A path that means the same in every directory; an empty one stays empty.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Directories with ini files, separated by colons (PHP manual, "The configuration file").
const SCANNED: &str = "PHP_INI_SCAN_DIR";

/// The directories that a variable names.
pub fn scanned(env: &BTreeMap<OsString, OsString>) -> Option<OsString> {
    let named = env.get(OsStr::new(SCANNED)).cloned();
    named.or_else(|| std::env::var_os(SCANNED))
}

/// The same environment as for surus-php's workers. Variables of the configuration, which may name
/// files of PHP's user, do not act on a process of root.
pub fn environment(spec: &PhpSpec) -> BTreeMap<OsString, OsString> {
    let mut env: BTreeMap<OsString, OsString> = std::env::vars_os()
        .filter(|(name, _)| !spec.clear_env || name == "USER" || name == "HOME")
        .collect();
    if fpm_master::is_roots(spec) {
        env.extend(fpm_master::carriers(spec));
        return env;
    }
    if let Some(user) = &spec.user {
        env.insert("USER".into(), user.name.clone().into());
        env.insert("HOME".into(), user.home.clone().into());
    }
    let set = spec.env.iter();
    env.extend(set.map(|(name, value)| (name.into(), value.into())));
    env
}

/// Finds the program: the configured one, or the first of these names in PATH or in a system
/// directory outside an ordinary user's PATH.
pub fn find(
    configured: Option<&Path>,
    setting: &str,
    names: &[String],
    package: &str,
) -> anyhow::Result<PathBuf> {
    if let Some(program) = configured {
        return find_configured(program, setting);
    }
    let found = names.iter().find_map(|name| in_path(Path::new(name)));
    found.with_context(|| {
        format!(
            "no {} in PATH; install it (Debian: {package}) or name it in {setting}",
            names.first().map_or("", String::as_str)
        )
    })
}

/// The absolute path of a configured program.
pub fn find_configured(program: &Path, setting: &str) -> anyhow::Result<PathBuf> {
    let found = resolved(program).filter(|found| found.is_file());
    found.with_context(|| {
        format!(
            "{setting} names {}, which does not exist",
            program.display()
        )
    })
}

/// The absolute path of a configured program, so that no later search with another PATH or
/// directory finds another one. A bare name must be in PATH.
pub fn resolved(program: &Path) -> Option<PathBuf> {
    match program.file_name() == Some(program.as_os_str()) {
        true => in_path(program),
        false => std::path::absolute(program).ok(),
    }
}

/// Finds a program in PATH or in a system directory outside an ordinary user's PATH.
fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from));
    // A relative directory in PATH is the current one, or below it.
    let absolute = places.into_iter().filter(|place| place.is_absolute());
    let mut programs = absolute.map(|place| place.join(name));
    programs.find(|program| program.is_file())
}
