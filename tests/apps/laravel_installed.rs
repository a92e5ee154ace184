//! A Laravel application for tests of packages, as `laravel new` and Composer install it.

use std::path::Path;
use std::process::Command;

use super::site::framework;
use crate::common::php::cli;

/// Writes an application with Laravel 13 and its libraries (`scripts/laravel-site`).
pub fn write(project: &Path) {
    framework("laravel13");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/laravel-site");
    let made = Command::new(script)
        .arg(project)
        .env("PHP", cli())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}
