//! Tests `surus build`: executables that unpack themselves, and serve their application.

mod damage;
mod empty_root;
mod laravel;
mod unpacking;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::Surus;
use crate::common::php::all_extensions;
use crate::{Said, get, project, run, says};

/// What all tests build.
const FILES: [(&str, &str); 8] = [
    (
        "public/index.php",
        "<?php require __DIR__.'/../src/page.php'; page();",
    ),
    (
        "boot.php",
        "<?php require __DIR__.'/src/page.php'; surus_serve(page(...));",
    ),
    ("src/page.php", include_str!("build/page.php")),
    ("public/style.css", "p { color: teal }"),
    ("src/kept.php", "<?php return 'kept';"),
    ("auth.json", "secret"),
    (".env.local", "SECRET=1"),
    (
        "surus.toml",
        "[env]\nGREETING = 'hello'\n[php]\nmemory_limit = '77M'\n[deploy.env]\nDSN = 'secret'\n",
    ),
];

/// An executable, and what `surus build` has said of it.
struct BuiltApp {
    dir: tempfile::TempDir,
    said: String,
}

fn build(args: &[&str], output: &Path) -> Said {
    build_of(project(&FILES).path(), args, output)
}

fn build_of(project: &Path, args: &[&str], output: &Path) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command
        .arg("build")
        .arg(project)
        .arg("-o")
        .arg(output)
        .args(args);
    let (name, directory) = all_extensions();
    run(command.env(name, directory))
}

/// An executable with the surus under test, which is not static. It is built once.
fn app() -> PathBuf {
    built().dir.path().join("shop")
}

fn built() -> &'static BuiltApp {
    static BUILT: OnceLock<BuiltApp> = OnceLock::new();
    BUILT.get_or_init(|| {
        let dir = project(&[]);
        let said = build(&["--dynamic"], &dir.path().join("shop"));
        let said = [said.stdout, said.stderr].concat();
        assert!(dir.path().join("shop").is_file(), "{said}");
        BuiltApp { dir, said }
    })
}

/// The app's arguments, in a directory of its own for what it unpacks.
fn command(app: &Path, base: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(app);
    command.args(args).env("SURUS_BUILD_DIR", base);
    // `check` tries to listen, and other tests run it, too.
    command.env("SURUS_HTTP_LISTEN", "127.0.0.1:0");
    command
}

/// The directory into which the app has unpacked itself.
fn unpacked(base: &Path) -> PathBuf {
    let mut entries = fs::read_dir(base).unwrap();
    let only = entries.next().unwrap().unwrap();
    assert!(entries.next().is_none());
    only.path()
}

#[test]
fn executable_serves_pages_and_files_of_its_application() {
    let base = project(&[]);
    let surus = Surus::start(command(&app(), base.path(), &[]), &[], &[]);
    let surus = surus.unwrap_or_else(|log| panic!("{log}"));
    let root = unpacked(base.path());
    let public = root.join("app/public");
    let (status, page) = get(&surus, "/");
    assert_eq!(status, 200, "{page}");
    says(&page, &[&format!("hello from {} 77M", public.display())]);
    assert_eq!(get(&surus, "/style.css"), (200, "p { color: teal }".into()));
    let settings = fs::read_to_string(root.join("app/surus.toml")).unwrap();
    assert!(!settings.contains("DSN") && !settings.contains("@surus-build@"));
    // The same executable asks the one that runs.
    let said = run(&mut command(&app(), base.path(), &["status", "--ready"]));
    assert_eq!(said.status, 0, "{}", said.stderr);
    // A second one serves from the same files.
    let admin = [("SURUS_ADMIN_LISTEN", "127.0.0.1:0")];
    let second = Surus::start(command(&app(), base.path(), &["serve"]), &[], &admin);
    let second = second.unwrap_or_else(|log| panic!("{log}"));
    assert_eq!(get(&second, "/style.css").0, 200);
    assert_eq!(unpacked(base.path()), root);
}

#[test]
fn build_says_what_it_leaves_out() {
    let said = &built().said;
    says(
        said,
        &[
            "PHP 8.",
            "extensions: ",
            "credentials of tools: 1 (auth.json)",
            ".env.local",
            ".surus/lib/",
            "unpacked",
            "written: ",
        ],
    );
    let base = project(&[]);
    let checked = run(&mut command(&app(), base.path(), &["check"]));
    assert_eq!(checked.status, 0, "{}{}", checked.stdout, checked.stderr);
    let root = unpacked(base.path());
    for (name, is_there) in [
        ("app/public/index.php", true),
        ("app/src/kept.php", true),
        ("app/auth.json", false),
        ("app/.env.local", false),
    ] {
        assert_eq!(root.join(name).exists(), is_there, "{name}");
    }
}

#[test]
fn surus_that_cannot_be_the_base_is_rejected() {
    let dir = project(&[("directory/file", "")]);
    let output = dir.path().join("out");
    let surus = env!("CARGO_BIN_EXE_surus");
    let app = app();
    for (args, expected) in [
        (&["--surus", surus][..], "make musl"),
        (
            &["--dynamic", "--surus", app.to_str().unwrap()],
            "has an application already; name a surus without one (--surus)",
        ),
        (&["--extension", "no_such"], "the extension no_such"),
    ] {
        let said = build(args, &output);
        assert_eq!(said.status, 1, "{args:?}");
        says(&said.stderr, &[expected]);
        assert!(!output.exists());
    }
    let said = build(&["--dynamic"], &dir.path().join("directory"));
    assert_eq!(said.status, 1);
    says(&said.stderr, &["is a directory; name the executable"]);
}

#[test]
fn arguments_without_a_command_are_those_of_serve() {
    let said = run(Command::new(app()).arg("--help"));
    assert_eq!(said.status, 0);
    says(
        &said.stdout,
        &["Serve an application over HTTP", "--listen"],
    );
    let said = run(Command::new(app()).arg("--version"));
    says(
        &said.stdout,
        &[concat!("surus ", env!("CARGO_PKG_VERSION"))],
    );
    let said = run(Command::new(app()).args(["check", "--help"]));
    says(&said.stdout, &["--boot"]);
}
