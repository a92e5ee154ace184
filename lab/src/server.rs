//! A started contestant, from the first process to the last. It never outlives this process.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use surus_load::Plan;
use surus_measure::probe;
use surus_sys::process;

use crate::build::{self, list};
use crate::contestant::{Manifest, Stop};
use crate::experiment::Load;
use crate::interrupt;
use crate::words::Words;

/// How long it may take to its first response.
const TO_START: Duration = Duration::from_secs(60);
/// How long it may take to end before it is killed.
const TO_END: Duration = Duration::from_secs(10);
/// How often a waiting loop looks.
const LOOK: Duration = Duration::from_millis(2);
/// Where contestants find programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug)]
pub struct Server {
    children: Vec<Child>,
    stop: Stop,
    log: PathBuf,
    pub port: u16,
    /// Shell commands that start the same in its directory, relative to the repository.
    pub commands: Vec<String>,
    /// From the start to the first response.
    pub start: Duration,
}

impl Server {
    /// Fills in its files in `directory`, starts it, waits until it answers a load's path, and runs
    /// the commands for then. To be called from the main thread: it ends with the thread that
    /// starts it.
    pub fn start(
        manifest: &Manifest,
        words: &Words,
        directory: &Path,
        load: &Load,
    ) -> anyhow::Result<Server> {
        let mut words = words.clone();
        let port = free_port()?;
        words.set("port", port);
        words.set("dir", directory.display());
        fs::create_dir_all(directory)?;
        fill_files(manifest, &words, directory)?;
        let log = directory.join("output.log");
        let output = File::create(&log)?;
        let mut server = Server {
            children: Vec::new(),
            stop: manifest.stop,
            log,
            port,
            commands: Vec::new(),
            start: Duration::ZERO,
        };
        let began = Instant::now();
        for command in &manifest.start {
            let parts = words.command(command)?;
            let mut variables = vec![("PATH".to_string(), PATH.to_string())];
            for (name, value) in &manifest.env {
                variables.push((name.clone(), words.fill(value)?));
            }
            server.commands.push(in_shell(&variables, &parts, &words)?);
            let mut command = build::program(&parts);
            command
                .env_clear()
                .envs(variables)
                .current_dir(directory)
                .stdout(output.try_clone()?)
                .stderr(output.try_clone()?);
            let child = command.spawn();
            server
                .children
                .push(child.with_context(|| format!("cannot start {}", parts[0]))?);
        }
        server.wait(&load.hello(port, manifest.ready.as_deref())?)?;
        server.start = began.elapsed();
        for command in &manifest.once_ready {
            build::run(&words.command(command)?, directory)
                .with_context(|| format!("it said: {}", server.output()))?;
        }
        Ok(server)
    }

    /// The processes that were started; all others descend from them.
    pub fn pids(&self) -> Vec<i32> {
        self.children
            .iter()
            .map(|child| child.id().cast_signed())
            .collect()
    }

    /// The file with everything that it has written.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines that it has written.
    pub fn output(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let last = lines[lines.len().saturating_sub(3)..].join(" / ");
        if last.is_empty() {
            return "nothing".into();
        }
        match last.char_indices().nth_back(400) {
            Some((at, _)) => format!("…{}", &last[at..]),
            None => last,
        }
    }

    /// Asks until it answers as expected.
    fn wait(&mut self, hello: &Plan) -> anyhow::Result<()> {
        let deadline = Instant::now() + TO_START;
        loop {
            for child in &mut self.children {
                if let Some(status) = child.try_wait()? {
                    bail!(
                        "it ended with {status} before it answered; it said: {}",
                        self.output()
                    );
                }
            }
            let totals = surus_load::run(hello, None, interrupt::received())?.totals;
            interrupt::check()?;
            if totals.responses == 1 {
                return Ok(());
            }
            if Instant::now() > deadline {
                let unexpected = totals
                    .unexpected
                    .map(|it| format!("{}, {}", it.status, it.body));
                let answer = unexpected
                    .or(totals.first_error)
                    .unwrap_or("no response".into());
                bail!("it answers with {answer}; it said: {}", self.output());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn stop(&mut self) {
        let tree = probe::tree(&self.pids());
        for child in self.children.iter_mut().rev() {
            if matches!(child.try_wait(), Ok(None)) {
                let _ = match self.stop {
                    Stop::Terminate => process::terminate(child.id()),
                    Stop::Kill => process::kill(child.id()),
                };
            }
        }
        let deadline = Instant::now() + TO_END;
        while Instant::now() < deadline {
            let mut children = self.children.iter_mut();
            if children.all(|child| !matches!(child.try_wait(), Ok(None))) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        // Ends the processes that did not end, and those that they left behind in their sessions.
        let sessions: Vec<_> = self.children.iter().map(Child::id).collect();
        for pid in tree {
            let of = process::parent_and_group(pid.cast_unsigned());
            if of.is_some_and(|(_, group)| sessions.contains(&group)) {
                let _ = process::kill(pid.cast_unsigned());
            }
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn fill_files(manifest: &Manifest, words: &Words, directory: &Path) -> anyhow::Result<()> {
    for name in &manifest.files {
        for file in list(&manifest.directory.join(name))? {
            let target = directory.join(file.strip_prefix(&manifest.directory)?);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            match fs::read_to_string(&file) {
                Ok(text) => fs::write(&target, words.fill_file(&text))?,
                // No text, so no words.
                Err(_) => drop(fs::copy(&file, &target)?),
            }
        }
    }
    Ok(())
}

/// What starts a program in a shell, with nothing but these variables. Paths in the repository are
/// relative to it.
fn in_shell(
    variables: &[(String, String)],
    parts: &[String],
    words: &Words,
) -> anyhow::Result<String> {
    let repository = words.fill("@repository@/")?;
    let shorten = |text: &str| quote(&text.replace(&repository, ""));
    let variables = variables
        .iter()
        .map(|(name, value)| format!("{name}={}", shorten(value)));
    let parts = parts.iter().map(|part| shorten(part));
    let all: Vec<_> = variables.chain(parts).collect();
    Ok(format!("env -i {}", all.join(" ")))
}

/// A word of a shell.
fn quote(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+=:,./@%".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
