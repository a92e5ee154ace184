//! Builds contestants in `target/lab/contestants`, once for each change of their source.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use surus_sys::process::{self, Orphan};

use crate::contestant::{Manifest, Need};
use crate::interrupt;
use crate::words::Words;

/// A build that takes longer is given up: a registry does not answer.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// The first program that is missing, and what to do.
pub fn missing(needs: &[Need], words: &Words) -> anyhow::Result<Option<String>> {
    for need in needs {
        let program = words.fill(&need.program)?;
        if !exists(&program) {
            let install = words.fill(&need.install)?;
            return Ok(Some(format!("{program} is not installed: {install}")));
        }
    }
    Ok(None)
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    // An absolute path replaces the directory that it is joined to.
    let mut files = directories.map(|directory| directory.join(program));
    files.any(|file| file.is_file())
}

/// Builds a contestant in `to`, once. The error says why the build failed.
pub fn build(manifest: &Manifest, words: &Words, to: &Path) -> anyhow::Result<()> {
    let stamp = to.join(".built");
    let source = hash(&[&manifest.directory])?;
    if std::fs::read_to_string(&stamp).is_ok_and(|built| built == source) {
        return Ok(());
    }
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    copy_directory(&manifest.directory, to)?;
    for command in &manifest.build {
        let command = words.command(command)?;
        eprintln!("  building: {}", command.join(" "));
        run(&command, to)?;
    }
    std::fs::write(&stamp, source)?;
    Ok(())
}

/// Runs a command in a directory; the error ends with its last line.
pub fn run(command: &[String], directory: &Path) -> anyhow::Result<()> {
    let log = directory.join(".log");
    let output = std::fs::File::create(&log)?;
    let text = command.join(" ");
    let mut child = program(command);
    child
        .current_dir(directory)
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut child = child
        .spawn()
        .with_context(|| format!("cannot start `{text}`"))?;
    let deadline = Instant::now() + LONGEST;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline || interrupt::is_interrupted() {
            let _ = process::kill_group(child.id());
            child.wait()?;
            interrupt::check()?;
            bail!("`{text}` took more than {} minutes", LONGEST.as_secs() / 60);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if !status.success() {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        bail!(
            "`{text}` failed with {status}: {}",
            last.unwrap_or("no output")
        );
    }
    Ok(())
}

/// A command that does not outlive this process.
pub fn program(command: &[String]) -> Command {
    let (program, arguments) = command.split_first().map_or(("", command), |(p, a)| (p, a));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // Only preparing descriptors can fail, and there are none.
    let _ = process::child(&mut command, None, Orphan::Terminated, Vec::new());
    command
}

/// The first line that a command prints.
pub fn first_line(command: &[String]) -> String {
    let output = Command::new(command.first().map_or("", String::as_str))
        .args(command.get(1..).unwrap_or_default())
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return format!("{}: cannot be started", command.join(" "));
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("unknown");
    line.split(" (built")
        .next()
        .unwrap_or(line)
        .trim()
        .to_string()
}

/// Copies files and directories, links as what they lead to.
pub fn copy_directory(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for file in list(from)? {
        let target = to.join(file.strip_prefix(from)?);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::copy(&file, &target)
            .with_context(|| format!("cannot copy {} to {}", file.display(), target.display()))?;
    }
    Ok(())
}

/// A hash of the names and contents of files and directories.
pub fn hash(paths: &[&Path]) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        for file in list(path)? {
            file.hash(&mut hasher);
            std::fs::read(&file)
                .with_context(|| format!("cannot read {}", file.display()))?
                .hash(&mut hasher);
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// All files below a directory in a fixed order, or the file itself. Files that are installed or
/// built there by hand are no part of it.
pub fn list(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    const FOREIGN: [&str; 5] = ["vendor", "node_modules", "target", "var", "storage"];
    let mut found = Vec::new();
    let mut waiting = vec![path.to_path_buf()];
    while let Some(path) = waiting.pop() {
        if !path.is_dir() {
            found.push(path);
            continue;
        }
        let entries =
            std::fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for entry in entries {
            let entry = entry?;
            let is_foreign = FOREIGN.iter().any(|name| entry.file_name() == *name);
            if !is_foreign {
                waiting.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
