//! Prepares the start of php-fpm's master process: its configuration, user and sockets.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::{Context, ensure};
use tracing::info;

use super::runtime_dir::OwnDir;
use super::{PhpSpec, ProgramKind};

/// The socket of a pool in its directory.
pub fn socket(index: usize) -> String {
    format!("{index}.sock")
}

/// Whether php-fpm's master process gives up root before it starts. php-fpm reads its settings as
/// root otherwise, and so runs, reads and writes what they name. Its processes are then dumpable,
/// so that scripts can read the memory of others of the same user.
pub fn is_unprivileged(spec: &PhpSpec) -> bool {
    let is_other = spec.user.as_ref().is_some_and(|user| user.uid != 0);
    is_other && (spec.is_replaceable || spec.names_foreign_files)
}

/// Whether php-fpm's master process is root, and only its children are PHP's user's.
pub fn is_roots(spec: &PhpSpec) -> bool {
    let is_other = spec.user.as_ref().is_some_and(|user| user.uid != 0);
    spec.way == ProgramKind::Fpm && is_other && !is_unprivileged(spec)
}

/// The variables of the children of a master process that is root: name, and value. Libraries in
/// the master process read none of them, because there they have [other names](carriers).
fn variables(spec: &PhpSpec) -> BTreeMap<&str, &OsStr> {
    let mut all = BTreeMap::new();
    if let Some(user) = &spec.user {
        all.insert("USER", OsStr::new(&user.name));
        all.insert("HOME", user.home.as_os_str());
    }
    let set = spec.env.iter();
    all.extend(set.map(|(name, value)| (name.as_str(), OsStr::new(value))));
    all
}

fn carrier(index: usize) -> String {
    format!("SURUS_POOL_{index}")
}

/// The variables by which the master process gets the values of [`variables`]. php-fpm's
/// configuration could not express every value.
pub fn carriers(spec: &PhpSpec) -> impl Iterator<Item = (OsString, OsString)> {
    let values = variables(spec).into_values().enumerate();
    values.map(|(index, value)| (carrier(index).into(), value.into()))
}

/// The sockets of a php-fpm that may not create them, in the order of the pools.
pub fn listeners(spec: &PhpSpec, runtime_dir: &OwnDir) -> anyhow::Result<Vec<OwnedFd>> {
    let listen = |index| {
        let path = runtime_dir.path(&socket(index));
        let bind = || {
            let listener = UnixListener::bind(&path)?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            std::os::unix::fs::chown(&path, runtime_dir.front(), None)?;
            Ok::<_, io::Error>(listener.into())
        };
        bind().with_context(|| format!("cannot listen on {}", path.display()))
    };
    if spec.address.is_none() && !spec.is_replaceable && is_unprivileged(spec) {
        info!(
            pool = spec.name,
            "the configuration names code, ini files or files that are not root's for php-fpm \
             ([php], [env]); its master process runs as PHP's user"
        );
    }
    match spec.address {
        None if is_unprivileged(spec) => (0..spec.workers).map(listen).collect(),
        _ => Ok(Vec::new()),
    }
}

/// The variable by which php-fpm takes over listening sockets (`fpm_sockets.c`), for descriptors
/// from this number on.
pub fn inherited(runtime_dir: &Path, count: usize, first: RawFd) -> (&'static str, OsString) {
    let mut value = OsString::new();
    for (index, fd) in (0..count).zip(first..) {
        value.push(if index == 0 { "" } else { "," });
        value.push(runtime_dir.join(socket(index)));
        value.push(format!("={fd}"));
    }
    ("FPM_SOCKETS", value)
}

/// The content of the configuration file.
pub fn configuration(spec: &PhpSpec, runtime_dir: &OwnDir) -> anyhow::Result<String> {
    // A process that is not root cannot open the pipe of its stderr, and writes there by
    // `--force-stderr`.
    let log = match is_unprivileged(spec) {
        true => "/dev/null",
        false => "/proc/self/fd/2",
    };
    let mut text = format!("[global]\nerror_log = {log}\nlog_level = warning\nlog_limit = 65536\n");
    for index in 0..spec.workers {
        let socket = runtime_dir.path(&socket(index));
        let socket = socket
            .to_str()
            .context("the path of a socket is not UTF-8")?;
        write!(
            text,
            "[{index}]\nlisten = {socket}\nlisten.mode = 0600\n\
             pm = static\npm.max_children = 1\npm.max_requests = {}\n\
             clear_env = {}\ncatch_workers_output = yes\ndecorate_workers_output = no\n\
             security.limit_extensions =\n",
            spec.max_requests,
            if is_roots(spec) && spec.clear_env {
                "yes"
            } else {
                "no"
            }
        )?;
        if is_unprivileged(spec) {
            continue;
        }
        if let Some(front) = runtime_dir.front() {
            writeln!(text, "listen.owner = {front}")?;
        }
        if let Some(user) = &spec.user {
            write!(text, "user = {}\ngroup = {}\n", user.uid, user.gid)?;
        }
        let names = is_roots(spec).then(|| variables(spec).into_keys());
        for (index, name) in names.into_iter().flatten().enumerate() {
            ensure!(
                name.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)),
                "php-fpm cannot pass on a variable named {name:?} ([env]); use letters, digits \
                 and underscores"
            );
            writeln!(text, "env[{name}] = ${}", carrier(index))?;
        }
    }
    Ok(text)
}
