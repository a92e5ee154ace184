//! Checks that temporary files can be created, by this process or as the front end's user.

use std::fs::File;
use std::io::{Read, Write};

use anyhow::{Context, anyhow, bail};
use surus_sys::fork;
use surus_sys::privileges;

use super::keeper_tasks;
use crate::config::Config;
use crate::spool::TempFile;

/// Checks that temporary files can be created. A configured directory must work; without one, only
/// large bodies are rejected.
pub fn check_this_process(config: &Config) -> anyhow::Result<Option<String>> {
    match (
        TempFile::create(config.http.temp_dir.as_deref()),
        &config.http.temp_dir,
    ) {
        (Ok(_), _) => Ok(None),
        (Err(error), Some(directory)) => Err(anyhow!(error).context(format!(
            "cannot create a file in {} (http.temp_dir) as uid {}, the front end's user; let that \
             user write there, or set http.user",
            directory.display(),
            surus_sys::process::uid()
        ))),
        (Err(error), None) => Ok(Some(format!(
            "cannot create a file in {} ({error}), so bodies above 64 KiB are rejected; name \
             another directory in http.temp_dir",
            std::env::temp_dir().display()
        ))),
    }
}

/// As [`check_this_process`], but as the front end's user. Called while this process has one
/// thread.
pub fn check_front_end(config: &Config) -> anyhow::Result<Option<String>> {
    if !surus_sys::process::has_other_users() {
        return check_this_process(config);
    }
    let (_, front, _) = keeper_tasks::users(config)?;
    let check = |mut report: &File| {
        let given_up = privileges::give_up(&front).map_err(anyhow::Error::from);
        let (status, text) = match given_up.and_then(|_| check_this_process(config)) {
            Ok(None) => return 0,
            Ok(Some(problem)) => (1, problem),
            Err(error) => (2, format!("{error:#}")),
        };
        let written = report.write_all(text.as_bytes());
        written.map_or(2, |()| status)
    };
    let (status, mut report) = fork::ask(&[], check).context("cannot fork a process")?;
    let mut text = String::new();
    report.read_to_string(&mut text)?;
    match status {
        Some(0) => Ok(None),
        Some(1) => Ok(Some(text)),
        _ => bail!(text),
    }
}
