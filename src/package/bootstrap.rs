//! Finds the surus of a package, which is statically linked: a function's `bootstrap`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::elf::{self, ElfMachine};

/// How the user names a surus.
#[derive(Debug, Clone, Copy)]
pub struct NamedProgram<'a> {
    pub path: Option<&'a Path>,
    /// The option for it.
    pub option: &'static str,
    /// Whether it may need shared libraries.
    pub may_be_dynamic: bool,
}

/// Returns the named program, else this program if it is static, else the packages' or `bootstrap`
/// in the same directory, else this program if it may be dynamic.
pub fn find(named: NamedProgram<'_>, machine: ElfMachine) -> anyhow::Result<PathBuf> {
    let surus =
        std::env::current_exe().context("cannot determine the path of the surus executable")?;
    let place = place(&surus);
    let path = match named.path {
        Some(path) => path.to_path_buf(),
        None if is_static(&surus)? => surus,
        None if place.is_file() => place,
        None if named.may_be_dynamic => surus,
        None => bail!(
            "{} needs libraries of this machine, and those of others may be older or missing; \
             build a static surus (make musl), and name it with {} or put it at {}",
            surus.display(),
            named.option,
            place.display()
        ),
    };
    let elf = elf::read(&path)?.with_context(|| format!("{} is not a program", path.display()))?;
    if elf.interpreter.is_some() && !named.may_be_dynamic {
        bail!(
            "{} ({}) needs shared libraries, and those of other machines may be older or missing; \
             build a static one: make musl",
            path.display(),
            named.option
        );
    }
    if elf.machine != Some(machine) {
        bail!(
            "{} is not built for {}, the machine of this PHP; build surus on the same machine as \
             surus-php",
            path.display(),
            machine.name()
        );
    }
    same_version(&path)?;
    Ok(path)
}

/// Where a static surus may be: next to this one, or where the packages have it. Only the packages'
/// own program looks there: another user may write next to the directory of any other.
fn place(surus: &Path) -> PathBuf {
    match surus == Path::new("/usr/bin/surus") {
        true => "/usr/libexec/surus/bootstrap".into(),
        false => surus.with_file_name("bootstrap"),
    }
}

fn is_static(program: &Path) -> anyhow::Result<bool> {
    Ok(elf::read(program)?.is_some_and(|elf| elf.interpreter.is_none()))
}

/// surus and surus-php must have the same version to work together.
fn same_version(program: &Path) -> anyhow::Result<()> {
    // Set argv[0]: under the name bootstrap, it would run as the function.
    let output = Command::new(program)
        .arg0("surus")
        .arg("--version")
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let version = String::from_utf8_lossy(&output.stdout);
    let ours = concat!("surus ", env!("CARGO_PKG_VERSION"));
    if version.trim() != ours {
        bail!(
            "{} --version says `{}`, and this is {ours}; both must be the same",
            program.display(),
            version.trim()
        );
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// `scripts/deb` installs it there.
    #[test]
    fn static_program_of_the_packages_is_found() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/deb");
        let script = std::fs::read_to_string(root).unwrap();
        let packaged = place(Path::new("/usr/bin/surus"));
        let installed = format!("\"$root{}\"\n", packaged.display());
        assert!(script.contains(&installed), "{installed}");
        let own = place(Path::new("/srv/bin/surus"));
        assert_eq!(own, Path::new("/srv/bin/bootstrap"));
    }

    #[test]
    fn dynamically_linked_program_is_rejected() {
        let test_program = std::env::current_exe().unwrap();
        let elf = elf::read(&test_program).unwrap().unwrap();
        let find = |path: &Path, machine| {
            let named = NamedProgram {
                path: Some(path),
                option: "--bootstrap",
                may_be_dynamic: false,
            };
            super::find(named, machine)
        };
        let found = find(&test_program, elf.machine.unwrap());
        if elf.interpreter.is_some() {
            let error = found.unwrap_err().to_string();
            assert!(error.contains("make musl"), "{error}");
        }
        let text = tempfile::NamedTempFile::new().unwrap();
        let error = find(text.path(), ElfMachine::Arm64)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not a program"), "{error}");
    }
}
