//! Tests that an executable of a Laravel application has the directories that Laravel writes to.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use super::{build_of, unpacked};
use crate::apps::laravel_installed;
use crate::common::Surus;
use crate::{get, project};

const NOBODY: u32 = 65534;

/// Starts the executable as a user, who may write to what it unpacks.
fn start(app: &Path, base: &Path, home: &Path, engine: &str) -> Surus {
    let is_root = surus_sys::process::is_root();
    let mut command = Command::new(if is_root { "setpriv" } else { "env" });
    if is_root {
        for directory in [base, home] {
            chown(directory, Some(NOBODY), None).unwrap();
        }
        let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        command.args(ids).arg("--clear-groups");
    }
    command.arg(app).args(["--engine", engine]);
    let home = home.to_str().unwrap();
    let env = [
        ("SURUS_BUILD_DIR", base.to_str().unwrap()),
        ("STATE_DIRECTORY", home),
        ("XDG_RUNTIME_DIR", home),
        // There is no database.
        ("SURUS_ENV_CACHE_STORE", "file"),
        ("SURUS_ENV_LOG_CHANNEL", "single"),
        ("SURUS_ENV_SESSION_DRIVER", "file"),
    ];
    Surus::start(command, &[], &env).unwrap_or_else(|log| panic!("{engine}: {log}"))
}

/// The number of files below a directory, without those that the package has.
fn written(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let count = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => written(&entry.path()),
        false => usize::from(entry.file_name() != ".gitignore"),
    };
    entries.map(count).sum()
}

#[test]
fn laravel_writes_into_its_executable_s_directory() {
    let installed = project(&[]);
    laravel_installed::write(installed.path());
    // As in a clone, in which git ignores the content.
    fs::remove_dir_all(installed.path().join("bootstrap/cache")).unwrap();
    let dir = project(&[]);
    let app = dir.path().join("shop");
    let said = build_of(installed.path(), &["--dynamic"], &app);
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    for engine in ["classic", "rewind"] {
        let (base, home) = (project(&[]), project(&[]));
        let surus = start(&app, base.path(), home.path(), engine);
        for (path, expected) in [
            ("/", "Hello, &lt;Gisgo&gt;!"),
            ("/cache", "cached"),
            ("/log", "logged"),
            ("/visits", "visit 1"),
        ] {
            let answer = get(&surus, path);
            assert_eq!(answer, (200, expected.into()), "{engine} {}", surus.log());
        }
        let root = unpacked(base.path()).join("app");
        for name in [
            "bootstrap/cache",
            "storage/framework/cache",
            "storage/framework/sessions",
            "storage/framework/views",
            "storage/logs",
        ] {
            let count = written(&root.join(name));
            assert!(count > 0, "{engine}: nothing in {name}");
        }
    }
}
