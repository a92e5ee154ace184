//! A sandbox: the processes and the Runtime API state of one runtime, from start to end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use surus_sys::signal::{self, Signal};
use tokio_util::sync::CancellationToken;

use super::cgroup::Cgroup;
use super::extensions::Extensions;
use super::fault_injection::Fault;
use super::function::{EmulatedFunction, Resources, Runtime};
use super::identifier;
use super::log::Log;
use super::process::{self, Process, Start};
use super::process_tree::ProcessTree;
use super::read_only_root;
use super::state::{StartProgress, State};
use super::variables;

/// How long external extensions may take to register; the same as the initialization limit.
const REGISTRATION: Duration = Duration::from_secs(10);

/// How long to wait for a killed process; it normally exits much sooner.
const UNKILLABLE: Duration = Duration::from_secs(2);

/// The reason for a shutdown, as extensions receive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    SpinDown,
    Timeout,
    Failure,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Reason::SpinDown => "spindown",
            Reason::Timeout => "timeout",
            Reason::Failure => "failure",
        }
    }
}

/// One runtime process with its extensions.
pub struct Sandbox {
    state: Mutex<State>,
    /// Cancelled at the end, which closes all connections.
    pub connections: CancellationToken,
    /// The token that requests for credentials must carry.
    pub token: String,
    is_managed: bool,
    runtime: Mutex<Option<Arc<Process>>>,
    extensions: Mutex<Vec<(String, Arc<Process>)>>,
    tree: Mutex<Option<ProcessTree>>,
    cgroup: Option<Arc<Cgroup>>,
    /// When the runtime was allowed to begin.
    released: Mutex<Option<Instant>>,
    is_out_of_memory: AtomicBool,
    /// The peak in bytes, measured before the end.
    peak: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandbox {
    fn new(
        function: &EmulatedFunction,
        expected: Vec<String>,
        cgroup: Option<Cgroup>,
    ) -> Arc<Sandbox> {
        let is_managed = function.initialization.is_managed();
        Arc::new(Sandbox {
            state: Mutex::new(State::new(is_managed, Extensions::expecting(expected))),
            connections: CancellationToken::new(),
            token: identifier::uuid(),
            is_managed,
            runtime: Mutex::default(),
            extensions: Mutex::default(),
            tree: Mutex::default(),
            cgroup: cgroup.map(Arc::new),
            released: Mutex::default(),
            is_out_of_memory: AtomicBool::new(false),
            peak: AtomicU64::new(0),
        })
    }

    /// Creates the sandbox of a runtime that connects by itself.
    pub fn attached(function: &EmulatedFunction) -> Arc<Sandbox> {
        Sandbox::new(function, Vec::new(), None)
    }

    /// Starts the external extensions, waits for their registrations, then starts the runtime.
    /// Calls `begun` before any process can call the API.
    pub async fn start(
        function: &Arc<EmulatedFunction>,
        address: SocketAddr,
        log: &Arc<Log>,
        begun: impl FnOnce(Arc<Sandbox>),
    ) -> anyhow::Result<Arc<Sandbox>> {
        let Runtime::Command {
            program,
            arguments,
            directory,
        } = &function.runtime
        else {
            bail!("cannot start an attached runtime; it connects by itself");
        };
        let cgroup = match function.resources {
            Resources::Unlimited => None,
            Resources::Limited => Some(Cgroup::new(Path::new("/"), function.memory)?),
        };
        let list = cgroup.as_ref().map(Cgroup::list);
        let executables = executables(function.extensions.as_deref())?;
        let names = executables.iter().map(|(name, _)| name.clone()).collect();
        let sandbox = Sandbox::new(function, names, cgroup);
        begun(sandbox.clone());
        let directory = std::path::absolute(directory)?;
        let address = address.to_string();
        let variables = variables::build(function, &address, &directory, &sandbox.token);
        let (program, arguments) = match function.faults.has(Fault::ReadOnly) {
            false => (program.clone(), arguments.clone()),
            true => read_only_root::command(program, arguments)?,
        };
        let start = |program, arguments| Start {
            program,
            arguments,
            directory: directory.clone(),
            variables: variables.clone(),
            is_held: sandbox.cgroup.is_some(),
        };
        for (name, executable) in executables {
            let process = Process::start(&start(executable, Vec::new()), log)?;
            let process = Arc::new(process);
            lock(&sandbox.extensions).push((name, process.clone()));
            sandbox.set_tree(&address, &list);
            sandbox.release(&process).await?;
        }
        sandbox.wait_for_registrations().await?;
        if program.components().count() > 1 && !directory.join(&program).exists() {
            bail!("{} does not exist", program.display());
        }
        let process = Arc::new(Process::start(&start(program, arguments), log)?);
        *lock(&sandbox.runtime) = Some(process.clone());
        sandbox.set_tree(&address, &list);
        sandbox.release(&process).await?;
        sandbox.throttle_when_ready();
        Ok(sandbox)
    }

    /// Puts a process into the control group before it runs.
    async fn release(&self, process: &Process) -> anyhow::Result<()> {
        if let Some(cgroup) = self.cgroup.clone() {
            let pid = process.pid;
            // The kernel may take a while to move the process.
            tokio::task::spawn_blocking(move || cgroup.add(pid)).await??;
        }
        *lock(&self.released) = Some(Instant::now());
        process.release();
        Ok(())
    }

    /// When the runtime was allowed to begin. Time before that does not count as initialization.
    pub fn released(&self) -> Option<Instant> {
        *lock(&self.released)
    }

    fn set_tree(&self, address: &str, list: &Option<PathBuf>) {
        let roots = lock(&self.runtime)
            .iter()
            .chain(lock(&self.extensions).iter().map(|(_, process)| process))
            .map(|process| process.pid)
            .collect();
        *lock(&self.tree) = Some(ProcessTree::new(address, roots, list.clone()));
    }

    async fn wait_for_registrations(&self) -> anyhow::Result<()> {
        let limit = Instant::now() + REGISTRATION;
        while !self.state().extensions.have_all_registered() {
            if Instant::now() > limit {
                bail!("an extension did not register within {REGISTRATION:?}");
            }
            let ended = lock(&self.extensions)
                .iter()
                .find(|(_, process)| process.has_exited())
                .map(|(name, _)| name.clone());
            if let Some(name) = ended {
                bail!("the extension {name} exited before it registered");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Removes the limit until the runtime is ready: Lambda's initializations have more CPU than
    /// the function.
    fn throttle_when_ready(self: &Arc<Sandbox>) {
        if self.cgroup.is_none() {
            return;
        }
        let sandbox = Arc::downgrade(self);
        let mut progress = self.state().progress();
        tokio::spawn(async move {
            let is_ready = |progress: &StartProgress| matches!(progress, StartProgress::Ready);
            if progress.wait_for(is_ready).await.is_ok()
                && let Some(sandbox) = sandbox.upgrade()
                && let Some(cgroup) = &sandbox.cgroup
            {
                let _ = cgroup.throttle();
            }
        });
    }

    /// Locks the state. Callers must hold the lock only briefly.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether the runtime waits for an event or for its restore.
    pub fn is_ready(&self) -> bool {
        let progress = self.state().progress();
        matches!(
            *progress.borrow(),
            StartProgress::Ready | StartProgress::Snapshot
        )
    }

    pub fn is_snapshot(&self) -> bool {
        let progress = self.state().progress();
        matches!(*progress.borrow(), StartProgress::Snapshot)
    }

    fn processes(&self) -> Vec<Arc<Process>> {
        let mut all: Vec<Arc<Process>> = lock(&self.runtime).iter().cloned().collect();
        let extensions = lock(&self.extensions);
        all.extend(extensions.iter().map(|(_, process)| process.clone()));
        all
    }

    /// Whether the runtime or an extension has exited.
    pub fn has_ended(&self) -> bool {
        self.connections.is_cancelled() || self.processes().iter().any(|p| p.has_exited())
    }

    /// Waits until the runtime or an extension exits. Returns Lambda's error type and message.
    pub async fn ended(&self) -> (&'static str, String) {
        let runtime = lock(&self.runtime).clone();
        let extensions = lock(&self.extensions).clone();
        let runtime = async {
            match runtime {
                Some(process) => process.exited().await,
                None => std::future::pending().await,
            }
        };
        let extension = async {
            if extensions.is_empty() {
                std::future::pending::<()>().await;
            }
            let exits = extensions.iter().map(|(name, process)| {
                Box::pin(async move { (name.clone(), process.exited().await) })
            });
            futures_util::future::select_all(exits).await.0
        };
        tokio::select! {
            status = runtime => {
                let message = match status.success() {
                    true => "Runtime exited without providing a reason".to_string(),
                    false => format!("Runtime exited with error: {}", process::describe(status)),
                };
                ("Runtime.ExitError", message)
            }
            (name, status) = extension => {
                ("Extension.Crash", format!("extension {name}: {}", process::describe(status)))
            }
        }
    }

    /// Reads everything that the processes have written so far into the log.
    pub fn drain(&self) {
        for process in self.processes() {
            process.drain();
        }
    }

    pub fn tree(&self) -> Option<ProcessTree> {
        lock(&self.tree).clone()
    }

    pub fn signal(&self, to_send: Signal) {
        if let Some(tree) = self.tree() {
            tree.signal(to_send);
        }
    }

    pub fn set_out_of_memory(&self) {
        self.is_out_of_memory.store(true, Ordering::Relaxed);
    }

    pub fn was_out_of_memory(&self) -> bool {
        self.is_out_of_memory.load(Ordering::Relaxed)
            || self
                .cgroup
                .as_ref()
                .is_some_and(|cgroup| cgroup.was_out_of_memory())
    }

    /// Bytes.
    pub fn peak_memory(&self) -> u64 {
        let of_cgroup = self.cgroup.as_ref().and_then(|cgroup| cgroup.peak_memory());
        let now = of_cgroup.unwrap_or_else(|| self.tree().map_or(0, |tree| tree.peak_memory()));
        self.peak.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Ends all processes. Without extensions they are killed at once. Otherwise the runtime gets
    /// SIGTERM first, then the external extensions that registered for it get SHUTDOWN. The time
    /// budgets are Lambda's.
    pub async fn shut_down(&self, reason: Reason) {
        // Nothing can be measured afterwards.
        self.peak_memory();
        let (count, has_external) = {
            let state = self.state();
            (state.extensions.count(), state.extensions.has_external())
        };
        if count > 0 {
            let (runtime, all) = match (self.is_managed, has_external) {
                (true, _) => (600, 2000),
                (false, true) => (300, 2000),
                (false, false) => (500, 500),
            };
            let began = tokio::time::Instant::now();
            let process = lock(&self.runtime).clone();
            if let Some(process) = process.filter(|process| !process.has_exited()) {
                let _ = signal::send(process.pid, Signal::Terminate);
                let limit = began + Duration::from_millis(runtime);
                let _ = tokio::time::timeout_at(limit, process.exited()).await;
            }
            if has_external {
                let limit = began + Duration::from_millis(all);
                let left = limit.saturating_duration_since(tokio::time::Instant::now());
                let notice = serde_json::json!({
                    "eventType": "SHUTDOWN",
                    "shutdownReason": reason.name(),
                    "deadlineMs": (identifier::since_epoch() + left).as_millis() as u64,
                });
                self.state()
                    .extensions
                    .shut_down(&notice.to_string().into());
                let extensions = lock(&self.extensions).clone();
                for (_, process) in extensions {
                    let _ = tokio::time::timeout_at(limit, process.exited()).await;
                }
            }
        }
        self.kill().await;
    }

    /// Kills everything without waiting, because the emulator itself ends.
    pub fn abandon(&self) {
        self.connections.cancel();
        if self.processes().iter().any(|process| !process.has_exited())
            && let Some(tree) = self.tree()
        {
            tree.kill();
        }
    }

    /// Kills all remaining processes.
    async fn kill(&self) {
        let Some(tree) = self.tree() else { return };
        let _ = tokio::task::spawn_blocking(move || tree.kill()).await;
        for process in self.processes() {
            // A process that hangs in the kernel must not block the caller.
            let _ = tokio::time::timeout(UNKILLABLE, process.exited()).await;
        }
        if let Some(cgroup) = self.cgroup.clone() {
            // Remove the group now: another reference to this sandbox may outlive it.
            let _ = tokio::task::spawn_blocking(move || cgroup.remove()).await;
        }
    }
}

/// The executables in a directory of extensions, sorted by name.
fn executables(directory: Option<&Path>) -> anyhow::Result<Vec<(String, PathBuf)>> {
    use std::os::unix::fs::PermissionsExt;
    let Some(directory) = directory else {
        return Ok(Vec::new());
    };
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read the extensions in {}", directory.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let metadata = std::fs::metadata(entry.path())?;
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((name, std::path::absolute(entry.path())?));
        }
    }
    found.sort();
    Ok(found)
}
