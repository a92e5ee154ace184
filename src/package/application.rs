//! Which files of the project belong into the package?

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use ignore::WalkBuilder;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::{Files, OURS};

/// What no function needs, in the words of .gitignore; a line with `!` in .surusignore takes it back.
pub const EXCLUDED: &[&str] = &[
    // Of version control, editors and other tools.
    ".git",
    ".hg",
    ".svn",
    ".github",
    ".gitlab",
    ".idea",
    ".vscode",
    ".DS_Store",
    "node_modules",
    // Secrets of a developer's machine.
    ".env.local",
    ".env.*.local",
    // What the application writes, which is of this machine. A function cannot write there anyway.
    "/var/cache/*",
    "/var/log/*",
    "/storage/logs/*",
    "/storage/framework/cache/*",
    "/storage/framework/sessions/*",
    "/storage/framework/views/*",
    // It has the paths of this machine.
    "/bootstrap/cache/config.php",
    // Tests of libraries.
    "/vendor/*/*/tests/",
    "/vendor/*/*/Tests/",
    "/vendor/*/*/test/",
    "/vendor/*/*/.*",
    // Of deployments, this one's among them.
    ".aws-sam",
    ".serverless",
    ".terraform",
    "cdk.out",
    "/function.zip",
    "/.surusignore",
];

/// Adds the project's files, but for what is excluded and `except`, below the directory `place` of the package.
pub fn add(
    project: &Path,
    except: &[PathBuf],
    place: &str,
    files: &mut Files,
) -> anyhow::Result<()> {
    let rules = rules(project)?;
    let except: Vec<PathBuf> = except
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let root = project.to_path_buf();
    let walk = WalkBuilder::new(project)
        .standard_filters(false)
        .follow_links(true)
        .filter_entry(move |entry| {
            let inside = entry.path().strip_prefix(&root).unwrap_or(entry.path());
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            inside.as_os_str().is_empty() || !rules.matched(inside, is_directory).is_ignore()
        })
        .build();
    for entry in walk {
        let entry = entry.map_err(|error| {
            anyhow!(
                "{error}; a link that leads nowhere or in a circle can be excluded in .surusignore"
            )
        })?;
        let Some(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir()
            || entry
                .path()
                .canonicalize()
                .is_ok_and(|path| except.contains(&path))
        {
            continue;
        }
        let inside = entry.path().strip_prefix(project)?;
        let name = inside
            .to_str()
            .with_context(|| format!("the name of {} is not UTF-8", entry.path().display()))?;
        // The package has one made of it.
        if name == "surus.toml" {
            continue;
        }
        if name.starts_with(&format!("{OURS}/")) {
            bail!(
                "{} has a name that the package has another use for; rename it or exclude it in .surusignore",
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
        files.copy(inside_of(place, name), entry.path(), executable)?;
    }
    Ok(())
}

/// `name` in the directory `place` of the package.
pub fn inside_of(place: &str, name: &str) -> String {
    if place.is_empty() {
        name.into()
    } else {
        format!("{place}/{name}")
    }
}

fn rules(project: &Path) -> anyhow::Result<Gitignore> {
    // Paths are matched as they are from the project on.
    let mut builder = GitignoreBuilder::new("");
    for rule in EXCLUDED {
        builder.add_line(None, rule)?;
    }
    let own = project.join(".surusignore");
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
        let mut files = Files::default();
        add(project, except, "", &mut files)?;
        Ok(files.iter().map(|(name, _)| name.to_string()).collect())
    }

    #[test]
    fn what_no_function_needs_stays_here() {
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
            "var/data.db",
            "out.zip",
        ]);
        let except = [dir.path().join("out.zip")];
        let expected = [
            ".env",
            "public/.well-known/x",
            "public/index.php",
            "src/tests/Kept.php",
            "tests/MyTest.php",
            "var/data.db",
            "vendor/a/b/src/X.php",
            "vendor/autoload.php",
        ];
        assert_eq!(names(dir.path(), &except).unwrap(), expected);
    }

    #[test]
    fn surusignore_excludes_and_takes_back() {
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
    fn links_become_what_they_lead_to() {
        let (dir, library) = (project(&["index.php"]), project(&["src/L.php"]));
        std::os::unix::fs::symlink(library.path(), dir.path().join("lib")).unwrap();
        assert_eq!(
            names(dir.path(), &[]).unwrap(),
            ["index.php", "lib/src/L.php"]
        );
        std::os::unix::fs::symlink("/nowhere/x", dir.path().join("gone")).unwrap();
        let error = format!("{:#}", names(dir.path(), &[]).unwrap_err());
        assert!(error.contains("leads nowhere"), "{error}");
    }

    #[test]
    fn names_that_are_taken_are_refused() {
        let dir = project(&[".surus/php.ini"]);
        let error = format!("{:#}", names(dir.path(), &[]).unwrap_err());
        assert!(error.contains("rename it"), "{error}");
    }

    #[test]
    fn an_application_with_a_bootstrap_of_its_own_is_apart() {
        use crate::package::{place, unpacked};
        let dir = project(&[
            "public/index.php",
            "bootstrap/app.php",
            "bootstrap/cache/config.php",
        ]);
        let mut files = Files::default();
        assert_eq!(place(dir.path()), "app");
        add(dir.path(), &[], place(dir.path()), &mut files).unwrap();
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
