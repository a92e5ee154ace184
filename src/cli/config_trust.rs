//! Checks that PHP's user can change neither the configuration of a server that root starts nor the
//! programs that it names.
//!
//! Both decide what root runs, and as which user PHP runs.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use surus_sys::privileges::{self, Identity};
use surus_sys::process::{self, User};
use surus_sys::{regular_file, trusted_path};
use tracing::warn;

use crate::config::sites::is_inherited;
use crate::config::{Config, Loaded};
use crate::engines::external::command;
use crate::engines::{self, Settings};

/// An error if a user of PHP could have written one of the files, or could replace what root runs.
/// Those are the users of all sites, and the ones without configuration, because the file itself
/// may name others. A file that any other user can replace may name neither root nor what root
/// runs. For a process with one thread.
///
/// PHP's users of the configuration in use may have written it, too, if there is one.
pub(super) fn check(loaded: &Loaded, used: Option<&Config>, project: &Path) -> anyhow::Result<()> {
    if !process::has_other_users() {
        return Ok(());
    }
    let all = &loaded.config;
    let users = users([all].into_iter().chain(used));
    let named = named_by(all);
    let is_named = |setting: &NamedByFile| named.contains(setting) && is_in_environment(setting.0);
    check_for(loaded, all, project, &users, &is_named)?;
    for site in &all.sites {
        let own = site.directory(project);
        // The environment sets what is common, and a site may set the same differently.
        let is_named = |setting: &NamedByFile| is_inherited(setting.0) && is_named(setting);
        let checked = check_for(loaded, &site.config, own, &users, &is_named);
        checked.map_err(|error| site.context(error))?;
    }
    Ok(())
}

/// The users that PHP of any site runs as, with and without configuration, except root.
fn users<'a>(configs: impl Iterator<Item = &'a Config>) -> Vec<User> {
    let with_sites = |config: &'a Config| {
        let sites = config.sites.iter().map(|site| &site.config);
        [config].into_iter().chain(sites)
    };
    let mut users: Vec<User> = Vec::new();
    for config in configs.flat_map(with_sites) {
        let settings = &config.engine;
        let default = Settings {
            user: None,
            group: None,
            ..settings.clone()
        };
        for settings in [settings, &default] {
            // A user that does not exist is reported elsewhere, and cannot write.
            if let Ok(Some(user)) = engines::find_user(settings)
                && user.uid != 0
                && !users
                    .iter()
                    .any(|known| (known.uid, known.gid) == (user.uid, user.gid))
            {
                users.push(user);
            }
        }
    }
    users
}

/// The same for the configuration of one site, or of the server. `is_named` tells which settings
/// come from the environment.
fn check_for(
    loaded: &Loaded,
    config: &Config,
    project: &Path,
    users: &[User],
    is_named: &dyn Fn(&NamedByFile) -> bool,
) -> anyhow::Result<()> {
    let programs = programs(config).filter_map(|(setting, path)| match setting {
        INI_FILE => std::path::absolute(path).ok(),
        _ => command::resolved(path),
    });
    let run = programs.map(|path| (path, RUN));
    let keys = keys(config).map(|(_, path)| (project.join(path), SERVE));
    for (path, danger) in run.chain(keys) {
        let opened = match regular_file::open(&path) {
            // Reported elsewhere.
            Err(error)
                if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) =>
            {
                None
            }
            opened => Some(opened.with_context(|| format!("cannot read {}", path.display()))?),
        };
        if let Some(file) = opened {
            check_file(&path, &file, users, danger)?;
            check_directories(&path, users, danger)?;
        }
    }
    for (path, file) in files(loaded) {
        check_file(path, file, users, RUN)?;
        if !is_roots(path, file) {
            check_what_root_runs(path, config, is_named)?;
        }
    }
    Ok(())
}

/// What a user who may change a file can do.
const RUN: &str = "make root run any program";
const SERVE: &str = "make Surus serve any key and certificate that root may read";

/// Warnings if another user than root can replace the configuration, or read secrets in it.
pub(super) fn warnings(loaded: &Loaded) -> Vec<String> {
    let replaced = replaceable(loaded).map(|path| {
        format!(
            "another user than root can replace {}, and so decide which files are served and \
             which user runs PHP; let it and its directory belong to root, or start Surus as that \
             user",
            path.display()
        )
    });
    replaced.into_iter().chain(readable(loaded)).collect()
}

/// A warning if PHP of one site may read secrets of another in the configuration.
fn readable(loaded: &Loaded) -> Option<String> {
    if loaded.config.sites.is_empty() {
        return None;
    }
    let (path, secret) = (loaded.file.as_deref()?, loaded.secret?);
    let found = loaded.opened.as_ref()?.metadata().ok()?;
    let is_found = process::has_other_users() && found.is_file();
    let mode = found.mode() & 0o777;
    (is_found && is_open_to_others(mode, found.gid())).then(|| {
        format!(
            "{} sets {secret}, which may be secret, and its mode {mode:o} lets other users read \
             it, also PHP of other sites; let only root read it (chmod 600)",
            path.display()
        )
    })
}

/// Whether the mode lets another user than root and the owner read a file of this group.
fn is_open_to_others(mode: u32, group: u32) -> bool {
    mode & 0o004 != 0 || mode & 0o040 != 0 && group != 0
}

/// Logs such warnings.
pub(super) fn report(warnings: Vec<String>) {
    for reason in warnings {
        warn!(reason, "the configuration is not safe from other users");
    }
}

/// The configuration file that another user than root can replace, if root starts the server.
pub(super) fn replaceable(loaded: &Loaded) -> Option<&Path> {
    if !process::has_other_users() {
        return None;
    }
    files(loaded)
        .find(|(path, file)| !is_roots(path, file))
        .map(|(path, _)| path)
}

/// The configuration files that were read.
fn files(loaded: &Loaded) -> impl Iterator<Item = (&Path, &File)> {
    let own = loaded.file.as_deref().zip(loaded.opened.as_ref());
    let roadrunner = loaded.roadrunner.as_ref();
    let roadrunner = roadrunner.and_then(|read| Some((&*read.file, read.opened.as_ref()?)));
    own.into_iter().chain(roadrunner)
}

/// Whether only root can write or replace the file. One from a pipe is root's, too. A file with an
/// access list has its mask in the bits of the group.
fn is_roots(path: &Path, file: &File) -> bool {
    let only_root = |file: Metadata| file.uid() == 0 && file.mode() & 0o022 == 0;
    let path = std::path::absolute(path);
    file.metadata().is_ok_and(only_root)
        && path.is_ok_and(|path| match trusted_path::is_fixed(&path) {
            Ok(is_fixed) => is_fixed,
            Err(error) => error.kind() != ErrorKind::PermissionDenied,
        })
}

const INI_FILE: &str = "engine.ini_file";

/// The programs and ini files that root runs or reads because the configuration names them: setting
/// and path.
fn programs(config: &Config) -> impl Iterator<Item = (&'static str, &Path)> {
    let engine = &config.engine;
    let programs = [
        (INI_FILE, &engine.ini_file),
        ("engine.surus_php", &engine.surus_php),
        ("engine.php_cgi", &engine.php_cgi),
        ("engine.php_fpm", &engine.php_fpm),
        ("engine.php_cli", &engine.php_cli),
        ("engine.dynamic_loader", &engine.dynamic_loader),
    ];
    programs
        .into_iter()
        .filter_map(|(setting, path)| Some((setting, path.as_deref()?)))
}

/// The files of `[tls]` and `[acme]`, which root reads for the front end.
fn keys(config: &Config) -> impl Iterator<Item = (&'static str, &PathBuf)> {
    let tls = &config.tls;
    let settings = [("tls.certificate", &tls.certificate), ("tls.key", &tls.key)];
    let authorities = config.acme.authority_ca.iter();
    let authorities = authorities.map(|path| ("acme.authority_ca", path));
    let files = settings
        .into_iter()
        .flat_map(|(setting, paths)| paths.iter().map(move |path| (setting, path)));
    let clients = tls.client_ca.iter().map(|path| ("tls.client_ca", path));
    files.chain(clients).chain(authorities)
}

/// A setting that names root, or what root runs, with its value.
type NamedByFile = (&'static str, String);

/// All of them in a configuration.
fn named_by(config: &Config) -> Vec<NamedByFile> {
    let engine = engines::find_user(&config.engine).ok().flatten();
    let engine = engine.as_ref();
    let front = config
        .http
        .user
        .as_deref()
        .map(|name| process::find_user(name, None));
    let front = front.and_then(|found| found.ok().flatten());
    let is_root = |user: Option<&User>| user.is_some_and(|user| user.uid == 0);
    let is_foreign = |_: &&String| engine.is_some_and(|user| !is_member(user));
    let text = |path: &PathBuf| path.display().to_string();
    let settings = &config.engine;
    let roots = [
        (
            "engine.user",
            settings.user.clone().filter(|_| is_root(engine)),
        ),
        (
            "engine.group",
            settings.group.as_ref().filter(is_foreign).cloned(),
        ),
        (
            "http.user",
            config.http.user.clone().filter(|_| is_root(front.as_ref())),
        ),
        // Root creates these.
        ("acme.directory", config.acme.directory.as_ref().map(text)),
        ("access_log.file", config.access_log.file.as_ref().map(text)),
        ("log.file", config.log.file.as_ref().map(text)),
        // Root connects to it.
        (
            "engine.php_fpm_address",
            settings.php_fpm_address.clone().map(String::from),
        ),
    ];
    let roots = roots.into_iter();
    let roots = roots.filter_map(|(setting, value)| Some((setting, value?)));
    let programs = programs(config).map(|(setting, path)| (setting, path.display().to_string()));
    let keys = keys(config).map(|(setting, path)| (setting, text(path)));
    roots.chain(programs).chain(keys).collect()
}

/// Whether the environment sets it for all sites.
fn is_in_environment(setting: &str) -> bool {
    let variable = setting.to_uppercase().replace('.', "_");
    std::env::var_os(format!("SURUS_{variable}")).is_some()
}

/// An error if a configuration that another user than root can replace names root, or what root
/// runs. The environment may name it.
fn check_what_root_runs(
    path: &Path,
    config: &Config,
    is_named: &dyn Fn(&NamedByFile) -> bool,
) -> anyhow::Result<()> {
    match named_by(config).iter().find(|setting| !is_named(setting)) {
        None => Ok(()),
        Some((setting, _)) => bail!(
            "{} sets {setting}, but another user than root can replace the file; let it and its \
             directory belong to root, or use --config with a file of root's, or set it in the \
             environment (SURUS_ENGINE_USER=...)",
            path.display()
        ),
    }
}

/// Whether the group that PHP runs with is one of its user's own. Others, such as `shadow` and
/// `disk`, may be as good as root.
fn is_member(user: &User) -> bool {
    let Ok(Some(own)) = process::find_user(&user.name, None) else {
        return false;
    };
    process::groups(&own).is_ok_and(|groups| user.gid != 0 && groups.contains(&user.gid))
}

/// An error if one of the users can exchange a directory on the way to a file.
fn check_directories(path: &Path, users: &[User], danger: &str) -> anyhow::Result<()> {
    let path = std::path::absolute(path)?;
    let real = path.canonicalize()?;
    let ways = [&path, &real];
    for directory in ways.into_iter().flat_map(|way| way.ancestors().skip(1)) {
        let is_sticky = directory.metadata()?.mode() & 0o1000 != 0;
        let opened = File::open(directory)?;
        for user in users {
            let owns = opened.metadata()?.uid() == user.uid;
            if owns || (!is_sticky && may_write_directory(&opened, user)?) {
                bail!(
                    "PHP's user {} may change {}, and could thereby {danger} as {}; let the \
                     directory belong to root, with mode 755",
                    user.name,
                    directory.display(),
                    path.display()
                );
            }
        }
    }
    Ok(())
}

fn check_file(path: &Path, file: &File, users: &[User], danger: &str) -> anyhow::Result<()> {
    for user in users {
        if may_change(file, user)? {
            bail!(
                "PHP's user {} may change {}, and could thereby {danger}; let it belong to root, \
                 and let only root write to it, or start Surus as {}",
                user.name,
                path.display(),
                user.name
            );
        }
    }
    Ok(())
}

/// Whether a user may write to a file, or give itself the right to.
fn may_change(file: &File, user: &User) -> anyhow::Result<bool> {
    if file.metadata()?.uid() == user.uid {
        return Ok(true);
    }
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    // Access lists count, too, so the kernel decides.
    as_user(user, || match File::options().write(true).open(name) {
        Ok(_) => true,
        // A program that runs: the kernel checks first whether the user may write.
        Err(error) => error.kind() == ErrorKind::ExecutableFileBusy,
    })
}

/// Whether a user may create and rename files in a directory.
fn may_write_directory(directory: &File, user: &User) -> anyhow::Result<bool> {
    as_user(user, || process::may_write(directory))
}

fn as_user<T>(user: &User, look: impl FnOnce() -> T) -> anyhow::Result<T> {
    let identity = Identity::new(user).with_context(|| {
        format!(
            "cannot read the supplementary groups of user {} (engine.user)",
            user.name
        )
    })?;
    privileges::with_access_of(&identity, look).with_context(|| {
        format!(
            "cannot become PHP's user {} (engine.user); a server that is started as root needs the \
             capabilities CAP_SETUID, CAP_SETGID and CAP_KILL",
            user.name
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests;
