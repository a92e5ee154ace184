//! Starts the application that `surus build` has appended to this program.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;

use super::Cli;
use crate::engines;
use crate::observe::log;
use crate::package::executable::AppendedZip;
use crate::package::executable::unpack::UnpackedApplication;

/// Inserts `serve` into arguments that begin with no command, and the directory of `lambda`.
pub(super) fn complete(words: &mut Vec<OsString>) {
    if AppendedZip::of_this_program().is_none() {
        return;
    }
    let first = words.get(1).and_then(|word| word.to_str());
    let is_command = first.is_some_and(|word| {
        let other = ["help", "--version", "-V"].contains(&word);
        other || Cli::command().find_subcommand(word).is_some()
    });
    if !is_command {
        words.insert(words.len().min(1), "serve".into());
    }
    // The default would be the directory in LAMBDA_TASK_ROOT.
    let is_function = words.get(1).is_some_and(|word| word == "lambda");
    let has_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    if is_function && words.get(2).is_none_or(has_option) {
        words.insert(2, ".".into());
    }
}

/// Unpacks the application if this program has one, and makes its directory the current one, which
/// commands use by default. The caller keeps the application as long as it runs.
pub(super) fn enter() -> anyhow::Result<Option<UnpackedApplication>> {
    let Some(zip) = AppendedZip::of_this_program() else {
        return Ok(None);
    };
    let base = env::var_os("SURUS_BUILD_DIR").filter(|directory| !directory.is_empty());
    let unpacked = zip.unpack(&base.map_or_else(env::temp_dir, PathBuf::from))?;
    let directory = unpacked.directory();
    if surus_sys::process::has_other_users() {
        let environment = crate::config::env::read()?.into_iter();
        let config = crate::config::load(&directory, None, environment, None)?.config;
        let user = engines::find_user(&config.engine).context(
            "started as root, so that PHP runs as another user; or start this program as a user, \
             as with chroot --userspec, User= of systemd or USER of an image",
        )?;
        if let Some(user) = user {
            unpacked
                .admit(user.gid)
                .with_context(|| format!("cannot give {} to PHP's group", directory.display()))?;
        }
    }
    env::set_current_dir(&directory)
        .with_context(|| format!("cannot enter {}", directory.display()))?;
    if unpacked.lacks_zones {
        log::print(
            "surus: PHP knows no time zones but UTC, because this system has none and the path of \
             SURUS_BUILD_DIR or TMPDIR has more than 4 characters; unpack into /tmp\n",
        );
    }
    Ok(Some(unpacked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_without_an_application_keeps_its_arguments() {
        let mut words = vec![OsString::from("surus"), "--listen".into()];
        complete(&mut words);
        assert_eq!(words, ["surus", "--listen"]);
        assert!(enter().is_ok_and(|unpacked| unpacked.is_none()));
    }
}
