//! Runs a command as a job: its exit status decides, and its output is logged.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tracing::info;

/// The command of an entry of `[[schedule]]`.
#[derive(Debug, Clone)]
pub struct Program {
    pub words: Vec<String>,
    pub directory: PathBuf,
}

/// The longest line that is logged as one.
const LINE: u64 = 16 << 10;
/// How long to wait for the rest of the output, which processes in the background may hold open.
const REST: Duration = Duration::from_secs(1);

impl Program {
    /// Runs the command. The error says how it has failed.
    pub async fn run(&self, name: &str, timeout: Duration) -> Result<(), String> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err("the command is empty".into());
        };
        let child = Command::new(program)
            .args(arguments)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child =
            CommandGroup(child.map_err(|error| format!("cannot start {program}: {error}"))?);
        let mut output = JoinSet::new();
        if let Some(stdout) = child.0.stdout.take() {
            output.spawn(follow(stdout, name.to_string()));
        }
        if let Some(stderr) = child.0.stderr.take() {
            output.spawn(follow(stderr, name.to_string()));
        }
        let ended = tokio::time::timeout(timeout, child.0.wait()).await;
        let ended = ended.map_err(|_| "it has not ended before its time limit".to_string());
        // Kills the processes if the command is late.
        drop(child);
        let _ = tokio::time::timeout(REST, output.join_all()).await;
        match ended?.map_err(|error| format!("cannot wait for {program}: {error}"))? {
            status if status.success() => Ok(()),
            status => Err(reason(status)),
        }
    }
}

/// A command and the processes that it starts. Dropping it kills them.
struct CommandGroup(Child);

impl Drop for CommandGroup {
    fn drop(&mut self) {
        // None if it has ended: another process may have its id then.
        if let Some(pid) = self.0.id() {
            let _ = surus_sys::process::kill_group(pid);
        }
    }
}

fn reason(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("it has ended with exit status {code}"),
        None => status.to_string(),
    }
}

async fn follow(output: impl AsyncRead + Unpin, schedule: String) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut output).take(LINE).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line);
        info!(target: "command", schedule, "{}", text.trim_end());
        line.clear();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn run(words: &[&str]) -> Result<(), String> {
        let program = Program {
            words: words.iter().map(|word| word.to_string()).collect(),
            directory: std::env::temp_dir(),
        };
        program.run("test", Duration::from_secs(60)).await
    }

    #[tokio::test]
    async fn exit_status_decides() {
        assert_eq!(run(&["true"]).await, Ok(()));
        let failed = run(&["sh", "-c", "echo out; echo err >&2; exit 3"]).await;
        assert_eq!(failed, Err("it has ended with exit status 3".into()));
        let killed = run(&["sh", "-c", "kill -9 $$"]).await.unwrap_err();
        assert!(killed.contains("signal: 9"), "{killed}");
        let missing = run(&["/no/such/program"]).await.unwrap_err();
        assert!(
            missing.contains("cannot start /no/such/program"),
            "{missing}"
        );
    }

    #[tokio::test]
    async fn command_that_is_late_ends_with_all_its_processes() {
        let directory = tempfile::tempdir().unwrap();
        let script = "sleep 600 & echo $! > pid; wait";
        let program = Program {
            words: ["sh", "-c", script].map(String::from).into(),
            directory: directory.path().into(),
        };
        let file = directory.path().join("pid");
        // A busy machine may take long to start it.
        let mut limit = Duration::from_millis(200);
        while std::fs::read_to_string(&file)
            .unwrap_or_default()
            .is_empty()
        {
            let late = program.run("test", limit).await;
            assert_eq!(late, Err("it has not ended before its time limit".into()));
            limit *= 2;
        }
        let pid = std::fs::read_to_string(file).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        // Killed, and perhaps not reaped yet.
        while state().is_ok_and(|stat| !stat.contains(") Z")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
