//! How PHP that is not ours is started: whose process it becomes, and with what in its environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use surus_sys::process::{self, Orphan, User};

use super::Spec;
use super::home::Home;

pub struct Launch {
    pub program: PathBuf,
    user: Option<(User, Vec<u32>)>,
    env: BTreeMap<OsString, OsString>,
}

impl Launch {
    pub fn new(spec: &Spec, home: &Home) -> anyhow::Result<Launch> {
        let user = match &spec.user {
            None => None,
            Some(user) => {
                let groups = process::groups(user)
                    .with_context(|| format!("cannot look up the groups of {}", user.name))?;
                Some((user.clone(), groups))
            }
        };
        let mut env = environment(spec);
        // An empty name stands for the directory that PHP was built with. What is said to us is said to PHP, as for our own.
        let named = env.get(OsStr::new(SCANNED)).cloned();
        let mut scanned = named
            .or_else(|| std::env::var_os(SCANNED))
            .unwrap_or_default();
        scanned.push(":");
        scanned.push(home.ini());
        env.insert(SCANNED.into(), scanned);
        // php -S would fork processes that nobody here knows.
        env.remove(OsStr::new("PHP_CLI_SERVER_WORKERS"));
        if let Some(file) = &spec.ini_file {
            // PHP would go on without it, and say nothing.
            std::fs::File::open(file)
                .with_context(|| format!("cannot read {} (engine.ini_file)", file.display()))?;
            env.insert("PHPRC".into(), file.into());
        }
        Ok(Launch {
            program: spec.program.clone(),
            user,
            env,
        })
    }

    /// The program, without arguments.
    pub fn command(&self, orphan: Orphan, fds: Vec<(OwnedFd, RawFd)>) -> io::Result<Command> {
        let user = self.user.as_ref();
        self.start(
            user.map(|(user, groups)| (user, groups.as_slice())),
            orphan,
            fds,
        )
    }

    /// The same for a program that becomes the user by itself.
    pub fn command_of_ours(&self, orphan: Orphan) -> io::Result<Command> {
        self.start(None, orphan, Vec::new())
    }

    fn start(
        &self,
        user: Option<(&User, &[u32])>,
        orphan: Orphan,
        fds: Vec<(OwnedFd, RawFd)>,
    ) -> io::Result<Command> {
        let mut command = Command::new(&self.program);
        command.env_clear().envs(&self.env);
        process::child(&mut command, user, orphan, fds)?;
        Ok(command)
    }
}

/// Directories with ini files, with colons between (PHP manual, "The configuration file").
const SCANNED: &str = "PHP_INI_SCAN_DIR";

/// As our own workers have it.
fn environment(spec: &Spec) -> BTreeMap<OsString, OsString> {
    let mut env: BTreeMap<OsString, OsString> = std::env::vars_os()
        .filter(|(name, _)| !spec.clear_env || name == "USER" || name == "HOME")
        .collect();
    if let Some(user) = &spec.user {
        env.insert("USER".into(), user.name.clone().into());
        env.insert("HOME".into(), user.home.clone().into());
    }
    let set = spec.env.iter();
    env.extend(set.map(|(name, value)| (name.into(), value.into())));
    env
}

/// The program that is configured, or the one of the first of these names in PATH, or where systems have it that do not let everybody
/// find it.
pub fn find(
    configured: Option<&Path>,
    setting: &str,
    names: &[String],
    package: &str,
) -> anyhow::Result<PathBuf> {
    if let Some(program) = configured {
        if !program.is_file() {
            bail!(
                "{setting} names {}, which does not exist",
                program.display()
            );
        }
        return Ok(program.to_path_buf());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from));
    let candidates = names
        .iter()
        .flat_map(|name| places.iter().map(move |place| place.join(name)));
    let found = candidates.into_iter().find(|program| program.is_file());
    found.with_context(|| {
        format!(
            "no {} in PATH; install it (Debian: {package}) or name it in {setting}",
            names.first().map_or("", String::as_str)
        )
    })
}
