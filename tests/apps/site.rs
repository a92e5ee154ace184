//! Copies an application into its own directory, to which PHP's workers may write.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::php::cli;
use crate::common::{Surus, tree};

/// The path of a file that a Debian package installs; the error for a missing package says how to
/// install it.
#[track_caller]
pub fn installed(path: &str, package: &str) -> PathBuf {
    assert!(
        Path::new(path).exists(),
        "{path} is missing; try apt-get install {package}"
    );
    PathBuf::from(path)
}

/// Asserts that a PHP of this machine has an extension.
#[track_caller]
pub fn extension(name: &str, package: &str) {
    let versions = fs::read_dir("/etc/php")
        .into_iter()
        .flatten()
        .map(|version| version.unwrap().path());
    let found = versions.into_iter().any(|version| {
        version
            .join("mods-available")
            .join(format!("{name}.ini"))
            .exists()
    });
    assert!(
        found,
        "PHP's extension {name} is missing; try apt-get install {package}"
    );
}

/// The libraries of a framework that is newer than this Debian's.
#[track_caller]
pub fn framework(name: &str) -> PathBuf {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/frameworks")
        .join(name);
    assert!(
        unpacked.join("complete").exists(),
        "{} is missing; run scripts/frameworks {name}",
        unpacked.display()
    );
    unpacked.join("root/usr/share/php")
}

/// One of this repository's examples.
pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name)
}

/// A fixture of the tests.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/apps")
        .join(name)
}

pub fn is_root() -> bool {
    number(&["-u"]) == 0
}

/// User and group id of a system user.
pub fn ids_of(user: &str) -> (u32, u32) {
    (number(&["-u", user]), number(&["-g", user]))
}

fn number(of: &[&str]) -> u32 {
    let output = Command::new("id").args(of).output().unwrap();
    assert!(
        output.status.success(),
        "id {of:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

/// The engines that boot a script.
pub const BOOTING: [&str; 4] = ["worker", "standby", "fork", "rewind"];

pub struct Site {
    directory: TempDir,
}

impl Site {
    pub fn new() -> Site {
        let directory = TempDir::with_prefix("surus-app-").unwrap();
        // Root's temporary directories are closed to other users, and PHP runs as another user.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let site = Site { directory };
        for name in ["www", "sessions", "tmp"] {
            fs::create_dir(site.directory.path().join(name)).unwrap();
        }
        site
    }

    /// The application's root.
    pub fn www(&self) -> PathBuf {
        self.directory.path().join("www")
    }

    /// A directory outside the root, for files that must not be served.
    pub fn tmp(&self) -> PathBuf {
        self.directory.path().join("tmp")
    }

    /// Copies a file or tree to `to` inside the root. Follows symbolic links, of which Debian's
    /// packages have many.
    pub fn copy(self, from: &Path, to: &str) -> Site {
        tree::copy(from, &self.www().join(to));
        self
    }

    /// A site with the Laravel example, and with `more` of its files and trees.
    pub fn laravel(more: &[&str]) -> Site {
        let parts = [
            "app",
            "bootstrap/app.php",
            "composer.json",
            "config",
            "resources",
            "routes",
        ];
        parts
            .iter()
            .chain(more)
            .fold(Site::new(), |site, part| {
                site.copy(&example("laravel").join(part), part)
            })
            .directory("bootstrap/cache")
    }

    pub fn write(self, path: &str, text: &str) -> Site {
        let path = self.www().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Replaces text in a file; it must occur.
    pub fn replace(self, path: &str, old: &str, new: &str) -> Site {
        let text = fs::read_to_string(self.www().join(path)).unwrap();
        assert!(text.contains(old), "{path} does not contain {old:?}");
        self.write(path, &text.replace(old, new))
    }

    pub fn remove(self, path: &str) -> Site {
        fs::remove_file(self.www().join(path)).unwrap();
        self
    }

    pub fn directory(self, path: &str) -> Site {
        fs::create_dir_all(self.www().join(path)).unwrap();
        self
    }

    /// Adds the libraries of the site from Debian's packages.
    pub fn vendor(self) -> Site {
        self.vendor_from(Path::new("/usr/share/php"))
    }

    /// Like `vendor`, from packages that were unpacked elsewhere.
    pub fn vendor_from(self, libraries: &Path) -> Site {
        let script = example("vendor.php");
        let output = Command::new(cli())
            .args([script.as_path(), &self.www(), libraries])
            .output()
            .unwrap_or_else(|error| panic!("{0}: {error}; apt-get install {0}-cli", cli()));
        assert!(
            output.status.success() && self.www().join("vendor/autoload.php").exists(),
            "{}: {}{}",
            script.display(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        self
    }

    /// php.ini entries that keep PHP's sessions and temporary files next to the root, where any
    /// user that runs PHP may write.
    pub fn stored(&self) -> [String; 2] {
        if is_root() {
            give(self.directory.path(), ids_of("www-data"));
        }
        let sessions = self.directory.path().join("sessions");
        [
            format!("session.save_path={}", sessions.display()),
            format!("sys_temp_dir={}", self.tmp().display()),
        ]
    }

    /// Serves it, with PHP's sessions and temporary files kept next to the root.
    pub fn serve(&self, env: &[(&str, &str)]) -> Surus {
        self.serve_with(&[], env)
    }

    /// Like `serve`, with more arguments.
    pub fn serve_with(&self, args: &[&str], env: &[(&str, &str)]) -> Surus {
        let stored = self.stored();
        let stored = stored.each_ref().map(|text| ["-d", text.as_str()]);
        let stored = stored.as_flattened();
        // On `rewind`, memory is compared byte for byte after each restore; a difference fails the
        // test.
        let verify_restore = ("SURUS_ENGINE_VERIFY_RESTORE", "true");
        Surus::spawn(
            &self.www(),
            &[stored, args].concat(),
            &[&[verify_restore], env].concat(),
        )
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
    }
}

/// Everything but the configuration: root refuses one that PHP may change. A running process may
/// remove files meanwhile, such as a database its journal.
fn give(path: &Path, (user, group): (u32, u32)) {
    if path.ends_with("surus.toml") {
        return;
    }
    match chown(path, Some(user), Some(group)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        given => given.unwrap(),
    }
    // A file has none.
    if let Ok(entries) = fs::read_dir(path) {
        entries.for_each(|entry| give(&entry.unwrap().path(), (user, group)));
    }
}
