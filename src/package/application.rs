//! Selects the project's files for the package.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{Match, WalkBuilder};

use super::left_out::LeftOut;
use super::links::CheckedLinks;
use super::{OURS, PackageFiles};
use crate::private_files::{self, Class, Purpose, Unopened};

/// Adds the project's files below the package directory `place` and returns what it left out.
/// `except` lists files that the caller writes.
pub fn add(
    project: &Path,
    except: &[PathBuf],
    place: &str,
    files: &mut PackageFiles,
) -> anyhow::Result<LeftOut> {
    let own = own_rules(project)?;
    let left_out = Arc::new(Mutex::new(LeftOut::default()));
    let except: Vec<PathBuf> = except
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let is_excepted = move |path: &Path| {
        !except.is_empty() && path.canonicalize().is_ok_and(|path| except.contains(&path))
    };
    let root = project.to_path_buf();
    let real_root = project.canonicalize();
    let real_root = real_root.with_context(|| format!("cannot resolve {}", project.display()))?;
    let noted = left_out.clone();
    let links = Arc::new(Mutex::new(CheckedLinks::new(project, &real_root)));
    let found = links.clone();
    let walk = WalkBuilder::new(project)
        .standard_filters(false)
        .follow_links(true)
        .filter_entry(move |entry| {
            let inside = entry.path().strip_prefix(&root).unwrap_or(entry.path());
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            if inside.as_os_str().is_empty() {
                return true;
            }
            // Skip an earlier package at the output path without reporting it.
            if is_excepted(entry.path()) {
                return false;
            }
            let path = entry.path();
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            let link = match entry.path_is_symlink() {
                true => found.follow(path).ok(),
                false => None,
            };
            let is_foreign = link
                .as_ref()
                .is_some_and(|link| !link.real.starts_with(&real_root) && link.is_foreign);
            let apart = link
                .as_ref()
                .map(|link| private_files::apart(&link.real, &real_root));
            let why = match own.matched(inside, is_directory) {
                Match::None if is_foreign => Some(FOREIGN),
                _ => why_left_out(&own, inside, apart.as_deref(), path, is_directory),
            };
            let Some(why) = why else {
                if let Some(link) = link {
                    found.add(path, link.real);
                }
                return true;
            };
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.note(why, inside, is_directory);
            false
        })
        .build();
    for entry in walk {
        let entry = entry.map_err(|error| {
            anyhow!("{error}; exclude a dangling or circular link in .surusignore")
        })?;
        let Some(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            continue;
        }
        let inside = entry.path().strip_prefix(project)?;
        let name = inside
            .to_str()
            .with_context(|| format!("the name of {} is not UTF-8", entry.path().display()))?;
        // `settings.rs` writes the package's own surus.toml.
        if name == "surus.toml" {
            continue;
        }
        if name.starts_with(&format!("{OURS}/")) {
            bail!(
                "{} has a name that Surus uses in the package; rename it or exclude it in \
                 .surusignore",
                entry.path().display()
            );
        }
        if !kind.is_file() {
            bail!(
                "{} is neither a file nor a directory; exclude it in .surusignore",
                entry.path().display()
            );
        }
        let executable = entry.metadata()?.permissions().mode() & 0o111 != 0;
        let links = links.lock().unwrap_or_else(PoisonError::into_inner);
        let real = links.resolve(entry.path())?;
        files.copy_unlinked(inside_of(place, name), real, executable)?;
    }
    let mut left_out = left_out.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *left_out))
}

const FOREIGN: &str = "links to another user's files";

/// Why a file or directory is left out: the name of its class, or of the file with the matching
/// rule. The application's own rules come first. `real` is where a link leads.
fn why_left_out(
    own: &Gitignore,
    inside: &Path,
    real: Option<&Path>,
    path: &Path,
    is_directory: bool,
) -> Option<&'static str> {
    match own.matched(inside, is_directory) {
        Match::Ignore(_) => return Some(OWN_RULES),
        Match::Whitelist(_) => return None,
        Match::None => {}
    }
    let name = private_files::lowercase(inside);
    let class = private_files::class_of(&name, is_directory, Purpose::Packaging);
    let of_real = real.and_then(|real| {
        let name = private_files::lowercase(real);
        private_files::class_on_the_way(&name, is_directory, Purpose::Packaging)
    });
    let is_excused =
        |class: &Class| !is_directory && class.excuses(Unopened::new(path), Purpose::Packaging);
    let mut classes = [class, of_real].into_iter().flatten();
    Some(classes.find(|class| !is_excused(class))?.name)
}

/// The path of `name` in the package directory `place`.
pub fn inside_of(place: &str, name: &str) -> String {
    if place.is_empty() {
        name.into()
    } else {
        format!("{place}/{name}")
    }
}

/// The file with the application's own rules.
const OWN_RULES: &str = ".surusignore";

fn own_rules(project: &Path) -> anyhow::Result<Gitignore> {
    // Match paths relative to the project.
    let mut builder = GitignoreBuilder::new("");
    let own = project.join(OWN_RULES);
    match std::fs::read_to_string(&own) {
        Ok(text) => {
            for (index, line) in text.lines().enumerate() {
                builder
                    .add_line(None, line)
                    .with_context(|| format!("{}:{}", own.display(), index + 1))?;
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", own.display())),
    }
    Ok(builder.build()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
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
        let said = left_out.to_string();
        for expected in [
            "credentials of tools: 4 (.aws/, .npmrc, .ssh/, auth.json)",
            "deployment files: 2 (function.zip, template.yaml)",
            "dumps and databases: 1 (Dump.SQL)",
            "infrastructure state: 3 (samconfig.toml, terraform.tfstate, terraform.tfstate.backup)",
            "private keys: 2 (config/jwt/private.pem, id_ed25519)",
            ".surusignore packages one of them: !/.aws/",
        ] {
            assert!(said.contains(expected), "{expected:?} is not in:\n{said}");
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
}
