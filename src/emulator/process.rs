//! One process of a sandbox: the runtime or an external extension.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tokio::process::{ChildStdin, Command};
use tokio::sync::watch;

use super::log::{Log, ProcessOutput};

/// A started process.
pub struct Process {
    pub pid: u32,
    exit: watch::Receiver<Option<ExitStatus>>,
    output: Option<Arc<ProcessOutput>>,
    /// Closing it lets a held process begin.
    gate: Mutex<Option<ChildStdin>>,
}

/// What to start, and how.
pub struct Start {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub directory: PathBuf,
    /// The complete environment of the process.
    pub variables: Vec<(String, String)>,
    /// Whether the process waits for [`release`](Process::release), so that it can join its control
    /// group first.
    pub is_held: bool,
}

impl Process {
    pub fn start(start: &Start, log: &Arc<Log>) -> anyhow::Result<Process> {
        let (program, directory) = (&start.program, &start.directory);
        let mut command = match start.is_held {
            false => Command::new(program),
            true => {
                // The shell reads until the gate closes, then executes the program.
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", r#"read -r _; exec "$@" </dev/null"#, "sh"]);
                shell.arg(program);
                shell
            }
        };
        command.args(&start.arguments).current_dir(directory);
        command.env_clear().envs(start.variables.iter().cloned());
        command.stdin(match start.is_held {
            false => Stdio::null(),
            true => Stdio::piped(),
        });
        // Keeps a terminal's Ctrl-C away from the process: only the emulator reacts to it.
        command.process_group(0);
        let mut output = None;
        if log.is_read() {
            let (reader, writer) = io::pipe().context("cannot create a pipe for the log")?;
            command.stdout(writer.try_clone()?).stderr(writer);
            output = Some(ProcessOutput::follow(OwnedFd::from(reader), log.clone())?);
        } else {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let mut child = command.spawn().with_context(|| {
            format!(
                "cannot start {} in {}",
                program.display(),
                directory.display()
            )
        })?;
        // The command holds write ends of the pipe. The reader sees end of file only after they are
        // closed.
        drop(command);
        let pid = child.id().context("the process exited during start-up")?;
        let gate = Mutex::new(child.stdin.take());
        let (ended, exit) = watch::channel(None);
        tokio::spawn(async move {
            let status = child.wait().await.unwrap_or(ExitStatus::from_raw(0));
            ended.send_replace(Some(status));
        });
        Ok(Process {
            pid,
            exit,
            output,
            gate,
        })
    }

    /// Lets a held process begin.
    pub fn release(&self) {
        drop(
            self.gate
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }

    /// Waits for the exit of the process.
    pub async fn exited(&self) -> ExitStatus {
        let mut exit = self.exit.clone();
        let status = exit.wait_for(Option::is_some).await;
        let status = status.ok().and_then(|status| *status);
        match status {
            Some(status) => status,
            // The waiting task was cancelled at the end of the program.
            None => std::future::pending().await,
        }
    }

    /// Whether the process has exited.
    pub fn has_exited(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Reads everything that the process has written so far into the log.
    pub fn drain(&self) {
        if let Some(output) = &self.output {
            output.finish();
        }
    }
}

/// `exit status 1` or `signal: killed`, as Lambda writes it.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal: {}", signal_name(signal)),
        (None, None) => "unknown".into(),
    }
}

/// The signal names of Go, in which Lambda is written.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        _ => return format!("signal {signal}"),
    };
    name.into()
}
