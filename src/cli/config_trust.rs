//! Checks that PHP's user cannot change the configuration of a server that root starts, nor the
//! programs and settings that it names: they decide what root runs, and as whom PHP runs.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use surus_sys::privileges::{self, Identity};
use surus_sys::process::{self, User};

use crate::config::Loaded;
use crate::engines::{self, Settings};

/// An error if PHP's user could have written one of the files. That is the configured user, and the
/// one without configuration: the file itself may name another. For a process with one thread.
pub(super) fn check(loaded: &Loaded) -> anyhow::Result<()> {
    if !process::has_other_users() {
        return Ok(());
    }
    let settings = &loaded.config.engine;
    let default = Settings {
        user: None,
        group: None,
        ..settings.clone()
    };
    // A user that does not exist is reported elsewhere, and cannot write.
    let users: Vec<User> = [settings, &default]
        .into_iter()
        .filter_map(|settings| engines::find_user(settings).ok().flatten())
        .filter(|user| user.uid != 0)
        .collect();
    for (path, file) in named(settings) {
        refuse(path, &file, &users)?;
    }
    match (&loaded.file, &loaded.opened) {
        (Some(path), Some(file)) => refuse(path, file, &users),
        _ => Ok(()),
    }
}

/// A warning if the configuration belongs to another user than root.
pub(super) fn warning(loaded: &Loaded) -> Option<String> {
    let (path, file) = (loaded.file.as_ref()?, loaded.opened.as_ref()?);
    let owner = file.metadata().ok()?.uid();
    (owner != 0 && process::has_other_users()).then(|| {
        format!(
            "{} belongs to the user {owner}, who can so have root run any program; let it belong \
             to root, or start Surus as that user",
            path.display()
        )
    })
}

/// The files that root reads or runs because the configuration names them. One that cannot be
/// opened is reported elsewhere.
fn named(settings: &Settings) -> impl Iterator<Item = (&Path, File)> {
    let all: [&Option<PathBuf>; 6] = [
        &settings.ini_file,
        &settings.surus_php,
        &settings.php_cgi,
        &settings.php_fpm,
        &settings.php_cli,
        &settings.dynamic_loader,
    ];
    let paths = all.into_iter().flatten().filter(|path| path.is_file());
    paths.filter_map(|path| Some((path.as_path(), File::open(path).ok()?)))
}

fn refuse(path: &Path, file: &File, users: &[User]) -> anyhow::Result<()> {
    for user in users {
        if may_change(file, user)? {
            bail!(
                "PHP's user {} may change {}, and so have root run any program; let it belong to \
                 root, with mode 644, or start Surus as {}",
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
    let identity = Identity::of(user).with_context(|| {
        format!(
            "cannot read the supplementary groups of user {} (engine.user)",
            user.name
        )
    })?;
    // Access lists count, too, so the kernel decides.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let open = || match File::options().write(true).open(name) {
        Ok(_) => true,
        // A program that runs: what is asked first is whether the user may write.
        Err(error) => error.kind() == ErrorKind::ExecutableFileBusy,
    };
    privileges::with_access_of(&identity, open).with_context(|| {
        format!(
            "cannot become PHP's user {} (engine.user); a server that is started as root needs the \
             capabilities CAP_SETUID and CAP_SETGID",
            user.name
        )
    })
}
