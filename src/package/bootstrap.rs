//! Which file is the `bootstrap` of a function: a surus that runs without any library.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::elf::{self, Machine};

/// The one that is named; ourselves, when we are static; or `bootstrap` beside us.
pub fn find(named: Option<&Path>, machine: Machine) -> anyhow::Result<PathBuf> {
    let us = std::env::current_exe().context("where is surus itself?")?;
    let beside = us.with_file_name("bootstrap");
    let path = match named {
        Some(path) => path.to_path_buf(),
        None if is_static(&us)? => us,
        None if beside.is_file() => beside,
        None => bail!(
            "{} needs libraries of this machine, and those of Lambda may be older; build a surus without any (make musl), and \
             name it with --bootstrap or put it at {}",
            us.display(),
            beside.display()
        ),
    };
    let elf = elf::read(&path)?.with_context(|| format!("{} is not a program", path.display()))?;
    if elf.interpreter.is_some() {
        bail!(
            "{} needs libraries of the machine that it runs on, and those of Lambda may be older; build one without any: \
             make musl",
            path.display()
        );
    }
    if elf.machine != Some(machine) {
        bail!(
            "{} is not for {}, which PHP here is for; build surus on the same machine as surus-php",
            path.display(),
            machine.name()
        );
    }
    same_version(&path)?;
    Ok(path)
}

fn is_static(program: &Path) -> anyhow::Result<bool> {
    Ok(elf::read(program)?.is_some_and(|elf| elf.interpreter.is_none()))
}

/// surus and surus-php understand each other only when they are of one version.
fn same_version(program: &Path) -> anyhow::Result<()> {
    // By its own name: called bootstrap, it would be the function at once.
    let output = Command::new(program)
        .arg0("surus")
        .arg("--version")
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let ours = concat!("surus ", env!("CARGO_PKG_VERSION"));
    if said.trim() != ours {
        bail!(
            "{} --version says `{}`, and this is {ours}; both must be the same",
            program.display(),
            said.trim()
        );
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_libraries_is_refused() {
        let us = std::env::current_exe().unwrap();
        let elf = elf::read(&us).unwrap().unwrap();
        let found = find(Some(&us), elf.machine.unwrap());
        if elf.interpreter.is_some() {
            let error = found.unwrap_err().to_string();
            assert!(error.contains("make musl"), "{error}");
        }
        let text = tempfile::NamedTempFile::new().unwrap();
        let error = find(Some(text.path()), Machine::Arm64)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not a program"), "{error}");
    }
}
