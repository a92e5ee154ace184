//! Tests of which files of a project are packaged.
#![allow(clippy::unwrap_used)]

use super::*;

fn project(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    dir
}

fn names(project: &Path, except: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut files = PackageFiles::default();
    add(project, except, "", &mut files)?;
    Ok(files.iter().map(|(name, _)| name.to_string()).collect())
}

#[test]
fn development_files_are_left_out() {
    let dir = project(&[
        "public/index.php",
        "public/.well-known/x",
        ".env",
        ".env.local",
        ".git/config",
        "surus.toml",
        "tests/MyTest.php",
        "src/tests/Kept.php",
        "vendor/a/b/src/X.php",
        "vendor/a/b/tests/XTest.php",
        "vendor/a/b/.github/x",
        "vendor/autoload.php",
        "assets/node_modules/x.js",
        "var/cache/dev/x",
        "var/data.txt",
        "out.zip",
    ]);
    let except = [dir.path().join("out.zip")];
    let expected = [
        ".env",
        "public/.well-known/x",
        "public/index.php",
        "src/tests/Kept.php",
        "tests/MyTest.php",
        "var/data.txt",
        "vendor/a/b/src/X.php",
        "vendor/autoload.php",
    ];
    assert_eq!(names(dir.path(), &except).unwrap(), expected);
}

#[test]
fn secrets_are_left_out_unless_surusignore_includes_them() {
    let secrets = [
        ".aws/credentials",
        ".npmrc",
        ".ssh/config",
        "Dump.SQL",
        "auth.json",
        "config/jwt/private.pem",
        "function.zip",
        "id_ed25519",
        "samconfig.toml",
        "template.yaml",
        "terraform.tfstate",
        "terraform.tfstate.backup",
    ];
    let dir = project(&secrets);
    std::fs::write(dir.path().join("index.php"), "").unwrap();
    std::fs::write(dir.path().join("rds.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    let mut files = PackageFiles::default();
    let left_out = add(dir.path(), &[], "", &mut files).unwrap();
    let packaged: Vec<_> = files.iter().map(|(name, _)| name).collect();
    assert_eq!(packaged, ["index.php", "rds.pem"]);
    let message = left_out.to_string();
    for expected in [
        "credentials of tools: 4 (.aws/, .npmrc, .ssh/, auth.json)",
        "deployment files: 2 (function.zip, template.yaml)",
        "dumps and databases: 1 (Dump.SQL)",
        "infrastructure state: 3 (samconfig.toml, terraform.tfstate, terraform.tfstate.backup)",
        "private keys: 2 (config/jwt/private.pem, id_ed25519)",
        ".surusignore packages one of them: !/.aws/",
    ] {
        assert!(
            message.contains(expected),
            "{expected:?} is not in:\n{message}"
        );
    }
    let wanted = "!/config/jwt/private.pem\n!.ssh\n";
    std::fs::write(dir.path().join(".surusignore"), wanted).unwrap();
    assert_eq!(
        names(dir.path(), &[]).unwrap(),
        [
            ".ssh/config",
            "config/jwt/private.pem",
            "index.php",
            "rds.pem"
        ]
    );
}

#[test]
fn surusignore_excludes_and_includes_files() {
    let dir = project(&[
        "index.php",
        "docs/a.md",
        "var/cache/dev/x",
        "var/cache/prod/x",
    ]);
    std::fs::write(dir.path().join(".surusignore"), "/docs\n!/var/cache/prod\n").unwrap();
    assert_eq!(
        names(dir.path(), &[]).unwrap(),
        ["index.php", "var/cache/prod/x"]
    );
    std::fs::write(dir.path().join(".surusignore"), "a\nx{\n").unwrap();
    let error = format!("{:#}", names(dir.path(), &[]).unwrap_err());
    assert!(error.contains(".surusignore:2"), "{error}");
}

#[test]
fn symlink_is_packaged_as_its_target() {
    let (dir, library) = (project(&["index.php"]), project(&["src/L.php"]));
    std::os::unix::fs::symlink(library.path(), dir.path().join("lib")).unwrap();
    assert_eq!(
        names(dir.path(), &[]).unwrap(),
        ["index.php", "lib/src/L.php"]
    );
    std::os::unix::fs::symlink("/nowhere/x", dir.path().join("gone")).unwrap();
    let error = format!("{:#}", names(dir.path(), &[]).unwrap_err());
    assert!(error.contains("dangling"), "{error}");
}

#[test]
fn circle_of_directory_links_is_an_error_with_its_name() {
    let link = |dir: &tempfile::TempDir, to: &str, name: &str| {
        std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
    };
    let itself = project(&["index.php", "a/x.php"]);
    link(&itself, "..", "a/up");
    let pair = project(&["index.php", "a/x.php", "b/y.php"]);
    link(&pair, "../b", "a/to_b");
    link(&pair, "../a", "b/to_a");
    for (dir, name) in [(itself, "a/up"), (pair, "to_")] {
        let error = format!("{:#}", names(dir.path(), &[]).unwrap_err());
        assert!(error.contains(name), "{error}");
        assert!(error.contains("circular link in .surusignore"), "{error}");
    }
}

#[test]
fn link_to_private_file_is_left_out_under_any_name() {
    let outside = project(&["id_rsa", ".aws/credentials", "lib/id_map/x.php"]);
    let dir = project(&["index.php", "keys/id_rsa", ".aws/credentials"]);
    let link = |to: &Path, name: &str| {
        std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
    };
    link(Path::new("id_rsa"), "keys/deploy.txt");
    link(Path::new("../.aws"), "keys/cloud");
    link(Path::new(".aws/credentials"), "credentials.txt");
    link(&outside.path().join("id_rsa"), "deploy.txt");
    link(&outside.path().join(".aws/credentials"), "cloud.txt");
    link(&outside.path().join("lib"), "lib");
    link(Path::new("index.php"), "start.php");
    let expected = ["index.php", "lib/id_map/x.php", "start.php"];
    assert_eq!(names(dir.path(), &[]).unwrap(), expected);
    // The application's own rules name the link.
    std::fs::write(dir.path().join(".surusignore"), "!/cloud.txt\n").unwrap();
    let expected = ["cloud.txt", "index.php", "lib/id_map/x.php", "start.php"];
    assert_eq!(names(dir.path(), &[]).unwrap(), expected);
}

#[test]
fn link_to_a_file_of_another_user_outside_the_project_is_left_out() {
    if !surus_sys::process::has_other_users() {
        return;
    }
    let (dir, outside) = (
        project(&["index.php", "own/x"]),
        project(&["secret", "y/z"]),
    );
    let link = |to: &Path, name: &str| {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(to, &link).unwrap();
        std::os::unix::fs::lchown(link, Some(33), None).unwrap();
    };
    link(&outside.path().join("secret"), "page.txt");
    link(&outside.path().join("y"), "pages");
    link(&dir.path().join("own"), "also");
    let expected = ["also/x", "index.php", "own/x"];
    assert_eq!(names(dir.path(), &[]).unwrap(), expected);
    std::fs::write(dir.path().join(".surusignore"), "!/page.txt\n").unwrap();
    let expected = ["also/x", "index.php", "own/x", "page.txt"];
    assert_eq!(names(dir.path(), &[]).unwrap(), expected);
}

#[test]
fn file_or_directory_exchanged_for_a_link_after_the_walk_is_not_packaged() {
    let outside = project(&["data.txt", "page"]);
    std::fs::write(outside.path().join("data.txt"), "secret").unwrap();
    for exchanged in ["var/data.txt", "var", "page"] {
        let dir = project(&["index.php", "var/data.txt"]);
        let link = |to: PathBuf, name: &str| {
            std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
        };
        link(outside.path().join("page"), "page");
        let mut files = PackageFiles::default();
        add(dir.path(), &[], "", &mut files).unwrap();
        let path = dir.path().join(exchanged);
        std::fs::rename(&path, dir.path().join("away")).unwrap();
        let to = match exchanged {
            "var" => outside.path().to_path_buf(),
            _ => outside.path().join("data.txt"),
        };
        link(to, exchanged);

        let root = tempfile::tempdir().unwrap();
        let unpacked = crate::package::compiled::unpack(&files, root.path());
        let zip = std::io::Cursor::new(Vec::new());
        let written = crate::package::archive::write(&files, zip, |_| ());
        if exchanged == "page" {
            // The file to which the link led when it was checked is packaged.
            assert!(unpacked.is_ok() && written.is_ok());
            let packaged = root.path().join("var/task/page");
            assert_eq!(std::fs::read_to_string(packaged).unwrap(), "");
            continue;
        }
        for result in [unpacked, written] {
            let error = format!("{:#}", result.unwrap_err());
            assert!(error.contains("var/data.txt"), "{exchanged}: {error}");
        }
        assert!(crate::package::sizes::Sizes::measure(&files).is_err());
    }
}

#[test]
fn link_that_leads_through_a_link_of_another_user_is_left_out() {
    if !surus_sys::process::has_other_users() {
        return;
    }
    let (dir, outside) = (project(&["index.php"]), project(&["secret"]));
    let middle = outside.path().join("middle");
    std::os::unix::fs::symlink("secret", &middle).unwrap();
    std::os::unix::fs::symlink(&middle, dir.path().join("page.txt")).unwrap();
    assert_eq!(names(dir.path(), &[]).unwrap(), ["index.php", "page.txt"]);
    std::os::unix::fs::lchown(&middle, Some(33), None).unwrap();
    assert_eq!(names(dir.path(), &[]).unwrap(), ["index.php"]);
    let directory = outside.path().join("directory");
    std::fs::remove_file(dir.path().join("page.txt")).unwrap();
    std::os::unix::fs::symlink(".", &directory).unwrap();
    std::os::unix::fs::symlink(directory.join("secret"), dir.path().join("page.txt")).unwrap();
    assert_eq!(names(dir.path(), &[]).unwrap(), ["index.php", "page.txt"]);
    std::os::unix::fs::lchown(&directory, Some(33), None).unwrap();
    assert_eq!(names(dir.path(), &[]).unwrap(), ["index.php"]);
}

#[test]
fn reserved_name_is_rejected() {
    let dir = project(&[".surus/php.ini"]);
    let error = format!("{:#}", names(dir.path(), &[]).unwrap_err());
    assert!(error.contains("rename it"), "{error}");
}

#[test]
fn application_with_own_bootstrap_gets_a_subdirectory() {
    use crate::package::kind::PackageKind;
    use crate::package::unpacked;
    let dir = project(&[
        "public/index.php",
        "bootstrap/app.php",
        "bootstrap/cache/config.php",
    ]);
    let mut files = PackageFiles::default();
    let place = PackageKind::Function.place(dir.path());
    assert_eq!(place, "app");
    add(dir.path(), &[], place, &mut files).unwrap();
    let names: Vec<_> = files.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["app/bootstrap/app.php", "app/public/index.php"]);

    let apart = project(&[".surus/php.ini", "app/surus.toml"]);
    assert_eq!(unpacked(apart.path().into()), apart.path().join("app"));
    let other = project(&[".surus/php.ini", "app/surus.toml", "surus.toml"]);
    assert_eq!(unpacked(other.path().into()), other.path());
    let image = project(&["app/surus.toml"]);
    assert_eq!(unpacked(image.path().into()), image.path());
}

/// Writes what Composer notes of packages: name, and whether it is a path repository.
fn note_packages(project: &Path, packages: &[(&str, bool)]) {
    let packages: Vec<_> = packages
        .iter()
        .map(|(name, is_path)| {
            let kind = if *is_path { "path" } else { "zip" };
            let path = format!("../{name}");
            serde_json::json!({"name": name, "dist": {"type": kind}, "install-path": path})
        })
        .collect();
    let directory = project.join("vendor/composer");
    std::fs::create_dir_all(&directory).unwrap();
    let text = serde_json::json!({ "packages": packages }).to_string();
    std::fs::write(directory.join("installed.json"), text).unwrap();
}

/// Files of a package that are secrets of the application if it is the application's own.
const SECRETS: &[&str] = &[
    "auth.json",
    "config/auth.json",
    "terraform.tfstate",
    "id_rsa",
    "key.pem",
    "dump.sql",
    "samconfig.toml",
    ".npmrc",
    ".aws/credentials",
];

const NEEDED: &[&str] = &[
    "src/L.php",
    "database/migrations/1.sql",
    "id_map/x.php",
    "data.json",
];

fn package_of(directory: &Path) {
    for name in SECRETS.iter().chain(NEEDED) {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "-----BEGIN PRIVATE KEY-----").unwrap();
    }
}

/// The names below `vendor/acme/lib/`, if the needed files are all of them.
fn assert_only_needed(project: &Path) {
    let names = names(project, &[]).unwrap();
    let packaged = names
        .iter()
        .filter_map(|name| name.strip_prefix("vendor/acme/lib/"));
    let mut needed = NEEDED.to_vec();
    needed.sort_unstable();
    assert_eq!(packaged.collect::<Vec<_>>(), needed);
}

#[test]
fn secrets_of_a_linked_path_repository_are_left_out() {
    for is_noted in [true, false] {
        for is_inside in [true, false] {
            let (dir, outside) = (project(&["index.php", "vendor/acme/x"]), project(&[]));
            let target = match is_inside {
                true => dir.path().join("packages/lib"),
                false => outside.path().join("lib"),
            };
            package_of(&target);
            std::os::unix::fs::symlink(target, dir.path().join("vendor/acme/lib")).unwrap();
            if is_noted {
                note_packages(dir.path(), &[("acme/lib", true)]);
            }
            assert_only_needed(dir.path());
        }
    }
}

#[test]
fn secrets_of_a_copied_path_repository_are_left_out() {
    let dir = project(&["index.php"]);
    package_of(&dir.path().join("vendor/acme/lib"));
    note_packages(dir.path(), &[("acme/other", false), ("acme/lib", true)]);
    assert_only_needed(dir.path());
    // The application's own rules come first.
    std::fs::write(
        dir.path().join(".surusignore"),
        "!/vendor/acme/lib/dump.sql",
    )
    .unwrap();
    let names = names(dir.path(), &[]).unwrap();
    assert!(names.contains(&"vendor/acme/lib/dump.sql".to_owned()));
    let list = dir.path().join("vendor/composer/installed.json");
    std::fs::write(list, "{").unwrap();
    let error = format!("{:#}", self::names(dir.path(), &[]).unwrap_err());
    assert!(error.contains("installed.json"), "{error}");
}

#[test]
fn library_is_packaged_without_credentials_but_with_its_certificates_and_schemas() {
    let secrets = [
        "auth.json",
        "assets/.npmrc",
        "deploy/terraform.tfstate.backup",
        "deploy/.terraform/x",
        "deploy/id_deploy",
        "home/.ssh/config",
        "home/.aws/credentials",
        "samconfig.toml",
    ];
    let needed = [
        "assets/package.json",
        "data/auth.json",
        "id_map/x.php",
        "res/cacert.pem",
        "res/id_schema.php",
        "res/localhost.pem",
        "res/schema.sql",
        "res/x.key",
    ];
    let write = |directory: &Path| {
        for name in secrets.iter().chain(&needed) {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = match *name {
                "res/id_schema.php" => "<?php",
                _ => "-----BEGIN PRIVATE KEY-----",
            };
            std::fs::write(path, text).unwrap();
        }
    };
    let expected: Vec<_> = needed
        .iter()
        .map(|name| format!("vendor/acme/lib/{name}"))
        .collect();
    let dir = project(&[]);
    write(&dir.path().join("vendor/acme/lib"));
    assert_eq!(names(dir.path(), &[]).unwrap(), expected);
    // All libraries may lie elsewhere.
    let (linked, shared) = (project(&[]), project(&[]));
    write(&shared.path().join("libraries/acme/lib"));
    let link = linked.path().join("vendor");
    std::os::unix::fs::symlink(shared.path().join("libraries"), link).unwrap();
    assert_eq!(names(linked.path(), &[]).unwrap(), expected);
}
