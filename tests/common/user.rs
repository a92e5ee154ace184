//! A user other than root who develops an application: `--watch` is not for root.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Surus;
use super::executable::copy_executable;

/// The user has copies of the programs: those of the build may be out of its reach.
pub struct User {
    programs: tempfile::TempDir,
    pub project: tempfile::TempDir,
}

const NOBODY: u32 = 65534;

impl User {
    /// The application belongs to the user.
    pub fn new(project: tempfile::TempDir) -> User {
        use std::os::unix::fs::PermissionsExt;
        let programs = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(programs.path(), open).unwrap();
        for name in ["run", "state"] {
            std::fs::create_dir(programs.path().join(name)).unwrap();
        }
        let build = Path::new(env!("CARGO_BIN_EXE_surus"));
        for entry in build.parent().unwrap().read_dir().unwrap() {
            let name = entry.unwrap().file_name();
            let is_program = name == "surus"
                || name.to_string_lossy().starts_with("surus-php")
                    && !name.to_string_lossy().ends_with(".d");
            if is_program {
                copy_executable(&build.with_file_name(&name), &programs.path().join(name));
            }
        }
        let user = User { programs, project };
        if surus_sys::process::is_root() {
            for path in [
                user.path("run"),
                user.path("state"),
                user.project.path().into(),
            ] {
                std::os::unix::fs::chown(path, Some(NOBODY), None).unwrap();
            }
        }
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.programs.path().join(name)
    }

    fn command(&self) -> Command {
        if !surus_sys::process::is_root() {
            return Command::new(self.path("surus"));
        }
        let mut command = Command::new("setpriv");
        let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        command
            .args(ids)
            .arg("--clear-groups")
            .arg(self.path("surus"));
        command
    }

    /// Runs `surus serve`.
    pub fn serve(&self, args: &[&str], env: &[(&str, &str)]) -> Result<Surus, String> {
        let (run, state) = (self.path("run"), self.path("state"));
        let own = [
            ("XDG_RUNTIME_DIR", run.to_str().unwrap()),
            ("STATE_DIRECTORY", state.to_str().unwrap()),
            ("HOME", run.to_str().unwrap()),
        ];
        let env = [&own[..], env].concat();
        Surus::spawn_by(self.command(), self.project.path(), args, &env)
    }

    /// Runs `surus serve --watch`.
    pub fn watch(&self, args: &[&str]) -> Surus {
        // Only `--watch` may see a change.
        let args = [&["--watch", "-d", "opcache.revalidate_freq=3600"], args].concat();
        let surus = self.serve(&args, &[]);
        let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
        surus.wait_for_log(|log| log.contains("watching files"));
        surus
    }

    /// Replaces a file at once: a boot must not read a part of it.
    pub fn put(&self, name: &str, text: &str) {
        let new = self.path("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.project.path().join(name)).unwrap();
    }
}
