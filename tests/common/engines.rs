//! The engines, as a client of `surus serve` sees them.
#![allow(dead_code, clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use surus::engines::{CATALOGUE, PhpProgram};

use super::Surus;
use super::tree::copy;

/// One engine under test.
#[derive(Clone, Copy)]
pub struct Subject {
    pub name: &'static str,
    /// Whether it runs a script that calls `surus_serve`.
    pub boots: bool,
    /// Whether a request leaves nothing behind for the next.
    pub isolates: bool,
    /// Whether a worker answers more than one request.
    pub keeps_workers: bool,
}

/// All engines that run surus-php, or those that `ENGINES` names, separated by commas. The
/// isolation of external engines is not Surus's.
pub fn subjects() -> Vec<Subject> {
    let chosen = std::env::var("ENGINES").ok();
    let wanted = |name: &str| {
        let mut words = chosen.iter().flat_map(|words| words.split(','));
        chosen.is_none() || words.any(|word| word == name)
    };
    CATALOGUE
        .iter()
        .filter(|entry| entry.runs == PhpProgram::SurusPhp && wanted(entry.name))
        .map(|entry| Subject {
            name: entry.name,
            boots: entry.boots_script(),
            isolates: entry.isolates,
            keeps_workers: !entry.serves_one,
        })
        .collect()
}

/// The PHP files of a test, readable by the workers' user, and a directory where that user can
/// write.
pub struct TestDir {
    pub root: PathBuf,
    pub state: PathBuf,
    // The last field: dropped, and so deleted, after everything that uses it.
    _dir: tempfile::TempDir,
}

impl TestDir {
    /// `files` is a directory below tests/.
    pub fn of(files: &str) -> TestDir {
        let home = TestDir::empty();
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(files);
        copy(&from, &home.root);
        home
    }

    pub fn empty() -> TestDir {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let (root, state) = (home.join("root"), home.join("state"));
        for (dir, mode) in [(&home, 0o755), (&root, 0o755), (&state, 0o777)] {
            std::fs::create_dir_all(dir).unwrap();
            std::fs::set_permissions(dir, PermissionsExt::from_mode(mode)).unwrap();
        }
        TestDir {
            root,
            state,
            _dir: dir,
        }
    }

    /// Runs `script` if the engine boots a script, else `front`; either answers every URL that is
    /// not a file's.
    pub fn serve(
        &self,
        subject: Subject,
        script: &str,
        front: &str,
        workers: usize,
        args: &[&str],
    ) -> Surus {
        self.serve_in(subject, script, front, workers, args, &[])
    }

    /// Like `serve`, with environment variables.
    pub fn serve_in(
        &self,
        subject: Subject,
        script: &str,
        front: &str,
        workers: usize,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Surus {
        let workers = workers.to_string();
        let script = if subject.boots { script } else { front };
        let script = self.root.join(script);
        let mut all = vec!["--engine", subject.name, "--workers", &workers];
        all.extend(["--script", script.to_str().unwrap()]);
        all.extend(args);
        let mut environment = vec![("SURUS_ACCESS_LOG_FORMAT", "off")];
        environment.extend(env);
        Surus::spawn(&self.root, &all, &environment)
            .unwrap_or_else(|log| panic!("surus did not start {}:\n{log}", subject.name))
    }
}
