//! Tests that the zip of `surus lambda package` runs without anything else from this machine.

mod laravel;
mod run;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::empty_root::static_surus;

/// An application that reports how it runs.
struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Project {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write(
            "index.php",
            "<?php\nrequire __DIR__.'/answer.php';\nanswer();\n",
        );
        write(
            "worker.php",
            "<?php\nrequire __DIR__.'/answer.php';\nsurus_serve(answer(...));\n",
        );
        write("answer.php", include_str!("package/answer.php"));
        write(
            "events.php",
            "<?php
return fn (array $event) => [
    'number' => $event['number'] + 1,
    'engine' => getenv('SURUS_ENGINE'),
];
",
        );
        let library = concat!(env!("CARGO_MANIFEST_DIR"), "/php/lambda/events.php");
        let settings = format!(
            "[php]
memory_limit = '77M'
[env]
GREETING = 'hello'
[lambda]
handler = 'events.php'
script = '{library}'
"
        );
        write("surus.toml", &settings);
        Project(dir)
    }

    fn package(&self, output: &Path, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
        command
            .args(["lambda", "package"])
            .arg(self.0.path())
            .arg("-o")
            .arg(output)
            .args(args);
        command.output().unwrap()
    }
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

#[test]
fn same_project_gives_the_same_bytes() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    let zips = tempfile::tempdir().unwrap();
    let mut made = Vec::new();
    // In two directories at two times.
    for name in ["one.zip", "two.zip"] {
        let project = Project::new();
        fs::set_permissions(
            project.0.path().join("index.php"),
            PermissionsExt::from_mode(0o600),
        )
        .unwrap();
        let output = zips.path().join(name);
        let packed = project.package(&output, &["--bootstrap", bootstrap.to_str().unwrap()]);
        assert!(packed.status.success(), "{}", text(&packed));
        made.push(fs::read(output).unwrap());
    }
    assert!(
        made[0] == made[1],
        "{} and {} bytes",
        made[0].len(),
        made[1].len()
    );
}

#[test]
fn oversized_package_lists_its_largest_parts() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    let (project, zips) = (Project::new(), tempfile::tempdir().unwrap());
    let video = File::create(project.0.path().join("video.mp4")).unwrap();
    video.set_len(300 << 20).unwrap();
    let zip = zips.path().join("function.zip");
    let made = project.package(&zip, &["--bootstrap", bootstrap.to_str().unwrap()]);
    let said = text(&made);
    assert!(!made.status.success(), "{said}");
    assert!(said.contains("Lambda accepts 262144000 bytes"), "{said}");
    assert!(said.contains("300.0 MiB  video.mp4"), "{said}");
    assert!(!zip.exists());
}

/// `make check-image` tests that the image runs.
#[test]
fn dockerfile_is_written_next_to_the_zip_but_never_overwritten() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    let project = Project::new();
    // Next to the zip in the application's directory, the build context of an image.
    let zip = project.0.path().join("function.zip");
    let mut args = vec!["--bootstrap", bootstrap.to_str().unwrap()];
    let path = project.0.path().join("Dockerfile");
    args.extend(["--extension", "pdo_sqlite", "--dockerfile"]);
    let made = project.package(&zip, &args);
    assert!(made.status.success(), "{}", text(&made));
    let written = fs::read_to_string(&path).unwrap();
    for expected in ["FROM debian:", "-sqlite3 ", "-opcache ", "\"lambda\"]"] {
        assert!(written.contains(expected), "{expected} in {written}");
    }
    let printed = Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(["lambda", "template", "dockerfile"])
        .arg(project.0.path())
        .args(["--extension", "pdo_sqlite"])
        .output()
        .unwrap();
    assert_eq!(text(&printed), written);

    let ignored = fs::read_to_string(project.0.path().join(".dockerignore")).unwrap();
    let auth = "\n**/[Aa][Uu][Tt][Hh].[Jj][Ss][Oo][Nn]\n";
    assert!(ignored.contains(auth), "{ignored}");

    // A second run writes the same file and does not package it.
    let again = project.package(&zip, &args);
    let said = text(&again);
    assert!(again.status.success(), "{said}");
    assert!(
        said.contains("kept the existing") && !said.contains("seems to let"),
        "{said}"
    );
    let archive = zip::ZipArchive::new(File::open(&zip).unwrap()).unwrap();
    let has = |name| archive.index_for_name(name).is_some();
    assert!(has("index.php") && !has("Dockerfile"));

    fs::write(&path, "FROM scratch\n").unwrap();
    fs::remove_file(&zip).unwrap();
    let refused = project.package(&zip, &args);
    let said = text(&refused);
    assert!(
        !refused.status.success() && said.contains("exists and differs"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "FROM scratch\n");
    assert!(!zip.exists());
}

#[test]
fn dockerignore_excludes_what_the_zip_leaves_out() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    let project = Project::new();
    let write = |name: &str, text: &str| {
        let path = project.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n";
    write("id_deploy", KEY);
    write("config/server.key", KEY);
    write("config/public.key", "-----BEGIN PUBLIC KEY-----\n");
    write("core", "\x7fELF");
    write("vendor/acme/lib/dump.sql", "");
    write(
        "vendor/composer/installed.json",
        r#"{"packages": [{"name": "acme/lib", "dist": {"type": "path"}}]}"#,
    );
    let zip = project.0.path().join("release.zip");
    let args = ["--dockerfile", "--bootstrap", bootstrap.to_str().unwrap()];
    let made = project.package(&zip, &args);
    assert!(made.status.success(), "{}", text(&made));
    let ignore = project.0.path().join(".dockerignore");
    let written = fs::read_to_string(&ignore).unwrap();
    for line in [
        "**/[Ii][Dd]_*",
        "**/*.[Kk][Ee][Yy]",
        "!config/public.key",
        "core",
        "vendor/acme/lib/dump.sql",
        "release.zip",
    ] {
        assert!(
            written.lines().any(|other| other == line),
            "{line} is not in:\n{written}"
        );
    }
    fs::write(&ignore, "config/*.key\nvendor\nrelease.zip\n").unwrap();
    let said = text(&project.package(&zip, &args));
    assert!(
        said.contains(".dockerignore seems to let private files into the image: core, id_deploy;"),
        "{said}"
    );
}

#[test]
fn package_that_the_site_sends_is_reported() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    let project = Project::new();
    for (zip, is_sent) in [("release.zip", true), ("function.zip", false)] {
        let zip = project.0.path().join(zip);
        let made = project.package(&zip, &["--bootstrap", bootstrap.to_str().unwrap()]);
        let said = text(&made);
        assert!(made.status.success(), "{said}");
        assert_eq!(
            said.contains("the site sends it to visitors"),
            is_sent,
            "{said}"
        );
    }
}

#[test]
fn secrets_are_left_out_and_listed() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    let project = Project::new();
    for name in ["auth.json", "terraform.tfstate", "dump.sql", "id_rsa"] {
        fs::write(project.0.path().join(name), "secret").unwrap();
    }
    let zip = project.0.path().join("function.zip");
    for _ in 0..2 {
        let made = project.package(&zip, &["--bootstrap", bootstrap.to_str().unwrap()]);
        let said = text(&made);
        assert!(made.status.success(), "{said}");
        for line in [
            "private keys: 1 (id_rsa)",
            "dumps and databases: 1 (dump.sql)",
        ] {
            assert!(said.contains(line), "{line} is not in:\n{said}");
        }
        let archive = zip::ZipArchive::new(File::open(&zip).unwrap()).unwrap();
        let has = |name| archive.index_for_name(name).is_some();
        assert!(has("index.php") && !has("auth.json") && !has("terraform.tfstate"));
        assert!(!has("dump.sql") && !has("id_rsa") && !has("function.zip"));
    }
}

#[test]
fn missing_parts_are_reported_before_anything_is_written() {
    let (project, zips) = (Project::new(), tempfile::tempdir().unwrap());
    let zip = zips.path().join("function.zip");
    let said = text(&project.package(&zip, &["--extension", "no_such_extension"]));
    assert!(said.contains("the extension no_such_extension"), "{said}");
    // This surus is dynamically linked.
    let surus = env!("CARGO_BIN_EXE_surus");
    let said = text(&project.package(&zip, &["--bootstrap", surus]));
    assert!(said.contains("make musl"), "{said}");
    assert!(!zip.exists());
}
